"""Flink's configuration keys that PyFlink programs set, and which of them mean something here.

Keys with an effect say what it is. The others are accepted so that programs and configuration files keep working;
their text begins with "No effect here" and says why, where there is something to say.
"""

from __future__ import annotations

from typing import Any

from millstream.common.options.option import Option, OptionType

__all__ = ["FLINK_OPTIONS", "IGNORED_FAMILIES"]

_STRING, _INT, _FLOAT = OptionType.STRING, OptionType.INT, OptionType.FLOAT
_BOOLEAN, _DURATION, _LIST = OptionType.BOOLEAN, OptionType.DURATION, OptionType.LIST

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
    Option("pipeline.name", _STRING, None, "The job's name, where execute gives none."),
    Option("pipeline.global-job-parameters", _STRING, None, "Parameters for user functions: a:1,b:2."),
    Option("pipeline.operator-chaining.enabled", _BOOLEAN, True, "Whether operators are chained into one task."),
    *_without_effect(
        "its newer name is pipeline.operator-chaining.enabled", ("pipeline.operator-chaining", _BOOLEAN, True)
    ),
    *_without_effect("an operator without a uid always gets one", ("pipeline.auto-generate-uids", _BOOLEAN, True)),
    Option(
        "execution.runtime-mode",
        _STRING,
        "streaming",
        "STREAMING, BATCH or AUTOMATIC.",
        choices=("streaming", "batch", "automatic"),
    ),
    *_without_effect(
        "it is about chaining operators of different maxima, and a job has one maximum",
        ("pipeline.operator-chaining.chain-operators-with-different-max-parallelism", _BOOLEAN, True),
    ),
    *_without_effect(
        "watermarks move on at the end of every epoch", ("pipeline.auto-watermark-interval", _DURATION, 200)
    ),
    *_without_effect("no JVM runs user code", ("pipeline.jars", _LIST, None), ("pipeline.classpaths", _LIST, None)),
    *_without_effect(
        "values travel as Arrow columns or as pickles",
        ("pipeline.object-reuse", _BOOLEAN, False),
        ("pipeline.force-kryo", _BOOLEAN, False),
        ("pipeline.force-avro", _BOOLEAN, False),
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
        "Spark schedules tasks",
        ("execution.batch-shuffle-mode", _STRING, None),
        ("execution.attached", _BOOLEAN, True),
        ("execution.target", _STRING, None),
        ("execution.shutdown-on-attached-exit", _BOOLEAN, False),
        ("execution.sorted-inputs.enabled", _BOOLEAN, True),
        ("execution.batch-state-backend.enabled", _BOOLEAN, True),
        ("task.cancellation.interval", _DURATION, 30_000),
        ("task.cancellation.timeout", _DURATION, 180_000),
        ("client.timeout", _DURATION, 60_000),
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
        Option(key, _BOOLEAN, False, "Whether state that the program has no operator for may be left behind.")
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
        "DELETE_ON_CANCELLATION: a job that is cancelled leaves nothing behind but its savepoints.",
    ),
    Option("execution.checkpointing.timeout", _DURATION, 600_000, "If set, an epoch that takes longer is cancelled."),
    Option("execution.checkpointing.min-pause", _DURATION, 0, "The least time from an epoch's end to the next start."),
    Option(
        "execution.checkpointing.tolerable-failed-checkpoints",
        _INT,
        0,
        "How many failed epochs in a row are run again before the restart strategy is asked.",
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
        ("execution.checkpointing.file-merging.enabled", _BOOLEAN, False),
        ("execution.savepoint-restore-mode", _STRING, "NO_CLAIM"),
        ("execution.state-recovery.claim-mode", _STRING, "NO_CLAIM"),
    ),
    *_without_effect(
        "state is kept in mapped columnar segments, and there is one backend",
        ("state.backend", _STRING, None),
        ("state.backend.type", _STRING, None),
        ("state.backend.incremental", _BOOLEAN, True),
        ("state.backend.local-recovery", _BOOLEAN, False),
        ("state.checkpoint-storage", _STRING, None),
        ("state.checkpoints.dir", _STRING, None),
        ("state.changelog.enabled", _BOOLEAN, False),
    ),
)

_RESTARTS = (
    Option("restart-strategy.type", _STRING, None, "What to do after a failure.", choices=_STRATEGIES),
    Option("restart-strategy", _STRING, None, "The older name of restart-strategy.type.", choices=_STRATEGIES),
    Option("restart-strategy.fixed-delay.attempts", _INT, 1, "How many restarts."),
    Option("restart-strategy.fixed-delay.delay", _DURATION, 1_000, "The pause before each restart."),
    Option("restart-strategy.exponential-delay.initial-backoff", _DURATION, 1_000, "The first pause."),
    Option("restart-strategy.exponential-delay.max-backoff", _DURATION, 60_000, "The longest pause."),
    Option("restart-strategy.exponential-delay.backoff-multiplier", _FLOAT, 1.5, "By how much pauses grow."),
    Option("restart-strategy.exponential-delay.reset-backoff-threshold", _DURATION, 3_600_000, "A calm long enough."),
    Option("restart-strategy.exponential-delay.jitter-factor", _FLOAT, 0.1, "By what share pauses vary at random."),
    *_without_effect(
        "exponential delay goes on until the job is stopped",
        ("restart-strategy.exponential-delay.attempts-before-reset-backoff", _INT, None),
    ),
    Option("restart-strategy.failure-rate.max-failures-per-interval", _INT, 1, "The most failures in an interval."),
    Option("restart-strategy.failure-rate.failure-rate-interval", _DURATION, 60_000, "The interval."),
    Option("restart-strategy.failure-rate.delay", _DURATION, 1_000, "The pause before each restart."),
)

_PYTHON = (
    Option("python.executable", _STRING, None, "The Python that runs user functions."),
    Option("python.files", _STRING, None, "Python files that user functions import."),
    Option("python.archives", _STRING, None, "Archives unpacked beside user functions."),
    *_without_effect(
        "user functions run in Spark's Python workers, on Arrow batches (millstream.batch.max-records)",
        ("python.requirements", _STRING, None),
        ("python.pythonpath", _STRING, None),
        ("python.client.executable", _STRING, "python"),
        ("python.execution-mode", _STRING, "process"),
        ("python.systemenv.enabled", _BOOLEAN, True),
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

# Families that only concern Flink's own cluster, its file systems and its SQL: accepted whole, without effect.
IGNORED_FAMILIES = (
    "taskmanager.",
    "jobmanager.",
    "rest.",
    "web.",
    "metrics.",
    "cluster.",
    "classloader.",
    "high-availability.",
    "security.",
    "heartbeat.",
    "resourcemanager.",
    "slotmanager.",
    "blob.",
    "env.",
    "fs.",
    "io.tmp",
    "kubernetes.",
    "yarn.",
    "historyserver.",
    "pekko.",
    "akka.",
    "table.",
    "state.backend.rocksdb.",
    "state.backend.forst.",
    "state.backend.changelog.",
    "state.backend.latency-track.",
    "state.changelog.",
    "state.latency-track.",
    "execution.batch.",
    "jobstore.",
)
