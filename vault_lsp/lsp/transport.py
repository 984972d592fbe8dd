"""Bytes in, bytes out: frames of the base protocol over stdio or a socket, apart from any JSON.

Reading and writing have a thread each, so that neither a client that stops reading nor one that sends a megabyte can
stop the event loop. Both read and write the file descriptors themselves: a buffered stream that a daemon thread holds
locked would abort the interpreter at exit.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import threading
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d+)", re.IGNORECASE)
_CHUNK = 1 << 16
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
    """Writes frames to a file descriptor from its own thread. `broken` is called once when the other end is gone."""

    def __init__(self, descriptor: int, broken: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._broken = broken
        self._frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="lsp-write", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Queues one frame."""
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


def write_all(descriptor: int, data: bytes) -> None:
    """Writes every byte, however many calls that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


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
