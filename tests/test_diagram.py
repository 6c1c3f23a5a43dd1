"""Whether odds hold, as a drawing."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from app.commands.diagram import EDGE, SIZE, svg
from app.core.evaluation.accuracy import reliability


def test_each_bin_stands_where_what_was_said_and_what_was_right_meet() -> None:
    drawn = svg(reliability([(0.9, True)] * 8 + [(0.9, False)] * 2 + [(0.3, False)] * 5))
    tree = ElementTree.fromstring(drawn)
    dots = [(float(one.get("cx", "")), float(one.get("cy", ""))) for one in tree.iter() if one.tag.endswith("circle")]
    assert dots == [(EDGE + 0.3 * SIZE, EDGE + SIZE), (EDGE + 0.9 * SIZE, EDGE + 0.2 * SIZE)]
    assert re.findall(r">(\d+)</text>", drawn)[-2:] == ["5", "10"], "how many cases each has"
    low, high = (float(part) for part in re.findall(r"M328\.0 ([\d.]+)V([\d.]+)", drawn)[0])
    assert high < dots[1][1] < low


def test_nothing_to_draw_leaves_the_axes() -> None:
    assert "circle" not in svg([])
