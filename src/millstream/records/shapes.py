"""Properties of types, shared by the slow conversion (`conformance`) and the fast one (`columns`)."""

from __future__ import annotations

from typing import TypeGuard

from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    ExternalTypeInfo,
    LocalTimeTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.common.typeinfo.composite_types import SequenceTypeInfo
from millstream.records.table_type import TableValueType, plain_equivalent

_LOCAL_TIMES: dict[LocalTimeTypeInfo.TimeType, TypeInformation] = {
    LocalTimeTypeInfo.TimeType.LOCAL_DATE: Types.SQL_DATE(),
    LocalTimeTypeInfo.TimeType.LOCAL_TIME: Types.SQL_TIME(),
    LocalTimeTypeInfo.TimeType.LOCAL_DATE_TIME: Types.SQL_TIMESTAMP(),
}


def plain_type(type_info: TypeInformation) -> TypeInformation:
    """The type without wrappers that are irrelevant in Python: external types, Java's local times."""
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info.type_info
    return _LOCAL_TIMES[type_info.time_type] if isinstance(type_info, LocalTimeTypeInfo) else type_info


def is_byte_array(type_info: TypeInformation) -> bool:
    """Whether values are `bytes`."""
    if not isinstance(type_info, PrimitiveArrayTypeInfo):
        return False
    element = type_info.element_type
    return isinstance(element, BasicTypeInfo) and element.basic_type is BasicType.BYTE


def is_sequence(type_info: TypeInformation) -> TypeGuard[SequenceTypeInfo]:
    """Whether values are lists."""
    return isinstance(type_info, SequenceTypeInfo) and not is_byte_array(type_info)


def is_hashable(type_info: TypeInformation) -> bool:
    """Whether values of the type can be keys of a dict."""
    plain = plain_type(type_info)
    if isinstance(plain, TableValueType):
        equivalent = plain_equivalent(plain.data_type)
        return equivalent is None or is_hashable(equivalent)
    if isinstance(plain, (RowTypeInfo, TupleTypeInfo)):
        return all(map(is_hashable, plain.get_field_types()))
    return not (is_sequence(plain) or isinstance(plain, (MapTypeInfo, PickledBytesTypeInfo)))
