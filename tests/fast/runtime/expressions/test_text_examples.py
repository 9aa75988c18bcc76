"""Text functions: the examples of Flink's documentation, and the results of Flink 2.3 for edge cases."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from oracles.text_calls import PROBLEM, STRING, answer, bound, computed

from millstream.expressions.row_expressions import Call, Literal

ANSWERS: tuple[tuple[str, tuple[Any, ...], Any], ...] = (
    ("CHAR_LENGTH", ("a😀é",), 3),
    ("UPPER", ("straße",), "STRASSE"),
    ("LOWER", ("ΌΣΟΣ.",), "όσος."),
    ("INITCAP", ("o'neil über 1st",), "O'Neil üBer 1st"),
    ("REVERSE", ("a😀b",), "b😀a"),
    ("SUBSTRING", ("abcde", 2, 3), "bcd"),
    ("SUBSTRING", ("abcde", 0), "abcde"),
    ("SUBSTRING", ("abcde", -2), "de"),
    ("SUBSTRING", ("abcde", -9), ""),
    ("SUBSTRING", ("abcde", 1, -1), None),
    ("LEFT", ("abc", -1), ""),
    ("RIGHT", ("abc", 2), "bc"),
    ("POSITION", ("", "abc"), 1),
    ("LOCATE", ("😀", "a😀b😀", 3), 4),
    ("INSTR", ("Corporate Floor", "or", 3, 2), 14),
    ("INSTR", ("abcabc", "b", -1), 5),
    ("TRIM", ("  x ",), "x"),
    ("LTRIM", ("aabca", "ab"), "ca"),
    ("REPEAT", ("ab", -1), ""),
    ("OVERLAY", ("xxxxxtest", "xxxx", 6), "xxxxxxxxx"),
    ("OVERLAY", ("xxxxxtest", "xxxx", 6, 2), "xxxxxxxxxst"),
    ("OVERLAY", ("abcde", "XYZ", 3, 0), "abXYZ"),
    ("OVERLAY", ("abcde", "XYZ", 6), "abcde"),
    ("REPLACE", ("ababab", "abab", "z"), "zab"),
    ("REPLACE", ("ab", "", "-"), "-a-b-"),
    ("TRANSLATE", ("abc", "aab", "xyz"), "xzc"),
    ("TRANSLATE", ("abc", "ab", ""), "c"),
    ("LPAD", ("hi", 4, "??"), "??hi"),
    ("LPAD", ("hi", 1, "??"), "h"),
    ("LPAD", ("hi", 4, ""), None),
    ("RPAD", ("a😀", 4, "x"), "a😀x"),  # Java counts the emoji twice
    ("CONCAT_WS", ("~", "AA", None, "BB", "", "CC"), "AA~BB~~CC"),
    ("CONCAT", ("a", None), None),
    ("ASCII", ("ä",), -61),
    ("CHR", (353,), "a"),
    ("CHR", (-1,), ""),
    ("SPLIT", ("", ","), []),
    ("SPLIT", ("a,,b", ","), ["a", "", "b"]),
    ("SPLIT_INDEX", ("a,b", ",", 1), "b"),
    ("SPLIT_INDEX", ("a,b", ",", 5), None),
    ("SPLIT_INDEX", ("a.b", 46, 1), "b"),
    ("SPLIT_INDEX", ("", ",", 0), None),
    ("STR_TO_MAP", ("a=1,,b=2,",), {"a": "1", "": None, "b": "2"}),
    ("STR_TO_MAP", ("k1$v1|k2$v2", "\\|", "\\$"), {"k1": "v1", "k2": "v2"}),
    ("ELT", (2, "a", "b"), "b"),
    ("IS_DECIMAL", ("1.5e3f",), True),
    ("IS_DECIMAL", ("0x10",), False),
    ("IS_ALPHA", (None,), False),
    ("FROM_BASE64", ("aGVsbG8gd29ybGQ",), "hello world"),
    ("FROM_BASE64", ("a b",), PROBLEM),
    ("DECODE", (b"\xff", "UTF-8"), "\ufffd"),
    ("ENCODE", ("aä😀", "US-ASCII"), b"a??"),
    ("ENCODE", ("a", "nope"), PROBLEM),
    ("URL_ENCODE", ("a b~*é",), "a+b%7E*%C3%A9"),
    ("URL_DECODE", ("%2",), None),
    ("PARSE_URL", ("http://u@a.b:1/p?k=v&q=#r", "AUTHORITY"), "u@a.b:1"),
    ("PARSE_URL", ("http://u@a.b:1/p?k=v&q=#r", "QUERY", "q"), ""),
    ("PARSE_URL", ("no url", "HOST"), None),
    ("PRINTF", ("%05d|%-4s|%.1f", 42, "a", 2.25), "00042|a   |2.3"),
    ("PRINTF", ("%d", "a"), None),
    ("INET_ATON", ("127.1",), 2130706433),
    ("INET_ATON", ("127.256",), None),
    ("INET_ATON", ("1.2.3",), 16908291),
    ("INET_ATON", ("1.2.256",), None),
    ("INET_ATON", ("16909060",), None),
    ("INET_NTOA", (4294967296,), None),
    ("LIKE", ("a\nb", "a%b"), True),
    ("LIKE", ("a\nb", "a_b"), False),
    ("LIKE", ("a%c", "a!%c", "!"), True),
    ("LIKE", ("abc", "a!bc", "!"), PROBLEM),
    ("SIMILAR TO", ("ab1", "(a|b){2}[[:DIGIT:]]"), True),
    ("SIMILAR TO", ("a$", "a$"), True),
    ("REGEXP", ("abc", ""), False),
    ("REGEXP", ("abc", "("), False),
    ("REGEXP_COUNT", ("abc", "("), None),
    ("REGEXP_EXTRACT", ("foothebar", "foo(.*?)(bar)", 2), "bar"),
    ("REGEXP_EXTRACT", ("abd", "ab(c)?", 1), None),
    ("REGEXP_EXTRACT_ALL", ("100-200, 300-400", r"(\d+)-(\d+)"), ["100", "300"]),
    ("REGEXP_REPLACE", ("foobar", "oo|ar", "$0"), "f$0b$0"),
    ("REGEXP_INSTR", ("a😀b", "b"), 4),
    ("REGEXP", ("abc", r"\X"), PROBLEM),  # Java supports it, we do not: no result is better than a wrong one
    ("MD5", ("",), "d41d8cd98f00b204e9800998ecf8427e"),
    ("SHA2", ("abc", 224), "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7"),
    ("JSON_VALUE", ('{"a": 1.50}', "$.a"), "1.50"),
    ("JSON_VALUE", ('{"a": [1]}', "$.a"), None),
    ("JSON_QUERY", ('{"b": 1, "a": [2]}', "$"), '{"a":[2],"b":1}'),
    ("JSON_QUERY", ('{"a":[{"c":"c1"},{"c":"c2"}]}', "lax $.a[*].c"), '["c1","c2"]'),
    ("JSON_EXISTS", ('{"a": null}', "$.a"), False),
    ("JSON_QUOTE", ("é/\n",), '"\\u00e9\\/\\n"'),
    ("JSON_UNQUOTE", ('"\\u0041\\x"',), '"\\u0041\\x"'),
    ("JSON_LENGTH", ('{"a": [1, 2]}', "$.a"), 2),
    ("JSON_TYPE", ("[1]", "$[0]"), "NUMBER"),
    ("IS JSON VALUE", ("[1] 2",), True),
    ("IS NOT JSON OBJECT", ("[]",), True),
    ("CARDINALITY", ([1, None],), 2),
    ("ITEM", ([1, 2], 3), None),
    ("ITEM", ({"a": 1}, "b"), None),
    ("ELEMENT", ([1, 2],), PROBLEM),
    ("ARRAY_CONTAINS", ([1, None], None), True),
    ("ARRAY_SLICE", ([1, 2, 3], -2, -1), [2, 3]),
    ("ARRAY_SLICE", ([1, 2, 3], 0, 0), [1]),
    ("ARRAY_SORT", ([2, None, 1], False), [2, 1, None]),
    ("ARRAY_EXCEPT", ([1, 1, None, 2], [1]), [None, 2]),
    ("ARRAY_JOIN", (["a", None], ",", "*"), "a,*"),
    ("MAP_UNION", ({"a": 1}, {"a": 2, "b": 3}), {"a": 2, "b": 3}),
    ("MAP_FROM_ARRAYS", (["a"], [1, 2]), PROBLEM),
)


@pytest.mark.parametrize(("name", "values", "wanted"), ANSWERS, ids=[f"{a[0]}{a[1]}" for a in ANSWERS])
def test_a_function_returns_the_result_of_flink(name: str, values: tuple[Any, ...], wanted: Any) -> None:
    assert answer(name, *values) == wanted


OPTIONS: tuple[tuple[str, tuple[Any, ...], dict[str, Any], Any], ...] = (
    ("TRIM", ("xax", "x"), {"side": "LEADING"}, "ax"),
    ("JSON_VALUE", ('{"b":1}', "lax $.a"), {"on_empty": ("DEFAULT", "e")}, "e"),
    ("JSON_VALUE", ('{"b":1}', "strict $.a"), {"on_empty": ("DEFAULT", "e"), "on_error": ("DEFAULT", 7)}, "7"),
    ("JSON_VALUE", ('{"b":1}', "lax $.a"), {"on_empty": ("ERROR", None)}, PROBLEM),
    ("JSON_VALUE", ("{", "lax $.a"), {"on_empty": ("DEFAULT", "e"), "on_error": ("DEFAULT", "r")}, "e"),
    ("JSON_VALUE", ('{"a": null}', "$.a"), {"on_empty": ("DEFAULT", "e"), "on_error": ("DEFAULT", "r")}, "r"),
    ("JSON_VALUE", ("{}", "lax $.a"), {"on_empty": "DEFAULT", "default_on_empty": 7}, "7"),
    ("JSON_QUERY", ("{}", "lax $.a"), {"wrapper": "CONDITIONAL_ARRAY", "on_empty": "EMPTY_ARRAY"}, "[]"),
    ("IS JSON", ("[]",), {"kind": "ARRAY"}, True),
    ("JSON_QUERY", ("1", "lax $"), {"wrapper": "CONDITIONAL"}, "[1]"),
    ("JSON_QUERY", ("[1]", "lax $"), {"wrapper": "UNCONDITIONAL"}, "[[1]]"),
    ("JSON_QUERY", ("{}", "strict $.a"), {"on_error": "EMPTY ARRAY"}, "[]"),
    ("JSON_EXISTS", ("{", "$"), {"on_error": "UNKNOWN"}, None),
    ("JSON_OBJECT", ("k", None), {"on_null": "ABSENT"}, "{}"),
    ("JSON_ARRAY", (1, None, "x"), {}, '[1,"x"]'),
)


@pytest.mark.parametrize(("name", "values", "options", "wanted"), OPTIONS)
def test_keywords_in_a_call_change_its_result(
    name: str, values: tuple[Any, ...], options: dict[str, Any], wanted: Any
) -> None:
    assert answer(name, *values, **options) == wanted


@pytest.mark.parametrize("maker", ["JSON_ARRAY", "JSON_OBJECT", "JSON"])
def test_json_from_a_json_function_is_embedded_unquoted_even_when_precomputed(maker: str) -> None:
    outer = bound("JSON_OBJECT", [STRING, STRING], {}, ["k"])
    assert computed(outer, [("k", "[1]")]) == ['{"k":"[1]"}']
    inner = bound(maker, [STRING] if maker == "JSON" else [], {})
    for argument in (inner, pickle.loads(pickle.dumps(Literal(inner.type, "[1]")))):
        nested = Call(outer.type, outer.function, (outer.arguments[0], argument))
        assert computed(nested, [("k", "[1]")]) == ['{"k":[1]}']
    assert inner.type.nullable() == STRING  # the marker does not change its type
