"""Cases that tell a course of events, written out: one function each, under the case's id."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from client import Client, FailedError, Json, expect

from vault_lsp.core.model import NotePath

CURSOR = "<|>"


class Scene:
    """The files of a case and a session on them."""

    def __init__(self, folder: Path, texts: dict[str, str], env: dict[str, str], roots: list[Path]) -> None:
        self.folder = folder
        self.vault = roots[0]
        self.env = env
        self.roots = roots
        self.texts = {path: text.replace(CURSOR, "") for path, text in texts.items()}
        self._cursors = {path: text.index(CURSOR) for path, text in texts.items() if CURSOR in text}
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client(self.vault, self.env, folders=self.roots).__enter__()
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.__exit__()

    def cursor(self) -> tuple[str, int, int]:
        """Path, line and UTF-16 column of the cursor; the note is opened."""
        [(path, offset)] = self._cursors.items()
        before = self.texts[path][:offset]
        self.client.open(path, self.texts[path])
        line = before.count("\n")
        return path, line, len(before.rpartition("\n")[2].encode("utf-16-le")) // 2

    def notes(self) -> Iterator[tuple[NotePath, str]]:
        return ((self.path(path), text) for path, text in self.texts.items() if path.endswith(".md"))

    @staticmethod
    def path(text: str) -> NotePath:
        return NotePath(text)

    def write(self, path: str, text: str) -> None:
        file = self.vault / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def names(self, query: str) -> list[str]:
        """Symbols whose own name has the query: the search also lists notes that say the word."""
        return [item["name"] for item in self.client.symbols(query) if query.lower() in item["name"].lower()]

    def until(self, holds: Callable[[], bool], problem: str, seconds: float = 10.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            expect(time.monotonic() < deadline, problem)
            self.client.settle(0.1)

    def counted(self, path: str, count: int, problem: str) -> None:
        found = self.client.diagnostics_until(path, lambda items: len(items) == count)
        expect(len(found) == count, f"{problem}: {[item['code'] for item in found]}")


SCENARIOS: dict[str, Callable[[Scene], None]] = {}


def scenario(name: str) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    def register(run: Callable[[Scene], None]) -> Callable[[Scene], None]:
        SCENARIOS[name] = run
        return run

    return register


@scenario("H01")
def buffer_and_outside(scene: Scene) -> None:
    client = scene.client
    client.open("fig.md", "# Buffer\n")
    scene.until(lambda: scene.names("Buffer") == ["Buffer"], "the buffer's heading is no symbol")
    scene.write("fig.md", "# Outside\n")
    client.watched(("fig.md", 2))
    client.settle(1.0)
    expect(scene.names("Buffer") and not scene.names("Outside"), f"{scene.names('Buffer')} {scene.names('Outside')}")
    client.close("fig.md")
    scene.until(lambda: scene.names("Outside") == ["Outside"], "the disk doesn't count after closing")


@scenario("H02")
def created_outside(scene: Scene) -> None:
    scene.counted("a.md", 1, "at first")
    scene.write("late.md", "x\n")
    scene.counted("a.md", 0, "after another process created the note")


@scenario("H04")
def moved_outside(scene: Scene) -> None:
    client = scene.client
    scene.counted("a.md", 0, "at first")
    (scene.vault / "deep").mkdir()
    (scene.vault / "fig.md").rename(scene.vault / "deep/fig.md")

    def files() -> list[str]:
        return [client.path(item["location"]["uri"]) for item in client.symbols("fig") if item["kind"] == 1]

    def moved() -> bool:
        return [path for path in files() if path.endswith("fig.md")] == ["deep/fig.md"]

    scene.until(moved, "the symbols don't follow the move")
    scene.counted("a.md", 0, "after the move")


@scenario("H05")
def changes_in_order(scene: Scene) -> None:
    """Three changes in one notification, each on the text that the one before left; then behind a wide character."""
    for first in ("one", "🌱one"):
        client = scene.client
        width = len(first.encode("utf-16-le")) // 2
        if "a.md" in client.texts:
            client.replace("a.md", f"{first}\ntwo\n")
        else:
            client.open("a.md", f"{first}\ntwo\n")
        changes = [
            edit((0, width), (0, width), " [[gone]]"),
            edit((0, width + 9), (0, width + 9), "\nnew [[lost]] line"),
            edit((1, 4), (1, 12), "[[missing]]"),
        ]
        text = f"{first} [[gone]]\nnew [[missing]] line\ntwo\n"
        client.change("a.md", changes, text)
        by_range = client.diagnostics("a.md")
        client.replace("a.md", text)
        whole = client.diagnostics("a.md")
        expect([item["range"] for item in by_range] == [item["range"] for item in whole], "the texts differ")
        starts = [(item["range"]["start"]["line"], item["range"]["start"]["character"]) for item in whole]
        expect([line for line, _ in starts] == [0, 1], f"findings at {starts}")
        expect(starts[0][1] in (width + 1, width + 3), f"findings at {starts}")


def edit(start: tuple[int, int], end: tuple[int, int], text: str) -> Json:
    ends = {"start": start, "end": end}
    return {"range": {side: {"line": at[0], "character": at[1]} for side, at in ends.items()}, "text": text}


@scenario("H07")
def unknown_method(scene: Scene) -> None:
    answer = scene.client.answer(scene.client.start("textDocument/notAMethod", {}))
    expect(answer.get("error", {}).get("code") == -32601, f"{answer}")
    scene.client.symbols("x")


@scenario("H08")
def many_deleted(scene: Scene) -> None:
    client = scene.client
    # The other half is linked to: what stays has nothing but broken links.
    scene.counted("n150.md", 0, "at first")
    scene.until(lambda: count(client) == 200, f"{count(client)} notes at first")
    published = len(client.publications)
    for number in range(100):
        (scene.vault / f"n{number}.md").unlink()
    client.watched(*((f"n{number}.md", 3) for number in range(100)))
    scene.until(lambda: count(client) == 100, "deleted notes are still symbols")
    scene.counted("n150.md", 1, "after the deletion")
    client.settle(1.0)
    pushed = [item for item in client.publications[published:] if item["uri"] == client.uri("n150.md")]
    expect(len(pushed) <= 2, f"{len(pushed)} publications for one batch")


def count(client: Client) -> int:
    return sum(item["kind"] == 1 for item in client.symbols("")) if len(client.symbols("")) < 200 else 200


@scenario("H13")
def cancelled(scene: Scene) -> None:
    client = scene.client
    numbers = [client.start("workspace/symbol", {"query": "a"}) for _ in range(50)]
    for number in numbers[:-1]:
        client.notify("$/cancelRequest", {"id": number})
    begun = time.monotonic()
    last = client.answer(numbers[-1])
    expect("result" in last and time.monotonic() - begun < 5, f"the last answer: {last}")
    for number in numbers[:-1]:
        answer = client.answer(number)
        expect("result" in answer or answer["error"]["code"] == -32800, f"{answer}")


@scenario("H14")
def single_file(scene: Scene) -> None:
    scene.roots = []
    client = scene.client
    client.texts.clear()
    found = client.diagnostics("x.md")
    expect(not found, f"findings in a single file: {[item['code'] for item in found]}")
    client.replace("x.md", "# Own\n\n[[#Own]] [[#Other]]\n")
    found = client.diagnostics("x.md")
    expect([item["code"] for item in found] == ["broken-heading"], f"{[item['code'] for item in found]}")
    targets = client.definition("x.md", 2, 4)
    if [target.line for target in targets] != [0]:
        raise FailedError(f"the own heading is {targets}")
