"""What Spark and a job's store say to each other: addresses, and types.

Spark opens files by its own means, so a store that only this process can see is refused. Types are read off a Spark
schema by their names; no import of Spark is needed for that.
"""

from __future__ import annotations

from typing import Any

from millstream.common.typeinfo import TypeInformation, Types
from millstream.errors import ProgramError, StoreError
from millstream.storage.store import Store

__all__ = ["spark_url", "type_of_spark_schema"]

_SIMPLE = {
    "string": Types.STRING,
    "char": Types.STRING,
    "varchar": Types.STRING,
    "boolean": Types.BOOLEAN,
    "byte": Types.BYTE,
    "tinyint": Types.BYTE,
    "short": Types.SHORT,
    "smallint": Types.SHORT,
    "integer": Types.INT,
    "int": Types.INT,
    "long": Types.LONG,
    "bigint": Types.LONG,
    "float": Types.FLOAT,
    "double": Types.DOUBLE,
    "decimal": Types.BIG_DEC,
    "date": Types.SQL_DATE,
    "timestamp": Types.INSTANT,
    "timestamp_ntz": Types.SQL_TIMESTAMP,
}


def spark_url(store: Store, name: str) -> str:
    """Where Spark finds the file or folder `name` of the store."""
    path = store.local_path(name)
    if path is not None:
        # Not `as_uri`: Hadoop takes a path as it is written and would not undo its %XX.
        return f"file://{path.as_posix()}"
    if store.url.startswith("memory://"):
        raise StoreError(
            f"Store {store.url} is in this process's memory, where Spark cannot read or write. "
            f"Give the job a folder or an object store."
        )
    # Hadoop's name for the same service.
    return f"{store.url.rstrip('/')}/{name}".replace("s3://", "s3a://", 1)


def type_of_spark_schema(schema: Any) -> TypeInformation:
    """The ROW type of a Spark StructType.

    TIMESTAMP is a moment and becomes INSTANT; TIMESTAMP_NTZ is a reading of a clock and becomes SQL_TIMESTAMP.
    """
    return _row(schema, "")


def _row(struct: Any, path: str) -> TypeInformation:
    names = [field.name for field in struct.fields]
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise ProgramError(f"The DataFrame has the column {doubles[0]!r} twice. Rename one with withColumnRenamed.")
    return Types.ROW_NAMED(names, [_type(field.dataType, f"{path}{field.name}") for field in struct.fields])


def _type(data_type: Any, path: str) -> TypeInformation:
    name = data_type.typeName()
    if name in _SIMPLE:
        return _SIMPLE[name]()
    if name == "binary":
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    if name == "array":
        return Types.LIST(_type(data_type.elementType, f"{path}[]"))
    if name == "map":
        return Types.MAP(_type(data_type.keyType, f"{path}{{key}}"), _type(data_type.valueType, f"{path}{{value}}"))
    if name == "struct":
        return _row(data_type, f"{path}.")
    raise ProgramError(
        f"Column {path!r} of the DataFrame has Spark's type {data_type.simpleString()}, which has no counterpart here. "
        f"Cast it in Spark first, for instance to string."
    )
