"""Options of Kafka tables, and the source and sink they configure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from millstream.connectors.contracts import Sink
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.offsets import EARLIEST, LATEST, OffsetRule, Partition, committed, specific
from millstream.connectors.kafka.outgoing_messages import RecordSerializer
from millstream.connectors.kafka.partitions import Subscription
from millstream.connectors.kafka.sink import Delivery, kafka_sink
from millstream.connectors.tables.factory import GROWS, TableDefinition, TableFactory, TableOption, TableSource
from millstream.connectors.tables.formats.format import FormatOptions, TableFormat
from millstream.connectors.tables.formats.formats import (
    format_changes,
    format_metadata,
    format_names,
    format_of,
    format_options,
)
from millstream.connectors.tables.kafka.fields import MessageFields, message_fields
from millstream.connectors.tables.kafka.rows import (
    METADATA,
    KafkaColumn,
    KafkaTableSource,
    RowMessages,
    RowMetadata,
    TableReading,
)
from millstream.connectors.tables.options import TableOptions
from millstream.errors import NotYetError, ProgramError
from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import RowExpression

__all__ = [
    "GUARANTEES",
    "STOPS",
    "KafkaFactory",
    "kafka_column",
    "offset_rule",
    "row_metadata",
    "subscription",
    "transaction_prefix",
]

STARTS = ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
STOPS = ("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
GUARANTEES = ("exactly-once", "at-least-once", "none")
_FORMATS = ", ".join(format_names(False))
_OF_VALUES = "value."
_OFFSETS = re.compile(r"partition:(\d+),offset:(-?\d+)")


class KafkaFactory(TableFactory):
    """Topics as tables: insert-only, or with the changes of a changelog format."""

    name = "kafka"
    options: Sequence[TableOption] = (
        TableOption("topic", "the topic; to read several, separate them by semicolons"),
        TableOption("topic-pattern", "reads all topics whose whole name matches"),
        TableOption("properties.bootstrap.servers", "addresses of brokers, separated by commas", required=True),
        TableOption("properties.group.id", "the consumer group for committed offsets"),
        TableOption("properties.", "any property of Kafka clients", prefix=True),
        TableOption("format", f"the format of values: {_FORMATS}"),
        TableOption("value.format", "alternative name of 'format'"),
        TableOption("key.format", f"the format of keys: {_FORMATS}"),
        TableOption("key.fields", "the columns in the key, separated by semicolons"),
        TableOption("key.fields-prefix", "prefix of these columns' names in the table only"),
        TableOption(
            "value.fields-include", "ALL, or EXCEPT_KEY: the value lacks the columns of the key", default="ALL"
        ),
        TableOption("scan.startup.mode", f"one of {', '.join(STARTS)}", default="group-offsets"),
        TableOption("scan.startup.specific-offsets", "as 'partition:0,offset:42;partition:1,offset:300'"),
        TableOption("scan.startup.timestamp-millis", "milliseconds since 1970"),
        TableOption("scan.bounded.mode", f"one of {', '.join(STOPS)}", default="unbounded"),
        TableOption("scan.bounded.specific-offsets", "in the same form"),
        TableOption("scan.bounded.timestamp-millis", "milliseconds since 1970"),
        TableOption(
            "scan.topic-partition-discovery.interval", "how often to look for partitions; 0: once", default="5 min"
        ),
        TableOption("sink.partitioner", "default: by the key, else any partition", default="default"),
        TableOption("sink.delivery-guarantee", f"one of {', '.join(GUARANTEES)}", default="at-least-once"),
        TableOption("sink.transactional-id-prefix", "prefix of transaction names, for exactly-once"),
    )
    metadata_keys: ClassVar[Mapping[str, DataType]] = METADATA
    written_metadata = ("timestamp", "headers")

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        options, formats = self._options(table)
        fields = message_fields(options, table)
        width = len(table.physical.fields)
        chosen = tuple(range(width + len(table.metadata)) if columns is None else columns)
        value_keys = value_metadata(table, chosen)
        emitted_columns = tuple(kafka_column(table, fields, at, value_keys) for at in chosen)
        key = None
        if any(column.key is not None for column in emitted_columns):
            key = formats["key"].decoder(FormatOptions(options, "key."), fields.key_type)
        value = formats["value"].decoder_with(_value_options(options), fields.value_type, value_keys)
        stop = offset_rule(options, "scan.bounded", STOPS)
        settings = ClientSettings.of(options.below("properties."))
        source = KafkaTableSource.of(
            TableReading(emitted_columns, value, key),
            settings,
            subscription(options, table),
            start=offset_rule(options, "scan.startup", STARTS) or EARLIEST,
            stop=stop,
            bounded=stop is not None,
            group=settings.get("group.id") or "",
            discovery_interval_ms=options.duration_ms("scan.topic-partition-discovery.interval") or 0,
        )
        return TableSource(source, columns=chosen, bounded=stop is not None)

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        options, formats = self._options(table)
        fields = message_fields(options, table)
        topics = options.listed("topic")
        if len(topics) != 1:
            raise ProgramError(f"table {table.name!r}: rows are written to one topic. Set 'topic' = '…'")
        partitioner = options.text("sink.partitioner")
        if partitioner != "default":
            raise NotYetError.of(
                f"table {table.name!r}: 'sink.partitioner' = {partitioner!r}", "partitioners", "omit it"
            )
        delivery: Any = options.choice("sink.delivery-guarantee", GUARANTEES)
        prefix = transaction_prefix(options, delivery)
        value = formats["value"].encoder(_value_options(options), fields.value_type)
        key = None
        if fields.key:
            encoder = formats["key"].encoder(FormatOptions(options, "key."), fields.key_type)
            key = RowMessages(encoder, fields.key, fields.key_type)
        serializer = RecordSerializer(
            RowMessages(value, fields.value, fields.value_type, formats["value"].changes != GROWS),
            key,
            topic=topics[0],
            metadata=row_metadata(table),
        )
        settings = ClientSettings.of(options.below("properties."))
        guarantee: Delivery = delivery
        return kafka_sink(settings, serializer, guarantee, prefix)

    def metadata_of(self, options: Mapping[str, str]) -> Mapping[str, DataType]:
        """Metadata of messages; that of the value format has a prefix."""
        of_values = format_metadata(options.get("format") or options.get("value.format"))
        return {**{f"{_OF_VALUES}{key}": of for key, of in of_values.items()}, **METADATA}

    def emitted_changes(self, options: Mapping[str, str]) -> tuple[str, ...]:
        return format_changes(options.get("format") or options.get("value.format"))

    def accepted_changes(self, table: TableDefinition) -> tuple[str, ...]:
        return self.emitted_changes(table.options)

    def _options(self, table: TableDefinition) -> tuple[TableOptions, dict[str, TableFormat]]:
        """The options, and the formats of `value` and `key`."""
        settings = table.options
        whole = settings.get("format")
        value, key = settings.get("value.format"), settings.get("key.format")
        if (whole is None) == (value is None):
            present = "both" if whole is not None else "neither"
            raise ProgramError(
                f"table {table.name!r} has {present} of the options 'format' and 'value.format'. Set one of "
                f"them: {_FORMATS}"
            )
        known = (
            *self.options,
            *format_options([whole or ""]),
            *format_options([value or ""], "value."),
            *format_options([key or ""], "key."),
        )
        options = TableOptions(table.name, settings, known)
        named = "format" if whole is not None else "value.format"
        formats = {"value": format_of(str(whole or value), table.name, named, for_files=False)}
        if table.primary_key and self.accepted_changes(table) == GROWS:
            raise ProgramError(
                f"The Kafka table {table.name!r} with {whole or value!r} format doesn't support defining PRIMARY KEY "
                "constraint on the table, because it can't guarantee the semantic of primary key. Omit the key, "
                "or write 'connector' = 'upsert-kafka', whose messages replace each other by key"
            )
        if key is not None:
            formats["key"] = format_of(key, table.name, "key.format", for_files=False)
        return options, formats


def transaction_prefix(options: TableOptions, delivery: str) -> str:
    """The prefix of transaction names; exactly-once needs one that no other job uses."""
    prefix = options.text("sink.transactional-id-prefix")
    if delivery == "exactly-once" and prefix is None:
        raise ProgramError(
            f"table {options.table!r}: 'sink.delivery-guarantee' = 'exactly-once' needs the option "
            "'sink.transactional-id-prefix'. Use a name that no other job uses"
            ""
        )
    return prefix or "millstream"


def _value_options(options: TableOptions) -> FormatOptions:
    return FormatOptions(options, "" if options.text("format") is not None else "value.")


def value_metadata(table: TableDefinition, chosen: Sequence[int]) -> list[str]:
    """The keys of the `chosen` metadata columns that the value format provides."""
    keys = [each.key for each in table.metadata]
    read = [keys[at - len(table.physical.fields)] for at in chosen if at >= len(table.physical.fields)]
    return [key.removeprefix(_OF_VALUES) for key in read if key.startswith(_OF_VALUES)]


def kafka_column(
    table: TableDefinition, fields: MessageFields, at: int, value_keys: Sequence[str] = (), prefers_key: bool = False
) -> KafkaColumn:
    """The origin of a column; `value_keys`: the metadata of values, which follows their fields; `prefers_key`: a
    column that is in both is read from the key."""
    width = len(table.physical.fields)
    if at >= width:
        metadata = table.metadata[at - width]
        if metadata.key.startswith(_OF_VALUES):
            place = len(fields.value) + value_keys.index(metadata.key.removeprefix(_OF_VALUES))
            return KafkaColumn(metadata.name, metadata.type, value=place)
        return KafkaColumn(metadata.name, metadata.type, metadata=metadata.key)
    field = table.physical.fields[at]
    if at in fields.value and not (prefers_key and at in fields.key):
        return KafkaColumn(field.name, field.data_type, value=fields.value.index(at))
    return KafkaColumn(field.name, field.data_type, key=fields.key.index(at))


def row_metadata(table: TableDefinition) -> RowMetadata:
    """The positions of the writable metadata: after the physical columns."""
    written = [each for each in table.metadata if not each.is_virtual]
    places = {each.key: len(table.physical.fields) + at for at, each in enumerate(written)}
    return RowMetadata(places.get("timestamp"), places.get("headers"))


def subscription(options: TableOptions, table: TableDefinition) -> Subscription:
    """The topics to read."""
    topics, pattern = options.listed("topic"), options.text("topic-pattern")
    if bool(topics) == (pattern is not None):
        present = "both" if topics else "neither"
        raise ProgramError(
            f"table {table.name!r} has {present} of the options 'topic' and 'topic-pattern'. Set one of them"
        )
    return Subscription(topics=topics, pattern=pattern)


def offset_rule(options: TableOptions, family: str, modes: Sequence[str]) -> OffsetRule | None:
    """Where to start or to stop; None: never."""
    mode = options.choice(f"{family}.mode", modes)
    if mode == "unbounded":
        return None
    if mode == "earliest-offset":
        return EARLIEST
    if mode == "latest-offset":
        return LATEST
    if mode == "group-offsets":
        if options.text("properties.group.id") is None:
            raise ProgramError(
                f"table {options.table!r}: '{family}.mode' is 'group-offsets', but there is no group. Set "
                "'properties.group.id', or another mode, such as 'earliest-offset'"
            )
        reset: Any = options.choice("properties.auto.offset.reset", ("earliest", "latest", "none")) or "none"
        return committed(reset)
    if mode == "timestamp":
        millis = options.integer(f"{family}.timestamp-millis")
        if millis is None:
            raise _incomplete(options, family, mode, "timestamp-millis")
        return OffsetRule("timestamp", timestamp_ms=millis)
    return specific(_specific(options, family), "none")


def _specific(options: TableOptions, family: str) -> dict[Partition, int]:
    name = f"{family}.specific-offsets"
    parts, topics = options.listed(name), options.listed("topic")
    if not parts:
        raise _incomplete(options, family, "specific-offsets", "specific-offsets")
    if len(topics) != 1:
        raise ProgramError(f"table {options.table!r}: {name!r} need a single topic. Set 'topic' = '…'")
    matches = [_OFFSETS.fullmatch(part.replace(" ", "")) for part in parts]
    if not all(matches):
        raise options.wrong(name, "'partition:0,offset:42;partition:1,offset:300'")
    return {Partition(topics[0], int(match[1])): int(match[2]) for match in matches if match is not None}


def _incomplete(options: TableOptions, family: str, mode: str, name: str) -> ProgramError:
    return ProgramError(f"table {options.table!r}: '{family}.mode' is {mode!r}, and '{family}.{name}' is missing")
