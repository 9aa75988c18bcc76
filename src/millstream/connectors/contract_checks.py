"""What sources and sinks return, held against what they promised, at the moment they return it.

A source or sink is the user's own class, and Python lets it return anything: nothing at all, where a `return` was
forgotten; a list of names, where splits were asked for; an offset that JSON cannot hold. Used as it is, that fails
later and elsewhere, or, worse, works until the first restart. So the engine asks through these functions only. Each
gives what was returned, or raises an error that says which method of which class returned what, what was expected, and
where the method stands.

Offsets of plain numbers and texts, as nearly all are, cost one look at their type.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from inspect import signature
from typing import Any

import pyarrow as pa

from millstream.connectors.contracts import (
    CommitPlan,
    Json,
    Offset,
    RestorePoint,
    Sink,
    SinkWriter,
    Source,
    SourceContext,
    Split,
    WriterContext,
)
from millstream.errors import ProgramError
from millstream.storage.store import Store

__all__ = [
    "check_commit",
    "due_ms_of",
    "is_complete",
    "is_finished",
    "listed_splits",
    "new_writer",
    "offset_at_end",
    "opened_sink",
    "opened_source",
    "planned_commit",
    "reach_of",
    "read_items",
    "removes_input",
    "restored_pending",
    "source_watermark",
    "staged_items",
    "wrong_item",
]

_PLAIN = (int, str)
_SHOWN_CHARACTERS_MAX = 120


# --- sources, on the driver -----------------------------------------------------------------------------------


def opened_source(source: Source, store: Store, session: Any, *, again: bool = False) -> Source:
    """The source, ready for the job; `again`: only to read what it has read before."""
    if source.bounded and type(source).finished is Source.finished:
        raise ProgramError(
            f"{type(source).__name__} is bounded and never says where a split ends, so the job could not end. Override "
            "finished(split, offset), or leave bounded False",
            at=_line_of(source, "reach"),
        )
    method = "reopened" if again else "opened"
    returned = getattr(source, method)(store, session)
    if returned is None:  # nothing had to be made ready
        return source
    if not isinstance(returned, Source):
        raise _refused(source, method, returned, "the source that is to be used (None: this one)")
    return returned


def removes_input(source: Source) -> bool:
    """Whether the source removes what it has stored: then it is told every position, and forgets splits by itself."""
    return type(source).released is not Source.released


def listed_splits(source: Source, context: SourceContext, known: int = 0) -> Sequence[Split]:
    """All splits the source knows now, in its order; any collection or generator of them will do. The first `known`
    were looked at before."""
    returned: Any = source.splits(context)
    if isinstance(returned, (str, bytes)) or not isinstance(returned, Iterable):
        raise _refused(source, "splits", returned, "a list of Split(name, start, info)")
    splits = returned if isinstance(returned, (list, tuple)) else list(returned)
    names: set[str] = set()
    for split in splits[known:]:
        if not isinstance(split, Split):
            raise _refused(source, "splits", split, "nothing but Split(name, start, info) in its list", "lists")
        if not isinstance(split.name, str) or not split.name:
            raise _refused(source, "splits", split.name, "a text that is not empty", "lists a split whose name is")
        if split.name in names:
            raise ProgramError(
                f"{type(source).__name__}.splits lists {split.name!r} twice. A name stands for one split, for ever: "
                "its position is kept under it",
                at=_line_of(source, "splits"),
            )
        names.add(split.name)
        if type(split.start) not in _PLAIN:
            _check_json(source, "splits", split.start, f"lists split {split.name!r} with the start", exact=True)
    return splits


def reach_of(source: Source, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
    """How far the next epoch may read `split`."""
    if split.info is not None and type(split.info) not in _PLAIN:
        # Here, for only splits that are read are asked about: a source may list very many.
        _check_json(source, "splits", split.info, f"lists split {split.name!r} with the info")
    stop = source.reach(split, offset, budget, context)
    if type(stop) in _PLAIN and (type(stop) is not int or type(offset) is not int or stop >= offset):
        return stop
    subject = f"of split {split.name!r} from {offset!r} returned"
    if stop is None and offset is not None:
        expected = "how far to read: an offset, or the one it was given when nothing is there now"
        raise _refused(source, "reach", stop, expected, subject)
    if type(stop) is int and type(offset) is int:
        raise _refused(source, "reach", stop, "an offset that is not before the one it was given", subject)
    _check_json(source, "reach", stop, subject, exact=True)
    return stop


def is_finished(source: Source, split: Split, offset: Offset) -> bool:
    """Whether the split ends at `offset`."""
    return _truth(source, "finished", source.finished(split, offset))


def is_complete(source: Source, context: SourceContext) -> bool:
    """Whether no further split will appear."""
    return _truth(source, "complete", source.complete(context))


# --- sources, in a task ---------------------------------------------------------------------------------------


def read_items(source: Source, split: Split, start: Offset, stop: Offset) -> Iterator[Any]:
    """What `read` yields, still to be asked for."""
    returned: Any = source.read(split, start, stop)
    if isinstance(returned, (str, bytes, dict)) or not isinstance(returned, Iterable):
        raise _refused(source, "read", returned, "a generator: yield lists of records, or Arrow record batches")
    return iter(returned)


def wrong_item(source: Source, item: Any) -> ProgramError:
    """The error for something that is neither a list nor a batch."""
    hint = ""
    if isinstance(item, pa.Table):
        hint = ". Yield from table.to_batches()"
    elif not isinstance(item, (str, bytes)):
        hint = f". Yield [{_shown(item)}] if it is one record"
    return _refused(source, "read", item, f"lists of records, or Arrow record batches{hint}", "yields")


def offset_at_end(source: Source, split: Split, start: Offset, stop: Offset, returned: Offset | None) -> Offset:
    """Where the range really ended: what `read` returned, or `stop` when that is nothing."""
    if returned is None:
        return stop
    if type(returned) is int and type(start) is int and returned < start:
        subject = f"of split {split.name!r} from {start!r} returned"
        raise _refused(source, "read", returned, "the offset it came to, which is not before that", subject)
    if type(returned) not in _PLAIN:
        _check_json(source, "read", returned, f"of split {split.name!r} returned", exact=True)
    return returned


def source_watermark(source: Source, split: Split, offset: Offset) -> int | None:
    """The source's own watermark, if it has one."""
    returned = source.watermark(split, offset)
    if returned is None or (type(returned) is int and -(2**63) <= returned < 2**63):
        return returned
    raise _refused(source, "watermark", returned, "an int, milliseconds since 1970-01-01 UTC, or None")


# --- sinks ----------------------------------------------------------------------------------------------------


def opened_sink(sink: Sink, session: Any) -> Sink:
    """The sink, ready for the driver."""
    returned = sink.opened(session)
    if returned is None:  # nothing had to be made ready
        returned = sink
    if not isinstance(returned, Sink):
        raise _refused(sink, "opened", returned, "the sink that is to be used (None: this one)")
    check_commit(returned, "commit, publish, store")
    return returned


def check_commit(sink: Sink, parameters: str) -> None:
    """`commit` must take these: it is called when an epoch is committed already, and cannot be run again otherwise."""
    try:
        signature(sink.commit).bind(*parameters.split(", "))
    except TypeError as error:
        raise ProgramError(
            f"{type(sink).__name__}.commit{signature(sink.commit)} cannot be called with ({parameters}): {error}. "
            "Give it these parameters",
            at=_line_of(sink, "commit"),
        ) from error


def new_writer(sink: Sink, context: WriterContext) -> SinkWriter:
    """A writer for one task attempt."""
    returned = sink.writer(context)
    if not isinstance(returned, SinkWriter):
        raise _refused(sink, "writer", returned, "a SinkWriter")
    return returned


def staged_items(writer: SinkWriter) -> list[Json]:
    """What a writer staged, as the manifest can hold it."""
    returned: Any = writer.stage()
    author = writer.stateful()  # of a two-phase sink, the sink itself
    if isinstance(returned, (str, bytes, dict)) or not isinstance(returned, Iterable):
        raise _refused(author, "stage", returned, "a list of what commit needs, as JSON (empty when there is nothing)")
    items = list(returned)
    for item in items:
        _check_json(author, "stage", item)
    return items


def planned_commit(sink: Sink, staged: Sequence[Json], pending: Json, now_ms: int, final: bool) -> CommitPlan:
    """What this epoch publishes, and what waits."""
    plan: Any = sink.plan_commit(staged, pending, now_ms, final)
    if not isinstance(plan, CommitPlan) or not isinstance(plan.publish, (tuple, list)):
        raise _refused(sink, "plan_commit", plan, "CommitPlan((what is published, …), what waits)")
    _check_json(sink, "plan_commit", list(plan.publish), "returned, to be published,")
    _check_json(sink, "plan_commit", plan.pending, "returned, to wait,")
    if final and plan.pending is not None:
        expected = "nothing that waits when final is True: no epoch follows, and it would never be published"
        raise _refused(sink, "plan_commit", plan.pending, expected, "returned, to wait,")
    return plan


def due_ms_of(sink: Sink, pending: Json) -> int | None:
    """When the sink wants an epoch for what is pending."""
    returned = sink.due_ms(pending)
    if returned is None or type(returned) is int:
        return returned
    raise _refused(sink, "due_ms", returned, "an int, milliseconds since 1970-01-01 UTC, or None for never")


def restored_pending(sink: Sink, pending: Json, point: RestorePoint) -> tuple[Json, str]:
    """What is still to be published when the job goes on from `point`, and a sentence for the user."""
    returned: Any = sink.after_restore(pending, point)
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], str)):
        expected = "(what of `pending` is still to be published, a sentence for the user)"
        raise _refused(sink, "after_restore", returned, expected)
    _check_json(sink, "after_restore", returned[0])
    return returned


# --- how it is said -------------------------------------------------------------------------------------------


def _truth(source: Source, method: str, returned: Any) -> bool:
    if returned is True or returned is False:
        return bool(returned)
    if type(returned).__name__ in ("bool", "bool_"):  # numpy's
        return bool(returned)
    raise _refused(source, method, returned, "True or False")


def _check_json(author: Any, method: str, value: Any, subject: str = "returned", *, exact: bool = False) -> None:
    """What goes into the manifest is JSON, and comes back as it was; `exact`: to the engine also, which compares it."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        expected = f"what JSON can hold: None, bool, int, float, str, and lists and dicts of these ({error})"
        raise _refused(author, method, value, expected, subject) from error
    change = _change(value, exact)
    if change:
        expected = f"what JSON gives back as it was ({change}): it would be another thing after a restart"
        raise _refused(author, method, value, expected, subject)


def _change(value: Any, exact: bool) -> str:
    """What JSON makes of something in `value` that it can hold and not give back; "" where there is nothing.

    >>> _change({"a": [1, {2: 3}]}, False), _change([(1, 2)], False), _change([(1, 2)], True)
    ('of the key 2 it makes a text', '', 'of the tuple (1, 2) it makes a list')
    """
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return f"of the key {key!r} it makes a text"
        return next(filter(None, (_change(item, exact) for item in value.values())), "")
    if isinstance(value, tuple) and exact:
        return f"of the tuple {_shown(value)} it makes a list"
    if isinstance(value, (list, tuple)):
        return next(filter(None, (_change(item, exact) for item in value)), "")
    return ""


def _refused(author: Any, method: str, returned: Any, expected: str, subject: str = "returned") -> ProgramError:
    kind = "" if returned is None else f" ({type(returned).__name__})"
    what = f"{type(author).__name__}.{method} {subject} {_shown(returned)}{kind}"
    return ProgramError(f"{what}, expected {expected}", at=_line_of(author, method))


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr() raised {type(error).__name__}>"
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"


def _line_of(author: Any, method: str) -> str | None:
    """Where the method is defined, for a class whose source was a file."""
    code = getattr(getattr(type(author), method, None), "__code__", None)
    return None if code is None else f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
