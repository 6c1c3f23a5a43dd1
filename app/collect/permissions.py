"""What an API server allows who we are there: what is missing for the kinds that are followed, and what is too much.

https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator

import msgspec

from app.collect.apiserver import ApiServer
from app.collect.diagnosis import some
from app.collect.words import Served
from app.core.objects.kinds import named

GROUP = "/apis/authorization.k8s.io/v1"
NOWHERE = "-"
"""The namespace that rules are asked for. There can be none of this name, so that those come that hold everywhere."""
NEEDED = ("list", "watch")
READS = frozenset({"get", "list", "watch"})
EVERYBODYS = frozenset({"selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews"})
"""What system:basic-user allows everybody who is authenticated to create: nothing is stored of it."""
COMMANDS = frozenset(
    {
        *("pods/attach", "pods/exec", "pods/portforward", "pods/proxy"),
        *("nodes/proxy", "services/proxy"),
    }
)
"""What works in pods and behind Services, by ``get`` too."""
PROBES = (
    *(("*", "*", "*"), ("get", "", "secrets"), ("create", "", "pods"), ("create", "", "pods/exec")),
    *(("patch", "apps", "deployments"), ("impersonate", "", "users")),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
)
"""Verb, group and resource: what is asked of an API server that cannot list all that it allows."""
QUESTIONS = 4
"""Asked at the same time."""


class Rule(msgspec.Struct, frozen=True, rename="camel"):
    """One of RBAC's; ``*`` is any."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()

    def allows(self, verb: str, api_group: str, resource: str) -> bool:
        """Whether it allows that for all objects."""
        asked = ((verb, self.verbs), (api_group, self.api_groups), (resource, self.resources))
        return not self.resource_names and all(one in of or "*" in of for one, of in asked)


class Allowed(msgspec.Struct, frozen=True):
    """What holds in all namespaces; of an ``incomplete`` one there may be more that the API server cannot list."""

    rules: tuple[Rule, ...]
    incomplete: bool


class _Rules(msgspec.Struct, rename="camel"):
    resource_rules: tuple[Rule, ...] = ()
    incomplete: bool = False


class _RulesReview(msgspec.Struct):
    status: _Rules


class _Access(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _Access


_rules_review = msgspec.json.Decoder(_RulesReview)
_access_review = msgspec.json.Decoder(_AccessReview)


async def allowed(api: ApiServer) -> Allowed:
    """Raises RefusedError, UnreachableError, msgspec.MsgspecError."""
    answer = await api.review(f"{GROUP}/selfsubjectrulesreviews", {"namespace": NOWHERE})
    status = _rules_review.decode(answer).status
    return Allowed(status.resource_rules, status.incomplete)


async def may(api: ApiServer, verb: str, api_group: str, resource: str) -> bool:
    """Whether we may do that to all objects of a kind; ``resource`` with its subresource. Raises as ``allowed``."""
    plural, _, subresource = resource.partition("/")
    asked = {"verb": verb, "group": api_group, "resource": plural, "subresource": subresource}
    answer = await api.review(f"{GROUP}/selfsubjectaccessreviews", {"resourceAttributes": asked})
    return _access_review.decode(answer).status.allowed


async def missing(api: ApiServer, found: Allowed, kinds: Iterable[Served]) -> dict[Served, tuple[str, ...]]:
    """The verbs that each kind lacks to be watched; kinds that lack none are left out. Raises as ``allowed``."""
    questions = [
        (served, verb)
        for served in kinds
        for verb in NEEDED
        if not any(rule.allows(verb, *served.name) for rule in found.rules)
    ]
    if found.incomplete:
        answers = await _each(api, [(verb, *served.name) for served, verb in questions])
        questions = [one for one, is_allowed in zip(questions, answers, strict=True) if not is_allowed]
    lacking: dict[Served, tuple[str, ...]] = {}
    for served, verb in questions:
        lacking[served] = (*lacking.get(served, ()), verb)
    return lacking


async def excess(api: ApiServer, found: Allowed, *, add: Collection[str] = ()) -> tuple[str, ...]:
    """What we may do and need not, like "delete pods": writes, commands in pods, Secrets unless they are in ``add``.

    Raises as ``allowed``.
    """
    if any(rule.allows("*", "*", "*") for rule in found.rules):
        return ("anything (* on all kinds)",)
    words = dict.fromkeys(word for rule in found.rules for word in _too_much(rule, add))
    if found.incomplete:
        probes = [one for one in PROBES if one != ("get", "", "secrets") or "secrets" not in add]
        answers = await _each(api, probes)
        words |= dict.fromkeys(_said(*one) for one, is_allowed in zip(probes, answers, strict=True) if is_allowed)
    return tuple(words)


def said_of_excess(words: Collection[str]) -> str:
    """That more is allowed than is needed, in one sentence."""
    return f"more is allowed than is needed: {some(words)}"


async def _each(api: ApiServer, questions: Collection[tuple[str, str, str]]) -> list[bool]:
    turns = asyncio.Semaphore(QUESTIONS)

    async def ask(verb: str, api_group: str, resource: str) -> bool:
        async with turns:
            return await may(api, verb, api_group, resource)

    return await asyncio.gather(*(ask(*one) for one in questions))


def _too_much(rule: Rule, add: Collection[str]) -> Iterator[str]:
    for group in rule.api_groups:
        for resource in rule.resources:
            if resource in EVERYBODYS:
                continue
            commands = resource in COMMANDS and group in ("", "*")
            reads_secrets = group in ("", "*") and resource in ("secrets", "*") and "secrets" not in add
            for verb in rule.verbs:
                if commands or verb not in READS:
                    yield _said(verb, group, resource)
                elif reads_secrets:
                    yield f"{verb} secrets"


def _said(verb: str, api_group: str, resource: str) -> str:
    if resource == "*":
        return f"{verb} all kinds" if api_group == "*" else f"{verb} all kinds of {api_group or 'the core group'}"
    return f"{verb} {named('' if api_group == '*' else api_group, resource)}"
