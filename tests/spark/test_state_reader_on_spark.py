"""State as a Spark DataFrame: read in parallel, by key group, and written back from one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream import state_reader
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import TypeMismatchError
from millstream.state_reader import SavepointBuilder

KEYS = 1_000


def test_a_state_is_read_by_key_groups_and_written_back_from_a_dataframe(
    new_env: Callable[[], StreamExecutionEnvironment], spark: Any, tmp_path: Path
) -> None:
    env = new_env()
    pair = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])
    numbers = env.from_collection([(f"user {n % KEYS}", n) for n in range(3 * KEYS)], pair)
    numbers.key_by("user").sum("n").uid("sums").print()
    env.execute("sums")

    reader = state_reader.open(str(tmp_path / "store"))
    with reader.at() as snapshot:
        frame = snapshot.read("sums", "result", flatten=True).to_spark(spark, partitions=5)
        assert frame.rdd.getNumPartitions() == 5
        assert frame.columns == ["key", "value_user", "value_n"]
        totals = {row[0]: row[2] for row in frame.collect()}
        assert totals == {f"user {n}": n + (n + KEYS) + (n + 2 * KEYS) for n in range(KEYS)}
        counts = frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
        assert sum(counts) == KEYS and all(counts)  # every partition reads its share

        typed = snapshot.read("sums", "result").to_spark(spark).selectExpr("key", "value.n * 2 AS doubled")
        builder = SavepointBuilder("doubled")
        builder.state("sums", "twice", typed, key_type=Types.STRING(), value="doubled", value_type=Types.LONG()).state(
            "sums", "loose", typed.limit(1), value="doubled"
        )
        builder.write(str(tmp_path / "savepoint"))

    with state_reader.open(str(tmp_path / "savepoint")).at() as saved:
        rows = saved.read("sums", "twice").to_spark(spark).collect()
        assert {row["key"]: row["value"] for row in rows} == {key: 2 * total for key, total in totals.items()}
        with pytest.raises(TypeMismatchError, match="raw=True"):
            saved.read("sums", "loose").to_spark(spark)
        assert saved.read("sums", "loose", raw=True).to_spark(spark).count() == 1
