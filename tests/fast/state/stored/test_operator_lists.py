"""Operator list state is restored or rejected: the bytes and the item count of an entry must agree."""

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
def test_an_entry_whose_item_count_is_wrong_is_rejected(items: int, change: dict[str, Any]) -> None:
    store = MemoryStore(f"lists-{next(_STORES)}")
    entry = entry_of(pa.array(range(items)), "split", "int64", store, "segments/list.arrow", None)
    column = column_of([(entry, Slice(0, 0, items))], store, "state 'seen'")
    assert column is not None and column.to_pylist() == list(range(items))
    damaged = replace(entry, **change)
    with pytest.raises(StoreDamagedError, match="state 'seen'"):
        column_of([(damaged, Slice(0, 0, damaged.items))], store, "state 'seen'")
