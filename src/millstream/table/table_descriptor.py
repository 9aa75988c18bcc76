"""`TableDescriptor`: describes a table without SQL: its connector, its options, its schema.

>>> from millstream.table.schema import Schema
>>> print(TableDescriptor.for_connector("datagen").option("number-of-rows", 5).build())
()
WITH (
  'connector' = 'datagen',
  'number-of-rows' = '5'
)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.common.config_options import ConfigOption
from millstream.common.configuration import Configuration
from millstream.graph.site import refuse
from millstream.pyflink_names import add_pyflink_names
from millstream.redaction import redacted_options
from millstream.table.schema import Schema

__all__ = ["FormatDescriptor", "TableDescriptor"]


class TableDescriptor:
    """A table: connector, options, schema, partition keys and comment."""

    def __init__(
        self,
        j_table_descriptor: Any = None,
        *,
        schema: Schema | None = None,
        options: Mapping[str, str] | None = None,
        partition_keys: Sequence[str] = (),
        comment: str | None = None,
    ) -> None:
        if j_table_descriptor is not None:
            raise refuse(f"TableDescriptor: found {j_table_descriptor!r}. Make one by for_connector(name)….build()")
        self._schema = schema
        self._options = dict(options or {})
        self._partition_keys = list(partition_keys)
        self._comment = comment

    @staticmethod
    def for_connector(connector: str) -> TableDescriptor.Builder:
        """Starts the description of a connector's table: datagen, filesystem, kafka, print, …"""
        return TableDescriptor.Builder().option("connector", connector)

    def get_schema(self) -> Schema | None:
        """The columns; None if the connector defines them."""
        return self._schema

    def get_options(self) -> dict[str, str]:
        """The options of the connector."""
        return dict(self._options)

    def get_partition_keys(self) -> list[str]:
        """The partition columns."""
        return list(self._partition_keys)

    def get_comment(self) -> str | None:
        """The table's comment."""
        return self._comment

    def __str__(self) -> str:
        parts = [str(self._schema) if self._schema is not None else "()"]
        if self._comment:
            parts.append(f"COMMENT '{self._comment}'")
        if self._partition_keys:
            parts.append("PARTITIONED BY (" + ", ".join(f"`{key}`" for key in self._partition_keys) + ")")
        options = ",\n".join(f"  '{key}' = '{value}'" for key, value in redacted_options(self._options).items())
        return "\n".join([*parts, f"WITH (\n{options}\n)"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableDescriptor) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self._schema, tuple(sorted(self._options.items()))))

    class Builder:
        """Collects a table's description."""

        def __init__(self, j_builder: Any = None) -> None:
            self._schema: Schema | None = None
            self._options: dict[str, str] = {}
            self._partition_keys: list[str] = []
            self._comment: str | None = None

        def schema(self, schema: Schema) -> TableDescriptor.Builder:
            """Sets the columns."""
            if not isinstance(schema, Schema):
                raise refuse(f"schema: found {schema!r}, expected Schema.new_builder()….build()")
            self._schema = schema
            return self

        def option(self, key: str | ConfigOption[Any], value: Any) -> TableDescriptor.Builder:
            """Sets an option of the connector."""
            self._options[_key(key)] = option_text(value)
            return self

        def format(
            self, format: str | FormatDescriptor, format_option: str | ConfigOption[Any] | None = None
        ) -> TableDescriptor.Builder:
            """Sets the format: "json", "csv", …, or a FormatDescriptor with options. `format_option`: its option key,
            "format" by default ("key.format", "value.format")."""
            option = "format" if format_option is None else _key(format_option)
            name = format if isinstance(format, str) else format.get_format()
            self._options[option] = name
            prefix = option.removesuffix("format")
            if not isinstance(format, str):
                for key, value in format.get_options().items():
                    self._options[f"{prefix}{name}.{key}"] = value
            return self

        def partitioned_by(self, *partition_keys: str) -> TableDescriptor.Builder:
            """Sets the partition columns."""
            self._partition_keys = list(partition_keys)
            return self

        def comment(self, comment: str) -> TableDescriptor.Builder:
            """Sets the table's comment."""
            self._comment = comment
            return self

        def build(self) -> TableDescriptor:
            """The description."""
            return TableDescriptor(
                schema=self._schema,
                options=self._options,
                partition_keys=self._partition_keys,
                comment=self._comment,
            )


class FormatDescriptor:
    """A format with its options."""

    def __init__(
        self, j_format_descriptor: Any = None, *, format: str = "", options: Mapping[str, str] | None = None
    ) -> None:
        if j_format_descriptor is not None:
            raise refuse(f"FormatDescriptor: found {j_format_descriptor!r}. Make one by for_format(name)….build()")
        self._format = format
        self._options = dict(options or {})

    @staticmethod
    def for_format(format: str) -> FormatDescriptor.Builder:
        """Starts the description of a format: json, csv, …"""
        return FormatDescriptor.Builder(_format=format)

    def get_format(self) -> str:
        """Its name."""
        return self._format

    def get_options(self) -> dict[str, str]:
        """Its options, without the format's prefix."""
        return dict(self._options)

    def __str__(self) -> str:
        return f"{self._format}[{redacted_options(self._options)}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormatDescriptor) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self._format, tuple(sorted(self._options.items()))))

    class Builder:
        """Collects the options of a format."""

        def __init__(self, j_builder: Any = None, *, _format: str = "") -> None:
            self._format = _format
            self._options: dict[str, str] = {}

        def option(self, key: str | ConfigOption[Any], value: Any) -> FormatDescriptor.Builder:
            """Sets an option of the format."""
            self._options[_key(key)] = option_text(value)
            return self

        def build(self) -> FormatDescriptor:
            """The description."""
            return FormatDescriptor(format=self._format, options=self._options)


def _key(key: str | ConfigOption[Any]) -> str:
    if isinstance(key, ConfigOption):
        return key.key
    if not isinstance(key, str) or not key:
        raise refuse(f"option: found {key!r} as the key, expected text")
    return key


def option_text(value: Any) -> str:
    """An option's value as text, as in a WITH clause."""
    return Configuration.from_dict({"value": value}).to_dict()["value"]


add_pyflink_names(globals())
