"""The layout of a segment from its file, for readers without a program that declares the state.

A running job knows the types of its states and checks files against them (`segment`). An external reader has only
files. Arrow's schema in a segment has the types of its columns; the footer records the rest: whether keys are the
canonical bytes of untyped values, and whether values are pickles.

Invariant: the returned layout always opens the segment.
"""

from __future__ import annotations

from millstream.state.segments.segment_footer import SegmentFile, read_footer, read_schema
from millstream.state.tables.layout import TableLayout

__all__ = ["stored_layout"]

_CANONICAL = "canonical"


def stored_layout(file: SegmentFile, subject: str) -> TableLayout:
    """The layout of the segment in a file; StoreDamagedError naming `subject` if it cannot be read."""
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
