"""Table options with an effect here, and how their values are parsed: an invalid value is an error where it is set.

They have Flink's names, and their values are case-insensitive. Other table options of Flink tune its own engine
(`table/environments/known_settings.py` has their names).
"""

from __future__ import annotations

from millstream.common.options.option import Option, OptionType

__all__ = [
    "CDC_DUPLICATES",
    "DISPLAY_WIDTH",
    "DML_SYNC",
    "FORCE_RECOMPILE",
    "LENGTH_ENFORCER",
    "NOT_NULL_ENFORCER",
    "ON_LOST_STATE",
    "SOURCE_IDLE_TIMEOUT",
    "STATE_LIFETIME",
    "TABLE_OPTIONS",
    "UNSTEADY_UPDATES",
    "UPSERT_MATERIALIZE",
]

NOT_NULL_ENFORCER = Option(
    "table.exec.sink.not-null-enforcer",
    OptionType.STRING,
    "error",
    "How to treat a row with NULL in a NOT NULL column of a sink.",
    choices=("error", "drop"),
)
LENGTH_ENFORCER = Option(
    "table.exec.sink.type-length-enforcer",
    OptionType.STRING,
    "ignore",
    "How to treat strings and bytes that do not have the length of a sink's column.",
    choices=("ignore", "trim_pad", "error"),
)
UPSERT_MATERIALIZE = Option(
    "table.exec.sink.upsert-materialize",
    OptionType.STRING,
    "auto",
    "Whether rows are materialised before a sink by key: if several may have one key, always, or never.",
    choices=("auto", "force", "none"),
)
UNSTEADY_UPDATES = Option(
    "table.optimizer.non-deterministic-update.strategy",
    OptionType.STRING,
    "try_resolve",
    "Whether a function that says something else each time is refused where rows change.",
    choices=("ignore", "try_resolve"),
)
ON_LOST_STATE = Option(
    "table.materialized.on-lost-state",
    OptionType.STRING,
    "refuse",
    "How to treat a materialised table whose new query cannot continue with its state.",
    choices=("refuse", "rebuild"),
)
STATE_LIFETIME = Option(
    "table.exec.state.ttl", OptionType.DURATION, 0, "How long unused state is retained; 0: forever."
)
SOURCE_IDLE_TIMEOUT = Option(
    "table.exec.source.idle-timeout", OptionType.DURATION, 0, "When an input without rows is no longer waited for."
)
CDC_DUPLICATES = Option(
    "table.exec.source.cdc-events-duplicate", OptionType.BOOLEAN, False, "Whether sources may emit a change twice."
)
FORCE_RECOMPILE = Option(
    "table.plan.force-recompile", OptionType.BOOLEAN, False, "Whether COMPILE PLAN writes a file anew that is there."
)
DISPLAY_WIDTH = Option(
    "table.display.max-column-width", OptionType.INT, 30, "How many characters of a value `print` shows."
)
DML_SYNC = Option("table.dml-sync", OptionType.BOOLEAN, False, "Whether an INSERT returns when its job has ended.")

TABLE_OPTIONS = {
    option.key: option
    for option in (
        NOT_NULL_ENFORCER,
        LENGTH_ENFORCER,
        UPSERT_MATERIALIZE,
        UNSTEADY_UPDATES,
        ON_LOST_STATE,
        STATE_LIFETIME,
        SOURCE_IDLE_TIMEOUT,
        CDC_DUPLICATES,
        FORCE_RECOMPILE,
        DISPLAY_WIDTH,
        DML_SYNC,
    )
}
