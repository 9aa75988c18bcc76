"""Random row types, rows of them and nearly valid documents, for tests of formats; and the comparison of a columnar
decoder or encoder with the schema's own `deserialize` and `serialize`.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.time import Instant
from millstream.common.typeinfo import RowTypeInfo, TypeInformation, Types
from millstream.common.types import Row
from millstream.connectors.messages.codecs import (
    Messages,
    PerMessageDecoder,
    PerMessageEncoder,
    decoder_of,
    encoder_of,
)
from millstream.records.batch import Batch

BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NAMES = st.sampled_from(["a", "b", "c", "name", "ä b", 'q"', "value"])


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


VALUES: dict[TypeInformation, st.SearchStrategy[Any]] = {
    Types.STRING(): TEXT,
    Types.CHAR(): st.characters(codec="utf-8"),
    Types.BOOLEAN(): st.booleans(),
    Types.BYTE(): integers(8),
    Types.SHORT(): integers(16),
    Types.INT(): integers(32),
    Types.LONG(): integers(64),
    Types.FLOAT(): st.floats(width=32),
    Types.DOUBLE(): st.floats(),
    Types.BIG_INT(): st.integers(),
    Types.BIG_DEC(): st.decimals(allow_nan=False, allow_infinity=False),
    Types.DECIMAL(10, 2): st.decimals(-(10**7), 10**7, places=2),
    Types.DECIMAL(38, 20): st.decimals(-(10**17), 10**17, places=20),
    Types.INSTANT(): st.builds(Instant, st.integers(-62_000_000_000, 253_000_000_000), st.integers(0, 999_999_999)),
    Types.SQL_DATE(): st.dates(),
    Types.SQL_TIME(): st.times().map(lambda time: time.replace(fold=0)),
    Types.SQL_TIMESTAMP(): st.datetimes().map(lambda moment: moment.replace(fold=0)),
    BYTES: st.binary(max_size=8),
}
SINGLE = st.sampled_from(list(VALUES))


def field_types(depth: int = 1, singles: st.SearchStrategy[TypeInformation] = SINGLE) -> st.SearchStrategy[Any]:
    if depth == 0:
        return singles
    inner = field_types(depth - 1, singles)
    return st.one_of(
        singles,
        singles,
        inner.map(Types.LIST),
        row_types(depth - 1, singles),
        st.lists(inner, min_size=1, max_size=2).map(Types.TUPLE),
        st.tuples(st.sampled_from([Types.STRING(), Types.INT()]), inner).map(lambda pair: Types.MAP(*pair)),
    )


def row_types(depth: int = 1, singles: st.SearchStrategy[TypeInformation] = SINGLE) -> st.SearchStrategy[RowTypeInfo]:
    fields = st.lists(
        st.tuples(NAMES, field_types(depth, singles)), min_size=1, max_size=4, unique_by=lambda pair: pair[0]
    )
    return fields.map(lambda pairs: Types.ROW_NAMED([name for name, _ in pairs], [field for _, field in pairs]))


def values_of(type_info: TypeInformation, nulls: bool = True) -> st.SearchStrategy[Any]:
    """Values of the type, None among them."""
    if isinstance(type_info, RowTypeInfo):
        names = type_info.get_field_names()
        cells = st.tuples(*map(values_of, type_info.get_field_types()))
        present = cells.map(lambda values: Row(**dict(zip(names, values, strict=True))))
    elif type_info in VALUES:
        present = VALUES[type_info]
    elif hasattr(type_info, "element_type"):
        present = st.lists(values_of(type_info.element_type), max_size=3)
    elif hasattr(type_info, "key_type"):
        keys = values_of(type_info.key_type, nulls=False)
        present = st.dictionaries(keys, values_of(type_info.value_type), max_size=3)
    else:
        present = st.tuples(*map(values_of, type_info.get_field_types()))  # type: ignore[attr-defined]
    return st.one_of(present, present, present, st.none()) if nulls else present


ODD_JSON = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from([0, -0.0, 1.0, 2**31, 2**63, -(2**63), 10**30, "", "1", "true", "NaN", "2024-02-30", "24:00:00"]),
    st.sampled_from(
        ["2024-02-29", "2024-02-29 12:00:00", "2024-02-29T12:00:00.5Z", "2024-02-29T12:00:00+02:00", "A=="]
    ),
    st.sampled_from(["0000-01-01", "0001-01-01T00:00:00", "23:59:60", "2024-1-1", "20240101", "1.123456789", "QQ=="]),
    TEXT,
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(TEXT, st.integers(0, 3), max_size=2),
)


def documents_of(type_info: TypeInformation) -> st.SearchStrategy[Any]:
    """JSON values that are nearly of the type."""
    if isinstance(type_info, RowTypeInfo):
        fields = zip(type_info.get_field_names(), type_info.get_field_types(), strict=True)
        known = st.fixed_dictionaries({}, optional={name: documents_of(field) for name, field in fields})
        right = st.tuples(known, st.dictionaries(NAMES, ODD_JSON, max_size=1)).map(lambda two: {**two[1], **two[0]})
    elif type_info in VALUES:
        right = VALUES[type_info].map(_json_value)
    elif hasattr(type_info, "element_type"):
        right = st.lists(documents_of(type_info.element_type), max_size=3)
    elif hasattr(type_info, "key_type"):
        right = st.dictionaries(TEXT, documents_of(type_info.value_type), max_size=2)
    else:
        right = st.tuples(*map(documents_of, type_info.get_field_types())).map(list)  # type: ignore[attr-defined]
    return st.integers(0, 30).flatmap(lambda dice: ODD_JSON if dice == 0 else right)


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Instant):
        return dt.datetime.fromtimestamp(max(value.seconds, -62_000_000_000), dt.UTC).isoformat()
    return value


def json_message(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")


def place(index: int) -> str:
    return f"topic t, partition 0, offset {index}"


def check_decoder(schema: DeserializationSchema, messages: Sequence[bytes | None]) -> None:
    """The columnar decoder of a schema agrees with `deserialize`, message by message."""
    decoder = decoder_of(schema)
    assert not isinstance(decoder, PerMessageDecoder), "this schema is read in columns"
    given = Messages(pa.array(messages, pa.binary()), place)
    fast, slow = decoder.decode(given), PerMessageDecoder(schema).decode(given)
    assert [bad.index for bad in fast.bad] == [bad.index for bad in slow.bad]
    everything = list(range(len(messages)))
    fast_origins = everything if fast.origins is None else fast.origins.tolist()
    slow_origins = everything if slow.origins is None else slow.origins.tolist()
    assert fast_origins == slow_origins
    assert repr(fast.batch.values()) == repr(slow.batch.values())
    assert decoder.type_info == schema.produced_type()


def check_encoder(schema: SerializationSchema, rows: list[Any], type_info: TypeInformation) -> list[bytes]:
    """The columnar encoder of a schema agrees with `serialize`, row by row; returns the messages."""
    encoder = encoder_of(schema, type_info)
    assert not isinstance(encoder, PerMessageEncoder), "this schema is written in columns"
    batch = Batch.of_values(rows, type_info)
    messages: list[bytes] = encoder.encode(batch).to_pylist()
    assert messages == [schema.serialize(value) for value in batch.values()]
    return messages
