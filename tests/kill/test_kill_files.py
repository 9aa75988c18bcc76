"""Real kills of a job between objects of a real S3, and to a Delta table there: every record is published once.

`MILLSTREAM_KILL_FILES_SEEDS` says how many seeds (2 by default), `MILLSTREAM_KILL_FIRST_SEED` where to begin.
"""

from __future__ import annotations

import io
import os
import random
import sys
from pathlib import Path

import files_program as program
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from killing import FINISHED, FIRST, PHASE_TIMEOUT_S, ROOT, Strike, strike_down
from process_session import ProcessSession
from servers.minio import MinioServer

SEEDS = range(FIRST, FIRST + int(os.environ.get("MILLSTREAM_KILL_FILES_SEEDS", "2")))


def start(folder: Path, bucket: str) -> ProcessSession:
    script = Path(program.__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(script.parent)])}
    command = [sys.executable, str(script), str(folder / "store"), bucket]
    return ProcessSession(command, environment, folder, folder / "stderr.log")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_job_publishes_every_record_once_to_objects_and_to_delta(
    seed: int, minio_server: MinioServer, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in minio_server.environment_for_clients().items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("AWS_ENDPOINT", minio_server.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", minio_server.url)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    client, name = minio_server.client(), minio_server.create_bucket(unique_name)
    numbers = range(program.FILES * program.LINES)
    for file in range(program.FILES):
        lines = "\n".join(program.line(number) for number in numbers[file :: program.FILES])
        client.put_object(Bucket=name, Key=f"in/part/{file:03d}.txt", Body=lines.encode())

    rng = random.Random(f"millstream-files-{seed}")
    strike = Strike(rng.randrange(1, 9), round(rng.random() * 1.2, 3))
    history = strike_down(start(tmp_path, f"s3://{name}"), strike)
    print(f"seed {seed}: {strike}: {history}")
    if history != FINISHED:
        start(tmp_path, f"s3://{name}").run_out(PHASE_TIMEOUT_S)

    pages = client.get_paginator("list_objects_v2").paginate(Bucket=name)
    keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
    objects = {key: client.get_object(Bucket=name, Key=key)["Body"].read() for key in keys if "/." not in key}
    texts = [text for key, data in objects.items() if key.startswith("text/") for text in data.decode().splitlines()]
    assert sorted(texts) == sorted(program.line(number).upper() for number in numbers), history
    expected = sorted((row[1], row[0], row[2]) for row in map(program.parse, map(program.line, numbers)))
    tables = [pq.read_table(io.BytesIO(data)) for key, data in objects.items() if key.startswith("parquet/")]
    rows = [(row["id"], row["shop"], row["cents"]) for table in tables for row in table.to_pylist()]
    assert sorted(rows) == expected, history
    table = DeltaTable(f"s3://{name}/delta")
    rows = [(row["id"], row["shop"], row["cents"]) for row in table.to_pyarrow_table().to_pylist()]
    assert sorted(rows) == expected, history
    assert len(tables) < len([key for key in keys if key.startswith("text/")]), "Parquet files were compacted"
