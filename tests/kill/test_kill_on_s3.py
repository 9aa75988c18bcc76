"""A job on Spark whose store and output are on a real S3: killed with -9 and started again at another parallelism, and
the service killed too. Every line is there once."""

from __future__ import annotations

import os
import queue
import random
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
import s3_program
from killing import PHASE_TIMEOUT_S, ROOT, SEEDS, Strike, strike_down
from process_session import ProcessSession
from servers.minio import MinioServer


def _start(folder: Path, minio: MinioServer, bucket: str, parallelism: int) -> ProcessSession:
    script = Path(s3_program.__file__)
    environment = {
        **os.environ,
        **minio.environment_for_clients(),
        "AWS_ENDPOINT_URL": minio.url,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(script.parent)]),
    }
    command = [sys.executable, str(script), f"s3://{bucket}/store", f"s3://{bucket}/output", str(parallelism)]
    return ProcessSession(command, environment, folder, folder / "stderr.log")


def _lines(minio: MinioServer, bucket: str) -> list[str]:
    """What a reader of the bucket finds, who knows nothing but that hidden names are none of his business."""
    pages = minio.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="output/")
    keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
    shown = [key for key in keys if not any(part.startswith((".", "_")) for part in key.split("/"))]
    texts = [minio.client().get_object(Bucket=bucket, Key=key)["Body"].read().decode() for key in shown]
    return [line for text in texts for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", list(SEEDS)[: max(2, len(SEEDS) // 4)])
def test_a_killed_job_on_s3_writes_every_line_once(
    seed: int, minio_server: MinioServer, unique_name: str, tmp_path: Path
) -> None:
    rng = random.Random(f"s3-{seed}")
    bucket = minio_server.create_bucket(unique_name)
    history = []
    for parallelism in (2, 3) if seed % 2 else (2,):
        strike = Strike(rng.randrange(1, 6), round(rng.random() * 1.2, 3))
        history.append(f"{strike}: {strike_down(_start(tmp_path, minio_server, bucket, parallelism), strike)}")
    job = _start(tmp_path, minio_server, bucket, 1 + seed % 3)
    try:
        _disturb(job, minio_server, history)
        assert job.wait(60) == 0, job.errors()[-4000:]
    finally:
        job.kill()
    found, expected = Counter(_lines(minio_server, bucket)), Counter(s3_program.expected())
    assert found == expected, f"seed {seed}: lost {expected - found}, too much {found - expected}; {history}"
    for secret in (minio_server.secret_key, minio_server.access_key):
        assert secret not in job.errors()


def _disturb(job: ProcessSession, minio: MinioServer, history: list[str]) -> None:
    """Follow the job to its end; after the first epoch it is seen to commit, the service dies and comes back."""
    service: threading.Thread | None = None
    try:
        while (line := job.next_line(PHASE_TIMEOUT_S)) is not None:
            if line.startswith("PHASE epoch ") and service is None:
                history.append(f"the service killed after {line!r}")
                service = threading.Thread(target=minio.restart)
                service.start()
    except queue.Empty:
        raise AssertionError(f"stuck; {history}:\n{job.errors()[-4000:]}") from None
    finally:
        if service is not None:
            service.join(120)
