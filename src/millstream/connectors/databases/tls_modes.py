"""How a server's certificate is checked: the options of libpq, MySQL and their JDBC drivers, mapped to one mode.

    disable       no TLS
    prefer        TLS if the server has it; no checks
    require       TLS or no connection; no checks, unless a CA file is set: then as verify-ca
    verify-ca     the certificate is signed by an authority in the CA file, or of the system
    verify-full   and is issued for the host in the address

A CA file without a mode means verify-full: a program that specifies its authority expects verification. An unknown mode
is an error: a misspelt mode must not become a connection without a check.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from millstream.errors import ProgramError

__all__ = ["MYSQL_TLS_OPTIONS", "TlsMode", "mode_of", "mysql_tls", "tls_context"]

_LIBPQ_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_MYSQL_MODES = {
    **{mode: mode for mode in _LIBPQ_MODES},
    "allow": "prefer",
    "trust": "require",  # MariaDB's
    "disabled": "disable",
    "preferred": "prefer",
    "required": "require",
    "verify_ca": "verify-ca",
    "verify_identity": "verify-full",
}
_KNOWN_OF_MYSQL = (*_LIBPQ_MODES, "trust", "DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
_STRICTNESS = ("prefer", "disable", "require", "verify-ca", "verify-full")

# Address options, in lower case and without separators, and their meaning.
_MODE_NAMES = ("sslmode",)
_FILE_NAMES = {"sslca": "ca", "serversslcert": "ca", "sslcert": "certificate", "sslkey": "key"}
_SWITCHES = {
    "ssl": "verify-full",
    "usessl": "require",
    "requiressl": "require",
    "verifyservercertificate": "verify-ca",
    "sslverifycert": "verify-ca",
    "sslverifyidentity": "verify-full",
    "trustservercertificate": "trust",
}
_OFF = ("ssl", "usessl")
MYSQL_TLS_OPTIONS = ("sslMode", "sslCa", "sslCert", "sslKey", "useSSL", "requireSSL", "verifyServerCertificate")
_TRUE, _FALSE = ("", "true", "1", "yes", "on"), ("false", "0", "no", "off")


@dataclass(frozen=True)
class TlsMode:
    """How a connection is encrypted and checked, with the PEM files for it."""

    mode: str = "prefer"
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None


def mode_of(text: str, subject: str) -> str:
    """The libpq mode, checked here rather than at the first connection."""
    if text not in _LIBPQ_MODES:
        raise ProgramError(f"{subject}: sslmode is {text!r}, expected one of {', '.join(_LIBPQ_MODES)}")
    return text


def mysql_tls(options: Mapping[str, str], subject: str, *, is_mariadb: bool = False) -> tuple[TlsMode, dict[str, str]]:
    """The mode from an address's options, and the options unrelated to TLS.

    >>> mysql_tls({"sslMode": "VERIFY_IDENTITY", "charset": "x"}, "Database")
    (TlsMode(mode='verify-full', ca=None, certificate=None, key=None), {'charset': 'x'})
    """
    mode: str | None = None
    switches, files, others = set[str](), dict[str, str](), dict[str, str]()
    for name, value in options.items():
        plain = name.lower().replace("_", "").replace("-", "")
        if plain in _MODE_NAMES:
            mode = _MYSQL_MODES.get(value.lower())
            if mode is None:
                raise ProgramError(f"{subject}: {name} is {value!r}, expected one of {', '.join(_KNOWN_OF_MYSQL)}")
        elif plain in _FILE_NAMES:
            files[_FILE_NAMES[plain]] = value
        elif plain in _SWITCHES:
            # MariaDB's driver checks everything by default, MySQL's nothing.
            meaning = "verify-full" if plain == "usessl" and is_mariadb else _SWITCHES[plain]
            if _is_on(name, value, subject):
                switches.add(meaning)
            elif plain in _OFF:
                switches.add("disable")
        else:
            others[name] = value
    if mode is None:
        mode = _implied_mode(switches, has_files=bool(files), has_ca="ca" in files)
    elif mode == "require" and "ca" in files:
        mode = "verify-ca"
    return TlsMode(mode, files.get("ca"), files.get("certificate"), files.get("key")), others


def _is_on(name: str, value: str, subject: str) -> bool:
    if value.lower() not in _TRUE + _FALSE:
        raise ProgramError(f"{subject}: {name} is {value!r}, expected true or false")
    return value.lower() in _TRUE


def _implied_mode(switches: set[str], *, has_files: bool, has_ca: bool) -> str:
    """The mode of an address without an explicit one: the strictest that its options imply."""
    if "trust" in switches:
        return "require"
    least = "verify-full" if has_ca else "require" if has_files else "disable" if "disable" in switches else "prefer"
    return max([least, *switches], key=_STRICTNESS.index)


def tls_context(tls: TlsMode, subject: str) -> ssl.SSLContext | None:
    """The client's TLS context for this mode; None: without TLS, or as the client library prefers."""
    if tls.mode in ("disable", "prefer"):
        return None
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate is not None or tls.key is not None:
            context.load_cert_chain(tls.certificate or tls.key or "", tls.key)
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(path for path in (tls.ca, tls.certificate, tls.key) if path)
        raise ProgramError(f"{subject}: the certificates {named} are not usable: {error}. Name PEM files") from None
    context.check_hostname = tls.mode == "verify-full"
    if tls.mode not in ("verify-ca", "verify-full"):
        context.verify_mode = ssl.CERT_NONE
    return context
