"""What sources of rows share that belong to subtasks and not to keys: operator state, and records in a loop.

They are read whole, and there is no key to ask for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.state_reader.catalog import StoredState
from millstream.state_reader.forms import Fields, Form, Plain
from millstream.state_reader.table_source import ALL_KEYS
from millstream.storage.store import Store

__all__ = ["SubtaskSource", "value_form"]


@dataclass(frozen=True)
class SubtaskSource(ABC):
    """Rows of all subtasks. `flatten`: a struct becomes a column per field."""

    store: Store
    state: StoredState
    flatten: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns; the first is the subtask."""
        return self.whole().schema

    def blocks(self, groups: range | None = None, key: Any = ALL_KEYS) -> Iterator[pa.RecordBatch]:
        """All rows at once."""
        if key is not ALL_KEYS:
            raise ProgramError(f"{self.state.what} belongs to subtasks and has no keys. Read it without a key.")
        yield self.whole()

    @abstractmethod
    def whole(self) -> pa.RecordBatch:
        """All rows."""


def value_form(name: str, type_: pa.DataType, flatten: bool) -> Form:
    """How values of a known type are shown."""
    is_struct = pa.types.is_struct(type_) and type_.num_fields > 0
    return Fields(name, type_) if flatten and is_struct else Plain(name, type_)
