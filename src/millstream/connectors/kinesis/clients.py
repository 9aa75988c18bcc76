"""How Kinesis and Firehose are reached, and what their errors mean. Keys are shown nowhere.

A request that was throttled, or that got no answer, is made again after pauses that grow, for `PATIENCE_S` seconds;
then it is an error and the restart strategy decides. What AWS refuses for good is told at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from millstream.connectors.service_urls import checked_url
from millstream.errors import ConnectorAwayError, ConnectorError, PlatformError, ProgramError
from millstream.storage.certificates import certificate_refusal

__all__ = ["PATIENCE_S", "AwsAddress", "IteratorExpiredError", "PlaceInvalidError", "answer", "client_of"]

PATIENCE_S = 30.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_CONNECT_S = 5
_READ_S = 20

_Answer = TypeVar("_Answer")

_NOT_LET_IN = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_PASSING = frozenset(
    {
        "InternalFailure",
        "InternalFailureException",
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "ThrottlingException",
    }
)


class IteratorExpiredError(Exception):
    """A shard iterator is older than its five minutes: make a new one."""


class PlaceInvalidError(ConnectorError):
    """Kinesis does not know a sequence number in that shard."""


@dataclass(frozen=True)
class AwsAddress:
    """A region of AWS, or something that answers as it does at `endpoint`, and who asks. None: as boto3 finds it."""

    region: str | None = None
    endpoint: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None

    def __post_init__(self) -> None:
        if self.endpoint is not None:
            parts = checked_url(self.endpoint, "Kinesis, aws.endpoint", ("https", "http"))
            if parts.username or parts.password:
                raise ProgramError(
                    "Kinesis: the endpoint holds a user or a password. Give the keys by their own options"
                )

    @property
    def place(self) -> str:
        """For people."""
        return self.endpoint or self.region or "the default region"


@lru_cache(maxsize=16)
def client_of(address: AwsAddress, service: str) -> Any:
    """A client; one per process, address and service. Clients are safe to use from several threads."""
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise PlatformError("Kinesis needs the package boto3: pip install 'millstream[kinesis]'") from error
    try:
        session = boto3.Session(
            aws_access_key_id=address.access_key,
            aws_secret_access_key=address.secret_key,
            aws_session_token=address.session_token,
            region_name=address.region,
            profile_name=address.profile,
        )
        # What is worth a second try is decided in `answer`, with an end.
        config = Config(retries={"total_max_attempts": 1}, connect_timeout=_CONNECT_S, read_timeout=_READ_S)
        return session.client(service, endpoint_url=address.endpoint, config=config)
    except (BotoCoreError, ValueError) as error:
        raise ConnectorError(f"Kinesis at {address.place}: the settings are not usable ({error})") from None


def answer(subject: str, act: Callable[..., _Answer], *given: Any, **named: Any) -> _Answer:
    """What `act(…)` gives, asked again while that may help. `subject` says whom it concerns: "Kinesis stream 'a' …"."""
    deadline_s, pause_s = time.monotonic() + PATIENCE_S, _FIRST_PAUSE_S
    while True:
        try:
            return act(*given, **named)
        except Exception as error:
            meaning = _meaning(error, subject)
            if not isinstance(meaning, ConnectorAwayError) or time.monotonic() + pause_s > deadline_s:
                raise meaning from None
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _meaning(error: Exception, subject: str) -> Exception:
    """The client's error as one of ours. Its text is left out where it could quote what was signed."""
    from botocore import exceptions as raised

    if isinstance(error, (raised.NoCredentialsError, raised.PartialCredentialsError, raised.CredentialRetrievalError)):
        return ConnectorError(
            f"{subject}: no credentials found. Set aws.credentials.provider.basic.accesskeyid and .secretkey, or give "
            "the machines of the job a role or environment variables"
        )
    if isinstance(error, raised.ClientError):
        return _refusal(error, subject)
    if isinstance(error, raised.SSLError):
        reason = certificate_refusal(error) or f"no connection by TLS ({type(error).__name__})"
        return ConnectorError(f"{subject}: {reason}. Check the endpoint, and the certificate")
    if isinstance(error, (raised.HTTPClientError, raised.EndpointConnectionError, OSError)):
        return ConnectorAwayError(f"{subject} does not answer ({type(error).__name__})")
    if isinstance(error, raised.BotoCoreError):
        return ConnectorError(f"{subject}: {error}")
    return error


def _refusal(error: Any, subject: str) -> Exception:
    code, text = error.response.get("Error", {}).get("Code", ""), error.response.get("Error", {}).get("Message", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "ExpiredIteratorException":
        return IteratorExpiredError()
    if code in _PASSING or status >= 500:
        return ConnectorAwayError(f"{subject} is busy ({code}). More shards, or fewer readers, help if this lasts")
    if code in _NOT_LET_IN:
        return ConnectorError(f"{subject} does not let us in ({code}). Check the keys, the region and the policies")
    if code == "ResourceNotFoundException":
        return ConnectorError(
            f"{subject} is not there, or a shard of it is gone. Check its name and the region: {text}"
        )
    kind = PlaceInvalidError if code == "InvalidArgumentException" else ConnectorError
    return kind(f"{subject} refuses: {code} {text}")
