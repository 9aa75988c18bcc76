"""A compiled plan that this session cannot run reports the missing parts of the session."""

from __future__ import annotations

import json

import pytest

from millstream.errors import ProgramError
from millstream.planner.plan_json import _MARK, FORM, _checksum, plan_from_json


def test_a_plan_with_a_function_missing_from_the_session_is_not_reported_as_damaged() -> None:
    body = {"version": "1", "nodes": [{"$function": "shorten"}], "sinks": [0]}
    text = json.dumps({_MARK: FORM, "checksum": _checksum(body), "plan": body})
    with pytest.raises(ProgramError) as refusal:
        plan_from_json(text, "plan.json")
    assert str(refusal.value).startswith("plan.json calls the function 'shorten', which this session does not have.")
