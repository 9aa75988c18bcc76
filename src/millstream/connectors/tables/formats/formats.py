"""All formats of tables, by the name that `'format' = '…'` gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from millstream.connectors.tables.factory import GROWS, TableOption
from millstream.connectors.tables.formats.changing_formats import CanalJsonFormat, DebeziumJsonFormat
from millstream.connectors.tables.formats.column_formats import AvroFormat, OrcFormat, ParquetFormat
from millstream.connectors.tables.formats.csv_format import CsvFormat
from millstream.connectors.tables.formats.format import TableFormat
from millstream.connectors.tables.formats.json_format import JsonFormat
from millstream.connectors.tables.formats.raw_format import RawFormat
from millstream.errors import LATER, NotYetError, ProgramError, did_you_mean
from millstream.expressions.data_type import DataType

__all__ = ["FORMATS", "format_changes", "format_metadata", "format_names", "format_of", "format_options"]

FORMATS: dict[str, TableFormat] = {
    each.name: each
    for each in (
        AvroFormat(),
        CanalJsonFormat(),
        CsvFormat(),
        DebeziumJsonFormat(),
        JsonFormat(),
        OrcFormat(),
        ParquetFormat(),
        RawFormat(),
    )
}
"""Every format."""

_NOT_YET = ("debezium-avro-confluent", "maxwell-json", "ogg-json")


def format_of(name: str, table: str, option: str, for_files: bool) -> TableFormat:
    """The format of a table that `option` names; an unknown name is an error with the nearest one."""
    if name in _NOT_YET:
        raise NotYetError.of(f"table {table!r}: the format {name!r}", LATER)
    found = FORMATS.get(name)
    names = format_names(for_files)
    if found is None:
        raise ProgramError(
            f"table {table!r}: option {option!r} is {name!r}, which is no format.{did_you_mean(name, names)} "
            f"There are: {', '.join(names)}"
        )
    if name not in names:
        place = "files" if for_files else "messages"
        raise ProgramError(
            f"table {table!r}: option {option!r} is {name!r}, which is not a format of {place}. Those are: "
            f"{', '.join(names)}"
        )
    return found


def format_changes(name: str | None) -> tuple[str, ...]:
    """The kinds of changes that a format tells of; one that is not known tells of new rows."""
    found = FORMATS.get(name or "")
    return GROWS if found is None else found.changes


def format_metadata(name: str | None) -> Mapping[str, DataType]:
    """What the messages of a format tell of their rows; one that is not known tells nothing."""
    found = FORMATS.get(name or "")
    return {} if found is None else found.metadata


def format_names(for_files: bool) -> list[str]:
    """The formats of files, or of messages."""
    return [name for name, each in FORMATS.items() if (each.is_for_files if for_files else each.is_for_messages)]


def format_options(names: Iterable[str], prefix: str = "") -> tuple[TableOption, ...]:
    """The options of formats, each with `prefix` before its name."""
    return tuple(
        replace(option, name=prefix + option.name, required=False)
        for name in names
        if name in FORMATS
        for option in FORMATS[name].options
    )
