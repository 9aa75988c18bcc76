"""Every SQL expression of tests/sql_cases matches Flink 2.3 in type and value, or is a listed difference.

Flink's answers are in tests/fixtures/sql (`make sql-oracle` regenerates them); no Flink is needed here. A difference
must be listed in tests/sql_cases/differences.toml; a listed one that no longer occurs fails too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from inputs.project_scripts import script_module

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import sql_agreement  # noqa: E402


@pytest.fixture(scope="module")
def all_comparisons() -> dict[str, list[sql_agreement.Comparison]]:
    return {family: list(sql_agreement.comparisons(family)) for family in sql_agreement.families()}


@pytest.mark.parametrize("family", sql_agreement.families())
def test_expressions_match_flink(family: str, all_comparisons: dict[str, list[sql_agreement.Comparison]]) -> None:
    found = all_comparisons[family]
    wrong = [each for each in found if not each.agrees and each.reason is None]
    agreed = sum(each.agrees for each in found)
    print(f"{family}: {agreed} of {len(found)} agree")
    assert not wrong, f"{len(wrong)} of {len(found)} differ:\n" + "\n".join(str(each) for each in wrong[:40])


def test_every_listed_difference_still_occurs(
    all_comparisons: dict[str, list[sql_agreement.Comparison]],
) -> None:
    found = {each.reason for family in all_comparisons.values() for each in family if each.reason is not None}
    gone = [each.reason for each in sql_agreement.differences() if each.reason not in found]
    assert not gone, "take these out of tests/sql_cases/differences.toml: " + "; ".join(gone)


def test_the_page_of_functions_is_up_to_date(
    all_comparisons: dict[str, list[sql_agreement.Comparison]],
) -> None:
    page = script_module("scripts/sql-functions")
    assert page.PAGE.read_text(encoding="utf-8") == page.page(all_comparisons), "run scripts/sql-functions --write"


def test_answers_belong_to_expressions_of_their_lists() -> None:
    oracle = script_module("scripts/sql-oracle")
    for family in sql_agreement.families():
        listed = {(zone, sql) for zone, _, sql in oracle.cases((sql_agreement.CASES / f"{family}.txt").read_text())}
        answers = json.loads((sql_agreement.ANSWERS / f"{family}.json").read_text())["answers"]
        strangers = [each["sql"] for each in answers if (each.get("zone", "UTC"), each["sql"]) not in listed]
        assert not strangers, f"{family}: these were answered but are not in the list: {strangers[:5]}"
