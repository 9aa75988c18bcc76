"""Properties of Kafka's Java client become librdkafka's, or are refused; secrets are shown nowhere."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.clients import confluent
from millstream.errors import ConfigurationError, PlatformError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def consumer(**properties: object) -> dict[str, object]:
    return ClientSettings.of({name.replace("_", "."): value for name, value in properties.items()}).for_role("consumer")


def test_a_jaas_line_becomes_user_and_password() -> None:
    translated = consumer(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config="org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="a;b";',
    )
    assert translated == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "a;b",
    }


def test_a_bearer_login_requests_tokens_from_the_endpoint() -> None:
    translated = consumer(
        sasl_mechanism="OAUTHBEARER",
        sasl_login_callback_handler_class="org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        sasl_oauthbearer_token_endpoint_url="https://login/token",
        sasl_jaas_config="org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        "clientId='it' clientSecret='hush' scope=read;",
    )
    assert translated == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://login/token",
        "sasl.oauthbearer.client.id": "it",
        "sasl.oauthbearer.client.secret": "hush",
        "sasl.oauthbearer.scope": "read",
    }


def test_stores_in_pem_and_pkcs12_are_accepted() -> None:
    assert consumer(
        ssl_truststore_location="/tls/ca", ssl_truststore_type="PEM", ssl_keystore_location="/tls/me.pem"
    ) == {
        "ssl.ca.location": "/tls/ca",
        "ssl.key.location": "/tls/me.pem",
        "ssl.certificate.location": "/tls/me.pem",
    }
    assert consumer(ssl_keystore_location="/tls/me.p12", ssl_keystore_password="hush") == {
        "ssl.keystore.location": "/tls/me.p12",
        "ssl.keystore.password": "hush",
    }


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"ssl.truststore.location": "/t.jks", "ssl.truststore.password": "hush"}, "keytool -list -rfc"),
        ({"ssl.truststore.location": "/t.p12"}, "not a PEM file"),
        ({"ssl.keystore.location": "/k.jks"}, "keytool -importkeystore"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "Name both"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "expected one of"),
        ({"sasl.jaas.config": "hush"}, "not shown"),
        ({"sasl.jaas.config": "com.acme.Login required token=hush;"}, "com.acme.Login is a Java class"),
        ({"sasl.login.callback.handler.class": "com.acme.Handler"}, "a Java class, which cannot run"),
        ({"interceptor.classes": "com.acme.I"}, "Java classes cannot run"),
    ],
)
def test_unsupported_properties_are_refused(properties: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as refusal:
        ClientSettings.of(properties).for_role("consumer")
    assert "hush" not in str(refusal.value)


def test_a_value_that_is_no_text_is_refused_without_being_shown_if_it_is_secret() -> None:
    with pytest.raises(ConfigurationError, match=r"found \*{6} \(list\)"):
        ClientSettings.of({"sasl.password": ["hush"]})


def test_the_connectors_properties_override_the_programs() -> None:
    settings = ClientSettings.of({"enable.auto.commit": True, "key.deserializer": "x"})
    assert settings.for_role("consumer", enable_auto_commit=False) == {"enable.auto.commit": False}


def test_the_time_of_a_request_is_named_otherwise_for_consumers() -> None:
    settings = ClientSettings.of({"request.timeout.ms": 5})
    assert settings.for_role("consumer") == {"socket.timeout.ms": "5"}
    assert settings.for_role("producer") == {"request.timeout.ms": "5"}


@given(st.text(min_size=3, alphabet=st.characters(exclude_characters="\\", exclude_categories=["Cs"])))
def test_a_password_in_a_jaas_line_is_read_back_and_hidden(password: str) -> None:
    quoted = password.replace('"', '\\"')
    settings = ClientSettings.of({"sasl.jaas.config": f'{PLAIN} required username="u" password="{quoted}";'})
    assert settings.for_role("consumer")["sasl.password"] == password
    assert "password" not in repr(settings)
    assert settings.hide_secrets(f"<{password}>") == "<******>"


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.key.pem",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
    ],
)
def test_what_is_secret_is_in_no_text(name: str) -> None:
    settings = ClientSettings.of({name: "hush-hush", "bootstrap.servers": "a:1"})
    assert "hush-hush" not in f"{settings} {settings!r} {settings.hide_secrets('hush-hush')}"
    assert "a:1" in repr(settings)


def test_without_the_clients_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(PlatformError, match=r"pip install 'millstream\[kafka\]'"):
        confluent()
