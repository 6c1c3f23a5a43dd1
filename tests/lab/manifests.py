"""What pods say of themselves: their images, what they mount, how they are."""

from __future__ import annotations

import re

from tests.lab.api import Json, Key, path

AUTHORITY = "kube-root-ca.crt"
"""A ConfigMap that admission has every pod mount beside its token; every namespace has it."""


def mounted(pod: Json) -> list[Key]:
    """The ConfigMaps and Secrets that a pod cannot start without, as kind and name.

    Of several with one key the last has it: so a kubelet puts the sources of a projected volume into one folder.
    """
    found = []
    for volume in pod["spec"].get("volumes", ()):
        sources = volume.get("projected", {}).get("sources", ())
        names = (one["configMap"].get("name", AUTHORITY) for one in sources if "configMap" in one)
        found += [("ConfigMap", name) for name in names if name != AUTHORITY]
        if "configMap" in volume:
            found.append(("ConfigMap", volume["configMap"]["name"]))
        if "secret" in volume:
            found.append(("Secret", volume["secret"]["secretName"]))
    return found


def followed(pod: Json) -> list[Key]:
    """Those that a kubelet reads anew: what is mounted as a single file, by its ``subPath``, stays as it was."""
    mounts = [one for container in pod["spec"]["containers"] for one in container.get("volumeMounts", ())]
    single = {one["name"] for one in mounts if "subPath" in one}
    volumes = [one for one in pod["spec"].get("volumes", ()) if one["name"] not in single]
    return mounted({"spec": {"volumes": volumes}})


def env_keys(pod: Json) -> list[tuple[str, str, str]]:
    """The keys of ConfigMaps and Secrets that its environment is taken from, as kind, name and key."""
    found = []
    for one in pod["spec"]["containers"][0].get("env", ()):
        for field_name, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if reference := one.get("valueFrom", {}).get(field_name):
                found.append((kind, reference["name"], reference["key"]))
    return found


REFERENCE = re.compile(r"\$\((\w+)\)")


def environment(container: Json) -> dict[str, str]:
    """What a container's manifest sets: a reference is to what is set above it, and else stays as it is written.

    What is taken from elsewhere, as its node's address, is told by its source alone.
    """
    found: dict[str, str] = {}
    for one in container.get("env", ()):
        value = str(one.get("value", "")) if "valueFrom" not in one else f"<{'.'.join(one['valueFrom'])}>"
        found[one["name"]] = REFERENCE.sub(lambda match: found.get(match[1], match[0]), value)
    return found


def mounts_token(pod: Json) -> bool:
    """Whether a token of its ServiceAccount is among its files: admission put it there, unless that was told not to."""
    sources = (
        one for volume in pod["spec"].get("volumes", ()) for one in volume.get("projected", {}).get("sources", ())
    )
    return any("serviceAccountToken" in one for one in sources)


def is_ready(pod: Json) -> bool:
    """Whether its status says so."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def gates(pod: Json) -> list[Json]:
    """What others say of a pod that its readiness waits for: a gate of which nobody has said anything is not open."""
    told = {one["type"]: one for one in pod.get("status", {}).get("conditions", ())}
    named = [one["conditionType"] for one in pod["spec"].get("readinessGates", ())]
    return [told.get(one, {"type": one, "status": "False"}) for one in named]


def is_let_through(pod: Json) -> bool:
    """Whether each of its gates is open, so that it is ready as soon as its containers are."""
    return all(one["status"] == "True" for one in gates(pod))


def is_done(pod: Json) -> bool:
    """Whether it is of a Job, and its work is done."""
    return bool(pod.get("status", {}).get("phase") == "Succeeded")


def has_pods(thing: Json) -> bool:
    """Whether the controller of a Deployment, StatefulSet or DaemonSet has seen it as it is now and made its pods."""
    spec, status = thing["spec"], thing.get("status", {})
    if status.get("observedGeneration", 0) < thing["metadata"]["generation"]:
        return False
    if thing["kind"] == "DaemonSet":
        return bool(status.get("currentNumberScheduled", 0) >= status.get("desiredNumberScheduled", 0))
    return bool(status.get("replicas", 0) >= spec.get("replicas", 1))


def place(pod: Json) -> str:
    """Its path."""
    return path("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])


def images(pod: Json) -> list[str]:
    """Of its containers, with their tags."""
    return [str(one["image"]) for one in pod["spec"]["containers"]]


def sleeps_before_end(pod: Json) -> float:
    """For how many seconds a pod that is to end is left as it is, for those who do not know yet: its preStop hook."""
    hooks = (one.get("lifecycle", {}).get("preStop", {}) for one in pod["spec"]["containers"])
    return float(max(hook.get("sleep", {}).get("seconds", 0) for hook in hooks))


def always_pulled(pod: Json) -> set[str]:
    """Its images for which the registry is asked at each start of their container."""
    return {str(one["image"]) for one in pod["spec"]["containers"] if one.get("imagePullPolicy") == "Always"}


def uid_of(pod: Json) -> str:
    return str(pod["metadata"]["uid"])


def image_of(pod: Json) -> str:
    """Of its first container, without the tag."""
    return images(pod)[0].rsplit(":", 1)[0]


def app_of(image: str) -> Key:
    """Namespace and name of the app that an image is of."""
    namespace, name = ["", *image.split("/")][-2:]
    return namespace, name
