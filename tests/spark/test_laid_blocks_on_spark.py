"""Blocks that tasks lay for each other beside the shuffle: all records arrive, a task that is run again finds them
still, and nothing is left of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pyspark.sql import SparkSession

from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.spark.session import memory_folder_of
from millstream.testing import Collect

COUNT = 60_000


def folder_of_blocks() -> Path:
    session = SparkSession.getActiveSession()
    assert session is not None
    folder = memory_folder_of(session)
    assert folder is not None  # the session of these tests is one that we made
    return Path(folder)


def test_a_task_whose_worker_dies_finds_its_blocks_again_and_none_is_left(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    out = Collect()
    folder, died, seen = folder_of_blocks(), tmp_path / "died", tmp_path / "seen"

    def work(number: int) -> int:
        if number == COUNT - 1:
            seen.write_text(str(len(list(folder.glob("blocks-*/*")))))
            if not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return number

    env.set_parallelism(2)
    numbers = env.from_collection(list(range(COUNT)), type_info=Types.LONG())
    numbers.map(lambda number: number, output_type=Types.LONG()).rebalance().map(work, Types.LONG()).sink_to(out)
    env.execute()
    assert died.exists() and int(seen.read_text()) > 0
    assert sorted(out.values) == list(range(COUNT))
    assert not list(folder.glob("blocks-*"))
