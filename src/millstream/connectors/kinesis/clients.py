"""Clients of Kinesis and Firehose, and the classification of their errors. Keys are never shown.

A request that was throttled, or got no response, is retried with growing pauses, for `PATIENCE_S` seconds;
then an error is raised and the restart strategy decides. Permanent errors of AWS are raised at once.
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

__all__ = ["PATIENCE_S", "AwsAddress", "IteratorExpiredError", "PlaceInvalidError", "call_with_retries", "client_of"]

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
    """A shard iterator has expired after its five minutes: create a new one."""


class PlaceInvalidError(ConnectorError):
    """The shard has no record with this sequence number."""


@dataclass(frozen=True)
class AwsAddress:
    """A region of AWS, or a compatible service at `endpoint`, and the credentials. None: resolved by boto3."""

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
                raise ProgramError("Kinesis: the endpoint holds a user or a password. Use the options for keys")

    @property
    def place(self) -> str:
        """The address for display."""
        return self.endpoint or self.region or "the default region"


@lru_cache(maxsize=16)
def client_of(address: AwsAddress, service: str) -> Any:
    """A client, cached per process, address and service. Clients are thread-safe."""
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
        # `call_with_retries` decides about retries, with a limit.
        config = Config(retries={"total_max_attempts": 1}, connect_timeout=_CONNECT_S, read_timeout=_READ_S)
        return session.client(service, endpoint_url=address.endpoint, config=config)
    except (BotoCoreError, ValueError) as error:
        raise ConnectorError(f"Kinesis at {address.place}: the settings are not usable ({error})") from None


def call_with_retries(subject: str, operation: Callable[..., _Answer], *arguments: Any, **named: Any) -> _Answer:
    """The result of `operation(…)`, with retries. `subject` names the target in errors: "Kinesis stream 'a' …"."""
    deadline_s, pause_s = time.monotonic() + PATIENCE_S, _FIRST_PAUSE_S
    while True:
        try:
            return operation(*arguments, **named)
        except Exception as error:
            meaning = _classified(error, subject)
            if not isinstance(meaning, ConnectorAwayError) or time.monotonic() + pause_s > deadline_s:
                raise meaning from None
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _classified(error: Exception, subject: str) -> Exception:
    """The client's error as one of ours. Its text is omitted where it could quote signed content."""
    from botocore import exceptions as raised

    if isinstance(error, (raised.NoCredentialsError, raised.PartialCredentialsError, raised.CredentialRetrievalError)):
        return ConnectorError(
            f"{subject}: no credentials. Set aws.credentials.provider.basic.accesskeyid and .secretkey, or use "
            "a role or environment variables on the machines of the job"
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
        return ConnectorAwayError(f"{subject} is busy ({code}). If this persists, use more shards, or fewer readers")
    if code in _NOT_LET_IN:
        return ConnectorError(f"{subject} denied access ({code}). Check the keys, the region and the policies")
    if code == "ResourceNotFoundException":
        return ConnectorError(
            f"{subject} does not exist, or one of its shards has expired. Check its name and the region: {text}"
        )
    kind = PlaceInvalidError if code == "InvalidArgumentException" else ConnectorError
    return kind(f"{subject} refuses: {code} {text}")
