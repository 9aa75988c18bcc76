"""Makes this folder importable, so that all tests run the same `programs`, and makes the servers' fixtures known."""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Real servers, started by the first test that asks for one.
pytest_plugins = ["servers.fixtures"]

# Random tests try so many inputs where they do not say otherwise: few, to keep the fast part under a minute, and others
# in every run. HYPOTHESIS_PROFILE=thorough takes its time.
settings.register_profile("fast", max_examples=20, deadline=None)  # a busy machine is no defect
settings.register_profile("thorough", max_examples=2_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """No test pulls a plug: what was written outlives every kill without being on the disk, and tests write many
    thousand files. Tests of what is synced put their own in its place; processes that tests start really sync."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


def pytest_collection_finish() -> None:
    """Let the collector look seldom, and never at what lives as long as the process: modules and thousands of tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure() -> None:
    """At its end, a library that counts its objects must find that they are gone."""
    gc.unfreeze()
