"""Key selectors known to the engine: a field of the record, by position or by name, and one key for all records.

A field of a typed stream is a column, so the keys of a batch are extracted without a call per record
(`runtime.exchange.routing`); called like any selector, it returns the same key for a single record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.errors import ProgramError

__all__ = ["FieldKey", "OneKey"]


@dataclass(frozen=True)
class FieldKey:
    """The key is `record[field]`; `column` is its position in a typed stream, None in an untyped one.

    >>> FieldKey(1)(("a", 7))
    7
    """

    field: int | str
    column: int | None = None

    def __call__(self, record: Any) -> Any:
        try:
            return record[self.field]
        except (TypeError, KeyError, IndexError) as error:
            raise ProgramError(
                f"key_by({self.field!r}): the record {record!r} ({type(record).__name__}) has no such field. "
                "Key by a callable, or map the records to rows or tuples first"
            ) from error


class OneKey:
    """Marks a selector that returns the same key for every record: records need not be inspected."""
