"""Changes of a table as messages: rows with their kind, in and out, and kept on the way."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.message_formats import check_encoder, documents_of, json_message, place, row_types, values_of
from servers.message_log import MessageLog

from millstream.common import Row, RowKind, Types
from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.messages.codecs import Messages, decoder_of, encoder_of
from millstream.connectors.messages.dead_letters import dead_letters
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.formats.canal import CanalJsonDeserializationSchema, CanalJsonSerializationSchema
from millstream.datastream.formats.debezium import DebeziumJsonDeserializationSchema, DebeziumJsonSerializationSchema
from millstream.errors import ProgramError, TypeMismatchError
from millstream.records.batch import Batch
from millstream.testing import Collect, run

AD = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


def check_changes(schema: Any, messages: list[bytes | None]) -> list[Any]:
    """The decoder gives the rows of `deserialize`, message by message; returns the rows."""
    rows: list[Any] = []
    origins: list[int] = []
    bad: list[int] = []
    for at, message in enumerate(messages):
        try:
            part = [] if message is None else schema.deserialize(message)
        except TypeMismatchError:
            bad.append(at)
            continue
        rows += part
        origins += [at] * len(part)
    decoded = decoder_of(schema).decode(Messages(pa.array(messages, pa.binary()), place))
    values = decoded.batch.values()
    assert repr(values) == repr(rows)
    assert [row.get_row_kind() for row in values] == [row.get_row_kind() for row in rows]
    assert [message.index for message in decoded.bad] == bad
    assert (list(range(len(messages))) if decoded.origins is None else decoded.origins.tolist()) == origins
    return values


def shown(rows: list[Any]) -> list[str]:
    return [f"{row.get_row_kind()} {row.id} {row.name}" for row in rows]


OPERATIONS = st.sampled_from(["c", "r", "u", "u", "d", "d", "t", "", None, 1])


@settings(deadline=None)
@given(st.data(), row_types(1), st.booleans())
def test_debezium_in_columns_is_read_as_one_by_one(data: st.DataObject, row_type: RowTypeInfo, wraps: bool) -> None:
    side = st.one_of(st.none(), documents_of(row_type), documents_of(row_type), documents_of(row_type))
    envelope = st.fixed_dictionaries(
        {"op": OPERATIONS}, optional={"before": side, "after": side, "ts_ms": st.integers()}
    )
    envelopes = data.draw(st.lists(envelope, max_size=6))
    documents = [{"schema": {}, "payload": envelope} if wraps else envelope for envelope in envelopes]
    messages: list[bytes | None] = [json_message(document) for document in documents]
    check_changes(DebeziumJsonDeserializationSchema(row_type, schema_include=wraps), [*messages, None, b"null", b"{"])


@settings(deadline=None)
@given(st.data(), row_types(1), st.sampled_from(["Debezium", "Canal"]))
def test_rows_of_any_kind_are_written_in_columns_as_one_by_one(
    data: st.DataObject, row_type: RowTypeInfo, name: str
) -> None:
    rows = data.draw(st.lists(values_of(row_type, nulls=False), max_size=5))
    for row in rows:
        row.set_row_kind(data.draw(st.sampled_from(RowKind)))
    writer = (DebeziumJsonSerializationSchema if name == "Debezium" else CanalJsonSerializationSchema)(row_type)
    messages = check_encoder(writer, rows, row_type)
    if name == "Debezium":
        read = check_changes(DebeziumJsonDeserializationSchema(row_type), list(messages))
        coming = (RowKind.INSERT, RowKind.UPDATE_AFTER)
        kinds = [RowKind.INSERT if row.get_row_kind() in coming else RowKind.DELETE for row in rows]
        assert [row.get_row_kind() for row in read] == kinds


def test_a_change_is_two_rows_and_a_tombstone_none() -> None:
    messages: list[Any] = [
        b'{"before": null, "after": {"id": 1, "name": "a"}, "op": "c", "source": {"table": "ads"}}',
        b'{"before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}, "op": "u"}',
        None,
        b'{"before": {"id": 1, "name": "b"}, "after": null, "op": "d"}',
        None,
        b'{"after": {"id": 2, "name": "x"}, "op": "r"}',
    ]
    rows = check_changes(DebeziumJsonDeserializationSchema(AD), messages)
    assert shown(rows) == ["+I 1 a", "-U 1 a", "+U 1 b", "-D 1 b", "+I 2 x"]


def test_a_change_without_the_previous_row_reports_how_to_log_it() -> None:
    schema = DebeziumJsonDeserializationSchema(AD)
    with pytest.raises(TypeMismatchError, match="REPLICA IDENTITY FULL"):
        schema.deserialize(b'{"before": null, "after": {"id": 1}, "op": "u"}')
    with pytest.raises(TypeMismatchError, match="its op is 't', expected c, r, u or d"):
        schema.deserialize(b'{"op": "t"}')
    with pytest.raises(TypeMismatchError, match="it has no payload"):
        DebeziumJsonDeserializationSchema(AD, schema_include=True).deserialize(b'{"op": "c"}')
    check_changes(schema, [b'{"before": null, "after": {"id": 1}, "op": "u"}', b"[]", b'"x"'])
    assert DebeziumJsonDeserializationSchema(AD, ignore_parse_errors=True).deserialize(b"{") == []


CANAL = {"database": "shop", "table": "ads", "pkNames": ["id"], "isDdl": False, "ts": 1}


def canal(**fields: Any) -> bytes:
    return json.dumps({**CANAL, **fields}).encode()


def test_canal_has_several_rows_in_a_message_and_in_old_only_what_changed() -> None:
    messages: list[Any] = [
        canal(type="INSERT", data=[{"id": "1", "name": "a"}, {"id": "2", "name": None}], old=None),
        canal(type="UPDATE", data=[{"id": "1", "name": "b"}], old=[{"name": "a"}]),
        canal(type="UPDATE", data=[{"id": "1", "name": "b"}], old=[{"name": None}]),
        canal(type="DELETE", data=[{"id": "2", "name": None}], old=None),
        canal(type="CREATE", data=None, old=None, isDdl=True),
        canal(type="ALTER", data=None, old=None, isDdl=True),
        None,
    ]
    rows = check_changes(CanalJsonDeserializationSchema(AD), messages)
    assert shown(rows) == ["+I 1 a", "+I 2 None", "-U 1 a", "+U 1 b", "-U 1 None", "+U 1 b", "-D 2 None"]
    others = CanalJsonDeserializationSchema(AD, database_include="shop", table_include="ads_.*")
    assert check_changes(others, messages) == []


@settings(deadline=None)
@given(st.lists(st.fixed_dictionaries({}, optional={
    "type": st.sampled_from(["INSERT", "UPDATE", "DELETE", "QUERY", None]),
    "data": st.one_of(st.none(), st.lists(st.one_of(st.none(), documents_of(AD)), max_size=2)),
    "old": st.one_of(st.none(), st.lists(st.one_of(st.none(), documents_of(AD)), max_size=2)),
}), max_size=4))  # fmt: skip
def test_canals_messages_are_rows_or_bad(documents: list[Any]) -> None:
    check_changes(CanalJsonDeserializationSchema(AD), [json_message(document) for document in documents])


def test_row_kinds_are_preserved_through_a_job_and_written_again() -> None:
    messages = [
        b'{"after": {"id": 1, "name": "a"}, "op": "c"}',
        b'{"before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}, "op": "u"}',
        b'{"before": {"id": 1, "name": "b"}, "op": "d"}',
    ]
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        changes = env.add_source(MessageLog(DebeziumJsonDeserializationSchema(AD), messages)).filter(lambda row: True)
        changes.key_by(lambda row: row.id, Types.LONG()).map(lambda row: row, AD).rebalance().sink_to(out)

    result = run(build, parallelism=2, epoch_records=2)
    assert shown(result[out]) == ["+I 1 a", "-U 1 a", "+U 1 b", "-D 1 b"]
    encoded = encoder_of(DebeziumJsonSerializationSchema(AD), AD).encode(Batch.of_values(result[out], AD))
    assert [json.loads(message.as_py())["op"] for message in encoded] == ["c", "d", "c", "d"]


def test_a_reason_is_short_however_long_the_message_and_can_be_stored() -> None:
    messages = [canal(type="INSERT", data="x" * 100_000), b'{"op": "\\ud800"}']
    for schema in (CanalJsonDeserializationSchema(AD), DebeziumJsonDeserializationSchema(AD)):
        given_messages = Messages(pa.array(messages, pa.binary()), place)
        decoded = decoder_of(schema).decode(given_messages)
        assert [len(bad.reason) < 1_100 for bad in decoded.bad] == [True, True]
        letters = dead_letters(decoded, given_messages, "bad")
        assert letters is not None and [letter.value for letter in letters.batch.values()] == messages


def test_wrong_types_and_patterns_are_refused() -> None:
    with pytest.raises(ProgramError, match="expected a row type"):
        DebeziumJsonDeserializationSchema(Types.LONG())  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="Canal's values are text"):
        CanalJsonDeserializationSchema(Types.ROW_NAMED(["m"], [Types.MAP(Types.STRING(), Types.INT())]))
    with pytest.raises(ProgramError, match="is not a pattern"):
        CanalJsonDeserializationSchema(AD, table_include="(")
    with pytest.raises(TypeMismatchError, match="None in place of a row"):
        encoder_of(DebeziumJsonSerializationSchema(AD), AD).encode(Batch.of_values([Row(1, "a"), None], AD))
