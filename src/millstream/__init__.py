"""Millstream: stateful stream processing for Python, with Flink's model, on Apache Spark."""

from __future__ import annotations

import os as _os

if _os.environ.get("MILLSTREAM_SERVE_PYFLINK") == "1":
    # Set by `millstream run --pyflink`; Spark's Python workers inherit it, and unpickling in them imports this package
    # first.
    from millstream.cli.pyflink_import import serve_pyflink as _serve_pyflink

    _serve_pyflink()
