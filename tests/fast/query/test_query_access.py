"""Who may ask a query server: tokens that change while it runs, names of its own, trusted proxies."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from millstream.errors import ConfigurationError
from millstream.query.server import Rights, ServerSettings, read_rights
from millstream.query.server.guard import HostNames
from millstream.query.server.rights import TokenFile
from millstream.query.wire.refusals import MalformedError, NoRightsError, NoTokenError

OLD, NEW = "the-old-token-of-someone", "the-new-token-of-someone"
YEARS_NS = 10**18


def write(path: Path, token: str) -> None:
    """Other tokens of the same length, in the same file, at the same time by the clock of the file system."""
    path.write_text(json.dumps({"dash": {"token": token, "states": ["*"]}}))
    os.utime(path, ns=(YEARS_NS, YEARS_NS))


def bearer(token: str) -> str:
    return f"Bearer {token}"


def test_a_token_that_is_taken_out_of_the_file_opens_nothing_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    write(path, OLD)
    rights = read_rights(path)
    assert rights.reader_of(bearer(OLD)).name == "dash"
    path.write_text(json.dumps({"dash": {"token": NEW, "states": ["*"]}}))
    assert rights.reader_of(bearer(NEW)).name == "dash"
    with pytest.raises(NoTokenError):
        rights.reader_of(bearer(OLD))


def test_a_file_that_changes_twice_in_one_tick_of_the_clock_is_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    write(path, OLD)
    rights = TokenFile(path, now_ns=lambda: YEARS_NS + 1)
    write(path, NEW)
    assert rights.reader_of(bearer(NEW)).name == "dash"


HARMS = {
    "half": '{"dash": {"token": "',
    "empty": "",
    "deep": "[" * 100_000,
    "no text": json.dumps({"dash": {"token": "\ud800" * 20, "states": ["*"]}}),
}


@pytest.mark.parametrize("harm", ["gone", *HARMS])
def test_a_file_of_tokens_that_is_damaged_opens_nothing_until_it_is_mended(
    tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens.json"
    write(path, OLD)
    rights = read_rights(path)
    whole = path.read_text()
    if harm == "gone":
        path.unlink()
    else:
        path.write_text(HARMS[harm])
    for _ in range(3):
        with pytest.raises(NoRightsError, match="cannot be read now"):
            rights.reader_of(bearer(OLD))
    assert caplog.text.count("until this is corrected") == 1
    path.write_text(whole)
    assert rights.reader_of(bearer(OLD)).name == "dash"


def test_without_tokens_only_names_of_the_server_and_addresses_are_answered() -> None:
    names = {"advertised_host": "db1", "allowed_hosts": ("db1.example",)}
    anywhere = ServerSettings(host="0.0.0.0", allow_anonymous=True, **names)
    for settings in (anywhere, ServerSettings()):
        host_names = HostNames.of(settings)
        assert host_names is not None
        for host in ("localhost", "LOCALHOST.:8787", "127.0.0.1:1", "[::1]:8787", "10.0.0.7"):
            host_names.check(host)
        for host in ("evil.example", "localhost.evil.example:8787", "", "127.0.0.1.evil.example", "[evil]", "db1.evil"):
            with pytest.raises(MalformedError, match="--allow-host"):
                host_names.check(host)
    host_names = HostNames.of(anywhere)
    assert host_names is not None
    for host in ("db1", "DB1:8787", "db1.example"):
        host_names.check(host)
    assert HostNames.of(ServerSettings(rights=Rights({}))) is None


def test_tokens_in_the_clear_on_an_open_address_are_warned_of(tmp_path: Path) -> None:
    rights, pem = Rights({}), tmp_path / "a.pem"
    assert "--certificate" in ServerSettings(host="10.0.0.7", rights=rights).warnings[0]
    quiet = [
        ServerSettings(rights=rights),
        ServerSettings(host="10.0.0.7", rights=rights, certificate=pem, private_key=pem),
        ServerSettings(host="10.0.0.7", allow_anonymous=True),
    ]
    assert [settings.warnings for settings in quiet] == [(), (), ()]


@pytest.mark.parametrize("proxy", ["*", "proxy.example", "", "10.0.0.0/99"])
def test_a_proxy_is_trusted_by_its_address_alone(proxy: str) -> None:
    with pytest.raises(ConfigurationError, match="--trusted-proxy"):
        ServerSettings(trusted_proxies=(proxy,)).checked()
    ServerSettings(trusted_proxies=("10.0.0.5", "10.1.0.0/16", "::1")).checked()
