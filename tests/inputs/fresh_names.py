"""Names of stores, topics and files that are used once in a test process: counted, so that every run uses the same."""

from __future__ import annotations

import itertools

_NUMBERS = itertools.count(1)


def fresh_name(stem: str) -> str:
    # No test that counts names of its own, stem-1 and so on, has the same.
    return f"{stem}-fresh{next(_NUMBERS)}"
