"""The main job on the example vault: index, search in two languages, one editor session. Leaves nothing behind.

Prints what it does and exits 1 with a message when an answer is not the expected one. Standard library only; it runs
the `vault-lsp` of the Python that runs it.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

VAULT = Path(__file__).resolve().parent / "vault"
COMMAND = [sys.executable, "-m", "vault_lsp"]
SECONDS = 30

#: Query → the note that has to be among the first three.
SEARCHES = {
    "tomato side shoots": "crops/Tomato.md",
    "compost that smells": "methods/Compost.md",
    "番茄打顶": "crops/番茄种植.md",
    "抽屉": "workshop/榫卯.md",
}

#: Question → the note in the other language that has to be among the first three.
ACROSS = {
    "a wooden joint that needs no nails": "workshop/榫卯.md",
    "frying eggs with a red fruit": "recipes/番茄炒蛋.md",
    "厨余和落叶怎么变成肥料": "methods/Compost.md",
    "大蒜几月种下去": "methods/Sowing calendar.md",
}

#: The findings that the vault's README announces: rule → notes.
ANNOUNCED = {
    "broken-link": "journal/2025-05-03.md",
    "broken-heading": "methods/Watering.md",
    "ambiguous-link": "journal/2025-03-20.md",
}


class UnexpectedError(Exception):
    """An answer is not the one that the vault gives reason for."""


def main() -> int:
    """Run the whole demonstration and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", line_buffering=True)
    with tempfile.TemporaryDirectory(prefix="vault-lsp-demo-") as index:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("VAULT_LSP_")},
            "VAULT_LSP_INDEX_DIR": index,
            "VAULT_LSP_MODEL_DIR": str(Path(index) / "models"),
            "PYTHONUTF8": "1",
        }
        try:
            shell(environment)
            editor(environment)
        except UnexpectedError as problem:
            print(f"\nNot as expected: {problem}", file=sys.stderr)
            return 1
    print("\nAll as expected.")
    return 0


# At the shell


def shell(environment: dict[str, str]) -> None:
    """Index the vault, search it and follow links, as a person at a prompt would."""
    title("The index")
    print(run(environment, "index"))
    print(run(environment, "status"))
    title("Search")
    for query, wanted in SEARCHES.items():
        print(run(environment, "search", query, "-k", "3"))
        answer = json.loads(run(environment, "search", query, "-k", "3", "--json", echo=False))
        paths = [result["path"] for result in answer["results"]]
        expect(wanted in paths, f"search {query!r} gave {paths}, not {wanted}")
    title("Search across languages")
    if "multilingual-e5-small" in run(environment, "model", "list"):
        for query, wanted in ACROSS.items():
            print(run(environment, "search", query, "-k", "3"))
            answer = json.loads(run(environment, "search", query, "-k", "3", "--json", echo=False))
            paths = [result["path"] for result in answer["results"]]
            expect(answer["semantic"] == "on", f"no search by meaning: {answer['note']}")
            expect(wanted in paths, f"search {query!r} gave {paths}, not {wanted}")
    else:
        print("No model is bundled for this platform.")
    title("Links")
    backlinks = run(environment, "backlinks", "beds/South bed.md")
    print(backlinks)
    expect("crops/Tomato.md" in backlinks, "the south bed has no backlink from the tomatoes")


def run(environment: dict[str, str], *arguments: str, echo: bool = True) -> str:
    """Run one command inside the vault and return what it prints."""
    if echo:
        print("$ vault-lsp " + " ".join(f'"{word}"' if " " in word else word for word in arguments))
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=VAULT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    expect(done.returncode == 0, f"vault-lsp {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.rstrip() + "\n"


# In the editor


def editor(environment: dict[str, str]) -> None:
    """Open two notes in the language server: go to a definition, read the diagnostics, mend one of them."""
    title("An editor session")
    with session(environment) as server:
        server.request(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": VAULT.as_uri(),
                "workspaceFolders": [{"uri": VAULT.as_uri(), "name": VAULT.name}],
                "capabilities": {
                    "general": {"positionEncodings": ["utf-16"]},
                    "textDocument": {"publishDiagnostics": {"relatedInformation": True}},
                },
            },
        )
        server.notify("initialized", {})

        tomato = server.open("crops/Tomato.md")
        line, character = tomato.find("Watering#How much")
        print(f"definition at crops/Tomato.md:{line + 1}:{character + 1}, on [[Watering#How much]]")
        target = only(server.at("textDocument/definition", tomato, line, character))
        where, number = place(target)
        print(f"  → {where}:{number + 1}: {Document(where).lines[number]}\n")
        expect(
            (where, Document(where).lines[number]) == ("methods/Watering.md", "## How much"),
            f"the definition of Watering#How much is {where}:{number + 1}",
        )

        for rule, path in ANNOUNCED.items():
            document = server.open(path)
            found = server.diagnostics(document)
            for item in found:
                show(path, item)
            rules = [item.get("code") for item in found]
            expect(rules == [rule], f"{path} has the findings {rules}, not only {rule}")

        watering = Document("methods/Watering.md")
        print("\nThe unsaved text of methods/Watering.md now says [[Compost#Turning]]:")
        mended = watering.text.replace("Compost#Leaf mould", "Compost#Turning")
        server.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": watering.uri, "version": 2}, "contentChanges": [{"text": mended}]},
        )
        left = server.diagnostics(watering, version=2)
        print(f"  {len(left)} findings\n")
        expect(not left, f"methods/Watering.md still has findings: {left}")

        names = [item["name"] for item in server.request("workspace/symbol", {"query": "番茄"}) or []]
        print(f"workspace symbols for 番茄: {', '.join(names[:4])}")
        expect("番茄种植" in names, f"the symbols for 番茄 are {names}")


class Document:
    """A note of the vault as the editor sees it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.uri = (VAULT / path).as_uri()
        self.text = (VAULT / path).read_text(encoding="utf-8")
        self.lines = self.text.split("\n")

    def find(self, words: str) -> tuple[int, int]:
        """Line and UTF-16 column, from 0, where the words begin."""
        for number, line in enumerate(self.lines):
            before, found, _ = line.partition(words)
            if found:
                return number, len(before.encode("utf-16-le")) // 2
        raise UnexpectedError(f"{self.path} doesn't say {words!r}")


class Server:
    """The client's end of a language server on a pipe. Every wait ends after `SECONDS`."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._stdin = stdin
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._published: dict[str, dict[str, Any]] = {}
        self._last = 0
        threading.Thread(target=self._read, args=(stdout,), daemon=True).start()

    def request(self, method: str, params: Any) -> Any:
        """The result of a request; other messages that arrive meanwhile are dealt with."""
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        deadline = time.monotonic() + SECONDS
        while True:
            message = self._receive(deadline, method)
            if "method" not in message and message.get("id") == self._last:
                if "error" in message:
                    raise UnexpectedError(f"{method} failed: {message['error']['message']}")
                return message.get("result")

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def open(self, path: str) -> Document:
        """Open a note of the vault."""
        document = Document(path)
        item = {"uri": document.uri, "languageId": "markdown", "version": 1, "text": document.text}
        self.notify("textDocument/didOpen", {"textDocument": item})
        return document

    def at(self, method: str, document: Document, line: int, character: int) -> Any:
        """A request about one position of a document."""
        position = {"line": line, "character": character}
        return self.request(method, {"textDocument": {"uri": document.uri}, "position": position})

    def diagnostics(self, document: Document, version: int = 1) -> list[dict[str, Any]]:
        """What the server publishes for that version of the document."""
        deadline = time.monotonic() + SECONDS
        while self._published.get(document.uri, {}).get("version") != version:
            self._receive(deadline, f"the diagnostics of {document.path}")
        return list(self._published[document.uri]["diagnostics"])

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        try:
            self._stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            self._stdin.flush()
        except OSError as error:
            raise UnexpectedError("the server has gone") from error

    def _receive(self, deadline: float, awaited: str) -> dict[str, Any]:
        try:
            message = self._messages.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise UnexpectedError(f"no answer within {SECONDS} s: {awaited}") from None
        if message is None:
            raise UnexpectedError(f"the server ended before it sent {awaited}")
        if message.get("method") == "textDocument/publishDiagnostics":
            self._published[message["params"]["uri"]] = message["params"]
        elif "method" in message and "id" in message:
            answer = (
                [None for _ in message["params"]["items"]] if message["method"] == "workspace/configuration" else None
            )
            self._send({"id": message["id"], "result": answer})
        return message

    def _read(self, stdout: IO[bytes]) -> None:
        while head := stdout.readline():
            length = 0
            while head.strip():
                name, _, value = head.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
                head = stdout.readline()
            self._messages.put(json.loads(stdout.read(length)))
        self._messages.put(None)


@contextmanager
def session(environment: dict[str, str]) -> Iterator[Server]:
    """A server process that is shut down as the protocol asks, and ended in any case."""
    with subprocess.Popen(
        [*COMMAND, "lsp"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=VAULT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            server = Server(process.stdin, process.stdout)
            yield server
            server.request("shutdown", None)
            server.notify("exit", None)
            try:
                code = process.wait(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                raise UnexpectedError("the server doesn't end after exit") from None
            expect(code == 0, f"the server ended with {code}")
        finally:
            process.kill()


# Printing and checking


def title(words: str) -> None:
    """A heading of the output."""
    print(f"\n== {words} ==\n")


def expect(holds: bool, problem: str) -> None:  # noqa: FBT001  reads as an assertion does
    """Stop with the problem unless the condition holds."""
    if not holds:
        raise UnexpectedError(problem)


def only(answer: Any) -> dict[str, Any]:
    """The single location of a definition, in any of the forms that the protocol allows."""
    items = answer if isinstance(answer, list) else [answer] if answer else []
    expect(len(items) == 1, f"{len(items)} locations where one was due")
    return dict(items[0])


def place(location: dict[str, Any]) -> tuple[str, int]:
    """Vault path and line, from 0, of a Location or LocationLink."""
    uri = location.get("uri") or location["targetUri"]
    span = location.get("range") or location["targetSelectionRange"]
    return Path(unquote(urlsplit(uri).path)).relative_to(VAULT).as_posix(), span["start"]["line"]


def show(path: str, item: dict[str, Any]) -> None:
    """One diagnostic the way compilers print theirs."""
    severity = ("error", "warning", "information", "hint")[item.get("severity", 1) - 1]
    start = item["range"]["start"]
    print(f"{path}:{start['line'] + 1}:{start['character'] + 1}: {severity}: {item['message']} [{item.get('code')}]")
    for related in item.get("relatedInformation") or []:
        where, number = place(related["location"])
        print(f"    {where}:{number + 1}: {related['message']}")


if __name__ == "__main__":
    sys.exit(main())
