"""Options of tables: what is unknown, malformed or missing is told before anything runs, with the nearest name."""

from __future__ import annotations

import datetime as dt
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.connectors.tables.factories import FACTORIES, factory_of
from millstream.connectors.tables.factory import TableDefinition
from millstream.connectors.tables.options import GENERAL, TableOptions
from millstream.errors import NotYetError, ProgramError
from millstream.expressions import types
from millstream.expressions.nested_types import RowType
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

STRING = types.VarCharType(0x7FFFFFFF)
ROWS = RowType.of(["n", "word"], [types.IntType(), STRING], nullable=False)
KAFKA = {
    "topic": "in",
    "properties.bootstrap.servers": "localhost:1",
    "format": "json",
    "scan.startup.mode": "earliest-offset",
}
SOCKET = {"hostname": "h", "port": "9", "format": "csv"}


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        yield TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


@pytest.mark.parametrize(
    ("connector", "options", "kind", "words"),
    [
        ("kafka", {}, ProgramError, "neither of the options 'format' and 'value.format'"),
        ("kafka", {"format": "json"}, ProgramError, "needs the option 'properties.bootstrap.servers'"),
        ("kafka", {**KAFKA, "value.format": "json"}, ProgramError, "both of the options 'format'"),
        ("kafka", {**KAFKA, "topic-pattern": "x"}, ProgramError, "both of the options 'topic'"),
        ("kafka", {**KAFKA, "tpoic": "x"}, ProgramError, "Did you mean 'topic'"),
        ("kafka", {**KAFKA, "format": "parquet"}, ProgramError, "not a format of messages"),
        ("kafka", {**KAFKA, "format": "ogg-json"}, NotYetError, "a later version"),
        ("kafka", {**KAFKA, "key.fields": "n"}, ProgramError, "'key.fields' but not 'key.format'"),
        ("kafka", {**KAFKA, "key.format": "raw"}, ProgramError, "'key.format' but not 'key.fields'"),
        ("kafka", {**KAFKA, "key.format": "raw", "key.fields": "m"}, ProgramError, "columns of the table"),
        (
            "kafka",
            {**KAFKA, "key.format": "raw", "key.fields": "n", "key.fields-prefix": "k_"},
            ProgramError,
            "names that start with 'k_'",
        ),
        (
            "kafka",
            {**KAFKA, "key.format": "raw", "key.fields": "n", "key.fields-prefix": "n"},
            ProgramError,
            "EXCEPT_KEY",
        ),
        ("kafka", {**KAFKA, "scan.startup.mode": "earliest"}, ProgramError, "Did you mean 'earliest-offset'"),
        (
            "kafka",
            {**KAFKA, "scan.startup.mode": "timestamp"},
            ProgramError,
            "'scan.startup.timestamp-millis' is missing",
        ),
        ("kafka", {**KAFKA, "scan.startup.mode": "group-offsets"}, ProgramError, "Set 'properties.group.id'"),
        (
            "kafka",
            {**KAFKA, "scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": "0:1"},
            ProgramError,
            "partition:0,offset:42",
        ),
        ("kafka", {**KAFKA, "json.fail-on-missing": "true"}, ProgramError, "Did you mean 'json.fail-on-missing-field'"),
        ("upsert-kafka", {}, ProgramError, "require to define a PRIMARY KEY"),
        ("socket", {**SOCKET, "port": "0"}, ProgramError, "a number from 1 to 65535"),
        ("socket", {**SOCKET, "port": "x"}, ProgramError, "a whole number"),
        ("socket", {**SOCKET, "byte-delimiter": "0"}, NotYetError, "byte-delimiter"),
        ("socket", {**SOCKET, "format": "avro"}, ProgramError, "one of csv, json, raw"),
        ("socket", {"port": "9", "format": "csv"}, ProgramError, "needs the option 'hostname'"),
        ("values", {"data": "{}"}, ProgramError, "it is not a list"),
        ("values", {"data": "[[1]]"}, ProgramError, "row 1 has 1 values, and the table 2 columns"),
        ("values", {"data": '[{"n": "x"}]'}, ProgramError, "row 1: field 'n'"),
        ("values", {"date": "[]"}, ProgramError, "Did you mean 'data'"),
    ],
)
def test_sources_that_cannot_be(connector: str, options: dict[str, str], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words.replace("[", r"\[")):
        factory_of(connector).source(TableDefinition("t", ROWS, options), None, [])


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"topic": "a;b"}, ProgramError, "one topic"),
        ({"sink.partitioner": "fixed"}, NotYetError, "partitioners"),
        ({"sink.delivery-guarantee": "exactly-once"}, ProgramError, "sink.transactional-id-prefix"),
        ({"sink.delivery-guarantee": "twice"}, ProgramError, "one of exactly-once"),
    ],
)
def test_kafka_sinks_that_cannot_be(options: dict[str, str], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        factory_of("kafka").sink(TableDefinition("t", ROWS, {**KAFKA, **options}))


def test_a_topic_of_rows_that_are_only_added_has_no_primary_key() -> None:
    table = TableDefinition("t", ROWS, KAFKA, primary_key=("n",))
    for made in (lambda: factory_of("kafka").source(table, None, []), lambda: factory_of("kafka").sink(table)):
        with pytest.raises(ProgramError, match=r"doesn't support defining PRIMARY KEY.*upsert-kafka"):
            made()
    changes = {**KAFKA, "format": "debezium-json"}
    factory_of("kafka").sink(TableDefinition("t", ROWS, changes, primary_key=("n",)))


def test_every_connector_knows_the_options_of_every_table() -> None:
    for name, factory in FACTORIES.items():
        known = [option for option in factory.options if not option.required]
        options = TableOptions("t", {option.name: "1" for option in GENERAL}, known)
        assert "scan.parallelism" in options, name
        with pytest.raises(ProgramError, match=r"Did you mean 'scan\.parallelism'"):
            TableOptions("t", {"scan.paralelism": "1"}, known)


def test_rows_in_the_definition(t_env: TableEnvironment) -> None:
    t_env.execute_sql(
        """CREATE TABLE t (n INT, ts TIMESTAMP(3), r ROW<a INT, b ARRAY<STRING>>) WITH ('connector' = 'values',
        'data' = '[[1, "2026-11-16 07:00:00", {"a": 2, "b": ["x"]}], {"n": 3}]')"""
    )
    with t_env.execute_sql("SELECT n, ts, r.a, r.b[1] FROM t").collect() as found:
        assert [tuple(row) for row in found] == [(1, dt.datetime(2026, 11, 16, 7), 2, "x"), (3, None, None, None)]


def test_lines_of_a_server_are_rows(t_env: TableEnvironment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b'{"n": 1, "word": "a"}\n{"n": 2}\n')

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        t_env.execute_sql(
            f"CREATE TABLE t (n INT, word STRING) WITH ('connector' = 'socket', 'hostname' = '127.0.0.1', "
            f"'port' = '{port}', 'format' = 'json')"
        )
        with t_env.execute_sql("SELECT word, n FROM t").collect() as found:
            rows: list[Any] = [tuple(row) for row in found]
        thread.join(30)
    assert rows == [("a", 1), (None, 2)]


def test_unknown_row_kinds_are_not_treated_as_bad_rows() -> None:
    options = {"connector": "values", "data": "[]", "changelog-mode": "I,X"}
    table = TableDefinition("t", ROWS, options)
    with pytest.raises(ProgramError, match=r"option 'changelog-mode' is 'I,X'") as refusal:
        FACTORIES["values"].source(table, None, ())
    assert "JSON list" not in str(refusal.value)
