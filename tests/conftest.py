"""Makes this folder importable, so that all tests share its packages, and registers the servers' fixtures."""

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

# Inputs of random tests; real servers, started by the first test that needs one.
pytest_plugins = ["inputs.random_inputs", "servers.fixtures"]


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """Disable fsync: no test cuts the power, unsynced writes survive every kill, and tests write many thousand
    files. Tests of syncing replace it themselves; child processes really sync.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="module", autouse=True)
def _a_file_leaves_nothing_open() -> Iterator[None]:
    """Run a full garbage collection at the end of a test file, then freeze surviving objects (decision 0034)."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _a_test_leaves_nothing_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """Objects that a test leaves in a reference cycle (a socket, a coroutine never awaited) warn when collected, and
    a warning is an error: in this test, not in the one that happens to run half an hour later.
    """
    yield
    request.node.funcargs.clear()  # pytest does so a moment later: values of fixtures are checked, too
    gc.collect(1)


class OneClusterAtATime(LoadFileScheduling):
    """Test files are distributed to workers; all that start a Spark cluster, six Java processes, run in the same
    one.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return "clusters" if "cluster" in file else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return OneClusterAtATime(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Collect rarely, and never the objects that live as long as the process: modules and thousands of tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure() -> None:
    """At exit, a library that counts its objects must see none."""
    gc.unfreeze()
