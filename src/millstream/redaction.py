"""Redaction: determines which options hold secrets, and hides their values in strings.

One list of words defines sensitive option names, and one function hides values. It is applied to plans, statements,
errors, logs and listings, and to messages of connectors' clients.

A password can also be part of an address. In a well-formed address it ends at the last `@`, and may contain `/`, `?`
and `#` although it should not. An address that cannot be parsed is never shown, because any part of it may be secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote

__all__ = [
    "HIDDEN",
    "is_sensitive",
    "redact",
    "redact_statement",
    "redacted_address",
    "redacted_options",
    "redacted_value",
    "scheme_of",
    "secrets_of",
    "secrets_of_statement",
]

HIDDEN = "******"
"""The replacement of a secret in strings, as in Flink."""

_SENSITIVE = re.compile(
    r"passw(or)?[dt]|passphrase|passcode|(^|[._-])pass$|\bpwd\b|secret|credential|jaas|authorization|http-headers"
    r"|token(?!\.endpoint|\.auth|\.url)|(private|access|account|api|service|encryption)[-_.]?key(?!s)|auth-params"
    r"|basic[-_.]?auth|keystore\.key$|key\.pem|connection[-_.]?string|sasl\.oauthbearer\.config|(^|[-_.])sas\b"
    r"|signature$",
    re.IGNORECASE,
)
_SENSITIVE_PARAMETER = re.compile(r"sig|key|auth", re.IGNORECASE)
"""Parameters of addresses that hold secrets; an option of the same name need not."""
_LENGTH_MIN = 3
"""Shorter secrets are hidden only where they are words of their own, and not in the middle of others."""
_LOGIN = re.compile(r"://([^:@]*:)?(?P<secret>.*)@", re.DOTALL)
_LOGIN_OF_MALFORMED = re.compile(
    r"\s*(?!file:)(?:(?:jdbc:)?[\w.+%-]*:|//[^:@]*:)(?!//)(?P<secret>.*)@", re.DOTALL | re.IGNORECASE
)
"""Without `://` nobody knows where the user's name ends."""
_PARAMETER = re.compile(r"(?<![\w.%-])(?P<name>[\w.%-]+)\s*=\s*")
_VALUE = re.compile(r"(?:[^&;]|[&;](?![\w.%-]+=))*", re.DOTALL)
"""A `&` that begins no parameter is part of the value."""
_SCHEME = re.compile(r"(?:jdbc:)?[A-Za-z][A-Za-z0-9+.-]*:")
_TEXT = "|".join(rf"{mark}(?>(?:[^{mark}]|{mark}{mark})*)(?:{mark}|$)" for mark in "'\"`")
_BARE = r"(?<![\w.-])[A-Za-z][\w.-]*"
_SPACE = r"(?>(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*\*/)*)"
_PAIR = re.compile(
    rf"(?P<name>{_TEXT}|{_BARE}){_SPACE}(?P<sign>=[=>]?|:)?{_SPACE}(?P<value>{_TEXT}|(?(sign)[^\s,;()'\"`]+|(?!)))"
)
"""Also as it is written by mistake: without quotes, with others, with another sign between or none."""
_OPTIONS = re.compile(r"\b(?:WITH|SET|OPTIONS)\s*\((?:[^()']|'[^']*')*", re.IGNORECASE)
_SETTING = re.compile(
    rf"(?:^|;){_SPACE}SET\s+(?P<name>['\"`]?[A-Za-z][\w.-]*['\"`]?)\s*=?\s*(?P<value>[^;'\"`\s=][^;]*)", re.IGNORECASE
)


def is_sensitive(name: str) -> bool:
    """Whether the value of an option of this name is a secret.

    >>> is_sensitive("properties.sasl.jaas.config"), is_sensitive("s3.secret-key"), is_sensitive("key.fields")
    (True, True, False)
    """
    return _SENSITIVE.search(name) is not None


def secrets_of(name: str, value: str) -> tuple[str, ...]:
    """The secret parts of an option's value: all of it, or the passwords of an address in it.

    >>> secrets_of("password", "hush"), secrets_of("url", "mysql://ann:p/w@db/sales?user=ann&sslpassword=k")
    (('hush',), ('p/w', 'k'))
    """
    return tuple(value[start:stop] for start, stop in _spans(name, value))


def _spans(name: str, value: str) -> list[tuple[int, int]]:
    """The spans of the secrets in an option's value."""
    if is_sensitive(name):
        return [(0, len(value))] if value else []
    return list(_spans_of_address(value))


def _spans_of_address(text: str) -> Iterator[tuple[int, int]]:
    login = _LOGIN.search(text) if "://" in text else _LOGIN_OF_MALFORMED.match(text)
    if login is not None and (login[1] if "://" in text else True) and login["secret"]:
        yield login.span("secret")
    for parameter in _PARAMETER.finditer(text):
        name = unquote(parameter["name"])
        if is_sensitive(name) or _SENSITIVE_PARAMETER.fullmatch(name):
            value = _VALUE.match(text, parameter.end())
            if value and value[0]:
                yield value.span()


def redacted_value(name: str, value: str) -> str:
    """An option's value for display, without secrets.

    >>> redacted_value("password", "hush"), redacted_value("url", "redis://:hush@cache:6379/0")
    ('******', 'redis://:******@cache:6379/0')
    """
    if is_sensitive(name):
        return HIDDEN
    return redacted_address(value)


def redacted_address(text: str) -> str:
    """A string with the passwords of an address in it hidden.

    >>> redacted_address("postgresql://ann:a/b?c#d@db/sales")
    'postgresql://ann:******@db/sales'
    """
    pieces, end = [], 0
    for start, stop in sorted(_spans_of_address(text)):
        if stop > end:
            pieces += [text[end : max(start, end)], HIDDEN if start >= end else ""]
            end = stop
    return "".join(pieces) + text[end:]


def redacted_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options for display, without secrets.

    >>> redacted_options({"connector": "jdbc", "password": "hush"})
    {'connector': 'jdbc', 'password': '******'}
    """
    return {name: redacted_value(name, value) for name, value in options.items()}


def redact(text: str, secrets: Iterable[str | None]) -> str:
    """`text` without these secrets, also in the encoded form used in addresses.

    >>> redact("login with hush failed", ["hush", None])
    'login with ****** failed'
    """
    known = {form for secret in secrets if secret for form in _forms(secret)}
    for form in sorted(known, key=len, reverse=True):
        pattern = re.escape(form) if len(form) >= _LENGTH_MIN else rf"(?<!\w){re.escape(form)}(?!\w)"
        text = re.sub(pattern, lambda match: HIDDEN, text)
    return text


def _forms(secret: str) -> tuple[str, ...]:
    """A secret in plain form, as encoded in an address, and as quoted by Python and JSON."""
    quoted = repr(secret)[1:-1], repr(secret + "'")[1:-2], json.dumps(secret)[1:-1]
    return secret, unquote(secret), quote(secret), quote(secret, safe=""), quote_plus(secret), *quoted


def scheme_of(address: object) -> str:
    """The displayable part of an address that cannot be parsed: its scheme.

    >>> scheme_of("postgresql:/ann:hush@db"), scheme_of("hush@db")
    ("'postgresql:…'", '(not shown)')
    """
    match = _SCHEME.match(address.strip()) if isinstance(address, str) else None
    return f"'{match[0]}…'" if match else "(not shown)"


# --- statements -------------------------------------------------------------------------------------------------------


def secrets_of_statement(source: str) -> tuple[str, ...]:
    """The secrets in a statement's text: values of sensitive options, and passwords in addresses.

    >>> secrets_of_statement("CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' = 'it''s')")
    ("it's",)
    """
    secrets = (secret for start, stop in _secret_spans(source) for secret in (source[start:stop],))
    return tuple(secret.replace("''", "'") for secret in secrets)


def redact_statement(source: str) -> str:
    """A statement's text with every secret overwritten. Positions do not change.

    >>> redact_statement("SET 'sasl.password' = 'hush'; SELECT 1")
    "SET 'sasl.password' = '****'; SELECT 1"
    """
    letters = list(source)
    for start, stop in _secret_spans(source):
        letters[start:stop] = ("\n" if letter == "\n" else "*" for letter in source[start:stop])
    return "".join(letters)


def _secret_spans(source: str) -> Iterator[tuple[int, int]]:
    for setting in _SETTING.finditer(source):
        if is_sensitive(setting["name"]) and setting["value"]:
            yield setting.span("value")
    options = [match.span() for match in _OPTIONS.finditer(source)]
    pair = _PAIR.search(source)
    while pair is not None:
        start, stop = pair.span("value")
        is_text = source[start] in "'\"`"
        first, last = start + is_text, stop - (is_text and stop - start > 1 and source[stop - 1] == source[start])
        name = pair["name"]
        is_option = is_text or name[0] in "'\"`" or any(begin <= start < end for begin, end in options)
        spans = _spans(name.strip("'\"`"), source[first:last]) if is_option else []
        yield from ((first + begin, first + end) for begin, end in spans)
        # Of two adjacent strings, the second may be the name of the next pair.
        pair = _PAIR.search(source, stop if spans else start)
