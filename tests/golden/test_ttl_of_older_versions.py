"""Queries with a time-to-live resume from the state of an earlier version."""

from __future__ import annotations

import itertools
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ttl_of_older_versions import EPOCHS_BEFORE, QUERIES, run_query

from millstream.storage.memory import MemoryStore
from millstream.testing import Collect

FOLDER = Path(__file__).resolve().parents[1] / "compatibility"
_STORES = itertools.count()


def rest_of(number: int, store: str, parallelism: int) -> dict[int, Counter[Any]]:
    """The output of a query after the epochs in its store."""
    out = Collect()
    result = run_query(number, store, out, parallelism=parallelism)
    assert result.status == "FINISHED"
    rest: dict[int, Counter[Any]] = {}
    for record in result.of(out):
        if record.epoch > EPOCHS_BEFORE:
            rest.setdefault(record.epoch, Counter())[record.value.get_row_kind(), tuple(record.value)] += 1
    return rest


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("number", QUERIES)
def test_missing_match_counts_are_derived_from_the_stored_rows(number: int, parallelism: int) -> None:
    yesterday, today = f"forgetting-{next(_STORES)}", f"forgetting-{next(_STORES)}"
    with zipfile.ZipFile(FOLDER / f"forgetting-{number}.zip") as archive:
        for name in archive.namelist():
            MemoryStore(yesterday).put(name, archive.read(name))
    run_query(number, today, Collect(), epochs=EPOCHS_BEFORE)
    rest = rest_of(number, yesterday, parallelism)
    assert rest and rest == rest_of(number, today, parallelism)
