"""Addresses of databases: read as JDBC and the databases' own clients write them, shown without secrets."""

from __future__ import annotations

import pytest

from millstream.connectors.databases.addresses import parse_address
from millstream.connectors.databases.dialect import TableName
from millstream.errors import ProgramError


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:postgresql://db:5433/sales", "postgresql://db:5433/sales"),
        ("jdbc:postgresql:sales", "postgresql://localhost:5432/sales"),
        ("jdbc:postgresql:///sales", "postgresql://localhost:5432/sales"),
        ("postgres://ann@db/sales", "postgresql://ann@db:5432/sales"),
        ("postgresql://a,b:5433/sales", "postgresql://a:5432,b:5433/sales"),
        ("postgresql://[::1]:5433/sales", "postgresql://[::1]:5433/sales"),
        ("jdbc:mariadb://db/sales?user=ann", "mysql://ann@db:3306/sales"),
        ("jdbc:mysql://db/sales", "mysql://db:3306/sales"),
    ],
)
def test_an_address_is_read_as_its_kind_writes_it(url: str, shown: str) -> None:
    assert parse_address(url).shown == shown


def test_jdbcs_options_are_translated_left_out_or_refused() -> None:
    address = parse_address(
        "jdbc:postgresql://db/s?currentSchema=x&ssl=true&reWriteBatchedInserts=true&connectTimeout=5"
    )
    assert dict(address.options) == {"search_path": "x", "sslmode": "verify-full", "connect_timeout": "5"}
    with pytest.raises(ProgramError, match="the JDBC option 'loginTimout', which is not supported"):
        parse_address("jdbc:postgresql://db/s?loginTimout=5")


@pytest.mark.parametrize(
    "url",
    [
        "oracle://ann:hush@db/s",
        "jdbc:postgresql://ann:hush@db:port/s",
        "jdbc:postgresql://db/s?user=ann&password=hush&what=1",
        "mysqlx//ann:hush@db?password=hush",
    ],
)
def test_a_refused_address_does_not_show_its_password(url: str) -> None:
    with pytest.raises(ProgramError) as refusal:
        parse_address(url)
    assert "hush" not in str(refusal.value)


def test_a_separate_login_overrides_the_one_in_the_address() -> None:
    address = parse_address("postgresql://ann:a%40b@db/s")
    assert (address.user, address.password) == ("ann", "a@b")
    assert address.with_login("bob", None).password == "a@b"
    assert address.with_login(None, "c").without_secrets("it is c") == "it is ******"


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("mysql://h/d", {"sslmode": "prefer"}),
        ("mysql://h/d?sslmode=verify-full", {"sslmode": "verify-full"}),
        ("mysql://h/d?ssl-mode=VERIFY_IDENTITY", {"sslmode": "verify-full"}),
        ("mysql://h/d?ssl_ca=/ca", {"sslmode": "verify-full", "ssl_ca": "/ca"}),
        ("mysql://h/d?ssl_cert=/c&ssl_key=/k", {"sslmode": "require", "ssl_cert": "/c", "ssl_key": "/k"}),
        ("jdbc:mysql://h/d?useSSL=true", {"sslmode": "require"}),
        ("jdbc:mysql://h/d?useSSL=true&requireSSL=true&verifyServerCertificate=true", {"sslmode": "verify-ca"}),
        ("jdbc:mysql://h/d?useSSL=false", {"sslmode": "disable"}),
        ("jdbc:mysql://h/d?sslMode=REQUIRED&sslCa=/ca", {"sslmode": "verify-ca", "ssl_ca": "/ca"}),
        ("jdbc:mariadb://h/d?useSsl=true", {"sslmode": "verify-full"}),
        ("jdbc:mariadb://h/d?useSsl=true&trustServerCertificate=true", {"sslmode": "require"}),
        ("jdbc:mariadb://h/d?sslMode=trust", {"sslmode": "require"}),
        ("jdbc:postgresql://h/d?ssl=true", {"sslmode": "verify-full"}),
        ("jdbc:postgresql://h/d?ssl=true&sslmode=require", {"sslmode": "require"}),
        ("jdbc:postgresql://h/d?ssl=false", {}),
    ],
)
def test_the_tls_options_of_an_address_become_one_mode(url: str, options: dict[str, str]) -> None:
    assert dict(parse_address(url).options) == options


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://h/d?sslmode=verify", "expected one of disable, allow, prefer, require, verify-ca, verify-full"),
        ("jdbc:mysql://h/d?sslMode=VERIFY-IDENTITY", "VERIFY_CA, VERIFY_IDENTITY"),
        ("postgresql://h/d?sslmode=VERIFY_FULL", "sslmode is 'VERIFY_FULL', expected one of disable"),
        ("jdbc:postgresql://h/d?ssl=true&sslmode=full", "sslmode is 'full'"),
        ("jdbc:mysql://h/d?useSSL=maybe", "useSSL is 'maybe', expected true or false"),
        ("mysql://h/d?sslca_file=/x", "the option 'sslca_file', which is not supported"),
    ],
)
def test_a_mode_of_tls_that_is_none_is_refused_with_those_that_are(url: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        parse_address(url)


@pytest.mark.parametrize("text", ["", ".", "a.", "a.b.c", 'a"b', 7])
def test_a_table_name_that_is_none_is_refused(text: object) -> None:
    with pytest.raises(ProgramError, match="is malformed"):
        TableName.parse(text)  # type: ignore[arg-type]


def test_a_table_name_may_hold_anything_in_quotes() -> None:
    assert TableName.parse('"a ""b"".c".d').parts == ('a "b".c', "d")


def test_the_words_of_a_server_are_shown_without_what_a_terminal_would_obey() -> None:
    address = parse_address("postgresql://ann:pass@localhost/sales")
    assert address.without_secrets("row (1, \x1b[2J\npass\u202e) of ann") == r"row (1, \x1b[2J\n******\u202e) of ann"
