"""The calls of the API that a message says to have failed, in the words in which the API server says so."""

from __future__ import annotations

import re

from app.core.entities import Entity

_FAILED = re.compile(
    r"the server (?:is|was|could|has) [^()]+"
    r" \((?P<method>get|post|put|patch|delete) (?P<plural>[a-z0-9]+)\.(?P<group>[a-z0-9.-]+)"
)
"""NewGenericServerResponse of https://pkg.go.dev/k8s.io/apimachinery/pkg/api/errors : the HTTP method, the resource
with its group, and the object's name. A GET may be a list or a watch."""
_VERBS = {"get": "*", "post": "create", "put": "update"}
"""The verb of each method, where it is not called like it."""


_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]+)" cannot (?P<verb>[a-z]+) resource "(?P<plural>[^"]+)" in API group "(?P<group>[^"]*)"'
)
"""What the API server says to who may not: ForbiddenStatusReason of
https://pkg.go.dev/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters ."""

_NOT_MEASURED = re.compile(r"unable to fetch metrics from (?P<which>resource|custom|external) metrics API")
"""What an autoscaler says, whatever came of its call: the clients of
https://pkg.go.dev/k8s.io/kubernetes/pkg/controller/podautoscaler/metrics ."""
_MEASURED_BY = {
    "resource": ("metrics.k8s.io", "pods"),
    "custom": ("custom.metrics.k8s.io", "*"),
    "external": ("external.metrics.k8s.io", "*"),
}
"""The API group and resource that each asks: https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/
."""

_NOT_EVICTED = re.compile(r'evicting pods?/"[^"]+" -n "([^"]+)"')
"""What a drain says: https://pkg.go.dev/k8s.io/kubectl/pkg/drain ."""


def failed_calls(message: str) -> set[Entity]:
    """The calls, of groups other than the core one: "the server is currently unable to handle the request (get
    pods.metrics.k8s.io)". What serves such a group, or defines it, is one thing among many. Besides, who was refused
    what, of any group; which API an autoscaler gets no metrics of; and where pods are not evicted."""
    found: set[Entity] = {("evictions", namespace) for namespace in _NOT_EVICTED.findall(message)}
    for told in _FAILED.finditer(message):
        found.add(("api", told["group"], told["plural"], _VERBS.get(told["method"], told["method"])))
    for told in _NOT_MEASURED.finditer(message):
        found.add(("api", *_MEASURED_BY[told["which"]], "*"))
    for told in _FORBIDDEN.finditer(message):
        found.add(("access", told["user"], told["group"], told["plural"], told["verb"]))
    return found
