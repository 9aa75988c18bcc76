"""Reference implementation of value evolution: one Python value at a time.

Tests compare `evolution`, which projects whole columns, with this. Invariant: it uses no columns, plans or shortcuts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from millstream.common.typeinfo import MapTypeInfo, RowTypeInfo, TypeInformation, Types
from millstream.common.types import Row
from millstream.records.shapes import is_sequence
from millstream.state.schemas.evolution import fields_of

__all__ = ["evolved_value"]


def evolved_value(
    value: Any,
    old: TypeInformation,
    new: TypeInformation,
    renames: Mapping[str, str],
    defaults: Mapping[str, Any],
    old_path: tuple[str, ...] = (),
    new_path: tuple[str, ...] = (),
) -> Any:
    """The value converted by a compatible change.

    >>> evolved_value((1, "a"), Types.TUPLE([Types.INT(), Types.STRING()]), Types.TUPLE([Types.DOUBLE()]), {}, {})
    (1.0,)
    """
    if value is None or old == new:
        return value
    declarations = (renames, defaults)
    if is_sequence(old) and is_sequence(new):
        return [evolved_value(v, old.element_type, new.element_type, *declarations, old_path, new_path) for v in value]
    if isinstance(old, MapTypeInfo) and isinstance(new, MapTypeInfo):
        return {
            _widened(k, old.key_type, new.key_type): evolved_value(
                v, old.value_type, new.value_type, *declarations, old_path, new_path
            )
            for k, v in value.items()
        }
    old_fields, new_fields = fields_of(old), fields_of(new)
    if old_fields is None or new_fields is None:
        return _widened(value, old, new)
    now_called = {renames.get(".".join((*old_path, name)), name): name for name in old_fields}
    parts = []
    for name, kind in new_fields.items():
        path = (*new_path, name)
        if name in now_called:
            was = now_called[name]
            part = value[list(old_fields).index(was)]
            parts.append(evolved_value(part, old_fields[was], kind, *declarations, (*old_path, was), path))
        else:
            parts.append(defaults.get(".".join(path)))
    if not isinstance(new, RowTypeInfo):
        return tuple(parts)
    row = Row(*parts)
    row.set_field_names(list(new_fields))
    return row


def _widened(value: Any, old: TypeInformation, new: TypeInformation) -> Any:
    if old == Types.SQL_DATE() and new == Types.SQL_TIMESTAMP():
        return dt.datetime(value.year, value.month, value.day)
    if new in (Types.FLOAT(), Types.DOUBLE()):
        return float(value)
    return Decimal(value) if new == Types.BIG_DEC() else value
