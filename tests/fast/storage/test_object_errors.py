"""Errors of an object store are classified by meaning: a retry helps, or a person must act."""

from __future__ import annotations

import pytest

from millstream.errors import StoreAwayError, StoreError
from millstream.storage.objects import ObjectStore


class Service:
    """Responds to every request with the same error, as the client formats it; "" is a success."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def put(self, *_: object, **__: object) -> dict[str, str]:
        from obstore.exceptions import AlreadyExistsError, GenericError

        text = self.texts.pop(0)
        if text:
            raise (AlreadyExistsError if "409" in text else GenericError)(text)
        return {"e_tag": ""}


def response(status: str, code: str, message: str = "It says so.") -> str:
    return (
        "Generic S3 error: Error performing PUT http://s3/bucket/a in 3.1ms - Server returned non-2xx status code: "
        f"{status}: <Error><Code>{code}</Code><Message>{message}</Message></Error>"
    )


def error_of(*texts: str, creates: bool = False) -> StoreError:
    """The error raised for the last of these responses."""
    store = ObjectStore("s3://bucket/job", Service(*texts))  # type: ignore[arg-type]
    for _ in texts[1:]:
        store.put("a", b"")
    with pytest.raises(StoreError) as error:
        store.create("a", b"") if creates else store.put("a", b"")
    return error.value


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("400 Bad Request", "RequestTimeout"),
        ("400 Bad Request", "IncompleteBody"),
        ("409 Conflict", "OperationAborted"),
        ("503 Slow Down", "SlowDown"),
    ],
)
def test_transient_errors_are_unavailability_for_any_status(status: str, code: str) -> None:
    """S3 reports a timeout while receiving content with status 400. It must not end a job."""
    assert isinstance(error_of(response(status, code)), StoreAwayError)


def test_a_conditional_put_that_met_another_request_is_not_reported_as_a_lost_race() -> None:
    """Interpreted as a lost race, it would stop a driver that was never replaced."""
    for code in ("OperationAborted", "ConditionalRequestConflict"):
        assert isinstance(error_of(response("409 Conflict", code), creates=True), StoreAwayError)
    store = ObjectStore("s3://bucket/job", Service(response("409 Conflict", "BlobAlreadyExists")))  # type: ignore[arg-type]
    assert store.create("a", b"") is False


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        ("400 Bad Request", "ExpiredToken", "new credentials into the environment"),
        ("403 Forbidden", "RequestTimeTooSkewed", "Set the clock of this machine right"),
        ("403 Forbidden", "AccessDenied", "what their owner may do there"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", "the region and the endpoint"),
    ],
)
def test_permanent_errors_advise_the_remedy(status: str, code: str, advice: str) -> None:
    refusal = error_of(response(status, code))
    assert not isinstance(refusal, StoreAwayError)
    assert code in refusal.message and advice in refusal.message


def test_expired_credentials_do_not_end_a_job_that_had_valid_ones() -> None:
    nobody = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s - timed out"
    at_first, later = error_of(nobody), error_of("", nobody)
    assert not isinstance(at_first, StoreAwayError) and "the environment has no credentials" in at_first.message
    assert isinstance(later, StoreAwayError) and "could not be renewed" in later.message
