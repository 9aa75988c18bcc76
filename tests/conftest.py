"""Makes this folder importable, so that all tests share its packages, and registers the servers' fixtures."""

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

# What random tests draw; real servers, started by the first test that asks for one.
pytest_plugins = ["inputs.random_inputs", "servers.fixtures"]


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """No test pulls a plug: what was written outlives every kill without being on the disk, and tests write many
    thousand files. Tests of what is synced put their own in its place; processes that tests start really sync."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="module", autouse=True)
def _a_file_leaves_nothing_open() -> Iterator[None]:
    """Look for garbage of all ages when a file of tests ends, and never again at what outlives it (decision 0034)."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _a_test_leaves_nothing_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test leaves in a cycle of references (a socket, a coroutine that nobody awaits) warns when the collector
    finds it, and a warning is an error: in this test, not in the one that happens to run half an hour later."""
    yield
    request.node.funcargs.clear()  # pytest does so a moment later: what fixtures gave is looked at, too
    gc.collect(1)


class OneClusterAtATime(LoadFileScheduling):
    """Files are dealt out to workers, and those that start a Spark cluster, six processes of Java, all to the same."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return "clusters" if "cluster" in file else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return OneClusterAtATime(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Let the collector look seldom, and never at what lives as long as the process: modules and thousands of tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure() -> None:
    """At its end, a library that counts its objects must find that they are gone."""
    gc.unfreeze()
