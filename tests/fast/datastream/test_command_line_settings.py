"""Settings of the command line override those of the program, with one warning per setting, for every way in which
a program sets them, tables included. Proposed defaults override nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.run import RunRequest, run_program
from millstream.common import Configuration
from millstream.common.restart_strategy import RestartStrategies
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.environment.launch_defaults import with_job_receiver, with_launch_defaults
from millstream.table import StreamTableEnvironment, TableEnvironment

ENVIRONMENT = StreamExecutionEnvironment.get_execution_environment


class Received(Exception):
    """Ends the program where its job would be launched."""


def launches(
    program: Callable[[], Any], from_command_line: dict[str, str], proposed: tuple[str, ...] = ()
) -> list[Any]:
    """(graph, settings) of each job that the program would launch."""
    jobs: list[Any] = []

    def take(graph: Any, settings: Any) -> Any:
        jobs.append((graph, settings))
        raise Received

    with with_launch_defaults(from_command_line, proposed), with_job_receiver(take), pytest.raises(Received):
        program()
    return jobs


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "the command line" in each.getMessage()]


def streams(change: Callable[[StreamExecutionEnvironment], Any], name: str | None = None) -> Callable[[], None]:
    def program() -> None:
        env = ENVIRONMENT()
        change(env)
        env.from_collection([1]).print()
        env.execute(name)

    return program


@pytest.mark.parametrize(
    ("key", "value", "change"),
    [
        ("parallelism.default", "3", lambda env: env.set_parallelism(1)),
        ("parallelism.default", "3", lambda env: env.configure(Configuration().set_integer("parallelism.default", 1))),
        ("pipeline.max-parallelism", "64", lambda env: env.set_max_parallelism(32)),
        ("millstream.store", "jobs/said", lambda env: env.set_store("jobs/own")),
        ("execution.checkpointing.interval", "5 s", lambda env: env.enable_checkpointing(1_000)),
        ("execution.runtime-mode", "BATCH", lambda env: env.configure(_mode("STREAMING"))),
        ("execution.buffer-timeout.interval", "5 s", lambda env: env.set_buffer_timeout(10)),
        ("execution.buffer-timeout", "5 s", lambda env: env.set_buffer_timeout(10)),
        ("pipeline.operator-chaining", "true", lambda env: env.disable_operator_chaining()),
        ("user.place", "said", lambda env: env.configure(Configuration().set_string("user.place", "own"))),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_each_command_line_setting_overrides_and_the_warning_names_both_values(
    key: str, value: str, change: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    [(_, settings)] = launches(streams(change), {key: value})
    assert settings.configuration[key] == value
    [warning] = warnings(caplog)
    assert f"the command line sets {key} to '{value}': the program's " in warning
    assert "test_command_line_settings.py" in warning
    unmoved = launches(streams(lambda env: None), {key: value})[0][1]
    assert (settings.parallelism, settings.store, settings.checkpoint_interval_ms, settings.runtime_mode) == (
        unmoved.parallelism,
        unmoved.store,
        unmoved.checkpoint_interval_ms,
        unmoved.runtime_mode,
    )


def _mode(name: str) -> Configuration:
    return Configuration().set_string("execution.runtime-mode", name)


def test_the_job_name_and_the_restart_strategy_are_overridden_too(caplog: pytest.LogCaptureFixture) -> None:
    from_command_line = {"pipeline.name": "said", "restart-strategy.type": "none"}
    strategy = RestartStrategies.fixed_delay_restart(3, 10)
    [(graph, settings)] = launches(streams(lambda env: env.set_restart_strategy(strategy), "own"), from_command_line)
    assert graph.job_name == "said" and settings.restart == RestartStrategies.no_restart()
    assert len(warnings(caplog)) == 2


@pytest.mark.parametrize("value", ["5 s", "5000", "PT5S"])
def test_an_equal_value_in_another_notation_does_not_warn(value: str, caplog: pytest.LogCaptureFixture) -> None:
    launches(streams(lambda env: env.enable_checkpointing(5_000)), {"execution.checkpointing.interval": value})
    assert not warnings(caplog)


def test_a_proposed_default_is_overridden_by_the_program(caplog: pytest.LogCaptureFixture) -> None:
    own = Configuration().set_string("millstream.console", "off")
    proposal = {"millstream.console": "rich"}
    [(_, settings)] = launches(streams(lambda env: env.configure(own)), proposal, proposed=("millstream.console",))
    assert settings.configuration["millstream.console"] == "off" and not warnings(caplog)


def test_the_console_proposed_by_millstream_run_is_only_a_default(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "job.py"
    program.write_text(
        "from millstream.common import Configuration\n"
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.configure(Configuration().set_string('millstream.console', 'off').set_integer('parallelism.default', 1))\n"
        "env.from_collection([1]).print()\n"
        "settings = env._job_settings()\n"
        "print(settings.configuration['millstream.console'], settings.parallelism)\n"
    )
    assert run_program(RunRequest(program, parallelism=3)) == 0
    assert capfd.readouterr().out.split() == ["off", "3"]
    [warning] = warnings(caplog)
    assert "sets parallelism.default to '3': the program's '1' is not used (job.py:4)" in warning


# --- tables -----------------------------------------------------------------------------------------------------------

PRINTED = "CREATE TABLE printed (i INT) WITH ('connector' = 'blackhole')"


def tables(*changes: Callable[[TableEnvironment], Any]) -> Callable[[], None]:
    def program() -> None:
        t_env = StreamTableEnvironment.create(ENVIRONMENT())
        for change in changes:
            change(t_env)
        t_env.execute_sql(PRINTED)
        t_env.execute_sql("INSERT INTO printed VALUES (1)")

    return program


@pytest.mark.parametrize(
    "change",
    [
        lambda t_env: t_env.get_config().set("parallelism.default", "1"),
        lambda t_env: t_env.get_config().get_configuration().set_integer("parallelism.default", 1),
        lambda t_env: t_env.execute_sql("SET 'parallelism.default' = '1'"),
    ],
    ids=["set", "configuration", "SET"],
)
def test_table_settings_are_overridden_by_the_command_line(change: Any, caplog: pytest.LogCaptureFixture) -> None:
    [(_, settings)] = launches(tables(change), {"parallelism.default": "3"})
    assert settings.parallelism == 3
    assert len(warnings(caplog)) == 1


def test_settings_read_only_by_queries_are_overridden_too(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    def change(t_env: TableEnvironment) -> None:
        t_env.get_config().set("table.local-time-zone", "Asia/Tokyo")
        t_env.execute_sql("RESET 'table.local-time-zone'")
        seen.append(t_env.get_config().get_local_timezone())

    launches(tables(change), {"table.local-time-zone": "Europe/Berlin"})
    assert seen == ["Europe/Berlin"] and len(warnings(caplog)) == 1


def test_a_table_query_uses_a_store_of_its_own_inside_the_command_lines_store(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    from_command_line = {"millstream.store": str(tmp_path / "jobs"), "pipeline.name": "said"}

    def program() -> None:
        StreamTableEnvironment.create(ENVIRONMENT()).execute_sql("SELECT * FROM (VALUES (1)) AS t(i)")

    [(graph, settings)] = launches(program, from_command_line)
    assert settings.store is not None and settings.store != from_command_line["millstream.store"]
    assert graph.job_name == "said" and not warnings(caplog)


def test_environment_settings_of_tables_are_overridden_too(caplog: pytest.LogCaptureFixture) -> None:
    def program() -> None:
        from millstream.table import EnvironmentSettings

        settings = EnvironmentSettings.new_instance().with_configuration(
            Configuration().set_integer("parallelism.default", 1)
        )
        t_env = TableEnvironment.create(settings.build())
        t_env.execute_sql(PRINTED)
        t_env.execute_sql("INSERT INTO printed VALUES (1)")

    [(_, settings)] = launches(program, {"parallelism.default": "3"})
    assert settings.parallelism == 3 and len(warnings(caplog)) == 1
