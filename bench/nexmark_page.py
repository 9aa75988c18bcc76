"""The figures of `bench_nexmark.py` as pages: docs/understand/nexmark.md and nexmark.svg (the ratio of each query),
and a plot per query in bench/results/nexmark.html.

Plots are SVG, written here. A plot per query has three bars: thousands of events per core-second.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["OURS", "rate_of", "ratio_of", "write_pages"]

OURS = "ours"
Figures = Mapping[str, Mapping[str, Any]]
_ENGINES = {"ours": "Millstream", "hashmap": "Flink 2.3, heap", "rocksdb": "Flink 2.3, RocksDB"}
_COLOURS = {"ours": "#1f6f8b", "hashmap": "#b0b7bd", "rocksdb": "#d3b88c"}
_WIDTH, _BAR, _LABEL = 560, 22, 150

_PAGE = """# Nexmark

Written by `bench/nexmark_page.py` from bench/results/nexmark.json, which `make bench-nexmark` fills. Do not edit.

{summary}

![Throughput of each query per core, relative to Flink 2.3](nexmark.svg)

## Method
- Both engines run the same SQL text over the same events in Parquet files, with two tasks each. Figures are thousands
  of events per core-second, from the processor time of all processes.
- Flink 2.3 has mini-batches and split distinct. Its state is on the heap (10 GB) or in RocksDB (4 GB of managed memory,
  incremental checkpoints); the ratio uses the better figure.
- Targets: every query at least 2 ×, geometric mean at least 5 ×; q4, q9 and q20 cost at most 1.2 × per event at four
  times the events (column *growth*).
- *Equal rows*: both engines run with one task, and their results are compared by count and checksum.
- Where Flink ran with fewer events, the figure states how many: a smaller state favours it, and the start of a job
  (some two core-seconds) weighs more.

## Figures

| query | events | Millstream | Flink, heap | Flink, RocksDB | ratio to the better | equal rows | growth | measured |
|---|---|---|---|---|---|---|---|---|
{rows}

bench/results/nexmark.html has a plot of each query. Flink rejects q6 (OVER on a changing table) and q13 (lookups in its
file tables); q12 uses processing time, so its rows differ between runs; q10 writes files, which tests/golden compares.
"""

_HTML = """<!doctype html>
<meta charset="utf-8"><title>Nexmark: Millstream and Flink 2.3</title>
<style>body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 640px }} svg {{ display: block }}
h2 {{ margin: 1.6em 0 .2em; font-size: 1.05em }} text {{ font: 13px system-ui, sans-serif }}</style>
<h1>Nexmark</h1><p>{summary} Thousands of events in a second of one core; longer is better.</p>
{plots}
"""


def write_pages(figures: Figures, root: Path) -> None:
    """All pages."""
    names = sorted((name for name in figures if "ours" in figures[name]), key=lambda name: int(name[1:]))
    summary = _summary(figures, names)
    rows = "\n".join(_row(name, figures[name]) for name in names)
    document = root / "docs" / "understand" / "nexmark.md"
    document.write_text(_PAGE.format(summary=summary, rows=rows), encoding="utf-8")
    plot = root / "docs" / "understand" / "nexmark.svg"
    plot.write_text(_ratio_plot({name: ratio_of(figures[name]) for name in names}), encoding="utf-8")
    plots = "\n".join(_plot(name, figures[name]) for name in names)
    page = root / "bench" / "results" / "nexmark.html"
    page.write_text(_HTML.format(summary=escape(summary), plots=plots), encoding="utf-8")


def _summary(figures: Figures, names: list[str]) -> str:
    ratios = {name: ratio for name in names if (ratio := ratio_of(figures[name])) is not None}
    if not ratios:
        return "Nothing was measured on both yet."
    least = min(ratios, key=lambda name: ratios[name])
    missed = [name for name, ratio in ratios.items() if ratio < 2]
    below = f" Below 2 ×: {', '.join(missed)}." if missed else " None is below 2 ×."
    mean = statistics.geometric_mean(ratios.values())
    return f"{len(ratios)} queries: geometric mean {mean:.1f} ×, the least {ratios[least]:.1f} × ({least}).{below}"


def rate_of(figure: Mapping[str, Any]) -> float:
    """Thousands of events in a core-second."""
    return float(figure["events"] / figure["cpu_s"] / 1e3)


def ratio_of(query: Mapping[str, Any]) -> float | None:
    """Our rate relative to the better of Flink's, which may have had fewer events; None if one is missing."""
    if OURS not in query:
        return None
    events = query[OURS]["events"]
    counted = [query[each] for each in ("hashmap", "rocksdb") if each in query]
    rates = [rate_of(figure) for figure in counted if figure["events"] <= events]
    return rate_of(query[OURS]) / max(rates) if rates else None


def _shown_rate(engine: str, query: Mapping[str, Any]) -> str:
    if engine not in query:
        return "–"
    events = query[engine]["events"]
    of_events = "" if events == query[OURS]["events"] else f" ({events / 1e6:g} M)"
    return f"{rate_of(query[engine]):,.0f}{of_events}"


def _row(name: str, query: Mapping[str, Any]) -> str:
    rates = [_shown_rate(each, query) for each in _ENGINES]
    ratio, equal, growth = ratio_of(query), query.get("equal"), query.get("growth")
    cells = [
        name,
        f"{query['ours']['events'] / 1e6:g} M",
        *rates,
        "–" if ratio is None else f"{ratio:.1f} ×",
        "–" if equal is None else f"{equal['ours']['rows']:,}" if _are_equal(equal) else "differ",
        "–" if growth is None else f"{growth['many_us'] / growth['few_us']:.2f} ×",
        f"{query['ours']['at']}, load {query['ours']['load']:g}",
    ]
    return f"| {' | '.join(cells)} |"


def _are_equal(equal: Mapping[str, Any]) -> bool:
    return bool(equal["ours"] == equal["flink"])


def _plot(name: str, query: Mapping[str, Any]) -> str:
    rates = {engine: rate_of(query[engine]) for engine in _ENGINES if engine in query}
    scale = (_WIDTH - _LABEL - 80) / max(rates.values())
    bars = []
    for number, (engine, rate) in enumerate(rates.items()):
        top, length = number * (_BAR + 4), rate * scale
        bars.append(
            f'<text x="0" y="{top + 16}">{_ENGINES[engine]}</text>'
            f'<rect x="{_LABEL}" y="{top}" width="{length:.1f}" height="{_BAR}" fill="{_COLOURS[engine]}"/>'
            f'<text x="{_LABEL + length + 6:.1f}" y="{top + 16}">{rate:,.0f}</text>'
        )
    ratio = ratio_of(query)
    title = name if ratio is None else f"{name}: {ratio:.1f} ×"
    height = len(rates) * (_BAR + 4)
    return f'<h2>{title}</h2><svg width="{_WIDTH}" height="{height}">{"".join(bars)}</svg>'


def _ratio_plot(ratios: Mapping[str, float | None]) -> str:
    """A column per query; a line marks Flink's throughput. Its colours are legible on light and dark pages."""
    known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    height, floor, step = 260, 220, 36
    scale = 190 / max(known.values(), default=1.0)
    columns = []
    for number, (name, ratio) in enumerate(known.items()):
        left, top = 40 + number * step, floor - ratio * scale
        columns.append(
            f'<rect x="{left}" y="{top:.1f}" width="24" height="{floor - top:.1f}" rx="2" fill="#2a8fb0"/>'
            f'<text x="{left + 12}" y="{top - 6:.1f}">{ratio:.1f}</text>'
            f'<text x="{left + 12}" y="{floor + 18}">{name}</text>'
        )
    width = 40 + max(len(known), 1) * step + 60
    line, caption = floor - scale, "Events per core-second relative to Flink 2.3; higher is faster"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#7a8087" text-anchor="middle">\n'
        f"<title>{caption}</title>\n"
        + "\n".join(columns)
        + f'\n<path d="M30 {line:.1f}H{width - 56}" stroke="#d9822b" stroke-width="1.5" stroke-dasharray="5 4"/>'
        f'<text x="{width - 28}" y="{line + 4:.1f}" fill="#d9822b">Flink</text>'
        f'\n<text x="{width / 2:.0f}" y="{height - 6}">{caption}</text>'
        "\n</svg>\n"
    )
