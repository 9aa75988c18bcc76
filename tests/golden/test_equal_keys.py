"""Every keyed operator counts equal keys as one key, in any representation and at any parallelism."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from inputs.nested_keys import KEYS, TYPED, Account, identity
from programs.keyed import PROGRAMS, STORES, TYPED_ONLY, counted, expected

from millstream import query, state_reader
from millstream.common import Row
from millstream.common.typeinfo import TypeInformation
from millstream.query.server.application import application
from millstream.query.server.settings import ServerSettings
from millstream.query.wire.json_values import json_of_key
from millstream.runtime.exchange.key_classes import decode_key
from millstream.state.keys.key_columns import is_hashed_as_values
from millstream.state.keys.settled_keys import settled_keys
from millstream.testing import CRASH, EPOCH


@st.composite
def scripts(draw: st.DrawFn, keys: st.SearchStrategy[Any]) -> list[Any]:
    """Keys, each as a 1-tuple, drawn from a small set, with epochs and crashes between them."""
    few = draw(st.lists(keys, min_size=1, max_size=5))
    items = draw(st.lists(st.sampled_from([*((key,) for key in few), EPOCH, CRASH]), min_size=1, max_size=10))
    return [(few[0],), EPOCH, *items]


UNTYPED = st.tuples(st.none(), scripts(KEYS))
DECLARED = st.sampled_from(list(TYPED)).flatmap(
    lambda name: st.tuples(st.just(TYPED[name][0]), scripts(TYPED[name][1]))
)
PARALLELISMS = st.tuples(st.integers(1, 3), st.none() | st.integers(1, 3))
Drawn = tuple[TypeInformation | None, list[Any]]


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in TYPED_ONLY])
@given(UNTYPED, PARALLELISMS)
@settings(max_examples=15, deadline=None)
def test_equal_keys_without_a_type_are_counted_as_one(
    name: str, drawn: Drawn, parallelisms: tuple[int, int | None]
) -> None:
    _counts_as_a_dictionary(name, drawn, parallelisms)


@pytest.mark.parametrize("name", list(PROGRAMS))
@given(DECLARED, PARALLELISMS)
@settings(max_examples=15, deadline=None)
def test_equal_keys_of_a_declared_type_are_counted_as_one(
    name: str, drawn: Drawn, parallelisms: tuple[int, int | None]
) -> None:
    _counts_as_a_dictionary(name, drawn, parallelisms)


def _counts_as_a_dictionary(name: str, drawn: Drawn, parallelisms: tuple[int, int | None]) -> None:
    key_type, items = drawn
    # Batches of keys stored as bytes (decimals of any size) have no typed column to emit.
    assume(name != "batches" or key_type is None or not is_hashed_as_values(key_type))
    outputs, counts = counted(name, items, key_type, parallelisms[0], other_parallelism=parallelisms[1])
    assert counts == expected(items)
    if name.startswith(("process", "window, general", "window, merging", "window, folded")):
        # Functions see one representation of the key, whichever arrived first.
        forms = {(identity(key), repr(key)) for key, _ in outputs}
        settled = settled_keys([item[0] for item in items if isinstance(item, tuple)], key_type, decode_key)
        assert forms == {(identity(key), repr(key)) for key in settled}


@given(UNTYPED | DECLARED, st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_a_key_is_looked_up_by_any_equal_value(drawn: Drawn, parallelism: int) -> None:
    key_type, items = drawn
    store = f"asked-keys-{next(STORES)}"
    counted("process", items, key_type, parallelism, store=store)
    keys, counts = [item[0] for item in items if isinstance(item, tuple)], expected(items)
    # The whole input has been read and every count emitted; the state still exists.
    wanted = [counts[identity(key)] for key in keys]
    job = query.open(f"memory://{store}")
    newest = job.newest()
    assert [newest.get("count", key) for key in keys] == wanted
    assert newest.get_many("count", keys) == wanted
    with state_reader.open(f"memory://{store}").at() as snapshot:
        for key, n in zip(keys, wanted, strict=True):
            assert [row["value"] for row in snapshot.read("counts", "count", key=key).to_pylist()] == [n]
    asked = [(key, n) for key, n in zip(keys, wanted, strict=True) if _has_json(key)]
    assert _answers(job, [key for key, _ in asked]) == [[n, n] for _, n in asked]


def _has_json(key: Any) -> bool:
    if isinstance(key, tuple | Row):
        return all(map(_has_json, key))
    return not isinstance(key, bytes | Account) and type(key).__name__ != "Decimal"


def _answers(job: query.JobView, keys: list[Any]) -> list[list[Any]]:
    """The values of keys by HTTP: each in a path, and all in one body."""
    app = application(job, ServerSettings())

    async def ask() -> list[list[Any]]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            texts = [json.dumps(json_of_key(key)) for key in keys]
            where = f"/v1/jobs/{job.job}"
            paths = [f"{where}/states/count/keys/{httpx.QueryParams({'k': text})}" for text in texts]
            paths = [path.replace("/k=", "/").replace("+", "%20") for path in paths]
            single = [(await client.get(path, params={"key_format": "json"})).json()["value"] for path in paths]
            body = f'{{"reads": [{{"state": "count", "keys": [{", ".join(texts)}]}}]}}'
            headers = {"content-type": "application/json"}
            many = (await client.post(f"{where}/read", content=body, headers=headers)).json()
            return [list(pair) for pair in zip(single, many["reads"][0]["values"], strict=True)]

    return asyncio.run(ask()) if keys else []


def test_a_batch_lookup_matches_equal_keys() -> None:
    store = f"asked-keys-{next(STORES)}"
    items = [(0.0,), (math.nan,), EPOCH, (-0.0,), (-math.nan,), (1.0,)]
    counted("process", items, TYPED["DOUBLE"][0], 2, store=store)
    newest = query.open(f"memory://{store}").newest()
    for column in (pa.array([-0.0, math.nan, 1.0]), pa.array([0.0, -math.nan, 1.0], pa.float32())):
        assert newest.get_columns("count", column).column("value").to_pylist() == [2, 2, 1]
    store = f"asked-keys-{next(STORES)}"
    counted("process", [(True,), EPOCH, (1,), (1.0,), (math.nan,)], None, 2, store=store)
    newest = query.open(f"memory://{store}").newest()
    for column in (pa.array([1, None]), pa.array([1.0, math.nan]), pa.array([True])):
        assert newest.get_columns("count", column).column("value").to_pylist()[0] == 3
    assert newest.get_columns("count", pa.array([math.nan])).column("value").to_pylist() == [1]
