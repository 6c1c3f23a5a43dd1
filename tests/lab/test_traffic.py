"""Who gets how many requests in the laboratory, how they are answered, and what is scraped of it and of the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from tests.lab.alerts import Rule, series
from tests.lab.api import Caller, Json, World
from tests.lab.apps import App, Container, Outside, Problem
from tests.lab.monitoring import Measure, Monitoring
from tests.lab.network import INGRESS_CLASS
from tests.lab.sandboxes import Running
from tests.lab.scraping import Scrapes
from tests.lab.traffic import INGRESS_JOB, Traffic, _usual

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
WELL = {"type": "Ready", "status": "True"}


class Town:
    """A world by hand: apps with pods that run, each ready and an endpoint of its Service."""

    def __init__(self, *, lag: float = 0.0) -> None:
        self.world = World(Caller(httpx2.AsyncClient(), "nobody", "", "test"))
        self.objects = self.world._objects = {"Pod": {}, "Service": {}, "EndpointSlice": {}, "Ingress": {}}
        self.apps: dict[str, App] = {}
        self.running: dict[str, Running] = {}
        self.outside = Outside()
        self.traffic = Traffic(self.world, self.apps, self.outside, self.running.values, seed=1, lag=lag)
        self.at = AT

    def app(self, namespace: str, name: str, like: App | None = None, *, replicas: int = 2) -> App:
        app = like or App("")
        app.image = f"registry.corp.example/{namespace}/{name}"
        self.apps[app.image] = app
        self.objects["Service"][namespace, name] = {"spec": {}}
        for number in range(replicas):
            pod = f"{name}-{number}"
            meta = {"namespace": namespace, "name": pod, "uid": pod}
            spec = {"containers": [{"name": name, "image": f"{app.image}:1.0.0"}]}
            thing: Json = {"metadata": meta, "spec": spec, "status": {"conditions": [WELL]}}
            self.objects["Pod"][namespace, pod] = thing
            self.running[pod] = Running(Container(thing, "1.0.0", {}, {}), app, AT)
        self.endpoints(namespace, name, *(f"{name}-{number}" for number in range(replicas)))
        return app

    def endpoints(self, namespace: str, name: str, *ready: str) -> None:
        """Those are ready, and no others of an app."""
        labels = {"kubernetes.io/service-name": name}
        endpoints = [{"conditions": {"ready": True}, "targetRef": {"name": one}} for one in ready]
        piece = {"metadata": {"namespace": namespace, "labels": labels}, "endpoints": endpoints, "ports": [{}]}
        self.objects["EndpointSlice"][namespace, name] = piece
        for (_, pod), thing in self.objects["Pod"].items():
            if pod.rsplit("-", 1)[0] == name:
                thing["status"]["conditions"] = [WELL] if pod in ready else []

    def ingress(self, namespace: str, name: str, service: str, *, of_class: str = INGRESS_CLASS) -> None:
        paths = [{"path": "/", "backend": {"service": {"name": service, "port": {"number": 80}}}}]
        spec = {"ingressClassName": of_class, "rules": [{"host": "a.example", "http": {"paths": paths}}]}
        self.objects["Ingress"][namespace, name] = {"spec": spec}

    def breaks(self, pod: str, message: str = "probe failed") -> None:
        self.running[pod] = replace(self.running[pod], problem=Problem("unready", message))

    def go_on(self, seconds: int = 20) -> None:
        for _ in range(seconds):
            self.at += timedelta(seconds=1)
            self.traffic.step(self.at, 1.0)

    def scraped(self) -> Scrapes:
        scrapes = Scrapes()
        for job, text in self.traffic.exposed():
            scrapes.add(job, text, self.at)
        return scrapes

    def total(self, pod: str, code: str = "") -> float:
        """What a pod has counted."""
        return self.scraped().total("http_requests_total", pod=pod, **({"code": code} if code else {}))

    def failed(self, name: str, *, namespace: str = "shop") -> float:
        return self.traffic.of_app(namespace, name, 20).failed


def test_what_an_app_gets_is_shared_by_its_endpoints() -> None:
    town = Town()
    town.app("shop", "cart", App("", load=40), replicas=3)
    town.app("shop", "catalog")
    town.endpoints("shop", "cart", "cart-0", "cart-1")
    town.go_on()
    one, two, three = (town.total(f"cart-{number}") for number in range(3))
    assert 300 < one < 500
    assert 300 < two < 500
    assert three == 0
    assert town.total("cart-0", "404") < 30
    assert abs(town.total("catalog-0") + town.total("catalog-1") - 20 * _usual(("shop", "catalog"))) < 120
    text = town.scraped().text()
    assert '_count{job="shop/cart",namespace="shop",pod="cart-2"} 0 ' in text
    assert '# TYPE http_requests counter\nhttp_requests_total{job="shop/cart",namespace="shop",pod="cart-0",' in text


def test_apps_get_as_much_as_their_names_say_if_nobody_else_does() -> None:
    rates = {_usual(("shop", f"app-{number}")) for number in range(300)}
    assert (min(rates), max(rates)) == (3, 30)
    town, asked = Town(), [0.0]
    town.app("shop", "cart", App("", asked=lambda: asked[0], load=50))
    town.go_on()
    assert town.total("cart-0") == 0
    asked[0] = 100
    town.go_on()
    assert 900 < town.total("cart-0") < 1100


def test_who_has_a_problem_answers_5xx_until_it_is_no_endpoint_any_more() -> None:
    town = Town()
    town.app("shop", "cart", App("", load=20))
    town.breaks("cart-0")
    town.go_on()
    before = town.total("cart-0", "503")
    assert before > 100
    assert town.total("cart-0") == before
    assert town.total("cart-1", "503") == 0
    town.endpoints("shop", "cart", "cart-1")
    town.go_on(1)
    still = town.total("cart-0")
    assert still > before  # until whoever calls has heard of it
    town.go_on()
    assert town.total("cart-0") == still


def test_who_is_told_to_end_gets_nothing_more() -> None:
    town = Town()
    town.app("shop", "cart", App("", load=20))
    town.app("shop", "checkout", App("", load=100, upstreams=(("shop", "cart"),)))
    town.go_on()
    before = town.total("cart-0")
    town.objects["Pod"]["shop", "cart-0"]["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:20Z"
    town.endpoints("shop", "cart", "cart-1")
    town.go_on()
    assert town.total("cart-0") == before
    assert town.failed("checkout") < 0.01


def test_a_container_that_starts_anew_counts_from_zero_and_is_not_scraped_meanwhile() -> None:
    town = Town()
    town.app("shop", "cart", App("", load=20))
    town.go_on()
    old = town.running.pop("cart-0")
    town.go_on(1)
    assert 'pod="cart-0"' not in town.scraped().text()
    town.running["cart-0"] = replace(old, started=AT + timedelta(seconds=30))
    town.go_on(2)
    assert 0 < town.total("cart-0") < 50 < town.total("cart-1")
    del town.objects["Pod"]["shop", "cart-0"], town.running["cart-0"]
    town.go_on(1)
    assert 'pod="cart-0"' not in town.scraped().text()


def test_who_is_only_out_of_reach_for_a_while_goes_on_counting() -> None:
    town = Town()
    town.app("shop", "cart", App("", load=20))
    town.go_on()
    before = town.total("cart-0")
    away = town.running.pop("cart-0")
    town.go_on(1)
    town.running["cart-0"] = away
    town.go_on(1)
    assert town.total("cart-0") >= before


def test_an_app_may_fail_a_share_while_its_pods_are_ready_and_its_callers_fail_by_a_part_two_levels_deep() -> None:
    town = Town()
    town.app("shop", "cart", App("", load=100, failing=lambda container: 0.5))
    for name, upstream in (("checkout", "cart"), ("frontend", "checkout"), ("mobile", "frontend")):
        town.app("shop", name, App("", load=100, upstreams=(("shop", upstream),)))
    town.go_on()
    assert 0.45 < town.failed("cart") < 0.55
    assert 0.30 < town.failed("checkout") < 0.40
    assert 0.20 < town.failed("frontend") < 0.29
    assert town.failed("mobile") < 0.01
    assert town.total("cart-0", "500") > 400


def test_an_app_says_with_which_status_it_fails_and_a_probe_is_told_what_users_are() -> None:
    town = Town()
    town.app("shop", "cart", App("", load=50, failing=lambda container: 0.5, fails_with=lambda container: "404"))
    town.app("shop", "checkout", App("", load=50, upstreams=(("shop", "cart"),)))
    town.app("shop", "rules", App("", load=50))
    town.breaks("rules-0", "probe failed: HTTP probe failed with statuscode: 500 (rule 7)")
    town.go_on()
    assert town.failed("cart") < 0.01
    assert town.total("cart-0", "404") > 200
    assert 0.3 < town.failed("checkout") < 0.4
    assert town.total("rules-0", "500") == town.total("rules-0") > 300


def test_callers_feel_it_a_lag_later() -> None:
    town, bad = Town(lag=10), [0.0]
    town.app("shop", "cart", App("", load=100, failing=lambda container: bad[0]))
    town.app("shop", "checkout", App("", load=100, upstreams=(("shop", "cart"),)))
    town.go_on(12)
    bad[0] = 1.0
    town.go_on(9)
    assert town.failed("cart") > 0.3
    assert town.failed("checkout") < 0.01
    town.go_on(12)
    assert town.failed("checkout") > 0.3


def test_an_app_gets_less_while_none_of_its_clients_is_ready() -> None:
    town = Town()
    town.app("shop", "ledger", App("", load=100))
    for name in ("checkout", "refunds"):
        town.app("shop", name, App("", upstreams=(("shop", "ledger"),)))
    town.app("shop", "archive", App("", load=100))
    town.apps["never-there"] = App("never-there", upstreams=(("shop", "archive"),))
    town.go_on()
    assert town.total("archive-0") > 800
    usual = town.total("ledger-0")
    assert usual > 800
    town.endpoints("shop", "checkout")
    town.go_on()
    assert town.total("ledger-0") - usual > 800
    town.endpoints("shop", "refunds")
    usual = town.total("ledger-0")
    town.go_on()
    assert 50 < town.total("ledger-0") - usual < 150


@pytest.mark.parametrize(
    ("like", "least", "most"),
    [
        (App("", load=20), 0.018, 0.03),
        (App("", load=190), 0.2, 0.6),
        (App("", load=150, answer_seconds=0.2), 0.7, 0.9),
        (App("", load=20, latency=lambda container: 2.0), 1.9, 2.2),
    ],
)
def test_answers_take_longer_near_the_capacity_and_as_an_app_says(like: App, least: float, most: float) -> None:
    town = Town()
    town.app("shop", "cart", like)
    town.app("shop", "checkout", App("", load=20, upstreams=(("shop", "cart"),)))
    town.go_on()
    assert least < town.traffic.of_app("shop", "cart", 20).mean < most
    slow = town.traffic.of_app("shop", "checkout", 20).mean
    assert (slow > 1.2) is (most > 2)


def test_a_timeout_is_waited_for() -> None:
    town = Town()
    town.app("shop", "cart")
    town.breaks("cart-0", "probe failed: dial tcp db:5432: i/o timeout")
    town.go_on()
    assert 0.4 < town.traffic.of_app("shop", "cart", 20).mean < 0.7


def with_ingress(**ingress: str) -> Town:
    town = Town()
    town.app("ingress-nginx", "ingress-nginx", App("", serves=False))
    town.app("shop", "frontend", App("", load=50))
    town.ingress("shop", "public", "frontend", **ingress)
    return town


def test_what_comes_by_an_ingress_is_counted_by_its_controller() -> None:
    town = with_ingress()
    town.go_on()
    scrapes = town.scraped()
    named = {"ingress": "public", "service": "frontend", "controller_class": "k8s.io/ingress-nginx"}
    all_of_it = scrapes.total("nginx_ingress_controller_requests", job=INGRESS_JOB, namespace="shop", **named)
    assert all_of_it == town.total("frontend-0") + town.total("frontend-1")
    assert "pod=" not in scrapes.text().split("# TYPE nginx")[1]
    assert 'job="ingress-nginx/ingress-nginx"' not in scrapes.text()

    town.endpoints("shop", "frontend")
    town.go_on(10)
    unserved = town.scraped().total("nginx_ingress_controller_requests", status="503")
    assert 400 < unserved < 600
    assert town.traffic.of_ingress("shop", "public", 9).failed == 1
    assert town.traffic.of_app("shop", "frontend", 9).answers.total() == 0


def test_an_ingress_answers_503_where_its_service_has_another_port() -> None:
    town = with_ingress()
    town.objects["Service"]["shop", "frontend"] = {"spec": {"ports": [{"port": 80}]}}
    town.go_on()
    assert town.traffic.of_ingress("shop", "public", 9).failed < 0.02
    town.objects["Service"]["shop", "frontend"] = {"spec": {"ports": [{"port": 8080, "name": "http"}]}}
    town.go_on(10)
    assert town.traffic.of_ingress("shop", "public", 9).answers.keys() == {"503"}
    assert town.traffic.of_app("shop", "frontend", 9).answers.total() == 0


def test_what_the_controller_loses_is_counted_by_it_alone() -> None:
    town = with_ingress()
    town.outside.lost = lambda: 0.25
    town.go_on()
    by_door = town.traffic.of_ingress("shop", "public", 20).answers
    assert 0.2 < by_door["502"] / by_door.total() < 0.3
    assert town.traffic.of_app("shop", "frontend", 20).answers.total() == by_door.total() - by_door["502"]


def test_what_gets_to_nobody_by_one_namespaces_ingresses_is_lost_there_alone() -> None:
    town = with_ingress()
    town.outside.misled = lambda namespace: 0.25 if namespace == "shop" else 1.0
    town.go_on()
    by_door = town.traffic.of_ingress("shop", "public", 20).answers
    assert 0.2 < by_door["502"] / by_door.total() < 0.3


def test_an_ingress_answers_503_where_its_service_is_gone() -> None:
    town = with_ingress()
    town.go_on()
    del town.objects["Service"]["shop", "frontend"], town.objects["EndpointSlice"]["shop", "frontend"]
    town.go_on(10)
    assert 400 < town.scraped().total("nginx_ingress_controller_requests", status="503") < 600
    assert town.traffic.of_ingress("shop", "public", 9).failed == 1


def test_a_proxy_tries_another_pod_where_one_does_not_run_any_more() -> None:
    town = with_ingress()
    town.running.pop("frontend-0")
    town.go_on()
    assert town.scraped().total("nginx_ingress_controller_requests", status="502") == 0
    town.running.pop("frontend-1")
    town.go_on()
    assert town.scraped().total("nginx_ingress_controller_requests", status="502") > 800


def lose_the_line(town: Town) -> None:
    town.outside.reached = lambda: False


def take_the_controller(town: Town) -> None:
    town.endpoints("ingress-nginx", "ingress-nginx")


def forget_the_name(town: Town) -> None:
    town.outside.unreached = {"a.example", "b.example"}


@pytest.mark.parametrize("trouble", [lose_the_line, take_the_controller, forget_the_name])
def test_hardly_anything_comes_while_nobody_gets_to_the_ingress(trouble: Callable[[Town], None]) -> None:
    town = with_ingress()
    town.go_on()
    before = town.scraped().total("nginx_ingress_controller_requests")
    trouble(town)
    town.go_on()
    assert town.scraped().total("nginx_ingress_controller_requests") == before
    assert town.traffic.of_app("shop", "frontend", 20).answers.total() < 200


def test_an_ingress_of_another_class_is_not_counted() -> None:
    town = with_ingress(of_class="gateway")
    town.go_on()
    assert "shop/public" not in town.scraped().text()
    assert town.scraped().total("nginx_ingress_controller_requests") == 0


def test_the_controller_forgets_an_ingress_that_is_gone_and_all_with_its_last_process() -> None:
    town = with_ingress()
    town.ingress("shop", "mobile", "frontend")
    town.go_on()
    del town.objects["Ingress"]["shop", "mobile"]
    town.go_on(1)
    assert town.scraped().total("nginx_ingress_controller_requests", ingress="mobile") == 0
    assert town.scraped().total("nginx_ingress_controller_requests", ingress="public") > 400
    for name in ("ingress-nginx-0", "ingress-nginx-1"):
        town.running[name] = replace(town.running[name], started=town.at)
    town.go_on(1)
    assert town.scraped().total("nginx_ingress_controller_requests") < 100


def test_a_further_service_of_the_same_pods_brings_nothing_more() -> None:
    town = Town()
    town.app("shop", "cart", App("", load=40))
    town.objects["Service"]["shop", "cart-internal"] = {"spec": {}}
    town.objects["EndpointSlice"]["shop", "x"] = {
        **town.objects["EndpointSlice"]["shop", "cart"],
        "metadata": {"namespace": "shop", "labels": {"kubernetes.io/service-name": "cart-internal"}},
    }
    town.go_on()
    assert 700 < town.total("cart-0") + town.total("cart-1") < 900


def test_the_same_seed_is_the_same_traffic() -> None:
    texts = []
    for _ in range(2):
        town = Town()
        town.app("shop", "cart")
        town.go_on()
        texts.append(town.scraped().text())
    assert texts[0] == texts[1]


def monitoring(town: Town) -> Monitoring:
    found = Monitoring()
    found.world, found.traffic, found.rules, found.measures = town.world, town.traffic, [], list[Measure]()
    return found


def test_rules_over_requests_hold_while_too_many_fail_or_are_late() -> None:
    town, bad, slow = with_ingress(), [0.0], [0.0]
    app = town.apps["registry.corp.example/shop/frontend"]
    app.failing, app.latency = lambda container: bad[0], lambda container: slow[0]
    watching = monitoring(town)
    watching.alert_errors("shop", "frontend")
    watching.alert_slow("shop", "frontend")
    watching.alert_ingress_errors("shop", "public")

    def holding() -> list[bool]:
        town.go_on(12)
        return [rule.holds() for rule in watching.rules]

    assert holding() == [False, False, False]
    bad[0] = 0.2
    assert holding() == [True, False, True]
    bad[0], slow[0] = 0.0, 2.0
    assert holding() == [False, True, False]
    assert [rule.alertname for rule in watching.rules] == [
        "HighErrorRate",
        "HighRequestLatency",
        "NginxHighHttp5xxErrorRate",
    ]


def test_a_family_has_further_series() -> None:
    town, done = Town(), [7]
    watching = monitoring(town)
    watching.measure("orders_total", lambda: done[0], "counter", namespace="shop", service="cart", shop="de")
    watching.measure("messages_waiting", lambda: 2.5, namespace="shop", service="bus")
    scrapes = Scrapes()
    for job, text in watching.scraped(AT, apps=False):
        scrapes.add(job, text, AT)
    text = scrapes.text()
    assert '# TYPE orders counter\norders_total{job="shop/cart",namespace="shop",service="cart",shop="de"} 7 ' in text
    assert '# TYPE messages_waiting gauge\nmessages_waiting{job="shop/bus",' in text

    town.app("shop", "cart")  # which does not run yet
    assert [job for job, _ in watching.scraped(AT, apps=False)] == ["shop/bus", ""]
    town.go_on(1)
    assert [job for job, _ in watching.scraped(AT, apps=False)] == ["shop/cart", "shop/bus", ""]
    rate = [0.0]
    counted = watching.adding_up(lambda: rate[0])
    town.go_on(10)
    assert counted() == 0
    rate[0] = 50
    town.go_on(10)
    assert 400 < counted() < 600
    watching.measure("lag_seconds", lambda: None, namespace="shop", service="bus")
    assert "lag_seconds{" not in "".join(text for _, text in watching.scraped(AT, apps=False))
    with pytest.raises(AssertionError):
        watching.measure("orders", lambda: 1, "counter", namespace="shop", service="cart")


def test_alerts_are_series_while_they_are_pending_or_firing() -> None:
    holds = [True]
    rule = Rule("PodsGone", lambda: holds[0], {"namespace": "shop", "what": 'a "b"'}, "pods are gone", seconds=4)
    told = 'alertname="PodsGone",severity="critical",namespace="shop",what="a \\"b\\""'
    states = []
    for second in range(10):
        holds[0] = second != 7
        rule.evaluate(AT + timedelta(seconds=second), delay=1)
        text = series([rule], AT + timedelta(seconds=second))
        states.append(
            next((one for one in ("pending", "firing") if f'ALERTS{{alertstate="{one}",{told}}} 1' in text), "")
        )
    assert states == ["pending"] * 5 + ["firing"] * 2 + [""] + ["pending"] * 2
    assert f"ALERTS_FOR_STATE{{{told}}} {AT.timestamp() + 8:.0f}" in text
    assert rule.fired == AT + timedelta(seconds=5)
    assert "1\n" not in series([rule], AT + timedelta(seconds=30))  # nobody looked for a while

    scrapes = Scrapes()
    scrapes.add("", text, AT)
    assert f'# TYPE ALERTS gauge\nALERTS{{alertstate="pending",{told}}} 1 ' in scrapes.text()


def test_of_two_rules_of_the_same_name_the_one_that_fires_is_told() -> None:
    rules = [Rule("A", lambda: True, {}, "", seconds=seconds) for seconds in (0, 9)]
    for rule in rules:
        rule.look(AT, delay=0)
    assert series(rules, AT).count("ALERTS{") == 1
    assert 'alertstate="firing"' in series(rules, AT)
