"""Rows behave like PyFlink's, print like Flink's, and are cheap to create in bulk."""

from __future__ import annotations

import copy
import pickle

import pytest

from millstream.common import Row, RowKind
from millstream.common.types import QuietNames, rows_from_columns
from millstream.errors import NotAvailableError


def test_values_are_accessed_by_position_name_and_attribute() -> None:
    row = Row(name="Alice", age=11)
    assert (row[0], row["name"], row.name) == ("Alice", "Alice", "Alice")
    assert row[0:2] == row[:] == ["Alice", 11]
    assert list(row) == ["Alice", 11]
    assert len(row) == 2


def test_in_checks_field_names_or_the_values_of_an_unnamed_row() -> None:
    row = Row(name="Alice", age=11)
    assert "name" in row and "Alice" not in row and "wrong" not in row
    person = Row("name", "age")
    assert "name" in person and "wrong" not in person
    assert "name" in person("Alice", 11)


def test_a_missing_field_raises_and_is_never_created() -> None:
    row = Row(name="Alice")
    with pytest.raises(KeyError, match="age"):
        row["age"]
    with pytest.raises(KeyError, match="age"):
        row["age"] = 1
    with pytest.raises(ValueError, match=r"'age' is not a field .* Its fields are \['name'\]"):  # as in PyFlink
        row["age"]
    with pytest.raises(ValueError, match="no field names"):
        Row(1)["age"]
    with pytest.raises(AttributeError):
        row.age  # noqa: B018
    with pytest.raises(AttributeError):
        row.age = 1
    with pytest.raises(AttributeError):
        Row(1, 2).name  # noqa: B018


def test_assignment_changes_the_row_and_no_other_from_the_same_columns() -> None:
    first, second = rows_from_columns([["a", "b"], [1, 2]], ["word", "count"])
    first["count"] = 10
    first[0] = "z"
    assert first == Row(word="z", count=10)
    assert second == Row(word="b", count=2)


def test_a_row_of_names_is_a_row_factory() -> None:
    person = Row("name", "age")
    assert repr(person) == "<Row('name', 'age')>"
    assert person("Alice", 11) == Row(name="Alice", age=11)
    assert person("Alice").name == "Alice"
    with pytest.raises(AttributeError):
        person("Alice").age  # noqa: B018
    with pytest.raises(ValueError, match="2 fields and got 3"):
        person(1, 2, 3)


def test_positional_and_named_values_cannot_be_mixed() -> None:
    with pytest.raises(ValueError, match="positional"):
        Row(1, name="Alice")


def test_equality_compares_values_names_and_kind() -> None:
    assert Row(1, 2) == Row(1, 2)
    assert Row(1, 2) != Row(2, 1)
    assert Row(a=1) != Row(1)
    assert Row(a=1) != Row(b=1)
    assert Row(a=1, b=2) == Row(b=2, a=1)  # by name, as in PyFlink
    assert Row(a=1, b=2) != Row(b=1, a=2)
    assert Row(a=1, b=2) != Row(b=2, a=1, c=3)
    assert Row(a=1, b=2) != Row.of_kind(RowKind.DELETE, b=2, a=1)
    assert Row(1) != Row.of_kind(RowKind.DELETE, 1)
    assert Row(1) != (1,)
    changed = Row(1, 0)
    changed[1] = 2
    assert changed == Row(1, 2)
    assert hash(changed) == hash(Row(1, 2))


def test_as_dict_converts_nested_rows_on_request() -> None:
    row = Row(key=1, value=Row(name="a"), many=[Row(n=1)], by_key={"x": Row(n=2)})
    assert row.as_dict()["value"] == Row(name="a")
    assert row.as_dict(recursive=True) == {
        "key": 1,
        "value": {"name": "a"},
        "many": [{"n": 1}],
        "by_key": {"x": {"n": 2}},
    }
    with pytest.raises(TypeError, match="no field names"):
        Row(1).as_dict()


def test_fields_are_returned_in_the_requested_order() -> None:
    assert Row(a=1, b=2).get_fields_by_names(["b", "a"]) == [2, 1]
    assert Row(1, 2).get_fields_by_names(["b", "a"]) == [1, 2]
    with pytest.raises(ValueError, match=r"\['c'\]"):
        Row(a=1, b=2).get_fields_by_names(["c", "a"])


def test_names_and_kind_survive_copies_and_pickles() -> None:
    row = Row.of_kind(RowKind.UPDATE_AFTER, "a", [1])
    row.set_field_names(["word", "counts"])
    for twin in (pickle.loads(pickle.dumps(row)), copy.copy(row), copy.deepcopy(row)):
        assert twin == row
        assert twin.get_row_kind() is RowKind.UPDATE_AFTER
    deep = copy.deepcopy(row)
    deep.counts.append(2)
    assert row.counts == [1]


def test_rows_equal_up_to_field_order_are_two_dict_keys() -> None:
    # A map in state stores them separately and returns both; a dict that merged them would lose one.
    assert len({Row(a=1, b=1): 0, Row(b=1, a=1): 1}) == 2


def test_a_kind_has_flinks_short_text() -> None:
    assert [str(kind) for kind in RowKind] == [f"{kind}" for kind in RowKind] == ["+I", "-U", "+U", "-D"]


def test_rows_without_columns_are_counted() -> None:
    assert [len(row) for row in rows_from_columns([], [], count=2)] == [0, 0]
    with pytest.raises(ValueError, match="shorter"):
        rows_from_columns([[1, 2], [1]], ["a", "b"])


def test_a_java_row_kind_is_rejected() -> None:
    with pytest.raises(NotAvailableError):
        RowKind.INSERT.to_j_row_kind()


def test_a_row_with_hidden_names_is_printed_and_compared_as_one_without_names() -> None:
    quiet = Row(1, "a")
    quiet.set_field_names(QuietNames(["id", "name"]))
    assert repr(quiet) == str(quiet) == "<Row(1, 'a')>"
    assert (quiet.id, quiet["name"], quiet.as_dict()) == (1, "a", {"id": 1, "name": "a"})
    assert quiet == Row(1, "a") and Row(1, "a") == quiet and {quiet} == {Row(1, "a")}
    assert quiet == Row(id=1, name="a") and Row(name="a", id=1) == quiet, (
        "rows with the names used are compared by them"
    )
    assert quiet != Row(other=1, name="a") and quiet != Row(1, "b") and quiet != Row.of_kind(RowKind.DELETE, 1, "a")
    assert 1 in quiet and "id" not in quiet
    assert repr(pickle.loads(pickle.dumps(quiet))) == repr(copy.copy(quiet)) == repr(quiet)
    quiet.set_field_names(["id", "name"])
    assert repr(quiet) == "Row(id=1, name='a')"
