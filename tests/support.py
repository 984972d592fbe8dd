"""Shared by the tests: vaults written as one string, and a bare client of the language server."""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import vault_lsp

#: How long anything in a test may take before it counts as hanging.
PATIENCE = 20.0


class Cursor(NamedTuple):
    """Where the `$0` of a fixture stood; `character` counts code points."""

    path: str
    line: int
    character: int


class Fixture(NamedTuple):
    """Files of a vault, path → text, and the cursor if one of them holds `$0`."""

    files: dict[str, str]
    cursor: Cursor | None


def vault(text: str) -> Fixture:
    """Several files as one string: a line `=== path` begins each. `$0` marks the cursor and is taken out.

    The text of a file ends before the next heading line. Without any heading line the file is `a.md`.
    """
    files: dict[str, str] = {}
    path = "a.md"
    for line in text.split("\n"):
        if line.startswith("=== "):
            path = line[4:].strip()
            files[path] = ""
        elif path in files or line:
            files[path] = files.get(path, "") + line + "\n"
    *_, last = files
    files[last] = files[last].removesuffix("\n")
    cursor = None
    for name, content in files.items():
        if "$0" in content:
            before = content.partition("$0")[0]
            cursor = Cursor(name, before.count("\n"), len(before.rpartition("\n")[2]))
            files[name] = content.replace("$0", "", 1)
    return Fixture(files, cursor)


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Writes files below a folder, byte for byte."""
    for path, content in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def environment() -> dict[str, str]:
    """Variables under which a process and its children find this very copy of the project."""
    here = str(Path(vault_lsp.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))}


class ServerError(Exception):
    """An error response: its code and message."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]


class Client:
    """Speaks JSON-RPC with a server process, and keeps all that it sends."""

    def __init__(self, cache: Path, *, env: Mapping[str, str] | None = None, arguments: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vault_lsp", "lsp", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment(), "VAULT_LSP_INDEX_DIR": str(cache), **(env or {})},
        )
        self.bodies: list[bytes] = []
        self.garbage = b""
        self.errors = bytearray()
        self.notes: list[dict[str, Any]] = []
        #: What the server asks for, by method; a value is the answer, a function makes it, absent is an error.
        self.answers: dict[str, Any] = {"client/registerCapability": None, "window/workDoneProgress/create": None}
        self.asked: list[dict[str, Any]] = []
        self._identities = itertools.count(1)
        self._responses: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._news = threading.Event()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    # Sending --------------------------------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.send_bytes(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def notify(self, method: str, params: Any = None) -> None:
        self.send(method=method, params=params)

    def start(self, method: str, params: Any = None) -> int:
        """Sends a request without waiting; `finish` takes the number."""
        identity = next(self._identities)
        self._responses[identity] = queue.SimpleQueue()
        self.send(id=identity, method=method, params=params)
        return identity

    def finish(self, identity: int, timeout: float = PATIENCE) -> Any:
        response = self._responses[identity].get(timeout=timeout)
        if "error" in response:
            raise ServerError(response["error"])
        return response["result"]

    def request(self, method: str, params: Any = None, timeout: float = PATIENCE) -> Any:
        return self.finish(self.start(method, params), timeout)

    # Session --------------------------------------------------------------------------------------------------------

    def initialize(self, *roots: Path, capabilities: Mapping[str, Any] | None = None, **more: Any) -> Any:
        folders = [{"uri": root.as_uri(), "name": root.name} for root in roots]
        parameters = {"processId": os.getpid(), "rootUri": None, "workspaceFolders": folders or None, **more}
        result = self.request("initialize", {**parameters, "capabilities": capabilities or {}})
        self.notify("initialized", {})
        return result

    def open(self, uri: str, text: str, version: int = 1) -> None:
        item = {"uri": uri, "languageId": "markdown", "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def change(self, uri: str, version: int, *changes: Mapping[str, Any]) -> None:
        document = {"uri": uri, "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": list(changes)})

    def at(self, method: str, uri: str, line: int, character: int, **more: Any) -> Any:
        position = {"line": line, "character": character}
        return self.request(f"textDocument/{method}", {"textDocument": {"uri": uri}, "position": position, **more})

    def wait_for(self, test: Callable[[], Any], timeout: float = PATIENCE) -> Any:
        """Waits until a test on what was received holds; returns what it gave."""
        deadline = time.monotonic() + timeout
        while not (found := test()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"still waiting; the log says:\n{self.errors.decode(errors='replace')}")
            self._news.wait(0.05)
            self._news.clear()
        return found

    def notified(self, method: str) -> list[Any]:
        """The parameters of every notification of a method so far."""
        return [note["params"] for note in list(self.notes) if note["method"] == method]

    def published(self, uri: str) -> list[dict[str, Any]] | None:
        """The diagnostics last pushed for a document."""
        pushed = [each for each in self.notified("textDocument/publishDiagnostics") if each["uri"] == uri]
        return pushed[-1]["diagnostics"] if pushed else None

    def close(self) -> int:
        """Shuts the server down and returns its exit code."""
        if self.process.poll() is None:
            self.request("shutdown")
            self.notify("exit")
        return self.ended()

    def ended(self, timeout: float = PATIENCE) -> int:
        """Waits for the process and for all that it wrote; returns the exit code."""
        code = self.process.wait(timeout)
        for thread in self._threads:
            thread.join(timeout)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.ended()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue

    # Receiving ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Takes frame after frame; anything else on stdout ends it and is kept in `garbage`."""
        stream = self.process.stdout
        assert stream is not None
        while header := stream.readline():
            name, _, length = header.partition(b": ")
            if name != b"Content-Length" or stream.readline() != b"\r\n":
                self.garbage = header
                return
            body = stream.read(int(length))
            self.bodies.append(body)
            self._take(json.loads(body))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        while data := os.read(self.process.stderr.fileno(), 1 << 16):
            self.errors += data

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            if (waiting := self._responses.get(message["id"])) is not None:
                waiting.put(message)
        elif "id" in message:
            self.asked.append(message)
            self._answer(message)
        else:
            self.notes.append(message)
        self._news.set()

    def _answer(self, message: dict[str, Any]) -> None:
        method = message["method"]
        if method not in self.answers:
            self.send(id=message["id"], error={"code": -32601, "message": f"no {method}"})
            return
        answer = self.answers[method]
        if answer is not Ellipsis:
            self.send(id=message["id"], result=answer(message["params"]) if callable(answer) else answer)


def frames(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The bodies in a stream of frames and where each ends; an AssertionError for a byte that belongs to none."""
    at = 0
    while at < len(data):
        header, separator, _rest = data[at:].partition(b"\r\n\r\n")
        if not separator:
            return
        assert header.startswith(b"Content-Length: "), header[:200]
        start = at + len(header) + 4
        end = start + int(header[len(b"Content-Length: ") :])
        if end > len(data):
            return
        yield data[start:end], end
        at = end


@contextmanager
def serving(cache: Path, **options: Any) -> Iterator[Client]:
    """A running server; it must not have logged a traceback when the test is done with it."""
    client = Client(cache, **options)
    try:
        yield client
        if client.process.poll() is None and client.process.stdin is not None and not client.process.stdin.closed:
            client.close()
    finally:
        client.kill()
    assert client.garbage == b""
    assert b"Traceback" not in client.errors, client.errors.decode(errors="replace")
