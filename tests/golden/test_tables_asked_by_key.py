"""Point lookups in a job's tables, in process, over HTTP and over Flight: rows, or errors for invalid keys."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from millstream import query
from millstream.query.client.query_client import QueryClient
from millstream.query.server import QueryServer, ServerSettings
from millstream.storage.store import open_store
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

KEYS: dict[str, tuple[str, str, Any]] = {
    # the type of a key, a function that makes it of the number n, and the key of 2
    "big": ("BIGINT", "n", 2),
    "small": ("SMALLINT", "CAST(n AS SMALLINT)", 2),
    "texts": ("STRING", "CAST(n AS STRING)", "2"),
    "fixed": ("CHAR(3)", "CAST(CAST(n AS STRING) AS CHAR(3))", "2  "),
    "truths": ("BOOLEAN", "n = 2", True),
    "money": ("DECIMAL(10, 2)", "CAST(n AS DECIMAL(10, 2))", Decimal("2.00")),
    "days": (
        "DATE",
        "CAST(TIMESTAMPADD(DAY, CAST(n AS INT), TIMESTAMP '2020-01-01 00:00:00') AS DATE)",
        dt.date(2020, 1, 3),
    ),
    "times": (
        "TIMESTAMP(3)",
        "CAST(TIMESTAMPADD(SECOND, CAST(n AS INT), TIMESTAMP '2020-01-01 00:00:00') AS TIMESTAMP(3))",
        dt.datetime(2020, 1, 1, 0, 0, 2),
    ),
    "instants": ("TIMESTAMP_LTZ(3)", "TO_TIMESTAMP_LTZ(n, 3)", dt.datetime(1970, 1, 1, 0, 0, 0, 2000, dt.UTC)),
}
PAIR = "(a INT NOT NULL, b STRING NOT NULL, n BIGINT, PRIMARY KEY (b, a) NOT ENFORCED)"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The store of a job with a table for each key type, one with a composite key, and one without a key."""
    folder = tmp_path_factory.mktemp("tables") / "store"
    with jobs_in_memory():
        env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        env.get_config().set("millstream.store", str(folder))
        env.get_config().set("pipeline.name", "clicks")
        env.execute_sql(
            "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
            "'fields.n.start' = '1', 'fields.n.end' = '3')"
        )
        inserts = []
        for name, (kind, made, _) in KEYS.items():
            columns = f"(k {kind} NOT NULL, n BIGINT, PRIMARY KEY (k) NOT ENFORCED)"
            env.execute_sql(f"CREATE TABLE {name} {columns} WITH ('connector' = 'state')")
            inserts.append(f"INSERT INTO {name} SELECT {made}, n FROM numbers;")
        env.execute_sql(f"CREATE TABLE pairs {PAIR} WITH ('connector' = 'state')")
        inserts.append("INSERT INTO pairs SELECT CAST(n AS INT), CAST(n AS STRING), n FROM numbers;")
        env.execute_sql("CREATE TABLE bag (a BIGINT, b STRING) WITH ('connector' = 'state')")
        inserts.append("INSERT INTO bag SELECT MOD(n, 2), 'x' FROM numbers;")
        env.execute_sql(f"EXECUTE STATEMENT SET BEGIN {' '.join(inserts)} END").wait()
        yield folder


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[QueryServer]:
    settings = ServerSettings(port=0, flight_port=0)
    with QueryServer(query.open(str(store)), settings, open_store(str(store))) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: QueryServer) -> Iterator[QueryClient]:
    with QueryClient([server.url], job="clicks") as client:
        yield client


@pytest.mark.parametrize("name", KEYS)
def test_a_row_is_looked_up_by_a_key_of_any_type_through_every_interface(
    name: str, store: Path, server: QueryServer, client: QueryClient
) -> None:
    key = KEYS[name][2]
    newest = query.open(str(store)).newest()
    assert newest.get(name, key).n == 2
    assert client.get(name, key).value["n"] == 2
    assert [answer.value["n"] for answer in client.get_many(name, [key, key])] == [2, 2]
    column = newest.table(name).all().column("k").combine_chunks()
    for found in (newest.get_columns(name, column), client.get_columns(name, column)):
        assert sorted(row["n"] for row in found.column("value").to_pylist()) == sorted(
            {1, 2, 3} - ({1} if name == "truths" else set())
        )
    text = str(key).lower() if isinstance(key, bool) else key.isoformat() if hasattr(key, "isoformat") else str(key)
    response = httpx.get(f"{server.url}/v1/jobs/clicks/states/{name}/keys/{text.replace('+', '%2B')}")
    assert response.status_code == 200 and response.json()["value"]["n"] == 2, response.text


def test_a_composite_key_is_passed_by_names_or_in_order(store: Path, server: QueryServer, client: QueryClient) -> None:
    newest = query.open(str(store)).newest()
    assert newest.get("pairs", ("2", 2)).n == client.get("pairs", ("2", 2)).value["n"] == 2
    for key in ('["2", 2]', '{"a": 2, "b": "2"}'):
        assert httpx.get(f"{server.url}/v1/jobs/clicks/states/pairs/keys/{key}").json()["value"]["n"] == 2
    columns = {"a": pa.array([2, 9], pa.int64()), "b": pa.array(["2", "2"])}
    for names in (["a", "b"], ["b", "a"]):
        keys = pa.StructArray.from_arrays([columns[name] for name in names], names=names)
        assert newest.get_columns("pairs", keys).column("found").to_pylist() == [True, False]
        assert client.get_columns("pairs", keys).column("found").to_pylist() == [True, False]
        assert newest.table("pairs").of_keys(keys).to_pylist() == [{"a": 2, "b": "2", "n": 2}]
    # Keys returned by a scan can be looked up.
    for row in httpx.get(f"{server.url}/v1/jobs/clicks/states/pairs/scan").json()["rows"]:
        again = httpx.get(f"{server.url}/v1/jobs/clicks/states/pairs/keys/{json.dumps(row['key'])}").json()
        assert again["found"] and again["value"] == row["value"] and set(row["key"]) == {"a", "b"}
    assert newest.scan("pairs").read_all().column("key").type.names == ["b", "a"]
    assert newest.get("bag", (1, "x")) == client.get("bag", (1, "x")).value == 2


def test_keys_with_wrong_names_or_types_are_errors_and_never_not_found(store: Path, client: QueryClient) -> None:
    newest = query.open(str(store)).newest()
    for names, parts in (
        (["x", "y"], [pa.array(["2"]), pa.array([2])]),
        (["b", "c"], [pa.array(["2"]), pa.array([2])]),
        (["b"], [pa.array(["2"])]),
        (["b", "a"], [pa.array([2]), pa.array([2])]),  # a number instead of a text
        (["b", "a"], [pa.array(["2"]), pa.array(["2"])]),
    ):
        keys = pa.StructArray.from_arrays(parts, names=names)
        for ask in (newest.get_columns, newest.table("pairs").of_keys):
            arguments = ("pairs", keys) if ask == newest.get_columns else (keys,)
            with pytest.raises(query.KeyTypeError, match=r"expected a column of struct<b: string, a: int32>"):
                ask(*arguments)
        with pytest.raises(Exception, match=r"expected a column of struct<b: string, a: int32>"):
            client.get_columns("pairs", keys)


def test_a_wrong_key_is_rejected_with_the_expected_type(server: QueryServer) -> None:
    for name, key, words in (
        ("big", "x", "keys of this state are LONG. Send a number"),
        ("pairs", "[1]", "Send an array of b, a"),
        ("days", "yesterday", "keys of this state are DATE"),
    ):
        response = httpx.get(f"{server.url}/v1/jobs/clicks/states/{name}/keys/{key}")
        assert response.status_code == 422 and words in json.loads(response.text)["message"], response.text
