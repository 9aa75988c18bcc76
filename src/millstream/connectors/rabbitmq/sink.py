"""Publishes messages to a RabbitMQ queue after their epoch is committed, and waits for confirmation by the server.

The server cannot report whether it accepted a message whose confirmation was lost, so a message may be repeated: at
least once. Every message has a `message_id`, and an equal `correlation_id`, which is the same when it is repeated
and never reused: a consumer that uses it, as our source does, processes every message exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.common.serialization import SerializationSchema
from millstream.connectors.contracts import CommitId, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.connectors.messages.codecs import encoder_of
from millstream.connectors.rabbitmq.connection import RabbitAddress, open_channel, rabbit_errors
from millstream.connectors.staged_columns import StagedColumns, read_staged_columns
from millstream.errors import ConnectorAwayError, ConnectorError
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = ["RabbitSink"]

_PERSISTENT = 2
_MESSAGES_AT_ONCE = 1_000
"""The number of messages sent before waiting for the server."""


class RabbitSink(Sink):
    """Publishes messages encoded by `schema` to `queue`."""

    guarantee = "at-least-once"

    def __init__(self, address: RabbitAddress, queue: str, schema: SerializationSchema) -> None:
        self._address, self._queue, self._schema = address, queue, schema
        self._connection: Any = None
        self._channel: Any = None
        self._returned = False

    def __getstate__(self) -> dict[str, Any]:
        # A connection belongs to the driver.
        return {**self.__dict__, "_connection": None, "_channel": None}

    def opened(self, session: Any) -> Sink:
        self._connect()
        return self

    def writer(self, context: WriterContext) -> SinkWriter:
        return _MessageWriter(self._schema, context)

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        if not publish:
            return
        was_connected = self._connection is not None
        try:
            self._publish_closing(commit, publish, store)
        except ConnectorAwayError:
            # Heartbeats are not answered between epochs, so the server may have closed the connection long ago.
            if not was_connected:
                raise
            self._publish_closing(commit, publish, store)

    def _publish_closing(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        try:
            with rabbit_errors(self._address, self._queue):
                self._publish(commit, publish, store)
        except BaseException:
            self.close()  # a channel may be unusable after an error
            raise

    def _publish(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        import pika

        self._connect()
        bodies = (
            body
            for staged in publish
            for columns in read_staged_columns(staged, store)
            for body in columns.column(0).to_pylist()
        )
        for number, body in enumerate(bodies):
            name = f"{commit}-{number}"
            properties = pika.BasicProperties(delivery_mode=_PERSISTENT, message_id=name, correlation_id=name)
            self._channel.basic_publish("", self._queue, body or b"", properties, mandatory=True)
            if (number + 1) % _MESSAGES_AT_ONCE == 0:
                self._settle()
        self._settle()

    def _settle(self) -> None:
        """Wait until the server has confirmed all messages sent."""
        self._channel.tx_commit()
        self._connection.process_data_events(0)  # returned messages are only reported here
        if self._returned:
            raise ConnectorError(
                f"RabbitMQ at {self._address.place} no longer has the queue {self._queue!r}. Create it, and start again"
            )

    def _connect(self) -> None:
        if self._connection is None or not self._connection.is_open:
            self._connection, self._channel = open_channel(self._address, self._queue)
            self._returned = False
            self._channel.add_on_return_callback(self._on_return)
            self._channel.tx_select()

    def _on_return(self, *returned: Any) -> None:
        self._returned = True

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        return pending, "output sent after that epoch remains sent, and is repeated under other ids"

    def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None and connection.is_open:
            connection.close()

    def describe(self) -> str:
        return f"queue {self._queue!r} of RabbitMQ at {self._address.place}"


class _MessageWriter(SinkWriter):
    def __init__(self, schema: SerializationSchema, context: WriterContext) -> None:
        self._encoder, self._staged = encoder_of(schema, context.input_type), StagedColumns(context)

    def write(self, batch: Batch) -> None:
        self._staged.add(pa.RecordBatch.from_pydict({"body": self._encoder.encode(batch)}))

    def stage(self) -> Sequence[Json]:
        return self._staged.stage()
