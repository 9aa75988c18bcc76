"""The server conforms to its OpenAPI description: Schemathesis sends valid and invalid requests, and compares.

Watching is described too; with no slots for watchers each is rejected with 429, so that no stream is waited for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from services.served_program import served

from millstream.query.server import Limits, QueryServer, ServerSettings

EXAMPLES = 400 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 8
# Possible rejections of a well-formed query, depending on the existing states and epochs.
CONFIGURATION = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", 404, 406, 409, 410, 412, 413, 422, 429]

[[operations]]
# Here Schemathesis takes a header that is not described for an error. Headers of all kinds come along with requests.
include-path = "/v1/jobs/{job}"
[operations.checks.negative_data_rejection]
expected-statuses = [200, 400, 404, 422]
"""


@pytest.fixture(scope="module")
def server() -> Iterator[QueryServer]:
    limits = Limits(watchers_max=0, min_epoch_wait_s=0.01)
    with QueryServer(served(), ServerSettings(port=0, limits=limits)) as server:
        yield server


def described(server: QueryServer) -> Any:
    return httpx.get(f"{server.url}/openapi.json").json()


def operations(description: Any) -> Iterator[tuple[str, Any]]:
    for path, methods in description["paths"].items():
        for one in methods.values():
            yield path, one


def asked_along(server: QueryServer, description: Any, folder: Path, phases: str) -> None:
    """Run Schemathesis; it prints how to reproduce a failure."""
    (folder / "openapi.json").write_text(json.dumps(description))
    (folder / "schemathesis.toml").write_text(CONFIGURATION)
    program = Path(sys.executable).with_name("schemathesis")
    options = f"--checks all --phases {phases} --seed 8 --max-examples {EXAMPLES} --no-color"
    quiet = "--generation-database none --warnings off --request-timeout 10"
    command = [str(program), "--config-file", "schemathesis.toml", "run", "openapi.json", "--url", server.url]
    ran = subprocess.run(
        [*command, *options.split(), *quiet.split()],
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-5_000:]


def test_the_server_conforms_to_its_description(server: QueryServer, tmp_path: Path) -> None:
    description = described(server)
    (job,) = httpx.get(f"{server.url}/v1/jobs").json()["jobs"]
    states = [one["name"] for one in httpx.get(f"{server.url}/v1/jobs/{job['job_id']}/states").json()["states"]]
    assert {"total", "seen", "names", "per-window"} <= set(states), "a value, a list, a map, windows"
    for _, operation in operations(description):
        for parameter in operation.get("parameters", ()):
            # Random texts hardly ever name a state: without these, every response would be a 404.
            known = {"job": [job["job_id"], job["job"]], "state": states}.get(parameter["name"])
            if known is not None:
                parameter["schema"]["enum"] = known
    asked_along(server, description, tmp_path, "coverage,fuzzing")


def test_responses_to_unknown_names_conform_to_the_description(server: QueryServer, tmp_path: Path) -> None:
    asked_along(server, described(server), tmp_path, "fuzzing")


def test_every_path_describes_its_rejections_and_answers(server: QueryServer) -> None:
    found = dict(operations(described(server)))
    assert {path.rsplit("/{state}", 1)[-1] for path in found} >= {
        *("/keys/{key}", "/keys", "/windows/{key}", "/series/{key}", "/scan", "/watch/{key}"),
    }
    for path, operation in found.items():
        if path.startswith("/v1"):
            told = operation["responses"]
            assert {"200", "400", "401", "404", "408", "413", "422", "429", "503", "504"} <= set(told), path
            assert "$ref" in told["404"]["content"]["application/json"]["schema"], path
