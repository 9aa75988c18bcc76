"""The page of Nexmark figures: Flink's better figure counts, and missing figures are not invented."""

from __future__ import annotations

from pathlib import Path

from inputs.project_scripts import script_module


def _figure(events: int, cpu_s: float) -> dict[str, object]:
    return {"events": events, "cpu_s": cpu_s, "wall_s": cpu_s, "at": "2026-11-16 22:00", "load": 2.0}


def test_flink_may_process_fewer_events_and_we_may_not() -> None:
    ratio_of = script_module("bench/nexmark_page.py").ratio_of
    fast, slow = _figure(2_000_000, 1.0), _figure(1_000_000, 2.0)
    assert ratio_of({"ours": fast, "rocksdb": slow}) == 4.0
    assert ratio_of({"ours": fast, "hashmap": slow}) == 4.0
    assert ratio_of({"ours": fast, "hashmap": slow, "rocksdb": _figure(2_000_000, 2.0)}) == 2.0
    assert ratio_of({"ours": slow, "rocksdb": fast}) is None
    assert ratio_of({"rocksdb": fast}) is None


def test_figures_over_other_event_counts_state_the_count(tmp_path: Path) -> None:
    (tmp_path / "docs" / "understand").mkdir(parents=True)
    (tmp_path / "bench" / "results").mkdir(parents=True)
    script_module("bench/nexmark_page.py").write_pages(
        {"q1": {"ours": _figure(2_000_000, 1.0), "rocksdb": _figure(500_000, 1.0)}}, tmp_path
    )
    page = (tmp_path / "docs" / "understand" / "nexmark.md").read_text(encoding="utf-8")
    assert "| q1 | 2 M | 2,000 | – | 500 (0.5 M) | 4.0 × |" in page


def test_flinks_better_figure_counts_and_a_missing_one_is_a_dash(tmp_path: Path) -> None:
    (tmp_path / "docs" / "understand").mkdir(parents=True)
    (tmp_path / "bench" / "results").mkdir(parents=True)
    figures = {
        "q10": {"ours": _figure(1_000_000, 2.0)},
        "q2": {
            "ours": _figure(1_000_000, 1.0),
            "hashmap": _figure(1_000_000, 9.0),
            "rocksdb": _figure(1_000_000, 3.0),
            "equal": {"ours": {"rows": 7, "checksum": "a"}, "flink": {"rows": 7, "checksum": "b"}},
        },
    }
    script_module("bench/nexmark_page.py").write_pages(figures, tmp_path)
    page = (tmp_path / "docs" / "understand" / "nexmark.md").read_text(encoding="utf-8")
    assert "1 queries: geometric mean 3.0 ×, the least 3.0 × (q2)." in page
    rows = [line for line in page.splitlines() if line.startswith(("| q1", "| q2"))]
    assert rows[0].startswith("| q2 | 1 M | 1,000 | 111 | 333 | 3.0 × | differ | – |")
    assert rows[1].startswith("| q10 | 1 M | 500 | – | – | – | – | – |")
    html = (tmp_path / "bench" / "results" / "nexmark.html").read_text(encoding="utf-8")
    assert html.count("<svg") == 2 and html.count("<rect") == 4
