"""What the laboratory's monitoring looks at: rules over objects, over requests, and further series that are scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tests.lab.alerts import Rule, lacking, series, stuck
from tests.lab.api import World, now
from tests.lab.kubelets import Kubelets
from tests.lab.scraping import labelled
from tests.lab.traffic import Traffic


@dataclass(frozen=True)
class Measure:
    """A series of a family's own, by whoever ``job`` names."""

    job: str
    name: str
    kind: str
    value: Callable[[], float | None]
    """None while that one does not have it."""
    labels: Mapping[str, str]

    @property
    def text(self) -> str:
        """As that one answers a scrape."""
        value, head = self.value(), f"# TYPE {self.name} {self.kind}"
        return head if value is None else f"{head}\n{self.name}{{{labelled(**self.labels)}}} {value:.10g}"


class Monitoring:
    """The part of a laboratory that a scenario tells what to watch."""

    world: World
    kubelets: Kubelets
    traffic: Traffic
    rules: list[Rule]
    measures: list[Measure]

    def alert(
        self, alertname: str, holds: Callable[[], bool], summary: str, seconds: float = 5.0, **labels: str
    ) -> None:
        """A rule of this cluster's monitoring."""
        self.rules.append(Rule(alertname, holds, labels, summary, seconds=seconds))

    def is_well(self) -> bool:
        """Whether no rule holds: what was asked for before it was up is forgotten."""
        return not any(rule.holds() for rule in self.rules)

    def alert_lacking(self, namespace: str, name: str, *, seconds: float = 6.0) -> None:
        """Too few ready pods of an app."""
        summary = f"{namespace}/{name} has not had its replicas for a while"
        holds = lambda: lacking(self.world, namespace, name)  # noqa: E731
        self.alert("KubeDeploymentReplicasMismatch", holds, summary, seconds, namespace=namespace, deployment=name)

    def alert_stuck(self, namespace: str, name: str) -> None:
        """A rollout of an app that does not end."""
        summary = f"the rollout of {namespace}/{name} is not progressing"
        holds = lambda: stuck(self.world, namespace, name)  # noqa: E731
        self.alert("KubeDeploymentRolloutStuck", holds, summary, 10.0, namespace=namespace, deployment=name)

    def alert_errors(self, namespace: str, name: str, share: float = 0.05, *, seconds: float = 10.0) -> None:
        """More than a share of an app's requests were answered with 5xx over the last seconds."""
        summary = f"more than {share:.0%} of the requests to {namespace}/{name} are answered with 5xx"
        holds = lambda: self.traffic.of_app(namespace, name, seconds).failed > share  # noqa: E731
        self.alert("HighErrorRate", holds, summary, namespace=namespace, service=name)

    def alert_slow(self, namespace: str, name: str, above: float = 0.5, *, seconds: float = 10.0) -> None:
        """An app's requests took longer than ``above`` seconds over the last ``seconds``, in the mean."""
        summary = f"requests to {namespace}/{name} take longer than {above:g}s"
        holds = lambda: self.traffic.of_app(namespace, name, seconds).mean > above  # noqa: E731
        self.alert("HighRequestLatency", holds, summary, namespace=namespace, service=name)

    def alert_ingress_errors(self, namespace: str, ingress: str, share: float = 0.05, *, seconds: float = 10.0) -> None:
        """The same of who comes from outside by an Ingress: also where nobody is there to answer."""
        summary = f"more than {share:.0%} of the requests to Ingress {namespace}/{ingress} are answered with 5xx"
        holds = lambda: self.traffic.of_ingress(namespace, ingress, seconds).failed > share  # noqa: E731
        self.alert("NginxHighHttp5xxErrorRate", holds, summary, namespace=namespace, ingress=ingress)

    def measure(
        self,
        name: str,
        value: Callable[[], float | None],
        kind: Literal["counter", "gauge"] = "gauge",
        /,
        *,
        namespace: str,
        service: str,
        **labels: str,
    ) -> None:
        """A further series that is scraped from a service: jobs done, orders placed, messages waiting."""
        assert name.endswith("_total") is (kind == "counter"), name
        labels = {"namespace": namespace, "service": service, **labels}
        self.measures.append(Measure(f"{namespace}/{service}", name, kind, value, labels))

    def adding_up(self, rate: Callable[[], float]) -> Callable[[], float]:
        """A counter of what happens about so often a second, to be measured."""
        return self.traffic.adding_up(rate)

    def scraped(self, at: datetime, *, apps: bool) -> Iterator[tuple[str, str]]:
        """What Prometheus finds at its targets beside the control plane, by job, and what it keeps of its own rules."""
        if apps:
            yield from self.traffic.exposed()
        yield from ((one.job, one.text) for one in self.measures if self.traffic.is_up(*one.job.split("/")))
        yield "", series(self.rules, at)

    def refused(self, image: str, *statuses: int) -> Callable[[], int]:
        """How often the programs of an image were answered so."""
        return lambda: sum(one.counts[status] for one in self.kubelets.counts.get(image, ()) for status in statuses)

    def requests(self) -> int:
        """How many requests the programs of all pods made so far."""
        return sum(one.counts.total() for callers in self.kubelets.counts.values() for one in callers)

    def received(self) -> int:
        """How many bytes they were answered."""
        return sum(one.received for callers in self.kubelets.counts.values() for one in callers)

    def rate(self, count: Callable[[], int], limit: float, *, seconds: float = 4.0) -> Callable[[], bool]:
        """Whether a count grew by more than ``limit`` a second over the last seconds."""
        seen: list[tuple[float, int]] = []

        def holds() -> bool:
            at = now().timestamp()
            seen.append((at, count()))
            while seen[0][0] < at - seconds:
                seen.pop(0)
            span = seen[-1][0] - seen[0][0]
            return span > seconds / 2 and (seen[-1][1] - seen[0][1]) / span > limit

        return holds
