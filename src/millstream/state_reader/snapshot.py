"""A snapshot: one committed epoch of a job, opened for reading its state.

It retains its epoch with a lease (`checkpoint.leases`), which a thread renews, so that the running job does not remove
the epoch. Close it when done, or use it in a `with` block; the lease of an unclosed snapshot ends a minute after its
process. A savepoint's folder needs no lease, and a store that cannot be written is read without one: then an epoch may
be removed while it is read, which is an error and never a wrong result.
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
    """A state of an operator. `rows` counts stored changes: more than its rows if they are often overwritten."""

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
        self._release = _renewed(self, self._lease)

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self.manifest.epoch

    @property
    def is_held(self) -> bool:
        """Whether the job retains the epoch while this is open."""
        return self._lease is not None or self.store.exists(savepoint_name())

    def close(self) -> None:
        """Release the epoch."""
        self._release()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- operators and states -----------------------------------------------------------------------------------

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
        """The location of a state; StoreError with suggestions if no state has that name."""
        owner_info = find_operator(self.operators, operator, self.where)
        return find_state(self._states, owner_info, state, self.where)

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

        `operator` is its uid or its name. `raw` returns pickles, and keys without a declared type, as bytes. `flatten`
        returns the fields of a ROW or TUPLE as separate columns, `value_word`; otherwise `value` is one struct column.
        Values stored without a type are pickles, and are refused unless `raw` or `unpickle` is passed. `unpickle` runs
        code from the store: `pickle.loads`, or a function that returns a substitute.
        """
        source = self.source(self.stored(operator, state), raw=raw, flatten=flatten)
        return StateRows(source, self.renew, key, unpickle)

    def source(self, state: StoredState, *, raw: bool = False, flatten: bool = False) -> RowSource:
        """The source of a state's rows."""
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
        """The difference of a state from this snapshot to `other`. Pickles are treated as in `read`."""
        from millstream.state_reader.difference import state_diff

        return state_diff(self, other, operator, state, raw=raw, unpickle=unpickle)

    def renew(self) -> None:
        if self._lease is not None:
            self._lease.renew()


# --- leases -------------------------------------------------------------------------------------------------------


def _lease(store: Store, epoch: int, now_ms: Callable[[], int]) -> LeasedEpoch | None:
    """A lease on the epoch; None if none is needed, or if the store is read-only."""
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


def _renewed(owner: Snapshot, lease: LeasedEpoch | None) -> Callable[[], Any]:
    """Renew the lease until the returned function is called, or `owner` is garbage-collected."""
    if lease is None:
        return lambda: None
    done = threading.Event()

    def renew() -> None:
        while not done.wait(DURATION_MS / 3000):
            # The next attempt may succeed; reading raises if the epoch was removed.
            with suppress(StoreError):
                lease.renew()

    def release() -> None:
        done.set()
        with suppress(StoreError):
            lease.close()

    threading.Thread(target=renew, name="millstream-lease", daemon=True).start()
    return weakref.finalize(owner, release)
