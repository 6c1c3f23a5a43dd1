"""A write fight as a signal: what has to be explained by whoever set its writers off."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from app.core.entities import Entity, of_resource, workload
from app.core.findings import WriteFight
from app.core.incidents.bundles import LOOKS_BACK
from app.core.model import Rollout
from app.core.objects.actors import service_account
from app.core.objects.kinds import plural_of, several
from app.core.phrases import rate
from app.core.signals.calls import caller_name
from app.core.signals.fights import writer_of
from app.core.signals.signal import Signal, SignalKind
from app.core.signals.worked import NOBODY_RUNS, Runs, last_rollout

_PREFIX = re.compile(r"""(?:annotations|labels)\["([a-z0-9]+)[a-z0-9.-]*/""")
_EVERYBODYS = re.compile(r"""\["(?:[a-z0-9.-]+\.)?(?:kubernetes\.io|k8s\.io|helm\.sh)/""")
"""Domains of keys that belong to no one component:
https://kubernetes.io/docs/reference/labels-annotations-taints/ ."""
MOST_WRITERS = 3
"""Of so many writers it is said when they were rolled out: a sentence is read at a glance."""


def fight_signal(fight: WriteFight, rollouts: Iterable[Rollout], *, runs: Runs = NOBODY_RUNS) -> Signal:
    """A write fight as something to be explained; ``rollouts`` are those of the window, ``runs`` who runs as whom."""
    users = tuple(dict.fromkeys(user for writer in fight.writers if (user := writer_of(writer)[0])))
    about: dict[Entity, float] = {}
    for user in users:
        about[("user", user)] = about[("manager", user)] = 1.0
        if account := service_account(user):
            about[workload(*account)] = 0.9
    for resource in fight.objects[:20]:
        about[("written", resource.kind, resource.namespace or "", resource.name)] = 0.6
        about[of_resource(resource)[0]] = 0.6
    owner = _PREFIX.search(fight.path_text)
    if owner and not _EVERYBODYS.search(fight.path_text):
        # The prefix of an annotation's or label's key is, by convention, the domain of the component that owns it.
        about[("prefix", owner.group(1))] = 0.9
    several_of = len(fight.objects) > 1
    objects = f"{len(fight.objects)} {several(fight.kind)}" if several_of else f"{fight.kind} {fight.objects[0].name}"
    return Signal(
        kind=SignalKind.FIGHT,
        low=fight.began_at,
        high=fight.began_at + timedelta(seconds=1),
        strength=min(1.0, 0.3 + math.log1p(fight.per_second * 10) / math.log(400)),
        about=about,
        sentence=f"write fight over {field_name(fight.path_text)} of {objects}:"
        f" {_who(fight, users)}, {rate(fight.per_second, 'writes')} since {fight.began_at:%H:%M:%S},"
        f" {fight.writes:,} so far{_rolled_out(fight, users, rollouts, runs)}",
        users=users,
        rate_after=fight.per_second,
        facts=_unknown(fight),
    )


def _unknown(fight: WriteFight) -> dict[str, str]:
    """What some writer, whom neither an audit log nor managedFields name, must be allowed to write."""
    if all(writer_of(writer)[0] for writer in fight.writers):
        return {}
    first = fight.objects[0]
    below = "/status" if fight.path_text.startswith("status") else ""
    return {"group": first.api_group, "written": f"{plural_of(first.api_group, first.kind)}{below}"}


def _who(fight: WriteFight, users: tuple[str, ...]) -> str:
    if not users:
        return "somebody (no audit log, no managedFields) rewrites it"
    if len(users) > 1:
        return f"{', '.join(map(caller_name, users))} rewrite it"
    if "" in fight.writers:
        return f"{caller_name(users[0])} rewrites it, and so does someone unknown"
    pods = [pod for writer in fight.writers if (pod := writer_of(writer)[1])]
    if len(pods) > 1:
        return f"{len(pods)} pods of {caller_name(users[0])} overwrite each other ({', '.join(pods[:3])})"
    return f"{caller_name(users[0])} rewrites it with {len(fight.values)} values in turn"


def _rolled_out(fight: WriteFight, users: tuple[str, ...], rollouts: Iterable[Rollout], runs: Runs) -> str:
    """When the writers' programs were last rolled out before the fight, the latest first."""
    known, by = list(rollouts), fight.began_at
    found = (last_rollout((user,), known, by=by, within=LOOKS_BACK, runs=runs) for user in users)
    each = {last.resource: last.started_at for last in found if last}
    latest = sorted(each.items(), key=lambda one: one[1], reverse=True)[:MOST_WRITERS]
    told = (f"{home.name}{'' if n else ' was rolled out'} at {_clock(at, by)}" for n, (home, at) in enumerate(latest))
    return "; " + ", ".join(told) if latest else ""


def _clock(at: datetime, by: datetime) -> str:
    """A time, with the day where that is another than the fight's."""
    return f"{at:%H:%M:%S}" if at.date() == by.date() else f"{at:%d %b %H:%M:%S}"


def field_name(path_text: str) -> str:
    """A field as a person calls it: "annotation owner" for metadata.annotations["owner"]."""
    match = re.fullmatch(r"""metadata\.(annotation|label)s(?:\["(.+)"\]|\.(.+))""", path_text)
    return f"{match.group(1)} {match.group(2) or match.group(3)}" if match else path_text
