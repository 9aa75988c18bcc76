"""Assigns the columns of a table to the key and the value of messages.

`key.fields` names the columns of the key; `key.fields-prefix` is a prefix of their names in the table that is missing
in the message. The value has all columns, or all except the key's (`value.fields-include` = EXCEPT_KEY). A column
that is in both is read from the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.connectors.tables.factory import TableDefinition
from millstream.connectors.tables.options import TableOptions
from millstream.errors import ProgramError, did_you_mean
from millstream.expressions.nested_types import RowField, RowType

__all__ = ["MessageFields", "key_and_value", "message_fields"]


@dataclass(frozen=True)
class MessageFields:
    """The positions, among physical columns, of the fields of keys and of values, and their row types."""

    key: tuple[int, ...]
    value: tuple[int, ...]
    key_type: RowType
    value_type: RowType


def message_fields(options: TableOptions, table: TableDefinition) -> MessageFields:
    """The fields of keys and values of a table. Raises ProgramError for contradictory options."""
    chosen = options.listed("key.fields")
    has_key = options.text("key.format") is not None
    if has_key != bool(chosen):
        present, missing = ("key.format", "key.fields") if has_key else ("key.fields", "key.format")
        raise ProgramError(f"table {table.name!r} has the option {present!r} but not {missing!r}. Set both or neither")
    return key_and_value(options, table, chosen)


def key_and_value(options: TableOptions, table: TableDefinition, chosen: Sequence[str]) -> MessageFields:
    """The fields of keys and values for these key columns."""
    fields, names = table.physical.fields, table.physical.names
    prefix = options.text("key.fields-prefix") or ""
    for name in chosen:
        if name not in names:
            raise options.wrong("key.fields", f"columns of the table.{did_you_mean(name, names)}")
        if not name.startswith(prefix):
            raise options.wrong("key.fields", f"names that start with {prefix!r}, the 'key.fields-prefix'")
    include = options.choice("value.fields-include", ("ALL", "EXCEPT_KEY"))
    if prefix and include == "ALL":
        raise ProgramError(
            f"table {table.name!r}: with 'key.fields-prefix' the value cannot hold the columns of the key. Set "
            "'value.fields-include' = 'EXCEPT_KEY'"
        )
    key = tuple(names.index(name) for name in chosen)
    value = tuple(at for at in range(len(names)) if include == "ALL" or at not in key)
    key_fields = [RowField(names[at][len(prefix) :], fields[at].data_type) for at in key]
    return MessageFields(
        key, value, RowType(key_fields, nullable=False), RowType([fields[at] for at in value], nullable=False)
    )
