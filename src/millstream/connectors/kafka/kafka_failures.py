"""What goes wrong between a sink and Kafka, in sentences: what was found, and what to do next.

Two kinds. What the world may mend by itself (a broker that is away, a leader that moves, another driver at work) is a
`ConnectorAwayError`: the restart strategy tries again. What a person must mend (a permission, a limit, a setting) is a
`ConnectorError` or `ConfigurationError`, and ends the job at once. In both cases nothing is lost: an epoch that is
committed and not published is published first at the next start.

No sentence holds a secret: what a client says passes `hide_secrets`.
"""

from __future__ import annotations

from typing import Any

from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.errors import ConfigurationError, ConnectorAwayError, ConnectorError, PlatformError

__all__ = [
    "DEFAULT_TIMEOUT_MS",
    "admin_library",
    "client_library",
    "failure_of",
    "is_fenced",
    "no_answer",
    "refused_settings",
    "timeout_s",
]

DEFAULT_TIMEOUT_MS = 30_000
"""How long a broker may take to answer, unless the program says delivery.timeout.ms."""

_PERMISSIONS = {
    "TOPIC_AUTHORIZATION_FAILED": "Write and Describe on the topic",
    "GROUP_AUTHORIZATION_FAILED": "Read on the groups that begin with the transactional id prefix",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "Write and Describe on transactional ids that begin with the prefix",
    "CLUSTER_AUTHORIZATION_FAILED": "IdempotentWrite on the cluster",
}
_LOGIN = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE")
_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")
_REFUSED = (
    "INVALID_RECORD",
    "INVALID_TIMESTAMP",
    "POLICY_VIOLATION",
    "UNSUPPORTED_COMPRESSION_TYPE",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    "UNSUPPORTED_VERSION",
)
_TOPIC_MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")


def client_library() -> Any:
    """confluent-kafka's module."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise PlatformError(
            "Kafka needs the package confluent-kafka, which is not installed. Run: pip install millstream[kafka]"
        ) from error
    return confluent_kafka


def admin_library() -> Any:
    """confluent-kafka's module for administration."""
    client_library()
    from confluent_kafka import admin

    return admin


def timeout_s(settings: ClientSettings) -> float:
    """How long the program is willing to wait for the broker."""
    return float(settings.get("delivery.timeout.ms") or settings.get("message.timeout.ms") or DEFAULT_TIMEOUT_MS) / 1000


def is_fenced(error: Any) -> bool:
    """Whether another producer of the same transactional id has begun since."""
    return error.name() in _FENCED


def failure_of(error: Any, subject: str | None, settings: ClientSettings) -> Exception:
    """What to raise for an error of the client; `subject` is the topic, where it is about one."""
    name, text = error.name(), settings.hide_secrets(error.str())
    where = f"Kafka at {settings.bootstrap_servers}" + (f", topic {subject!r}" if subject else "")
    if name in _PERMISSIONS:
        return ConnectorError(f"{where}: {text}. This user needs {_PERMISSIONS[name]}; nothing is lost meanwhile")
    if name == "_INVALID_ARG":
        return ConfigurationError(f"{where}: the client refuses the properties: {text}. Correct them")
    if name in _LOGIN:
        return ConfigurationError(f"{where} refused the login: {text}. Correct the security properties of the sink")
    if name == "MSG_SIZE_TOO_LARGE":
        return ConnectorError(
            f"{where}: a message is larger than the broker takes ({text}). Raise max.message.bytes of the topic and "
            "start the job again: it publishes what waits first"
        )
    if name in _REFUSED:
        return ConnectorError(
            f"{where} refuses a message: {text}. If the topic's settings forbid it (cleanup.policy=compact needs keys, "
            "message.timestamp.after.max.ms bounds timestamps), change them and start the job again: it publishes what "
            "waits first"
        )
    if name == "INVALID_TRANSACTION_TIMEOUT":
        return ConfigurationError(
            f"{where} allows no transaction.timeout.ms of this length ({text}). Set it to at most the broker's "
            "transaction.max.timeout.ms, with set_property"
        )
    if is_fenced(error):
        return ConnectorAwayError(
            f"{where}: another driver of this job publishes ({text}). If one was started by mistake, stop one of them"
        )
    if name in _TOPIC_MISSING:
        return ConnectorAwayError(f"{where} does not exist, and the broker did not create it ({text}). Create it")
    return ConnectorAwayError(f"{where}: {text}. Is the broker running, and can this machine reach it?")


def no_answer(settings: ClientSettings, last_error: list[Any], what: str) -> ConnectorAwayError:
    """What to raise when the broker keeps silent."""
    reason = f" The client's last word: {settings.hide_secrets(last_error[0].str())}." if last_error else ""
    return ConnectorAwayError(
        f"Kafka at {settings.bootstrap_servers} gives no answer: {what}.{reason} Is the broker running, and can this "
        "machine reach it?"
    )


def refused_settings(error: Exception, settings: ClientSettings) -> ConfigurationError:
    """What to raise for settings that librdkafka does not take."""
    cause = error.args[0] if error.args else error
    text = cause.str() if hasattr(cause, "str") else str(cause)
    return ConfigurationError(f"Kafka's client refuses the properties: {settings.hide_secrets(text)}. Correct them")
