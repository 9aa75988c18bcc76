"""The driver's requests to a Kafka cluster: topics, offsets, and the offsets of a consumer group.

Each request covers all partitions at once, with one message per broker. A request without a response in time is an
error of `kafka_failures`; a partition without a leader is omitted where the result may be partial.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.clients import ClientErrors, confluent, error_of, new_client
from millstream.connectors.kafka.group_offsets import group_offsets
from millstream.connectors.kafka.kafka_failures import failure_of
from millstream.connectors.kafka.offsets import Partition
from millstream.errors import ConnectorAwayError, ConnectorError, ProgramError

__all__ = ["PATIENCE_S", "Cluster", "Topic"]

PATIENCE_S = 30.0
"""Time limit of a response."""

_GRACE_S = 5.0
_LOG = logging.getLogger(__name__)
_NO_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_ID", "INVALID_TOPIC_EXCEPTION")
_NO_LEADER = (*_NO_TOPIC, "_UNKNOWN_PARTITION", "_NOENT")


@dataclass(frozen=True)
class Topic:
    """The current state of a topic. `id` is unique for each topic ever created, even under the same name."""

    name: str
    id: str
    partition_count: int


class Cluster:
    """One cluster, seen by one consumer group. `group` "" has no committed offsets. Implements
    `offsets.OffsetLookup`. Used by one thread."""

    def __init__(self, settings: ClientSettings, group: str = "", *, reads_committed: bool = True) -> None:
        self._settings, self._group, self._reads_committed = settings, group, reads_committed
        self._client_errors = ClientErrors()
        self._admin: Any = None
        self._committing: Future[Any] | None = None

    def check_settings(self) -> None:
        """Reject unusable properties. Does not connect yet."""
        self._settings.for_role("consumer")
        self._connected()

    def close(self) -> None:
        """Close the connections."""
        self._admin = None

    # --- topics -----------------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str], timeout_s: float = PATIENCE_S) -> dict[str, Topic]:
        """Those of these topics that exist."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        module, subject = confluent(), f"looking up topic {', '.join(wanted[:3])}"
        collection = module.TopicCollection(wanted)
        existing: dict[str, Topic] = {}
        for name, answer in self._request(
            subject, lambda admin: admin.describe_topics(collection, request_timeout=timeout_s), timeout_s
        ).items():
            description = self._answer(subject, answer, timeout_s, may_be=_NO_TOPIC)
            if description is not None:
                existing[name] = Topic(name, str(description.topic_id), len(description.partitions))
        return existing

    def topic_names(self, timeout_s: float = PATIENCE_S) -> list[str]:
        """All topics visible to this user."""
        module, subject = confluent(), "listing topics"
        try:
            listing = self._connected().list_topics(timeout=timeout_s)
        except module.KafkaException as error:
            raise self._error(subject, error) from error
        return [name for name, topic in listing.topics.items() if topic.error is None]

    # --- offsets ----------------------------------------------------------------------------------------------

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return self._all_offsets(partitions, "earliest")

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return self._all_offsets(partitions, "latest")

    def at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        wanted = list(partitions)
        offsets = self._all_offsets(wanted, "for_timestamp", timestamp_ms)
        behind = [partition for partition, offset in offsets.items() if offset < 0]
        return offsets | (self.latest(behind) if behind else {})

    def known_ends(self, partitions: Iterable[Partition], timeout_s: float) -> dict[Partition, int | ConnectorError]:
        """The offset after the last record that may be read now, or why it is unknown."""
        return self._offsets(list(partitions), timeout_s, "latest")

    def _all_offsets(self, partitions: Iterable[Partition], kind: str, *arguments: Any) -> dict[Partition, int]:
        """The offsets of all partitions: unknown ones are requested again until the time limit."""
        wanted, offsets, until = list(partitions), dict[Partition, int](), time.monotonic() + PATIENCE_S
        while wanted:
            answers = self._offsets(wanted, max(1.0, until - time.monotonic()), kind, *arguments)
            offsets |= {at: answer for at, answer in answers.items() if isinstance(answer, int)}
            errors = {at: answer for at, answer in answers.items() if isinstance(answer, ConnectorError)}
            wanted = list(errors)
            if errors and time.monotonic() >= until:
                raise next(iter(errors.values()))
            if errors:
                time.sleep(0.1)
        return offsets

    def _offsets(
        self, partitions: list[Partition], timeout_s: float, kind: str, *arguments: Any
    ) -> dict[Partition, int | ConnectorError]:
        if not partitions:
            return {}
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        module = confluent()
        spec = getattr(OffsetSpec, kind)(*arguments)
        level = (
            module.IsolationLevel.READ_COMMITTED if self._reads_committed else module.IsolationLevel.READ_UNCOMMITTED
        )
        wanted = {module.TopicPartition(at.topic, at.number): spec for at in partitions}
        answers = self._request(
            "requesting offsets",
            lambda admin: admin.list_offsets(wanted, isolation_level=level, request_timeout=timeout_s),
            timeout_s,
        )
        offsets: dict[Partition, int | ConnectorError] = {}
        for at, answer in answers.items():
            partition = Partition(at.topic, at.partition)
            try:
                offsets[partition] = int(answer.result(timeout=timeout_s + _GRACE_S).offset)
            except (module.KafkaException, TimeoutError) as error:
                reason = self._error(f"requesting offsets of {partition.name}", error)
                has_no_leader = isinstance(error, module.KafkaException) and error_of(error).name() in _NO_LEADER
                # This request cannot decide whether the partition is permanently lost.
                offsets[partition] = ConnectorAwayError(reason.message) if has_no_leader else reason
        if any(isinstance(offset, int) for offset in offsets.values()):
            self._client_errors.clear()
        return offsets

    # --- the group --------------------------------------------------------------------------------------------

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        if not self._group:
            return {}
        wanted = {(at.topic, at.number): at for at in partitions}
        stored = group_offsets(self._settings, self._group, list(wanted), PATIENCE_S)
        return {wanted[place]: offset for place, offset in stored.offsets.items()}

    def commit(self, offsets: Mapping[Partition, int]) -> bool:
        """Start committing the job's offsets to the group; does not wait. False: an earlier commit is still running."""
        if not self._group or not offsets or (self._committing is not None and not self._committing.done()):
            return False
        module = confluent()
        places = [module.TopicPartition(at.topic, at.number, offset) for at, offset in offsets.items()]
        request = [module.ConsumerGroupTopicPartitions(self._group, places)]
        (self._committing,) = (
            self._connected().alter_consumer_group_offsets(request, request_timeout=PATIENCE_S).values()
        )
        assert self._committing is not None
        self._committing.add_done_callback(self._log_failure)
        return True

    def await_commit(self, timeout_s: float) -> None:
        """Wait for the running commit, so that the last one of a finished job is not lost."""
        if self._committing is not None:
            try:
                self._committing.result(timeout=timeout_s)
            except Exception:  # logged by the callback
                return

    def _log_failure(self, answer: Future[Any]) -> None:
        error = answer.exception()
        if error is not None:
            text = self._settings.hide_secrets(str(error_of(error)))
            _LOG.warning("the offsets of group '%s' could not be committed: %s", self._group, text)

    # --- requests ---------------------------------------------------------------------------------------------

    def _connected(self) -> Any:
        if self._admin is None:
            self._admin = new_client("admin", self._settings, self._client_errors)
        return self._admin

    def _request(self, subject: str, question: Any, timeout_s: float) -> dict[Any, Future[Any]]:
        module = confluent()
        try:
            answers: dict[Any, Future[Any]] = question(self._connected())
        except ProgramError:  # the client rejects its properties
            raise
        except (module.KafkaException, ValueError) as error:
            raise self._error(subject, error) from error
        return answers

    def _answer(self, subject: str, answer: Future[Any], timeout_s: float, *, may_be: tuple[str, ...] = ()) -> Any:
        """The response; None for an error whose name is in `may_be`. The client itself should report a timeout;
        this waits only slightly longer."""
        module = confluent()
        try:
            return answer.result(timeout=timeout_s + _GRACE_S)
        except module.KafkaException as error:
            if error_of(error).name() in may_be:
                return None
            raise self._error(subject, error) from error
        except TimeoutError as error:
            raise self._error(subject, error) from error

    def _error(self, subject: str, error: BaseException) -> ConnectorError:
        self._connected().poll(0)  # lets the client's threads report their errors
        if isinstance(error, (TimeoutError, ValueError)):
            module = confluent()
            error = module.KafkaException(module.KafkaError(module.KafkaError._TIMED_OUT, str(error)))
        return failure_of(error, self._settings, subject, client_errors=self._client_errors)
