"""`millstream sql` on Spark, as a person uses it: queries that have no end, Ctrl-C, and a job that outlives the client.

What else a person sees, in every mode and at every size, is in tests/golden/cli, without Spark.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from screens.sql_terminals import PROMPT, at_every_size, carry_out, end_query
from screens.terminal import Terminal
from waits.patience import until

from millstream.cli.control import send_request


def test_each_file_is_counted_on_the_screen_ctrl_c_ends_the_query_and_a_job_outlives_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-m", "millstream.cli", "sql"]
    files, place = tmp_path / "in", "'connector' = 'filesystem', 'format' = 'csv', 'path'"
    files.mkdir()
    (files / "1.csv").write_text("a,1\nb,2\na,3\n")
    environment = {**os.environ, "HOME": str(tmp_path)}
    person = Terminal(command, cwd=tmp_path, environment=environment)
    try:
        person.read_until(PROMPT)
        monitored = f"{place} = '{files}', 'source.monitor-interval' = '100 ms'"
        carry_out(person, f"CREATE TABLE t (k STRING, v INT) WITH ({monitored});")
        carry_out(person, f"CREATE TABLE o (k STRING) WITH ({place} = '{tmp_path / 'out'}');")
        person.type("SELECT k, COUNT(*) AS n FROM t GROUP BY k;")
        at_every_size(person, [("a", "2"), ("b", "1")])
        (tmp_path / "2.csv").write_text("b,4\nc,5\n")
        (tmp_path / "2.csv").rename(files / "2.csv")
        at_every_size(person, [("a", "2"), ("b", "2"), ("c", "1")])
        end_query(person)
        person.type("SELECT 'still ' || 'here' AS answer;")
        person.read_until(rf"still here(.|\n)*{PROMPT}")
        carry_out(person, "SET 'execution.attached' = 'false';")
        person.type("INSERT INTO o SELECT UPPER(k) FROM t WHERE v > 2;")
        person.read_until(rf"STOP\sJOB\sends\sit(.|\n)*{PROMPT}", timeout_s=240)
        job = re.search(r"job\s([0-9a-f]{32})\sruns\sin", person.screen.all_text)
        person.type("QUIT;")
        assert job is not None and person.read_to_end() == 0
    finally:
        person.close()
    monkeypatch.chdir(tmp_path)
    try:
        (tmp_path / "3.csv").write_text("d,9\n")
        (tmp_path / "3.csv").rename(files / "3.csv")
        until("the job reads on", lambda: written(tmp_path / "out") == ["A", "B", "C", "D"])
    finally:
        assert send_request(job[1], None, "stop", {"drain": False}, 120) == 0


def written(folder: Path) -> list[str]:
    return sorted(line for path in folder.glob("[!.]*") for line in path.read_text().splitlines())
