"""The context of kubectl: which cluster and namespace it would talk to, read as kubectl reads it.

https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/: of several files the first that
says something counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.failures import Expected

VARIABLE = "KUBECONFIG"


class ContextError(Expected):
    """There is no context to go by; the message says why."""


@dataclass(frozen=True, slots=True)
class Context:
    """A context: its name, that of its cluster in the kubeconfig, and its namespace."""

    name: str
    cluster: str
    namespace: str


def files(given: Path | None, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The kubeconfigs that kubectl would read. Raises ContextError for a ``given`` one that is not there."""
    if given is not None:
        if not given.is_file():
            raise ContextError(f"--kubeconfig {given}: there is no such file")
        return [given]
    named = [Path(part) for part in environment.get(VARIABLE, "").split(os.pathsep) if part]
    return [path for path in named or [Path.home() / ".kube" / "config"] if path.is_file()]


def read(paths: Sequence[Path], name: str | None) -> Context:
    """The context of this name, else the current one. Raises ContextError."""
    configs = [_loaded(path) for path in paths]
    wanted = name or next((str(one["current-context"]) for one in configs if one.get("current-context")), "")
    if not wanted:
        where = ", ".join(map(str, paths)) or f"{VARIABLE}, or ~/.kube/config"
        raise ContextError(
            f"there is no current context in {where}: --context names one, or --cluster and -n do without"
        )
    found = next((one for config in configs for one in _contexts(config) if one.get("name") == wanted), None)
    if found is None:
        raise ContextError(f"there is no context {wanted!r}: there are {', '.join(names(paths)) or 'none'}")
    context = found.get("context")
    said = context if isinstance(context, dict) else {}
    return Context(wanted, str(said.get("cluster") or ""), str(said.get("namespace") or "default"))


def names(paths: Sequence[Path]) -> list[str]:
    """The contexts that there are. Raises ContextError."""
    return sorted({str(one.get("name")) for path in paths for one in _contexts(_loaded(path))})


def cluster_of(context: Context, known: Sequence[str]) -> str:
    """What Foreshock calls the cluster of a context. Raises ContextError where it knows none, or two, by its names.

    Foreshock calls the cluster of a kubeconfig after its context, without what stands before the last slash (collect/
    contexts.py: EKS writes arn:aws:eks:eu-central-1:123456789012:cluster/shop). Contexts are called otherwise on
    another machine, so the name of the kubeconfig's cluster counts, too.
    """
    names = list(dict.fromkeys(name.rpartition("/")[2] for name in (context.name, context.cluster) if name))
    found = [name for name in names if name in known]
    if len(found) == 1:
        return found[0]
    if found:
        raise ContextError(
            f"the context {context.name} may be of {' or of '.join(found)}, which Foreshock both knows: --cluster says"
        )
    there_are = ", ".join(known) or "none"
    raise ContextError(
        f"Foreshock knows no cluster called {' or '.join(names)}, as the context {context.name} says; it knows"
        f" {there_are}: --cluster, or FORESHOCK_CLUSTER, names the one that is meant"
    )


def _contexts(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    listed = config.get("contexts")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict):
            yield one


def _loaded(path: Path) -> Mapping[str, Any]:
    import yaml  # noqa: PLC0415 - nobody else needs it at 03:00

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # large files are read ten times as fast
    try:
        found = yaml.load(path.read_bytes(), Loader=loader)  # noqa: S506 - a safe one
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no YAML"
        raise ContextError(f"{path}: {why}") from None
    return found if isinstance(found, dict) else {}
