"""Keys and values between JSON and a state's types: wire input is decoded or rejected."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import asdict
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.checkpoint.sealed import seal
from millstream.common import Row, Types
from millstream.errors import ConfigurationError
from millstream.query.server.guard import Rates
from millstream.query.server.job_answers import moment_ms
from millstream.query.server.settings import key_group_span
from millstream.query.wire.json_values import json_of, key_of_json, key_of_text
from millstream.query.wire.refusals import BadQuestionError, KeyMisfitError, PickledStateError
from millstream.query.wire.servers import Registration, ServedState, register, registrations_of
from millstream.state.keys.key_columns import key_column
from millstream.storage import open_store
from millstream.storage.shared_names import server_name

SIMPLE = ["STRING", "LONG", "INT", "SHORT", "BYTE", "DOUBLE", "FLOAT", "BOOLEAN", "BYTES", "DATE", "TIME", "TIMESTAMP"]
TYPES = st.recursive(
    st.sampled_from([*SIMPLE, "BIG_DEC", "BIG_INT", "CHAR", "INSTANT", "PICKLED"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda types: {"tuple": types}),
        st.lists(inner, max_size=3).map(lambda types: {"row": [[f"f{i}", one] for i, one in enumerate(types)]}),
        inner.map(lambda one: {"list": one}),
        st.tuples(inner, inner).map(lambda pair: {"map": list(pair)}),
    ),
    max_leaves=5,
)
AB = {"row": [["a", "STRING"], ["b", "LONG"]]}
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)


@given(JSON, TYPES)
def test_any_json_is_a_key_or_is_rejected_with_a_message(value: Any, written: Any) -> None:
    try:
        key_of_json(value, written)
    except BadQuestionError as refused:
        assert refused.message.endswith(".")


@given(st.text(max_size=30), TYPES, st.sampled_from(["text", "json"]))
def test_any_text_is_a_key_or_is_rejected_with_a_message(text: str, written: Any, key_format: str) -> None:
    try:
        key_of_text(text, written, key_format)
    except BadQuestionError as refused:
        assert refused.message.endswith(".")


@pytest.mark.parametrize(
    ("key", "type_info", "written"),
    [
        ("a", Types.STRING(), "STRING"),
        (7, Types.LONG(), "LONG"),
        (-7, Types.INT(), "INT"),
        (1.5, Types.DOUBLE(), "DOUBLE"),
        (True, Types.BOOLEAN(), "BOOLEAN"),
        (b"\x00\xff", Types.PRIMITIVE_ARRAY(Types.BYTE()), "BYTES"),
        (Decimal("1.50"), Types.BIG_DEC(), "BIG_DEC"),
        (dt.date(2026, 11, 15), Types.SQL_DATE(), "DATE"),
        (dt.datetime(2026, 11, 15, 1, 2, 3), Types.SQL_TIMESTAMP(), "TIMESTAMP"),
        (("a", 1), Types.TUPLE([Types.STRING(), Types.LONG()]), {"tuple": ["STRING", "LONG"]}),
        (Row(a="x", b=1), Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.LONG()]), AB),
        (("a", 1), None, "PICKLED"),
    ],
    ids=str,
)
def test_a_key_sent_as_json_is_decoded_to_the_same_key(key: Any, type_info: Any, written: Any) -> None:
    sent = key_of_json(json.loads(json.dumps(json_of(key))), written)
    assert key_column([sent], type_info).hashes.tolist() == key_column([key], type_info).hashes.tolist()
    state = ServedState("s", "value", written, "LONG", False, 128)
    assert state.groups_of([sent]) == key_column([key], type_info).groups(128).tolist()


def test_key_groups_of_a_column_are_those_of_its_keys() -> None:
    for written, column in (("STRING", pa.array(["a", "b"])), ("LONG", pa.array([1, 2])), ("INT", pa.array([1, 2]))):
        state = ServedState("s", "value", written, "LONG", False, 128)
        assert state.groups_of_column(column) == state.groups_of(column.to_pylist())


def test_numbers_out_of_range_are_rejected_and_not_expanded() -> None:
    with pytest.raises(KeyMisfitError, match="64 bits"):
        key_of_json(2**63, "LONG")
    with pytest.raises(KeyMisfitError, match=r"of \d+ bits"):
        key_of_json(10**5000, "LONG")


def test_a_python_object_without_json_form_is_rejected() -> None:
    with pytest.raises(PickledStateError, match="Declare a type"):
        json_of([object()])


def test_times_are_milliseconds_or_iso() -> None:
    assert moment_ms("2026-11-15T00:00:00Z") == moment_ms("1794700800000")
    for text in ("", "soon", "-1", "1e3", "2026-13-01", "9" * 40):
        with pytest.raises(BadQuestionError):
            moment_ms(text)


def test_key_groups_are_a_range() -> None:
    for text in ("", "a", "5-", "-5", "9-3", "0-63-64", "0..63"):
        with pytest.raises(ConfigurationError, match="0-63"):
            key_group_span(text)


def test_the_rate_limiter_tracks_a_bounded_number_of_clients() -> None:
    rates = Rates(1.0)
    for i in range(20_000):
        rates.wait_s(f"client {i}", 0.0)
    assert len(rates._buckets) == 10_000


@pytest.mark.parametrize(
    "changes", [{"url": 7}, {"ends_ms": "soon"}, {"first_group": [0]}, {"id": "another"}, {"flight_url": {}}], ids=str
)
def test_a_malformed_registration_is_ignored(changes: dict[str, Any]) -> None:
    store = open_store(f"memory://wire-sound-{changes}")
    registration = {**asdict(Registration.of("a", "j", "http://a", None, (0, 63), 0)), **changes}
    store.put(server_name("a"), seal("server", 1, registration))
    assert registrations_of(store) == []
    register(store, Registration.of("a", "j", "http://a", None, (0, 63), 10**9))
    assert [one.url for one in registrations_of(store)] == ["http://a"]


def test_a_damaged_registration_is_ignored_and_expired_ones_are_swept() -> None:
    store = open_store("memory://test-query-wire-servers")
    hour_ms = 3_600_000
    register(store, Registration.of("old", "j", "http://old", None, None, 0))
    store.put(server_name("cut"), b"{")
    register(store, Registration.of("new", "j", "http://new", None, None, 2 * hour_ms))
    assert [one.url for one in registrations_of(store)] == ["http://new"]
