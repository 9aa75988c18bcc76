"""Which errors of a write are about single rows."""

from __future__ import annotations

import pytest

from millstream.connectors.databases.refused_by_database import is_about_rows
from millstream.errors import ConfigurationError, TypeMismatchError


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_errors_of_the_program_start_no_search_for_rows(kind: str) -> None:
    pytest.importorskip("psycopg" if kind == "postgresql" else "pymysql")
    assert is_about_rows(kind, ValueError("Out of range float values are not JSON compliant"))
    assert not is_about_rows(kind, ConfigurationError("no such column"))
    assert not is_about_rows(kind, TypeMismatchError("no row"))
