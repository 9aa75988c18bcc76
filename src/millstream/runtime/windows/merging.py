"""Merging windows of a key, such as sessions, and where each stores its contents.

Contents are not moved when a window grows: the merged window keeps them under one of its parts, its *state window*. So
a session extended by every record rewrites nothing; only when two sessions with contents merge, the contents of the
second are moved to the first. The mapping from window to state window is state of the key.

Invariant: no two windows of the mapping share a state window, and the assigner would not merge any two of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from millstream.common.typeinfo import MapTypeInfo, Types
from millstream.runtime.keyed.collection_states import MapHandle
from millstream.runtime.keyed.state_store import OwnState
from millstream.runtime.windows.window_store import WindowStore
from millstream.state.stored.table_names import MERGING_WINDOWS
from millstream.state.windows.places import WindowTokens

__all__ = ["MergedWindows", "Merger"]


@dataclass(frozen=True)
class Merger:
    """A merge of windows with contents: `parts` became `result`. Its contents are under `state_window`; the contents of
    `state_parts` have yet to be merged into them. All are tokens."""

    result: bytes
    parts: tuple[bytes, ...]
    state_window: bytes
    state_parts: tuple[bytes, ...]


class _TokenMap(MapHandle):
    """A map from token to token: bytes, which the store returns unchanged."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self._settle_key = self._settle = _same


def _same(token: bytes) -> bytes:
    return token


class _MergeCallback:
    """Collects the merges that an assigner reports."""

    def __init__(self) -> None:
        self.groups: list[tuple[list[Any], Any]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.groups.append((list(to_be_merged), merge_result))


class MergedWindows:
    """The windows of the current key."""

    def __init__(self, store: WindowStore, assigner: Any, tokens: WindowTokens) -> None:
        self._assigner = assigner
        self._tokens = tokens
        token_type = Types.PRIMITIVE_ARRAY(Types.BYTE())
        descriptor = OwnState(MERGING_WINDOWS, MapTypeInfo(token_type, token_type))
        self._mapping: _TokenMap = store.state_of_key(MERGING_WINDOWS, _TokenMap, descriptor)

    def load(self, keys: Iterable[Any]) -> None:
        """Read the windows of these keys in one lookup."""
        self._mapping.load(keys)

    def state_window(self, token: bytes) -> bytes | None:
        """The state window of a window; None if the window does not exist."""
        state_window: bytes | None = self._mapping.get(token)
        return state_window

    def all(self) -> list[tuple[bytes, bytes]]:
        """All windows of the key with their state windows."""
        return list(self._mapping.items())

    def add(self, token: bytes) -> tuple[bytes, list[Merger]]:
        """Add a record's window; returns the resulting window, and the merges that formed it."""
        if self._mapping.contains(token):
            return token, []
        window, callback = self._tokens.window(token), _MergeCallback()
        windows = [self._tokens.window(other) for other in self._mapping.keys()]  # noqa: SIM118 - it is not a dict
        self._assigner.merge_windows([*windows, window], callback)
        result, merged_new, mergers = token, False, []
        for parts, merge_result in callback.groups:
            tokens = list(dict.fromkeys(map(self._tokens.token, parts)))
            covering = self._tokens.token(merge_result)
            if token in tokens:
                tokens.remove(token)
                result, merged_new = covering, True
            if tokens:
                mergers += self._merge(covering, tokens)
            elif covering != token:
                self._mapping.put(covering, covering)
        if not merged_new:
            self._mapping.put(token, token)
        return result, mergers

    def _merge(self, result: bytes, parts: list[bytes]) -> list[Merger]:
        state_windows = [home for home in map(self.state_window, parts) if home is not None]
        for part in parts:
            self._mapping.remove(part)
        self._mapping.put(result, state_windows[0])
        if parts == [result]:
            return []  # the new window lies within an existing one
        return [Merger(result, tuple(parts), state_windows[0], tuple(state_windows[1:]))]

    def retire(self, token: bytes) -> None:
        """Remove the window."""
        self._mapping.remove(token)
