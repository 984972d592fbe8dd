"""Bytes in, bytes out: frames of the base protocol over stdio or a socket, apart from any JSON.

Neither a client that stops reading nor one that sends a megabyte can stop the event loop: what can't be written at once
waits in a thread. Both directions use the file descriptors themselves: a buffered stream that a daemon thread holds
locked would abort the interpreter at exit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import re
import select
import stat
import threading
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d{1,18})(?!\d)", re.IGNORECASE)
_CHUNK = 1 << 16
#: A pipe that has room at all has room for this much (PIPE_BUF of Linux; POSIX promises 512).
_ATOMIC = getattr(select, "PIPE_BUF", 512)
#: A header block that grows past this is no header block.
_HEADER_LIMIT = 1 << 16


class Frames:
    """Cuts a stream of bytes into message bodies. Unknown headers are skipped, a block without a length is dropped."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length: int | None = None

    def feed(self, received: bytes) -> list[bytes]:
        """The bodies that `received` completes, in order."""
        self._buffer += received
        bodies: list[bytes] = []
        while True:
            if self._length is None and not self._read_header():
                return bodies
            if self._length is None:
                continue
            if len(self._buffer) < self._length:
                return bodies
            bodies.append(bytes(self._buffer[: self._length]))
            del self._buffer[: self._length]
            self._length = None

    def _read_header(self) -> bool:
        """Takes one header block off the buffer; False while it isn't complete."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _HEADER_LIMIT:
                log.error("dropped %d bytes that hold no header", len(self._buffer))
                self._buffer.clear()
            return False
        header = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        if match := _LENGTH.search(header):
            self._length = int(match[1])
        elif header.strip():
            log.error("dropped a header without Content-Length")
        return True


class Writer(Protocol):
    """Where framed messages go."""

    def write(self, data: bytes) -> None:
        """Hands over one whole frame without waiting for it to be read."""

    def close(self) -> None:
        """Writes what is left, within a few seconds, and ends."""


class PipeWriter:
    """Writes frames to a file descriptor without ever waiting for the other end.

    A small frame is written at once where there is room for it, others by a thread of the writer's own. `broken` is
    called once when the other end is gone.
    """

    def __init__(self, descriptor: int, broken: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._waiting = 0
        self._lock = threading.Lock()
        self._room: select.poll | None = None
        if hasattr(select, "poll") and (stat.S_ISFIFO(mode := os.fstat(descriptor).st_mode) or stat.S_ISSOCK(mode)):
            self._room = select.poll()
            self._room.register(descriptor, select.POLLOUT)
        self._broken = broken
        self._frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="lsp-write", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Writes one frame, or queues it behind those that wait."""
        if self._waiting == 0 and self._room is not None and len(data) <= _ATOMIC:
            events = self._room.poll(0)
            if events and events[0][1] == select.POLLOUT:
                try:
                    written = os.write(self._descriptor, data)
                except OSError:
                    self._broken()
                    return
                if written == len(data):
                    return
                data = data[written:]
        with self._lock:
            self._waiting += 1
        self._frames.put(data)

    def close(self) -> None:
        """Writes what is queued; gives up after two seconds on a client that doesn't read."""
        self._frames.put(None)
        self._thread.join(timeout=2)

    def _run(self) -> None:
        while (frame := self._frames.get()) is not None:
            try:
                write_all(self._descriptor, frame)
            except OSError:
                self._broken()
                return
            with self._lock:
                self._waiting -= 1


def write_all(descriptor: int, data: bytes) -> None:
    """Writes every byte, however many calls that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def read_on_loop(
    loop: asyncio.AbstractEventLoop, descriptor: int, receive: Callable[[bytes], None], ended: Callable[[], None]
) -> bool:
    """Hands every frame of a descriptor to `receive` on the loop; False where the loop can't watch it.

    That saves the way through a thread. A plain file can't be watched, and nothing but a socket on Windows.
    """
    frames = Frames()

    def readable() -> None:
        try:
            received = os.read(descriptor, _CHUNK)
        except OSError as error:
            log.warning("reading from the client failed: %s", error)
            received = b""
        if not received:
            loop.remove_reader(descriptor)
            ended()
            return
        for body in frames.feed(received):
            receive(body)

    try:
        loop.add_reader(descriptor, readable)
    except (NotImplementedError, OSError):
        return False
    return True


def read_pipe(descriptor: int, deliver: Callable[[bytes | None], None]) -> threading.Thread:
    """Starts a thread that hands every frame of a descriptor to `deliver`, and None at its end."""

    def run() -> None:
        frames = Frames()
        try:
            while received := os.read(descriptor, _CHUNK):
                for body in frames.feed(received):
                    deliver(body)
        except OSError as error:
            log.warning("reading from the client failed: %s", error)
        deliver(None)

    thread = threading.Thread(target=run, name="lsp-read", daemon=True)
    thread.start()
    return thread


def claim_stdio() -> tuple[int, int]:
    """Takes stdin and stdout for the protocol alone: descriptors to read from and to write to.

    Whatever else writes to stdout afterwards (a print, a C library, a child process) lands on stderr, and no child
    can read the client's messages.
    """
    # A client may start us with stderr closed; the next descriptor must not take its number.
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    source, sink = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    os.dup2(null, 0)
    os.close(null)
    if os.name == "nt":
        import msvcrt  # noqa: PLC0415  exists on Windows only

        for descriptor in (source, sink):
            msvcrt.setmode(descriptor, os.O_BINARY)  # type: ignore[attr-defined,unused-ignore]
    return source, sink
