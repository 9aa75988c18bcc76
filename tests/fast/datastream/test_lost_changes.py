"""A function that changes a variable of the program is reported, because the program never sees the change."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import MapFunction
from millstream.datastream.streams.lost_changes import lost_changes

PROGRAM = """
from collections import Counter
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import MapFunction
from millstream.table import DataTypes
from millstream.table.udf import udf

total = 0
words = []
counts = Counter()
model = None


def add(n):
    global total
    total += n
    return n


class Load(MapFunction):
    def open(self, runtime_context):
        global model
        model = str

    def map(self, value):
        return model(value)


def count(n):
    counts[str(n)] += 1
    return n


@udf(result_type=DataTypes.BIGINT())
def again(n):
    words.append(n)
    return n


numbers = StreamExecutionEnvironment.get_execution_environment().from_collection([1, 2])
numbers.map(add).map(add).map(Load()).map(count)
"""


@pytest.mark.slow
def test_each_variable_changed_by_a_function_is_reported_once_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PROGRAM)
    completed = subprocess.run([sys.executable, "job.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    warnings = [line for line in completed.stderr.splitlines() if "run on copies" in line]
    assert ["'words'" in warnings[0], "'total'" in warnings[1], "'counts'" in warnings[2], len(warnings)] == [
        True,
        True,
        True,
        3,
    ]
    assert (
        "map: the function add changes 'total'" in warnings[1]
        and "job.py:41" in warnings[1]
        and "metric" in warnings[1]
    )


def closures() -> dict[str, tuple[Any, list[str]]]:
    total, seen, counts, cache, made = 0, [0], Counter[str](), dict[str, str](), set[str]()

    def adds(value: int) -> int:
        nonlocal total
        total = total + value
        return value

    def collects(value: int) -> int:
        seen.append(value)
        return value

    def counts_up(value: str) -> str:
        counts[value.lower()] += 1
        return value

    def caches(value: str) -> str:
        if value not in cache:
            cache[value] = value.upper()
        return cache[value]

    def keeps(value: str) -> bool:
        is_new = value not in made
        made.add(value)
        return is_new

    def reads(value: int) -> int:
        return total + value

    def its_own(value: int) -> list[int]:
        values = []
        values.append(value)
        return values

    return {
        "adds": (adds, ["total"]),
        "collects": (collects, ["seen"]),
        "counts up": (counts_up, ["counts"]),
        "a lambda": (lambda value: seen.append(value), ["seen"]),
        "caches": (caches, []),
        "a set that is read": (keeps, []),
        "reads": (reads, []),
        "its own": (its_own, []),
        "no function": (len, []),
    }


@pytest.mark.parametrize("name", closures())
def test_accumulating_into_a_variable_is_distinguished_from_caching(name: str) -> None:
    function, expected = closures()[name]
    assert lost_changes(function) == expected


def test_methods_of_function_classes_are_inspected_too(caplog: pytest.LogCaptureFixture) -> None:
    total = 0

    class Add(MapFunction):
        def map(self, value: int) -> int:
            nonlocal total
            total += value
            return value

    StreamExecutionEnvironment().from_collection([1]).map(Add())
    assert [record.message.partition(" changes")[0] for record in caplog.records] == ["map: Add.map()"]
