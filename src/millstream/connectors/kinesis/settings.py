"""Translates the properties of Flink's Kinesis connector to our settings.

Properties that only tune Flink's own readers and writers are accepted and logged once. Unsupported properties that
affect the identity or the input are rejected. No error shows the values of keys.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from millstream.connectors.kinesis.clients import AwsAddress
from millstream.connectors.kinesis.source import StartRule
from millstream.errors import ProgramError

__all__ = ["SourceSettings", "address_of", "source_settings_of"]

_LOG = logging.getLogger(__name__)
_PROVIDER = "aws.credentials.provider"
_BASIC = (f"{_PROVIDER}.basic.accesskeyid", f"{_PROVIDER}.basic.secretkey")
_RESOLVED_BY_BOTO3 = ("AUTO", "ENV_VAR", "WEB_IDENTITY_TOKEN")
_ADDRESS_KEYS = frozenset(
    {"aws.region", "aws.endpoint", _PROVIDER, *_BASIC, f"{_PROVIDER}.basic.sessiontoken", f"{_PROVIDER}.profile.name"}
)
_START = "flink.stream.initpos"
_STARTS = ("LATEST", "TRIM_HORIZON", "AT_TIMESTAMP")
_DISCOVERY = "flink.shard.discovery.intervalmillis"
_RECORDS_MAX = "flink.shard.getrecords.maxrecordcount"
_SOURCE_KEYS = frozenset({_START, f"{_START}.timestamp", _DISCOVERY, _RECORDS_MAX})

SourceSettings = dict[str, Any]
"""Keyword arguments of `KinesisSource`."""


def address_of(what: str, properties: Mapping[str, Any]) -> AwsAddress:
    """The address and credentials. `what` is the prefix of messages.

    >>> address_of("sink", {"aws.region": "eu-central-1", "aws.endpoint": "http://localhost:4566"}).place
    'http://localhost:4566'
    """
    _check_keys(what, properties)
    if not properties.get("aws.region") and not properties.get("aws.endpoint"):
        raise ProgramError(f"{what}: neither aws.region nor aws.endpoint is set. Set one, such as 'eu-central-1'")
    access_key, secret_key = (properties.get(key) for key in _BASIC)
    if (access_key is None) != (secret_key is None):
        raise ProgramError(f"{what}: {_BASIC[0]} and {_BASIC[1]} belong together, but only one is set")
    provider = properties.get(_PROVIDER, "BASIC" if access_key else "AUTO")
    if provider not in ("BASIC", "PROFILE", *_RESOLVED_BY_BOTO3):
        raise ProgramError(
            f"{what}: {_PROVIDER} is {provider!r}, expected BASIC, PROFILE, AUTO, ENV_VAR or WEB_IDENTITY_TOKEN. A "
            "role to assume is best named in a profile of ~/.aws/config"
        )
    if provider == "BASIC" and access_key is None:
        raise ProgramError(f"{what}: {_PROVIDER} is BASIC, but {_BASIC[0]} and {_BASIC[1]} are missing")
    is_basic = provider == "BASIC"
    return AwsAddress(
        properties.get("aws.region"),
        properties.get("aws.endpoint"),
        access_key if is_basic else None,
        secret_key if is_basic else None,
        properties.get(f"{_PROVIDER}.basic.sessiontoken") if is_basic else None,
        properties.get(f"{_PROVIDER}.profile.name", "default") if provider == "PROFILE" else None,
    )


def source_settings_of(what: str, properties: Mapping[str, Any]) -> SourceSettings:
    """The settings for reading a stream."""
    kind = properties.get(_START, "LATEST")
    if kind not in _STARTS:
        raise ProgramError(f"{what}: {_START} is {kind!r}, expected one of {', '.join(_STARTS)}")
    at_ms = _timestamp_ms(what, properties.get(f"{_START}.timestamp")) if kind == "AT_TIMESTAMP" else 0
    return {
        "start": StartRule(kind, at_ms),
        "discovery_interval_ms": _number(what, properties, _DISCOVERY, 10_000, 2**62),
        "records_max": _number(what, properties, _RECORDS_MAX, 10_000, 10_000),
    }


def _check_keys(what: str, properties: Mapping[str, Any]) -> None:
    for key in properties:
        if not isinstance(key, str) or not key.startswith(("aws.", "flink.")):
            raise ProgramError(
                f"{what}: there is no property {key!r}. The properties of Flink's Kinesis connector start with aws. "
                f"or flink."
            )
        if key not in _ADDRESS_KEYS | _SOURCE_KEYS:
            if key.startswith(f"{_PROVIDER}.") or key == f"{_START}.timestamp.format":
                raise ProgramError(f"{what}: the property {key} is not supported. See docs/connectors/kinesis.md")
            _LOG.info("%s: the property %s has no effect here", what, key)


def _timestamp_ms(what: str, value: Any) -> int:
    """Seconds since 1970, or a string such as 2026-11-16T12:00:00+01:00.

    >>> _timestamp_ms("source", "1459799926.480"), _timestamp_ms("source", "2016-04-04T19:58:46.480-00:00")
    (1459799926480, 1459799926480)
    """
    try:
        seconds = float(value)
        if math.isfinite(seconds) and seconds >= 0:
            return round(seconds * 1000)
    except (TypeError, ValueError):
        pass
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            return round(moment.timestamp() * 1000)
    except (TypeError, ValueError):
        pass
    raise ProgramError(
        f"{what}: {_START}.timestamp is {value!r}, expected seconds since 1970, or a time with its zone such as "
        "2026-11-16T12:00:00+01:00"
    )


def _number(what: str, properties: Mapping[str, Any], key: str, default: int, most: int) -> int:
    value = properties.get(key, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if not 1 <= number <= most:
        raise ProgramError(f"{what}: {key} is {value!r}, expected a whole number from 1 to {most}")
    return number
