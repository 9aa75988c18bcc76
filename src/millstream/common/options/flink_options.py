"""Flink's configuration keys that PyFlink programs set, and their effect here.

Keys with an effect describe it. The others are accepted so that programs and configuration files keep working; their
text begins with "No effect here" and gives the reason. So do families of keys that concern Flink's own processes.

An older name of a key (deprecated in Flink's documents) has the effect of the newer one; the newer one counts if both
are set (`newest_set`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.common.options.option import Option, OptionType

__all__ = ["FLINK_OPTIONS", "IGNORED_FAMILIES", "buffer_timeout_ms", "newest_name", "newest_set"]

_STRING, _INT, _FLOAT = OptionType.STRING, OptionType.INT, OptionType.FLOAT
_BOOLEAN, _DURATION, _LIST = OptionType.BOOLEAN, OptionType.DURATION, OptionType.LIST

_BUFFERS = "execution.buffer-timeout.enabled"
_BUFFER_TIMEOUTS = ("execution.buffer-timeout.interval", "execution.buffer-timeout")
_STRATEGIES = (
    "none",
    "off",
    "disable",
    "fixed-delay",
    "fixeddelay",
    "exponential-delay",
    "exponentialdelay",
    "failure-rate",
    "failurerate",
)


def _without_effect(why: str, *keys: tuple[str, OptionType, Any]) -> tuple[Option, ...]:
    doc = f"No effect here: {why}."
    return tuple(Option(key, option_type, default, doc, effect=False) for key, option_type, default in keys)


_PIPELINE = (
    Option("parallelism.default", _INT, None, "Subtasks of an operator that sets none; else the number of cores."),
    Option("pipeline.max-parallelism", _INT, 128, "The number of key groups: the highest parallelism ever."),
    Option("pipeline.name", _STRING, None, "The job's name, if execute has none."),
    Option("pipeline.global-job-parameters", _STRING, None, "Parameters for user functions: a:1,b:2."),
    Option("pipeline.operator-chaining.enabled", _BOOLEAN, True, "Whether operators are chained into one task."),
    Option("pipeline.operator-chaining", _BOOLEAN, True, "The older name of pipeline.operator-chaining.enabled."),
    *_without_effect("an operator without a uid always gets one", ("pipeline.auto-generate-uids", _BOOLEAN, True)),
    Option(
        "execution.runtime-mode",
        _STRING,
        "streaming",
        "STREAMING, BATCH or AUTOMATIC.",
        choices=("streaming", "batch", "automatic"),
    ),
    Option(
        "execution.attached",
        _BOOLEAN,
        True,
        "In the SQL client: whether a job that an INSERT starts ends with the client; else it runs in a process of its "
        "own, which outlives the client. No effect in programs.",
    ),
    *_without_effect(
        "it is about chaining operators of different maxima, and a job has one maximum",
        ("pipeline.operator-chaining.chain-operators-with-different-max-parallelism", _BOOLEAN, True),
    ),
    *_without_effect(
        "watermarks move on at the end of every epoch", ("pipeline.auto-watermark-interval", _DURATION, 200)
    ),
    *_without_effect(
        "the program determines time: event time where it assigns watermarks, processing time elsewhere",
        ("pipeline.time-characteristic", _STRING, None),
    ),
    *_without_effect("no JVM runs user code", ("pipeline.jars", _LIST, None), ("pipeline.classpaths", _LIST, None)),
    *_without_effect(
        "values travel as Arrow columns or as pickles",
        ("pipeline.object-reuse", _BOOLEAN, False),
        ("pipeline.force-kryo", _BOOLEAN, False),
        ("pipeline.force-avro", _BOOLEAN, False),
        ("pipeline.force-kryo-avro", _BOOLEAN, None),
        ("pipeline.generic-types", _BOOLEAN, True),
        ("pipeline.closure-cleaner-level", _STRING, "RECURSIVE"),
        ("pipeline.cached-files", _STRING, None),
        ("pipeline.serialization-config", _STRING, None),
        ("pipeline.default-kryo-serializers", _STRING, None),
        ("pipeline.registered-kryo-types", _STRING, None),
        ("pipeline.registered-pojo-types", _STRING, None),
    ),
    *(
        Option(key, _DURATION, 100, "How long an epoch should take at most, if it is set: latency before throughput.")
        for key in ("execution.buffer-timeout.interval", "execution.buffer-timeout")
    ),
    Option("execution.buffer-timeout.enabled", _BOOLEAN, True, "Off: the buffer timeout does not bound epochs."),
    *_without_effect(
        "the plan names operators as the program does (millstream explain)",
        ("pipeline.vertex-description-mode", _STRING, "TREE"),
        ("pipeline.vertex-name-include-index-prefix", _BOOLEAN, False),
    ),
    *_without_effect(
        "operators have no numbers of Flink's; set_parallelism says it for one operator",
        ("pipeline.jobvertex-parallelism-overrides", _STRING, None),
    ),
    *_without_effect(
        "an epoch ends for all splits at once, so none runs ahead by more than an epoch",
        ("pipeline.watermark-alignment.allow-unaligned-source-splits", _BOOLEAN, False),
        ("pipeline.watermark-alignment.buffer-size", _INT, 3),
    ),
    *_without_effect(
        "every program may set its own settings, and its start may set others (millstream run -D)",
        ("execution.program-config.enabled", _BOOLEAN, True),
        ("execution.program-config.wildcards", _LIST, None),
        ("execution.allow-client-job-configurations", _BOOLEAN, True),
    ),
    *_without_effect(
        "listeners are classes of Java",
        ("execution.job-listeners", _LIST, None),
        ("execution.job-status-changed-listeners", _LIST, None),
    ),
    *_without_effect(
        "state is read ahead for all keys of a batch",
        ("execution.async-state.in-flight-records-limit", _INT, 6000),
        ("execution.async-state.buffer-size", _INT, 1000),
        ("execution.async-state.buffer-timeout", _INT, 1000),
    ),
    *_without_effect(
        "Spark schedules tasks",
        ("execution.batch-shuffle-mode", _STRING, None),
        ("execution.sort.partition.memory", _STRING, None),
        ("execution.sort.keyed.partition.memory", _STRING, None),
        ("execution.sorted-inputs.memory", _STRING, None),
        ("execution.submit-failed-job-on-application-error", _BOOLEAN, False),
        ("execution.shutdown-on-application-finish", _BOOLEAN, True),
        ("execution.cluster-id", _STRING, None),
        ("scheduler-mode", _STRING, None),
        ("high-availability", _STRING, None),
        ("cleanup-strategy", _STRING, None),
        ("fine-grained.shuffle-mode.all-blocking", _BOOLEAN, False),
        ("task.cancellation.timers.timeout", _DURATION, 7_500),
        ("execution.target", _STRING, None),
        ("execution.shutdown-on-attached-exit", _BOOLEAN, False),
        ("execution.sorted-inputs.enabled", _BOOLEAN, True),
        ("execution.batch-state-backend.enabled", _BOOLEAN, True),
        ("task.cancellation.interval", _DURATION, 30_000),
        ("task.cancellation.timeout", _DURATION, 180_000),
    ),
)

_CHECKPOINTS = (
    Option(
        "execution.checkpointing.interval", _DURATION, None, "The longest an epoch should take; every epoch is durable."
    ),
    *(
        Option(key, _STRING, None, "Where savepoints go that name no folder; else they stay in the job's store.")
        for key in ("execution.checkpointing.savepoint-dir", "state.savepoints.dir")
    ),
    *(
        Option(key, _STRING, None, "The snapshot the job starts from: STORE@EPOCH, or a savepoint.")
        for key in ("execution.state-recovery.path", "execution.savepoint.path")
    ),
    *(
        Option(key, _BOOLEAN, False, "Whether state that the program has no operator for may be dropped.")
        for key in ("execution.state-recovery.ignore-unclaimed-state", "execution.savepoint.ignore-unclaimed-state")
    ),
    *(
        Option(key, _INT, None, "How many of its newest epochs a job keeps (millstream.retention.epochs).")
        for key in ("execution.checkpointing.num-retained", "state.checkpoints.num-retained")
    ),
    Option(
        "execution.checkpointing.externalized-checkpoint-retention",
        _STRING,
        None,
        "DELETE_ON_CANCELLATION: a cancelled job removes everything but its savepoints.",
    ),
    Option(
        "execution.checkpointing.timeout",
        _DURATION,
        600_000,
        "An epoch that takes longer is reported, with where its tasks are. It is cancelled if checkpoints are on, or "
        "if this is set; never in BATCH.",
    ),
    Option("execution.checkpointing.min-pause", _DURATION, 0, "The least time from an epoch's end to the next start."),
    Option(
        "execution.checkpointing.tolerable-failed-checkpoints",
        _INT,
        0,
        "How many failed epochs in a row are run again before the restart strategy decides.",
    ),
    *_without_effect(
        "every epoch is an exactly-once, incremental checkpoint in the job's store (millstream.store)",
        ("execution.checkpointing.mode", _STRING, "EXACTLY_ONCE"),
        ("execution.checkpointing.max-concurrent-checkpoints", _INT, 1),
        ("execution.checkpointing.unaligned", _BOOLEAN, False),
        ("execution.checkpointing.unaligned.enabled", _BOOLEAN, False),
        ("execution.checkpointing.unaligned.forced", _BOOLEAN, False),
        ("execution.checkpointing.aligned-checkpoint-timeout", _DURATION, 0),
        ("execution.checkpointing.alignment-timeout", _DURATION, 0),
        ("execution.checkpointing.force", _BOOLEAN, False),
        ("execution.checkpointing.approximate-local-recovery", _BOOLEAN, False),
        ("execution.checkpointing.checkpoints-after-tasks-finish", _BOOLEAN, True),
        ("execution.checkpointing.checkpoints-after-tasks-finish.enabled", _BOOLEAN, True),
        ("execution.checkpointing.interval-during-backlog", _DURATION, None),
        ("execution.checkpointing.checkpoint-id-of-ignored-in-flight-data", _INT, -1),
        ("execution.checkpointing.recover-without-channel-state.checkpoint-id", _INT, -1),
        ("execution.checkpointing.snapshot-compression", _BOOLEAN, False),
        ("execution.checkpointing.incremental", _BOOLEAN, False),
        ("execution.checkpointing.storage", _STRING, None),
        ("execution.checkpointing.dir", _STRING, None),
        ("execution.checkpointing.local-backup.enabled", _BOOLEAN, False),
        ("execution.checkpointing.local-backup.dirs", _STRING, None),
        ("execution.checkpointing.create-subdir", _BOOLEAN, True),
        ("execution.checkpointing.cleaner.parallel-mode", _BOOLEAN, True),
        ("execution.checkpointing.data-inline-threshold", _STRING, None),
        ("execution.checkpointing.write-buffer-size", _INT, 4096),
        ("execution.checkpointing.during-recovery.enabled", _BOOLEAN, False),
        ("execution.checkpointing.unaligned.interruptible-timers.enabled", _BOOLEAN, False),
        ("execution.checkpointing.unaligned.max-subtasks-per-channel-state-file", _INT, 5),
        ("execution.checkpointing.unaligned.recover-output-on-downstream.enabled", _BOOLEAN, False),
        ("execution.checkpointing.max-subtasks-per-channel-state-file", _INT, 5),
        ("execution.checkpointing.file-merging.enabled", _BOOLEAN, False),
        ("execution.checkpointing.file-merging.across-checkpoint-boundary", _BOOLEAN, False),
        ("execution.checkpointing.file-merging.max-file-size", _STRING, None),
        ("execution.checkpointing.file-merging.max-space-amplification", _FLOAT, 2.0),
        ("execution.checkpointing.file-merging.pool-blocking", _BOOLEAN, False),
        ("execution.savepoint-restore-mode", _STRING, "NO_CLAIM"),
        ("execution.state-recovery.claim-mode", _STRING, "NO_CLAIM"),
        ("execution.state-recovery.from-local", _BOOLEAN, False),
        ("execution.state-recovery.without-channel-state.checkpoint-id", _INT, -1),
    ),
    *_without_effect(
        "state is stored in mapped columnar segments, and there is one backend",
        ("state.backend", _STRING, None),
        ("state.backend.type", _STRING, None),
        ("state.backend.incremental", _BOOLEAN, True),
        ("state.backend.async", _BOOLEAN, True),
        ("state.backend.local-recovery", _BOOLEAN, False),
        ("state.checkpoint.cleaner.parallel-mode", _BOOLEAN, True),
        ("state.checkpoints.create-subdir", _BOOLEAN, True),
        ("state.checkpoint-storage", _STRING, None),
        ("state.checkpoints.dir", _STRING, None),
        ("state.changelog.enabled", _BOOLEAN, False),
    ),
)

_RESTARTS = (
    Option("restart-strategy.type", _STRING, None, "How to restart after a failure.", choices=_STRATEGIES),
    Option("restart-strategy", _STRING, None, "The older name of restart-strategy.type.", choices=_STRATEGIES),
    Option("restart-strategy.fixed-delay.attempts", _INT, 1, "How many restarts."),
    Option("restart-strategy.fixed-delay.delay", _DURATION, 1_000, "The pause before each restart."),
    Option("restart-strategy.exponential-delay.initial-backoff", _DURATION, 1_000, "The first pause."),
    Option("restart-strategy.exponential-delay.max-backoff", _DURATION, 60_000, "The longest pause."),
    Option("restart-strategy.exponential-delay.backoff-multiplier", _FLOAT, 1.5, "By how much pauses grow."),
    Option("restart-strategy.exponential-delay.reset-backoff-threshold", _DURATION, 3_600_000, "A calm long enough."),
    Option(
        "restart-strategy.exponential-delay.jitter-factor", _FLOAT, 0.1, "The share by which pauses vary at random."
    ),
    *_without_effect(
        "exponential delay continues until the job is stopped",
        ("restart-strategy.exponential-delay.attempts-before-reset-backoff", _INT, None),
    ),
    Option("restart-strategy.failure-rate.max-failures-per-interval", _INT, 1, "The most failures in an interval."),
    Option("restart-strategy.failure-rate.failure-rate-interval", _DURATION, 60_000, "The interval."),
    Option("restart-strategy.failure-rate.delay", _DURATION, 1_000, "The pause before each restart."),
)

_PYTHON = (
    Option("python.files", _STRING, None, "Python files, zips and folders that user functions import: a.py,b.zip."),
    Option(
        "python.archives",
        _STRING,
        None,
        "Archives unpacked in the working directory of user functions: data.zip#data. Without a name after #, in a "
        "folder named like the file.",
    ),
    Option(
        "python.requirements",
        _STRING,
        None,
        "A requirements.txt whose packages are installed for user functions; after # a folder with the packages, and "
        "then no other setting applies to them.",
    ),
    Option("python.pythonpath", _STRING, None, "Folders of the workers' machines where user functions find modules."),
    *_without_effect(
        "tasks run in the interpreter that runs the program, so that both have the same packages",
        ("python.executable", _STRING, None),
        ("python.client.executable", _STRING, "python"),
        ("python.systemenv.enabled", _BOOLEAN, True),
    ),
    *_without_effect(
        "user functions run in Spark's Python workers, on Arrow batches (millstream.batch.max-records)",
        ("python.execution-mode", _STRING, "process"),
        ("python.map-state.iterate-response-batch-size", _INT, 1000),
        ("python.map-state.read-cache-size", _INT, 1000),
        ("python.map-state.write-cache-size", _INT, 1000),
        ("python.state.cache-size", _INT, 1000),
        ("python.metric.enabled", _BOOLEAN, True),
        ("python.profile.enabled", _BOOLEAN, False),
        ("python.operator-chaining.enabled", _BOOLEAN, True),
        ("python.fn-execution.bundle.size", _INT, 100_000),
        ("python.fn-execution.bundle.time", _INT, 1000),
        ("python.fn-execution.arrow.batch.size", _INT, 10_000),
        ("python.fn-execution.streaming.enabled", _BOOLEAN, True),
        ("python.fn-execution.memory.managed", _BOOLEAN, True),
        ("python.fn-execution.framework.memory.size", _STRING, None),
        ("python.fn-execution.buffer.memory.size", _STRING, None),
    ),
)

FLINK_OPTIONS: tuple[Option, ...] = (*_PIPELINE, *_CHECKPOINTS, *_RESTARTS, *_PYTHON)

_PROCESSES = "there are no processes of Flink's; Spark runs the tasks (its settings begin with spark.)"
_FILES = "they are for Flink's file systems; object stores take their keys from the environment"
_STATE = "state is stored in mapped columnar segments, and there is one backend"
_MEASURED = "a job's measurements are in its log and shown by millstream list and the console"

IGNORED_FAMILIES: dict[str, str] = {
    **dict.fromkeys(
        (
            *("taskmanager.", "jobmanager.", "rest.", "web.", "cluster.", "classloader.", "high-availability."),
            *("heartbeat.", "resourcemanager.", "slotmanager.", "slot.", "blob.", "env.", "io.tmp", "kubernetes."),
            *("yarn.", "mesos.", "historyserver.", "pekko.", "akka.", "jobstore.", "job-result-store.", "job-event."),
            *("execution.batch.", "client.", "process.", "local.", "jmx.", "plugin.", "external-resource"),
            *("zookeeper.", "cleanup-strategy", "shuffle-service-factory.", "queryable-state."),
            *("pipeline.cep.", "compiler."),
        ),
        _PROCESSES,
    ),
    **dict.fromkeys(("fs.", "s3.", "gs.", "azure.", "oss.", "hdfs.", "flink.hadoop.", "security."), _FILES),
    **dict.fromkeys(
        (
            *("state.backend.rocksdb.", "state.backend.forst.", "state.backend.changelog.", "state.storage.fs."),
            *("state.backend.latency-track.", "state.changelog.", "state.latency-track.", "state.size-track."),
            *("state.backend.fs.", "state.backend.heap.", "state.backend.cache."),
        ),
        _STATE,
    ),
    **dict.fromkeys(("metrics.", "traces.", "events.", "mdc."), _MEASURED),
    **dict.fromkeys(("sql-gateway.", "workflow-scheduler."), "there is no SQL gateway; programs run SQL themselves"),
    "python.logging.": "user functions log with Python's logging, as the program and the environment set it up",
}
"""Families of keys that only concern Flink's own cluster and file systems, and why they have no effect here."""


def newest_set(configuration: Mapping[str, str], *names: str) -> str | None:
    """The newest of a key's names that is set; None if none is.

    >>> newest_set({"execution.buffer-timeout": "1 s"}, "execution.buffer-timeout.interval", "execution.buffer-timeout")
    'execution.buffer-timeout'
    """
    return next((name for name in names if name in configuration), None)


def newest_name(key: str) -> str:
    """The newest name of a setting that has several.

    >>> newest_name("restart-strategy"), newest_name("parallelism.default")
    ('restart-strategy.type', 'parallelism.default')
    """
    return _NEWEST_NAMES.get(key, key)


_NEWEST_NAMES = {
    "execution.buffer-timeout": "execution.buffer-timeout.interval",
    "execution.savepoint.path": "execution.state-recovery.path",
    "pipeline.operator-chaining": "pipeline.operator-chaining.enabled",
    "restart-strategy": "restart-strategy.type",
    "state.savepoints.dir": "execution.checkpointing.savepoint-dir",
}


def buffer_timeout_ms(configuration: Mapping[str, str]) -> int | None:
    """The buffer timeout that is set, under either name; -1: disabled, by its switch or, as in older programs, by a
    negative time; None: not set.

    >>> buffer_timeout_ms({"execution.buffer-timeout": "50 ms"}), buffer_timeout_ms({"execution.buffer-timeout": "-1"})
    (50, -1)
    """
    by_key = {option.key: option for option in _PIPELINE}
    if not by_key[_BUFFERS].parse(configuration.get(_BUFFERS, "true")):
        return -1
    key = newest_set(configuration, *_BUFFER_TIMEOUTS)
    if key is None:
        return None
    text = configuration[key].strip()
    return -1 if text.startswith("-") else int(by_key[key].parse(text))
