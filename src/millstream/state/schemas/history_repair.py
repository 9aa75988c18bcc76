"""What segments were saved as that the history of their table does not cover, from the files themselves.

A history tells of all segments of a table, with two exceptions: manifests of the first Millstreams had none, and older
Millstreams lost the older entries when a table came from several subtasks of which one had rewritten its rows. The
footer of a segment still says which type, serialiser and lifetime its rows have. It does not say how fields were
renamed: where values of a file cannot be read as those of the next entry, the error says so.
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
    """What a segment with this layout was saved as, since the beginning; what a file cannot tell is as in `like`."""
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
    """The history with an entry for segments that are older than all it tells of; StateSchemaError if values of theirs
    cannot be read as those of the first entry. `evolution` is what the program declares, None outside of it."""
    first = history[0]
    found: list[SavedAs] = []
    for ref in sorted((ref for ref in refs if ref.epoch < first.since), key=lambda ref: ref.epoch):
        entry = entry_of_file(stored_layout(ref), first, what)
        # A form that comes again is found by the footer (`Past.entry_of`).
        if not any(is_same_form(entry, other) for other in (*found, first)):
            found.append(replace(entry, since=ref.epoch if found else 0, since_ms=first.since_ms if found else 0))
    if not found:
        return (replace(first, since=0), *history[1:]) if any(ref.epoch < first.since for ref in refs) else history
    if not is_explained(first) and evolution is not None:
        return (*extended(tuple(found), first, evolution, what), *history[1:])
    for old, new in zip(found, (*found[1:], first), strict=True):
        _check_projection(old, new, what, has_descriptor=evolution is not None)
    return (*found, *history)


def _check_projection(old: SavedAs, new: SavedAs, what: str, *, has_descriptor: bool) -> None:
    if new.upgrade is not None or isinstance(new.defaults, PickledDefaults) or None not in (old.version, new.version):
        return
    try:
        if old.version != new.version:
            raise IncompatibleChange(" was saved by a serializer and without one, and how is not stored", "")
        plan_projection(old.type, new.type, new.evolution)
    except IncompatibleChange as misfit:
        raise refused(what, misfit, has_descriptor=has_descriptor) from None
