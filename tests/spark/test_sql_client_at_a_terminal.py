"""`millstream sql` as a person uses it: at a small terminal, with a query that has no end and Ctrl-C."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from terminal import Terminal


def test_ctrl_c_ends_the_query_and_not_the_client(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream.cli", "sql"]
    person = Terminal(command, cwd=tmp_path, rows=16, columns=60, environment={**os.environ, "HOME": str(tmp_path)})
    try:
        person.read_until("Millstream SQL>$")
        person.type("CREATE TABLE endless (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '5');")
        person.read_until("OK\nMillstream SQL>$")
        person.type("SELECT 'row ' || CAST(n AS STRING) AS shown FROM endless;")
        person.read_until(r"row -?\d+")
        person.interrupt()
        person.read_until("the query was ended\\]\nMillstream SQL>$")
        person.type("SELECT 'still ' || 'here' AS answer;")
        person.read_until("still here(.|\n)*Millstream SQL>$")
        person.type("QUIT;")
        assert person.read_to_end() == 0
    finally:
        person.close()
