from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.pq import Format
from sqlalchemy import text

from app.core.model import FieldDiff, Path
from app.store import codec
from app.store.copy import driver_of
from app.store.database import Database

words = st.text(st.sampled_from("ab=[\t/.,~#é→"), max_size=5)
steps = st.one_of(words, st.integers(0, 9), st.lists(st.tuples(words, words), min_size=1, max_size=2).map(tuple))
json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
diffs = st.builds(
    FieldDiff, st.lists(steps, max_size=4).map(tuple), st.sampled_from(["add", "remove", "replace"]), json, json
)


@given(st.lists(diffs, max_size=3).map(tuple))
def test_diffs_come_back_as_they_were(told: tuple[FieldDiff, ...]) -> None:
    assert codec.diffs_of(codec.loads(codec.dumps(codec.diff_rows(told)))) == told


@pytest.mark.parametrize(
    ("path", "written"),
    [
        (("spec", "replicas"), "spec\treplicas"),
        (("spec", (("name", "app"),), "image"), "spec\t[name=app\timage"),
        (("metadata", "annotations", "example.com/a"), "metadata\tannotations\texample.com/a"),
        ((), []),
        (("args", 0), ["args", 0]),
    ],
)
def test_a_plain_path_is_one_string(path: Path, written: object) -> None:
    assert codec.diff_rows((FieldDiff(path, "add"),)) == [[written, "+", None, None]]


@given(json)
def test_equal_values_give_equal_bytes(value: object) -> None:
    again = dict(reversed(value.items())) if isinstance(value, dict) else value
    assert codec.dumps(value) == codec.dumps(again)


@given(st.text(st.characters(exclude_categories=()), max_size=20))
def test_cleaned_text_is_what_postgresql_takes(text: str) -> None:
    cleaned = codec.clean(text)
    assert "\x00" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert len(cleaned) == len(text)


@pytest.mark.parametrize(
    ("audit_id", "size"),
    [
        ("", 0),
        ("7f3b1c9e-3a1d-4b62-9c59-0f6a8d1e2b34", 17),
        ("7F3B1C9E-3A1D-4B62-9C59-0F6A8D1E2B34", 36),
        ("anybody's", 9),
        ("0123456789abcdef", 16),
    ],
)
def test_an_audit_id_comes_back_as_it_was_sent(audit_id: str, size: int) -> None:
    stored = codec.packed_id(audit_id)
    assert (len(stored), codec.unpacked_id(stored)) == (size, audit_id)


def test_what_postgres_does_not_take_is_replaced_in_an_audit_id() -> None:
    assert codec.unpacked_id(codec.packed_id("\x00a\ud800")) == "\ufffda\ufffd"


def test_threads_that_pack_at_once_do_not_disturb_each_other() -> None:
    texts = [Random(number).randbytes(3000).hex().encode() for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        come_back = pool.map(lambda raw: codec.unpack(codec.pack(raw)) == raw, texts * 50)
    assert all(come_back)


async def test_values_come_in_binary_whoever_asks(database: Database) -> None:
    async with database.read.connect() as conn:
        asked = await conn.execute(
            text("SELECT CAST(:raw AS bytea), CAST(:ids AS int[])"), {"raw": b"\0", "ids": "{3}"}
        )
        assert asked.one() == (b"\0", [3])
        async with driver_of(conn) as driver:
            found = await driver.execute("SELECT 1")
            assert found.pgresult is not None
            assert found.pgresult.fformat(0) == Format.BINARY
