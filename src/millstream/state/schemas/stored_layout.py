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
    document = footer.layout
    return TableLayout(
        state=footer.state,
        key_type=None if document["key"] == _CANONICAL else schema.field("key").type,
        sub_type=schema.field("sub").type if document["sub"] is not None else None,
        value_type=schema.field("value").type if document["value"] is not None else None,
        is_pickled=document["pickled"],
        has_due=document["due"],
        has_ttl=document["ttl"],
        max_parallelism=document["max_parallelism"],
        serializer_version=document.get("serializer"),
    )
