"""One page of HTML, answered at `/`: a dashboard that asks this server, without a web server beside it.

It is one file, read once. Nothing beside it can be reached, and what it shows it asks for like anybody else, with a
token where one is needed.
"""

from __future__ import annotations

from pathlib import Path

from millstream.errors import ConfigurationError

__all__ = ["PAGE_HEADERS", "read_page"]

PAGE_HEADERS = {
    "cache-control": "no-cache",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def read_page(path: Path, option: str) -> bytes:
    """The page in a file, as UTF-8; ConfigurationError if it is none."""
    try:
        page = path.read_bytes()
        page.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{option} {path} is no page: {error}. Give one HTML file in UTF-8.") from error
    return page
