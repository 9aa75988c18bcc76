"""Row and RowKind: the composite value used throughout the API.

A row is an ordered list of values, optionally with field names, and a change kind. Names are stored as one tuple shared
by all the rows of a batch, and values stay in the tuple they were read as until one is assigned: building rows in bulk
is the hot path of every typed stream (`rows_from_columns`).

Equality compares names, kind and values; named fields may be in another order. A row rejects attributes without a
field, so a typo is an AttributeError and never a silent new field.

Rows of `TableResult.collect()` have no names in PyFlink. Here their fields can be accessed by name, and the names are
*quiet* (`QuietNames`): the row is printed and compared like a row without names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from millstream.errors import NotAvailableError, did_you_mean
from millstream.pyflink_names import add_pyflink_names

__all__ = ["QuietNames", "Row", "RowKind"]


class RowKind(Enum):
    """The kind of a row in a changelog.

    >>> RowKind.DELETE.value, str(RowKind.DELETE)
    (3, '-D')
    """

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def to_j_row_kind(self) -> Any:
        """PyFlink's bridge to the JVM; not available here."""
        raise NotAvailableError(f"RowKind.{self.name} has no Java object behind it. Use the Python value itself.")

    def __str__(self) -> str:
        return KIND_TEXTS[self._value_]


KIND_TEXTS = ("+I", "-U", "+U", "-D")
"""The short text of each kind, by its value."""
_INSERT = RowKind.INSERT


class QuietNames(tuple[str, ...]):
    """Field names that allow access but are not part of the row's value.

    >>> row = Row(1)
    >>> row.set_field_names(QuietNames(["id"]))
    >>> row, row.id, row == Row(1), row == Row(id=1)
    (<Row(1)>, 1, True, True)
    """

    __slots__ = ()


class NoFieldError(ValueError, KeyError):
    """A row has no field of that name. PyFlink raises a ValueError, a dict a KeyError: this error is both."""

    def __init__(self, message: str) -> None:
        super().__init__(message)

    __str__ = Exception.__str__  # a KeyError shows its message in quotes


class Row:
    """A row of values, by position or by name.

    >>> row = Row(name="Alice", age=11)
    >>> row
    Row(name='Alice', age=11)
    >>> row["name"], row.age, row[0]
    ('Alice', 11, 'Alice')
    >>> Person = Row("name", "age")
    >>> Person("Bob", 12)
    Row(name='Bob', age=12)
    """

    __slots__ = ("_fields", "_row_kind", "_values")

    _values: Sequence[Any]
    _fields: tuple[str, ...] | None
    _row_kind: RowKind

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                f"Row got {len(args)} positional and {len(kwargs)} named values. Pass all by position or all by name."
            )
        self._row_kind = _INSERT
        if kwargs:
            self._fields = tuple(kwargs)
            self._values = list(kwargs.values())
        else:
            self._fields = None
            self._values = args

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """The row as a dict; with `recursive`, rows inside it (also in lists and dicts) become dicts too.

        >>> Row(key=1, value=Row(name="a")).as_dict(True)
        {'key': 1, 'value': {'name': 'a'}}
        """
        if self._fields is None:
            raise TypeError(f"{self!r} has no field names, so it has no dict. Name its fields with set_field_names.")
        values = map(_without_rows, self._values) if recursive else self._values
        return dict(zip(self._fields, values, strict=False))

    def get_row_kind(self) -> RowKind:
        """The change kind; INSERT unless it was set."""
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Sets the change kind."""
        self._row_kind = row_kind

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Names the fields by position."""
        self._fields = field_names if type(field_names) is QuietNames else tuple(field_names)

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """The values in the order of `names`; of a row without names, all values in order.

        >>> Row(a=1, b=2).get_fields_by_names(["b", "a"])
        [2, 1]
        """
        if self._fields is None or tuple(names) == self._fields:
            return list(self._values)
        unknown = [name for name in names if name not in self._fields]
        if unknown:
            raise ValueError(f"fields {unknown} are not among the fields {list(self._fields)} of {self!r}.")
        return [self[name] for name in names]

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """A row of the given change kind.

        >>> Row.of_kind(RowKind.DELETE, "a", 1).get_row_kind()
        <RowKind.DELETE: 3>
        """
        row = Row(*args, **kwargs)
        row._row_kind = row_kind
        return row

    def __call__(self, *args: Any) -> Row:
        """Uses this row as a row type: its values are the field names."""
        if len(args) > len(self._values):
            raise ValueError(f"{self!r} has {len(self._values)} fields and got {len(args)} values: {args!r}.")
        return _row(tuple(self._values), args, self._row_kind)

    def _position(self, name: str) -> int:
        """The position of the field, or -1. Linear: rows are narrow, and hot code uses positions or columns."""
        fields = self._fields
        if fields is not None and name in fields:
            position = fields.index(name)
            if position < len(self._values):
                return position
        return -1

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, (int, slice)):
            return self._values[item]
        position = self._position(item)
        if position < 0:
            raise self._no_field(item)
        return self._values[position]

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, (int, slice)):
            name, key = key, self._position(key)
            if key < 0:
                raise self._no_field(name)
        values = self._values if isinstance(self._values, list) else list(self._values)
        values[key] = value
        self._values = values

    def _no_field(self, name: Any) -> NoFieldError:
        if self._fields is None:
            return NoFieldError(f"{self!r} has no field names, so no field {name!r}. Name them with set_field_names.")
        near = did_you_mean(str(name), self._fields)
        return NoFieldError(f"{name!r} is not a field of {self!r}. Its fields are {list(self._fields)}.{near}")

    def __getattr__(self, item: str) -> Any:
        if not item.startswith("_"):
            position = self._position(item)
            if position >= 0:
                return self._values[position]
            raise AttributeError(str(self._no_field(item)), name=item, obj=self)
        raise AttributeError(item)

    def __contains__(self, item: object) -> bool:
        """Whether a row with names has a field of that name, as in a dict, or a row without names has the value."""
        return item in (self._values if self._has_no_names() else self._fields or ())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row) or type(self) is not type(other):
            return False
        if self._row_kind is not other._row_kind:
            return False
        if self._fields == other._fields or (self._has_no_names() and other._has_no_names()):
            return tuple(self._values) == tuple(other._values)
        if self._fields is None or other._fields is None or len(self._values) != len(other._values):
            return False
        return self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        # Depends on field order, as in PyFlink: equal rows with different field orders are two keys of a dict, as in a
        # stored map, which returns every key unchanged.
        values = tuple(self._values)
        return hash(values) if self._has_no_names() else hash((self._fields, values))

    def _has_no_names(self) -> bool:
        """Whether the row is printed and compared like a row without names."""
        return self._fields is None or type(self._fields) is QuietNames

    def __reduce__(self) -> tuple[Any, ...]:
        return _row, (self._fields, tuple(self._values), self._row_kind)

    def __repr__(self) -> str:
        if self._fields is None or self._has_no_names():
            return f"<Row({', '.join(map(repr, self._values))})>"
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self._values, strict=False))})"


def _row(fields: tuple[str, ...] | None, values: Sequence[Any], row_kind: RowKind) -> Row:
    """The unchecked constructor: also what a pickled row calls."""
    row = object.__new__(Row)
    row._fields, row._values, row._row_kind = fields, values, row_kind
    return row


def rows_from_columns(columns: Sequence[Sequence[Any]], names: Sequence[str], count: int | None = None) -> list[Row]:
    """Rows from equally long columns, as fast as Python builds objects.

    `count` is needed only if there are no columns to count by.

    >>> rows_from_columns([["a", "b"], [1, 2]], ["name", "age"])
    [Row(name='a', age=1), Row(name='b', age=2)]
    """
    fields = tuple(names)
    cells = zip(*columns, strict=True) if columns else iter([()] * (count or 0))
    new, insert = object.__new__, _INSERT
    rows: list[Row] = []
    append = rows.append
    for values in cells:
        row = new(Row)
        row._values = values
        row._fields = fields
        row._row_kind = insert
        append(row)
    return rows


def _without_rows(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(True)
    if isinstance(value, list):
        return [_without_rows(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_rows(item) for key, item in value.items()}
    return value


add_pyflink_names(globals())
