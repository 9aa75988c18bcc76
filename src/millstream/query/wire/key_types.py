"""Maps the SQL types of table keys to the types of stream keys that the protocol uses.

    {"sql": ["BIGINT", true]}                                    LONG
    {"sql": ["ROW", true, ["key0", ["VARCHAR", true, 9]], …]}    {"row": [["key0", "STRING"], …]}

A manifest records the columns of a table with SQL types (`state.schemas.saved_sql_types`). Strings and numbers denote
the same keys in both. A type that is not supported for keys keeps its name, and is rejected by it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["key_type_on_the_wire"]

_WORDS = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "BYTE",
    "SMALLINT": "SHORT",
    "INT": "INT",
    "BIGINT": "LONG",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "DECIMAL": "BIG_DEC",
    "CHAR": "STRING",
    "VARCHAR": "STRING",
    "BINARY": "BYTES",
    "VARBINARY": "BYTES",
    "DATE": "DATE",
    "TIME": "TIME",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}


def key_type_on_the_wire(written: Any) -> Any:
    """The type of keys in a manifest, with SQL types replaced.

    >>> key_type_on_the_wire({"sql": ["ROW", True, ["key0", ["INT", True]], ["key1", ["DATE", True]]]})
    {'row': [['key0', 'INT'], ['key1', 'DATE']]}
    >>> key_type_on_the_wire("LONG"), key_type_on_the_wire({"sql": ["INTERVAL_TIME", True]})
    ('LONG', 'INTERVAL_TIME')
    """
    if not isinstance(written, dict) or "sql" not in written:
        return written
    word, _, *parts = written["sql"]
    if word == "ROW":
        return {"row": [[name, key_type_on_the_wire({"sql": inner})] for name, inner in parts]}
    if word == "ARRAY":
        return {"list": key_type_on_the_wire({"sql": parts[0]})}
    return _WORDS.get(word, word)
