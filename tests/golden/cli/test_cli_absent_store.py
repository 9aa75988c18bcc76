"""Commands on jobs whose store is unavailable report that in bounded time, and make no claim about the jobs."""

from __future__ import annotations

import io

import pytest
from servers.server_process import HOST, free_port

from millstream.cli.listing import list_jobs
from millstream.cli.savepoint import take_savepoint

pytest.importorskip("obstore")
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def _nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{HOST}:{free_port()}",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("as_json", [False, True])
def test_listing_jobs_of_an_unavailable_store_reports_that_and_lists_nothing(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = io.StringIO()
    assert list_jobs("s3://bucket/jobs", as_json=as_json, screen=screen) != 0
    assert "Store s3://bucket/jobs: 'job.json' cannot be reached" in capsys.readouterr().err
    assert screen.getvalue() == ""


def test_a_savepoint_in_an_unavailable_store_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert take_savepoint("s3://bucket/jobs/clicks", None, None, None) != 0
    assert "cannot be reached" in capsys.readouterr().err
