"""Values in the form returned to the program that started a job: by `TableResult.collect` and `execute_and_collect`.

They match PyFlink's. A FLOAT arrives as the shortest number that denotes it (1.23), while functions in tasks get its
exact value, as in PyFlink (1.2300000190734863). Names of a table's rows are hidden: rows are printed and compared like
rows without names, at every depth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from millstream.common.typeinfo.composite_types import SequenceTypeInfo
from millstream.common.types import QuietNames, Row
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType
from millstream.expressions.types import FloatType
from millstream.records.shapes import plain_type
from millstream.records.short_float import short_float
from millstream.records.table_type import TableRowType, TableValueType

__all__ = ["collected_form"]

Form = Callable[[Any], Any]


def collected_form(type_info: TypeInformation | None) -> Form | None:
    """The conversion of values of a type for the program; None if they stay unchanged.

    >>> from millstream.common.typeinfo import Types
    >>> collected_form(Types.FLOAT())(1.2300000190734863), collected_form(Types.LONG())
    (1.23, None)
    """
    if type_info is None:
        return None
    if isinstance(type_info, TableRowType):
        return _table_row(type_info.row_type)
    if isinstance(type_info, TableValueType):
        return _table_value(type_info.data_type)
    plain = plain_type(type_info)
    if isinstance(plain, BasicTypeInfo):
        return short_float if plain.basic_type is BasicType.FLOAT else None
    if isinstance(plain, RowTypeInfo):
        return _row(tuple(map(collected_form, plain.get_field_types())), None)
    if isinstance(plain, TupleTypeInfo):
        return _tuple(tuple(map(collected_form, plain.get_field_types())))
    if isinstance(plain, MapTypeInfo):
        return _map(collected_form(plain.key_type), collected_form(plain.value_type))
    if isinstance(plain, SequenceTypeInfo):
        return _list(collected_form(plain.element_type))
    return None


def _table_row(row_type: RowType) -> Form:
    form = _row(tuple(map(_table_value, row_type.types)), QuietNames(row_type.names))
    assert form is not None
    return form


def _table_value(data_type: DataType) -> Form | None:
    if isinstance(data_type, FloatType):
        return short_float
    if isinstance(data_type, RowType):
        return _table_row(data_type)
    if isinstance(data_type, ArrayType):
        return _list(_table_value(data_type.element_type))
    if isinstance(data_type, MapType):
        return _map(_table_value(data_type.key_type), _table_value(data_type.value_type))
    if isinstance(data_type, MultisetType):
        return _map(_table_value(data_type.element_type), None)
    return None


def _not_null(form: Form) -> Form:
    return lambda value: None if value is None else form(value)


def _list(form: Form | None) -> Form | None:
    return None if form is None else _not_null(lambda values: [form(value) for value in values])


def _map(key_form: Form | None, value_form: Form | None) -> Form | None:
    if key_form is None and value_form is None:
        return None
    of_key, of_value = key_form or _same, value_form or _same
    return _not_null(lambda entries: {of_key(key): of_value(value) for key, value in entries.items()})


def _tuple(forms: tuple[Form | None, ...]) -> Form | None:
    if not any(forms):
        return None
    filled = [form or _same for form in forms]
    return _not_null(lambda values: tuple(form(value) for form, value in zip(filled, values, strict=True)))


def _row(forms: tuple[Form | None, ...], names: QuietNames | None) -> Form | None:
    """Converts fields; `names` replaces the row's names."""
    if names is None and not any(forms):
        return None
    changed = [(place, form) for place, form in enumerate(forms) if form is not None]

    def form_row(row: Any) -> Any:
        if isinstance(row, Row):
            for place, form in changed:
                row[place] = form(row[place])
            if names is not None:
                row.set_field_names(names)
        return row

    return form_row


def _same(value: Any) -> Any:
    return value
