"""`'connector' = 'upsert-kafka'`: a compacted topic as a table; the last message of a key is its row.

The message key holds the primary key. A message without a value deletes the row of its key. The source reads
upserts, from the start of the topic; the planner completes them to full changes. The sink writes one message for
each key that an epoch changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.connectors.contracts import Sink
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.offsets import EARLIEST
from millstream.connectors.kafka.outgoing_messages import RecordSerializer
from millstream.connectors.kafka.sink import Delivery, kafka_sink
from millstream.connectors.tables.factory import GROWS, UPSERTS, TableDefinition, TableOption, TableSource
from millstream.connectors.tables.formats.format import FormatOptions, TableFormat
from millstream.connectors.tables.kafka.factory import (
    GUARANTEES,
    STOPS,
    KafkaFactory,
    kafka_column,
    offset_rule,
    row_metadata,
    subscription,
    transaction_prefix,
)
from millstream.connectors.tables.kafka.fields import MessageFields, key_and_value
from millstream.connectors.tables.kafka.rows import KafkaTableSource, RowMessages, TableReading
from millstream.connectors.tables.options import TableOptions
from millstream.errors import ProgramError
from millstream.expressions.row_expressions import RowExpression

__all__ = ["UpsertKafkaFactory"]

_SHARED_OPTIONS = (
    "topic",
    "properties.bootstrap.servers",
    "properties.",
    "key.format",
    "key.fields-prefix",
    "value.format",
    "value.fields-include",
    "scan.bounded.mode",
    "scan.bounded.specific-offsets",
    "scan.bounded.timestamp-millis",
    "scan.topic-partition-discovery.interval",
    "sink.delivery-guarantee",
    "sink.transactional-id-prefix",
)


class UpsertKafkaFactory(KafkaFactory):
    """Topics as tables that change by key."""

    name = "upsert-kafka"
    options = (
        *(option for option in KafkaFactory.options if option.name in _SHARED_OPTIONS),
        TableOption("sink.buffer-flush.max-rows", "accepted as in Flink; an epoch writes one message per key"),
        TableOption("sink.buffer-flush.interval", "accepted as in Flink; an epoch writes one message per key"),
    )

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        options, formats, fields = self._parts(table)
        width = len(table.physical.fields)
        chosen = tuple(range(width + len(table.metadata)) if columns is None else columns)
        emitted_columns = tuple(kafka_column(table, fields, at, prefers_key=True) for at in chosen)
        key = formats["key"].decoder(FormatOptions(options, "key."), fields.key_type)
        value = formats["value"].decoder(FormatOptions(options, "value."), fields.value_type)
        stop = offset_rule(options, "scan.bounded", STOPS)
        settings = ClientSettings.of(options.below("properties."))
        source = KafkaTableSource.of(
            TableReading(emitted_columns, value, key, is_upserts=True),
            settings,
            subscription(options, table),
            start=EARLIEST,
            stop=stop,
            bounded=stop is not None,
            group=settings.get("group.id") or "",
            discovery_interval_ms=options.duration_ms("scan.topic-partition-discovery.interval") or 0,
        )
        return TableSource(source, columns=chosen, bounded=stop is not None)

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        options, formats, fields = self._parts(table)
        topics = options.listed("topic")
        if len(topics) != 1:
            raise ProgramError(f"table {table.name!r}: rows are written to one topic. Set 'topic' = '…'")
        delivery: Any = options.choice("sink.delivery-guarantee", GUARANTEES)
        value = formats["value"].encoder(FormatOptions(options, "value."), fields.value_type)
        key = formats["key"].encoder(FormatOptions(options, "key."), fields.key_type)
        serializer = RecordSerializer(
            RowMessages(value, fields.value, fields.value_type, has_tombstones=True),
            RowMessages(key, fields.key, fields.key_type),
            topic=topics[0],
            metadata=row_metadata(table),
        )
        guarantee: Delivery = delivery
        prefix = transaction_prefix(options, delivery)
        return kafka_sink(ClientSettings.of(options.below("properties.")), serializer, guarantee, prefix)

    def emitted_changes(self, options: Mapping[str, str]) -> tuple[str, ...]:
        return UPSERTS

    def accepted_changes(self, table: TableDefinition) -> tuple[str, ...]:
        return UPSERTS

    def _parts(self, table: TableDefinition) -> tuple[TableOptions, dict[str, TableFormat], MessageFields]:
        if not table.primary_key:
            raise ProgramError(
                f"table {table.name!r}: 'upsert-kafka' tables require to define a PRIMARY KEY constraint. The PRIMARY "
                "KEY specifies which columns should be read from or write to the Kafka message key. Add PRIMARY KEY "
                "(…) NOT ENFORCED"
            )
        if table.options.get("key.format") is None:
            raise ProgramError(f"table {table.name!r} needs the option 'key.format', the format of the primary key")
        options, formats = self._options(table)
        for part, format in formats.items():
            if format.changes != GROWS:
                raise ProgramError(
                    f"table {table.name!r}: 'upsert-kafka' connector doesn't support '{format.name}' as {part} format, "
                    f"because '{format.name}' is not in insert-only mode. Use the connector 'kafka' for it"
                )
        return options, formats, key_and_value(options, table, table.primary_key)
