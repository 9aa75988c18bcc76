"""Error messages for failures between a job and Kafka: the failure, and what to do next.

There are two kinds. Transient failures (an unavailable broker, a moving leader, another active driver) are a
`ConnectorAwayError`: the restart strategy retries. Failures that need a person (a permission, a limit, a setting) are a
`ConnectorError`, and end the job at once. In both cases nothing is lost: the next start first publishes an epoch that
is committed but not published.

A call that waits for a broker only times out; the client's threads have reported the reason before (`ClientErrors`).
No message contains a secret: client strings pass `hide_secrets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.clients import ClientErrors, error_of
from millstream.errors import ConnectorAwayError, ConnectorError

__all__ = ["DEFAULT_TIMEOUT_MS", "failure_of", "is_fenced", "silence_error", "timeout_s"]

DEFAULT_TIMEOUT_MS = 30_000
"""Time limit for a broker's response, unless delivery.timeout.ms is set."""

_AGAIN = "start the job again: it publishes pending output first"
_ACL = "for example by kafka-acls.sh --add --allow-principal User:…; nothing is lost until then"
_LOGIN = "refused the login", "Check security.protocol, sasl.mechanism, and the user's name and password"
_PROPERTIES = "the client rejects the properties", "Correct them"
_REFUSED = (
    "refuses a message",
    "If the topic's settings forbid it (cleanup.policy=compact needs keys, message.timestamp.after.max.ms bounds "
    f"timestamps), change them and {_AGAIN}",
)
_NO_TOPIC = "has no such topic", "Check its name, or create it: kafka-topics.sh --create --topic …"
_FINAL: Mapping[str, tuple[str, str]] = {
    "_AUTHENTICATION": _LOGIN,
    "SASL_AUTHENTICATION_FAILED": _LOGIN,
    "UNSUPPORTED_SASL_MECHANISM": _LOGIN,
    "ILLEGAL_SASL_STATE": _LOGIN,
    "TOPIC_AUTHORIZATION_FAILED": (
        "says",
        f"This user needs Read and Describe on the topic to read it, Write and Describe on the topic to write, {_ACL}",
    ),
    "GROUP_AUTHORIZATION_FAILED": (
        "says",
        f"This user needs Read on the group; to write, Read on the groups that start with the prefix, {_ACL}",
    ),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "says",
        f"This user needs Write and Describe on transactional ids that start with the prefix, {_ACL}",
    ),
    "CLUSTER_AUTHORIZATION_FAILED": (
        "says",
        f"This user needs Describe on the cluster; to write, IdempotentWrite on it, {_ACL}",
    ),
    "UNKNOWN_TOPIC_OR_PART": _NO_TOPIC,
    "_UNKNOWN_TOPIC": _NO_TOPIC,
    "_UNKNOWN_PARTITION": ("reports", "Check the partition's number"),
    "INVALID_TOPIC_EXCEPTION": ("reports", "A topic's name has letters, digits, '.', '_' and '-'"),
    "UNSUPPORTED_VERSION": ("reports", "Use brokers of version 2.1 or newer"),
    "_INVALID_ARG": _PROPERTIES,
    "MSG_SIZE_TOO_LARGE": (
        "refuses a message larger than its limit",
        f"Raise max.message.bytes of the topic and {_AGAIN}",
    ),
    "INVALID_RECORD": _REFUSED,
    "INVALID_TIMESTAMP": _REFUSED,
    "POLICY_VIOLATION": _REFUSED,
    "UNSUPPORTED_COMPRESSION_TYPE": _REFUSED,
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": _REFUSED,
    "INVALID_TRANSACTION_TIMEOUT": (
        "allows no transaction.timeout.ms of this length",
        "Set it to at most the broker's transaction.max.timeout.ms, with set_property",
    ),
}
"""Errors that a person must correct: Kafka's reaction, and the advice."""

_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")
_NO_DESTINATION = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
_FINAL_TLS = ("certificate verify failed", "unknown ca", "bad certificate", "certificate required", "wrong version")
_REACH = "Check the address in bootstrap.servers, that the brokers run, and security.protocol"


def timeout_s(settings: ClientSettings) -> float:
    """The program's time limit for the broker."""
    return float(settings.get("delivery.timeout.ms") or settings.get("message.timeout.ms") or DEFAULT_TIMEOUT_MS) / 1000


def is_fenced(error: Any) -> bool:
    """Whether another producer has started with the same transactional id."""
    return error.name() in _FENCED


def failure_of(
    error: Any,
    settings: ClientSettings,
    subject: str = "",
    *,
    destination: str | None = None,
    client_errors: ClientErrors | None = None,
) -> ConnectorError:
    """The exception for a client error (a KafkaError or KafkaException) that ended `subject`, "listing topics".

    `destination` is the topic being written, if any. `client_errors` provide the reason if the error itself has none.
    """
    cause = error_of(error)
    is_destination_missing = destination is not None and cause.name() in _NO_DESTINATION
    if cause.name() not in _FINAL and not is_fenced(cause) and client_errors is not None:
        cause = client_errors.most_specific((*_FINAL, "_SSL", "_RESOLVE")) or cause
    name, text = cause.name(), settings.hide_secrets(cause.str().strip().rstrip("."))
    topic = "" if destination is None else f", topic {destination!r}"
    where = f"{subject}: " * bool(subject) + f"Kafka at {settings.bootstrap_servers}{topic}"
    if is_destination_missing:
        return ConnectorAwayError(f"{where} does not exist, and the broker did not create it ({text}). Create it.")
    if is_fenced(cause):
        return ConnectorAwayError(
            f"{where}: another driver of this job publishes ({text}). If it was started by mistake, stop one of them."
        )
    if name in _FINAL:
        reaction, advice = _FINAL[name]
        return ConnectorError(f"{where} {reaction}: {text}. {advice}.")
    if name == "_SSL" and any(sign in text.lower() for sign in _FINAL_TLS):
        return ConnectorError(
            f"{where} cannot be reached by TLS: {text}. Check security.protocol, and that ssl.ca.location "
            "(ssl.truststore.location) names the certificates that signed the broker's."
        )
    if not name.startswith("_"):
        return ConnectorAwayError(f"{where} is not ready: {text}. If this persists, check its brokers.")
    return ConnectorAwayError(f"{where} does not answer: {text}. {_REACH}.")


def silence_error(settings: ClientSettings, subject: str, client_errors: ClientErrors) -> ConnectorAwayError:
    """The exception for a broker that answered before and is now silent. The newest client error since then may be
    outdated, so it is only shown in the message."""
    report = client_errors.most_specific()
    reason = "" if report is None else f" The client's last report: {settings.hide_secrets(report.str())}."
    return ConnectorAwayError(f"{subject}: Kafka at {settings.bootstrap_servers} does not answer.{reason} {_REACH}.")
