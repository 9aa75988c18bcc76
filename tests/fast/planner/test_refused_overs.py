"""What OVER cannot compute is told before anything runs."""

from __future__ import annotations

import pytest
from planned import plan

from millstream.errors import SqlError


@pytest.mark.parametrize("call", ["JSON_ARRAYAGG(b)", "JSON_OBJECTAGG(KEY s VALUE a)"])
def test_aggregates_of_json_are_for_groups(call: str) -> None:
    with pytest.raises(SqlError, match="is not supported in OVER windows"):
        plan(f"SELECT {call} OVER (ORDER BY a) FROM t")
