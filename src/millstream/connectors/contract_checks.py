"""Checks the return values of sources and sinks against their contract.

A source or sink is the user's own class, and Python lets it return anything: None, where a `return` is
missing; a list of names, where splits were expected; an offset that JSON cannot hold. Used unchecked, it
would make the job fail later and elsewhere or, worse, work until its first restart. So the engine calls sources and
sinks through these functions only. Each returns the method's result, or raises an error that names the class, the
method, the value returned, the value expected, and the line where the method is defined.

Offsets that are plain numbers or strings, the usual case, cost one type check.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

import pyarrow as pa

from millstream.connectors.contracts import (
    CommitPlan,
    Json,
    Offset,
    Outlook,
    RestorePoint,
    Sink,
    SinkWriter,
    Source,
    SourceContext,
    Split,
    WriterContext,
)
from millstream.connectors.splits_on_demand import SplitsOnDemand
from millstream.errors import ProgramError
from millstream.records.watermarks import MIN_WATERMARK
from millstream.storage.store import Store

__all__ = [
    "backlog_of",
    "check_commit",
    "due_ms_of",
    "is_complete",
    "is_finished",
    "item_error",
    "listed_splits",
    "may_end_early",
    "new_writer",
    "offset_at_end",
    "opened_sink",
    "opened_source",
    "outlook_of",
    "planned_commit",
    "reach_of",
    "read_items",
    "removes_input",
    "restored_pending",
    "source_watermark",
    "staged_items",
]

_PLAIN = (int, str)
_SHOWN_CHARACTERS_MAX = 120


# --- sources, on the driver -----------------------------------------------------------------------------------


def opened_source(source: Source, store: Store, session: Any, *, again: bool = False) -> Source:
    """The source, ready for the job; `again`: only to read earlier ranges again."""
    if source.bounded and type(source).finished is Source.finished:
        raise ProgramError(
            f"{type(source).__name__} is bounded and never says where a split ends, so the job could not end. Override "
            "finished(split, offset), or leave bounded False",
            at=_line_of(source, "reach"),
        )
    method = "reopened" if again else "opened"
    answer = getattr(source, method)(store, session)
    if answer is None:  # nothing needed preparation
        return source
    if not isinstance(answer, Source):
        raise _contract_error(source, method, answer, "the source that is to be used (None: this one)")
    return answer


def removes_input(source: Source) -> bool:
    """Whether the source removes stored input. Then it receives every position, and removes splits itself."""
    return type(source).released is not Source.released


def listed_splits(source: Source, context: SourceContext, known_count: int = 0) -> Sequence[Split]:
    """All splits the source knows now, in its order; any collection or generator is accepted. The first
    `known_count` were checked before."""
    answer: Any = source.splits(context)
    if isinstance(answer, SplitsOnDemand):
        return answer  # from our own sources, perhaps a million splits: checking would create them all
    if isinstance(answer, (str, bytes)) or not isinstance(answer, Iterable):
        raise _contract_error(source, "splits", answer, "a list of Split(name, start, info)")
    splits = answer if isinstance(answer, (list, tuple)) else list(answer)
    names: set[str] = set()
    for split in splits[known_count:]:
        if not isinstance(split, Split):
            raise _contract_error(source, "splits", split, "nothing but Split(name, start, info) in its list", "lists")
        if not isinstance(split.name, str) or not split.name:
            raise _contract_error(
                source, "splits", split.name, "a string that is not empty", "lists a split whose name is"
            )
        if split.name in names:
            raise ProgramError(
                f"{type(source).__name__}.splits lists {split.name!r} twice. A name identifies one split permanently: "
                "its position is stored under it",
                at=_line_of(source, "splits"),
            )
        names.add(split.name)
        if type(split.start) not in _PLAIN:
            _check_json(source, "splits", split.start, f"lists split {split.name!r} with the start", exact=True)
    return splits


def reach_of(source: Source, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
    """How far the next epoch may read `split`."""
    if split.info is not None and type(split.info) not in _PLAIN:
        # Checked here instead of in `listed_splits`, because a source may list very many splits and read few.
        _check_json(source, "splits", split.info, f"lists split {split.name!r} with the info")
    stop = source.reach(split, offset, budget, context)
    if type(stop) in _PLAIN and (type(stop) is not int or type(offset) is not int or stop >= offset):
        return stop
    subject = f"of split {split.name!r} from {offset!r} returned"
    if stop is None and offset is not None:
        expected = "how far to read: an offset, or the offset passed to it when no records are available"
        raise _contract_error(source, "reach", stop, expected, subject)
    if type(stop) is int and type(offset) is int:
        raise _contract_error(source, "reach", stop, "an offset that is not before the one passed to it", subject)
    _check_json(source, "reach", stop, subject, exact=True)
    return stop


def may_end_early(source: Source) -> bool:
    """Whether a range may be read partially. Then an epoch that reads it is never known to be the last."""
    return type(source).read_within is not Source.read_within


def backlog_of(source: Source, split: Split, offset: Offset, context: SourceContext) -> int | None:
    """Approximate number of records after `offset`, if the source knows it."""
    answer = source.backlog(split, offset, context)
    if answer is None or (type(answer) is int and answer >= 0):
        return answer
    raise _contract_error(source, "backlog", answer, "how many records are left, 0 or more, or None")


def outlook_of(source: Source, split: Split, offset: Offset, column: int) -> Outlook | None:
    """Count and earliest time of the records after `offset`, whose time is in `column`."""
    answer = source.outlook(split, offset, column)
    if answer is None or (
        isinstance(answer, Outlook)
        and type(answer.records) is int
        and answer.records >= 0
        and type(answer.earliest_ms) is int
        and -(2**63) < answer.earliest_ms < 2**63
    ):
        return answer
    raise _contract_error(source, "outlook", answer, "an Outlook of a number of records and an int in ms, or None")


def is_finished(source: Source, split: Split, offset: Offset) -> bool:
    """Whether the split ends at `offset`."""
    return _truth(source, "finished", source.finished(split, offset))


def is_complete(source: Source, context: SourceContext) -> bool:
    """Whether no further split will appear."""
    return _truth(source, "complete", source.complete(context))


# --- sources, in a task ---------------------------------------------------------------------------------------


def read_items(
    source: Source, split: Split, start: Offset, stop: Offset, bytes_max: int | None = None
) -> Iterator[Any]:
    """An iterator over the items of `read`; with a byte limit, of `read_within`."""
    bounded = bytes_max is not None and may_end_early(source)
    answer: Any = source.read_within(split, start, stop, bytes_max or 1) if bounded else source.read(split, start, stop)
    method = "read_within" if bounded else "read"
    if isinstance(answer, (str, bytes, dict)) or not isinstance(answer, Iterable):
        raise _contract_error(source, method, answer, "a generator: yield lists of records, or Arrow record batches")
    return iter(answer)


def item_error(source: Source, item: Any) -> ProgramError:
    """The error for an item that is neither a list nor a batch."""
    hint = ""
    if isinstance(item, pa.Table):
        hint = ". Yield from table.to_batches()"
    elif not isinstance(item, (str, bytes)):
        hint = f". Yield [{_short_repr(item)}] if it is one record"
    return _contract_error(source, "read", item, f"lists of records, or Arrow record batches{hint}", "yields")


def offset_at_end(source: Source, split: Split, start: Offset, stop: Offset, answer: Offset | None) -> Offset:
    """Where the range actually ended: the offset that `read` returned, or `stop` when it returned None."""
    if answer is None:
        return stop
    if type(answer) is int and type(start) is int and answer < start:
        subject = f"of split {split.name!r} from {start!r} returned"
        raise _contract_error(source, "read", answer, "the offset reached, which is not before the start", subject)
    if type(answer) not in _PLAIN:
        _check_json(source, "read", answer, f"of split {split.name!r} returned", exact=True)
    return answer


def source_watermark(source: Source, split: Split, offset: Offset) -> int | None:
    """The source's own watermark, if it has one."""
    answer = source.watermark(split, offset)
    if answer is None or (type(answer) is int and -(2**63) <= answer < 2**63):
        return answer
    raise _contract_error(source, "watermark", answer, "an int, milliseconds since 1970-01-01 UTC, or None")


# --- sinks ----------------------------------------------------------------------------------------------------


def opened_sink(sink: Sink, session: Any) -> Sink:
    """The sink, ready for the driver."""
    answer = sink.opened(session)
    if answer is None:  # nothing needed preparation
        answer = sink
    if not isinstance(answer, Sink):
        raise _contract_error(sink, "opened", answer, "the sink that is to be used (None: this one)")
    check_commit(answer, "commit, publish, store")
    if sink.dead_letters is not None:
        answer.dead_letters = sink.dead_letters
    return answer


def check_commit(sink: Sink, parameters: str) -> None:
    """Checks that `commit` accepts these parameters. A wrong call would fail permanently, after the epoch is
    committed."""
    try:
        signature(sink.commit).bind(*parameters.split(", "))
    except TypeError as error:
        raise ProgramError(
            f"{type(sink).__name__}.commit{signature(sink.commit)} cannot be called with ({parameters}): {error}. "
            "Define it with these parameters",
            at=_line_of(sink, "commit"),
        ) from error


def new_writer(sink: Sink, context: WriterContext) -> SinkWriter:
    """A writer for one task attempt."""
    answer = sink.writer(replace(context, dead_letters=sink.dead_letters))
    if not isinstance(answer, SinkWriter):
        raise _contract_error(sink, "writer", answer, "a SinkWriter")
    return answer


def staged_items(writer: SinkWriter) -> list[Json]:
    """The entries that a writer staged, checked to be JSON."""
    answer: Any = writer.stage()
    owner = writer.stateful()  # for a two-phase sink, the sink itself
    if isinstance(answer, (str, bytes, dict)) or not isinstance(answer, Iterable):
        raise _contract_error(
            owner, "stage", answer, "a list of the JSON values that commit needs (empty when there is nothing)"
        )
    items = list(answer)
    for item in items:
        _check_json(owner, "stage", item)
    return items


def planned_commit(
    sink: Sink,
    staged: Sequence[Json],
    pending: Json,
    now_ms: int,
    final: bool,
    watermark_ms: int = MIN_WATERMARK,
) -> CommitPlan:
    """The entries this epoch publishes, and the deferred ones. `watermark_ms`: the watermark at the sink."""
    plan: Any = sink.plan_timed_commit(staged, pending, now_ms, final, watermark_ms)
    if not isinstance(plan, CommitPlan) or not isinstance(plan.publish, (tuple, list)):
        raise _contract_error(sink, "plan_commit", plan, "CommitPlan((published entries, …), pending)")
    _check_json(sink, "plan_commit", list(plan.publish), "returned as publish")
    _check_json(sink, "plan_commit", plan.pending, "returned as pending")
    if final and plan.pending is not None:
        expected = "pending=None when final is True: no epoch follows, and it would never be published"
        raise _contract_error(sink, "plan_commit", plan.pending, expected, "returned as pending")
    return plan


def due_ms_of(sink: Sink, pending: Json) -> int | None:
    """When the sink needs an epoch for its pending entries."""
    answer = sink.due_ms(pending)
    if answer is None or type(answer) is int:
        return answer
    raise _contract_error(sink, "due_ms", answer, "an int, milliseconds since 1970-01-01 UTC, or None for never")


def restored_pending(sink: Sink, pending: Json, point: RestorePoint) -> tuple[Json, str]:
    """The entries still to be published when the job continues from `point`, and a sentence for the user."""
    answer: Any = sink.after_restore(pending, point)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], str)):
        expected = "(the entries of `pending` still to be published, a sentence for the user)"
        raise _contract_error(sink, "after_restore", answer, expected)
    _check_json(sink, "after_restore", answer[0])
    return answer


# --- messages, and checks of JSON -----------------------------------------------------------------------------


def _truth(source: Source, method: str, answer: Any) -> bool:
    if answer is True or answer is False:
        return bool(answer)
    if type(answer).__name__ in ("bool", "bool_"):  # numpy's
        return bool(answer)
    raise _contract_error(source, method, answer, "True or False")


def _check_json(owner: Any, method: str, value: Any, subject: str = "returned", *, exact: bool = False) -> None:
    """Reject values that do not survive JSON unchanged; `exact`: reject tuples too, because the engine compares the
    value."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        expected = f"a JSON value: None, bool, int, float, str, and lists and dicts of these ({error})"
        raise _contract_error(owner, method, value, expected, subject) from error
    change = _change(value, exact)
    if change:
        expected = f"a value that JSON returns unchanged ({change}): it would differ after a restart"
        raise _contract_error(owner, method, value, expected, subject)


def _change(value: Any, exact: bool) -> str:
    """How JSON would change some part of `value`; "" if it would not.

    >>> _change({"a": [1, {2: 3}]}, False), _change([(1, 2)], False), _change([(1, 2)], True)
    ('it turns the key 2 into a string', '', 'it turns the tuple (1, 2) into a list')
    """
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return f"it turns the key {key!r} into a string"
        return next(filter(None, (_change(item, exact) for item in value.values())), "")
    if isinstance(value, tuple) and exact:
        return f"it turns the tuple {_short_repr(value)} into a list"
    if isinstance(value, (list, tuple)):
        return next(filter(None, (_change(item, exact) for item in value)), "")
    return ""


def _contract_error(owner: Any, method: str, answer: Any, expected: str, subject: str = "returned") -> ProgramError:
    kind = "" if answer is None else f" ({type(answer).__name__})"
    subject_text = f"{type(owner).__name__}.{method} {subject} {_short_repr(answer)}{kind}"
    return ProgramError(f"{subject_text}, expected {expected}", at=_line_of(owner, method))


def _short_repr(value: Any) -> str:
    try:
        text = " ".join(repr(value).split())  # on one line: tables are otherwise shown on several
    except Exception as error:
        text = f"<{type(value).__name__} whose repr() raised {type(error).__name__}>"
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"


def _line_of(owner: Any, method: str) -> str | None:
    """The line that defines the method, for a class that was read from a file."""
    code = getattr(getattr(type(owner), method, None), "__code__", None)
    return None if code is None else f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
