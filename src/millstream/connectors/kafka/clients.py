"""Creates all clients of Kafka: consumers, producers and clients for administration.

A client runs its own threads. They report why a broker is unreachable (a refused login, an untrusted
certificate, a closed port), while the call that waits for the broker only times out. `ClientErrors` stores
these reports; `kafka_failures` combines both into one message.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from millstream.connectors.kafka.client_settings import ClientSettings, Role
from millstream.errors import ConfigurationError, PlatformError

__all__ = ["ClientErrors", "confluent", "error_of", "new_client"]

_LOG = logging.getLogger(__name__)


class _ClientLog:
    """Receives the lines that librdkafka would write to stderr, bypassing logging. At debug level:
    raised errors report the relevant ones, and a fenced publisher is a normal event."""

    def log(self, level: int, *line: Any) -> None:
        """Called by the client. `level` is the client's log level."""
        _LOG.debug(*line)


_CLIENT_LOG = _ClientLog()

_QUIET = 2
"""librdkafka's log level: critical only. Other reports appear in the error they lead to."""


def confluent() -> ModuleType:
    """The Kafka client module."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise PlatformError("Kafka needs the package confluent-kafka. Run: pip install 'millstream[kafka]'") from error
    module: ModuleType = confluent_kafka
    return module


class ClientErrors:
    """The errors reported by a client's threads, the newest of each kind. Called by the client."""

    def __init__(self) -> None:
        self._newest: dict[str, Any] = {}

    def __call__(self, error: Any) -> None:
        self._newest.pop(error.name(), None)
        self._newest[error.name()] = error

    def __getitem__(self, name: str) -> Any:
        """The newest error of this name, or None."""
        return self._newest.get(name)

    def clear(self) -> None:
        """Drop the errors, since the client works again."""
        self._newest.clear()

    def most_specific(self, first: Iterable[str] = ()) -> Any:
        """The most specific error: one of `first`, or the newest; None without errors. That all brokers are down is
        only a consequence of other errors."""
        for name in first:
            if name in self._newest:
                return self._newest[name]
        others = [error for name, error in self._newest.items() if name != "_ALL_BROKERS_DOWN"]
        return others[-1] if others else None


def new_client(
    role: Role, settings: ClientSettings, client_errors: ClientErrors, on_delivery: Any = None, **overrides: Any
) -> Any:
    """A client. `overrides` are the connector's own properties, with '_' for '.' in their names. A producer calls
    `on_delivery` with the delivery error and the message."""
    module = confluent()
    properties = settings.for_role(role, **overrides)
    properties.setdefault("log_level", _QUIET)
    properties |= {"error_cb": client_errors, "logger": _CLIENT_LOG}
    properties |= {} if on_delivery is None else {"on_delivery": on_delivery}
    try:
        if role == "admin":
            from confluent_kafka.admin import AdminClient

            return AdminClient(properties)
        return (module.Consumer if role == "consumer" else module.Producer)(properties)
    except (module.KafkaException, TypeError, ValueError) as error:
        cause = error_of(error)
        text = cause.str().strip() if isinstance(cause, module.KafkaError) else str(error)
        refusal = f"Kafka's client rejects the properties: {text}. Correct those of the {role}."
        raise ConfigurationError(settings.hide_secrets(refusal)) from None


def error_of(error: Any) -> Any:
    """The KafkaError in an exception, or the argument itself."""
    return error.args[0] if isinstance(error, BaseException) and error.args else error
