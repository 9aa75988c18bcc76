"""Names of stores, topics and files used once in a test process: counted, so that every run uses the same names."""

from __future__ import annotations

import itertools

_NUMBERS = itertools.count(1)


def fresh_name(stem: str) -> str:
    # Tests that count their own names, stem-1 and so on, do not collide with these.
    return f"{stem}-fresh{next(_NUMBERS)}"
