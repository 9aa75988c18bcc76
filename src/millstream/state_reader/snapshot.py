"""A snapshot: one committed epoch of a job, opened to look into its state.

It holds its epoch with a lease (`checkpoint.leases`), which a thread renews, so that the job, which goes on, does not
collect what is being read. Close it when done, or use it in a `with` block; one that is forgotten lets go by itself a
minute after its process has ended. A savepoint's folder needs no lease, and a store that cannot be written is read
without one: then an epoch may be collected while it is read, which is an error and never a wrong answer.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.checkpoint.leases import DURATION_MS, EpochGoneError, LeasedEpoch
from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.errors import StoreDamagedError, StoreError
from millstream.state.segments.open_segments import OpenSegments
from millstream.state_reader.catalog import (
    OperatorInfo,
    StoredState,
    find_operator,
    find_state,
    operators_of,
    states_of,
)
from millstream.state_reader.rows import RowSource, StateRows
from millstream.state_reader.subtask_sources import ListSource, LoopSource
from millstream.state_reader.table_source import (
    ALL_KEYS,
    TableSource,
    is_of_windows,
    kind_of,
    layout_of,
    shown,
    view_of,
)
from millstream.storage.names import savepoint_name
from millstream.storage.store import Store
from millstream.storage.tier.tiered_store import store_with_cache

if TYPE_CHECKING:
    from millstream.state_reader.difference import StateDiff

__all__ = ["Snapshot", "StateInfo"]


@dataclass(frozen=True)
class StateInfo:
    """A state of an operator. `rows` counts stored changes: of a state that is often overwritten, more than it has."""

    operator: str
    uid: str
    name: str
    kind: str
    key_type: str | None
    value_type: str | None
    rows: int
    bytes: int
    segments: int


class Snapshot:
    """One epoch of a job. See `millstream.state_reader.open`."""

    def __init__(
        self, store: Store, epoch: int, *, where: str, now_ms: Callable[[], int], cache_folder: Path | None = None
    ) -> None:
        self.store = store
        self.where = f"epoch {epoch} of {where}"
        self._cache_folder = cache_folder
        self._lease = _lease(store, epoch, now_ms)
        self.manifest: Manifest = ManifestLog(store).read(epoch) if self._lease is None else self._lease.manifest
        self.segments = OpenSegments(store_with_cache(store, cache_folder), is_foreign=True)
        self._release = _kept(self, self._lease)

    @property
    def epoch(self) -> int:
        """Its number."""
        return self.manifest.epoch

    @property
    def is_held(self) -> bool:
        """Whether the job keeps the epoch while this is open."""
        return self._lease is not None or self.store.exists(savepoint_name())

    def close(self) -> None:
        """Let the epoch go."""
        self._release()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what there is ------------------------------------------------------------------------------------------

    @cached_property
    def _states(self) -> list[StoredState]:
        return states_of(self.manifest)

    @cached_property
    def operators(self) -> list[OperatorInfo]:
        """The operators of the program."""
        return operators_of(self.manifest)

    def states(self, operator: str | None = None) -> list[StateInfo]:
        """All states, or those of one operator (its uid, or its name)."""
        wanted = None if operator is None else find_operator(self.operators, operator, self.where).uid
        return [self._info(state) for state in self._states if wanted in (None, state.uid)]

    def _info(self, state: StoredState) -> StateInfo:
        key_type, value_type, kind = None, None, state.kind
        if state.scope == "list":
            value_type = next(entry.type for entry in state.entries if entry is not None)
        elif state.scope == "loop":
            value_type = state.type_name
        else:
            layout = layout_of(self.segments, state)
            kind = kind_of(state, view_of(self.segments, state, layout))
            if is_of_windows(state, layout):
                inner = layout.stored_key_type.field("key").type
                key_type, kind = str(inner), f"{kind} per window"
            elif state.scope == "keyed":
                key_type = "any" if layout.key_type is None else str(layout.key_type)
            if layout.value_type is not None:
                value_type = "pickled" if layout.is_pickled else str(layout.value_type)
        return StateInfo(
            state.operator,
            state.uid,
            state.name,
            kind,
            key_type,
            value_type,
            state.stored_rows,
            state.stored_bytes,
            len(state.files),
        )

    def stored(self, operator: str, state: str) -> StoredState:
        """Where a state lies; StoreError naming the nearest when there is none of that name."""
        found = find_operator(self.operators, operator, self.where)
        return find_state(self._states, found, state, self.where)

    # --- reading --------------------------------------------------------------------------------------------------

    def read(
        self,
        operator: str,
        state: str,
        *,
        key: Any = ALL_KEYS,
        raw: bool = False,
        flatten: bool = False,
        unpickle: Callable[[bytes], Any] | None = None,
    ) -> StateRows:
        """The live rows of a state, all or those of one key.

        `operator` is its uid or its name. `raw` leaves pickles, and keys without a declared type, as bytes. `flatten`
        gives the fields of a ROW or TUPLE columns of their own, `value_word`; otherwise `value` is one struct column.
        Values that were stored without a type are pickles, and are refused unless `raw` or `unpickle` is given, which
        runs code that is in the store: `pickle.loads`, or whatever is to be shown in their place.
        """
        source = self.source(self.stored(operator, state), raw=raw, flatten=flatten)
        return StateRows(source, self.renew, key, unpickle)

    def source(self, state: StoredState, *, raw: bool = False, flatten: bool = False) -> RowSource:
        """Where the rows of a state come from."""
        if state.scope == "list":
            return ListSource(self.store, state, flatten, raw)
        if state.scope == "loop":
            return LoopSource(self.store, state, flatten, raw)
        layout = layout_of(self.segments, state)
        columns = shown(self.segments, state, layout, raw=raw, flatten=flatten)
        return TableSource(self.store, state, layout, columns, self._cache_folder)

    def diff(
        self,
        other: Snapshot,
        operator: str,
        state: str,
        *,
        raw: bool = False,
        unpickle: Callable[[bytes], Any] | None = None,
    ) -> StateDiff:
        """How a state changed from this snapshot to `other`. Pickles are as for `read`."""
        from millstream.state_reader.difference import state_diff

        return state_diff(self, other, operator, state, raw=raw, unpickle=unpickle)

    def renew(self) -> None:
        if self._lease is not None:
            self._lease.renew()


# --- holding an epoch ---------------------------------------------------------------------------------------------


def _lease(store: Store, epoch: int, now_ms: Callable[[], int]) -> LeasedEpoch | None:
    """A lease on the epoch; None where none is needed, or where the store may only be read."""
    if store.exists(savepoint_name()):
        return None
    try:
        return LeasedEpoch(store, epoch, now_ms)
    except (StoreDamagedError, EpochGoneError):
        raise
    except StoreError:
        if not ManifestLog(store).has(epoch):
            raise
        return None


def _kept(owner: Snapshot, lease: LeasedEpoch | None) -> Callable[[], Any]:
    """Renew the lease until the function that is returned is called, or `owner` is gone."""
    if lease is None:
        return lambda: None
    done = threading.Event()

    def renew() -> None:
        while not done.wait(DURATION_MS / 3000):
            # The next try may succeed; reading says so if the epoch is gone meanwhile.
            with suppress(StoreError):
                lease.renew()

    def release() -> None:
        done.set()
        with suppress(StoreError):
            lease.close()

    threading.Thread(target=renew, name="millstream-lease", daemon=True).start()
    return weakref.finalize(owner, release)
