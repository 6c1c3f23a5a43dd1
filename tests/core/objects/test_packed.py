"""States come back as they were packed, and take little where others are like them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.core.model import Object
from app.core.objects.packed import ALIKE, MODELS, Packing

_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
_states = st.dictionaries(st.sampled_from(["spec", "data", "metadata", "é"]), _json)


def workload(number: int, kind: str = "x") -> Object:
    words: Object = {f"word-{n}": f"{n * 7919:x} of {kind}" for n in range(40)}
    return {"metadata": {"name": f"w-{number}", "labels": {"app": f"a-{number}"}}, "spec": {kind: words, "n": number}}


@given(st.lists(_states, min_size=1, max_size=5))
def test_every_state_comes_back_whatever_it_is(states: list[Object]) -> None:
    packing = Packing()
    again = [one for one in states for _ in range(ALIKE + 2)]
    packed = [packing.pack(one) for one in again]
    assert [packing.unpack(one) for one in packed] == again


def test_what_is_like_others_takes_little() -> None:
    packing = Packing()
    sizes = [len(packing.pack(workload(number))) for number in range(10 * ALIKE)]
    assert max(sizes[ALIKE + 1 :]) < min(sizes[:ALIKE]) / 3


def test_of_many_shapes_only_so_many_have_a_model_and_all_come_back() -> None:
    packing = Packing()
    kinds = [f"kind-{number}" for number in range(MODELS + 5)]
    states = [workload(number, kind) for kind in kinds for number in range(ALIKE + 2)]
    packed = [packing.pack(one) for one in states]
    assert [packing.unpack(one) for one in packed] == states
    assert {one[0] for one in packed} == set(range(MODELS + 1))


def test_a_large_state_is_no_model() -> None:
    packing = Packing()
    large: Object = {"data": {str(n): f"{n * 7919:x}" for n in range(5_000)}}
    assert {packing.pack(large)[0] for _ in range(2 * ALIKE)} == {0}
    assert packing.unpack(packing.pack(large)) == large
