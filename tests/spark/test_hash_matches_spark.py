"""Spark itself is asked: its `xxhash64` of random columns of every type is ours, bit for bit."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millstream.state.keys.hashing import xxhash64_column
from millstream.state.keys.key_columns import key_column

ROWS = 300
EXACT = decimal.Context(prec=80)
EDGES = [0.0, -0.0, math.nan, math.inf, -math.inf]
LETTERS = "abcXYZ019 _-äßé中文𝄞\n\x00"


def text(rng: random.Random, length: int) -> str:
    return "".join(rng.choice(LETTERS) for _ in range(length))


def whole(rng: random.Random, bits: int) -> int:
    return rng.choice([rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1)), rng.randrange(-3, 4)])


def amount(rng: random.Random, precision: int, scale: int) -> decimal.Decimal:
    digits = rng.randrange(1, precision + 1)
    return EXACT.scaleb(decimal.Decimal(rng.randrange(-(10**digits) + 1, 10**digits)), -scale)


def moment(rng: random.Random) -> dt.datetime:
    return dt.datetime(1900, 1, 1) + dt.timedelta(microseconds=rng.randrange(10**16))


Make = Callable[[random.Random], Any]
SCALARS: dict[str, tuple[pa.DataType, Make]] = {
    "a_bool": (pa.bool_(), lambda rng: rng.random() < 0.5),
    "a_byte": (pa.int8(), lambda rng: whole(rng, 8)),
    "a_short": (pa.int16(), lambda rng: whole(rng, 16)),
    "an_int": (pa.int32(), lambda rng: whole(rng, 32)),
    "a_long": (pa.int64(), lambda rng: whole(rng, 64)),
    "a_float": (pa.float32(), lambda rng: rng.choice([*EDGES, rng.uniform(-9, 9), 1e-40])),
    "a_double": (pa.float64(), lambda rng: rng.choice([*EDGES, rng.uniform(-9, 9), 5e-324, 1e308])),
    "a_text": (pa.string(), lambda rng: text(rng, rng.randrange(101))),
    "long_text": (pa.string(), lambda rng: text(rng, rng.randrange(500, 3000)) if rng.random() < 0.2 else "x"),
    "bytes_": (pa.binary(), lambda rng: rng.randbytes(rng.randrange(101))),
    "a_date": (pa.date32(), lambda rng: moment(rng).date()),
    "an_instant": (pa.timestamp("us", "UTC"), lambda rng: moment(rng).replace(tzinfo=dt.UTC)),
    "a_timestamp": (pa.timestamp("us"), moment),
    "a_time": (pa.time64("us"), lambda rng: moment(rng).time()),
    "a_duration": (pa.duration("us"), lambda rng: dt.timedelta(microseconds=whole(rng, 50))),
    "small_decimal": (pa.decimal128(18, 6), lambda rng: amount(rng, 18, 6)),
    "wide_decimal": (pa.decimal128(19, 2), lambda rng: amount(rng, 19, 2)),
    "widest_decimal": (pa.decimal128(38, 10), lambda rng: amount(rng, 38, 10)),
}


def maybe(make: Make) -> Make:
    return lambda rng: None if rng.random() < 0.1 else make(rng)


def record(fields: dict[str, tuple[pa.DataType, Make]]) -> tuple[pa.DataType, Make]:
    kind = pa.struct([(name, kind) for name, (kind, _) in fields.items()])
    return kind, lambda rng: {name: maybe(make)(rng) for name, (_, make) in fields.items()}


def list_of(element: tuple[pa.DataType, Make]) -> tuple[pa.DataType, Make]:
    return pa.list_(element[0]), lambda rng: [maybe(element[1])(rng) for _ in range(rng.randrange(5))]


INNER = record({name: SCALARS[name] for name in ("an_int", "a_text", "a_double", "widest_decimal")})
COLUMNS = {
    **SCALARS,
    "a_struct": record(SCALARS),
    "nested": record({"inner": INNER, "numbers": list_of(SCALARS["a_long"]), "last": SCALARS["a_byte"]}),
    "texts": list_of(SCALARS["a_text"]),
    "structs": list_of(INNER),
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = random.Random(20240701)
    return pa.table({name: pa.array([maybe(m)(rng) for _ in range(ROWS)], k) for name, (k, m) in COLUMNS.items()})


def test_every_type_hashes_as_in_spark(spark: SparkSession, table: pa.Table) -> None:
    frame = spark.createDataFrame(table)
    hashed = frame.selectExpr(*(f"xxhash64({name}) as {name}" for name in table.schema.names)).toArrow()
    for name in table.schema.names:
        ours = xxhash64_column(table.column(name).combine_chunks()).tolist()
        assert ours == hashed.column(name).to_pylist(), name


def test_several_columns_and_key_groups_are_as_in_spark(spark: SparkSession, table: pa.Table) -> None:
    frame = spark.createDataFrame(table.select(["a_text", "a_long"]))
    hashed = frame.selectExpr("xxhash64(a_text, a_long) as h", "pmod(xxhash64(a_text, a_long), 128) as g").toArrow()
    keys = key_column(list(zip(*table.select(["a_text", "a_long"]).to_pydict().values(), strict=True)), None)
    assert keys.hashes.tolist() == hashed.column("h").to_pylist()
    assert keys.groups(128).tolist() == hashed.column("g").to_pylist()


def test_a_number_beyond_64_bits_hashes_as_the_decimal_it_would_be_in_spark(spark: SparkSession) -> None:
    numbers = [2**63, -(2**63) - 1, 10**37]
    rows = spark.sql(f"select {', '.join(f'xxhash64(cast({n} as decimal(38, 0)))' for n in numbers)}").collect()
    assert key_column(numbers, None).hashes.tolist() == list(rows[0])
