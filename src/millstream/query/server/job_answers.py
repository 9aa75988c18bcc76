"""Computes a server's answers about its job, the same for HTTP and Flight: rights, key groups, types, then one epoch.

Every answer is computed from one epoch and carries its number. Before a value is read, these checks run in order: the
reader may read this state; the state exists; it can be read without unpickling; every key has the right type and is
held here. A rejected request reads nothing from the store.

States that were not declared queryable are named `OPERATOR::STATE` (`query.catalog`), if the view of the job allows
them. The key groups of their keys are unknown, so every server answers for them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.errors import PickledValueError
from millstream.query.catalog import QueryableState, served_name
from millstream.query.epoch_view import EpochView
from millstream.query.errors import UnknownStateError
from millstream.query.job_view import JobView
from millstream.query.server.answer_bytes import check_size, has_small_values, json_size, read_in_portions
from millstream.query.server.rights import Reader
from millstream.query.server.settings import Limits
from millstream.query.statement_answers import AnswerBounds
from millstream.query.window_reads import WindowView
from millstream.query.wire.json_values import json_of, key_of_json, key_of_text
from millstream.query.wire.refusals import (
    AheadError,
    BadQuestionError,
    KeyMisfitError,
    NotHereError,
    PickledStateError,
    TooLargeError,
    TooOldError,
)
from millstream.query.wire.servers import ServedState

__all__ = ["JobAnswers", "Moment", "moment_ms"]

_CLOCK_TOLERANCE_MS = 60_000
_SCANNED_ROWS = 256
_CHECKED_BYTES_MAX = 64 << 20  # about 20 ms


@dataclass(frozen=True)
class Moment:
    """The requested epoch: selected by number or time, otherwise the newest, which must not be older than
    `epoch_min`."""

    epoch: int | None = None
    time: str | None = None
    epoch_min: int | None = None

    @property
    def is_past(self) -> bool:
        """Whether it names an epoch, so that the answer never changes."""
        return self.epoch is not None or self.time is not None


class JobAnswers:
    """Answers queries of one job. `held` is the range of key groups of this server, None for all."""

    def __init__(self, job: JobView, held: range | None, limits: Limits, now_ms: Callable[[], int]) -> None:
        self.job, self.held, self._limits, self._now_ms = job, held, limits, now_ms
        self._states: tuple[int, dict[str, ServedState]] = (0, {})
        job.set_name_in_errors(f"job '{job.job}'")
        job.check_ahead(_CHECKED_BYTES_MAX)

    # --- which epoch ------------------------------------------------------------------------------------------------

    @contextmanager
    def epoch(self, moment: Moment) -> Iterator[EpochView]:
        """Context manager: the requested epoch, open for the duration of the block."""
        if not moment.is_past:
            newest = self.job.newest()
            if moment.epoch_min is not None and newest.epoch < moment.epoch_min:
                raise _too_old(newest.epoch, f"{moment.epoch_min} or newer")
            yield newest
            return
        if moment.epoch is not None and moment.time is not None:
            raise BadQuestionError("epoch= and time= are both set. Set one of them.")
        if moment.epoch is not None and moment.epoch > (newest := self.job.newest()).epoch:
            raise _too_old(newest.epoch, str(moment.epoch))
        past = self.job.at(epoch=moment.epoch, time=self._past_ms(moment.time))
        try:
            yield past
        finally:
            past.close()

    def _past_ms(self, time: str | None) -> int | None:
        if time is None:
            return None
        wanted_ms, now_ms = moment_ms(time), self._now_ms()
        if wanted_ms > now_ms + _CLOCK_TOLERANCE_MS:
            raise AheadError(
                f"time {time} is {(wanted_ms - now_ms) // 1000} s ahead of this server's clock ({now_ms} ms). Correct "
                "the clock that made it, or omit it for the newest epoch."
            )
        return wanted_ms

    def has_reached(self, epoch: int) -> bool:
        """Whether the newest epoch is this one or a newer one."""
        return self.job.newest().epoch >= epoch

    @property
    def bounds(self) -> AnswerBounds:
        """The bounds of an answer to a statement."""
        return AnswerBounds(self._limits.scan_rows_max, self._limits.answer_bytes_max)

    def facts(self, epoch: EpochView) -> dict[str, Any]:
        """The facts of an epoch that every answer contains."""
        return self.facts_of(epoch.epoch, epoch.watermark, epoch.committed_ms)

    def facts_of(self, epoch: int, watermark: int | None, committed_ms: int) -> dict[str, Any]:
        """The same facts of an epoch given by its number and times."""
        return {
            "job": self.job.job,
            "job_id": self.job.job_id,
            "epoch": epoch,
            "watermark": watermark,
            "committed_ms": committed_ms,
            "age_ms": max(0, self._now_ms() - committed_ms),  # the driver's clock may be ahead of ours
        }

    def tag(self, epoch: int) -> str:
        """The ETag of answers of an epoch."""
        return f'"{self.job.job_id[:16]}-{epoch}"'

    # --- which state ------------------------------------------------------------------------------------------------

    def states(self, reader: Reader) -> list[ServedState]:
        """The states that the reader may read."""
        return [state for state in self.states_at(self.job.newest()).values() if reader.may_read(state.name)]

    def states_at(self, epoch: EpochView) -> dict[str, ServedState]:
        """The states of the newest epoch, by name; described once per epoch."""
        number, states = self._states
        if number != epoch.epoch:
            states = {state.name: state for state in map(_served, epoch.states())}
            self._states = (epoch.epoch, states)
        return states

    def readable(self, reader: Reader, name: str) -> ServedState:
        """The state, if the reader may read it without anything being unpickled."""
        state = self._state(reader, name)
        if state.is_pickled:
            raise PickledStateError(
                f"state {name!r} has values, fields or map keys without a declared type. These are stored as pickles, "
                "and unpickling runs code, which is not done for the network. Declare a type for all of it (its "
                "descriptor's type_info), or read its bytes in process with millstream.query."
            )
        return state

    def _state(self, reader: Reader, name: str) -> ServedState:
        reader.check(name)
        newest = self.job.newest()
        states = self.states_at(newest)
        try:
            return states.get(name) or _served(newest.state(name))
        except UnknownStateError as error:
            readable = [state for state in states if reader.may_read(state)]
            if len(readable) == len(states):
                raise
            # The library's error lists all existing states; the token may not be allowed to read all of them.
            raise UnknownStateError(
                f"job '{self.job.job}' has no state {name[:100]!r}. States that token '{reader.name}' may read: "
                f"{', '.join(readable) or 'none'}."
            ) from error

    # --- values of keys ---------------------------------------------------------------------------------------------

    def value(self, reader: Reader, name: str, text: str, key_format: str, moment: Moment) -> dict[str, Any]:
        """The value of one key in a path."""
        _, key = self._key_in_path(reader, name, text, key_format)
        with self.epoch(moment) as epoch:
            return self.value_at(epoch, name, key)

    def value_at(self, epoch: EpochView, name: str, key: Any) -> dict[str, Any]:
        """The value of one key, after all checks."""
        value = epoch.get(name, key)
        answer = {"key": json_of(key), "found": value is not None, "value": self._sized(json_of(value))}
        return {**self.facts(epoch), "state": name, **answer}

    def _sized(self, answer: Any) -> Any:
        check_size(json_size(answer), self._limits.answer_bytes_max)
        return answer

    def values(
        self, reader: Reader, questions: Sequence[tuple[str, Sequence[Any]]], moment: Moment
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The values of many keys of one or several states, all of one epoch: its facts, and an answer for each."""
        count = sum(len(keys) for _, keys in questions)
        if count > self._limits.keys_max:
            raise TooLargeError(
                f"{count} keys are requested at once, of {self._limits.keys_max} at most. Use several requests "
                "with the same epoch=, or use Arrow Flight."
            )
        typed = []
        for name, json_keys in questions:
            state = self.readable(reader, name)
            keys = [key_of_json(key, state.key_type) for key in json_keys]
            self.check_held(state, keys)
            typed.append((state, keys))
        with self.epoch(moment) as epoch:
            answers, left = [], self._limits.answer_bytes_max
            for state, keys in typed:
                values, size = self._values(epoch, state, keys, left)
                left -= size
                # An existing value is never null in JSON.
                has_value = [value is not None for value in values]
                json_keys = [json_of(key) for key in keys]
                answers.append({"state": state.name, "keys": json_keys, "found": has_value, "values": values})
            return self.facts(epoch), answers

    def _values(self, epoch: EpochView, state: ServedState, keys: Sequence[Any], most: int) -> tuple[list[Any], int]:
        """The values as JSON, and their approximate size in bytes."""

        def read(portion: Sequence[Any]) -> list[Any]:
            return [json_of(value) for value in epoch.get_many(state.name, portion)]

        if has_small_values(state):
            return (read(keys) if keys else []), 0
        parts = read_in_portions(keys, read, json_size, most, is_small=False)
        return [value for part in parts for value in part], sum(map(json_size, parts))

    def columns(self, reader: Reader, name: str, keys: pa.Array, epoch: EpochView) -> pa.RecordBatch:
        """The values of a column of keys at an open epoch."""
        state = self.readable(reader, name)
        _check_no_pickles(epoch, name)
        if self.held is not None and state.key_groups:
            try:
                groups = state.groups_of_column(keys)
            except (pa.ArrowException, ValueError, OverflowError) as error:
                raise KeyMisfitError(f"a column of {keys.type} has an invalid key: {error}.") from error
            foreign = next((group for group in groups if group not in self.held), None)
            if foreign is not None:
                raise self._not_here(foreign)
        parts = read_in_portions(
            keys,
            lambda portion: epoch.get_columns(name, portion),
            lambda batch: int(batch.nbytes),
            self._limits.answer_bytes_max,
            is_small=has_small_values(state),
        )
        if not parts:
            return epoch.get_columns(name, keys)
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def windows(self, reader: Reader, name: str, text: str, key_format: str, moment: Moment) -> dict[str, Any]:
        """The open windows of a key, with their results so far."""
        _, key = self._key_in_path(reader, name, text, key_format)
        with self.epoch(moment) as epoch:
            return self.windows_at(epoch, name, key)

    def windows_at(self, epoch: EpochView, name: str, key: Any) -> dict[str, Any]:
        """The open windows of one key, after all checks."""
        windows = self._sized(_windows(epoch.windows(name, key)))
        return {**self.facts(epoch), "state": name, "key": json_of(key), "windows": windows}

    def watched_value(self, reader: Reader, name: str, text: str, key_format: str) -> dict[str, Any]:
        """The answer for a watcher of a key: its value, or its open windows."""
        read = self.windows if self._state(reader, name).kind == "window" else self.value
        return read(reader, name, text, key_format, Moment())

    def scan(self, reader: Reader, name: str, prefix: str | None, limit: int, moment: Moment) -> dict[str, Any]:
        """At most `limit` rows of a state. Every server answers this, regardless of its key groups."""
        self.readable(reader, name)
        rows_max = self._limits.scan_rows_max
        if limit > rows_max:
            raise TooLargeError(
                f"{limit} rows are requested, of {rows_max} at most. Request fewer, or read the state in process with "
                "millstream.query."
            )
        with self.epoch(moment) as epoch:
            rows: list[dict[str, Any]] = []
            read_bytes, size, most = 0, 0, self._limits.answer_bytes_max
            for batch in self.scanned(epoch, name, prefix, limit + 1):
                read_bytes += batch.nbytes  # the size in memory, before any of it becomes Python values
                check_size(read_bytes, most)
                for start in range(0, batch.num_rows, _SCANNED_ROWS):
                    json_rows = [json_of(row) for row in batch.slice(start, _SCANNED_ROWS).to_pylist()]
                    size += json_size(json_rows)
                    check_size(size, most)
                    rows += json_rows
                if len(rows) > limit:
                    break
            return {**self.facts(epoch), "state": name, "rows": rows[:limit], "is_cut": len(rows) > limit}

    def scanned(self, epoch: EpochView, name: str, prefix: str | None, limit: int) -> pa.RecordBatchReader:
        """Rows of a state at an open epoch, as Arrow."""
        _check_no_pickles(epoch, name)
        return epoch.scan(name, prefix=prefix, limit=limit)

    def series(self, reader: Reader, name: str, text: str, key_format: str) -> dict[str, Any]:
        """The value of a key at every retained epoch."""
        state, key = self._key_in_path(reader, name, text, key_format)
        points: list[dict[str, Any]] = []
        size = 0
        for epoch, committed_ms, value in self.job.points(name, key):
            json_value = _windows(value) if state.kind == "window" else json_of(value)
            points.append({"epoch": epoch, "committed_ms": committed_ms, "value": json_value})
            size += json_size(points[-1])
            check_size(size, self._limits.answer_bytes_max)  # before the next one is read
        return {**self.facts(self.job.newest()), "state": name, "key": json_of(key), "points": points}

    def _key_in_path(self, reader: Reader, name: str, text: str, key_format: str) -> tuple[ServedState, Any]:
        """The state and key named in a path, both checked."""
        state = self.readable(reader, name)
        key = key_of_text(text, state.key_type, key_format)
        self.check_held(state, [key])
        return state, key

    def check_held(self, state: ServedState, keys: Sequence[Any]) -> None:
        """Reject keys of key groups that this server does not hold."""
        if self.held is None or not keys or not state.key_groups:
            return
        foreign = next((group for group in state.groups_of(keys) if group not in self.held), None)
        if foreign is not None:
            raise self._not_here(foreign)

    def _not_here(self, group: int) -> NotHereError:
        assert self.held is not None
        return NotHereError(
            f"a key is in key group {group}, and this server holds {self.held[0]} to {self.held[-1]}. Query the server "
            "that holds it; QueryClient finds it.",
            key_group=group,
        )


def _served(state: QueryableState) -> ServedState:
    return ServedState(
        served_name(state), state.kind, state.key_type, state.value_type, state.is_pickled, state.key_groups
    )


def _check_no_pickles(epoch: EpochView, name: str) -> None:
    """A state with a declared type may have lacked one in an older epoch: its pickles are never sent."""
    if epoch.state(name).is_pickled:
        raise PickledValueError(
            f"state {name!r} had values without a declared type in epoch {epoch.epoch}, stored as pickles: these "
            "are not sent over the network. Query a newer epoch"
        )


def _windows(windows: Sequence[WindowView]) -> list[dict[str, Any]]:
    return [
        {
            "start_ms": window.start,
            "end_ms": window.end,
            "result": json_of(window.result),
            "is_accumulator": window.is_accumulator,
        }
        for window in windows
    ]


def _too_old(newest: int, wanted: str) -> TooOldError:
    return TooOldError(
        f"the newest epoch here is {newest}, and {wanted} is requested. Try again in a moment, or use another server.",
        epoch=newest,
    )


def moment_ms(text: str) -> int:
    """A time as milliseconds since 1970 or in ISO 8601; without a zone it is UTC.

    >>> moment_ms("1000"), moment_ms("1970-01-01T00:00:01Z"), moment_ms("1970-01-01T01:00:01+01:00")
    (1000, 1000, 1000)
    """
    if text.isascii() and text.isdecimal() and len(text) < 17:
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(text)
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        return int(zoned.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise BadQuestionError(
            f"time {text[:60]!r} is not a time. Send milliseconds since 1970, or ISO 8601 (2026-11-15T10:00:00Z)."
        ) from error
