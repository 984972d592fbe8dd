"""One server for the tests of a file; each test brings its own vault as a workspace folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import PATIENCE, Client, Cursor, serving, vault, write

FULL_CLIENT = {
    "textDocument": {
        "definition": {"linkSupport": True},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
        "publishDiagnostics": {"relatedInformation": True},
    }
}


class Opened:
    """A vault that is part of a client's session."""

    def __init__(self, client: Client, root: Path, files: Mapping[str, str], cursor: Cursor | None) -> None:
        self.client = client
        self.root = root
        self.files = files
        self.cursor = cursor

    def uri(self, path: str) -> str:
        return (self.root / path).as_uri()

    def path(self, uri: str) -> str:
        prefix = self.root.as_uri() + "/"
        return uri.removeprefix(prefix) if uri.startswith(prefix) else uri

    def open(self, path: str, text: str | None = None, version: int = 1) -> str:
        uri = self.uri(path)
        self.client.open(uri, self.files[path] if text is None else text, version)
        return uri

    def ask(self, method: str, path: str, line: int, character: int, **more: Any) -> Any:
        return self.client.at(method, self.uri(path), line, character, **more)

    def ask_at_cursor(self, method: str, **more: Any) -> Any:
        assert self.cursor is not None
        return self.ask(method, *self.cursor, **more)

    def targets(self, path: str, line: int, character: int) -> list[str]:
        """Where definition leads, as `path:line`."""
        return [self.spot(found) for found in self.ask("definition", path, line, character) or []]

    def spot(self, found: Mapping[str, Any]) -> str:
        """A location or a location link as `path:line`."""
        uri = found.get("uri") or found["targetUri"]
        place = found.get("range") or found["targetSelectionRange"]
        return f"{self.path(uri)}:{place['start']['line']}"

    def broken(self, path: str) -> list[str]:
        """What the client was last told to be wrong in a note, as `rule line:from-to`."""
        return [shown(each) for each in self.client.published(self.uri(path)) or []]

    def wait_for_findings(self, path: str, expected: list[str], timeout: float = PATIENCE) -> None:
        uri = self.uri(path)
        try:
            self.client.wait_for(
                lambda: (found := self.client.published(uri)) is not None and [shown(x) for x in found] == expected,
                timeout,
            )
        except TimeoutError:
            assert self.broken(path) == expected
            raise

    def symbols(self, query: str) -> list[tuple[str, str]]:
        """Name and path of the symbols of this vault."""
        found = self.client.request("workspace/symbol", {"query": query})
        here = self.root.as_uri() + "/"
        return [(x["name"], self.path(x["location"]["uri"])) for x in found if x["location"]["uri"].startswith(here)]


def shown(diagnostic: Mapping[str, Any]) -> str:
    start, end = diagnostic["range"]["start"], diagnostic["range"]["end"]
    return f"{diagnostic['code']} {start['line']}:{start['character']}-{end['character']}"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(tmp_path_factory.mktemp("cache")) as running:
        running.initialize(capabilities=FULL_CLIENT)
        yield running


@pytest.fixture
def opened(client: Client, tmp_path: Path) -> Iterator[Callable[[str], Opened]]:
    """Makes a vault of a fixture string, and a workspace folder of the vault."""
    folders = []

    def make(text: str, folder: str = "vault") -> Opened:
        files, cursor = vault(text)
        root = tmp_path / folder
        root.mkdir(exist_ok=True, parents=True)
        write(root, files)
        folder_named = {"uri": root.as_uri(), "name": folder}
        client.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [folder_named], "removed": []}})
        folders.append(folder_named)
        return Opened(client, root, files, cursor)

    yield make
    for uri in {note["uri"] for note in client.notified("textDocument/publishDiagnostics")}:
        client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    client.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [], "removed": folders}})
    client.notes.clear()
