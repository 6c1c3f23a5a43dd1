"""An API server without streaming lists, whose pages of a LIST cannot be gone on with."""

from __future__ import annotations

from functools import partial

from app.collect.watch import GONE, PAGE
from tests.cluster.oracle import PATHS
from tests.cluster.programs import wait_until
from tests.faults.network import wait_for_gap
from tests.faults.objects import make_namespace, sent
from tests.faults.proxy import Mode
from tests.faults.stand import NAMESPACES, Stand
from tests.faults.trial import Found

EARLIER, LATER = "earlier", "up-to-the-last-page"
"""Namespaces that a LIST, which goes by their names, tells before those of the oracle and after them."""
ON_FIRST_PAGE = 5
"""ConfigMaps of the oracle that are: it ends among them."""
ASKED_SECONDS = 180
"""Lists are spread over half a minute, and are a minute apart for each kind."""


def expired(stand: Stand, found: Found, *, behind: tuple[int, ...]) -> None:
    """410 to a page: etcd was compacted since the LIST began. So it ends behind that page of the first, and of each
    LIST that is begun in its place; the one after these comes to its end.

    They are of ConfigMaps, and begin as what was missed is too old for a watch. The page is held on its way, so that
    the API server gets it after something was written and compacted; the 410 is the API server's own.
    """
    page = int(PAGE)
    _fill(stand, page - ON_FIRST_PAGE, page * max(behind))
    began, mark = stand.now(), stand.mark()
    stand.program.stop()
    stand.plane.compact()
    stand.proxy.turn(Mode.HOLDS_PAGES)
    stand.program.start()
    for asked, expires in enumerate([turn == last for last in behind for turn in range(1, last + 1)], start=1):
        wait_until(partial(_is_asked_for, stand, asked), "another page is asked for", seconds=ASKED_SECONDS)
        if expires:
            _write(stand, f"written-{asked}")
            stand.plane.compact()
        stand.proxy.let_pages_go()
    stand.proxy.turn(Mode.CARRIES)
    wait_for_gap(stand, found, began=began)
    gone = sum(call.is_page and call.code == GONE for call in stand.asked(mark))
    found.promise(f"{gone} pages answered {GONE}", holds=gone == len(behind))


def _fill(stand: Stand, earlier: int, later: int) -> None:
    """So many ConfigMaps before those of the oracle, with what is there, and so many after them."""
    with stand.plane.client() as admin:
        listed = admin.get("/api/v1/configmaps").json()["items"]
        there = sum(one["metadata"]["namespace"] < NAMESPACES for one in listed)
        for namespace, count in ((EARLIER, earlier - there), (LATER, later)):
            make_namespace(admin, namespace)
            for number in range(count):
                sent(admin, PATHS["ConfigMap"].format(namespace), {"metadata": {"name": f"filler-{number}"}})


def _is_asked_for(stand: Stand, page: int) -> bool:
    return stand.proxy.pages >= page


def _write(stand: Stand, name: str) -> None:
    """Something, so that the version of the LIST is no longer the newest, which is never compacted."""
    with stand.plane.client() as admin:
        sent(admin, PATHS["ConfigMap"].format(LATER), {"metadata": {"name": name}})
