"""Notices and warnings shown once to a program: in the log, and with the user's line."""

from __future__ import annotations

import logging

import pytest

from millstream.graph.notices import relay_once, warn_once


def test_a_warning_is_shown_once_for_each_line(caplog: pytest.LogCaptureFixture) -> None:
    for line in ("notices.py:1", "notices.py:1", "notices.py:2"):
        warn_once("test of warnings", "something is dropped", line)
    assert caplog.messages == ["something is dropped (notices.py:1)", "something is dropped (notices.py:2)"]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_a_notice_of_several_workers_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    name = "millstream.datastream"
    assert relay_once(name, logging.WARNING, "two workers say this (job.py:1)")
    assert relay_once(name, logging.WARNING, "two workers say this (job.py:1)")
    assert not relay_once("users.own", logging.WARNING, "a user's own line")
    assert caplog.messages == ["two workers say this (job.py:1)"]
