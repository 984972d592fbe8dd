"""A language-server client for the runners: the real `vault-lsp lsp` on a pipe, every wait bounded.

Beside the answers it keeps every byte that the server writes to stdout, so that a runner can judge the stream itself.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote, unquote, urlsplit

SECONDS = 20.0

Json = dict[str, Any]


class FailedError(Exception):
    """An answer is not the one that was due; the text says how."""


class Target(NamedTuple):
    """A location in the vault: path, and the line from 0."""

    path: str
    line: int


#: Of the product's variables those of the caller that its processes are to see.
KEPT = ("VAULT_LSP_EMBEDDING", "VAULT_LSP_MODEL_DIR")


def environment(index: Path, bin_folder: Path) -> dict[str, str]:
    """The environment of a command: its index below `index`, `vault-lsp` of this Python first on the path.

    Of the caller's settings only what is said of models counts.
    """
    bin_folder.mkdir(exist_ok=True)
    command = bin_folder / "vault-lsp"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vault_lsp "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    dropped = ("VAULT_LSP_", "GIT_", "LC_ALL")
    root = Path(__file__).resolve().parent.parent
    return {
        **{name: value for name, value in os.environ.items() if name in KEPT or not name.startswith(dropped)},
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(root),
        "VAULT_LSP_INDEX_DIR": str(index),
        "LANG": "C.UTF-8",
    }


def ordinary() -> list[str]:
    """A prefix that takes from root what no ordinary user has: reading and writing whatever the modes forbid."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("setpriv") is None:
        return []
    return [
        "setpriv",
        "--bounding-set=-dac_override,-dac_read_search",
        "--inh-caps=-dac_override,-dac_read_search",
        "--",
    ]


class Client:
    """One session with one server. Use it as a context manager; it ends the process in any case."""

    def __init__(
        self,
        root: Path,
        env: Mapping[str, str],
        *,
        folders: Sequence[Path] | None = None,
        capabilities: Json | None = None,
        arguments: Sequence[str] = ("lsp",),
        prefix: Sequence[str] = (),
    ) -> None:
        """`prefix`: a command that runs the server's."""
        self.root = root
        self.folders = [root] if folders is None else list(folders)
        self.capabilities = capabilities or {}
        self.published: dict[str, Json] = {}
        self.publications: list[Json] = []
        self.received = bytearray()
        self.texts: dict[str, tuple[int, str]] = {}
        self._last = 0
        self._answers: dict[int, Json] = {}
        self._messages: queue.Queue[Json | None] = queue.Queue()
        self._errors = (root.parent / f"stderr-{time.monotonic_ns()}").open("w+b")
        self.process = subprocess.Popen(
            [*ordinary(), *prefix, sys.executable, "-m", "vault_lsp", *arguments],
            cwd=root,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        self.initialize()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with suppress(FailedError):
                if self.process.poll() is None:
                    self.shutdown()
        finally:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout, self._errors):
                assert stream is not None
                with suppress(BrokenPipeError):
                    stream.close()

    # Life

    def initialize(self) -> Json:
        folders = [{"uri": self.file_uri(folder), "name": folder.name} for folder in self.folders]
        answer: Json = self.request(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": folders[0]["uri"] if folders else None,
                "workspaceFolders": folders or None,
                "capabilities": {
                    "textDocument": {
                        "publishDiagnostics": {"relatedInformation": True, "versionSupport": True},
                        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
                    },
                    **self.capabilities,
                },
            },
        )
        self.notify("initialized", {})
        return answer

    def shutdown(self) -> int:
        """Shut the server down as the protocol asks and return its exit code."""
        self.request("shutdown", None)
        self.notify("exit", None)
        try:
            return self.process.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise FailedError("the server doesn't end after exit") from None

    def stderr(self) -> str:
        self._errors.flush()
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")

    # Messages

    def start(self, method: str, params: Any) -> int:
        """Send a request and return its id without waiting."""
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        return self._last

    def answer(self, number: int, seconds: float = SECONDS) -> Json:
        """The whole answer to a request, with `result` or `error`."""
        deadline = time.monotonic() + seconds
        while number not in self._answers:
            self._receive(deadline, f"answer {number}")
        return self._answers.pop(number)

    def request(self, method: str, params: Any, seconds: float = SECONDS) -> Any:
        answer = self.answer(self.start(method, params), seconds)
        if "error" in answer:
            raise FailedError(f"{method}: error {answer['error'].get('code')} {answer['error'].get('message')}")
        return answer.get("result")

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def settle(self, seconds: float) -> None:
        """Take in what the server says of itself for so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                self._receive(deadline, "")
            except FailedError:
                return

    # Documents

    def uri(self, path: str) -> str:
        return self.file_uri(self.root / path)

    @staticmethod
    def file_uri(file: Path) -> str:
        return "file://" + quote(os.fsencode(os.fspath(file)), safe="/-._~")

    def path(self, uri: str) -> str:
        file = os.fsdecode(unquote(urlsplit(uri).path).encode("utf-8", "surrogateescape"))
        for folder in (self.root, *self.folders):
            if file == str(folder) or file.startswith(f"{folder}/"):
                return os.path.relpath(file, folder).replace(os.sep, "/")
        return file

    def open(self, path: str, text: str | None = None) -> None:
        """Open a document, with the text on disk unless one is given."""
        if path in self.texts:
            return
        if text is None:
            text = (self.root / path).read_bytes().decode("utf-8", "replace")
        self.texts[path] = (1, text)
        item = {"uri": self.uri(path), "languageId": "markdown", "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def change(self, path: str, changes: Sequence[Json], text: str) -> None:
        """Send changes; `text` is what the document says afterwards."""
        version = self.texts[path][0] + 1
        self.texts[path] = (version, text)
        document = {"uri": self.uri(path), "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": list(changes)})

    def replace(self, path: str, text: str) -> None:
        self.change(path, [{"text": text}], text)

    def close(self, path: str) -> None:
        del self.texts[path]
        self.published.pop(self.uri(path), None)
        self.notify("textDocument/didClose", {"textDocument": {"uri": self.uri(path)}})

    def watched(self, *events: tuple[str, int]) -> None:
        """Tell of files: 1 created, 2 changed, 3 deleted."""
        changes = [{"uri": self.uri(path), "type": kind} for path, kind in events]
        self.notify("workspace/didChangeWatchedFiles", {"changes": changes})

    def at(self, method: str, path: str, line: int, character: int, **extra: Any) -> Any:
        position = {"line": line, "character": character}
        return self.request(method, {"textDocument": {"uri": self.uri(path)}, "position": position, **extra})

    def definition(self, path: str, line: int, character: int) -> list[Target]:
        return [self.target(item) for item in listed(self.at("textDocument/definition", path, line, character))]

    def references(self, path: str, line: int, character: int, *, declaration: bool = False) -> list[Json]:
        context = {"includeDeclaration": declaration}
        return listed(self.at("textDocument/references", path, line, character, context=context))

    def target(self, location: Json) -> Target:
        uri = location.get("uri") or location["targetUri"]
        span = location.get("range") or location["targetSelectionRange"]
        return Target(self.path(uri), span["start"]["line"])

    def diagnostics(self, path: str) -> list[Json]:
        """The findings of a note as the server pushes them; what it answers when asked has to be the same."""
        self.open(path)
        version = self.texts[path][0]
        uri = self.uri(path)
        deadline = time.monotonic() + SECONDS
        while self.published.get(uri, {}).get("version") != version:
            self._receive(deadline, f"the diagnostics of {path}")
        pulled = self.request("textDocument/diagnostic", {"textDocument": {"uri": uri}})["items"]
        # A neighbour may have changed since: then the push follows.
        while keys(self.published[uri]["diagnostics"]) != keys(pulled):
            self._receive(min(deadline, time.monotonic() + 3), f"pushed diagnostics like the pulled ones of {path}")
            pulled = self.request("textDocument/diagnostic", {"textDocument": {"uri": uri}})["items"]
        return list(pulled)

    def diagnostics_until(self, path: str, holds: Any, seconds: float = 10.0) -> list[Json]:
        """The findings of a note as soon as they are as `holds` asks, else the last ones."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.diagnostics(path)
            if holds(found) or time.monotonic() > deadline:
                return found
            self.settle(0.1)

    def symbols(self, query: str) -> list[Json]:
        return listed(self.request("workspace/symbol", {"query": query}))

    def outline(self, path: str) -> list[Json]:
        return listed(self.request("textDocument/documentSymbol", {"textDocument": {"uri": self.uri(path)}}))

    def links(self, path: str) -> list[Json]:
        return listed(self.request("textDocument/documentLink", {"textDocument": {"uri": self.uri(path)}}))

    # The wire

    def _send(self, message: Json) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            self.process.stdin.flush()
        except OSError as error:
            raise FailedError(f"the server has gone: {self.stderr()[-300:]}") from error

    def _receive(self, deadline: float, awaited: str) -> None:
        try:
            message = self._messages.get(timeout=max(0.001, deadline - time.monotonic()))
        except queue.Empty:
            raise FailedError(f"not in time: {awaited}") from None
        if message is None:
            self._messages.put(None)
            raise FailedError(f"the server ended before it sent {awaited}: {self.stderr()[-300:]}")
        method = message.get("method")
        if method is None:
            self._answers[message["id"]] = message
        elif method == "textDocument/publishDiagnostics":
            self.published[message["params"]["uri"]] = message["params"]
            self.publications.append(message["params"])
        elif "id" in message:
            many = method == "workspace/configuration"
            self._send({"id": message["id"], "result": [None] * len(message["params"]["items"]) if many else None})

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        try:
            while head := stream.readline():
                self.received += head
                length = 0
                while head.strip():
                    name, _, value = head.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                    head = stream.readline()
                    self.received += head
                body = stream.read(length)
                self.received += body
                self._messages.put(json.loads(body))
        except ValueError:
            pass  # not the protocol, or a stream closed under us: the waiting side reports it
        self._messages.put(None)


def listed(answer: Any) -> list[Json]:
    """An answer that may be null, one item or several."""
    if answer is None:
        return []
    return list(answer) if isinstance(answer, list) else [answer]


def keys(diagnostics: Sequence[Json]) -> list[str]:
    """Diagnostics as comparable values."""
    return sorted(
        json.dumps([item["range"], item.get("code"), item["message"]], sort_keys=True) for item in diagnostics
    )


def expect(holds: object, problem: str) -> None:
    """Raise `FailedError` with the problem unless the condition holds."""
    if not holds:
        raise FailedError(problem)


def report(rows: Sequence[tuple[str, str, str]]) -> int:
    """Print a table of id, result and reason and the sums; 1 when a case failed."""
    width = max((len(row[0]) for row in rows), default=0)
    for name, result, reason in rows:
        print(f"{name:{width}}  {result:7}  {' '.join(reason.split())[:300]}".rstrip())
    results = [row[1] for row in rows]
    print(
        "  ".join(f"{results.count(kind)} {kind}" for kind in ("pass", "fail", "not run", "later") if kind in results)
    )
    return int("fail" in results)
