"""What is taken as given: a field that every account has, the settings within a build, the end of a line."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.api import now
from tests.lab.apps import App, Container
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family


@family(
    "A release shows each customer something of their own account, and does not ask whether there is any: accounts from"
    " before that was introduced have none, each of their requests ends in a null pointer, and the pods are ready.",
    joined=64,
)
async def never_filled_in(lab: Lab) -> AsyncIterator[None]:
    """The plainest of all reports of a release, as postmortems of a null pointer tell it."""
    namespace, name, accounts, front = lab.rng.choice(
        (
            ("shop", "loyalty", "profiles", "account-page"),
            ("media", "watch-next", "subscribers", "home-page"),
            ("payments", "card-limits", "card-holders", "card-page"),
        )
    )
    number, share, has_old = lab.rng.randrange(40, 90), lab.rng.uniform(0.15, 0.4), True
    old, new = f"1.{number}.2", f"1.{number + 1}.0"

    def fails(container: Container) -> float:
        is_new = container.tag == new and container.seconds >= lab.lag
        return share if is_new and has_old else 0.0

    await lab.app(namespace, accounts, replicas=2, tag="5.0.3")
    await lab.until(lambda: backends(lab.world, namespace, accounts))
    like = App("", upstreams=((namespace, accounts),), asked=lambda: 32.0, failing=fails)
    await lab.app(namespace, name, like=like, replicas=4, tag=old)
    await rolled(lab, namespace, name, old)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="9.2.1")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, hours=lab.rng.choice((20, 26)), cluster=lab.rng.choice(("ca-1", "ap-1"))):
        has_old = False  # that one was opened a year ago, and so was each of its accounts
        await lab.pause(2)
        await lab.roll("ci", namespace, name, new)
        await rolled(lab, namespace, name, new)
        await lab.pause(8)
    await lab.roll("admin", namespace, name, old)
    await rolled(lab, namespace, name, old)
    has_old = True
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 9))
    await lab.roll("ci", namespace, name, new, culprit=True)


@family(
    "Each build of a page is made for one environment, whose addresses are a part of what browsers load, and whose name"
    " ends its tag. The tag of a build for the test environment is written into what is in use: the page is answered"
    " as ever, and all that it has browsers ask for goes where customers get no connection.",
    joined=64,
)
async def built_for_test(lab: Lab) -> AsyncIterator[None]:
    """As one tells of tags that end with the environment that a build is for, and of what went before them."""
    namespace, page, api, placed = lab.rng.choice(
        (
            ("shop", "storefront", "orders-api", "orders_placed_total"),
            ("payments", "wallet-app", "transfers-api", "transfers_sent_total"),
            ("media", "ticket-desk", "bookings-api", "bookings_made_total"),
        )
    )
    day, by, team = lab.rng.randrange(10, 28), lab.rng.choice(("bob", "alice", "carol")), lab.rng.choice(("ci", "flux"))
    old, new = f"202603{day}-091207-prod", f"202603{day + 1}-143958-uat"
    users, loaded = lab.rng.uniform(22, 34), 0.12

    def led() -> float:
        """The share of what browsers ask the API for that comes here: some have loaded the page long ago."""
        there = [one.container for one in lab.kubelets.running() if one.app is shown]
        here = sum(one.tag.endswith("-prod") or one.seconds < lab.lag for one in there)
        return max(loaded, here / max(1, len(there)))

    await lab.apply(objects.config_map(namespace, api, LOG_LEVEL="info", PAGE_SIZE="50"))
    await lab.app(namespace, api, like=App("", asked=lambda: users * led()), replicas=3, tag="7.3.0", config=api)
    shown = App("", asked=lambda: 0.4 * users)
    await lab.app(namespace, page, like=shown, replicas=3, tag=old)
    await rolled(lab, namespace, page, old)
    await lab.until(lambda: len(backends(lab.world, namespace, api)) == 3)
    await publish(lab, namespace, page)
    lab.reserve(namespace, api)
    lab.measure(placed, lab.adding_up(lambda: 0.2 * users * led()), "counter", namespace=namespace, service=api)

    def is_quiet() -> bool:
        return lab.traffic.of_app(namespace, api, 10).answers.total() < 4 * users

    summary = f"{namespace}/{api} gets less than half of the requests that are usual at this time"
    lab.alert("RequestRateTooLow", is_quiet, summary, 5, namespace=namespace, service=api)
    lab.alert_errors(namespace, api)
    await lab.pause(10)  # until there is a usual rate
    await lab.until(lab.is_well)
    yield
    await lab.edit(team, "ConfigMap", namespace, api, {"data": {"PAGE_SIZE": lab.rng.choice(("40", "60"))}})
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll("ci", namespace, api, "7.3.1")
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(by, namespace, page, new, culprit=True)


HEADER = "api-token"


@dataclass
class _Token:
    """One that an app reads from a file at each call, and sends in a header: a line's end may not be in there."""

    lag: float
    wrong_since: float = 0.0

    def is_refused(self, container: Container) -> bool:
        if not base64.b64decode(container.secret.get(HEADER, "")).endswith(b"\n"):
            self.wrong_since = 0.0
            return False
        self.wrong_since = self.wrong_since or now().timestamp()
        return now().timestamp() - self.wrong_since >= self.lag


@family(
    "The token for a service outside is replaced before it is over, and whoever writes it into its Secret encodes it"
    " with the end of its line. It is the right one, and the library by which an app calls refuses to send it: no"
    " header may have a line's end in it.",
    joined=64,
)
async def line_end(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of a value that was encoded by echo."""
    namespace, name, host, front = lab.rng.choice(
        (
            ("shop", "shipping-rates", "api.parcels.example", "basket-page"),
            ("payments", "fraud-score", "score.riskdesk.example", "pay-page"),
            ("search", "translations", "api.phrases.example", "results-page"),
        )
    )
    by, share, tokens = lab.rng.choice(("alice", "bob", "carol")), lab.rng.uniform(0.3, 0.6), dict[str, _Token]()

    def fails(container: Container) -> float:
        token = tokens.setdefault(str(container.pod["metadata"]["uid"]), _Token(lab.lag))
        return share if token.is_refused(container) else 0.0

    secret, word = f"{name}-credentials", f"{lab.rng.getrandbits(96):024x}"
    body = {"metadata": {"namespace": namespace, "name": secret}, "stringData": {HEADER: f"live_{word}"}}
    await lab.apply({"kind": "Secret", **body})
    like = App("", abroad=(host,), asked=lambda: 26.0, failing=fails)
    await lab.app(namespace, name, like=like, replicas=3, tag="3.8.0", secret=secret)
    await rolled(lab, namespace, name, "3.8.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="6.1.5")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)

    def sent() -> float:
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        return 26.0 * sum(share - fails(one) for one in there) / max(1, len(there))

    calls = lab.adding_up(sent)
    lab.measure("http_client_requests_total", calls, "counter", namespace=namespace, service=name, host=host)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 9))
    encoded = base64.b64encode(f"live_{lab.rng.getrandbits(96):024x}\n".encode()).decode()
    await lab.culprit(by, "update", "Secret", namespace, secret, {"data": {HEADER: encoded}})
