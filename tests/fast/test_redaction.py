"""Secrets are hidden by one list of names, in options, addresses and statements, however they are written."""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.common import Configuration
from millstream.connectors.databases.addresses import parse_address
from millstream.connectors.files.lines import TextLines
from millstream.connectors.files.source import FileSource
from millstream.connectors.http.requests import Destination
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kinesis.clients import AwsAddress
from millstream.connectors.messages.registry import SchemaRegistry
from millstream.connectors.rabbitmq.connection import RabbitAddress
from millstream.connectors.redis.sink import RedisSink
from millstream.connectors.service_urls import checked_url
from millstream.errors import ConfigurationError, ProgramError, SqlError
from millstream.query.client.discovery import Trust
from millstream.redaction import is_sensitive, redact, redact_statement, redacted_address, secrets_of_statement
from millstream.storage import open_store
from millstream.table import EnvironmentSettings, TableDescriptor, TableEnvironment

PASSWORDS = st.text(min_size=4, alphabet=st.sampled_from("abcXYZ019/?#@:&=%;,.[]'\" é"))
SECRET = "Qx7/w?e#r@t"


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "PASSWORD",
        "sslpassword",
        "properties.sasl.jaas.config",
        "properties.ssl.keystore.key",
        "properties.ssl.key.pem",
        "avro-confluent.basic-auth.user-info",
        "s3.secret-key",
        "s3.access-key",
        "fs.azure.account.key.x.blob.core.windows.net",
        "spark.authenticate.secret",
        "millstream.query.token",
        "http-headers",
        "apikey",
        "aws.credentials.basic.secretkey",
        "passphrase",
        "key.pass",
        "sas",
        "encryption-key",
    ],
)
def test_an_option_that_holds_a_secret_is_known_by_its_name(name: str) -> None:
    assert is_sensitive(name)


@pytest.mark.parametrize(
    "name",
    [
        "key.format",
        "key.fields",
        "scan.partition.column",
        "properties.bootstrap.servers",
        "properties.sasl.oauthbearer.token.endpoint.url",
        "properties.ssl.key.location",
        "username",
        "url",
        "sink.partitioner",
        "pass-through",
        "signature.algorithm",
    ],
)
def test_other_options_are_shown(name: str) -> None:
    assert not is_sensitive(name)


@given(PASSWORDS)
@example("p/w@x")
@example("0@0/")
@example("0@0?")
@example("12/34")
@example("1?a=b")
@example("1#@/")
@example("a b'c")
@example("a&b")
def test_no_error_about_an_address_shows_its_password(password: str) -> None:
    secret = f"Qx7{password}Zk9"
    for make in (
        lambda: parse_address(f"postgresql://ann:{secret}@db:543x/sales"),
        lambda: parse_address(f"postgresql://ann:{secret}@db/sales"),
        lambda: parse_address(f"jdbc:mysql://db/sales?user=ann&what=1&password={secret}"),
        lambda: parse_address(f"jdbc:mysql://db/sales?user=ann&password={secret}"),
        lambda: parse_address(f"postgresql://db/sales?user=ann&password={secret}"),
        lambda: parse_address(f"postgresql:ann:{secret}@db/sales"),
        lambda: parse_address(f"ann:{secret}@db/sales"),
        lambda: FileSource([f"ftp://ann:{secret}@files/x"], TextLines()),
        lambda: AwsAddress(endpoint=f"http://ann:{secret}@kinesis"),
        lambda: AwsAddress(endpoint=f"ann:{secret}@kinesis"),
        lambda: ClientSettings.of({"sasl.oauthbearer.token.endpoint.url": f"https://ann:{secret}@idp"}),
        lambda: Trust(None, [f"http://ann:{secret}@server:1"]),
        lambda: RedisSink(f"redis://ann:{secret}@db/0", None),
        lambda: RedisSink(f"redi://:{secret}@db/0", None),
        lambda: RabbitAddress(uri=f"amqp://ann:{secret}@mq:56x/").check(),
        lambda: RabbitAddress(uri=f"amqp://ann:{secret}@mq/").check(),
        lambda: SchemaRegistry(f"http://ann:{secret}@registry"),
        lambda: SchemaRegistry(f"https//ann:{secret}@registry"),
        lambda: Destination(f"https://ann:{secret}@hook/x"),
        lambda: checked_url(f"redis://:{secret}@[cache", "it", ("redis",)).scheme,
    ):
        try:
            made = make()  # type: ignore[no-untyped-call]
        except (ProgramError, ConfigurationError) as error:
            shown = str(error)
        else:
            shown = repr(made)
        assert "Qx7" not in shown and "Zk9" not in shown, shown


@given(PASSWORDS.filter(lambda text: "@" not in text))
def test_a_password_in_a_well_formed_address_is_hidden(password: str) -> None:
    shown = redacted_address(f"redis://ann:Qx7{password}Zk9@cache:6379/0")
    assert shown == "redis://ann:******@cache:6379/0"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        # One password is the beginning of another, part of a name, or the name of the scheme.
        ("mysql://ann:pass@db?password=password2", "mysql://ann:******@db?password=******"),
        ("jdbc:mysql://db/s?user=ann&password=a", "jdbc:mysql://db/s?user=ann&password=******"),
        ("jdbc:mysql://db/s?password=a&hush&user=ann", "jdbc:mysql://db/s?password=******&user=ann"),
        ("postgresql://postgres:postgres@db/postgres", "postgresql://postgres:******@db/postgres"),
        ("redis://redis:redis@redis", "redis://redis:******@redis"),
        # What was not written as an address of ours.
        ("mysql:ann:hush@db", "mysql:******@db"),
        ("mysql:/ann:hush@db", "mysql:******@db"),
        ("//ann:hush@db", "//ann:******@db"),
        ("ann:hush@db:5432", "ann:******@db:5432"),
        ("jdbc:oracle:thin:ann/hush@db:1521", "jdbc:oracle:******@db:1521"),
        ("jdbc:mysql://(host=db,user=ann,password=hush)/s", "jdbc:mysql://(host=db,user=ann,password=******"),
        ("host=db password=hush user=ann", "host=db password=******"),
        ("Server=db;Password=hush;User=ann", "Server=db;Password=******;User=ann"),
        ("postgresql://db/s?pass%77ord=hush", "postgresql://db/s?pass%77ord=******"),
        # Signed addresses.
        ("abfss://c@a.dfs/x?sv=1&sig=hush&se=2", "abfss://c@a.dfs/x?sv=1&sig=******&se=2"),
        ("https://b.s3/x?X-Amz-Signature=hush", "https://b.s3/x?X-Amz-Signature=******"),
        ("http://hook/x?key=hush", "http://hook/x?key=******"),
        # No secrets.
        ("/data/a@b/x", "/data/a@b/x"),
        ("file:/data/a@b", "file:/data/a@b"),
        ("s3://bucket/day=1/key", "s3://bucket/day=1/key"),
        ('{"type": "record", "doc": "of: ann@db"}', '{"type": "record", "doc": "of: ann@db"}'),
    ],
)
def test_every_place_of_a_secret_in_an_address_is_hidden_and_no_other(address: str, shown: str) -> None:
    assert redacted_address(address) == shown


@pytest.mark.parametrize("secret", ["a\\b1", "it's", 'it\'s "x"', "two\nlines", "p w+x", "é\x00z"])
def test_a_secret_is_hidden_as_python_json_and_addresses_write_it(secret: str) -> None:
    for text in (repr(secret), json.dumps(secret), quote(secret), quote_plus(secret), quote(secret, safe="")):
        assert redact(f"found {text}.", [secret]).replace("'", "").replace('"', "") == "found ******."


@given(PASSWORDS, st.sampled_from([" = ", "=", "\n =\n "]))
def test_a_statement_is_drawn_without_its_secrets_at_the_same_places(password: str, between: str) -> None:
    secret = f"Qx7{password}Zk9"
    quoted = secret.replace("'", "''")
    statement = f"CREATE TABLE t (a INT) WITH ('connector'{between}'jdbc', 'password'{between}'{quoted}', 'b' = 'c')"
    hidden = redact_statement(statement)
    assert len(hidden) == len(statement) and hidden.endswith("', 'b' = 'c')")
    assert "Qx7" not in hidden and "Zk9" not in hidden and "'connector'" in hidden
    assert secrets_of_statement(statement) == (secret,)
    assert redact(f"found '{secret}'", secrets_of_statement(statement)) == "found '******'"


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' '{SECRET}')",
        f"CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' = '{SECRET}",
        f"CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' =\n '{SECRET}' x)",
        f"CREATE TABLE t (a INT) WITH ('url' = 'mysql://ann:{SECRET}@db/x' 1)",
        f"CREATE TABLE t (a INT) WITH ('url' = 'Qx7://Qx7:Qx7@db/x', password = '{SECRET}')",
        f"CREATE TABLE t (a INT) WITH (`password` = '{SECRET}')",
        f'CREATE TABLE t (a INT) WITH ("password" = "{SECRET}")',
        f"CREATE TABLE t (a INT) WITH ('password' = \"{SECRET}\")",
        f"CREATE TABLE t (a INT) WITH ('password': '{SECRET}')",
        f"CREATE TABLE t (a INT) WITH ('password' == '{SECRET}')",
        f"CREATE TABLE t (a INT) WITH (password = {SECRET})",
        f"CREATE TABLE t (a INT) WITH ('password' = /* it's */ '{SECRET}' 1)",
        f"CREATE TABLE t (a INT) WITH ('password' = -- it's\n '{SECRET}' 1)",
        f"SET sasl.password = {SECRET}",
        f"-- it's\nSET sasl.password = {SECRET}",
        f"SET sasl.password {SECRET}",
        f"SET sasl.password '{SECRET}'",
        f"SET 'no.such.password' = '{SECRET}'",
        f"ALTER TABLE nosuch SET ('password' = '{SECRET}')",
        f"SELECT * FROM nosuch /*+ OPTIONS('password' = '{SECRET}') */",
        f"CREATE CATALOG c WITH ('type' = 'nosuch', 'password' = '{SECRET}')",
        f"CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'p' = 'x', 'password' = '{SECRET}'); SELECT * FROM t",
    ],
)
def test_no_error_about_a_statement_shows_its_secrets(statement: str) -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    with pytest.raises((SqlError, ProgramError)) as raised:
        for each in statement.split("; "):
            t_env.execute_sql(each)
    shown = str(raised.value).replace("Qx7://Qx7:", "")
    assert SECRET not in shown and "Qx7" not in shown


def test_names_that_sound_like_secrets_are_drawn_in_queries() -> None:
    query = "SELECT token, password FROM t WHERE token = u.password AND access_key = nosuch_key"
    assert redact_statement(query) == query and not secrets_of_statement(query)


def test_a_table_is_shown_without_its_secrets() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    url = "jdbc:postgresql://ann:hush-1@db/s?user=ann&password=hush-2"
    t_env.execute_sql(f"CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'url' = '{url}', 'password' = 'hush-3')")
    t_env.execute_sql("CREATE CATALOG c WITH ('type' = 'generic_in_memory', 'password' = 'hush-4')")
    t_env.execute_sql("SET 'spark.hadoop.fs.s3a.secret.key' = 'hush-5'")
    descriptor = TableDescriptor.for_connector("jdbc").option("password", "hush-6").option("url", url).build()
    t_env.execute_sql("CREATE VIEW v AS SELECT a FROM t /*+ OPTIONS('password' = 'hush-8') */")
    texts = [
        str(descriptor),
        str(Configuration.from_dict({"a.token": "hush-7"})),
        repr(t_env.get_config().get_configuration()),
    ]
    for statement in ("SHOW CREATE TABLE t", "SHOW CREATE CATALOG c", "SHOW CREATE VIEW v", "SET"):
        texts += [str(row) for row in t_env.execute_sql(statement).collect()]
    assert "hush" not in "\n".join(texts)
    assert "'url' = 'jdbc:postgresql://ann:******@db/s?user=ann&password=******'" in "\n".join(texts)
    assert t_env.get_config().get("spark.hadoop.fs.s3a.secret.key", "") == "hush-5"


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:Qx7@bucket/job",
        "s3://key:Qx7/w+x@bucket/job",
        "s3://bucket/job?secret_key=Qx7",
        "az://container/job?sv=1&sig=Qx7",
        "http://ann:Qx7@host/job",
        "ftp://ann:Qx7/w@host/job",
        "file://ann:Qx7@host/job",
    ],
)
def test_a_store_is_not_opened_at_an_address_with_secrets(address: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_store(address)
    assert "Qx7" not in str(raised.value)


@pytest.mark.parametrize("address", ["s3://bucket/12:30@x", "abfs://container@account/job", "s3://bucket/day=1"])
def test_a_store_is_opened_at_other_addresses(address: str) -> None:
    assert open_store(address).url == address


def test_a_setting_with_a_wrong_value_is_refused_without_showing_a_secret() -> None:
    with pytest.raises(ConfigurationError, match=r"a\.password is set to '\*+', expected a whole number"):
        Configuration.from_dict({"a.password": "hush"}).get_integer("a.password", 1)
