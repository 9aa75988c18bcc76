"""The answer that every killed job must give: one run that nobody disturbs, for all tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from killing import output_of, run_to_the_end

# How programs are run on a cluster is said there.
sys.path.append(str(Path(__file__).parents[1] / "cluster"))


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The output of a run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("clean")
    run_to_the_end(folder)
    return output_of(folder)
