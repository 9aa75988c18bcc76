"""All families of functions; importing one enters its functions."""

from __future__ import annotations

__all__ = ["load"]


def load() -> None:
    """Enter the functions of all families; a second time does nothing."""
    from millstream.expressions.functions import (  # noqa: F401
        aggregates,
        arithmetic,
        bitmaps,
        collections,
        comparison,
        conditional,
        conversion,
        digests,
        json,
        logic,
        objects,
        patterns,
        ranking,
        session,
        strings,
        temporal,
        variants,
    )
