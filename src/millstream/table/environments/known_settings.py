"""Flink's table options by name: supported options, options that only tune Flink's engine, and rejected options.

Three tables list every known key. `OBEYED`: the option has an effect. `TUNING`: it tunes Flink's own engine without
changing results, so it is accepted and ignored. `FIXED`: it changes results or state and is not supported: its default
is accepted, any other value is rejected. A misspelt key that is similar to one of these is also rejected: an option
without effect is a costly mistake.
"""

from __future__ import annotations

from typing import Any

from millstream.common.configuration import Configuration
from millstream.common.options.option import Option, OptionType
from millstream.common.options.table_options import TABLE_OPTIONS
from millstream.errors import ConfigurationError, NotAvailableError, nearest
from millstream.graph.site import refuse

__all__ = ["FIXED", "KNOWN", "OBEYED", "TUNING", "check_setting", "check_settings"]

_PREFIX = "table."
_LIKENESS = 0.85

OBEYED = frozenset(TABLE_OPTIONS) | {
    "table.exec.resource.default-parallelism",
    "table.generated-code.max-length",
    "table.local-time-zone",
    "table.exec.async-scalar.buffer-capacity",
    "table.exec.async-scalar.max-attempts",
    "table.exec.async-scalar.max-concurrent-operations",
    "table.exec.async-scalar.retry-delay",
    "table.exec.async-scalar.retry-strategy",
    "table.exec.async-scalar.timeout",
}

_TUNING_EXEC = (
    "async-lookup.buffer-capacity async-lookup.key-ordered-enabled async-lookup.output-mode "
    "async-state.enabled "
    "deduplicate.insert-update-after-sensitive-enabled deduplicate.mini-batch.compact-changes-enabled "
    "disabled-operators interval-join.min-cleanup-interval local-hash-agg.adaptive.enabled "
    "mini-batch.enabled mini-batch.allow-latency mini-batch.size operator-fusion-codegen.enabled rank.topn-cache-size "
    "simplify-operator-name-enabled sink.keyed-shuffle sort.async-merge-enabled sort.max-num-file-handles "
    "spill-compression.block-size spill-compression.enabled uid.format uid.generation unbounded-over.version "
    "window-agg.buffer-size-limit"
)
_TUNING_OPTIMIZER = (
    "agg-phase-strategy bushy-join-reorder-threshold delta-join.strategy distinct-agg.split.bucket-num "
    "distinct-agg.split.enabled dynamic-filtering.enabled incremental-agg-enabled join-reorder-enabled "
    "join.broadcast-threshold multi-join.enabled multiple-input-enabled "
    "reuse-optimize-block-with-digest-enabled reuse-sink-enabled reuse-source-enabled reuse-sub-plan-enabled "
    "runtime-filter.enabled source.aggregate-pushdown-enabled source.predicate-pushdown-enabled "
    "source.report-statistics-enabled sql2rel.project-merge.enabled union-all-as-breakpoint-enabled"
)
TUNING = frozenset(
    f"{_PREFIX}{prefix}{name}"
    for prefix, names in (
        ("exec.", _TUNING_EXEC),
        ("optimizer.", _TUNING_OPTIMIZER),
        ("", "resources.download-dir"),
    )
    for name in names.split()
)

_STRING, _INT, _BOOLEAN, _DURATION = OptionType.STRING, OptionType.INT, OptionType.BOOLEAN, OptionType.DURATION
_THREE_MINUTES = 180_000
_NAMED_WHEN_MADE = "name it when the environment is created: with_built_in_catalog_name, with_built_in_database_name"
_EARLIER_RESULTS = "use CUMULATE windows, or results that change: GROUP BY window_start without window_end"
_LATER_WATERMARK = "delay the watermark for late rows: WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE"
FIXED = {
    option.key: option
    for option in (
        Option("table.builtin-catalog-name", _STRING, "default_catalog", _NAMED_WHEN_MADE),
        Option("table.builtin-database-name", _STRING, "default_database", _NAMED_WHEN_MADE),
        Option("table.catalog-store.kind", _STRING, "generic_in_memory", "create catalogs in the program"),
        Option("table.catalog-store.file.path", _STRING, "", "create catalogs in the program"),
        Option("table.column-expansion-strategy", _STRING, "", "name the columns in SELECT"),
        Option("table.dynamic-table-options.enabled", _BOOLEAN, True, "leave the OPTIONS hints out"),
        Option("table.exec.async-lookup.timeout", _DURATION, _THREE_MINUTES, "set the connector's own timeout"),
        Option("table.exec.emit.allow-lateness", _DURATION, 0, _LATER_WATERMARK),
        Option("table.exec.emit.early-fire.delay", _DURATION, 0, _EARLIER_RESULTS),
        Option("table.exec.emit.early-fire.enabled", _BOOLEAN, False, _EARLIER_RESULTS),
        Option("table.exec.emit.late-fire.delay", _DURATION, 0, _LATER_WATERMARK),
        Option("table.exec.emit.late-fire.enabled", _BOOLEAN, False, _LATER_WATERMARK),
        Option("table.exec.legacy-cast-behaviour", _STRING, "disabled", "write TRY_CAST where NULL is wanted"),
        Option("table.exec.sink.nested-constraint-enforcer", _STRING, "ignore", "filter such rows before the sink"),
        Option("table.exec.sink.rowtime-inserter", _STRING, "enabled", "CAST the time attribute to TIMESTAMP"),
        Option("table.exec.sort.default-limit", _INT, -1, "write LIMIT in the query"),
        Option("table.legacy-nested-row-nullability", _BOOLEAN, False, "declare fields NOT NULL or not"),
        Option("table.plan.compile.catalog-objects", _STRING, "all", "a compiled plan contains its tables"),
        Option("table.plan.restore.catalog-objects", _STRING, "all", "compile the plan again"),
        Option("table.rtas-ctas.atomicity-enabled", _BOOLEAN, False, "create the table first, then INSERT"),
        Option("table.sql-dialect", _STRING, "default", "write Flink's SQL"),
    )
    if option.key not in OBEYED
}
"""Options supported with their default only; the text names the alternative to another value."""
KNOWN = OBEYED | TUNING | FIXED.keys()


def check_setting(key: str, value: Any = None) -> None:
    """Rejects a key similar to one of Flink's table options, and an unsupported value.

    >>> check_setting("table.local-time-zone", "UTC")
    """
    if not key.startswith(_PREFIX):
        return
    if key in FIXED and value is not None:
        _check_default(FIXED[key], value)
    if key in KNOWN:
        return
    near = nearest(key, KNOWN, _LIKENESS)
    if near is not None:
        raise refuse(f"option {key!r} is unknown. Did you mean {near!r}?")


def check_settings(configuration: Configuration) -> None:
    """Checks all settings of a configuration."""
    for key, value in configuration.to_dict().items():
        check_setting(key, value)


def _check_default(option: Option, value: Any) -> None:
    """Rejects any value except the default."""
    try:
        parsed = option.parse(str(value))
    except ConfigurationError as error:
        raise refuse(error.message) from None
    if isinstance(parsed, str):
        parsed = parsed.strip().lower()
    if parsed != option.default:
        default = "the default" if option.default == "" else f"the default, {str(option.default).lower()!r},"
        raise NotAvailableError(
            f"'{option.key}' = {str(value)!r} is not available: only {default} is. Instead: {option.doc}"
        )
