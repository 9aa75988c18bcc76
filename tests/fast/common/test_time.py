"""Durations and instants are exact, ordered and interoperable with Python's timedelta; strategies are plain data."""

from __future__ import annotations

from datetime import timedelta

import pytest

from millstream.common import Duration, Instant, Time, WatermarkStrategy
from millstream.common.time import as_duration, duration_ms
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkAlignment, WatermarkKind
from millstream.errors import NotAvailableError, ProgramError


def test_units_of_duration_agree() -> None:
    assert Duration.of_days(1) == Duration.of_hours(24) == Duration.of_minutes(1440) == Duration.of_seconds(86_400)
    assert Duration.of_seconds(1) == Duration.of_millis(1000) == Duration.of_nanos(10**9)
    assert Duration.of_nanos(1_999_999).to_millis() == 1
    assert hash(Duration.of_seconds(1)) == hash(Duration.of_millis(1000))


def test_durations_are_ordered_and_can_be_added() -> None:
    second, minute = Duration.of_seconds(1), Duration.of_minutes(1)
    assert second < minute and minute >= second and max(second, minute) is minute
    assert second * 60 == 60 * second == minute
    assert minute // 60 == second
    assert minute - second == Duration.of_seconds(59)
    assert minute + timedelta(seconds=1) == Duration.of_seconds(61)
    assert not (second - second)
    assert -second < Duration.of_nanos(0)
    assert second != 1000
    with pytest.raises(TypeError):
        _ = second < 1


def test_timedeltas_and_times_are_accepted_as_durations() -> None:
    assert as_duration(timedelta(milliseconds=5)) == as_duration(Time.milliseconds(5)) == Duration.of_millis(5)
    assert duration_ms(timedelta(seconds=1.5)) == 1500
    for wrong in (5, "5 s", None):
        with pytest.raises(ProgramError, match="expected a length of time"):
            as_duration(wrong)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="a whole number"):
        Duration.of_seconds(0.5)  # type: ignore[arg-type]
    with pytest.raises(NotAvailableError):
        Duration(object())


def test_repr_of_a_duration_evaluates_to_it() -> None:
    for duration in (Duration.of_millis(5), Duration.of_nanos(5)):
        assert eval(repr(duration), {"Duration": Duration}) == duration


def test_times_are_milliseconds() -> None:
    lengths = [Time.days(1), Time.hours(1), Time.minutes(1), Time.seconds(1), Time.milliseconds(1)]
    assert [t.to_milliseconds() for t in lengths] == [86_400_000, 3_600_000, 60_000, 1_000, 1]
    assert Time.seconds(1) == Time(1000)


def test_instants_are_exact_before_and_after_1970() -> None:
    for milli in (-1001, -1, 0, 1, 999, 10**15):
        assert Instant.of_epoch_milli(milli).to_epoch_milli() == milli
    assert Instant.of_epoch_milli(-1) == Instant(-1, 999_000_000)
    assert Instant(1, 0) > Instant(0, 999_999_999)
    with pytest.raises(ProgramError, match="nanoseconds"):
        Instant(0, 10**9)


class BySecondField(TimestampAssigner):
    def extract_timestamp(self, value: tuple[str, int], record_timestamp: int) -> int:
        return value[1]


def test_strategies_describe_what_the_runtime_needs() -> None:
    none = WatermarkStrategy.no_watermarks()
    assert (none.kind, none.max_out_of_orderness_ms) == (WatermarkKind.NONE, None)
    monotonous = WatermarkStrategy.for_monotonous_timestamps()
    assert (monotonous.kind, monotonous.max_out_of_orderness_ms) == (WatermarkKind.MONOTONOUS, 0)
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=2))
    assert (bounded.kind, bounded.max_out_of_orderness_ms) == (WatermarkKind.BOUNDED, 2000)
    assert bounded == WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2)) != monotonous


def test_each_with_method_returns_a_new_strategy_and_retains_the_rest() -> None:
    plain = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2))
    assigner = BySecondField()
    full = (
        plain.with_timestamp_assigner(assigner)
        .with_idleness(Duration.of_minutes(1))
        .with_watermark_alignment("group", Duration.of_seconds(3))
    )
    assert plain.timestamp_assigner is None and plain.idle_timeout_ms is None and plain.alignment is None
    assert full.timestamp_assigner is assigner
    assert full.idle_timeout_ms == 60_000
    assert full.alignment == WatermarkAlignment("group", 3000, 1000)
    assert full.max_out_of_orderness_ms == 2000


def test_only_functions_and_assigners_are_accepted_as_assigners() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value * 2)
    assert strategy.timestamp_assigner is not None
    assert strategy.timestamp_assigner.extract_timestamp(21, -1) == 42
    with pytest.raises(ProgramError, match="TimestampAssigner"):
        strategy.with_timestamp_assigner(1.5)  # type: ignore[arg-type]


def test_invalid_lengths_are_rejected() -> None:
    with pytest.raises(ProgramError, match="0 or more"):
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(-1))
    with pytest.raises(ProgramError, match="more than 0"):
        WatermarkStrategy.no_watermarks().with_idleness(Duration.of_seconds(0))
    with pytest.raises(NotAvailableError, match="for_monotonous_timestamps"):
        WatermarkStrategy(object())
