"""Fixtures shared by connector tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from s3_buckets import Bucket, service_environment
from servers.minio import MinioServer

from millstream.connectors.files import places


@pytest.fixture
def bucket(minio_server: MinioServer, unique_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket for one test, configured by the environment; connections of other tests are not reused."""
    places._backend.cache_clear()
    for key, value in service_environment(minio_server).items():
        monkeypatch.setenv(key, value)
    yield Bucket(minio_server, unique_name)
    places._backend.cache_clear()
