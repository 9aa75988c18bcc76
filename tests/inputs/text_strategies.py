"""Difficult inputs for text functions, and matching arguments, for random tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

CHARACTERS = "abcABC 01,=./%_-\\$*\n\r\t\x00\u0085ßäéİıΣςǅﬁ" + "e\u0301" + "\u2028\u200d日😀👍𝒳\ufffd\uffff"
texts = st.none() | st.text(alphabet=CHARACTERS, max_size=8)
short_texts = st.none() | st.text(alphabet="ab,=é😀 ", max_size=2)
places = st.none() | st.integers(-7, 7) | st.sampled_from([-(2**31), 2**31 - 1])
counts = st.none() | st.integers(-3, 12)
numbers = st.none() | st.lists(st.none() | st.integers(-3, 3), max_size=5)
json_texts = st.none() | st.sampled_from(
    ['{"a": 1}', '{"a": [1, {"b": "ä"}]}', "[]", "1.50", "null", "{", '{"b": {"a": null}}', '"x"', "[1, 2] 3", ""]
)
paths = st.sampled_from(["$", "$.a", "lax $.a", "strict $.b.a", "$.a[0]", "lax $.a[*].b", "$..a", "nonsense[", "$[1:]"])
charsets = st.sampled_from(["UTF-8", "utf-8", "UTF-16", "UTF-16LE", "ISO-8859-1", "US-ASCII"])

FUNCTIONS: dict[str, tuple[st.SearchStrategy[Any], ...]] = {
    "||": (texts, texts),
    "CONCAT": (texts, texts, texts),
    "CONCAT_WS": (short_texts, texts, texts),
    "CHAR_LENGTH": (texts,),
    "UPPER": (texts,),
    "LOWER": (texts,),
    "INITCAP": (texts,),
    "REVERSE": (texts,),
    "TRIM": (texts, short_texts),
    "LTRIM": (texts, short_texts),
    "RTRIM": (texts,),
    "BTRIM": (texts, short_texts),
    "REPEAT": (texts, counts),
    "SUBSTRING": (texts, places, counts),
    "SUBSTR": (texts, places),
    "LEFT": (texts, places),
    "RIGHT": (texts, places),
    "POSITION": (short_texts, texts),
    "LOCATE": (short_texts, texts, places),
    "STARTSWITH": (texts, short_texts),
    "ENDSWITH": (texts, short_texts),
    "REPLACE": (texts, short_texts, short_texts),
    "TRANSLATE": (texts, short_texts, short_texts),
    "OVERLAY": (texts, short_texts, places, counts),
    "LPAD": (texts, counts, short_texts),
    "RPAD": (texts, counts, short_texts),
    "ASCII": (texts,),
    "CHR": (st.none() | st.integers(-5, 70_000),),
    "SPLIT": (texts, short_texts),
    "SPLIT_INDEX": (texts, short_texts, places),
    "ELT": (st.none() | st.integers(0, 4), texts, texts),
    "IS_ALPHA": (texts,),
    "IS_DIGIT": (st.none() | st.text(alphabet="0١9½a😀", max_size=3),),
    "IS_DECIMAL": (st.none() | st.text(alphabet="0١9.eE+-fx Na", max_size=4),),
    "URL_ENCODE": (texts,),
    "URL_DECODE": (st.none() | st.text(alphabet="%+aF0zé", max_size=7),),
    "TO_BASE64": (texts,),
    "ENCODE": (texts, charsets),
    "LIKE": (texts, st.none() | st.text(alphabet="ab%_é😀\n", max_size=4)),
    "MD5": (texts,),
    "SHA256": (texts,),
    "JSON_VALUE": (json_texts, paths),
    "JSON_QUERY": (json_texts, paths),
    "JSON_EXISTS": (json_texts, paths),
    "JSON_QUOTE": (texts,),
    "JSON_UNQUOTE": (texts,),
    "IS JSON SCALAR": (json_texts,),
    "CARDINALITY": (numbers,),
    "ITEM": (numbers, st.none() | st.integers(1, 6)),
    "ARRAY_CONTAINS": (numbers, st.none() | st.integers(-3, 3)),
    "ARRAY_POSITION": (numbers, st.none() | st.integers(-3, 3)),
    "ARRAY_SORT": (numbers, st.none() | st.booleans()),
    "ARRAY_SLICE": (numbers, places, places),
    "ARRAY_UNION": (numbers, numbers),
    "ARRAY_JOIN": (st.none() | st.lists(texts, max_size=3), short_texts, short_texts),
    "MAP_FROM_ARRAYS": (st.just(["a", "b"]), st.lists(st.none() | st.integers(0, 3), min_size=2, max_size=2)),
}
"""Functions whose every kernel is compared with its reference, and what they are given."""

PATTERNS = (
    "a|b", "[a-c]+", "(a)(b)?", "^a", "b$", ".", r"\d+", r"\w+\b", "(?i)B", r"[^\s]", "é+", "😀", "a{2,3}", r"\p{L}+",
    "(?s)a.b", r"(?m)^\S", r"a(?=b)", r"(.)\1", "a*", "", "(", r"\R", r"[a-c&&[^b]]", "(?<n>b)", "a++b",
    r"\Qa.b\E", r"b\Z",
)  # fmt: skip
