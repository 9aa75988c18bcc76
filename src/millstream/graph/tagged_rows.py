"""A record in a window over two streams, tagged with its stream.

Windows of a join or coGroup store such rows, with one column per side; if both streams are typed, the state is columnar
too. Assigners, triggers and evictors of these windows receive these rows, as Flink's receive its `TaggedUnion`; the
user's join function does not. A record may be None: only `is_one` determines its stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.types import Row
from millstream.records.batch import is_typed

__all__ = ["split_by_side", "tag_records", "tagged_type"]

_FIELDS = ("is_one", "one", "two")  # as stored
_ROW = Row(*_FIELDS)


def tag_records(values: Iterable[Any], is_first: bool) -> list[Row]:
    """Converts records of the first stream (`is_first`) or of the second to their stored form.

    >>> tag_records([7], is_first=True)
    [Row(is_one=True, one=7, two=None)]
    """
    return [_ROW(True, value, None) for value in values] if is_first else [_ROW(False, None, value) for value in values]


def split_by_side(rows: Iterable[Row]) -> tuple[list[Any], list[Any]]:
    """The records of each stream, in the order of the rows.

    >>> split_by_side(tag_records([2], is_first=False) + tag_records([1, 3], is_first=True))
    ([1, 3], [2])
    """
    firsts: list[Any] = []
    seconds: list[Any] = []
    for is_first, first, second in rows:
        if is_first:
            firsts.append(first)
        else:
            seconds.append(second)
    return firsts, seconds


def tagged_type(first: TypeInformation | None, second: TypeInformation | None) -> TypeInformation | None:
    """The type of the rows; None (pickled) unless both streams have columns.

    >>> print(tagged_type(Types.LONG(), Types.STRING()), tagged_type(Types.LONG(), None))
    RowTypeInfo(is_one: Boolean, one: Long, two: String) None
    """
    if first is None or second is None or not is_typed(first) or not is_typed(second):
        return None
    return Types.ROW_NAMED(list(_FIELDS), [Types.BOOLEAN(), first, second])
