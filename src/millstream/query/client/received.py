"""What servers send, before it is believed: bounded, JSON, of the right job, and of the form that answers have.

A server may be broken, of another job that has taken over its port, or not a server of ours at all. What it sends is
then no answer, and another server is asked; it is never a wrong answer, an error of Python's, or all of the memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from millstream.query.client.directory import ServerPlace
from millstream.query.wire.served import ServedState

__all__ = [
    "ANSWER_BYTES_MAX",
    "JobIdentity",
    "NoAnswer",
    "body_of",
    "check_epoch",
    "check_form",
    "json_of_body",
    "lines_of",
    "place_of",
    "state_of",
]

ANSWER_BYTES_MAX = 256 << 20
"""More than a server sends for one question, by its own limit."""

_EPOCH_MAX = 10**12
_GROUPS_MAX = 1 << 15
_TYPE_DEPTH_MAX = 64


class NoAnswer(ValueError):
    """What came is no answer to the question."""


class JobIdentity:
    """The job that is asked: its id, or the name by which its id is learnt from the first answer."""

    def __init__(self, job: str) -> None:
        self.job = job
        self._job_id: str | None = None

    def check(self, answer: Mapping[str, Any]) -> None:
        """NoAnswer for an answer of another job, or one that does not say of which epoch it is.

        >>> job = JobIdentity("clicks")
        >>> job.check({"job": "clicks", "job_id": "1", "epoch": 7, "watermark": None, "committed_ms": 5, "age_ms": 2})
        >>> job.check({"job": "clicks", "job_id": "2", "epoch": 7, "watermark": None, "committed_ms": 5, "age_ms": 2})
        Traceback (most recent call last):
        millstream.query.client.received.NoAnswer: it answers for job 'clicks' (id '2'), not for 'clicks' (id '1')
        """
        name, job_id = answer.get("job"), answer.get("job_id")
        if not isinstance(job_id, str) or self.job not in (name, job_id) or self._job_id not in (None, job_id):
            known = f" (id {self._job_id!r})" if self._job_id else ""
            raise NoAnswer(f"it answers for job {_shown(name)} (id {_shown(job_id)}), not for {self.job!r}{known}")
        for field in ("epoch", "committed_ms", "age_ms"):
            if not _is_whole(answer.get(field), 0, _EPOCH_MAX if field == "epoch" else 1 << 63):
                raise NoAnswer(f"its answer has no {field}")
        watermark = answer.get("watermark")
        if watermark is not None and not _is_whole(watermark, -(1 << 63), 1 << 63):
            raise NoAnswer("its answer has a watermark that is none")
        self._job_id = job_id


def body_of(response: httpx.Response, most: int = ANSWER_BYTES_MAX) -> bytes:
    """All that a response has, up to so many bytes. Nothing is unpacked: a few bytes could become any number."""
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise NoAnswer(f"its answer is packed as {_shown(encoding)}, which was not asked for")
    parts, size = [], 0
    for part in response.iter_raw():
        size += len(part)
        if size > most:
            raise NoAnswer(f"its answer has more than {most} bytes")
        parts.append(part)
    return b"".join(parts)


def json_of_body(body: bytes) -> dict[str, Any]:
    """The object that a body is."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NoAnswer("its answer is no JSON") from error
    if not isinstance(told, dict):
        raise NoAnswer("its answer is no JSON object")
    return told


def lines_of(response: httpx.Response, most: int = ANSWER_BYTES_MAX) -> Iterator[bytes]:
    """The lines of a response as they come, each up to so many bytes."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise NoAnswer("its events are packed, which was not asked for")
    parts: list[bytes] = []
    size = 0
    for part in response.iter_raw():
        *ends, rest = part.split(b"\n")
        for end in ends:
            yield b"".join([*parts, end]).removesuffix(b"\r")
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > most:
            raise NoAnswer(f"an event has more than {most} bytes")


def place_of(told: Any) -> ServerPlace | None:
    """A server that another names; None for what is none."""
    if not isinstance(told, Mapping):
        return None
    url, flight_url = told.get("url"), told.get("flight_url")
    first, last = told.get("first_group"), told.get("last_group")
    is_all = first is None and last is None
    if not isinstance(url, str) or not (is_all or all(_is_whole(end, 0, _GROUPS_MAX) for end in (first, last))):
        return None
    return ServerPlace(url, first, last, flight_url if isinstance(flight_url, str) else None)


def state_of(told: Any) -> ServedState | None:
    """A state that a server describes; None for what is none."""
    if not isinstance(told, Mapping):
        return None
    name, kind, groups = told.get("name"), told.get("kind"), told.get("key_groups")
    key_type, value_type = told.get("key_type"), told.get("value_type")
    if not (isinstance(name, str) and isinstance(kind, str) and _is_whole(groups, 0, _GROUPS_MAX + 1)):
        return None
    if not (_is_shallow(key_type) and _is_shallow(value_type)):
        return None
    return ServedState(name, kind, key_type, value_type, bool(told.get("is_pickled")), groups or 0)


def check_epoch(epoch: int, asked: int | None, epoch_min: int) -> None:
    """NoAnswer for an answer of another epoch than the one that was `asked` for, or of one older than was seen.

    >>> check_epoch(7, None, 7)
    >>> check_epoch(6, None, 7)
    Traceback (most recent call last):
    millstream.query.client.received.NoAnswer: its answer is of epoch 6, and that of 7 or a newer one was asked for
    """
    if asked is not None and epoch != asked:
        raise NoAnswer(f"its answer is of epoch {epoch}, and that of {asked} was asked for")
    if asked is None and epoch < epoch_min:
        raise NoAnswer(f"its answer is of epoch {epoch}, and that of {epoch_min} or a newer one was asked for")


def check_form(answer: Mapping[str, Any], part: str, question: Any = None) -> None:
    """NoAnswer unless the answer has that part, as large as the question asks for.

    >>> check_form({"reads": [{"values": [1, 2]}]}, "reads", {"reads": [{"state": "totals", "keys": ["a", "b"]}]})
    """
    content = answer.get(part)
    if part not in answer or (part != "value" and not isinstance(content, list)):
        raise NoAnswer(f"its answer has no {part}")
    if part == "reads":
        values = [read.get("values") if isinstance(read, Mapping) else None for read in content or ()]
        counts = [len(read["keys"]) for read in question["reads"]]
        if [len(one) if isinstance(one, list) else None for one in values] != counts:
            raise NoAnswer("its answer does not have a value for every key")
    if part == "points":
        for point in content or ():
            whole = isinstance(point, Mapping) and "value" in point and _is_whole(point.get("epoch"), 0, _EPOCH_MAX)
            if not whole or not _is_whole(point.get("committed_ms"), 0, 1 << 63):
                raise NoAnswer("its answer has a point of no epoch")


def _is_shallow(written: Any, depth: int = 0) -> bool:
    """Whether a type, as it is written, is no deeper than types are."""
    inner = written.values() if isinstance(written, Mapping) else written if isinstance(written, list) else ()
    return depth < _TYPE_DEPTH_MAX and all(_is_shallow(one, depth + 1) for one in inner)


def _is_whole(value: Any, first: int, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and first <= value < end


def _shown(value: Any) -> str:
    return repr(value)[:100] if isinstance(value, str | int | None) else f"a {type(value).__name__}"
