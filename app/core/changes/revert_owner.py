"""What makes an undoing hold against who owns the object: pause it first, undo, revert it in Git, let it go on.

Commands: https://argo-cd.readthedocs.io/en/stable/user-guide/commands/argocd_app_set/ , argocd_app_rollback/ and
argocd_app_history/ ; https://fluxcd.io/flux/cmd/flux_suspend/ and flux_resume/ . Argo CD refuses to roll back an
application that it syncs by itself, and a policy that an ApplicationSet sets is set again:
https://argo-cd.readthedocs.io/en/stable/user-guide/auto_sync/ .
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from app.core.changes.recipe import Caution, Known, Step
from app.core.changes.revert_commands import helm_release, is_helm_release, target
from app.core.model import NOBODY, Change, Json, Object, ObjectState, Resource, Verb
from app.core.objects.owners import (
    ARGO_CD,
    ARGO_CD_NAMESPACE,
    FLUX,
    HELM,
    Owner,
    is_argo_cd,
    is_sync,
    is_synced,
    owner_of,
    releases,
    spec_of,
)

_REFUSED = " After this Helm 4 is refused with a conflict, as it applies by the server, until it has --force-conflicts."
"""https://helm.sh/docs/overview/#server-side-apply : its upgrade and its rollback; its dry runs tell nothing of it."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What is done ``before`` and ``after`` an undoing that is to hold, and what to mind.

    ``command`` undoes it the owner's own way, "" where that would undo something else.
    """

    cautions: tuple[Caution, ...] = ()
    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    command: str = ""


def owner(change: Change, known: Known) -> Owner | None:
    """Who owns the object of a change, by what is known of it."""
    if is_sync(change):
        there = change.resource.namespace or ""
        return Owner(ARGO_CD, "Application", change.resource.name, "" if there == ARGO_CD_NAMESPACE else there)
    if is_helm_release(change.resource):
        release, namespace = helm_release(change.resource)[0], change.resource.namespace
        tender = next((one for one in known.others.values() if releases(one, release, namespace)), None)
        if tender is not None:
            return Owner(FLUX, tender.resource.kind, tender.resource.name, tender.resource.namespace or "")
    state = known.last.state if known.last is not None else None
    whole = state or next((part for d in change.diffs if not d.path for part in (d.new, d.old) if part), None)
    return owner_of(change.resource, whole, change.actor)


def holding(change: Change, known: Known) -> Holding:
    """How the undoing of a change holds; nothing where nobody owns the object."""
    found = owner(change, known)
    if found is None:
        return Holding()
    if found.controller == HELM and is_helm_release(change.resource):
        return Holding()  # what undoes it is Helm's own command
    if found.controller == HELM:
        return Holding((Caution(_of_helm(found) + (_REFUSED if change.verb is Verb.UPDATE else "")),))
    if not found.name:
        return _unnamed(change, known, found)
    resource = found.resource(change.resource.cluster)
    tender = known.others.get(resource) if resource else None
    return _argo_cd(change, known, found, tender) if found.controller == ARGO_CD else _flux(found, tender)


def _of_helm(found: Owner) -> str:
    if not found.name:
        return "It belongs to a Helm release: `helm rollback` keeps its history right."
    place = f" -n {shlex.quote(found.namespace)}" if found.namespace else ""
    whole = (
        f"`helm rollback {shlex.quote(found.name)}{place}` goes back from its newest revision, with all that it brought"
    )
    return f"It belongs to the Helm release {found.name}: {whole}, and keeps its history right."


def _unnamed(change: Change, known: Known, found: Owner) -> Holding:
    """By what an object is kept is told by marks of it, which may not be recorded: how it is found, and paused then."""
    what = target(change.resource, known)
    if found.controller == ARGO_CD:
        kind, name = "Application", "APP"
        column = "NAMESPACE:.metadata.namespace,APP:.metadata.name,OF:.status.resources[*].name"
        among = f"grep -Fw -- {shlex.quote(change.resource.name)}"
        find = f"kubectl get applications.argoproj.io -A -o custom-columns='{column}' | {among}"
        pause, resume = (f"argocd app set APP --sync-policy {policy}" for policy in ("none", "automated"))
        again = "let Argo CD sync by itself again, with --auto-prune and --self-heal where it had them"
    else:
        kind, name = "HelmRelease" if _is_helm_controller(change) else "Kustomization", "NAME and NAMESPACE"
        place = f" -n {shlex.quote(change.resource.namespace)}" if change.resource.namespace else ""
        find = f"flux trace{place} {what}"
        pause, resume = (f"flux {verb} {kind.lower()} NAME -n NAMESPACE" for verb in ("suspend", "resume"))
        again = "let Flux go on"
    kept = f"{found.controller} owns it, by {'an' if kind[0] == 'A' else 'a'} {kind} that is not recorded"
    said = f"{kept}: revert it in Git, or find that and pause it first (`{pause}`), else it is written again."
    return Holding(
        (Caution(said),),
        (
            Step(f"Find the {kind} that has it, which is not recorded", find),
            Step(f"Keep {found.controller} from writing it again, with what was found for {name}", pause),
        ),
        (_in_git(None), Step(f"When Git says the same: {again}", resume)),
    )


def _is_helm_controller(change: Change) -> bool:
    return "helm-controller" in f"{change.actor.name} {change.actor.user_agent}".lower()


def _argo_cd(change: Change, known: Known, found: Owner, app: ObjectState | None) -> Holding:
    named = shlex.quote(found.name) + (f" -N {shlex.quote(found.namespace)}" if found.namespace else "")
    policy = _policy(app)
    said = f"Argo CD owns it, by its application {found.name}"
    cautions, before, after = [], [], [_in_git(spec_of(app.state).get("source") if app else None)]
    if app is not None and policy is None:
        cautions.append(Caution(f"{said}, which is not synced by itself: the undoing holds until somebody syncs."))
    else:
        cautions.append(Caution(f"{said}: what Git says is written again, unless the sync is paused first."))
        above = _above(app, known)
        pause, resume = _paused(found, app, named, policy)
        before += [*above.before, pause]
        after += [resume, *above.after]
    is_its_own = is_sync(change) or (change.verb is Verb.UPDATE and is_argo_cd(change.actor))
    if not is_its_own or any(is_argo_cd(one.actor) and not is_synced(one) for one in known.since):
        return Holding(tuple(cautions), tuple(before), tuple(after))
    before.append(Step("See what it goes back to: the version before the newest", f"argocd app history {named}"))
    cautions.insert(0, Caution("The rollback takes back all that the last sync of the application brought."))
    return Holding(tuple(cautions), tuple(before), tuple(after), f"argocd app rollback {named}")


def _above(app: ObjectState | None, known: Known) -> Holding:
    """How an application is kept paused that is itself kept as Git says, as by an app of apps: its policy would be set
    again. An application above it does that where it heals itself
    (https://argo-cd.readthedocs.io/en/stable/operator-manual/cluster-bootstrapping/#app-of-apps-pattern)."""
    found = _owner_above(app) if app is not None else None
    resource = found.resource(app.resource.cluster) if found and app else None
    if found is None or resource is None:
        return Holding()
    tender = known.others.get(resource)
    if found.controller == FLUX:
        held = _flux(found, tender)
        return Holding((), held.before, held.after[1:])
    policy = _policy(tender)
    if tender is not None and (policy is None or policy.get("selfHeal") is not True):
        return Holding()
    named = shlex.quote(found.name) + (f" -N {shlex.quote(found.namespace)}" if found.namespace else "")
    pause, resume = _paused(found, tender, named, policy)
    return Holding((), (pause,), (resume,))


def _owner_above(app: ObjectState) -> Owner | None:
    found = owner_of(app.resource, app.state, NOBODY)
    return found if found and found.resource(app.resource.cluster) != app.resource else None


def tenders(change: Change, known: Known) -> Iterator[Resource]:
    """The objects by which its controller keeps what was changed, and, once that is known, by which it keeps that."""
    found = owner(change, known)
    tender = found.resource(change.resource.cluster) if found else None
    if tender is None:
        return
    yield tender
    there = known.others.get(tender)
    above = _owner_above(there) if there is not None and tender.kind == "Application" else None
    if above is not None and (upper := above.resource(change.resource.cluster)):
        yield upper


def _paused(found: Owner, app: ObjectState | None, named: str, policy: Object | None) -> tuple[Step, Step]:
    """How an application's automatic sync is stopped, and begun again."""
    keep, again = "Keep Argo CD from writing it again", "When Git says the same: let Argo CD sync by itself again"
    if app is not None and app.owner_kind == "ApplicationSet":
        made = f"the template of the ApplicationSet {app.owner_name}, which makes the application {found.name}"
        return Step(f"{keep}: take syncPolicy.automated out of {made}"), Step(f"{again}: put that back")
    options, hint = _resumed(policy)
    return (
        Step(f"{keep}: stop the sync of its application {found.name}", f"argocd app set {named} --sync-policy none"),
        Step(f"{again}{hint}", f"argocd app set {named} --sync-policy automated{options}"),
    )


def _policy(app: ObjectState | None) -> Object | None:
    """What an Application says of its automatic sync; None where it is not synced by itself, or that is not known."""
    policy = spec_of(app.state if app else None).get("syncPolicy")
    automated = policy.get("automated") if isinstance(policy, dict) else None
    return automated if isinstance(automated, dict) and automated.get("enabled") is not False else None


def _resumed(policy: Object | None) -> tuple[str, str]:
    """The options that bring a policy back, and what to mind where it is not known."""
    if policy is None:
        return "", ", with --auto-prune and --self-heal where it had them"
    options = (("prune", "--auto-prune"), ("selfHeal", "--self-heal"), ("allowEmpty", "--allow-empty"))
    return "".join(f" {option}" for field, option in options if policy.get(field) is True), ""


def _flux(found: Owner, tender: ObjectState | None) -> Holding:
    spec = spec_of(tender.state if tender else None)
    said = f"Flux owns it, by the {found.kind} {found.namespace}/{found.name}"
    git = _in_git(spec)
    if spec.get("suspend") is True:
        return Holding((Caution(f"{said}, which is suspended: the undoing holds until it is resumed."),), (), (git,))
    named = f"{found.kind.lower()} {shlex.quote(found.name)} -n {shlex.quote(found.namespace)}"
    pause = Step(f"Keep Flux from writing it again: suspend the {found.kind} {found.name}", f"flux suspend {named}")
    resume = Step("When Git says the same: let Flux go on", f"flux resume {named}")
    warned = Caution(f"{said}: what Git says is written again, unless that is suspended first.")
    return Holding((warned,), (pause,), (git, resume))


def _in_git(source: Json) -> Step:
    """To revert it for good, and where, as far as the controller's own object says that: an Application's ``source``,
    or the ``spec`` of a Kustomization."""
    told = source if isinstance(source, dict) else {}
    ref = told.get("sourceRef")
    where = told.get("repoURL") or (f"{ref.get('kind')} {ref.get('name')}" if isinstance(ref, dict) else "")
    path = told.get("path")
    place = f", in {where}" + (f" at {path}" if path else "") if where else ""
    return Step(f"For good: revert the commit that brought it{place} (git revert), and push that")
