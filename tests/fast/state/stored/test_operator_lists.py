"""A list of operator state is read as it was written, or refused: its bytes and what its entry tells must agree."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import StoreDamagedError
from millstream.state.stored.operator_lists import Slice, column_of, entry_of
from millstream.storage.memory import MemoryStore

_STORES = count()


@pytest.mark.parametrize("items", [3, 30_000], ids=["in the manifest", "in a file"])
@pytest.mark.parametrize("change", [{"items": 2}, {"items": 40_000}, {"items": -1}, {"mode": "broadcast"}])
def test_an_entry_that_tells_of_other_items_than_there_are_is_refused(items: int, change: dict[str, Any]) -> None:
    store = MemoryStore(f"lists-{next(_STORES)}")
    entry = entry_of(pa.array(range(items)), "split", "int64", store, "segments/list.arrow", None)
    column = column_of([(entry, Slice(0, 0, items))], store, "state 'seen'")
    assert column is not None and column.to_pylist() == list(range(items))
    damaged = replace(entry, **change)
    with pytest.raises(StoreDamagedError, match="state 'seen'"):
        column_of([(damaged, Slice(0, 0, damaged.items))], store, "state 'seen'")
