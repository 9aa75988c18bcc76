"""The options of Flink's tables by name, so that a misspelt one is noticed.

A key that is near to one of these and is none of them is refused: an option that silently does nothing is the dearest
kind of mistake. What tunes Flink's own engine (mini-batches, spilling, reuse) is accepted and changes nothing here.
"""

from __future__ import annotations

from millstream.errors import nearest
from millstream.graph.site import refuse

__all__ = ["check_setting"]

_PREFIX = "table."
_LIKENESS = 0.85
_EXEC = (
    "async-lookup.buffer-capacity async-lookup.key-ordered-enabled async-lookup.output-mode async-lookup.timeout "
    "async-scalar.max-concurrent-operations async-scalar.buffer-capacity async-scalar.timeout "
    "async-scalar.max-attempts async-scalar.retry-strategy async-scalar.retry-delay async-state.enabled "
    "deduplicate.insert-update-after-sensitive-enabled deduplicate.mini-batch.compact-changes-enabled "
    "disabled-operators interval-join.min-cleanup-interval legacy-cast-behaviour local-hash-agg.adaptive.enabled "
    "mini-batch.enabled mini-batch.allow-latency mini-batch.size operator-fusion-codegen.enabled rank.topn-cache-size "
    "resource.default-parallelism simplify-operator-name-enabled sink.keyed-shuffle sink.not-null-enforcer "
    "sink.nested-constraint-enforcer sink.rowtime-inserter sink.type-length-enforcer sink.upsert-materialize "
    "sort.async-merge-enabled sort.default-limit sort.max-num-file-handles source.cdc-events-duplicate "
    "source.idle-timeout spill-compression.block-size spill-compression.enabled state.ttl uid.format uid.generation "
    "unbounded-over.version window-agg.buffer-size-limit"
)
_OPTIMIZER = (
    "agg-phase-strategy bushy-join-reorder-threshold delta-join.strategy distinct-agg.split.bucket-num "
    "distinct-agg.split.enabled dynamic-filtering.enabled incremental-agg-enabled join-reorder-enabled "
    "join.broadcast-threshold multi-join.enabled multiple-input-enabled non-deterministic-update.strategy "
    "reuse-optimize-block-with-digest-enabled reuse-sink-enabled reuse-source-enabled reuse-sub-plan-enabled "
    "runtime-filter.enabled source.aggregate-pushdown-enabled source.predicate-pushdown-enabled "
    "source.report-statistics-enabled sql2rel.project-merge.enabled union-all-as-breakpoint-enabled"
)
_PLAIN = (
    "builtin-catalog-name builtin-database-name catalog-store.file.path catalog-store.kind column-expansion-strategy "
    "display.max-column-width dml-sync dynamic-table-options.enabled generated-code.max-length "
    "legacy-nested-row-nullability local-time-zone plan.compile.catalog-objects plan.force-recompile "
    "plan.restore.catalog-objects resources.download-dir rtas-ctas.atomicity-enabled sql-dialect"
)
KNOWN = frozenset(
    f"{_PREFIX}{prefix}{name}"
    for prefix, names in (("", _PLAIN), ("exec.", _EXEC), ("optimizer.", _OPTIMIZER))
    for name in names.split()
)


def check_setting(key: str) -> None:
    """Refuse a key of tables that is nearly one of Flink's.

    >>> check_setting("table.local-time-zone")
    """
    if not key.startswith(_PREFIX) or key in KNOWN:
        return
    near = nearest(key, KNOWN, _LIKENESS)
    if near is not None:
        raise refuse(f"option {key!r} is unknown. Did you mean {near!r}?")
