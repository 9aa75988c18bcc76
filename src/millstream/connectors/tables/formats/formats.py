"""All table formats, by the name in `'format' = '…'`."""

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
    """The table format that `option` names; an unknown name is an error with the nearest one."""
    if name in _NOT_YET:
        raise NotYetError.of(f"table {table!r}: the format {name!r}", LATER)
    format = FORMATS.get(name)
    names = format_names(for_files)
    if format is None:
        raise ProgramError(
            f"table {table!r}: option {option!r} is {name!r}, which is not a format.{did_you_mean(name, names)} "
            f"Known: {', '.join(names)}"
        )
    if name not in names:
        place = "files" if for_files else "messages"
        raise ProgramError(
            f"table {table!r}: option {option!r} is {name!r}, which is not a format of {place}. Use one of: "
            f"{', '.join(names)}"
        )
    return format


def format_changes(name: str | None) -> tuple[str, ...]:
    """The row kinds of a format; an unknown one is insert-only."""
    format = FORMATS.get(name or "")
    return GROWS if format is None else format.changes


def format_metadata(name: str | None) -> Mapping[str, DataType]:
    """The metadata of a format's messages; none for an unknown one."""
    format = FORMATS.get(name or "")
    return {} if format is None else format.metadata


def format_names(for_files: bool) -> list[str]:
    """The formats of files, or of messages."""
    return [name for name, each in FORMATS.items() if (each.is_for_files if for_files else each.is_for_messages)]


def format_options(names: Iterable[str], prefix: str = "") -> tuple[TableOption, ...]:
    """The options of formats, with `prefix` before each name."""
    return tuple(
        replace(option, name=prefix + option.name, required=False)
        for name in names
        if name in FORMATS
        for option in FORMATS[name].options
    )
