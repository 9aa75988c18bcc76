"""JSON values as values of SQL types, and columns of SQL types as JSON.

Reading follows Flink: numbers and booleans may be text, and a STRING accepts any value, as its JSON text. Values that
Flink silently truncates or replaces by zero (a fraction for an INT, a number out of range) are errors here.
Writing is columnar, also for nested values.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.tables.formats.cell_text import ISO, SQL, cell_value, has_text, written_cells
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType
from millstream.expressions.types import is_text
from millstream.records.bounded_numbers import is_whole, whole_part
from millstream.records.table_values import UnfitValue, conformed

__all__ = ["ISO", "SQL", "JsonReading", "JsonWriting", "is_json_type", "json_texts"]

_QUOTED = (
    types.DateType,
    types.TimeType,
    types.TimestampType,
    types.LocalZonedTimestampType,
    types.BinaryType,
    types.VarBinaryType,
)
_LONG_MAX = 1 << 63
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'


def is_json_type(data_type: DataType) -> bool:
    """Whether JSON can hold the type."""
    return has_text(data_type) or isinstance(data_type, (ArrayType, MapType, MultisetType, RowType))


@dataclass(frozen=True)
class JsonReading:
    """How documents are read: the reference, value by value. Values have the form that `pa.array` accepts."""

    style: str = SQL
    fails_on_missing: bool = False
    ignores_bad: bool = False

    def row(self, document: Any, row_type: RowType) -> dict[str, Any]:
        """The fields of an object. Raises ValueError."""
        if not isinstance(document, dict):
            raise ValueError(f"found {_shown(document)}, expected an object")
        return {field.name: self._field(document, field.name, field.data_type) for field in row_type.fields}

    def _field(self, document: dict[str, Any], name: str, data_type: DataType) -> Any:
        if name not in document and self.fails_on_missing:
            raise ValueError(f"field {name!r} is missing")
        try:
            return self.value(document.get(name), data_type)
        except ValueError as error:
            if self.ignores_bad:
                return None
            raise ValueError(f"field {name!r}: {error}") from error

    def value(self, node: Any, data_type: DataType) -> Any:
        """A value of the type. Raises ValueError."""
        if node is None:
            return None
        if isinstance(data_type, RowType):
            return self.row(node, data_type)
        if isinstance(data_type, ArrayType):
            if not isinstance(node, list):
                raise ValueError(f"found {_shown(node)}, expected a list")
            return [self.value(item, data_type.element_type) for item in node]
        if isinstance(data_type, (MapType, MultisetType)):
            return self._pairs(node, data_type)
        if is_text(data_type):
            return cell_value(_text(node), data_type)
        if isinstance(node, (dict, list)):
            raise ValueError(f"found {_shown(node)}, expected {data_type.nullable()}")
        if isinstance(data_type, types.NumericType) and not isinstance(node, str):
            return _number(node, data_type)
        if isinstance(data_type, types.BooleanType) and isinstance(node, bool):
            return node
        if isinstance(node, str):
            return cell_value(node, data_type, self.style)
        raise ValueError(f"found {_shown(node)}, expected {data_type.nullable()}")

    def _pairs(self, node: Any, data_type: MapType | MultisetType) -> list[tuple[Any, Any]]:
        if not isinstance(node, dict):
            raise ValueError(f"found {_shown(node)}, expected an object")
        key_type = data_type.key_type if isinstance(data_type, MapType) else data_type.element_type
        item_type = data_type.value_type if isinstance(data_type, MapType) else types.IntType()
        if not has_text(key_type):
            raise ValueError(f"JSON keys cannot be of type {key_type}")
        return [(cell_value(key, key_type, self.style), self.value(item, item_type)) for key, item in node.items()]


def _text(node: Any) -> str:
    if isinstance(node, str):
        return node
    if isinstance(node, Decimal):
        return str(node)
    return json.dumps(node, ensure_ascii=False, separators=(",", ":"), default=float)


def _number(node: Any, data_type: DataType) -> Any:
    if isinstance(node, bool):
        raise ValueError(f"found {_shown(node)}, expected {data_type.nullable()}")
    if isinstance(data_type, types.DecimalType):
        try:
            return conformed(node if isinstance(node, (int, Decimal)) else Decimal(node), data_type)
        except (UnfitValue, ArithmeticError) as error:
            raise ValueError(f"found {_shown(node)}, expected {error}") from error
    if isinstance(data_type, types.IntegralType):
        if not is_whole(node) or not -_LONG_MAX <= node < _LONG_MAX:
            raise ValueError(f"found {_shown(node)}, expected {data_type.nullable()}")
        return cell_value(str(whole_part(node)), data_type)
    return cell_value("NaN" if node != node else str(node).replace("inf", "Infinity"), data_type)


def _shown(node: Any) -> str:
    text = json.dumps(node, ensure_ascii=False, default=str)
    return text if len(text) <= 100 else f"{text[:100]}…"


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JsonWriting:
    """The JSON writing options."""

    style: str = SQL
    plain_decimals: bool = False
    omits_nulls: bool = False


def json_texts(column: pa.Array, data_type: DataType, writing: JsonWriting) -> pa.Array:
    """The JSON of each value; `null` for NULL.

    >>> row = RowType.of(["a", "b"], [types.IntType(), ArrayType(types.DoubleType())])
    >>> rows = pa.array([{"a": 1, "b": [0.5, None]}, None], row.arrow)
    >>> json_texts(rows, row, JsonWriting()).to_pylist()
    ['{"a":1,"b":[0.5,null]}', 'null']
    """
    return pc.fill_null(_texts(column, data_type, writing), "null")


def _texts(column: pa.Array, data_type: DataType, writing: JsonWriting) -> pa.Array:
    """The JSON of each value; NULL for NULL."""
    if isinstance(data_type, RowType):
        return _objects(column, data_type, writing)
    if isinstance(data_type, ArrayType):
        items = column.flatten()
        return _joined(column, json_texts(items, data_type.element_type, writing), "[", "]")
    if isinstance(data_type, (MapType, MultisetType)):
        return _maps(column, data_type, writing)
    if is_text(data_type):
        return _quoted_texts(column)
    written = written_cells(column, data_type, writing.style, writing.plain_decimals)
    if isinstance(data_type, _QUOTED):
        return _within('"', written, '"')
    if isinstance(data_type, (types.FloatType, types.DoubleType)):
        is_number = pc.is_finite(column)
        return pc.if_else(is_number, written, _within('"', written, '"'))
    return written


def _within(before: str, texts: pa.Array, behind: str) -> pa.Array:
    return pc.binary_join_element_wise(before, texts, behind, "")


def _quoted_texts(column: pa.Array) -> pa.Array:
    is_special = pc.match_substring_regex(column, _NEEDS_ESCAPE)
    if not pc.any(is_special, min_count=0).as_py():
        return _within('"', column, '"')
    escape: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode
    return pa.array([None if text is None else escape(text) for text in column.to_pylist()], pa.string())


def _objects(column: pa.Array, data_type: RowType, writing: JsonWriting) -> pa.Array:
    parts: list[Any] = []
    for at, field in enumerate(data_type.fields):
        name = json.dumps(field.name, ensure_ascii=False)
        texts = _texts(column.field(at), field.data_type, writing)
        if writing.omits_nulls:
            parts.append(pc.fill_null(_within(f"{name}:", texts, ","), ""))
        else:
            parts += [f"{',' if at else ''}{name}:", pc.fill_null(texts, "null")]
    if not parts:
        objects = pa.array(["{}"] * len(column), pa.string())
    elif writing.omits_nulls:
        # Each field appends its comma, and the last is trimmed: Arrow's join that skips NULLs loses empty rows. No
        # value ends with a comma.
        joined = pc.binary_join_element_wise(*parts, "")
        objects = _within("{", pc.utf8_rtrim(joined, ","), "}")
    else:
        objects = pc.binary_join_element_wise("{", *parts, "}", "")
    return pc.if_else(column.is_valid(), objects, pa.scalar(None, pa.string())) if column.null_count else objects


def _maps(column: pa.Array, data_type: MapType | MultisetType, writing: JsonWriting) -> pa.Array:
    key_type = data_type.key_type if isinstance(data_type, MapType) else data_type.element_type
    item_type = data_type.value_type if isinstance(data_type, MapType) else types.IntType()
    entries = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
    pairs = entries.flatten()
    keys = _quoted_texts(written_cells(pairs.field(0), key_type, writing.style))
    return _joined(
        entries,
        pc.binary_join_element_wise(keys, json_texts(pairs.field(1), item_type, writing), ":"),
        "{",
        "}",
    )


def _joined(lists: pa.Array, items: pa.Array, before: str, behind: str) -> pa.Array:
    """The items of each list, separated by commas; NULL for a NULL list."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    nulls = lists.is_null() if lists.null_count else None
    texts = pa.ListArray.from_arrays(pa.array(offsets), items, mask=nulls)
    return _within(before, pc.binary_join(texts, ","), behind)
