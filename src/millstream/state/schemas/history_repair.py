"""Repairs schema histories that do not cover all segments of their table, from the segments' footers.

A history covers all segments of a table, with two exceptions: the first versions wrote no history, and later versions
lost the older entries if a table was merged from several subtasks and one had rewritten its rows. The footer of a
segment also has the type, serialiser and lifetime of its rows. It does not record renamed fields: if the values of a
file cannot be converted to the next entry, the error says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from millstream.state.schemas.evolution import Evolution, IncompatibleChange, plan_projection
from millstream.state.schemas.past import stored_value_type
from millstream.state.schemas.saved_types import type_from, type_of_arrow, written_type
from millstream.state.schemas.schema_history import (
    History,
    SavedAs,
    extended,
    is_explained,
    is_same_form,
    refused,
)
from millstream.state.schemas.stored_defaults import PickledDefaults
from millstream.state.segments.version import SegmentRef
from millstream.state.tables.layout import TableLayout

__all__ = ["covering", "entry_of_file"]

_PICKLED = "PICKLED"


def entry_of_file(stored: TableLayout, like: SavedAs, what: str) -> SavedAs:
    """The history entry of a segment with this layout, from epoch 0; fields that a file does not record are copied from
    `like`."""
    entry = replace(
        like,
        since=0,
        since_ms=0,
        version=stored.serializer_version,
        ttl_ms=(like.ttl_ms or 0) if stored.has_ttl else None,
        renames={},
        defaults={},
        upgrade=None,
    )
    if stored.serializer_version is not None or stored.is_pickled:
        return replace(entry, type=type_from(_PICKLED, what))
    is_typed_alike = like.version is None and written_type(like.type) != _PICKLED
    if is_typed_alike and stored.value_type == stored_value_type(like):
        return entry
    return replace(entry, type=type_of_arrow(pa.field("value", stored.value_type)))


def covering(
    history: History,
    refs: Sequence[SegmentRef],
    stored_layout: Callable[[SegmentRef], TableLayout],
    evolution: Evolution | None,
    what: str,
) -> History:
    """The history, extended by entries for segments older than its first entry; StateSchemaError if their values cannot
    be converted to the first entry. `evolution` is the program's declaration, None outside a program."""
    first = history[0]
    entries: list[SavedAs] = []
    for ref in sorted((ref for ref in refs if ref.epoch < first.since), key=lambda ref: ref.epoch):
        entry = entry_of_file(stored_layout(ref), first, what)
        # `Past.entry_of` matches a repeated form by the footer.
        if not any(is_same_form(entry, other) for other in (*entries, first)):
            entries.append(replace(entry, since=ref.epoch if entries else 0, since_ms=first.since_ms if entries else 0))
    if not entries:
        return (replace(first, since=0), *history[1:]) if any(ref.epoch < first.since for ref in refs) else history
    if not is_explained(first) and evolution is not None:
        return (*extended(tuple(entries), first, evolution, what), *history[1:])
    for old, new in zip(entries, (*entries[1:], first), strict=True):
        _check_projection(old, new, what, has_descriptor=evolution is not None)
    return (*entries, *history)


def _check_projection(old: SavedAs, new: SavedAs, what: str, *, has_descriptor: bool) -> None:
    if new.upgrade is not None or isinstance(new.defaults, PickledDefaults) or None not in (old.version, new.version):
        return
    try:
        if old.version != new.version:
            raise IncompatibleChange(" was saved by a serializer and without one, and how is not stored", "")
        plan_projection(old.type, new.type, new.evolution)
    except IncompatibleChange as misfit:
        raise refused(what, misfit, has_descriptor=has_descriptor) from None
