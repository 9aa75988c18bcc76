"""Types made of other types: rows, tuples, lists, maps, arrays.

The field names of a row type always exist and are distinct, so all other code (columns, state, plans) may rely on that.
A value that is not a type is rejected here, at the user's line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from millstream.common.typeinfo.scalar_types import BasicType, BasicTypeInfo, TypeInformation
from millstream.common.types import Row
from millstream.errors import ProgramError, TypeMismatchError

_PRIMITIVES = frozenset(
    {
        BasicType.BOOLEAN,
        BasicType.BYTE,
        BasicType.SHORT,
        BasicType.INT,
        BasicType.LONG,
        BasicType.FLOAT,
        BasicType.DOUBLE,
        BasicType.CHAR,
    }
)


def checked_type(candidate: object, what: str) -> TypeInformation:
    """The candidate, if it is a type; the common mistake is `Types.INT` for `Types.INT()`."""
    if isinstance(candidate, TypeInformation):
        return candidate
    raise TypeMismatchError(
        f"{what} must be a type, found {candidate!r} ({type(candidate).__name__}). {type_advice(candidate)}."
    )


def type_advice(candidate: object) -> str:
    """The replacement for something that is not a type.

    >>> type_advice(str), type_advice(len)
    ('Use one of Types, such as Types.STRING()', 'Call it: Types.NAME()')
    """
    is_uncalled = callable(candidate) and not isinstance(candidate, type)
    return "Call it: Types.NAME()" if is_uncalled else "Use one of Types, such as Types.STRING()"


def _types_of(fields: Any, what: str) -> tuple[TypeInformation, ...]:
    """The types of the fields of a row or tuple."""
    if isinstance(fields, str) or not isinstance(fields, Iterable):
        raise ProgramError(
            f"{what} takes a list of types, found {fields!r} ({type(fields).__name__}). Write [type, type]"
        )
    return tuple(checked_type(field, f"field {i} of a {what}") for i, field in enumerate(fields))


class RowTypeInfo(TypeInformation):
    """The type of a `Row`: a type per field, and names (`f0`, `f1`, ... by default).

    >>> from millstream.common.typeinfo import Types
    >>> row_type = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
    >>> row_type.notation, str(row_type)
    ('ROW<name STRING, age INT>', 'RowTypeInfo(name: String, age: Integer)')
    """

    def __init__(self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None) -> None:
        self._field_types = _types_of(field_types, "ROW")
        plain_names = tuple(f"f{i}" for i in range(len(self._field_types)))
        if field_names is not None and (isinstance(field_names, str) or not isinstance(field_names, Iterable)):
            raise ProgramError(f"ROW_NAMED takes a list of names, found {field_names!r}. Write [name, name]")
        self._field_names = plain_names if field_names is None else tuple(field_names)
        _check_names(self._field_names, len(self._field_types))
        # Naming fields f0, f1, ... is the same as not naming them: equal types must behave alike.
        self._has_own_names = self._field_names != plain_names

    def get_field_names(self) -> list[str]:
        """The names in order."""
        return list(self._field_names)

    def get_field_index(self, field_name: str) -> int:
        """The position of a field; -1 if no field has that name."""
        return self._field_names.index(field_name) if field_name in self._field_names else -1

    def get_field_types(self) -> list[TypeInformation]:
        """The types in order."""
        return list(self._field_types)

    @property
    def has_own_names(self) -> bool:
        """Whether the fields were named explicitly; rows are then matched by name."""
        return self._has_own_names

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> tuple[Any, ...] | None:
        if obj is None:
            return None
        if isinstance(obj, dict):
            values = [obj.get(name) for name in self._field_names]
        elif isinstance(obj, Row):
            values = obj.get_fields_by_names(self._field_names) if self._has_own_names else list(obj)
        else:
            values = list(obj)
        return tuple(t.to_internal_type(v) for t, v in zip(self._field_types, values, strict=True))

    def from_internal_type(self, obj: Any) -> Row | None:
        if obj is None:
            return None
        row = Row(*(t.from_internal_type(v) for t, v in zip(self._field_types, obj, strict=True)))
        row.set_field_names(self._field_names)
        return row

    def _parts(self) -> tuple[object, ...]:
        return self._field_names, self._field_types

    @property
    def notation(self) -> str:
        if self._has_own_names:
            fields = (f"{n} {t}" for n, t in zip(self._field_names, self._field_types, strict=True))
            return f"ROW<{', '.join(fields)}>"
        return f"ROW<{', '.join(map(format, self._field_types))}>"

    def __str__(self) -> str:
        if not self._has_own_names:
            return f"RowTypeInfo({', '.join(map(str, self._field_types))})"
        fields = (f"{name}: {field!s}" for name, field in zip(self._field_names, self._field_types, strict=True))
        return f"RowTypeInfo({', '.join(fields)})"

    def __repr__(self) -> str:
        if self._has_own_names:
            return f"Types.ROW_NAMED({list(self._field_names)!r}, {list(self._field_types)!r})"
        return f"Types.ROW({list(self._field_types)!r})"


def _check_names(names: Sequence[object], count: int) -> None:
    if len(names) != count:
        raise ProgramError(
            f"a ROW has {count} field types and {len(names)} names {list(names)!r}. Pass one name per type."
        )
    for position, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise ProgramError(f"field {position} of a ROW is named {name!r}. A field name is a string of one or more.")
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise ProgramError(f"a ROW names {', '.join(map(repr, twice))} more than once in {list(names)!r}. Rename one.")


class TupleTypeInfo(TypeInformation):
    """The type of a Python tuple of fixed length."""

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        self._field_types = _types_of(field_types, "TUPLE")

    def get_field_types(self) -> list[TypeInformation]:
        """The types in order."""
        return list(self._field_types)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> tuple[Any, ...] | None:
        if obj is None:
            return None
        return tuple(t.to_internal_type(v) for t, v in zip(self._field_types, obj, strict=True))

    def from_internal_type(self, obj: Any) -> tuple[Any, ...] | None:
        if obj is None:
            return None
        return tuple(t.from_internal_type(v) for t, v in zip(self._field_types, obj, strict=True))

    def _parts(self) -> tuple[object, ...]:
        return self._field_types

    @property
    def notation(self) -> str:
        return f"TUPLE<{', '.join(map(format, self._field_types))}>"

    def __str__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(str, self._field_types))})"

    def __repr__(self) -> str:
        return f"Types.TUPLE({list(self._field_types)!r})"


class SequenceTypeInfo(TypeInformation):
    """The common base of lists and arrays: one type for all elements."""

    _name = ""

    def __init__(self, element_type: TypeInformation) -> None:
        self._element_type = checked_type(element_type, f"the element of a {self._name}")

    @property
    def element_type(self) -> TypeInformation:
        """The type of every element."""
        return self._element_type

    def _parts(self) -> tuple[object, ...]:
        return (self._element_type,)

    @property
    def notation(self) -> str:
        return f"{self._name}<{self._element_type}>"

    def __str__(self) -> str:
        return f"{type(self).__name__}<{self._element_type!s}>"

    def __repr__(self) -> str:
        return f"Types.{self._name}({self._element_type!r})"


class PrimitiveArrayTypeInfo(SequenceTypeInfo):
    """An array of numbers; of BYTE it is a Python `bytes`, otherwise a list."""

    _name = "PRIMITIVE_ARRAY"

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__(element_type)
        if not isinstance(element_type, BasicTypeInfo) or element_type.basic_type not in _PRIMITIVES:
            raise ProgramError(
                f"PRIMITIVE_ARRAY holds booleans, characters or numbers up to 64 bits, found {element_type}. "
                "Use Types.OBJECT_ARRAY or Types.LIST."
            )


class BasicArrayTypeInfo(SequenceTypeInfo):
    """An array of single values, which may be None."""

    _name = "BASIC_ARRAY"

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__(element_type)
        if not isinstance(element_type, BasicTypeInfo):
            raise ProgramError(
                f"BASIC_ARRAY holds single values such as Types.STRING(), found {element_type}. Use Types.OBJECT_ARRAY."
            )


class ObjectArrayTypeInfo(SequenceTypeInfo):
    """An array of anything."""

    _name = "OBJECT_ARRAY"


class ListTypeInfo(SequenceTypeInfo):
    """The type of a Python list."""

    _name = "LIST"


class MapTypeInfo(TypeInformation):
    """The type of a Python dict."""

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        self._key_type_info = checked_type(key_type_info, "the key of a MAP")
        self._value_type_info = checked_type(value_type_info, "the value of a MAP")

    @property
    def key_type(self) -> TypeInformation:
        """The type of every key."""
        return self._key_type_info

    @property
    def value_type(self) -> TypeInformation:
        """The type of every value."""
        return self._value_type_info

    def _parts(self) -> tuple[object, ...]:
        return self._key_type_info, self._value_type_info

    @property
    def notation(self) -> str:
        return f"MAP<{self._key_type_info}, {self._value_type_info}>"

    def __str__(self) -> str:
        return f"MapTypeInfo<{self._key_type_info!s}, {self._value_type_info!s}>"

    def __repr__(self) -> str:
        return f"Types.MAP({self._key_type_info!r}, {self._value_type_info!r})"


class ExternalTypeInfo(TypeInformation):
    """Flink's wrapper for types of table columns; it has the same values as the wrapped type."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._type_info = checked_type(type_info, "the inside of an ExternalTypeInfo")

    @property
    def type_info(self) -> TypeInformation:
        """The type inside."""
        return self._type_info

    def need_conversion(self) -> bool:
        return self._type_info.need_conversion()

    def to_internal_type(self, obj: Any) -> Any:
        return self._type_info.to_internal_type(obj)

    def from_internal_type(self, obj: Any) -> Any:
        return self._type_info.from_internal_type(obj)

    def _parts(self) -> tuple[object, ...]:
        return (self._type_info,)

    @property
    def notation(self) -> str:
        return self._type_info.notation

    def __str__(self) -> str:
        return f"ExternalTypeInfo<{self._type_info!s}>"
