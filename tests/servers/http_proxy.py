"""An HTTP proxy to a server that tests can make slow, failing and strange, request by request.

A rule maps each request (`method path`, headers) to its fate: forwarded, delayed, answered with a status, cut before or
after the server has processed it, or changed. The proxy counts requests. One thread with an event loop; a connection
stays open as long as both sides keep it open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from servers.loop_proxy import HOST, LoopProxy

__all__ = ["Fate", "HttpProxy", "Request", "every"]


@dataclass(frozen=True)
class Request:
    """The input of a rule. Header names are in small letters."""

    number: int
    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


@dataclass(frozen=True)
class Fate:
    """What happens to a request. `status`: the proxy responds itself. `cut`: the connection ends "before" the server
    receives it, or "after" it has processed it. `without`: headers removed before forwarding.
    """

    delay_ms: float = 0
    status: int | None = None
    body: bytes = b""
    cut: str | None = None
    without: tuple[str, ...] = ()


Rule = Callable[[Request], Fate]


class HttpProxy(LoopProxy):
    """Listens on a free `port`. `rule` decides on each request and may be changed at any time; `requests` has all,
    `answered_bytes` says how much came back from the server."""

    def __init__(self, target_port: int, rule: Rule = lambda request: Fate()) -> None:
        self.target_port = target_port
        self.rule = rule
        self.requests: list[Request] = []
        self.answered_bytes = 0
        super().__init__("http-proxy")

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    # --- in the loop ---

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                head = await _head(reader)
                request = self._note(head)
                body = await _body(reader, head)
                fate = self.rule(request)
                await asyncio.sleep(fate.delay_ms / 1000)
                if fate.status is not None:
                    writer.write(_answer(fate))
                    await writer.drain()
                    continue
                if fate.cut == "before":
                    return
                if far is None:
                    far = await asyncio.open_connection(HOST, self.target_port, limit=1 << 20)
                    self._writers.add(far[1])
                far[1].write(_without(head, fate.without) + body)
                await far[1].drain()
                answer_head = await _head(far[0])
                has_body = request.method != "HEAD"
                answer = answer_head + (await _body(far[0], answer_head, is_answer=True) if has_body else b"")
                if fate.cut == "after":
                    return
                self.answered_bytes += len(answer)
                writer.write(answer)
                await writer.drain()
                if b"connection: close" in answer_head.lower():
                    return
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass
        finally:
            for one in (writer, far[1] if far else None):
                if one is not None:
                    self._drop(one)

    def _note(self, head: bytes) -> Request:
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        request = Request(len(self.requests), method, target, headers)
        self.requests.append(request)
        return request


async def _head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def _body(reader: asyncio.StreamReader, head: bytes, is_answer: bool = False) -> bytes:
    """The body as transmitted, with its chunk headers."""
    lines = head.lower().split(b"\r\n")
    lengths = [int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")]
    if lengths:
        return await reader.readexactly(lengths[0])
    if any(line.startswith(b"transfer-encoding:") and b"chunked" in line for line in lines):
        body = b""
        while True:
            size_line = await reader.readuntil(b"\r\n")
            chunk = await reader.readexactly(int(size_line.split(b";")[0], 16) + 2)
            body += size_line + chunk
            if chunk == b"\r\n":
                return body
    status = head.split(b" ", 2)[1]
    if is_answer and status not in (b"204", b"304"):
        return await reader.read()
    return b""


def _without(head: bytes, names: tuple[str, ...]) -> bytes:
    lines = head.split(b"\r\n")
    kept = [line for line in lines if line.partition(b":")[0].strip().lower().decode("latin-1") not in names]
    return b"\r\n".join(kept)


def _answer(fate: Fate) -> bytes:
    head = f"HTTP/1.1 {fate.status} Told by the test\r\nContent-Length: {len(fate.body)}\r\n\r\n"
    return head.encode() + fate.body


def every(number: int, fate: Fate, kind: str = "") -> Rule:
    """A rule: every `number`-th request (whose method is `kind`) has this fate."""
    seen = 0

    def rule(request: Request) -> Fate:
        nonlocal seen
        if kind and request.method != kind:
            return Fate()
        seen += 1
        return replace(fate) if seen % number == 0 else Fate()

    return rule
