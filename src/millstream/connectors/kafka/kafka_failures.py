"""What goes wrong between a job and Kafka, in sentences: what was found, and what to do next.

Two kinds. What the world may mend by itself (a broker that is away, a leader that moves, another driver at work) is a
`ConnectorAwayError`: the restart strategy tries again. What a person must mend (a permission, a limit, a setting) is a
`ConnectorError`, and ends the job at once. In both cases nothing is lost: an epoch that is committed and not published
is published first at the next start.

A call that waits for a broker only says that time is up; why, the client's threads have told before (`Complaints`).
No sentence holds a secret: what a client says passes `hide_secrets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.clients import Complaints, error_of
from millstream.errors import ConnectorAwayError, ConnectorError

__all__ = ["DEFAULT_TIMEOUT_MS", "failure_of", "is_fenced", "no_answer", "timeout_s"]

DEFAULT_TIMEOUT_MS = 30_000
"""How long a broker may take to answer, unless the program says delivery.timeout.ms."""

_AGAIN = "start the job again: it publishes what waits first"
_ACL = "for example by kafka-acls.sh --add --allow-principal User:…; nothing is lost meanwhile"
_LOGIN = "refused the login", "Check security.protocol, sasl.mechanism, and the user's name and password"
_PROPERTIES = "the client refuses the properties", "Correct them"
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
        f"This user needs Read on the group; to write, Read on the groups that begin with the prefix, {_ACL}",
    ),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "says",
        f"This user needs Write and Describe on transactional ids that begin with the prefix, {_ACL}",
    ),
    "CLUSTER_AUTHORIZATION_FAILED": (
        "says",
        f"This user needs Describe on the cluster; to write, IdempotentWrite on it, {_ACL}",
    ),
    "UNKNOWN_TOPIC_OR_PART": _NO_TOPIC,
    "_UNKNOWN_TOPIC": _NO_TOPIC,
    "_UNKNOWN_PARTITION": ("says", "Check the partition's number"),
    "INVALID_TOPIC_EXCEPTION": ("says", "A topic's name has letters, digits, '.', '_' and '-'"),
    "UNSUPPORTED_VERSION": ("says", "Give it brokers of version 2.1 or newer"),
    "_INVALID_ARG": _PROPERTIES,
    "MSG_SIZE_TOO_LARGE": (
        "refuses a message that is larger than the broker takes",
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
"""Errors that a person must mend: what Kafka does, and what to do."""

_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")
_NO_DESTINATION = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
_FINAL_TLS = ("certificate verify failed", "unknown ca", "bad certificate", "certificate required", "wrong version")
_REACH = "Check the address in bootstrap.servers, that the brokers run, and security.protocol"


def timeout_s(settings: ClientSettings) -> float:
    """How long the program is willing to wait for the broker."""
    return float(settings.get("delivery.timeout.ms") or settings.get("message.timeout.ms") or DEFAULT_TIMEOUT_MS) / 1000


def is_fenced(error: Any) -> bool:
    """Whether another producer of the same transactional id has begun since."""
    return error.name() in _FENCED


def failure_of(
    error: Any,
    settings: ClientSettings,
    subject: str = "",
    *,
    destination: str | None = None,
    complaints: Complaints | None = None,
) -> ConnectorError:
    """What to raise for an error of the client (a KafkaError or KafkaException) that ended `subject`, "listing topics".

    `destination` is the topic that is written to, where it is about one. `complaints` are asked where the error itself
    says little.
    """
    cause = error_of(error)
    is_destination_missing = destination is not None and cause.name() in _NO_DESTINATION
    if cause.name() not in _FINAL and not is_fenced(cause) and complaints is not None:
        cause = complaints.telling((*_FINAL, "_SSL", "_RESOLVE")) or cause
    name, text = cause.name(), settings.hide_secrets(cause.str().strip().rstrip("."))
    topic = "" if destination is None else f", topic {destination!r}"
    where = f"{subject}: " * bool(subject) + f"Kafka at {settings.bootstrap_servers}{topic}"
    if is_destination_missing:
        return ConnectorAwayError(f"{where} does not exist, and the broker did not create it ({text}). Create it.")
    if is_fenced(cause):
        return ConnectorAwayError(
            f"{where}: another driver of this job publishes ({text}). If one was started by mistake, stop one of them."
        )
    if name in _FINAL:
        found, advice = _FINAL[name]
        return ConnectorError(f"{where} {found}: {text}. {advice}.")
    if name == "_SSL" and any(sign in text.lower() for sign in _FINAL_TLS):
        return ConnectorError(
            f"{where} cannot be spoken to by TLS: {text}. Check security.protocol, and that ssl.ca.location "
            "(ssl.truststore.location) names the certificates that signed the broker's."
        )
    if not name.startswith("_"):
        return ConnectorAwayError(f"{where} is not ready: {text}. If it stays so, look at its brokers.")
    return ConnectorAwayError(f"{where} does not answer: {text}. {_REACH}.")


def no_answer(settings: ClientSettings, what: str, complaints: Complaints) -> ConnectorAwayError:
    """What to raise when a broker that has answered before keeps silent. Of what the client's threads told since, the
    newest may be long past: it is said, and nothing follows from it."""
    told = complaints.telling()
    reason = "" if told is None else f" The client's last word: {settings.hide_secrets(told.str())}."
    return ConnectorAwayError(f"{what}: Kafka at {settings.bootstrap_servers} does not answer.{reason} {_REACH}.")
