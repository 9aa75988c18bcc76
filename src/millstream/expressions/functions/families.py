"""All families of functions; importing a family registers its functions."""

from __future__ import annotations

__all__ = ["load"]


def load() -> None:
    """Registers the functions of all families; idempotent."""
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
