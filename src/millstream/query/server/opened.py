"""A job that `millstream.query` opened, as a server serves it.

States that were not declared queryable are called `OPERATOR::STATE` here, where the view allows them. Their keys have
no declared type, so they come as JSON, and which key group they belong to is not known: every server answers for
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.errors import PickledValueError
from millstream.query.catalog import Asked, QueryableState
from millstream.query.epoch_view import EpochView
from millstream.query.job_view import POLL_MS, JobView
from millstream.query.server.served import ServedEpoch
from millstream.query.window_reads import WindowView
from millstream.query.wire.served_state import ServedState

__all__ = ["OpenedJob"]

_BETWEEN = "::"
_TOUCHED_BYTES_MAX = 64 << 20  # some 20 ms


class OpenedJob:
    """One job, open for questions."""

    def __init__(self, view: JobView) -> None:
        self._view = view
        view.speak_of(f"job '{view.job}'")
        view.touch_ahead(_TOUCHED_BYTES_MAX)
        self._known: tuple[int, dict[str, ServedState]] = (0, {})

    @property
    def job(self) -> str:
        """Its name."""
        return self._view.job

    @property
    def job_id(self) -> str:
        """Its id."""
        return self._view.job_id

    def states(self) -> list[ServedState]:
        """What can be asked for at the newest epoch."""
        return list(self._states_of(self._view.newest()).values())

    def state(self, name: str) -> ServedState:
        """One of them; UnknownStateError names those that there are."""
        view = self._view.newest()
        return self._states_of(view).get(name) or _served(view.state(_asked(name)))

    def newest(self) -> ServedEpoch:
        """The newest committed epoch."""
        return OpenedEpoch(self._view.newest())

    def at_hand(self, is_looked_for: bool) -> OpenedEpoch | None:
        """The newest epoch as far as it is known, without waiting; None where it has to be looked for first."""
        view = self._view.at_hand(is_looked_for)
        return None if view is None else OpenedEpoch(view)

    def is_due(self) -> bool:
        """Whether it is time to look for a newer epoch: `newest` does."""
        return self._view.looked_ms_ago() >= POLL_MS

    def state_at(self, epoch: OpenedEpoch, name: str) -> ServedState | None:
        """A state of that epoch."""
        return self._states_of(epoch._view).get(name)

    def at(self, epoch: int | None = None, time_ms: int | None = None) -> ServedEpoch:
        """A retained epoch."""
        return OpenedEpoch(self._view.at(epoch=epoch, time=time_ms))

    def series(self, state: str, key: Any) -> list[tuple[int, int, Any]]:
        """The value at every retained epoch."""
        return self._view.series(_asked(state), key)

    def _states_of(self, view: EpochView) -> dict[str, ServedState]:
        """The states of the newest epoch; looked at once per epoch."""
        epoch, known = self._known
        if epoch != view.epoch:
            known = {_name(state): _served(state) for state in view.states()}
            self._known = (view.epoch, known)
        return known


class OpenedEpoch:
    """One epoch, by the names that a server uses."""

    __slots__ = ("_view",)

    def __init__(self, view: EpochView) -> None:
        self._view = view

    @property
    def epoch(self) -> int:
        """Its number."""
        return self._view.epoch

    @property
    def watermark(self) -> int | None:
        """Event time, in milliseconds."""
        return self._view.watermark

    @property
    def committed_ms(self) -> int:
        """When it was committed."""
        return self._view.committed_ms

    def is_quick(self, state: str) -> bool:
        """Whether a question about one key of the state takes microseconds, whatever is in it."""
        return self._view.is_quick(_asked(state))

    def group_of(self, state: str, key: Any) -> int:
        """The key group of a key of such a state."""
        return self._view.group_of(_asked(state), key)

    def get(self, state: str, key: Any) -> Any:
        """The value, or None."""
        return self._view.get(_asked(state), key)

    def get_many(self, state: str, keys: Sequence[Any]) -> list[Any]:
        """The values in the order of the keys."""
        return self._view.get_many(_asked(state), keys)

    def get_columns(self, state: str, keys: pa.Array) -> pa.RecordBatch:
        """Columns key, found, value."""
        self._check_no_pickles(state)
        return self._view.get_columns(_asked(state), keys)

    def windows(self, state: str, key: Any) -> list[WindowView]:
        """The windows still open for a key."""
        return self._view.windows(_asked(state), key)

    def scan(self, state: str, prefix: Any = None, limit: int | None = None) -> pa.RecordBatchReader:
        """Rows of the state."""
        self._check_no_pickles(state)
        return self._view.scan(_asked(state), prefix=prefix, limit=limit)

    def _check_no_pickles(self, state: str) -> None:
        """A state that has a type by now may have had none in an epoch of the past: its pickles are sent to nobody."""
        if self._view.state(_asked(state)).is_pickled:
            raise PickledValueError(
                f"state {state!r} had values without a declared type in epoch {self.epoch}, stored as pickles: these "
                "are not sent over the network. Ask for a newer epoch"
            )

    def close(self) -> None:
        """Let it go."""
        self._view.close()


def _asked(name: str) -> Asked:
    operator, between, state = name.partition(_BETWEEN)
    return (operator, state) if between else name


def _name(state: QueryableState) -> str:
    return state.name or f"{state.operator}{_BETWEEN}{state.state}"


def _served(state: QueryableState) -> ServedState:
    return ServedState(_name(state), state.kind, state.key_type, state.value_type, state.is_pickled, state.key_groups)
