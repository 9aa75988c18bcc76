"""The restart strategy a configuration asks for, by Flink's `restart-strategy.*` keys and with Flink's defaults."""

from __future__ import annotations

from millstream.common.configuration import Configuration
from millstream.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from millstream.datastream.environment.durations import duration_ms
from millstream.errors import ConfigurationError

__all__ = ["restart_strategy_of"]

_PREFIX = "restart-strategy."
_NONE = ("none", "off", "disable")
_FIXED = ("fixed-delay", "fixeddelay")
_RATE = ("failure-rate", "failurerate")
_EXPONENTIAL = ("exponential-delay", "exponentialdelay")


def restart_strategy_of(configuration: Configuration) -> RestartStrategyConfiguration | None:
    """The strategy, or None when the configuration names none.

    >>> settings = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "3"}
    >>> restart_strategy_of(Configuration.from_dict(settings)).get_description()
    'Restart with fixed delay (1000 ms). #3 restart attempts.'
    """
    # Flink 1.x spelt the type `restart-strategy`.
    text = configuration.get_string(_PREFIX + "type", None) or configuration.get_string("restart-strategy", None)
    if text is None:
        return None
    kind = text.strip().lower()
    if kind in _NONE:
        return RestartStrategies.no_restart()
    if kind in _FIXED:
        fixed = _PREFIX + "fixed-delay."
        attempts = configuration.get_integer(fixed + "attempts", 1)
        return RestartStrategies.fixed_delay_restart(attempts, duration_ms(configuration, fixed + "delay", 1000))
    if kind in _RATE:
        rate = _PREFIX + "failure-rate."
        return RestartStrategies.failure_rate_restart(
            configuration.get_integer(rate + "max-failures-per-interval", 1),
            duration_ms(configuration, rate + "failure-rate-interval", 60_000),
            duration_ms(configuration, rate + "delay", 1000),
        )
    if kind in _EXPONENTIAL:
        return _exponential(configuration, _PREFIX + "exponential-delay.")
    kinds = ", ".join(names[0] for names in (_NONE, _FIXED, _RATE, _EXPONENTIAL))
    raise ConfigurationError(f"{_PREFIX}type is set to {text!r}, expected one of {kinds}. Correct the setting.")


def _exponential(configuration: Configuration, prefix: str) -> RestartStrategyConfiguration:
    return RestartStrategies.exponential_delay_restart(
        duration_ms(configuration, prefix + "initial-backoff", 1000),
        duration_ms(configuration, prefix + "max-backoff", 60_000),
        configuration.get_float(prefix + "backoff-multiplier", 1.5),
        duration_ms(configuration, prefix + "reset-backoff-threshold", 3_600_000),
        configuration.get_float(prefix + "jitter-factor", 0.1),
    )
