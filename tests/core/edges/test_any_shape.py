"""Kinds that others define may be called like Kubernetes' own, and hold anything: nothing crashes on them."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.reach import RULES, reach
from app.core.model import FieldDiff, Object, Resource, Verb
from tests.core.factories import a_change, a_resource, a_state, a_workload

FIELDS = (
    *("aggregationRule", "backend", "backendRefs", "clusterRoleSelectors", "containers", "env", "host", "hostnames"),
    *("http", "jobTemplate", "kind", "labels", "matchExpressions", "matchLabels", "name", "namespace", "paths"),
    *("podSelector", "ports", "replicas", "roleRef", "rules", "scaleTargetRef", "secretName", "selector", "service"),
    *("spec", "subjects", "targetRef", "template", "tls", "value", "valueFrom", "volumes"),
)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(0, 9), st.sampled_from(["web", "shop", "shop.example.com"]))
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=20,
)
KINDS = sorted({*RULES, "Pod"})


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=6), ANYTHING)
def test_a_kind_of_the_same_name_in_another_group_may_hold_anything(kind: str, held: Object, new: Any) -> None:
    thing = Resource("lab", "example.com", kind, "shop", "web")
    state = a_state(thing, held | {"kind": kind, "metadata": {"name": "web"}}, owner=a_resource())
    top = topology([state, a_workload(a_resource())])
    for change in (
        a_change(thing, path=("spec",), old=held.get("spec"), new=new),
        replace(a_change(thing), verb=Verb.CREATE, diffs=(FieldDiff((), "add", None, state.state),)),
    ):
        assert reach(change, top)[("named", "web")] == 0
