"""TCP proxies on the loopback that lose, delay, reset, cut, fragment and duplicate what passes.

One event loop in a thread of its own serves all of them. A connection of a client carries one request, so
that a fault is drawn for each request; one of the service to its database carries many statements, so that
a fault is drawn for each piece of it that arrives.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, Self

from tests.chaos.faults import LINK_FAULTS, REQUEST_FAULTS, Tally
from tests.reliability.wire import HOST

__all__ = ["Link", "Proxies", "RequestProxy"]

_PIECE = 65_536
_REMEMBERED = 200
_LINK_ANSWER_FAULTS = tuple(kind for kind in LINK_FAULTS if kind != "link duplicated")
_AT_ONCE = struct.pack("ii", 1, 0)
"""Close at once, which the other side sees as a reset."""


class Sleeper(Protocol):
    """A part of a proxy that serves one connection."""

    async def serve(self, near: "Stream") -> None:
        """Serve it until it ends."""
        ...


class Stream:
    """One side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """The next piece; empty at the end."""
        return await self._reader.read(_PIECE)

    async def read_request(self) -> bytes:
        """A whole HTTP request, by its Content-Length."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        lengths = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return head + await self._reader.readexactly(int(lengths[0]) if lengths else 0)

    async def read_all(self) -> bytes:
        """Everything up to the end."""
        return await self._reader.read(-1)

    async def write(self, data: bytes) -> None:
        """Pass it on."""
        self._writer.write(data)
        await self._writer.drain()

    async def write_in_pieces(self, data: bytes, dice: random.Random) -> None:
        """Pass it on in small pieces, each in a packet of its own."""
        most = max(1, len(data) // 12)
        while data:
            size = dice.randint(1, max(most, 1))
            await self.write(data[:size])
            data = data[size:]
            await asyncio.sleep(0.001)

    def end_writing(self) -> None:
        """Say that nothing more comes."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write_eof()

    def reset(self) -> None:
        """End it as a machine does that knows nothing of the connection."""
        raw: socket.socket = self._writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._writer.transport.abort()

    def close(self) -> None:
        """End it."""
        self._writer.close()


async def _connected(port: int) -> Stream:
    return Stream(*await asyncio.open_connection(HOST, port))


class RequestProxy:
    """Stands between clients and the service's processes; ``ports`` are those of the processes."""

    def __init__(self, ports: Sequence[int], dice: random.Random, tally: Tally, rate: float) -> None:
        self._ports = ports
        self._dice = dice
        self._tally = tally
        self.rate = rate
        """How likely a fault is for each request."""

    async def serve(self, near: Stream) -> None:
        """Pass one request and its answer on, or do something to them."""
        request = await near.read_request()
        port = self._dice.choice(self._ports)
        if self._dice.random() >= self.rate:
            await near.write(await self._answer(port, request))
            return
        kind = self._dice.choice(REQUEST_FAULTS)
        self._tally.note(kind)
        await self._spoil(kind, near, port, request)

    async def _answer(self, port: int, request: bytes) -> bytes:
        far = await _connected(port)
        try:
            await far.write(request)
            return await _read_answer(far)
        finally:
            far.close()

    async def _spoil(self, kind: str, near: Stream, port: int, request: bytes) -> None:
        dice = self._dice
        what, _, how = kind.partition(" ")
        if what == "connection":
            await self._begin(port, request[: dice.randint(1, len(request))])
            near.reset()
        elif how == "delayed":
            await self._delay(what, near, port, request)
        elif how == "duplicated":
            await self._duplicate(near, port, request)
        elif what == "request":
            await self._spoil_request(how, near, port, request)
        else:
            await self._spoil_answer(how, near, await self._answer(port, request))

    async def _begin(self, port: int, part: bytes) -> None:
        """Send a part of a request and stay no longer than the service needs to take it up."""
        far = await _connected(port)
        await far.write(part)
        await asyncio.sleep(self._dice.uniform(0.0, 0.02))
        far.reset()

    async def _delay(self, what: str, near: Stream, port: int, request: bytes) -> None:
        pause = self._dice.uniform(0.01, 0.25)
        if what == "request":
            await asyncio.sleep(pause)
        answer = await self._answer(port, request)
        if what == "answer":
            await asyncio.sleep(pause)
        await near.write(answer)

    async def _duplicate(self, near: Stream, port: int, request: bytes) -> None:
        """Send it to two processes at once, or twice to one; the second answer is for nobody."""
        other = self._dice.choice(self._ports)
        both = asyncio.gather(
            self._answer(port, request), self._answer(other, request), return_exceptions=True
        )
        first, second = await both
        answer = first if isinstance(first, bytes) else second
        if isinstance(answer, bytes):
            await near.write(answer)

    async def _spoil_request(self, how: str, near: Stream, port: int, request: bytes) -> None:
        if how == "lost":
            await asyncio.sleep(self._dice.uniform(0.0, 0.1))
        elif how == "cut":
            await self._begin(port, request[: self._dice.randint(1, len(request) - 1)])
        else:
            far = await _connected(port)
            try:
                await far.write_in_pieces(request, self._dice)
                await near.write(await _read_answer(far))
            finally:
                far.close()

    async def _spoil_answer(self, how: str, near: Stream, answer: bytes) -> None:
        if how == "cut":
            await near.write(answer[: self._dice.randint(1, max(1, len(answer) - 1))])
        elif how == "fragmented":
            await near.write_in_pieces(answer, self._dice)


async def _read_answer(far: Stream) -> bytes:
    """A whole HTTP answer, by its Content-Length: the service keeps the connection open."""
    return await far.read_request()


class Link:
    """Stands between one process of the service and the database; can be taken down as a whole."""

    def __init__(self, port: int, dice: random.Random, tally: Tally, rate: float) -> None:
        self._port = port
        self._dice = dice
        self._tally = tally
        self._open: set[Stream] = set()
        self.rate = rate
        """How likely a fault is for each piece that passes."""
        self.down = False

    async def serve(self, near: Stream) -> None:
        """Pass everything on in both directions until one side ends or a fault ends it."""
        if self.down:
            near.reset()
            return
        far = await _connected(self._port)
        self._open |= {near, far}
        sent: list[bytes] = []
        try:
            ways = [self._pass(near, far, sent), self._pass(far, near, None)]
            tasks = [asyncio.create_task(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._open -= {near, far}
            far.close()

    async def _pass(self, source: Stream, sink: Stream, sent: list[bytes] | None) -> None:
        """One direction; ``sent`` keeps what the service has sent, so that it can be sent once more."""
        while piece := await source.read():
            if sent is not None and len(sent) < _REMEMBERED:
                sent.append(piece)
            if self._dice.random() >= self.rate:
                await sink.write(piece)
                continue
            kind = self._dice.choice(LINK_FAULTS if sent is not None else _LINK_ANSWER_FAULTS)
            self._tally.note(kind)
            if kind == "link duplicated":
                await sink.write(piece)
                await self._send_again(sent or [])
            elif not await self._spoil(kind, sink, piece):
                return

    async def _send_again(self, sent: list[bytes]) -> None:
        """Everything once more on a connection of its own, as something between them does that tries again.

        Within one connection TCP's sequence numbers let nothing arrive twice.
        """
        far = await _connected(self._port)
        try:
            for piece in sent:
                await far.write(piece)
            await asyncio.wait_for(far.read(), 0.1)
        except (OSError, TimeoutError):
            pass
        finally:
            far.reset()

    async def _spoil(self, kind: str, sink: Stream, piece: bytes) -> bool:
        """Do it to a piece; whether the connection goes on."""
        if kind == "link delayed":
            await asyncio.sleep(self._dice.uniform(0.005, 0.2))
            await sink.write(piece)
        elif kind == "link fragmented":
            await sink.write_in_pieces(piece, self._dice)
        elif kind == "link lost":
            # A kernel gives a connection up whose packets are not answered; here after a moment.
            await asyncio.sleep(self._dice.uniform(0.05, 0.5))
        elif kind == "link cut":
            await sink.write(piece[: self._dice.randint(0, len(piece) - 1)])
        else:
            sink.reset()
        return kind in ("link delayed", "link fragmented")

    def cut_off(self) -> None:
        """Take the link down: what is open is reset, what comes is refused."""
        self.down = True
        for each in self._open:
            each.reset()


class Proxies:
    """Serves any number of proxies in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run something on the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(30.0)

    def call(self, work: Callable[[], None]) -> None:
        """Call something on the loop, which owns the proxies."""
        self._loop.call_soon_threadsafe(work)

    def listen(self, proxy: Sleeper) -> int:
        """Serve a proxy on a port of its own; returns the port."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            near = Stream(reader, writer)
            await _until_it_breaks(proxy.serve(near))
            near.close()

        async def start() -> int:
            server = await asyncio.start_server(accept, HOST, 0, limit=2**22, backlog=512)
            port: int = server.sockets[0].getsockname()[1]
            return port

        port: int = self.run(start)
        return port


async def _until_it_breaks(work: Awaitable[None]) -> None:
    """A side that is gone ends its connection, and nothing else."""
    with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError):
        await work
