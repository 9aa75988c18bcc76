"""Every known table option has an effect: it is read here, tunes Flink's engine, or has a single supported value."""

from __future__ import annotations

from pathlib import Path

import pytest

import millstream
from millstream.common import Configuration
from millstream.common.options.table_options import TABLE_OPTIONS
from millstream.errors import MillstreamError, NotAvailableError
from millstream.table import EnvironmentSettings, TableConfig, TableEnvironment
from millstream.table.environments.known_settings import FIXED, KNOWN, OBEYED, TUNING

SOURCES = Path(millstream.__file__).parent
TABLES = ("known_settings.py", "table_options.py")
OTHER_VALUES = {
    "table.builtin-catalog-name": "mine",
    "table.builtin-database-name": "mine",
    "table.catalog-store.kind": "file",
    "table.catalog-store.file.path": "catalogs",
    "table.column-expansion-strategy": "EXCLUDE_ALIASED_VIRTUAL_METADATA_COLUMNS",
    "table.dynamic-table-options.enabled": "false",
    "table.exec.async-lookup.timeout": "5 s",
    "table.exec.emit.allow-lateness": "1 min",
    "table.exec.emit.early-fire.delay": "10 s",
    "table.exec.emit.early-fire.enabled": "true",
    "table.exec.emit.late-fire.delay": "1 s",
    "table.exec.emit.late-fire.enabled": "true",
    "table.exec.legacy-cast-behaviour": "ENABLED",
    "table.exec.sink.nested-constraint-enforcer": "ERROR",
    "table.exec.sink.rowtime-inserter": "DISABLED",
    "table.exec.sort.default-limit": "10",
    "table.legacy-nested-row-nullability": "true",
    "table.plan.compile.catalog-objects": "IDENTIFIER",
    "table.plan.restore.catalog-objects": "IDENTIFIER",
    "table.rtas-ctas.atomicity-enabled": "true",
    "table.sql-dialect": "hive",
}
DEFAULTS = {
    "table.column-expansion-strategy": "",
    "table.catalog-store.file.path": "",
    "table.exec.async-lookup.timeout": "3 min",
    "table.exec.emit.allow-lateness": "0 ms",
    "table.exec.legacy-cast-behaviour": "DISABLED",
    "table.sql-dialect": "DEFAULT",
}


def _constants() -> dict[str, str]:
    """Options by the names of their constants."""
    from millstream.common.options import table_options

    return {getattr(table_options, name).key: name for name in table_options.__all__ if name != "TABLE_OPTIONS"}


def test_every_known_setting_is_in_one_table() -> None:
    assert len(KNOWN) == len(OBEYED) + len(TUNING) + len(FIXED)
    assert TABLE_OPTIONS.keys() <= OBEYED


def test_every_effective_setting_is_read_in_the_source() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py") if path.name not in TABLES]
    constants = _constants()
    unread = [key for key in OBEYED if not any(constants.get(key, f'"{key}"') in text for text in texts)]
    assert not unread, f"accepted settings that are never read: {unread}"


@pytest.mark.parametrize("key", sorted(FIXED))
def test_an_unsupported_setting_accepts_only_its_default(key: str) -> None:
    config = TableConfig.get_default()
    default = DEFAULTS.get(key, str(FIXED[key].default))
    assert config.set(key, default).get(key, "-") in (default, "-")
    with pytest.raises(NotAvailableError, match=f"'{key}' = .* is not available: only the default.* Instead: "):
        config.set(key, OTHER_VALUES[key])
    configuration = Configuration().set_string(key, OTHER_VALUES[key])
    for take in (config.add_configuration, _created):
        with pytest.raises(NotAvailableError):
            take(configuration)


def _created(configuration: Configuration) -> None:
    settings = EnvironmentSettings.new_instance().with_configuration(configuration).build()
    TableEnvironment.create(settings)


@pytest.mark.parametrize("key", sorted(TUNING))
def test_a_setting_that_tunes_flinks_engine_is_accepted(key: str) -> None:
    TableConfig.get_default().set(key, "true")


def test_setting_an_unsupported_option_by_statement_is_rejected() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.execute_sql("SET 'table.exec.sink.nested-constraint-enforcer' = 'IGNORE'")
    with pytest.raises(MillstreamError, match="filter such rows before the sink"):
        t_env.execute_sql("SET 'table.exec.sink.nested-constraint-enforcer' = 'ERROR'")


def test_print_truncates_texts_to_the_configured_width(capsys: pytest.CaptureFixture[str]) -> None:
    from millstream.testing.local_jobs import jobs_in_memory

    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        text = "x" * 50
        t_env.execute_sql(f"SELECT '{text}'").print()
        assert text not in capsys.readouterr().out
        t_env.get_config().set("table.display.max-column-width", "60")
        t_env.execute_sql(f"SELECT CAST('{text}' AS STRING)").print()
        assert text in capsys.readouterr().out
