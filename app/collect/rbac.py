"""What Kubernetes must allow for the kinds that are followed, as a manifest for `kubectl apply`: deploy/rbac.yaml.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from app.collect.discovery import is_followed
from app.core.objects.kinds import BUILT_IN, named
from app.failures import Expected

NAMESPACE = "foreshock"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""Of a plural and its group, and of a namespace: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/"""
_HEAD = """\
# What Foreshock needs in a cluster that it follows: to get, list and watch the kinds that it follows, and nothing else.
# Made by `{made_by}`; then `foreshock doctor` says what is still missing.
"""
_ACCOUNT = """\
---
apiVersion: v1
kind: Namespace
metadata:
  name: {namespace}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: foreshock
  namespace: {namespace}
---
# A group or kind that the cluster does not serve gives nothing.{secrets}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: foreshock
rules:
"""
_NO_SECRETS = """ Secrets are not among them: they are followed only
# where an operator adds them (`foreshock rbac --add secrets`)."""
_RULE = """\
  - apiGroups: ["{group}"]
    resources:
{resources}
    verbs: [get, list, watch]
"""
_METRICS = """\
  # Once a minute, how many audit events the API server could not send: they are a gap.
  - nonResourceURLs: ["/metrics"]
    verbs: [get]
"""
_BINDING = """\
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {name}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {name}
subjects:
  - kind: ServiceAccount
    name: foreshock
    namespace: {namespace}
"""
_CUSTOM = """\
---
# Custom resources: Kubernetes gathers here the rules of every ClusterRole with this label. Beside the definitions of
# your own kinds, for example, put
#
#   apiVersion: rbac.authorization.k8s.io/v1
#   kind: ClusterRole
#   metadata:
#     name: foreshock-shop
#     labels:
#       foreshock/follow: "true"
#   rules:
#     - apiGroups: [shop.example]
#       resources: [carts, tills]
#       verbs: [get, list, watch]
#
# or name them here: `foreshock rbac --add carts.shop.example --add tills.shop.example`.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: foreshock-custom-resources
aggregationRule:
  clusterRoleSelectors:
    - matchLabels:
        foreshock/follow: "true"
rules: []
"""
_FLOW = """\
---
# How much of the API server Foreshock may take: five shares, of 245 that Kubernetes itself gives out, so at most one
# request in fifty that it works on at once; what is more waits in one queue. An open watch takes a place only while it
# begins. Kubernetes 1.29 or newer; for 1.27 and 1.28 write v1beta3.
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata:
  name: foreshock
spec:
  type: Limited
  limited:
    nominalConcurrencyShares: 5
    borrowingLimitPercent: 0
    # Not all of it, or the first request after a while would wait ten seconds for a place to be given back.
    lendablePercent: 50
    limitResponse:
      type: Queue
      queuing:
        queues: 1
        handSize: 1
        queueLengthLimit: 200
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata:
  name: foreshock
spec:
  # Before "service-accounts", which has 9000.
  matchingPrecedence: 8000
  priorityLevelConfiguration:
    name: foreshock
  rules:
    - subjects:
        - kind: ServiceAccount
          serviceAccount:
            name: foreshock
            namespace: {namespace}
      resourceRules:
        - verbs: [get, list, watch]
          apiGroups: ["*"]
          resources: ["*"]
          namespaces: ["*"]
          clusterScope: true
      nonResourceRules:
        - verbs: [get]
          nonResourceURLs: ["*"]
"""


class RbacError(Expected):
    """A kind cannot be put into, or left out of, the manifest; the message says which and why."""


def manifest(*, add: Collection[str] = (), exclude: Collection[str] = (), namespace: str = NAMESPACE) -> str:
    """The YAML for a ServiceAccount ``foreshock`` in a namespace. ``add``, ``exclude`` as core.kinds.named.

    Raises RbacError.
    """
    if not _NAME.fullmatch(namespace) or "." in namespace:
        raise RbacError(f"{namespace!r} cannot be the name of a namespace: small letters, digits and - only")
    rules = "".join(_rules(add, exclude))
    options = [f"--add {name}" for name in add] + [f"--exclude {name}" for name in exclude]
    options += [f"--namespace {namespace}"] if namespace != NAMESPACE else []
    secrets = "" if "secrets" in add and "secrets" not in exclude else _NO_SECRETS
    return (
        _HEAD.format(made_by=" ".join(["foreshock rbac", *options]))
        + _ACCOUNT.format(namespace=namespace, secrets=secrets)
        + rules
        + _METRICS
        + _BINDING.format(name="foreshock", namespace=namespace)
        + _CUSTOM
        + _BINDING.format(name="foreshock-custom-resources", namespace=namespace)
        + _FLOW.format(namespace=namespace)
    )


def _rules(add: Collection[str], exclude: Collection[str]) -> Iterator[str]:
    """One for each API group, in the order of their names."""
    for group, plurals in sorted(_wanted(add, exclude).items()):
        yield _RULE.format(group=group, resources="\n".join(f"      - {plural}" for plural in sorted(plurals)))


def _wanted(add: Collection[str], exclude: Collection[str]) -> dict[str, set[str]]:
    """The plurals by group."""
    known = {named(row.api_group, row.plural): row for row in BUILT_IN.values()}
    names = {name for name, row in known.items() if is_followed(row.api_group, row.kind)}
    for name in (*add, *exclude):
        if not _NAME.fullmatch(name) or ("." not in name and name not in known):
            raise RbacError(f"{name!r} is no kind: name it as `kubectl api-resources -o name` prints it")
    found: dict[str, set[str]] = {}
    for name in (names | set(add)) - set(exclude):
        plural, _, group = name.partition(".")
        found.setdefault(group, set()).add(plural)
    return found
