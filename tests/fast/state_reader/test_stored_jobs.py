"""Listing the jobs of a folder of stores, at any location."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore as MemoryBackend

from millstream.checkpoint.job_record import claim
from millstream.errors import StoreError
from millstream.state_reader import stored_jobs
from millstream.state_reader.stored_jobs import jobs
from millstream.storage.objects import ObjectStore
from millstream.storage.store import Store, open_store


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_stores_below_a_folder_are_listed_for_any_notation_of_its_path(scheme: str, tmp_path: Path) -> None:
    for name in ("clicks", "orders"):
        claim(open_store(str(tmp_path / name)), name, job_id=name, now_ms=0)
    (tmp_path / "notes").mkdir()
    assert {job.name for job in jobs(f"{scheme}{tmp_path}")} == {"clicks", "orders"}
    assert [job.name for job in jobs(f"{scheme}{tmp_path}/clicks")] == ["clicks"]


def test_stores_directly_below_an_object_store_address_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    backends: dict[str, MemoryBackend] = {}
    below = {"s3://bucket/jobs": ("clicks", "notes", "orders")}

    def opened(url: str) -> Store:
        store = ObjectStore(url, backends.setdefault(url, MemoryBackend()))
        monkeypatch.setattr(ObjectStore, "folders", lambda self: below.get(self.url, ()))
        return store

    monkeypatch.setattr(stored_jobs, "open_store", opened)
    for name in ("clicks", "orders"):
        claim(opened(f"s3://bucket/jobs/{name}"), name, job_id=name, now_ms=0)
    store_by_job = {job.name: job.store for job in jobs("s3://bucket/jobs")}
    assert store_by_job == {name: f"s3://bucket/jobs/{name}" for name in ("clicks", "orders")}
    assert [job.name for job in jobs("s3://bucket/jobs/orders")] == ["orders"]
    with pytest.raises(StoreError, match="s3://bucket/other holds no job"):
        jobs("s3://bucket/other")


def test_folders_of_an_object_store_are_listed_without_their_subfolders() -> None:
    store = ObjectStore("s3://bucket/jobs", MemoryBackend())
    for name in ("clicks/job.json", "clicks/manifests/1", "orders/job.json", "job.json"):
        store.put(name, b"{}")
    assert store.folders() == ("clicks", "orders")
