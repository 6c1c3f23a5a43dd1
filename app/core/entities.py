"""The things that a change can touch and a signal can be about, as plain tuples that compare equal.

("workload", namespace, name)       a Deployment, StatefulSet, DaemonSet, CronJob, Job: whatever owns pods
("calls", namespace, name)          a workload that calls what changed, by its configuration
("reads", namespace, name)          a workload that reads what the one that changed writes again and again
("shares", namespace, name)         a workload that calls what the one that changed calls, which has many more pods now
("burdens", namespace, name)        a workload that what changed calls, and may ask more of now
("asks", namespace, name)           a workload that what changed calls, whether or not the change says how much
("occupies", namespace, name)       a workload that what changed calls by a new version, which may hold more of it
("uncleared", namespace, name)      a workload from which what changed no longer takes away what is not needed
("beside", namespace, name)         a workload that calls what a new version calls
("unguarded", namespace, name)      a workload whose pods may go at once since what changed, and some of which then did
("takes", namespace, name)          a workload whose pods take the same port of their nodes as those of what changed
("user", user name)                 a caller of the API server
("manager", field manager)          a writer known only from managedFields
("ns", namespace)                   everything in a namespace
("node", name)                      one node
("api", group, resource, verb)      calls of one verb on one resource; verb "*" for every verb
("access", user, group, resource, verb)   whether this user may do that
("gained", user, group, resource, verb)   that this user may do that, and could not before
("named", word)                     a name that an error message can mention
("prefix", word)                    whose annotation or label keys begin like this: word.example/key is word's
("throttle", user or "group:NAME")  whose calls flow control may hold up or refuse
("admission", namespace) ("throttle",) ("scheduling",) ("queue", name)   parts of the control plane
("node ports",)                     the ports that Services have on every node, which all of them share
("device", word)                    what gives nodes devices that are called word.example/device
("agent", "csi" or "cni" ...)       what gives pods their volumes, or their network, on every node; "doors": what
                                    serves Ingresses and routes; "registry": what gives out images
("entrance", namespace, name)       what the Ingress of a workload shows to who comes from outside
("object", kind, namespace, name)   any other object
("altered", group, resource, operation)   what is written to a resource is stored otherwise; who writes it writes again
("asked", part, group, resource, verb)   that webhooks, validating or mutating, are asked about such a write
("injected", namespace)             what webhooks put into the pods there
("pods", namespace)                 how pods are made there; "*" everywhere
("refuses", kind, namespace)        what a quota, a limit range, a namespace's pod security ... does not let in, or,
                                    of kind "immutable", what does not let itself be written
("evictions", namespace)            evictions of pods there
("loses", namespace, name)          a workload whose pods are evicted or preempted: not for what was done to it itself
("written", kind, namespace, name)  the fields of one object
("nodes",) ("cluster",)             every node, everything
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from app.core.model import Resource

Entity = tuple[str, ...]
Add = Callable[[Entity, float], None]
"""Puts down that something reaches an entity over so many hops; the shortest way counts."""
READ = 0.3
"""A workload's configuration is nearly the workload: configuration pushes begin 31 % of incidents, binaries 37 %."""
CLUSTER: Entity = ("cluster",)
NODES: Entity = ("nodes",)
NODE_PORTS: Entity = ("node ports",)
IMMUTABLE = "immutable"
"""What refuses writes of ConfigMaps and Secrets that were made so, by whomever
(https://kubernetes.io/docs/concepts/configuration/configmap/#configmap-immutable)."""
PREEMPTS: Entity = ("preempts",)
"""Of a workload whose pods have a priority, by which others may have to go for them."""
_OPERATION = {"patch": "update", "deletecollection": "delete"}
"""What admission calls a verb, where it calls it something else."""
POD_MAKING: Entity = ("pods", "*")

WORKLOADS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Rollout"})
ACCESS = frozenset({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})
_POD_SUFFIX = re.compile(r"^(?P<owner>.+?)(?:-[0-9a-f]{6,10}|-[bcdfghjklmnpqrstvwxz2456789]{6,10})?-[a-z0-9]{5}$")
_HASH_SUFFIX = re.compile(r"-(?:[0-9a-f]{7,10}|[bcdfghjklmnpqrstvwxz2456789]{7,10})$")


_REACTS = re.compile(
    r"^system:(kube-scheduler|kube-controller-manager|apiserver|node:.*"
    r"|serviceaccount:kube-system:(?:[a-z-]*-)?(controller|collector|scheduler|autoscaler|manager))$"
)


def only_reacts(user: str) -> bool:
    """Whether this caller only does what others made necessary: its load belongs to whoever made it work."""
    return _REACTS.match(user) is not None


def pods_in(namespace: str) -> Entity:
    return ("pods", namespace)


def workload(namespace: str | None, name: str) -> Entity:
    return ("workload", namespace or "", name)


@lru_cache(maxsize=10_000)  # asked of each series that a pod tells
def workload_of_pod(pod: str) -> str:
    """The likely owner of a pod from its generated name: Deployment pods end in -HASH-xxxxx, others in -xxxxx."""
    match = _POD_SUFFIX.match(pod)
    return match.group("owner") if match else re.sub(r"-\d+$", "", pod)


def workload_of_replica_set(name: str) -> str:
    return _HASH_SUFFIX.sub("", name)


def of_resource(resource: Resource) -> list[Entity]:
    """What a resource is as an entity: a workload is itself, a pod stands for its owner."""
    if resource.kind == "Pod":
        return [workload(resource.namespace, workload_of_pod(resource.name))]
    if resource.kind == "ReplicaSet":
        return [workload(resource.namespace, workload_of_replica_set(resource.name))]
    if resource.kind in WORKLOADS:
        return [workload(resource.namespace, resource.name)]
    if resource.kind == "Node":
        return [("node", resource.name)]
    if resource.kind == "Namespace":
        return [("ns", resource.name)]
    return [("object", resource.kind, resource.namespace or "", resource.name)]


def of_injected(namespace: str) -> Entity:
    """What webhooks put into the pods of a namespace."""
    return ("injected", namespace)


def asked(part: str, group: str, resource: str, verb: str) -> Entity:
    """That webhooks of a sort are asked about such a write; "*" for any."""
    return ("asked", part, group, resource, _OPERATION.get(verb, verb))


def altered(group: str, resource: str, verb: str) -> Entity:
    """That something else is stored than what such a write says; "*" for any."""
    return ("altered", group, resource, _OPERATION.get(verb, verb))
