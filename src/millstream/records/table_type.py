"""The type of a stream that is a table: its columns are those of a SQL row type, as Arrow types.

A batch of a table always has columns. If rows may change, a column `__kind` follows (`row_codec`); without it, all rows
are inserts. Python values are created only where the program needs them: `millstream.common.Row` with PyFlink's values.

To the engine a table is a ROW like any other, so keys, state and exchanges are independent of SQL. Only column types
are specific to SQL: a `TableValueType` has the precision, the length and the NOT NULL that `Types` cannot express.
`table_values` defines the conversion of Python values.
"""

from __future__ import annotations

from millstream.common.typeinfo import RowTypeInfo, TypeInformation, Types
from millstream.common.typeinfo.decimal_type import DecimalTypeInfo
from millstream.expressions import nested_types, types
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType

__all__ = ["TableRowType", "TableValueType", "plain_equivalent", "stream_type"]


class TableValueType(TypeInformation):
    """A value of a SQL type: a column of a table, a key, a part of a state.

    >>> TableValueType(types.DecimalType(10, 2, False)).notation
    'SQL DECIMAL(10, 2) NOT NULL'
    """

    def __init__(self, data_type: DataType) -> None:
        self.data_type = data_type

    def _parts(self) -> tuple[object, ...]:
        return (self.data_type,)

    @property
    def notation(self) -> str:
        return f"SQL {self.data_type}"

    def __str__(self) -> str:
        return str(self.data_type)

    def __repr__(self) -> str:
        return f"TableValueType({self.data_type!r})"


class TableRowType(RowTypeInfo):
    """Rows of a table.

    >>> TableRowType(RowType.of(["id"], [types.BigIntType(False)])).notation
    'Table<id BIGINT NOT NULL>'
    """

    def __init__(self, row_type: RowType) -> None:
        super().__init__([TableValueType(each) for each in row_type.types], row_type.names)
        self.row_type = row_type

    def _parts(self) -> tuple[object, ...]:
        return (self.row_type.fields,)

    @property
    def notation(self) -> str:
        return f"Table<{', '.join(f'{field.name} {field.data_type}' for field in self.row_type.fields)}>"

    def __str__(self) -> str:
        return self.notation

    def __repr__(self) -> str:
        return f"TableRowType({self.row_type!r})"


_PLAIN: dict[type[DataType], TypeInformation] = {
    types.BooleanType: Types.BOOLEAN(),
    types.TinyIntType: Types.BYTE(),
    types.SmallIntType: Types.SHORT(),
    types.IntType: Types.INT(),
    types.YearMonthIntervalType: Types.INT(),
    types.BigIntType: Types.LONG(),
    types.FloatType: Types.FLOAT(),
    types.DoubleType: Types.DOUBLE(),
    types.CharType: Types.STRING(),
    types.VarCharType: Types.STRING(),
    types.BinaryType: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    types.VarBinaryType: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    types.BitmapType: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    types.VariantType: Types.STRING(),
    types.DateType: Types.SQL_DATE(),
    nested_types.RawType: Types.PICKLED_BYTE_ARRAY(),
}


_TIMES: dict[type[DataType], TypeInformation] = {
    types.TimeType: Types.SQL_TIME(),
    types.TimestampType: Types.SQL_TIMESTAMP(),
    types.LocalZonedTimestampType: Types.INSTANT(),
}


def plain_equivalent(data_type: DataType) -> TypeInformation | None:
    """The type of `Types` with the same Python values in the same columns, apart from NULL; None if no such type
    exists.

    >>> plain_equivalent(types.BigIntType(False)), plain_equivalent(types.TimestampType(3))
    (Types.LONG(), None)
    """
    if isinstance(data_type, nested_types.ArrayType):
        return Types.LIST(_inner(data_type.element_type))
    if isinstance(data_type, nested_types.MapType):
        return Types.MAP(_inner(data_type.key_type), _inner(data_type.value_type))
    if isinstance(data_type, nested_types.MultisetType):
        return Types.MAP(_inner(data_type.element_type), Types.INT())
    if isinstance(data_type, RowType):
        return Types.ROW_NAMED(data_type.names, [_inner(each) for each in data_type.types])
    return _PLAIN.get(type(data_type))


def stream_type(data_type: DataType) -> TypeInformation | None:
    """The type of `Types` for a type of the Table API's `DataTypes`, at every depth; None if no such type exists.

    >>> stream_type(RowType.of(["id", "at"], [types.BigIntType(), types.TimestampType(3)]))
    Types.ROW_NAMED(['id', 'at'], [Types.LONG(), Types.SQL_TIMESTAMP()])
    """
    if isinstance(data_type, RowType):
        inner = [stream_type(each) for each in data_type.types]
        known = [each for each in inner if each is not None]
        return Types.ROW_NAMED(data_type.names, known) if len(known) == len(inner) else None
    if isinstance(data_type, nested_types.ArrayType):
        element = stream_type(data_type.element_type)
        return None if element is None else Types.LIST(element)
    if isinstance(data_type, nested_types.MapType):
        key, value = stream_type(data_type.key_type), stream_type(data_type.value_type)
        return None if key is None or value is None else Types.MAP(key, value)
    if isinstance(data_type, types.DecimalType):
        return DecimalTypeInfo(data_type.precision, data_type.scale)
    return _TIMES.get(type(data_type)) or _PLAIN.get(type(data_type))


def _inner(data_type: DataType) -> TypeInformation:
    # Nested types are nullable: under a NULL row every field is NULL, whatever its type.
    return TableValueType(data_type.nullable())
