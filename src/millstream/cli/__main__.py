"""`python -m millstream.cli`: equivalent to the `millstream` command."""

from __future__ import annotations

from millstream.cli.main import app

if __name__ == "__main__":
    app(prog_name="millstream")
