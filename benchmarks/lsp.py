"""The language server against a peer and a floor, in one run on one vault.

    python benchmarks/lsp.py VAULT [--peer path/to/vscode-markdown-languageserver/dist/node/workerMain.js] [--rounds N]

The vault is copied and given probe notes: each holds `note.md#heading` links, one of them to the note with the most
backlinks. The peer leaves parsing and file access to its client; all the time that its requests spend here is
subtracted from its figures. The floor of a start is a pygls server without a feature that answers `initialize`.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlparse

from vault_lsp.core.model import Found, NotePath
from vault_lsp.service import Vault

PROBES = 20
BARE = """
from pygls.lsp.server import LanguageServer
LanguageServer("bare", "1").start_io()
"""


class Client:
    """One server on a pipe. `spent` sums the seconds that its requests to us took."""

    def __init__(self, command: list[str], root: Path, env: dict[str, str], *, answers_files: bool = False) -> None:
        self.root = root
        self.spent = 0.0
        self.published: queue.Queue[tuple[float, dict[str, Any]]] = queue.Queue()
        self._answers: dict[int, queue.Queue[tuple[float, dict[str, Any]]]] = {}
        self._last = 0
        self._lock = threading.Lock()
        self._markdown: Any = None
        if answers_files:
            from markdown_it import MarkdownIt

            self._markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root, env=env
        )
        threading.Thread(target=self._read, daemon=True).start()

    def uri(self, path: str) -> str:
        return f"file://{quote(str(self.root))}/{quote(path)}"

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, params: Any, seconds: float = 120) -> tuple[float, Any]:
        """Seconds from the request to its answer, our own work subtracted, and the answer."""
        self._last += 1
        answers = self._answers[self._last] = queue.Queue()
        spent, begun = self.spent, time.perf_counter()
        self._send({"id": self._last, "method": method, "params": params})
        ended, message = answers.get(timeout=seconds)
        if "error" in message:
            raise SystemExit(f"{method}: {message['error']}")
        return ended - begun - (self.spent - spent), message.get("result")

    def initialize(self) -> float:
        uri = self.uri("").rstrip("/")
        self.ask(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": uri,
                "workspaceFolders": [{"uri": uri, "name": "vault"}],
                "capabilities": {
                    "general": {"positionEncodings": ["utf-16"]},
                    "workspace": {"workspaceFolders": True, "configuration": True},
                    "textDocument": {"diagnostic": {"dynamicRegistration": False}, "definition": {"linkSupport": True}},
                },
                "initializationOptions": {"markdownFileExtensions": ["md"]},
            },
        )
        taken = time.perf_counter() - self.started
        self.notify("initialized", {})
        validate = {"enabled": True, **{f"{kind}.enabled": "warning" for kind in ("fileLinks", "fragmentLinks")}}
        validate |= {"referenceLinks": {"enabled": "warning"}, "fragmentLinks": {"enabled": "warning"}}
        validate |= {"fileLinks": {"enabled": "warning", "markdownFragmentLinks": "warning"}, "ignoredLinks": []}
        validate |= {"unusedLinkDefinitions": {"enabled": "hint"}, "duplicateLinkDefinitions": {"enabled": "warning"}}
        self.notify("workspace/didChangeConfiguration", {"settings": {"markdown": {"validate": validate}}})
        return taken

    def open(self, path: str, text: str) -> None:
        self.notify(
            "textDocument/didOpen",
            {"textDocument": {"uri": self.uri(path), "languageId": "markdown", "version": 1, "text": text}},
        )

    def close(self) -> None:
        try:
            self.ask("shutdown", None, 10)
            self.notify("exit", None)
            self.process.wait(10)
        except (queue.Empty, subprocess.TimeoutExpired, OSError):
            self.process.kill()
        self.process.wait()

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        with self._lock:
            self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            self.process.stdin.flush()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while True:
            length = 0
            while (line := stream.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            if not line:
                return
            message = json.loads(stream.read(length))
            now = time.perf_counter()
            if "method" not in message:
                self._answers[message["id"]].put((now, message))
            elif "id" in message:
                self._send({"id": message["id"], "result": self._serve(message["method"], message.get("params"))})
                self.spent += time.perf_counter() - now
            elif message["method"] == "textDocument/publishDiagnostics":
                self.published.put((now, message["params"]))

    def _serve(self, method: str, params: Any) -> Any:
        if method == "workspace/configuration":
            return [None for _ in params["items"]]
        if method == "markdown/findMarkdownFilesInWorkspace":
            return [self.uri(file.relative_to(self.root).as_posix()) for file in self.root.rglob("*.md")]
        if not method.startswith("markdown/") or "uri" not in params:
            return None
        file = Path(unquote(urlparse(params["uri"]).path))
        if method == "markdown/parse":
            text = params.get("text")
            source = file.read_text("utf-8", "replace") if text is None else text
            return [token.as_dict() for token in self._markdown.parse(source)]
        if method == "markdown/fs/readFile":
            return list(file.read_bytes())
        if method == "markdown/fs/stat":
            return {"isDirectory": file.is_dir()} if file.exists() else None
        if method == "markdown/fs/readDirectory":
            return [[child.name, {"isDirectory": child.is_dir()}] for child in file.iterdir()]
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vault", type=Path)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vault-lsp-bench-") as folder:
        root = Path(folder).resolve() / "vault"
        shutil.copytree(args.vault, root, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        env = {**os.environ, "VAULT_LSP_INDEX_DIR": str(Path(folder) / "index")}
        os.environ["VAULT_LSP_INDEX_DIR"] = env["VAULT_LSP_INDEX_DIR"]
        server = [sys.executable, "-m", "vault_lsp", "lsp"]

        probes, hub, backlinks = write_probes(root)
        print(f"{hub} has {backlinks} backlinks; {len(probes)} probe notes")
        shutil.rmtree(env["VAULT_LSP_INDEX_DIR"])
        first_index(server, root, env, probes)
        starts(server, root, env, probes, args.rounds)
        figures = {"vault-lsp": warm(Client(server, root, env), probes, args.rounds)}
        if args.peer:
            node = ["node", str(args.peer), "--stdio"]
            figures["peer"] = warm(Client(node, root, env, answers_files=True), probes, args.rounds)
        report(figures)


def write_probes(root: Path) -> tuple[list[tuple[str, str]], NotePath, int]:
    """Write the probe notes; they, the note with most backlinks, and how many it has."""
    vault = Vault.open(root)
    vault.reconcile()
    with vault.view() as view:
        paths = view.paths()
        counted: Counter[NotePath] = Counter()
        for path in paths:
            targets = {found.path for _, found in view.links(path) if isinstance(found, Found)}
            counted.update(targets - {path})
        hub, backlinks = counted.most_common(1)[0]
        chosen = random.Random(7)
        with_headings = []
        for path in chosen.sample(paths, min(len(paths), 400)):
            note = view.note(path)
            slugs = [h.slug for h in note.headings[1:] if h.linkable and h.slug.isascii()] if note else []
            if slugs:
                with_headings.append(f"/{quote(path)}#{slugs[len(slugs) // 2]}")
    vault.close()
    folder = root / "probes"
    folder.mkdir()
    probes = []
    for number in range(PROBES):
        links = "\n".join(f"- [probe {i}]({link})" for i, link in enumerate(chosen.sample(with_headings, 8)))
        text = f"# Probe {number}\n\n[hub](/{quote(hub)})\n\n{links}\n\n[gone](/no-such-note-{number}.md)\n"
        (folder / f"p{number}.md").write_text(text, "utf-8")
        probes.append((f"probes/p{number}.md", text))
    return probes, hub, backlinks


def first_index(server: list[str], root: Path, env: dict[str, str], probes: list[tuple[str, str]]) -> None:
    """While nothing is indexed: when is a file found, and how long do definitions take until all is indexed?"""
    client = Client(server, root, env)
    client.initialize()
    path, text = probes[0]
    client.open(path, text)
    position = {"textDocument": {"uri": client.uri(path)}, "position": {"line": 2, "character": 3}}
    times: list[float] = []
    found_after = 0.0
    while time.perf_counter() - client.started < 120:
        seconds, answer = client.ask("textDocument/definition", position)
        if answer and not found_after:
            found_after = time.perf_counter() - client.started
        if found_after:
            times.append(seconds)
        _, whole = client.ask("workspace/symbol", {"query": "Probe 19"}) if len(times) % 50 == 49 else (0, None)
        if whole and indexed(env) >= 1:
            break
        time.sleep(0.02)
    print(f"first index: a definition after {found_after:.2f} s; while it ran: {summary(times)}")
    client.close()


def indexed(env: dict[str, str]) -> float:
    """Share of the notes whose content is in the index."""
    import apsw

    (file,) = Path(env["VAULT_LSP_INDEX_DIR"]).glob("*/index-v*.db")
    connection = apsw.Connection(str(file))
    (share,) = connection.execute("SELECT avg(hash IS NOT NULL) FROM documents").fetchone()
    connection.close()
    return float(share or 0)


def starts(server: list[str], root: Path, env: dict[str, str], probes: list[tuple[str, str]], rounds: int) -> None:
    """From the start of the process to the first right definition, above what a bare server needs to answer."""
    bare, ours = [], []
    for number in range(rounds):
        client = Client([sys.executable, "-c", BARE], root, env)
        bare.append(client.initialize())
        client.close()
        path, text = probes[number % len(probes)]
        client = Client(server, root, env)
        client.initialize()
        client.open(path, text)
        _, answer = client.ask("textDocument/definition", place(client, path, text, 4))
        ours.append(time.perf_counter() - client.started)
        if not answer:
            raise SystemExit("the first definition is wrong")
        client.close()
    above = statistics.median(ours) - statistics.median(bare)
    print(
        f"start: bare pygls {statistics.median(bare):.3f} s, first definition {statistics.median(ours):.3f} s:"
        f" {above:+.3f} s (goal: at most +0.250 s)"
    )


def warm(client: Client, probes: list[tuple[str, str]], rounds: int) -> dict[str, list[float]]:
    """Each question asked of each probe note, after one round that nobody counts."""
    client.initialize()
    for path, text in probes:
        client.open(path, text)
    figures: dict[str, list[float]] = {"definition": [], "references": [], "workspace symbol": [], "diagnostics": []}
    version = 1
    for number in range(rounds + 1):
        counted = figures if number else {name: [] for name in figures}
        for path, text in probes:
            for line in (4, 7, 10):
                seconds, answer = client.ask("textDocument/definition", place(client, path, text, line))
                if not answer:
                    raise SystemExit(f"no definition for line {line} of {path}")
                counted["definition"].append(seconds)
        for path, text in probes[:5]:
            context = {"context": {"includeDeclaration": False}}
            seconds, answer = client.ask("textDocument/references", {**place(client, path, text, 2), **context})
            counted["references"].append(seconds)
            found = len(answer or ())
        for query in ("Probe 7", "Two Sum", "solution", "tree", "数组"):
            seconds, _ = client.ask("workspace/symbol", {"query": query})
            counted["workspace symbol"].append(seconds)
        for path, text in probes:
            version += 1
            change = {"text": text + f"\n[gone {version}](/missing-{version}.md)\n"}
            document = {"uri": client.uri(path), "version": version}
            begun, spent = time.perf_counter(), client.spent
            client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})
            _, answer = client.ask("textDocument/diagnostic", {"textDocument": {"uri": document["uri"]}})
            counted["diagnostics"].append(time.perf_counter() - begun - (client.spent - spent))
            if len(answer["items"]) != 2:
                raise SystemExit(f"{len(answer['items'])} diagnostics in {path}, not 2: {answer}")
    print(f"{client.process.args[0]!s:.40}: references found {found}")
    client.close()
    return figures


def place(client: Client, path: str, text: str, line: int) -> dict[str, Any]:
    """A position inside the destination of the link on a line."""
    column = text.split("\n")[line].index("](") + 4
    return {"textDocument": {"uri": client.uri(path)}, "position": {"line": line, "character": column}}


def report(figures: dict[str, dict[str, list[float]]]) -> None:
    for question in next(iter(figures.values())):
        shown = [f"{name} {summary(by[question])}" for name, by in figures.items()]
        if len(figures) > 1:
            ours, peer = (statistics.median(by[question]) for by in figures.values())
            shown.append(f"ratio {ours / peer:.2f}")
        print(f"{question:17} " + "; ".join(shown))


def summary(times: Iterable[float]) -> str:
    ordered = sorted(times)
    if not ordered:
        return "nothing measured"
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return f"median {statistics.median(ordered) * 1000:.1f} ms, p95 {p95 * 1000:.1f} ms"


if __name__ == "__main__":
    main()
