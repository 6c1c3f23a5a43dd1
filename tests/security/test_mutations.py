"""Each rule of redaction is taken out in turn: the search for planted secrets then finds some. So it can fail."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from app.core.objects import redact, redact_rules, redact_text, secret_names, yaml_text
from app.core.objects.redact import Redactor
from tests.core.changes.test_canaries import ANYWHERE, OWN, OWN_RULES, PLAIN, SHAPES, Ways, _parts

NOTHING = re.compile(r"(?!)")


def _no(*_: object) -> bool:
    return False


def _same(_self: Redactor, text: str, *_: object) -> str:
    return text


RULES: dict[str, tuple[object, str, object]] = {
    "the values of a Secret": (Redactor, "_values", lambda _self, value: value),
    "custom resources that hold credentials": (secret_names, "is_secret_kind", _no),
    "values by the name of their field": (secret_names, "is_secretive", _no),
    "what is nested under such a name": (Redactor._walk, "__kwdefaults__", {"closed": False, "by_key": _no}),
    "files that are secret as a whole": (secret_names, "is_secret_file", _no),
    "tokens by their shape": (redact_rules, "SHAPES", NOTHING),
    "what only looks random": (redact_rules, "is_random", _no),
    "passwords in addresses": (redact_rules, "AUTHORITY", NOTHING),
    "bearer and basic": (redact_rules, "SCHEME", NOTHING),
    "name=value in a text": (redact_rules, "ASSIGNED", NOTHING),
    "-pSECRET of a command": (redact_rules, "SHORT_P", NOTHING),
    "the argument behind a flag": (redact_rules, "FLAG", NOTHING),
    "blocks of YAML": (Redactor, "_blocks", _same),
    "an object in an annotation": (Redactor, "_embedded_object", lambda _self, _group, _kind, text: text),
    "JSON within a string": (Redactor, "_embedded", lambda _self, text, _key, _depth: text),
    "YAML within a string": (yaml_text, "judged", lambda _text, *_: None),
    "operations of a JSON Patch": (Redactor, "_operation", lambda _self, _group, _kind, operation: operation),
    "names of one's own": (redact_text, "Names", lambda _names: None),
    "kinds of one's own": (Redactor, "cuts", _no),
    "what is special wherever it stands": (redact, "_SPECIAL", frozenset()),
}


def leaked() -> int:
    """How many of some secrets, each in a place of its own, come out of the tracker."""
    draw, ways = random.Random(5), Ways(OWN_RULES)
    places = [
        (kind, place, f"z{''.join(draw.choices('bcdfghjklmnpqrstvwxz', k=18))}9")
        for kind, each in [*PLAIN.items(), *OWN.items()]
        for place in each
    ]
    places += [(("acme.io", "Widget"), place, shape(draw)) for place in ANYWHERE for shape in SHAPES]
    for (group, name), place, canary in places:
        ways.tell(group, name, place(canary))
    everything = "\n".join(ways.emitted)
    return sum(any(part in everything for part in _parts(canary)) for _, _, canary in places)


def test_with_all_rules_none_comes_out() -> None:
    assert leaked() == 0


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_come_out(
    rule: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    where, name, instead = RULES[rule]
    monkeypatch.setattr(where, name, instead)
    found = leaked()
    record_property("rules of redaction whose absence is noticed", 1)
    assert found > 0, f"nobody would notice that {rule} is gone"
