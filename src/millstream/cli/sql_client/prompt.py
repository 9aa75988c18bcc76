"""The prompt: several lines until a statement has ended, colours, completion, and a persistent history.

Statements that may hold a secret are not written to the history. If the history cannot be written, it lasts as long as
the client.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style

from millstream.cli.sql_client.client import SqlClient
from millstream.cli.sql_client.colours import STYLES, styled
from millstream.cli.sql_client.completion import KnownNames, suggestions
from millstream.redaction import is_sensitive, redacted_address, secrets_of_statement
from millstream.sql.splitting import in_place, is_complete, statement_spans

__all__ = ["converse", "history_path", "holds_secret"]

_COMMANDS = re.compile(r"\s*(quit|exit|help|clear)\s*;?\s*", re.IGNORECASE)


def history_path() -> Path:
    """The file of the history: below XDG_STATE_HOME, or ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "millstream" / "sql-history"


def holds_secret(text: str) -> bool:
    """Whether a statement may hold a secret.

    >>> holds_secret("SET 'properties.sasl.password' = 'x'"), holds_secret("SELECT 1")
    (True, False)
    """
    return is_sensitive(text) or bool(secrets_of_statement(text)) or redacted_address(text) != text


class _History(FileHistory):
    def store_string(self, string: str) -> None:
        if not holds_secret(string):
            with suppress(OSError):  # a full disk costs the history, not the client
                super().store_string(string)


def _history() -> History:
    path = history_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError as error:
        print(f"The history is not saved: {path}: {error.strerror}")
        return InMemoryHistory()
    return _History(str(path))


class _Names(Completer):
    def __init__(self, names: Callable[[], KnownNames]) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        for each in suggestions(document.text_before_cursor, self._names(), document.text_after_cursor):
            yield Completion(each.text, -each.replaced, display_meta=each.about)


class _Colours(Lexer):
    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines: list[StyleAndTextTuples] = [[]]
        for kind, piece in styled(document.text):
            for number, part in enumerate(piece.split("\n")):
                if number:
                    lines.append([])
                lines[-1].append((f"class:sql.{kind}" if kind else "", part))
        return lambda line: lines[line] if line < len(lines) else []


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.document.text
        has_ended = is_complete(text) and buffer.document.is_cursor_at_the_end
        if has_ended or _COMMANDS.fullmatch(text) or not text.strip():
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def converse(client: SqlClient) -> None:
    """Read and run statements until the user quits."""
    session: PromptSession[str] = PromptSession(
        "Millstream SQL> ",
        history=_history(),
        completer=_Names(client.names),
        complete_while_typing=False,
        lexer=_Colours(),
        style=Style.from_dict({f"sql.{kind}": style for kind, style in STYLES.items() if kind and style}),
        multiline=True,
        prompt_continuation=lambda width, line, wrapped: " " * (width - 2) + "> ",
        key_bindings=_keys(),
        enable_history_search=True,
    )
    while not client.has_quit:
        try:
            with patch_stdout(raw=True):  # output of jobs while the prompt waits appears above it
                text = session.prompt()
        except KeyboardInterrupt:
            continue  # the typed text is discarded
        except EOFError:
            break
        _run(client, text)


def _run(client: SqlClient, text: str) -> None:
    command = _COMMANDS.fullmatch(text)
    if command:
        client.run_statement(command.group(1))
        return
    for span in statement_spans(text):
        if not client.run_statement(in_place(span)) or client.has_quit:
            break
