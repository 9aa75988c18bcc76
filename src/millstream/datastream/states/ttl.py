"""The time to live of state values: immutable settings, created by a builder.

Expired values are skipped when state is read and removed when it is compacted. The clean-up strategies, which determine
when Flink frees the space, are stored and returned by their getters but have no effect.
"""

from __future__ import annotations

from abc import ABC
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from millstream.common.time import Duration, Time, duration_ms
from millstream.datastream.streams.argument_checks import checked_count, refuse

if TYPE_CHECKING:
    from typing import Self

__all__ = ["StateTtlConfig"]


def _as_duration(ttl: Duration | Time | timedelta) -> Duration:
    """Converts a ttl: PyFlink 2 uses a Duration, PyFlink 1 a Time."""
    if isinstance(ttl, Time):
        ttl = Duration.of_millis(ttl.to_milliseconds())
    elif isinstance(ttl, timedelta):
        ttl = Duration.of_millis(ttl // timedelta(milliseconds=1))
    if not isinstance(ttl, Duration):
        raise refuse(f"StateTtlConfig: found {ttl!r}, expected a Duration, such as Duration.of_hours(1)")
    if duration_ms(ttl) <= 0:
        raise refuse(f"StateTtlConfig: found {ttl!r}, expected a positive duration")
    return ttl


class StateTtlConfig:
    """The time to live of values, the accesses that renew it, and the visibility of expired values.

    >>> config = StateTtlConfig.new_builder(Duration.of_hours(1)).update_ttl_on_read_and_write().build()
    >>> config.get_update_type().name, config.get_state_visibility().name, config.is_enabled()
    ('OnReadAndWrite', 'NeverReturnExpired', True)
    """

    class UpdateType(Enum):
        """The accesses that renew a value's time to live."""

        Disabled = 0
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """Whether an expired value may be returned."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """The clock that measures a value's age."""

        ProcessingTime = 0

    class CleanupStrategies:
        """Determines when expired values are removed."""

        class Strategies(Enum):
            """The available strategies."""

            FULL_STATE_SCAN_SNAPSHOT = 0
            INCREMENTAL_CLEANUP = 1
            ROCKSDB_COMPACTION_FILTER = 2

        class CleanupStrategy(ABC):  # noqa: B024 - a mark, as in PyFlink
            """Base of all strategies."""

        class EmptyCleanupStrategy(CleanupStrategy):
            """A strategy without settings."""

        class IncrementalCleanupStrategy(CleanupStrategy):
            """Removes a few entries at a time, while state is accessed."""

            def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
                self._cleanup_size = checked_count("cleanup_incrementally, cleanup_size", cleanup_size)
                self._run_cleanup_for_every_record = run_cleanup_for_every_record

            def get_cleanup_size(self) -> int:
                return self._cleanup_size

            def run_cleanup_for_every_record(self) -> bool:
                return self._run_cleanup_for_every_record

        class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
            """Removes entries during RocksDB compaction."""

            def __init__(
                self, query_time_after_num_entries: int, periodic_compaction_time: Duration | None = None
            ) -> None:
                self._query_time_after_num_entries = query_time_after_num_entries
                self._periodic_compaction_time = periodic_compaction_time or Duration.of_days(30)

            def get_query_time_after_num_entries(self) -> int:
                return self._query_time_after_num_entries

            def get_periodic_compaction_time(self) -> Duration:
                return self._periodic_compaction_time

        EMPTY_STRATEGY: ClassVar[EmptyCleanupStrategy] = EmptyCleanupStrategy()

        def __init__(
            self,
            strategies: dict[
                StateTtlConfig.CleanupStrategies.Strategies, StateTtlConfig.CleanupStrategies.CleanupStrategy
            ],
            is_cleanup_in_background: bool,
        ) -> None:
            self._strategies = dict(strategies)
            self._is_cleanup_in_background = is_cleanup_in_background

        def is_cleanup_in_background(self) -> bool:
            return self._is_cleanup_in_background

        def in_full_snapshot(self) -> bool:
            return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

        def get_incremental_cleanup_strategy(
            self,
        ) -> StateTtlConfig.CleanupStrategies.IncrementalCleanupStrategy | None:
            strategy = self._strategies.get(self.Strategies.INCREMENTAL_CLEANUP)
            if strategy is None and self._is_cleanup_in_background:
                return self.IncrementalCleanupStrategy(5, False)
            return strategy if isinstance(strategy, self.IncrementalCleanupStrategy) else None

        def get_rocksdb_compact_filter_cleanup_strategy(
            self,
        ) -> StateTtlConfig.CleanupStrategies.RocksdbCompactFilterCleanupStrategy | None:
            strategy = self._strategies.get(self.Strategies.ROCKSDB_COMPACTION_FILTER)
            if strategy is None and self._is_cleanup_in_background:
                return self.RocksdbCompactFilterCleanupStrategy(1000)
            return strategy if isinstance(strategy, self.RocksdbCompactFilterCleanupStrategy) else None

    class Builder:
        """Collects the settings."""

        def __init__(self, ttl: Duration | Time | timedelta) -> None:
            self._ttl = _as_duration(ttl)
            self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
            self._state_visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
            self._ttl_time_characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            self._is_cleanup_in_background = True
            self._strategies: dict[
                StateTtlConfig.CleanupStrategies.Strategies, StateTtlConfig.CleanupStrategies.CleanupStrategy
            ] = {}

        def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> Self:
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> Self:
            return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> Self:
            return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

        def set_state_visibility(self, state_visibility: StateTtlConfig.StateVisibility) -> Self:
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> Self:
            return self.set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> Self:
            return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic) -> Self:
            self._ttl_time_characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> Self:
            return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)

        def cleanup_full_snapshot(self) -> Self:
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.FULL_STATE_SCAN_SNAPSHOT] = strategies.EMPTY_STRATEGY
            return self

        def cleanup_incrementally(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> Self:
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.INCREMENTAL_CLEANUP] = strategies.IncrementalCleanupStrategy(
                cleanup_size, run_cleanup_for_every_record
            )
            return self

        def cleanup_in_rocksdb_compact_filter(
            self, query_time_after_num_entries: int, periodic_compaction_time: Duration | None = None
        ) -> Self:
            strategies = StateTtlConfig.CleanupStrategies
            kind = strategies.Strategies.ROCKSDB_COMPACTION_FILTER
            self._strategies[kind] = strategies.RocksdbCompactFilterCleanupStrategy(
                query_time_after_num_entries, periodic_compaction_time
            )
            return self

        def disable_cleanup_in_background(self) -> Self:
            self._is_cleanup_in_background = False
            return self

        def set_ttl(self, ttl: Duration | Time | timedelta) -> Self:
            self._ttl = _as_duration(ttl)
            return self

        def build(self) -> StateTtlConfig:
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._ttl_time_characteristic,
                self._ttl,
                StateTtlConfig.CleanupStrategies(self._strategies, self._is_cleanup_in_background),
            )

    def __init__(
        self,
        update_type: UpdateType,
        state_visibility: StateVisibility,
        ttl_time_characteristic: TtlTimeCharacteristic,
        ttl: Duration | Time | timedelta,
        cleanup_strategies: CleanupStrategies,
    ) -> None:
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = _as_duration(ttl)
        self._cleanup_strategies = cleanup_strategies

    @staticmethod
    def new_builder(ttl: Duration | Time | timedelta) -> StateTtlConfig.Builder:
        """Starts a builder with the time to live."""
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> UpdateType:
        return self._update_type

    def get_state_visibility(self) -> StateVisibility:
        return self._state_visibility

    def get_ttl(self) -> Duration:
        return self._ttl

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Whether values expire at all."""
        return self._update_type is not StateTtlConfig.UpdateType.Disabled

    def get_cleanup_strategies(self) -> CleanupStrategies:
        return self._cleanup_strategies

    def __repr__(self) -> str:
        return (
            f"StateTtlConfig<update_type={self._update_type.name}, state_visibility={self._state_visibility.name}, "
            f"ttl_time_characteristic={self._ttl_time_characteristic.name}, ttl={self._ttl!r}>"
        )
