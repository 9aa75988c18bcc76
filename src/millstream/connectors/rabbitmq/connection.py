"""Connections to a RabbitMQ server, and the classification of client errors. Passwords are never shown.

Only heartbeats distinguish a frozen server from a silent one, so they are always enabled: the
client closes a connection after one or two intervals of a heartbeat plus five seconds, at most half a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from millstream.connectors.service_urls import checked_url
from millstream.errors import ConnectorAwayError, ConnectorError, PlatformError, ProgramError
from millstream.redaction import redact
from millstream.storage.certificates import certificate_refusal

__all__ = ["RabbitAddress", "open_channel", "rabbit_errors", "tolerate_invalid_headers"]

_DEFAULT_PORT = 5672
_HEARTBEAT_S = 10
"""Default heartbeat interval."""


@dataclass(frozen=True)
class RabbitAddress:
    """A server and the credentials, as a `uri` or as separate fields. Many fields: each is one of PyFlink's
    settings."""

    host: str = "localhost"
    port: int = _DEFAULT_PORT
    virtual_host: str = "/"
    user_name: str = "guest"
    password: str = field(default="guest", repr=False)
    uri: str | None = field(default=None, repr=False)
    connection_timeout_ms: int = 10_000
    heartbeat_s: int | None = None
    frame_max: int | None = None
    channel_max: int | None = None
    prefetch_count: int = 10_000

    @property
    def place(self) -> str:
        """Host and port, for display."""
        if self.uri is None:
            return f"{self.host}:{self.port}"
        parts = urlsplit(self.uri)
        return f"{parts.hostname}:{parts.port or _DEFAULT_PORT}"

    def check(self) -> None:
        """Raise a ProgramError for settings that the client rejects, if the client is installed."""
        secrets: list[str | None] = [self.password]
        if self.uri is not None:
            secrets.append(checked_url(self.uri, "RMQConnectionConfig", ("amqp", "amqps")).password)
        try:
            import pika
        except ImportError:
            return  # reported when the job starts
        try:
            host, parameters = urlsplit(self.uri or "amqp://host").hostname, self.parameters(pika)
        except (ValueError, TypeError) as error:
            reason = redact(str(error), secrets)
            raise ProgramError(f"RMQConnectionConfig: the client rejects it: {reason}. Correct it") from None
        if not host or not parameters.host:
            raise ProgramError("RMQConnectionConfig: the uri has no host. Write amqp://user:password@host:5672/%2F")

    def parameters(self, pika: Any) -> Any:
        """The settings as parameters of the client."""
        if self.uri is not None:
            parameters = pika.URLParameters(self.uri)
        else:
            credentials = pika.PlainCredentials(self.user_name, self.password)
            parameters = pika.ConnectionParameters(self.host, self.port, self.virtual_host, credentials)
        timeout_s = self.connection_timeout_ms / 1000
        parameters.socket_timeout = parameters.stack_timeout = timeout_s
        parameters.blocked_connection_timeout = 3 * timeout_s
        parameters.connection_attempts = 1
        for name in ("heartbeat_s", "frame_max", "channel_max"):
            if getattr(self, name) is not None:
                setattr(parameters, name.removesuffix("_s"), getattr(self, name))
        parameters.heartbeat = parameters.heartbeat or _HEARTBEAT_S  # heartbeats cannot be disabled
        return parameters


def open_channel(address: RabbitAddress, queue: str) -> tuple[Any, Any]:
    """A connection and a channel on it; declares the queue as durable, unless it exists with other settings."""
    try:
        import pika
    except ImportError as error:
        raise PlatformError("RabbitMQ needs the package pika: pip install 'millstream[rabbitmq]'") from error
    tolerate_invalid_headers()
    with rabbit_errors(address, queue):
        connection = pika.BlockingConnection(address.parameters(pika))
        channel = connection.channel()
        try:
            channel.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != 404:
                raise
            channel = connection.channel()
            channel.queue_declare(queue, durable=True)
        return connection, channel


@lru_cache(maxsize=1)
def tolerate_invalid_headers() -> None:
    """Makes the client read an undecodable header table as an empty one. It fails at a NaN, a time beyond the year
    9999 and deeply nested tables, and closes the connection: one message would stop every consumer repeatedly.
    """
    import pika.data

    decode: Callable[[bytes, int], tuple[dict[Any, Any], int]] = pika.data.decode_table

    def decode_table(encoded: bytes, offset: int) -> tuple[dict[Any, Any], int]:
        try:
            return decode(encoded, offset)
        except (ValueError, ArithmeticError, OSError, TypeError, RecursionError, pika.exceptions.AMQPError):
            return {}, offset + 4 + int.from_bytes(encoded[offset : offset + 4])

    pika.data.decode_table = decode_table


@contextmanager
def rabbit_errors(address: RabbitAddress, queue: str) -> Iterator[None]:
    """Converts client errors to ours: transient ones, and permanent ones."""
    import pika.exceptions as raised
    from pika.adapters.utils.connection_workflow import AMQPConnectorException

    place = f"RabbitMQ at {address.place}"
    try:
        yield
    except (raised.AuthenticationError, raised.ProbableAuthenticationError, raised.ProbableAccessDeniedError) as error:
        raise ConnectorError(
            f"{place} denied access ({type(error).__name__}). Check user, password and virtual host"
        ) from None
    except raised.ChannelClosedByBroker as error:
        reason = f"{place} refuses, for queue {queue!r}: {error.reply_code} {error.reply_text}"
        raise ConnectorError(f"{reason}. Check the queue and the user's permissions") from error
    except (raised.AMQPError, AMQPConnectorException, OSError) as error:
        if (refusal := certificate_refusal(error)) is not None:
            raise ConnectorError(f"{place}: {refusal}. Check the address, and the certificate") from error
        detail = str(error) or type(error).__name__
        raise ConnectorAwayError(f"{place} does not answer ({detail})") from error
