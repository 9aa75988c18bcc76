"""Planted secrets: no file, output or command line of a run with secrets in its tables contains them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
from servers.postgres import PostgresServer
from servers.server_process import ROOT

PASSWORD, IN_ADDRESS, OF_SPARK = "Planted-5ecret", "Buried-5ecret", "Hidden-5ecret"
SECRETS = (PASSWORD, IN_ADDRESS, OF_SPARK)

SCRIPT = """
SET 'spark.hadoop.fs.s3a.secret.key' = '{of_spark}';
SET;
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '300', 'fields.n.kind' = 'sequence',
  'fields.n.start' = '1', 'fields.n.end' = '300');
CREATE TABLE plain (n BIGINT) WITH ('connector' = 'jdbc', 'table-name' = 'plain{name}',
  'url' = 'jdbc:postgresql://{place}/test', 'username' = 'postgres', 'password' = '{password}');
CREATE TABLE addressed (n BIGINT) WITH ('connector' = 'jdbc', 'table-name' = 'addressed{name}',
  'url' = 'jdbc:postgresql://{place}/test?user=postgres&password={in_address}');
SHOW CREATE TABLE plain;
SHOW CREATE TABLE addressed;
EXPLAIN INSERT INTO plain SELECT n FROM numbers;
COMPILE PLAN '{folder}/plan.json' FOR INSERT INTO plain SELECT n FROM numbers;
SET 'table.dml-sync' = 'true';
SET 'pipeline.name' = 'filled';
INSERT INTO addressed SELECT n FROM numbers;
SET 'pipeline.name' = 'planned';
EXECUTE PLAN '{folder}/plan.json';
SELECT COUNT(*) FROM plain;
SELECT * FROM plain /*+ OPTIONS('password' = '{password}', 'no-such-option' = '1') */;
"""


def test_planted_secrets_are_in_no_file_output_or_command_line(
    postgres_server: PostgresServer, unique_name: str, tmp_path: Path
) -> None:
    folder, store, home = tmp_path / "work", tmp_path / "store", tmp_path / "home"
    for each in (folder, home, tmp_path / "tmp"):
        each.mkdir()
    for table in ("plain", "addressed"):
        postgres_server.execute(f"CREATE TABLE {table}{unique_name} (n BIGINT)")
    script = tmp_path / "script.sql"
    script.write_text(
        SCRIPT.format(
            password=PASSWORD,
            in_address=IN_ADDRESS,
            of_spark=OF_SPARK,
            name=unique_name,
            place=f"127.0.0.1:{postgres_server.port}",
            folder=folder,
        )
    )
    environment = {
        **os.environ,
        "HOME": str(home),
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONPATH": str(ROOT / "src"),
    }
    command = [sys.executable, "-m", "millstream.cli", "sql", "-f", str(script), "-D", f"millstream.store={store}"]
    lines: set[str] = set()
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        watched = threading.Thread(target=watch_command_lines, args=(psutil.Process(process.pid), lines))
        watched.start()
        assert process.stdout is not None
        output = process.stdout.read()
    watched.join()
    assert "no-such-option" in output, output
    assert any("SparkSubmit" in line for line in lines)
    assert [secret for secret in SECRETS if any(secret in line for line in [output, *lines])] == []
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path != script]
    assert {"plan.json", "job.json"} <= {path.name for path in files}
    found = {(secret, str(path)) for path in files for secret in SECRETS if secret.encode() in path.read_bytes()}
    assert found == set()
    for table in ("plain", "addressed"):
        assert postgres_server.execute(f"SELECT COUNT(*) FROM {table}{unique_name}") == [(300,)]


def watch_command_lines(process: psutil.Process, lines: set[str]) -> None:
    """The command lines of a process and its children, as any user of the machine can list them."""
    with contextlib.suppress(psutil.Error):
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            for each in [process, *process.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    lines.add(" ".join(each.cmdline()))
            time.sleep(0.1)
