"""Changelog formats of tables: written changes are read back, and batch decoding equals decoding one by one."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.connectors.messages.codecs import Decoded, Messages
from millstream.connectors.tables.factories import factory_of
from millstream.connectors.tables.factory import ALL_CHANGES, TableDefinition
from millstream.connectors.tables.formats.format import FormatOptions
from millstream.connectors.tables.formats.formats import FORMATS, format_options
from millstream.connectors.tables.options import TableOptions
from millstream.errors import ProgramError
from millstream.expressions import types
from millstream.expressions.nested_types import RowType
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN
from millstream.records.table_type import TableRowType

ROW = RowType.of(
    ["id", "name", "price", "at"],
    [types.IntType(False), types.VarCharType(0x7FFFFFFF), types.DecimalType(10, 2), types.TimestampType(3)],
    nullable=False,
)
ids = st.integers(-5, 5)
cells = st.fixed_dictionaries(
    {
        "id": st.integers(-9, 9) | st.just("7"),
        "name": st.text(max_size=3) | st.none(),
        "price": st.sampled_from(["1.50", 2, 3.25, None]),
        "at": st.sampled_from(["2026-11-16 21:00:00", "2026-11-16 21:00:00.123", None]),
    }
)
envelopes = st.one_of(
    st.fixed_dictionaries({"before": st.none(), "after": cells, "op": st.sampled_from("cr")}),
    st.fixed_dictionaries({"before": cells, "after": cells, "op": st.just("u")}),
    st.fixed_dictionaries({"before": cells, "after": st.none(), "op": st.just("d")}),
    st.fixed_dictionaries({"before": st.none(), "after": cells, "op": st.sampled_from(["u", "d", "x", None])}),
    st.fixed_dictionaries({"before": st.none(), "after": st.just({"name": "no id"}), "op": st.just("c")}),
)


def decoder(name: str, **settings: str) -> Any:
    options = {f"{name}.{key.replace('_', '-')}": value for key, value in settings.items()}
    checked = TableOptions("t", options, format_options([name]))
    return FORMATS[name].decoder(FormatOptions(checked, ""), ROW)


def decoded(name: str, texts: list[bytes | None], **settings: str) -> Decoded:
    return decoder(name, **settings).decode(Messages(pa.array(texts, pa.binary()), lambda at: f"message {at}"))


def changes(result: Decoded) -> list[tuple[Any, ...]]:
    rows = result.batch.columns().to_pylist()
    return [(row.get(KIND_COLUMN, 0), *(row[name] for name in ROW.names)) for row in rows]


@settings(max_examples=25, deadline=None)
@given(st.lists(envelopes, max_size=6), st.sampled_from(["true", "false"]))
def test_batch_decoding_of_debezium_tables_equals_decoding_one_by_one(documents: list[Any], with_schema: str) -> None:
    wrapped = [{"payload": each} if with_schema == "true" else each for each in documents]
    texts: list[bytes | None] = [json.dumps(each).encode() for each in wrapped]
    whole = decoded("debezium-json", texts, schema_include=with_schema)
    single = [decoded("debezium-json", [text], schema_include=with_schema) for text in texts]
    assert changes(whole) == [change for each in single for change in changes(each)]
    assert [bad.index for bad in whole.bad] == [at for at, each in enumerate(single) if each.bad]
    slow = decoder("debezium-json", schema_include=with_schema)
    slow.columns, slow.has_columns = lambda values: None, False
    assert changes(slow.decode(Messages(pa.array(texts, pa.binary()), str))) == changes(whole)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2, 3]),
            st.fixed_dictionaries({"id": ids, "name": st.text(max_size=3) | st.none()}),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["debezium-json", "canal-json"]),
)
def test_written_changes_are_read_back_as_inserts_and_deletes(rows: list[Any], name: str) -> None:
    columns = [pa.array([row.get(field.name) for _, row in rows], field.data_type.arrow) for field in ROW.fields]
    schema = ROW.schema.append(pa.field(KIND_COLUMN, pa.int8()))
    batch = pa.RecordBatch.from_arrays([*columns, pa.array([kind for kind, _ in rows], pa.int8())], schema=schema)
    checked = TableOptions("t", {}, format_options([name]))
    texts = FORMATS[name].encoder(FormatOptions(checked, ""), ROW).encode(Batch.of_columns(batch, TableRowType(ROW)))
    expected = [(3 if kind in (1, 3) else 0, row["id"], row["name"], None, None) for kind, row in rows]
    assert changes(decoded(name, texts.to_pylist())) == expected


def test_the_envelopes_are_flinks() -> None:
    schema = ROW.schema.append(pa.field(KIND_COLUMN, pa.int8()))
    arrays = [pa.array([1, 1], pa.int32()), pa.array(["a", None]), *(pa.nulls(2, each.arrow) for each in ROW.types[2:])]
    batch = pa.RecordBatch.from_arrays([*arrays, pa.array([1, 2], pa.int8())], schema=schema)
    written = {}
    for name in ("debezium-json", "canal-json"):
        encoder = FORMATS[name].encoder(FormatOptions(TableOptions("t", {}, format_options([name])), ""), ROW)
        written[name] = [
            json.loads(each) for each in encoder.encode(Batch.of_columns(batch, TableRowType(ROW))).to_pylist()
        ]
    was, now = {"id": 1, "name": "a", "price": None, "at": None}, {"id": 1, "name": None, "price": None, "at": None}
    assert written == {
        "debezium-json": [{"before": was, "after": None, "op": "d"}, {"before": None, "after": now, "op": "c"}],
        "canal-json": [{"data": [was], "type": "DELETE"}, {"data": [now], "type": "INSERT"}],
    }


def test_the_old_section_of_a_canal_update_has_only_changed_columns() -> None:
    document = {"data": [{"id": "1", "name": "b", "price": "2.50"}], "old": [{"name": "a"}], "type": "UPDATE"}
    [was, now] = changes(decoded("canal-json", [json.dumps(document).encode()]))
    assert [was[:3], now[:3]] == [(1, 1, "a"), (2, 1, "b")]


@pytest.mark.parametrize("name", ["database", "table"])
def test_an_invalid_canal_filter_is_reported_before_anything_is_read(name: str) -> None:
    option = f"canal-json.{name}.include"
    with pytest.raises(ProgramError, match=rf"'{option}' is '\(', expected a regular expression"):
        decoder("canal-json", **{f"{name}.include": "("})


def test_a_canal_filter_skips_other_tables() -> None:
    texts: list[bytes | None] = [
        json.dumps({"data": [{"id": at}], "type": "INSERT", "table": name}).encode()
        for at, name in ((1, "a"), (2, "b"))
    ]
    checked = TableOptions("t", {"canal-json.table.include": "b|c"}, format_options(["canal-json"]))
    reader = FORMATS["canal-json"].decoder(FormatOptions(checked, ""), ROW)
    assert [row[1] for row in changes(reader.decode(Messages(pa.array(texts, pa.binary()), str)))] == [2]


def test_the_format_of_a_table_defines_the_changes_it_emits_and_accepts() -> None:
    for connector, name in (("kafka", "value.format"), ("filesystem", "format")):
        factory = factory_of(connector)
        assert factory.emitted_changes({name: "debezium-json"}) == ALL_CHANGES
        assert factory.accepted_changes(TableDefinition("t", ROW, {name: "canal-json"})) == ALL_CHANGES
        assert factory.emitted_changes({name: "json"}) == ("+I",)


def test_a_values_table_declares_its_row_kinds() -> None:
    factory = factory_of("values")
    assert factory.emitted_changes({"changelog-mode": "I,UA,D"}) == ("+I", "+U", "-D")
    with pytest.raises(ProgramError, match="expected I, or I with some of UB, UA, D"):
        factory.emitted_changes({"changelog-mode": "I,X"})
    table = TableDefinition(
        "t", RowType.of(["id"], [types.IntType()]), {"changelog-mode": "I,D", "data": '[["+U",[1]]]'}
    )
    with pytest.raises(ProgramError, match=r"row 1 is not a pair of a kind \(\+I, -D\) and a row"):
        factory.source(table, None, ())
