"""Jobs of earlier versions are resumed: each golden program, from a store that an earlier version left after two
epochs.

The archives are made by tests/compatibility/make_halves.py. The output must equal that after two epochs of the current
version.
"""

from __future__ import annotations

import itertools
import tarfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from programs.plain import LOOPS, PROGRAMS, multiset, numbers

from millstream.datastream import StreamExecutionEnvironment
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, run

FOLDER = Path(__file__).resolve().parents[1] / "compatibility"
HALVES = sorted(FOLDER.glob("halves-*.tar.xz"))
EVERY = {**PROGRAMS, **LOOPS}
_STORES = itertools.count()


@cache
def stores_in(archive: Path) -> dict[str, dict[str, bytes]]:
    """The files of each program's store."""
    stores: dict[str, dict[str, bytes]] = {}
    with tarfile.open(archive) as opened:
        for entry in opened:
            name, _, file = entry.name.partition("/")
            data = opened.extractfile(entry)
            assert data is not None
            stores.setdefault(name, {})[file] = data.read()
    return stores


def resume(name: str, out: Collect, parallelism: int, store: str, epochs: int | None = None) -> str:
    def build(env: StreamExecutionEnvironment) -> None:
        EVERY[name].add(env, out, numbers())

    return run(build, parallelism=parallelism, epoch_records=9, epochs=epochs, store=store).status


def rest_of(name: str, store: str, parallelism: int) -> Counter[Any]:
    """The output of a program after the two epochs in its store."""
    out = Collect()
    assert resume(name, out, parallelism, store) == "FINISHED"
    return multiset([record.value for record in out.records if record.epoch > 2])


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("archive", HALVES, ids=lambda path: path.name)
def test_a_job_of_an_earlier_version_is_resumed_by_this_version(archive: Path, name: str, parallelism: int) -> None:
    if name not in stores_in(archive):
        return  # a program that was written later
    yesterday, today = f"yesterday-{next(_STORES)}", f"yesterday-{next(_STORES)}"
    for file, data in stores_in(archive)[name].items():
        MemoryStore(yesterday).put(file, data)
    assert resume(name, Collect(), 2, today, epochs=2) == "SUSPENDED"
    assert rest_of(name, yesterday, parallelism) == rest_of(name, today, parallelism)


def test_stores_of_every_earlier_format_are_tested() -> None:
    assert [path.name for path in HALVES] == ["halves-1.tar.xz"]
