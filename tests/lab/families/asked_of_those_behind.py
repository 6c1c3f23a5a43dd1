"""What a page asks of those behind it: once everybody sees a new part of it, and once somebody reads all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.api import now
from tests.lab.apps import App
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

FLAGS, COLLEAGUES, ALL = "features", "colleagues", "all"
OF_COLLEAGUES = 0.003
"""The share of a page's views that are the company's own people's."""


@family(
    "A new part of a page, which the company's own people have seen for a week, is shown to everybody by its flag. For"
    " it the page asks another app a dozen times at each view, which is several times what that one stands: it answers"
    " late and is not ready, and those who cannot do without it fail, while the page itself leaves the part out.",
    joined=86,
)
async def shown_to_everybody(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose feature worked, and whose colleagues next door were called."""
    namespace, page, called, front, flag, other = lab.rng.choice(
        (
            ("shop", "listing-page", "stock-lookup", "basket-check", "stock-badges", "larger-pictures"),
            ("media", "start-page", "watch-history", "resume-page", "go-on-watching", "autoplay"),
            ("search", "hit-list", "click-counts", "trend-page", "popularity-marks", "short-urls"),
            ("payments", "overview", "balance-lookup", "transfer-page", "balance-preview", "dark-theme"),
        )
    )
    by, minor = lab.rng.choice((*TEAMS, "flux")), lab.rng.randrange(4, 60)
    views, each, usual = lab.rng.uniform(32, 44), lab.rng.randrange(11, 18), lab.rng.uniform(50, 80)
    turned = list[float]()

    def seen() -> float:
        """The share of views with the new part: what the page's processes have read, once they have read it."""
        there = [one.container.config for one in lab.kubelets.running() if one.app is shown]
        share = sum(one.get(flag) == ALL for one in there) / max(1, len(there))
        if not share:
            return OF_COLLEAGUES
        turned.append(turned[0] if turned else now().timestamp())
        return share if now().timestamp() - turned[0] >= 2 else OF_COLLEAGUES

    async def views_pass() -> None:
        while True:
            asked.load = usual + views * each * seen()
            await asyncio.sleep(0.5)

    asked = App("", load=usual, capacity=95)
    await lab.apply(objects.config_map(namespace, called, LOG_LEVEL="info", POOL_SIZE="20"))
    await lab.app(namespace, called, like=asked, replicas=3, tag=f"2.{minor}.0", config=called)
    await rolled(lab, namespace, called, f"2.{minor}.0")
    flags = {flag: COLLEAGUES, other: COLLEAGUES, "new-footer": ALL}
    await lab.apply(objects.config_map(namespace, FLAGS, **flags))
    shown = App("", asked=lambda: views)
    env = [{"name": f"{called.upper().replace('-', '_')}_URL", "value": f"http://{called}.{namespace}"}]
    await lab.app(namespace, page, like=shown, replicas=3, tag="11.4.0", config=FLAGS, env=env)
    await rolled(lab, namespace, page, "11.4.0")
    lab.reserve(namespace, page)
    await set_before(lab, namespace, front, called)
    lab.start(views_pass())
    lab.alert_errors(namespace, called)
    lab.alert_errors(namespace, front)
    lab.alert_lacking(namespace, called, seconds=9)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 5))
        await change_page(lab, namespace, front)

    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, FLAGS, {"data": {other: ALL}})
    await lab.pause(lab.rng.uniform(3, 6))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, called, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 10))
    await lab.culprit(by, "update", "ConfigMap", namespace, FLAGS, {"data": {flag: ALL}})
    await lab.pause(lab.rng.uniform(0.5, 2))
    size = {"data": {"POOL_SIZE": lab.rng.choice(("15", "25"))}}
    await lab.edit(lab.rng.choice(("argocd", "flux")), "ConfigMap", namespace, called, size)
    lab.start(afterwards())


QUERY_SECONDS, PATIENCE_SECONDS = 0.06, 2.4
"""What a search takes when nobody else is there, and when it is given up."""
STANDS = 62.0
"""Searches of a first page that all processes together get done in a second."""


@family(
    "No culprit. A crawler has found the pages of results and follows *next* to the hundredth page of each, all day"
    " and from many addresses. For a page so deep all before it is collected and sorted first: a few of those keep"
    " the search busy, and everybody waits.",
    culprit=False,
    joined=86,
)
async def deep_pages(lab: Lab) -> AsyncIterator[None]:
    """As those tell who looked at the last release for an hour, and then at the access log."""
    namespace, name, front, fills = lab.rng.choice(
        (
            ("search", "term-search", "results", "term-index"),
            ("shop", "offer-search", "shop-window", "offer-index"),
            ("media", "title-search", "browse-page", "title-index"),
            ("payments", "merchant-search", "directory", "merchant-index"),
        )
    )
    minor, most, cost = lab.rng.randrange(3, 60), lab.rng.uniform(9, 15), lab.rng.uniform(5, 7)
    people, rises, began = lab.rng.uniform(20, 26), lab.rng.uniform(5, 12), list[float]()

    def crawled() -> float:
        """Deep pages a second."""
        passed = now().timestamp() - began[0] if began else 0.0
        return most * min(1.0, max(0.0, passed / rises))

    def busy() -> float:
        there = len(backends(lab.world, namespace, name))
        return (people + cost * crawled()) / (STANDS * max(1, there) / 4)

    def waits() -> float:
        if busy() >= 0.97:
            return PATIENCE_SECONDS * min(1.0, 0.5 + busy() / 4)
        return QUERY_SECONDS * (1 / (1 - busy()) - 1)

    def gives_up() -> float:
        return min(0.3, max(0.0, 1 - 1.15 / max(busy(), 0.01)))

    def documents() -> float:
        """So many are looked at for a first page, and for a deep one."""
        return 40 * people + 40 * cost * 9 * crawled()

    await lab.app(namespace, fills, replicas=2, tag="4.0.6")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="2400"))
    like = App(
        "",
        asked=lambda: people + crawled(),
        latency=lambda _: waits(),
        failing=lambda _: gives_up(),
        fails_with=lambda _: "503",
    )
    await lab.app(namespace, name, like=like, replicas=4, tag=f"9.{minor}.0", config=name)
    await rolled(lab, namespace, name, f"9.{minor}.0")
    await lab.apply(objects.config_map(namespace, front, LOG_LEVEL="info", PAGE_SIZE="50"))
    before = App("", upstreams=((namespace, name),), asked=lambda: people + crawled())
    await lab.app(namespace, front, like=before, replicas=2, tag="6.1.5", config=front)
    await rolled(lab, namespace, front, "6.1.5")
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, fills)
    told = {"namespace": namespace, "service": name}
    lab.measure("search_documents_collected_total", lab.adding_up(documents), "counter", **told)
    lab.alert_slow(namespace, name)
    lab.alert_slow(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def day() -> None:
        await lab.pause(lab.rng.uniform(4, 9) + lab.lag)
        began.append(now().timestamp())
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.roll(lab.rng.choice(("ci", "flux")), namespace, fills, "4.0.7")

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"9.{minor}.1")
    await lab.pause(lab.rng.uniform(7, 12))
    await change_page(lab, namespace, front)
    if lab.rng.random() < 0.5:
        await lab.pause(lab.rng.uniform(1, 4))
        data = {"data": {"TIMEOUT_MS": lab.rng.choice(("2200", "2600"))}}
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, data)
    lab.start(day())
