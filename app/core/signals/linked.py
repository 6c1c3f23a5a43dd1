"""Pods that end over a variable that they have since a Service of that name is there: not over what they were rolled
out for.

A kubelet tells each container that starts where the Services of its namespace are, by variables that the app may take
for its own settings: Service ``cache`` sets CACHE_PORT to "tcp://10.96.0.7:6379". Service: dependencies.variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from app.core.edges.causes import LINKED
from app.core.model import Change, Verb
from app.core.objects.dependencies import variables, variables_in
from app.core.signals.signal import Signal


def with_linked(signals: Iterable[Signal], changes: Iterable[Change]) -> list[Signal]:
    """The signals, those with that cause whose messages name a variable of a Service that was made lately."""
    made = [one.resource for one in changes if one.resource.kind == "Service" and one.verb is Verb.CREATE]
    told = {(one.namespace, variable) for one in made for variable in variables(one.name)}
    return [replace(signal, cause=LINKED) if told & set(_named(signal)) else signal for signal in signals]


def _named(signal: Signal) -> Iterable[tuple[str | None, str]]:
    """(namespace, variable) of what the complaints of a workload name."""
    where = {entity[1] for entity in signal.about if entity[0] == "workload"}
    return ((namespace, variable) for variable in variables_in(signal.text) for namespace in where)
