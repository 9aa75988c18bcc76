"""The names of tables and files in which operators store their own state, as opposed to states declared by functions.

A manifest distinguishes tables by name alone, so writers and readers of a table both take its name from here. `KINDS`
maps each name to the kind of state that readers report.
"""

from __future__ import annotations

__all__ = [
    "ARCHIVED_FILES",
    "ARCHIVED_REMOVALS",
    "BROADCAST_KEY",
    "EVENT_TIMERS",
    "GROUPS",
    "GROUP_ARRIVALS",
    "GROUP_EXTREMES",
    "GROUP_MARKS",
    "GROUP_VALUES",
    "GROUP_VALUE_PLACES",
    "JOIN_ROWS",
    "KINDS",
    "LEFT_PARTNERS",
    "LEFT_TABLE",
    "LOOKUP_RESULTS",
    "LOOP",
    "MATERIALISED_ROWS",
    "MERGING_WINDOWS",
    "ORDERED_RESULTS",
    "ORDERED_ROWS",
    "OVER_ROWS",
    "OVER_TOTALS",
    "PANES",
    "PROCESSING_TIMERS",
    "RANKED_ROWS",
    "RANK_NUMBERS",
    "RECORDED_INPUT",
    "RIGHT_PARTNERS",
    "RIGHT_TABLE",
    "ROLLED",
    "SINK_ROWS",
    "TABLE_ROWS",
    "TABLE_SESSIONS",
    "TIMERS",
    "UPSERTED_ROWS",
    "VERSIONS",
    "WINDOW_CONTENTS",
    "WINDOW_EVENT_TIMERS",
    "WINDOW_PROCESSING_TIMERS",
    "WINDOW_VALUES",
]

EVENT_TIMERS = "event timers"
PROCESSING_TIMERS = "processing timers"
WINDOW_EVENT_TIMERS = "window event timers"
WINDOW_PROCESSING_TIMERS = "window processing timers"

PANES = "panes"  # windows of built-in aggregates: the accumulators of each pane
WINDOW_VALUES = "window values"  # fixed windows with a custom fold: one value per window, by the window's number
WINDOW_CONTENTS = "window contents"  # all other windows, by place
MERGING_WINDOWS = "merging windows"  # which windows of a key have merged

GROUPS = "groups"  # GROUP BY of a table: the accumulators of each group
VERSIONS = "versions of the right table"  # of a temporal join, by key and time
GROUP_EXTREMES = "ordered values"  # MIN and MAX in GROUP BY of a changelog: the values of each group; a name follows
GROUP_ARRIVALS = "values as they came"  # FIRST_VALUE and LAST_VALUE, likewise, by position; a name follows
GROUP_VALUE_PLACES = "places of values"  # and the position of each of these values, by value; a name follows
GROUP_VALUES = "values"  # DISTINCT in GROUP BY of a changelog: the values of each group, with counts; a type follows
GROUP_MARKS = "marked values"  # and of insert-only input, with the aggregates that have seen each; a name follows
LEFT_TABLE, RIGHT_TABLE = "rows of the left table", "rows of the right table"  # of a regular join, by join key
# And the match count with which each row was emitted, by the same names, where the other side's rows expire by TTL.
LEFT_PARTNERS, RIGHT_PARTNERS = "partners of the left rows", "partners of the right rows"
RANKED_ROWS = "ranked rows"  # Top-N: the rows of each partition that are, or may become, among the first
RANK_NUMBERS = "given numbers"  # and the emitted rank of each (0: none), where rows expire by TTL
ORDERED_ROWS = "ordered rows"  # OVER by any order: all rows of each partition
ORDERED_RESULTS = "given results"  # and the emitted results of each, where rows expire by TTL
OVER_ROWS = "rows around rows"  # OVER: rows that wait for their time, and rows that later frames need
OVER_TOTALS = "totals of rows"  # OVER: the accumulators of each partition since its first row
UPSERTED_ROWS = "upserted rows"  # of a table of upserts: the last row of each key
LOOKUP_RESULTS = "looked up rows"  # of a lookup join of a table that changes: the rows found for each row
SINK_ROWS = "rows of the sink"  # the rows of a query under one key of a sink, in arrival order
MATERIALISED_ROWS = "rows of the table"  # of a materialised table: by primary key, or by row
ARCHIVED_FILES = "archived files"  # of a table with an archive: the files of archived rows, by key and version
ARCHIVED_REMOVALS = "archived removals"  # and keys deleted after their rows were archived, with the last version
TABLE_SESSIONS = "table sessions"  # SESSION of a table: the accumulators of each session, by its start
ROLLED = "result"  # the current result of an aggregate that emits a result per record
LOOP = "loop"  # records in the feedback edge
RECORDED_INPUT = "recorded input"  # the input of a source in a job that records it

BROADCAST_KEY = "broadcast"
"""All entries of a broadcast state are rows of this key."""

TIMERS, JOIN_ROWS, TABLE_ROWS = "timers", "join rows", "table rows"
KINDS = {
    EVENT_TIMERS: TIMERS,
    PROCESSING_TIMERS: TIMERS,
    WINDOW_EVENT_TIMERS: TIMERS,
    WINDOW_PROCESSING_TIMERS: TIMERS,
    PANES: PANES,
    WINDOW_VALUES: WINDOW_VALUES,
    MERGING_WINDOWS: MERGING_WINDOWS,
    LEFT_TABLE: TABLE_ROWS,
    RIGHT_TABLE: TABLE_ROWS,
    LEFT_PARTNERS: TABLE_ROWS,
    RIGHT_PARTNERS: TABLE_ROWS,
    VERSIONS: TABLE_ROWS,
    RANKED_ROWS: TABLE_ROWS,
    RANK_NUMBERS: TABLE_ROWS,
    ORDERED_ROWS: TABLE_ROWS,
    ORDERED_RESULTS: TABLE_ROWS,
    OVER_ROWS: TABLE_ROWS,
    LOOKUP_RESULTS: TABLE_ROWS,
    SINK_ROWS: TABLE_ROWS,
    ARCHIVED_FILES: TABLE_ROWS,
    TABLE_SESSIONS: TABLE_SESSIONS,
}
"""Kind by table name. Join buffers are "join rows" under any name; other tables take the kind of their schema."""
