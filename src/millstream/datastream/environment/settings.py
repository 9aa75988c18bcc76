"""The settings of an environment: one configuration, and PyFlink's getters and setters over it.

Invariant: settings are stored only in the configuration, so that a setter, a `-D key=value` and a `Configuration`
passed by the program cannot disagree. User-supplied keys are checked against the known ones; a parallelism is checked
where it is set, and again against the maximum when the job is built.

Restart strategies use Flink's `restart-strategy.*` keys, with Flink's defaults.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from millstream.common.configuration import Configuration
from millstream.common.execution_config import ExecutionConfig
from millstream.common.options import check_key
from millstream.common.options.flink_options import buffer_timeout_ms, newest_set
from millstream.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from millstream.datastream.checkpoint_config import CheckpointConfig, log_settings_without_effect
from millstream.datastream.checkpointing_mode import CheckpointingMode
from millstream.datastream.environment.dependencies import log_jvm_settings
from millstream.datastream.environment.durations import duration_ms
from millstream.datastream.environment.launch_defaults import launch_defaults
from millstream.datastream.environment.program_settings import ProgramSettings
from millstream.datastream.execution_mode import RuntimeExecutionMode
from millstream.datastream.slot_sharing_group import SlotSharingGroup
from millstream.datastream.streams.argument_checks import checked_count, checked_text, refuse
from millstream.errors import ConfigurationError, ProgramError
from millstream.graph.notices import log_once
from millstream.graph.site import Site, here, refuse_type

if TYPE_CHECKING:
    from typing import Self

    from millstream.datastream.state_backend import StateBackend
    from millstream.jobs.settings.job_settings import JobSettings, RuntimeMode

__all__ = ["EnvironmentSettings", "restart_strategy_of"]

_PARALLELISM = "parallelism.default"
_MAX_PARALLELISM = "pipeline.max-parallelism"
_MAX_PARALLELISM_DEFAULT = 128
_MAX_PARALLELISM_LIMIT = 32768
_RUNTIME_MODE = "execution.runtime-mode"
_PARALLELISM_MAX = 1 << 15  # as in Flink
_BUFFER_TIMEOUT = "execution.buffer-timeout.interval"
_BUFFER_TIMEOUT_ENABLED = "execution.buffer-timeout.enabled"
_CHAINING, _CHAINING_OLDER = "pipeline.operator-chaining.enabled", "pipeline.operator-chaining"
_CHAINING_ACROSS_MAXIMA = "pipeline.operator-chaining.chain-operators-with-different-max-parallelism"
_CHANGELOG = "state.changelog.enabled"
_SAVEPOINT_DIRECTORY = "execution.checkpointing.savepoint-dir"
_STORE = "millstream.store"


def _cores() -> int:
    """The number of cores available to this process: Flink's default parallelism of a local environment."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class EnvironmentSettings:
    """The methods of `StreamExecutionEnvironment` that configure how jobs run."""

    _configuration: Configuration  # within a table job a plain copy, which the engine modifies
    _session: Any
    _default_local_parallelism: int | None = None

    def _start_settings(self) -> None:
        self._settings = ProgramSettings()
        self._configuration = self._settings
        self._config = ExecutionConfig(configuration=self._configuration)
        self._checkpoint_config = CheckpointConfig(configuration=self._configuration)
        self._restart: RestartStrategyConfiguration | None = None
        self._slot_sharing_groups: dict[str, SlotSharingGroup] = {}
        self._parallelism_site: Site = here()
        self._merge(Configuration.from_dict(launch_defaults()))

    def _merge(self, configuration: Configuration) -> None:
        """Merges settings, after checking keys and values that can be checked individually."""
        if not isinstance(configuration, Configuration):
            raise refuse_type(
                f"configure: found {configuration!r} ({type(configuration).__name__}), expected a Configuration. Make "
                "one of a dict by Configuration.from_dict(...)"
            )
        settings = configuration.to_dict()
        for key, value in settings.items():
            check_key(key, at=str(here()))
            if key in (_PARALLELISM, _MAX_PARALLELISM):
                checked_count(key, int(value) if value.strip().lstrip("-").isdecimal() else value)
            if key == _RUNTIME_MODE and value.upper() not in RuntimeExecutionMode.__members__:
                raise ConfigurationError(
                    f"{key}: found {value!r}, expected one of {', '.join(RuntimeExecutionMode.__members__)}",
                    at=str(here()),
                )
        if _PARALLELISM in settings:
            self._parallelism_site = here()
        self._configuration.add_all(configuration)

    def configure(self, configuration: Configuration) -> None:
        """Merges settings. An unknown key is rejected, with the nearest known one in the message."""
        self._merge(configuration)

    def get_config(self) -> ExecutionConfig:
        """The execution settings; changing them changes this environment."""
        return self._config

    # --- parallelism ------------------------------------------------------------------------------------

    def set_parallelism(self, parallelism: int) -> Self:
        """Sets the default number of subtasks of an operator."""
        checked_count("set_parallelism", parallelism)
        maximum = self._max_parallelism_setting()
        if maximum is not None and parallelism > maximum:
            raise refuse(f"set_parallelism: found {parallelism}, above this environment's maximum of {maximum}")
        self._configuration.set_integer(_PARALLELISM, parallelism)
        self._parallelism_site = here()
        return self

    def get_parallelism(self) -> int:
        """The configured parallelism, by default the number of cores."""
        return self._configuration.get_integer(_PARALLELISM, self.get_default_local_parallelism())

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Sets the number of key groups: the maximum parallelism of the job. Fixed once the job has run."""
        checked_count("set_max_parallelism", max_parallelism)
        if max_parallelism > _MAX_PARALLELISM_LIMIT:
            raise refuse(f"set_max_parallelism: found {max_parallelism}, expected at most {_MAX_PARALLELISM_LIMIT}")
        self._configuration.set_integer(_MAX_PARALLELISM, max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The configured maximum, by default 128."""
        return self._max_parallelism_setting() or _MAX_PARALLELISM_DEFAULT

    def _max_parallelism_setting(self) -> int | None:
        """The maximum if the program set it, otherwise None: a later call may still allow a higher parallelism."""
        maximum = self._configuration.get_integer(_MAX_PARALLELISM, -1)
        return maximum if maximum > 0 else None

    def _check_parallelism(self) -> None:
        if self.get_parallelism() > self.get_max_parallelism():
            raise ProgramError(
                f"the parallelism is {self.get_parallelism()} and the maximum {self.get_max_parallelism()}. "
                "Lower it, or raise set_max_parallelism before the job first runs",
                at=str(self._parallelism_site),
            )

    def get_default_local_parallelism(self) -> int:
        """The default parallelism of environments: the number of cores."""
        return self._default_local_parallelism or _cores()

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Changes the default parallelism of all environments that do not set one."""
        if checked_count("set_default_local_parallelism", parallelism) > _PARALLELISM_MAX:
            raise refuse(f"set_default_local_parallelism: found {parallelism}, expected at most {_PARALLELISM_MAX}")
        EnvironmentSettings._default_local_parallelism = parallelism

    # --- how it runs ------------------------------------------------------------------------------------

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> Self:
        """Sets the mode: STREAMING (the default), BATCH for bounded input, or AUTOMATIC."""
        if not isinstance(execution_mode, RuntimeExecutionMode):
            raise refuse_type(f"set_runtime_mode: found {execution_mode!r}, expected a RuntimeExecutionMode")
        self._configuration.set_string(_RUNTIME_MODE, execution_mode.name)
        return self

    def _runtime_mode(self) -> RuntimeMode:
        name = (self._configuration.get_string(_RUNTIME_MODE, "STREAMING") or "STREAMING").upper()
        modes: dict[str, RuntimeMode] = {"STREAMING": "STREAMING", "BATCH": "BATCH", "AUTOMATIC": "AUTOMATIC"}
        return modes[name]

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Sets the target duration of an epoch, because records are sent with their epoch. -1 optimises for throughput:
        only the checkpoint interval bounds an epoch."""
        checked_count("set_buffer_timeout", timeout_millis, least=-1)
        self._configuration.set_boolean(_BUFFER_TIMEOUT_ENABLED, timeout_millis >= 0)
        if timeout_millis >= 0:
            self._configuration.set_string(_BUFFER_TIMEOUT, f"{timeout_millis} ms")
        return self

    def get_buffer_timeout(self) -> int:
        """The configured timeout in ms; 100 by default, as in Flink; -1 if disabled."""
        timeout_ms = buffer_timeout_ms(self._configuration.to_dict())
        return 100 if timeout_ms is None else timeout_ms

    def disable_operator_chaining(self) -> Self:
        """Disables chaining of operators."""
        self._configuration.set_boolean(_CHAINING, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Whether operators are chained."""
        key = newest_set(self._configuration.to_dict(), _CHAINING, _CHAINING_OLDER)
        return self._configuration.get_boolean(key or _CHAINING, True)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Whether operators with different maximum parallelism may be chained."""
        return self._configuration.get_boolean(_CHAINING_ACROSS_MAXIMA, True)

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Self:
        """Registers the group's resources, which are stored without effect: Spark places the tasks."""
        if not isinstance(slot_sharing_group, SlotSharingGroup):
            raise refuse_type(f"register_slot_sharing_group: found {slot_sharing_group!r}, expected a SlotSharingGroup")
        self._slot_sharing_groups[slot_sharing_group.get_name()] = slot_sharing_group
        return self

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> Self:
        """Sets the restart strategy (PyFlink 1.x; PyFlink 2 uses `restart-strategy.*` keys, which also work here)."""
        if not isinstance(restart_strategy_configuration, RestartStrategyConfiguration):
            raise refuse_type(
                f"set_restart_strategy: found {restart_strategy_configuration!r}, expected one of RestartStrategies"
            )
        if self._settings.fixed(_RESTART) is not None:
            self._settings.warn_of_override(_RESTART, restart_strategy_configuration.get_description())
        else:
            self._restart = restart_strategy_configuration
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration | None:
        """The strategy set by the call or by configuration; None if neither."""
        return self._restart or restart_strategy_of(self._configuration)

    # --- checkpoints, state and the store ---------------------------------------------------------------

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The checkpoint settings; changing them changes this environment."""
        return self._checkpoint_config

    def enable_checkpointing(self, interval: int, mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE) -> Self:
        """Commits at least every `interval` ms by limiting the size of epochs. Every epoch is a checkpoint."""
        self._checkpoint_config.set_checkpoint_interval(interval)
        self._checkpoint_config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int:
        """The checkpoint interval in ms; -1 if not set."""
        return self._checkpoint_config.get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The configured mode; execution is always exactly-once."""
        return self._checkpoint_config.get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Newer name of `get_checkpointing_mode`."""
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self._checkpoint_config.is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        return self._checkpoint_config.is_force_unaligned_checkpoints()

    def set_state_backend(self, state_backend: StateBackend) -> Self:
        """Accepted for PyFlink 1.x programs; here state is always stored in memory-mapped columnar segments."""
        log_once("state backend", "state backends have no effect here: state is stored in mapped columnar segments")
        return self

    def enable_changelog_state_backend(self, enabled: bool) -> Self:
        """Accepted for PyFlink programs; every checkpoint is incremental here."""
        self._configuration.set_boolean(_CHANGELOG, bool(enabled))
        log_once("changelog", "the changelog state backend has no effect here: every checkpoint is incremental")
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """The configured value; None if not set."""
        return (
            self._configuration.get_boolean(_CHANGELOG, False) if self._configuration.contains_key(_CHANGELOG) else None
        )

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Sets the default location of savepoints."""
        directory = checked_text("set_default_savepoint_directory", directory)
        self._configuration.set_string(_SAVEPOINT_DIRECTORY, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        return self._configuration.get_string(_SAVEPOINT_DIRECTORY, "") or None

    def set_store(self, url: str) -> Self:
        """Sets the store of the job's epochs: a folder or an object store's URL (beyond PyFlink).

        A job that runs again with the same store resumes from its last epoch.
        """
        self._configuration.set_string(_STORE, checked_text("set_store", url))
        return self

    def _job_settings(self) -> JobSettings:
        from millstream.jobs.settings.job_settings import JobSettings

        interval_ms = self.get_checkpoint_interval()
        log_settings_without_effect(self._configuration)
        log_jvm_settings(self._configuration)
        return JobSettings(
            store=self._configuration.get_string(_STORE, "") or None,
            runtime_mode=self._runtime_mode(),
            parallelism=self.get_parallelism(),
            max_parallelism=self.get_max_parallelism(),
            restart=self.get_restart_strategy(),
            checkpoint_interval_ms=interval_ms if interval_ms > 0 else None,
            job_parameters=dict(self._config.get_global_job_parameters()),
            configuration=self._configuration.to_dict(),
            session=self._session,
            site=here(),
        )


_PREFIX = "restart-strategy."
_RESTART = f"{_PREFIX}type"
_NONE = ("none", "off", "disable")
_FIXED = ("fixed-delay", "fixeddelay")
_RATE = ("failure-rate", "failurerate")
_EXPONENTIAL = ("exponential-delay", "exponentialdelay")


def restart_strategy_of(configuration: Configuration) -> RestartStrategyConfiguration | None:
    """The configured strategy; None if not set.

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
