"""Keys of a question, in the form the job's own keys have.

A key is found only if it is hashed and written as the job did it: by the declared type, or by the canonical form of
values without one. So all goes through `state.keys`. What does not fit is refused with a sentence; it is never "not
found".
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import MillstreamError
from millstream.query.errors import KeyTypeError
from millstream.state.keys import KeyColumn, key_column, key_column_of_arrow
from millstream.state.saved_types import type_of_arrow

__all__ = ["KeyEncoding"]


class KeyEncoding:
    """The keys of one state. `stored` is the Arrow type of its key column, None for canonical bytes."""

    def __init__(self, declared: TypeInformation | None, stored: pa.DataType | None, what: str) -> None:
        self._stored = stored
        self._what = what
        self._type = declared
        if declared is None and stored is not None:
            self._type = type_of_arrow(pa.field("key", stored))

    @property
    def type_name(self) -> str:
        """For errors."""
        return "any type" if self._type is None else str(self._type)

    def column(self, keys: list[Any]) -> KeyColumn:
        """These keys."""
        try:
            return key_column(keys, self._type)
        except (MillstreamError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._refused(keys[0] if len(keys) == 1 else keys, error) from error

    def of_arrow(self, keys: pa.Array) -> KeyColumn:
        """The keys of a column of the type of the keys, or of one that becomes it without loss."""
        if self._stored is None:
            return self.column(keys.to_pylist())
        try:
            return key_column_of_arrow(keys if keys.type == self._stored else keys.cast(self._stored))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self._refused(keys.type, error) from error

    def _refused(self, found: Any, error: Exception) -> KeyTypeError:
        why = error.message if isinstance(error, MillstreamError) else str(error)
        shown = repr(found)
        shown = shown if len(shown) <= 200 else f"{shown[:200]}…"
        return KeyTypeError(f"{self._what} has keys of {self.type_name}, found {shown}: {why}", value=found)
