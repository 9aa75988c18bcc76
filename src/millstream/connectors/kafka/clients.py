"""Clients of Kafka: every consumer, producer and client for administration is made here.

A client works on threads of its own. Why it cannot reach a broker it tells there (a refused login, a certificate that
is not trusted, a closed port), while the call that waits for the broker only says that time is up. `Complaints` keeps
what was told; `kafka_failures` makes one sentence of both.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from millstream.connectors.kafka.client_settings import ClientSettings, Role
from millstream.errors import ConfigurationError, PlatformError

__all__ = ["Complaints", "confluent", "error_of", "new_client"]

_LOG = logging.getLogger(__name__)


class _ClientLog:
    """Takes the lines that librdkafka would write to stderr itself, past everybody's logging. For whoever looks for
    them: what matters of them is told by errors, and that a publisher was fenced is nothing to shout about."""

    def log(self, level: int, *line: Any) -> None:
        """Called by the client. `level` is what the client thinks of it."""
        _LOG.debug(*line)


_CLIENT_LOG = _ClientLog()

_QUIET = 2
"""librdkafka's log level: only what is critical. Its complaints are told with the error they lead to."""


def confluent() -> ModuleType:
    """The module of Kafka's client."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise PlatformError("Kafka needs the package confluent-kafka. Run: pip install 'millstream[kafka]'") from error
    module: ModuleType = confluent_kafka
    return module


class Complaints:
    """What a client's threads told of, the newest of each kind. Called by the client."""

    def __init__(self) -> None:
        self._newest: dict[str, Any] = {}

    def __call__(self, error: Any) -> None:
        self._newest.pop(error.name(), None)
        self._newest[error.name()] = error

    def __getitem__(self, name: str) -> Any:
        """The newest error of this name; None where there was none."""
        return self._newest.get(name)

    def forget(self) -> None:
        """The client works again."""
        self._newest.clear()

    def telling(self, first: Iterable[str] = ()) -> Any:
        """The complaint that says most: one of those in `first`, or the newest; None where there was none. That all
        brokers are down follows from others."""
        for name in first:
            if name in self._newest:
                return self._newest[name]
        others = [error for name, error in self._newest.items() if name != "_ALL_BROKERS_DOWN"]
        return others[-1] if others else None


def new_client(
    role: Role, settings: ClientSettings, complaints: Complaints, on_delivery: Any = None, **ours: Any
) -> Any:
    """A client. `ours` is what the connector itself decides, with '_' for '.' in its names. A producer calls
    `on_delivery` with what became of a message, and the message."""
    module = confluent()
    properties = settings.for_role(role, **ours)
    properties.setdefault("log_level", _QUIET)
    properties |= {"error_cb": complaints, "logger": _CLIENT_LOG}
    properties |= {} if on_delivery is None else {"on_delivery": on_delivery}
    try:
        if role == "admin":
            from confluent_kafka.admin import AdminClient

            return AdminClient(properties)
        return (module.Consumer if role == "consumer" else module.Producer)(properties)
    except (module.KafkaException, TypeError, ValueError) as error:
        cause = error_of(error)
        text = cause.str().strip() if isinstance(cause, module.KafkaError) else str(error)
        refusal = f"Kafka's client refuses the properties: {text}. Correct those of the {role}."
        raise ConfigurationError(settings.hide_secrets(refusal)) from None


def error_of(error: Any) -> Any:
    """The KafkaError in an exception, or the one given."""
    return error.args[0] if isinstance(error, BaseException) and error.args else error
