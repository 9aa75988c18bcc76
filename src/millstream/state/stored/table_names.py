"""The names of tables and files that operators keep for themselves, beside the states that functions declare.

A manifest tells tables apart by their names alone. Those who write a table and those who read the store therefore have
its name from here. `KINDS` says what kind of state a reader calls the tables of each name.
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

PANES = "panes"  # windows of ready aggregates: what was aggregated of each pane
WINDOW_VALUES = "window values"  # fixed windows with a custom fold: one value per window, by the window's number
WINDOW_CONTENTS = "window contents"  # all other windows, by place
MERGING_WINDOWS = "merging windows"  # which windows of a key have become one

GROUPS = "groups"  # GROUP BY of a table: what was aggregated of each group
VERSIONS = "versions of the right table"  # of a temporal join, by key and time
GROUP_EXTREMES = "ordered values"  # MIN and MAX in GROUP BY of rows that change: those of each group; a name follows
GROUP_ARRIVALS = "values as they came"  # FIRST_VALUE and LAST_VALUE, likewise, by place; a name follows
GROUP_VALUE_PLACES = "places of values"  # and where each of those values is, by value; a name follows
GROUP_VALUES = "values"  # DISTINCT in GROUP BY of rows that change: those of each group, how often; a type follows
GROUP_MARKS = "marked values"  # and of rows that only come, with which aggregates have seen each; a name follows
LEFT_TABLE, RIGHT_TABLE = "rows of the left table", "rows of the right table"  # of a regular join, by join key
# And with how many partners each of them was given, by the same names, where partners are forgotten by the clock.
LEFT_PARTNERS, RIGHT_PARTNERS = "partners of the left rows", "partners of the right rows"
RANKED_ROWS = "ranked rows"  # Top-N: the rows of each partition that are, or may come to be, among the first
RANK_NUMBERS = "given numbers"  # and as which number each was given (0: not), where rows are forgotten by the clock
ORDERED_ROWS = "ordered rows"  # OVER by any order: all rows of each partition
ORDERED_RESULTS = "given results"  # and with which results each was given, where rows are forgotten by the clock
OVER_ROWS = "rows around rows"  # OVER: rows that wait for their time, and those that later ones look back to
OVER_TOTALS = "totals of rows"  # OVER: what was aggregated of each partition from its first row on
UPSERTED_ROWS = "upserted rows"  # of a table of upserts: the last row of each key
LOOKUP_RESULTS = "looked up rows"  # of a lookup join of a table that changes: what was found for each row
SINK_ROWS = "rows of the sink"  # what several rows of a query are under one key of a sink, as they came
MATERIALISED_ROWS = "rows of the table"  # of a table that is kept to be asked for: by primary key, or by row
ARCHIVED_FILES = (
    "archived files"  # of such a table: the files of rows that left it, by keys of theirs and their version
)
ARCHIVED_REMOVALS = (
    "archived removals"  # and keys that were taken away after their rows had left it, with the last version
)
TABLE_SESSIONS = "table sessions"  # SESSION of a table: what was aggregated of each session, by its begin
ROLLED = "result"  # the result so far of an aggregate that gives one for every record
LOOP = "loop"  # records on their way round
RECORDED_INPUT = "recorded input"  # what a source read, where a job records it

BROADCAST_KEY = "broadcast"
"""All entries of a broadcast state are rows of this one key."""

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
"""By name of the table. What a join keeps is "join rows" whatever its name; of other tables their schemas tell."""
