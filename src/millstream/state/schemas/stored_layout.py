"""The layout of a segment as the file itself tells it, for whoever has no program that declares the state.

A running job knows the types of its states and holds files against them (`segment`). A reader from outside has only
files. Arrow's schema in a segment has the types of its columns; the footer says what a schema cannot: that keys are the
canonical bytes of values without a type, and that values are pickles.

Invariant: a segment can always be opened with the layout that this gives.
"""

from __future__ import annotations

from millstream.state.segments.segment_footer import SegmentFile, read_footer, read_schema
from millstream.state.tables.layout import TableLayout

__all__ = ["stored_layout"]

_CANONICAL = "canonical"


def stored_layout(file: SegmentFile, subject: str) -> TableLayout:
    """The layout of the segment in a file; StoreDamagedError, which names `subject`, when it cannot be told."""
    footer = read_footer(file, subject)
    schema = read_schema(file, footer, subject)
    told = footer.layout
    return TableLayout(
        state=footer.state,
        key_type=None if told["key"] == _CANONICAL else schema.field("key").type,
        sub_type=schema.field("sub").type if told["sub"] is not None else None,
        value_type=schema.field("value").type if told["value"] is not None else None,
        is_pickled=told["pickled"],
        has_due=told["due"],
        has_ttl=told["ttl"],
        max_parallelism=told["max_parallelism"],
        serializer_version=told.get("serializer"),
    )
