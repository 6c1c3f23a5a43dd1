"""What would keep Foreshock from seeing a cluster, and how to mend it. Nothing is written: reviews store nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from http import HTTPStatus
from shlex import quote

import msgspec

from app.collect import auditing, permissions
from app.collect.apiserver import ApiServer, CredentialsError, RefusedError, UnreachableError, UntrustedError
from app.collect.contexts import WantedCluster
from app.collect.diagnosis import Finding, Level, ok, some
from app.collect.discovery import Discovered, DiscoveryError, discover
from app.collect.watch import ALL_FIRST, UNSUPPORTED
from app.collect.words import Served
from app.core.objects.kinds import BUILT_IN, named

OLDEST = (1, 27)
"""The first Kubernetes with aggregated discovery that need not be switched on."""
MOST_SKEW = timedelta(seconds=5)
"""Of two clocks. Twice that is how late a write may be told after another (core/changes/tracker.py)."""
QUIET = timedelta(seconds=10)
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):foreshock")


class _Version(msgspec.Struct, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


class _User(msgspec.Struct):
    username: str = ""


class _Status(msgspec.Struct, rename="camel"):
    user_info: _User = msgspec.field(default_factory=_User)


class _Self(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


_version = msgspec.json.Decoder(_Version)
_self = msgspec.json.Decoder(_Self)


async def examine(
    cluster: WantedCluster, *, clock: Callable[[], datetime], recorded: Mapping[str, datetime] | None = None
) -> list[Finding]:
    """All that can be known of a cluster, the most basic first; what nothing can be known without is the last.

    ``recorded`` is up to when each source tells of it (store.reach), None where the database was not asked.
    """
    found: list[Finding] = []
    try:
        api = await cluster.connect()
    except CredentialsError as error:
        shown = f"kubectl config view --kubeconfig {quote(cluster.kubeconfig)}" if cluster.kubeconfig else ""
        return [_nothing("connection", str(error), fix=shown or "give a kubeconfig: --kubeconfig FILE")]
    try:
        await _look(api, cluster, found, clock=clock, recorded=recorded)
    except UntrustedError as error:
        found.append(
            _nothing(
                "connection",
                f"{api.url}: {error}",
                fix="put the certificate of the cluster's own authority into the kubeconfig: "
                "kubectl config set-cluster NAME --certificate-authority=FILE --embed-certs",
            )
        )
    except UnreachableError as error:
        said = f"{api.url}: {error}"
        fix = f"see whether it answers from this machine: curl --insecure {quote(api.url + '/version')}"
        found.append(_nothing("connection", said, fix=fix))
    except RefusedError as error:
        busy = error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        fix = _once_it_answers(cluster) if busy else _new_credentials(cluster)
        found.append(_nothing("connection", f"{api.url}: {error}", fix=fix))
    except (DiscoveryError, msgspec.MsgspecError) as error:
        said = (
            f"{api.url} does not answer as an API server of Kubernetes {'.'.join(map(str, OLDEST))} or newer: {error}"
        )
        found.append(_nothing("API", said, fix="look at the address, and whether a proxy answers in its place"))
    finally:
        await api.close()
    return found


async def _look(
    api: ApiServer,
    cluster: WantedCluster,
    found: list[Finding],
    *,
    clock: Callable[[], datetime],
    recorded: Mapping[str, datetime] | None,
) -> None:
    """Adds to ``found``. Raises what keeps the rest from being looked at."""
    before = clock()
    body, date = await api.dated("/version")
    after = clock()
    version = _version.decode(body)
    user = await _whoami(api)
    took = (after - before) / timedelta(milliseconds=1)
    found.append(ok("connection", f"{api.url} answers in {took:.0f} ms, as {user or 'a user who is not told'}"))
    found.append(of_version(version.major, version.minor, version.git_version))
    found.append(of_clock(before, after, date))
    kinds = await discover(api, add=cluster.add, exclude=cluster.exclude)
    found += _of_kinds(kinds)
    allowed = await permissions.allowed(api)
    missing = await permissions.missing(api, allowed, kinds.kinds)
    found.append(_of_missing(cluster, kinds.kinds, missing, user))
    found.append(_of_excess(await permissions.excess(api, allowed, add=cluster.add), user))
    seen = [served for served in kinds.kinds if served not in missing]
    if seen:
        found.append(await _of_streams(api, min(seen, key=lambda served: served.plural != "namespaces")))
    flags = await auditing.flags(api)
    where = auditing.managed_by(version.git_version, api.url)
    found += auditing.look(flags, where, recorded, now=after)


def of_version(major: str, minor: str, git_version: str) -> Finding:
    """Whether the API server is new enough. Managed clusters say a minor version like ``27+``."""
    digits = [re.sub(r"\D", "", part) for part in (major, minor)]
    said = f"Kubernetes {git_version}"
    if all(digits) and tuple(map(int, digits)) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return Finding(
            "version", Level.PROBLEM, said, "anything", f"upgrade the cluster to Kubernetes {needed} or newer"
        )
    return ok("version", said)


def of_clock(before: datetime, after: datetime, date: datetime | None) -> Finding:
    """How far the API server's clock is from ours, by the Date of an answer to what was asked between two times.

    Date has whole seconds, cut off: the true time lies up to a second behind it.
    """
    if date is None:
        return ok("clock", "the API server does not tell its time")
    least, most = date - after, date + timedelta(seconds=1) - before
    off = max(least, -most, timedelta(0))
    if off <= MOST_SKEW:
        return ok("clock", f"less than {max(-least, most, timedelta(seconds=1)).total_seconds():.0f} s from ours")
    ahead = "ahead of" if least > timedelta(0) else "behind"
    return Finding(
        "clock",
        Level.WARNING,
        f"the API server's clock is at least {off.total_seconds():.0f} s {ahead} ours",
        "what came first, of what the cluster tells and what others tell (alerts, metrics)",
        "let both machines ask a time server: timedatectl set-ntp true",
    )


def _of_kinds(kinds: Discovered) -> list[Finding]:
    found = [ok("kinds", f"{len(kinds.kinds)} kinds are followed")]
    if kinds.unserved:
        found.append(
            Finding(
                "kinds",
                Level.WARNING,
                f"to be added or excluded, but not served, or not so that they can be watched: {some(kinds.unserved)}",
                "the kinds that were meant, or they are seen though they were not to be",
                "name them as this prints them: kubectl api-resources --verbs=list,watch -o name",
            )
        )
    if kinds.stale:
        found.append(
            Finding(
                "kinds",
                Level.WARNING,
                f"the servers of these API groups do not answer: {some(kinds.stale)}",
                "their kinds, until they do",
                "kubectl get apiservices",
            )
        )
    return found


def _of_missing(
    cluster: WantedCluster, kinds: Collection[Served], missing: Mapping[Served, tuple[str, ...]], user: str
) -> Finding:
    if not missing:
        return ok("permissions", "each of them may be listed and watched")
    names = [named(*served.name) for served in missing]
    verbs = " and ".join(dict.fromkeys(verb for lacking in missing.values() for verb in lacking))
    custom = [named(*one.name) for one in missing if (one.api_group, one.kind) not in BUILT_IN]
    blind = {"pods", "events"} & {one.plural for one in missing}
    hurts = f"; and, without {' and '.join(sorted(blind))}, what goes wrong" if blind else ""
    return Finding(
        "permissions",
        Level.PROBLEM,
        f"may not {verbs} {len(missing)} of {len(kinds)} kinds: {some(names)}",
        f"their changes{hurts}",
        _allow(cluster, custom, user),
    )


def _allow(cluster: WantedCluster, custom: Collection[str], user: str) -> str:
    """The command that allows what is missing, for somebody who may."""
    account = _ACCOUNT.fullmatch(user)
    options = [f"--add {quote(name)}" for name in dict.fromkeys((*cluster.add, *custom))]
    options += [f"--exclude {quote(name)}" for name in cluster.exclude]
    options += [f"--namespace {account[1]}"] if account and account[1] != "foreshock" else []
    command = f"{' '.join(['foreshock rbac', *options])} | kubectl apply -f -"
    if account or not user:
        return command
    return (
        f"{command} && kubectl create clusterrolebinding foreshock-reader --clusterrole=foreshock --user={quote(user)}"
    )


def _of_excess(words: Collection[str], user: str) -> Finding:
    if not words:
        return ok("least privilege", "nothing more is allowed than is needed")
    if _ACCOUNT.fullmatch(user):
        fix = "see what else is bound to it, and unbind that: kubectl get clusterrolebindings -o wide | grep foreshock"
    else:
        fix = (
            "put the token of an account that may read only into the kubeconfig: foreshock rbac | kubectl apply -f - &&"
            " kubectl create token foreshock -n foreshock --duration 8760h"
        )
    return Finding("least privilege", Level.WARNING, permissions.said_of_excess(words), "", fix)


async def _of_streams(api: ApiServer, served: Served) -> Finding:
    """Whether all objects of a kind come as a stream (WatchList), which costs the API server the least."""
    query = {**ALL_FIRST, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "5"}
    try:
        async with aclosing(api.lines(served.path, query, quiet=QUIET)) as lines:
            await anext(lines, None)
    except RefusedError as error:
        if error.status not in UNSUPPORTED:
            raise
        return ok("streaming lists", "no: what there is is asked for in pages, which costs the API server more memory")
    return ok("streaming lists", "yes: what there is is told as a stream")


async def _whoami(api: ApiServer) -> str:
    """Our name there; "" where the API server does not tell (before Kubernetes 1.28, or to nobody in particular)."""
    try:
        return _self.decode(await api.review(WHOAMI, {})).status.user_info.username
    except RefusedError as error:
        if error.status in (403, 404):
            return ""
        raise


def _new_credentials(cluster: WantedCluster) -> str:
    if not cluster.kubeconfig:
        return "kubectl create token foreshock -n foreshock, for a kubeconfig; or restart the pod"
    return f"see who that is: {_kubectl(cluster)} auth whoami"


def _once_it_answers(cluster: WantedCluster) -> str:
    """Of an API server that has too much to do, or is not ready: who asks is not to blame."""
    return f"it is overloaded or not ready: {_kubectl(cluster)} get --raw '/readyz?verbose'; then look again"


def _kubectl(cluster: WantedCluster) -> str:
    of = f"KUBECONFIG={quote(cluster.kubeconfig)} " if cluster.kubeconfig else ""
    return f"{of}kubectl" + (f" --context {quote(cluster.context)}" if cluster.context else "")


def _nothing(check: str, said: str, *, fix: str) -> Finding:
    return Finding(check, Level.PROBLEM, said, "anything", fix)
