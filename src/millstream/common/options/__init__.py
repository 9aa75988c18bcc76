"""Every configuration key with an effect, and how its value is parsed.

The table is also the documentation: `KNOWN` holds each key with its type, its default, and its effect, Flink's keys
(`flink_options`) as well as our own. `check_key` rejects an unknown key and names the nearest one: a misspelt setting
that is silently ignored is the most expensive kind of typo.

Users may set keys of their own under `user.`, Spark's under `spark.`, and job parameters. Whole families that only
concern Flink's cluster (`taskmanager.`, `rest.`, ...) are accepted and have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.common.configuration import Configuration
from millstream.common.options.flink_options import FLINK_OPTIONS, IGNORED_FAMILIES
from millstream.common.options.option import Option, OptionType
from millstream.errors import ConfigurationError, did_you_mean

__all__ = [
    "BATCH_MAX_RECORDS",
    "CACHE_DIRECTORY",
    "CONSOLE",
    "EPOCH_MAX_BYTES",
    "EPOCH_MAX_RECORDS",
    "EPOCH_MIN_INTERVAL",
    "EPOCH_POLL_INTERVAL",
    "KNOWN",
    "LOOP_ROUNDS_MAX",
    "PLACEMENT_STICKY",
    "PLACEMENT_WAIT",
    "QUERY_ALLOW_ANONYMOUS",
    "QUERY_ALLOW_HOSTS",
    "QUERY_ALLOW_ORIGINS",
    "QUERY_ALLOW_UNDECLARED",
    "QUERY_CERTIFICATE",
    "QUERY_FLIGHT_PORT",
    "QUERY_LISTEN",
    "QUERY_PAGE",
    "QUERY_PRIVATE_KEY",
    "QUERY_TOKENS",
    "QUERY_TRUSTED_PROXIES",
    "RECORD",
    "RESCALE_AUTO",
    "RESCALE_COOLDOWN",
    "RESCALE_MAX",
    "RESCALE_MIN",
    "RESCALE_TARGET_EPOCH",
    "RETENTION_EPOCHS",
    "RETENTION_INTERVAL",
    "RETENTION_PERIOD",
    "SPARK_MASTER",
    "STORE",
    "STORE_PATIENCE",
    "STORE_PRIVATE",
    "STORE_SHARED",
    "SUM_OVERFLOW",
    "TAKE_OVER",
    "TIER_FOLDER",
    "TIER_MAX_BYTES",
    "Option",
    "OptionType",
    "check_key",
    "read",
]

STORE = Option(
    "millstream.store", OptionType.STRING, None, "Where the job keeps its epochs: a folder or an object store's URL."
)
STORE_PATIENCE = Option(
    "millstream.store.patience",
    OptionType.DURATION,
    10_000,
    "How long the job waits for a store that does not answer, call by call, before the restart strategy decides.",
)
STORE_PRIVATE = Option(
    "millstream.store.private",
    OptionType.BOOLEAN,
    False,
    "Whether the store's folder is for this user alone (0700, its files 0600); otherwise they are as the umask says.",
)
STORE_SHARED = Option(
    "millstream.store.shared",
    OptionType.BOOLEAN,
    False,
    "On a cluster: that the store's folder is mounted under the same name on every machine.",
)
TAKE_OVER = Option(
    "millstream.take-over",
    OptionType.BOOLEAN,
    False,
    "Whether to start where another driver runs the job, which then stops; otherwise the start is refused.",
)
TIER_FOLDER = Option(
    "millstream.tier.folder",
    OptionType.STRING,
    None,
    "Where tasks keep files of an object store on their machine: a folder for this user alone, by default below the "
    "folder for temporary files; 'off' for none.",
)
TIER_MAX_BYTES = Option(
    "millstream.tier.max-bytes",
    OptionType.INT,
    None,
    "How many bytes are stored there per machine; the least recently used are evicted first. By default 16 GiB, or a "
    "quarter of the disk if that is less.",
)
AHEAD_MAX_EPOCHS = Option(
    "millstream.ahead.max-epochs",
    OptionType.INT,
    None,
    "How many epochs may be run before the first of them is committed. By default 8 with an object store; 0 with a "
    "folder and in BATCH: each epoch is committed before the next.",
)
AHEAD_MAX_BYTES = Option(
    "millstream.ahead.max-bytes",
    OptionType.INT,
    1024 * 1024 * 1024,
    "About how many bytes they may have read and written together; then the job waits for a commit.",
)
AHEAD_MAX_AGE = Option(
    "millstream.ahead.max-age",
    OptionType.DURATION,
    600_000,
    "For how long epochs are run while the store is away; then the job pauses until it is back.",
)
EPOCH_MAX_RECORDS = Option(
    "millstream.epoch.max-records", OptionType.INT, 2_000_000, "The most records an epoch reads from all sources."
)
EPOCH_MAX_BYTES = Option(
    "millstream.epoch.max-bytes",
    OptionType.INT,
    256 * 1024 * 1024,
    "About the most bytes of records an epoch reads from all sources, by the size of the records of the epoch before.",
)
EPOCH_POLL_INTERVAL = Option(
    "millstream.epoch.poll-interval", OptionType.DURATION, 20, "How long to wait, with no input, before the next poll."
)
EPOCH_MIN_INTERVAL = Option(
    "millstream.epoch.min-interval", OptionType.DURATION, 0, "The least time from one epoch's start to the next's."
)
BATCH_MAX_RECORDS = Option(
    "millstream.batch.max-records", OptionType.INT, 65_536, "The most rows in one Arrow batch inside a task."
)
RETENTION_EPOCHS = Option(
    "millstream.retention.epochs", OptionType.INT, 10, "How many of its newest epochs a job keeps."
)
RETENTION_INTERVAL = Option(
    "millstream.retention.interval", OptionType.DURATION, None, "Keep besides the first epoch of every such interval."
)
RETENTION_PERIOD = Option(
    "millstream.retention.period", OptionType.DURATION, None, "For how long those are retained; forever unless set."
)
LOOP_ROUNDS_MAX = Option(
    "millstream.loop.rounds-max",
    OptionType.INT,
    16,
    "The maximal rounds of a loop in an epoch; records in the loop then continue in the next epoch.",
)
CACHE_DIRECTORY = Option(
    "millstream.cache.directory",
    OptionType.STRING,
    None,
    "Where cached streams are stored while the program runs: a folder or URL that all tasks reach. By default a folder "
    "of the driver's machine.",
)
RECORD = Option(
    "millstream.record",
    OptionType.BOOLEAN,
    False,
    "Whether each epoch's input is stored, for replaying epochs of sources that cannot be read again.",
)
RESCALE_AUTO = Option(
    "millstream.rescale.auto", OptionType.BOOLEAN, False, "Whether the job changes its parallelism by itself."
)
RESCALE_MIN = Option("millstream.rescale.min", OptionType.INT, 1, "The lowest parallelism it may choose.")
RESCALE_MAX = Option("millstream.rescale.max", OptionType.INT, None, "The highest parallelism it may choose.")
RESCALE_TARGET_EPOCH = Option(
    "millstream.rescale.target-epoch",
    OptionType.DURATION,
    1_000,
    "How long an epoch should run: longer ones with input left over raise the parallelism, shorter ones lower it.",
)
RESCALE_COOLDOWN = Option(
    "millstream.rescale.cooldown", OptionType.DURATION, 60_000, "How long a parallelism stays before it may change."
)
PLACEMENT_STICKY = Option(
    "millstream.placement.sticky",
    OptionType.BOOLEAN,
    True,
    "On a cluster: whether a subtask runs where it ran before, next to its open functions and its cached state.",
)
PLACEMENT_WAIT = Option(
    "millstream.placement.wait",
    OptionType.DURATION,
    1_000,
    "On a cluster: how long a task waits for its executor while that is busy; then another one takes it, and keeps it.",
)
SUM_OVERFLOW = Option(
    "millstream.sum.overflow",
    OptionType.STRING,
    "wrap",
    "How a built-in sum handles overflow of its declared BYTE, SHORT, INT or LONG: wrap around, as in Flink, or be an "
    "error that names the record or window.",
    choices=("wrap", "error"),
)
QUERY_LISTEN = Option(
    "millstream.query.listen",
    OptionType.STRING,
    None,
    "Answer questions about the job's state there while it runs: HOST:PORT; port 0 takes any that is free.",
)
QUERY_FLIGHT_PORT = Option(
    "millstream.query.flight-port", OptionType.INT, None, "Answer them in Arrow Flight too, at this port; 0 for any."
)
QUERY_TOKENS = Option(
    "millstream.query.tokens", OptionType.STRING, None, "The access rights: a JSON file of bearer tokens."
)
QUERY_CERTIFICATE = Option("millstream.query.certificate", OptionType.STRING, None, "TLS: the certificate, a PEM file.")
QUERY_PRIVATE_KEY = Option("millstream.query.private-key", OptionType.STRING, None, "TLS: its private key, a PEM file.")
QUERY_ALLOW_ANONYMOUS = Option(
    "millstream.query.allow-anonymous",
    OptionType.BOOLEAN,
    False,
    "Whether other machines may send queries without tokens.",
)
QUERY_ALLOW_UNDECLARED = Option(
    "millstream.query.allow-undeclared",
    OptionType.BOOLEAN,
    False,
    "Whether states that the program did not make queryable may be queried.",
)
QUERY_ALLOW_ORIGINS = Option(
    "millstream.query.allow-origins",
    OptionType.LIST,
    None,
    "Web pages from there may send queries: 'https://a.example;…'.",
)
QUERY_ALLOW_HOSTS = Option(
    "millstream.query.allow-hosts",
    OptionType.LIST,
    None,
    "Requests may name these hosts, too: 'a.example;…'.",
)
QUERY_TRUSTED_PROXIES = Option(
    "millstream.query.trusted-proxies",
    OptionType.LIST,
    None,
    "Proxies whose X-Forwarded-For is believed: '10.0.0.5;…'.",
)
QUERY_PAGE = Option(
    "millstream.query.page", OptionType.STRING, None, "One HTML file, served at /: a dashboard that queries the job."
)
CONSOLE = Option(
    "millstream.console",
    OptionType.STRING,
    "auto",
    "The live view of a running job: rich, plain, off, or auto (one line in a terminal; millstream run: rich there).",
    choices=("auto", "rich", "plain", "off"),
)
SQL_UNBOUNDED_JOINS = Option(
    "millstream.sql.unbounded-joins",
    OptionType.STRING,
    "warn",
    "How to treat a join of streams that must store all rows forever: allow, warn when the job starts, or refuse.",
    choices=("allow", "warn", "refuse"),
)
SQL_LOST_STATE = Option(
    "millstream.sql.lost-state",
    OptionType.STRING,
    "refuse",
    "How to treat a start whose changed query gives saved state another meaning: refuse it, drop that "
    "state, which then begins empty, or keep it, where you know that it means the same.",
    choices=("refuse", "drop", "keep"),
)
SPARK_MASTER = Option(
    "millstream.spark.master", OptionType.STRING, "local[*]", "Spark's master, where Millstream makes the session."
)

_OWN_OPTIONS = tuple(value for value in list(vars().values()) if isinstance(value, Option))

KNOWN: dict[str, Option] = {option.key: option for option in (*_OWN_OPTIONS, *FLINK_OPTIONS)}
"""Every known key with its option."""

_FREE_FAMILIES = ("spark.", "user.", "pipeline.global-job-parameters.", "table.", "sql-client.")


def check_key(key: str, at: str | None = None) -> None:
    """Raises ConfigurationError with the nearest known key, if the key is unknown.

    >>> check_key("parallelism.default")
    >>> check_key("paralelism.default")
    Traceback (most recent call last):
    millstream.errors.ConfigurationError: configuration key 'paralelism.default' is unknown. Did you mean \
'parallelism.default'? Keys of your own start with 'user.', Spark's with 'spark.'.
    """
    if key in KNOWN or any(key.startswith(family) and key != family for family in (*_FREE_FAMILIES, *IGNORED_FAMILIES)):
        return
    raise ConfigurationError(
        f"configuration key {key!r} is unknown.{did_you_mean(key, KNOWN, likeness=0.8)} Keys of your own start with "
        "'user.', Spark's with 'spark.'.",
        at=at,
    )


def read(option: Option, configuration: Configuration | Mapping[str, str]) -> Any:
    """The setting of a known option, parsed by its type; durations are in milliseconds, sizes in bytes.

    >>> read(EPOCH_POLL_INTERVAL, Configuration().set_string("millstream.epoch.poll-interval", "1 s"))
    1000
    >>> read(EPOCH_MAX_RECORDS, Configuration())
    2000000
    """
    settings = configuration.to_dict() if isinstance(configuration, Configuration) else configuration
    text = settings.get(option.key)
    return option.default if text is None else option.parse(text)
