"""The kinds of changes that a stream of rows may contain."""

from __future__ import annotations

from typing import Any

from millstream.common.types import RowKind
from millstream.graph.site import refuse
from millstream.pyflink_names import add_pyflink_names

__all__ = ["ChangelogMode"]


class ChangelogMode:
    """The kinds of changes.

    >>> ChangelogMode.insert_only() == ChangelogMode.all()
    False
    """

    def __init__(self, j_changelog_mode: Any = None, *, kinds: frozenset[RowKind] = frozenset()) -> None:
        if j_changelog_mode is not None or not kinds:
            raise refuse("ChangelogMode: make one by insert_only(), upsert() or all()")
        self._kinds = kinds

    @staticmethod
    def insert_only() -> ChangelogMode:
        """Only inserts."""
        return ChangelogMode(kinds=frozenset({RowKind.INSERT}))

    @staticmethod
    def upsert() -> ChangelogMode:
        """Inserts, updates by key, and deletes."""
        return ChangelogMode(kinds=frozenset({RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE}))

    @staticmethod
    def all() -> ChangelogMode:
        """Every kind of change."""
        return ChangelogMode(kinds=frozenset(RowKind))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChangelogMode) and self._kinds == other._kinds

    def __hash__(self) -> int:
        return hash(self._kinds)

    def __str__(self) -> str:
        return "[" + ", ".join(kind.name for kind in RowKind if kind in self._kinds) + "]"


add_pyflink_names(globals())
