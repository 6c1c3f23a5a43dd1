"""What autoscalers ask for figures: an aggregated API, which the API server finds by a Service of an outside name.

The API server reaches no simulated pod; the recording says the Service of the pods that would answer
(``webhook_services.py``)."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

from tests.lab.api import Caller, Json, World, now, stamp
from tests.lab.webhook import Webhook
from tests.lab.webhook_services import OUTSIDE, PORT

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
ROOT = f"/apis/{GROUP}/{VERSION}"
OF_PODS = "metrics.k8s.io"
OK, NOT_FOUND, UNAVAILABLE = "200 OK", "404 Not Found", "503 Service Unavailable"
FAILED = "500 Internal Server Error"


class MetricsApi(Webhook):
    """Answers for each metric that it has, by its name, what its function says now.

    While ``failure`` says why it has no figures, as whom it asks itself does not answer, each is an error of 500.
    """

    group = GROUP
    is_aggregated = True

    def __init__(
        self, has: Callable[[], dict[str, Callable[[], float]]], *, failure: Callable[[], str] = lambda: ""
    ) -> None:
        super().__init__(_nothing)
        self._has, self._failure = has, failure

    @property
    def root(self) -> str:
        """Of all that it is asked."""
        return f"/apis/{self.group}/{VERSION}"

    async def register(self, admin: Caller, namespace: str, name: str) -> None:
        """Make it known to the API server, as what the pods of that name answer, and wait until it is asked.

        Raises RefusedError."""
        self.service = namespace, name
        port = int(self.address.rsplit(":", 1)[1])
        asked = f"{name}{OUTSIDE}"
        selector = {"app.kubernetes.io/name": name}
        services: dict[str, Json] = {
            name: {"selector": selector, "ports": [{"port": PORT, "targetPort": 10250}]},
            asked: {"type": "ExternalName", "externalName": "localhost"},
        }
        for called, spec in services.items():
            meta: Json = {"namespace": namespace, "name": called}
            await admin.must("POST", f"/api/v1/namespaces/{namespace}/services", {"metadata": meta, "spec": spec})
        spec = {
            "group": self.group,
            "version": VERSION,
            "service": {"namespace": namespace, "name": asked, "port": port},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        }
        where = "/apis/apiregistration.k8s.io/v1/apiservices"
        await admin.must("POST", where, {"metadata": {"name": f"{VERSION}.{self.group}"}, "spec": spec})
        async with asyncio.timeout(60):
            for pause in itertools.repeat(0.5):
                if (await admin.call("GET", self.root)).ok:
                    return
                await asyncio.sleep(pause)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, and the connection ends."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            status, told = self._told(head.split(" ")[1])
            form, text = ("application/json", json.dumps(told)) if told else ("text/plain", "service unavailable\n")
            body = text.encode()
            back = f"HTTP/1.1 {status}\r\nContent-Type: {form}\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{back}Connection: close\r\n\r\n".encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _told(self, where: str) -> tuple[str, Json | None]:
        """The status, and what is told; None where the API server would say in words that nobody is there."""
        where = urlsplit(where).path
        has, name = self._has(), where.rsplit("/", 1)[-1]
        failed: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        if where == ROOT:
            one = {"singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
            listed = [{"name": metric, **one} for metric in has]
            return OK, {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/{VERSION}",
                "resources": listed,
            }
        if where.startswith(f"{ROOT}/namespaces/") and (message := self._failure()):
            return FAILED, {**failed, "code": 500, "message": message}
        if where.startswith(f"{ROOT}/namespaces/") and name in has:
            value = f"{round(has[name]() * 1000)}m"
            item = {"metricName": name, "metricLabels": {}, "timestamp": f"{stamp(now())[:19]}Z", "value": value}
            told = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}}
            return OK, {**told, "items": [item]}
        message = f"the server could not find the metric {name}"
        return NOT_FOUND, {**failed, "reason": "NotFound", "code": 404, "message": message}


class PodMetricsApi(MetricsApi):
    """Answers how much of a processor each pod that runs uses, in thousandths, as a metrics-server does.

    While it is not up the API server is told 503, as it says itself where no pod is behind the Service: in words, and
    not as a Status (proxyError of https://pkg.go.dev/k8s.io/kube-aggregator/pkg/apiserver).
    """

    group = OF_PODS

    def __init__(
        self, world: World, uses: Callable[[Json], float], *, is_up: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(dict)
        self._world, self._uses, self._is_up = world, uses, is_up

    def _told(self, where: str) -> tuple[str, Json | None]:
        if not self._is_up():
            return UNAVAILABLE, None
        version = {"apiVersion": f"{OF_PODS}/{VERSION}"}
        parts = urlsplit(where)
        if not parts.path.endswith("/pods"):
            one = {
                "name": "pods",
                "singularName": "",
                "namespaced": True,
                "kind": "PodMetrics",
                "verbs": ["get", "list"],
            }
            listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version["apiVersion"]}
            return OK, {**listed, "resources": [one]}
        home = parts.path.removesuffix("/pods").rsplit("/", 1)[-1]
        selector = dict(parse_qsl(parts.query)).get("labelSelector", "")
        wanted = dict(one.split("=", 1) for one in selector.split(",") if "=" in one).items()
        items = [
            self._measured(pod)
            for (namespace, _), pod in self._world["Pod"].items()
            if namespace == home
            and wanted <= pod["metadata"].get("labels", {}).items()
            and pod.get("status", {}).get("phase") == "Running"
        ]
        return OK, {"kind": "PodMetricsList", **version, "metadata": {}, "items": items}

    def _measured(self, pod: Json) -> Json:
        usage = {"cpu": f"{round(self._uses(pod))}m", "memory": "80Mi"}
        meta = {key: pod["metadata"][key] for key in ("namespace", "name")}
        containers = [{"name": pod["spec"]["containers"][0]["name"], "usage": usage}]
        return {"metadata": meta, "timestamp": f"{stamp(now())[:19]}Z", "window": "3s", "containers": containers}


async def _nothing(_: Json) -> None:
    """It reviews nothing."""
