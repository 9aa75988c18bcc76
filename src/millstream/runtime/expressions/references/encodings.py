"""References of encodings: charsets, Base64, URLs, IP addresses, UTF-8."""

from __future__ import annotations

import base64
import re
from urllib.parse import unquote_to_bytes

from millstream.runtime.expressions.java_text import java_charset
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, reference
from millstream.runtime.expressions.references.null_rules import null_of_null

__all__ = ["decode", "encode", "from_base64", "parse_url", "url_decode", "url_encode"]

_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?")
_PERCENT = re.compile(r"%(?![0-9a-fA-F]{2})")
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-*_")
_URL_BYTES = {byte: chr(byte) if byte in _PLAIN else "+" if byte == 32 else f"%{byte:02X}" for byte in range(256)}
_PROTOCOLS = frozenset({"http", "https", "ftp", "file", "mailto"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@reference("ENCODE")
@null_of_null
def encode(context: CallContext, text: str, charset: str) -> bytes:
    name = _charset(charset)
    if charset.lower() == "utf-16" and text:
        return b"\xfe\xff" + text.encode(name)
    return text.encode(name, "replace")


@reference("DECODE")
@null_of_null
def decode(context: CallContext, data: bytes, charset: str) -> str:
    name = _charset(charset)
    if charset.lower() == "utf-16" and data[:2] in (b"\xfe\xff", b"\xff\xfe"):
        name, data = ("utf-16-le" if data[0] == 0xFF else "utf-16-be"), data[2:]
    return data.decode(name, "replace")


def _charset(name: str) -> str:
    charset = java_charset(name)
    if charset is None:
        known = "US-ASCII, ISO-8859-1, UTF-8, UTF-16BE, UTF-16LE or UTF-16"
        raise EvaluationError(f"there is no charset named {name!r}; use {known}")
    return charset


@reference("TO_BASE64")
@null_of_null
def to_base64(context: CallContext, value: str | bytes) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode("ascii")


@reference("FROM_BASE64")
@null_of_null
def from_base64(context: CallContext, text: str | bytes) -> str:
    """Decodes Base64; only the padding may be missing."""
    data = text.encode() if isinstance(text, str) else text
    if not _BASE64.fullmatch(data):
        raise EvaluationError(f"{text!r} is not Base64")
    return base64.b64decode(data.rstrip(b"=") + b"==").decode("utf-8", "replace")


@reference("URL_ENCODE")
@null_of_null
def url_encode(context: CallContext, text: str) -> str:
    return "".join(map(_URL_BYTES.__getitem__, text.encode("utf-8", "replace")))


@reference("URL_DECODE")
@null_of_null
def url_decode(context: CallContext, text: str) -> str | None:
    """NULL if a % is not followed by two hexadecimal digits."""
    if "%" not in text and "+" not in text:
        return text
    if _PERCENT.search(text):
        return None
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")


@reference("PARSE_URL")
@null_of_null
def parse_url(context: CallContext, url: str, part: str, key: str | None = None) -> str | None:
    """A part of a URL by Java's URL class; with a key, the value of that key in the QUERY."""
    if part not in _URL_PARTS or (key is not None and part != "QUERY"):
        return None
    parts = _url_parts(url)
    value = parts.get(part) if parts else None
    if key is None or value is None:
        return value
    for pair in value.split("&"):
        if pair.startswith(key + "="):
            return pair[len(key) + 1 :]
    return None


_URL_PARTS = frozenset({"HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO"})


def _url_parts(url: str) -> dict[str, str | None] | None:
    """All parts; None if Java rejects the URL."""
    url = url.strip("".join(map(chr, range(33))))
    url = url[4:] if url[:4].lower() == "url:" else url
    match = _SCHEME.match(url)
    if not match or match[1].lower() not in _PROTOCOLS:
        return None
    rest, hash_, ref = url[match.end() :].partition("#")
    parts: dict[str, str | None] = {"PROTOCOL": match[1].lower(), "REF": ref if hash_ else None, "HOST": ""}
    path, mark, query = rest.partition("?")
    if path.startswith("//"):
        authority, slash, tail = path[2:].partition("/")
        path = slash + tail
        user, at, place = authority.rpartition("@")
        host = _host(place)
        if host is None:
            return None
        parts |= {"AUTHORITY": authority, "USERINFO": user if at else None, "HOST": host}
    return parts | {"PATH": path, "QUERY": query if mark else None, "FILE": path + mark + query}


def _host(place: str) -> str | None:
    """The host of `host:port`; None if the port is invalid."""
    if place.startswith("["):
        end = place.find("]")
        host, port = place[: end + 1], place[end + 1 :]
    else:
        host, colon, digits = place.partition(":")
        port = colon + digits
    return host if re.fullmatch(r"(?::[0-9]*)?", port) else None


@reference("INET_ATON")
@null_of_null
def inet_aton(context: CallContext, text: str) -> int | None:
    """The number of an IPv4 address. Short forms follow MySQL, as in Flink: a.b is a.0.0.b, a.b.c is a.b.0.c; every
    part is a byte."""
    parts = text.split(".")
    if len(parts) > 4 or not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts):
        return None
    *heads, last = map(int, parts)
    if max(*heads, last, 0) > 255:
        return None
    return sum(head << (8 * (3 - place)) for place, head in enumerate(heads)) + last


@reference("INET_NTOA")
@null_of_null
def inet_ntoa(context: CallContext, number: int) -> str | None:
    return ".".join(map(str, number.to_bytes(4, "big"))) if 0 <= number < 2**32 else None


@reference("IS_VALID_UTF8")
@null_of_null
def is_valid_utf8(context: CallContext, data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@reference("MAKE_VALID_UTF8")
@null_of_null
def make_valid_utf8(context: CallContext, data: bytes) -> str:
    return data.decode("utf-8", "replace")
