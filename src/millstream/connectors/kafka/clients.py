"""Clients of Kafka, and what their errors mean.

A client works on threads of its own. Why it cannot reach a broker it tells there (a refused login, a certificate that
is not trusted, a closed port), while the call that waits for the broker only says that time is up. `Complaints` keeps
what was told, and `client_error` makes one sentence of both, with the next step. An error that time may mend is a
`ConnectorAwayError`, one that a person must mend a `ConnectorError`. No secret is in either.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from millstream.connectors.kafka.client_settings import ClientSettings, Role
from millstream.errors import ConfigurationError, ConnectorAwayError, ConnectorError, PlatformError

__all__ = ["CLIENT_LOG", "Complaints", "client_error", "confluent", "error_of", "new_client"]

_LOG = logging.getLogger(__name__)


class ClientLog:
    """Takes the lines that librdkafka would write to stderr itself, past everybody's logging. For whoever looks for
    them: what matters of them is told by errors, and that a publisher was fenced is nothing to shout about."""

    def log(self, level: int, *line: Any) -> None:
        """Called by the client. `level` is what the client thinks of it."""
        _LOG.debug(*line)


CLIENT_LOG = ClientLog()

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

    def telling(self) -> Any:
        """The complaint that says most; None where there was none. That all brokers are down follows from others."""
        for name in (*_FINAL, "_SSL", "_RESOLVE"):
            if name in self._newest:
                return self._newest[name]
        others = [error for name, error in self._newest.items() if name != "_ALL_BROKERS_DOWN"]
        return others[-1] if others else None


def new_client(role: Role, settings: ClientSettings, complaints: Complaints, **ours: Any) -> Any:
    """A client. `ours` is what the connector itself decides, with '_' for '.' in its names."""
    module = confluent()
    properties = settings.for_role(role, **ours)
    properties.setdefault("log_level", _QUIET)
    properties |= {"error_cb": complaints, "logger": CLIENT_LOG}
    try:
        if role == "admin":
            from confluent_kafka.admin import AdminClient

            return AdminClient(properties)
        return (module.Consumer if role == "consumer" else module.Producer)(properties)
    except module.KafkaException as error:
        raise ConfigurationError(
            settings.hide_secrets(
                f"Kafka refuses the {role}'s properties: {error_of(error).str().strip()}. Correct it."
            )
        ) from None
    except (TypeError, ValueError) as error:
        raise ConfigurationError(settings.hide_secrets(f"Kafka {role}: {error}. Correct its properties.")) from None


def error_of(error: Any) -> Any:
    """The KafkaError in an exception, or the one given."""
    return error.args[0] if isinstance(error, BaseException) and error.args else error


_ACL = "Have its owner allow it, for example: kafka-acls.sh --add --allow-principal User:… --operation"
_LOGIN = "Check sasl.mechanism, and the user's name and password"
_FINAL: Mapping[str, str] = {
    "_AUTHENTICATION": _LOGIN,
    "SASL_AUTHENTICATION_FAILED": _LOGIN,
    "UNSUPPORTED_SASL_MECHANISM": _LOGIN,
    "ILLEGAL_SASL_STATE": _LOGIN,
    "TOPIC_AUTHORIZATION_FAILED": f"{_ACL} Read (or Write) --topic …",
    "GROUP_AUTHORIZATION_FAILED": f"{_ACL} Read --group …",
    "CLUSTER_AUTHORIZATION_FAILED": f"{_ACL} Describe --cluster",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": f"{_ACL} Write --transactional-id …",
    "UNKNOWN_TOPIC_OR_PART": "Check the topic's name, or create it: kafka-topics.sh --create --topic …",
    "_UNKNOWN_TOPIC": "Check the topic's name, or create it: kafka-topics.sh --create --topic …",
    "_UNKNOWN_PARTITION": "Check the partition's number",
    "INVALID_TOPIC_EXCEPTION": "A topic's name has letters, digits, '.', '_' and '-'",
    "UNSUPPORTED_VERSION": "Give it brokers of version 2.1 or newer",
}
"""Errors that a person must mend, and how."""

_FINAL_TLS = ("certificate verify failed", "unknown ca", "bad certificate", "certificate required", "wrong version")


def client_error(subject: str, error: Any, settings: ClientSettings, complaints: Complaints) -> ConnectorError:
    """The error to raise where `error` (a KafkaError or KafkaException) ended `subject`, "reading the topic 'a'"."""
    cause = error_of(error)
    if cause.name() not in _FINAL:
        cause = complaints.telling() or cause
    name, reason = cause.name(), settings.hide_secrets(cause.str().strip().rstrip("."))
    where = f"Kafka at {settings.bootstrap_servers}"
    if name in _FINAL:
        return ConnectorError(f"{subject}: {where} says: {reason}. {_FINAL[name]}.")
    if name == "_SSL" and any(sign in reason.lower() for sign in _FINAL_TLS):
        return ConnectorError(
            f"{subject}: {where} cannot be spoken to by TLS: {reason}. Check security.protocol, and that "
            "ssl.ca.location (ssl.truststore.location) names the certificates that signed the broker's."
        )
    if not name.startswith("_"):
        return ConnectorAwayError(f"{subject}: {where} is not ready: {reason}. If it stays so, look at its brokers.")
    return ConnectorAwayError(
        f"{subject}: {where} does not answer: {reason}. Check the address in bootstrap.servers, "
        "that the brokers run, and security.protocol."
    )
