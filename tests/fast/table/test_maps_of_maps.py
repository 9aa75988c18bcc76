"""Maps whose keys are maps, arrays, or rows that hold them: keys are equal by content, in any order of entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import ProgramError
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory


@pytest.fixture(scope="module")
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        yield TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


def value(t_env: TableEnvironment, expression: str) -> Any:
    with t_env.execute_sql(f"SELECT {expression} FROM (VALUES 7) AS t(x)").collect() as results:
        ((answer,),) = [tuple(each) for each in results]
    return answer


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("CAST(MAP[MAP[1, 2], 3] AS STRING)", "{{1=2}=3}"),
        ("CAST(MAP[MAP[x, 2], 3] AS STRING)", "{{7=2}=3}"),
        ("CARDINALITY(MAP[MAP[1, 2, 3, 4], 3, MAP[3, 4, 1, 2], 4])", 1),
        ("MAP[MAP[1, 2, 3, 4], 'a'][MAP[3, 4, 1, 2]]", "a"),
        ("MAP[MAP[x, 2], 'a'][MAP[x, 2]]", "a"),
        ("MAP[MAP[x, 2], 'a'][MAP[x, 3]]", None),
        ("MAP[ROW(ARRAY[1, 2], 'a'), 3][ROW(ARRAY[1, 2], 'a')]", 3),
        ("MAP[ROW(ARRAY[x, 2], 'a'), 3][ROW(ARRAY[7, 2], 'a')]", 3),
        ("MAP[ARRAY[MAP[1, x]], 3][ARRAY[MAP[1, 7]]]", 3),
        ("MAP[1, MAP[1, x]] = MAP[1, CAST(NULL AS MAP<INT, INT>)]", False),
        ("ARRAY[MAP[1, x]] = ARRAY[CAST(NULL AS MAP<INT, INT>)]", False),
        ("ARRAY[CAST(NULL AS MAP<INT, INT>)] = ARRAY[MAP[1, x]]", False),
        ("ROW(x, MAP[1, x]) IN (ROW(7, CAST(NULL AS MAP<INT, INT>)), ROW(7, MAP[1, 7]))", True),
        ("MAP_KEYS(MAP[MAP[1, 2], 3])", [{1: 2}]),
        ("CAST(MAP_FROM_ARRAYS(ARRAY[MAP[1, 2]], ARRAY[1]) AS STRING)", "{{1=2}=1}"),
        ("CAST(MAP_UNION(MAP[MAP[1, 2], 3], MAP[MAP[1, 2], 4]) AS STRING)", "{{1=2}=4}"),
        ("MAP[MAP[1, 2, 3, 4], 3] = MAP[MAP[3, 4, 1, 2], 3]", True),
        ("ARRAY[MAP[1, 2, 3, 4]] = ARRAY[MAP[3, 4, 1, 2]]", True),
        ("MAP[MAP[1, x], 3] <> MAP[MAP[1, 8], 3]", True),
    ],
)
def test_map_keys_may_be_collections(t_env: TableEnvironment, expression: str, answer: Any) -> None:
    assert value(t_env, expression) == answer


@pytest.mark.parametrize("map_", ["MAP[MAP[1, 2], 3]", "MAP[ARRAY[x], 3]", "MAP[ROW(ARRAY[x], 1), 3]"])
def test_a_map_that_cannot_be_a_dict_is_rejected_at_its_conversion_to_python(
    t_env: TableEnvironment, map_: str
) -> None:
    with pytest.raises(ProgramError, match=r"keys that are not hashable.*CAST the map to STRING"):
        value(t_env, map_)
