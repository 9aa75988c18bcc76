"""Keys of a question, in the form the job's own keys have.

A key is found only if it is hashed and written as the job did it: by the declared type, or by the canonical form of
values without one. So all goes through `state.keys.key_columns`. What does not fit is refused with a sentence; it is
never "not found".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import MillstreamError
from millstream.query.errors import KeyTypeError
from millstream.state.keys.key_columns import KeyColumn, key_column, key_column_of_arrow
from millstream.state.schemas.saved_types import type_of_arrow

__all__ = ["KeyEncoding", "stored_key_type"]


@lru_cache(maxsize=256)
def stored_key_type(key_type: TypeInformation) -> pa.DataType:
    """The Arrow type of the key column of keys of a declared type."""
    return key_column([], key_type).array.type


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
        return "any type" if self._type is None else self._type.notation

    def column(self, keys: list[Any]) -> KeyColumn:
        """These keys."""
        try:
            return key_column(keys, self._type)
        except (MillstreamError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._refusal(keys[0] if len(keys) == 1 else keys, error) from error

    def of_arrow(self, keys: pa.Array) -> KeyColumn:
        """The keys of a column of the type of the keys, or of one that becomes it without loss."""
        if self._stored is None:
            try:
                values = keys.to_pylist()
            except (pa.ArrowException, ValueError, OverflowError, KeyError) as error:  # of KeyError: unknown time zones
                raise self._refusal(keys.type, error) from error
            return self.column(values)
        if keys.type != self._stored and not _are_alike(keys.type, self._stored):
            raise self._refusal(keys.type, TypeError(f"give a column of {self._stored}"))
        try:
            return key_column_of_arrow(keys if keys.type == self._stored else keys.cast(self._stored))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self._refusal(keys.type, error) from error

    def _refusal(self, value: Any, error: Exception) -> KeyTypeError:
        why = error.message if isinstance(error, MillstreamError) else str(error)
        shown = repr(value)
        shown = shown if len(shown) <= 200 else f"{shown[:200]}…"
        return KeyTypeError(f"{self._what} has keys of {self.type_name}, found {shown}: {why}", value=value)


_KINDS = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_temporal, pa.types.is_decimal, pa.types.is_nested)


def _are_alike(kind: pa.DataType, stored: pa.DataType) -> bool:
    """Whether a cast means the same keys. Arrow also makes texts of numbers, and nothing would be found by these."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind) or any(is_of(kind) and is_of(stored) for is_of in _KINDS):
        return True
    if pa.types.is_floating(stored):
        return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
    return _is_text(kind) and _is_text(stored)


def _is_text(kind: pa.DataType) -> bool:
    return str(kind).removeprefix("large_").removesuffix("_view") in ("string", "binary")
