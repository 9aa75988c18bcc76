"""Unsupported OVER calls are rejected before the job starts."""

from __future__ import annotations

import pytest
from planned import plan

from millstream.errors import SqlError


@pytest.mark.parametrize("call", ["JSON_ARRAYAGG(b)", "JSON_OBJECTAGG(KEY s VALUE a)"])
def test_json_aggregates_are_rejected_in_over(call: str) -> None:
    with pytest.raises(SqlError, match="is not supported in OVER windows"):
        plan(f"SELECT {call} OVER (ORDER BY a) FROM t")
