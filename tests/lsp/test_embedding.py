"""Vectors that the server makes by itself, with a real tiny model: when, by whom, and what is told about it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import apsw
import pytest

from tests.support import Client, serving, write
from tests.tiny_models import tiny_embedder
from vault_lsp.service import Vault
from vault_lsp.store.vectors import embedding_lock

CONFIG = ".vault-lsp/config.yaml"
#: A note in Georgian and a question in Armenian. The model knows neither's letters: to it the two are the same text.
MEANT, SAID, QUESTION = "ბაღი.md", "წყალი პომიდორს დილით\n", "այգի ջուրըտ լոլիկներ առտու"
NOTES = 600
FILLERS = {f"notes/n{number}.md": f"# Plum {number}\n\nJam number {number} of plums.\n" for number in range(30)}


class Session:
    """A server on one vault whose model is a folder beside it."""

    def __init__(self, client: Client, root: Path, cache: Path) -> None:
        self.client = client
        self.root = root
        self.cache = cache

    @property
    def status(self) -> dict[str, Any]:
        (found,) = self.client.request("vault/status", {})["vaults"]
        return dict(found)

    def wait_until(self, **expected: Any) -> dict[str, Any]:
        """Waits until the client has been told so last."""

        def told() -> dict[str, Any] | None:
            last = [{}, *self.client.notified("vault/status")][-1]
            return last if expected.items() <= last.items() else None

        found: dict[str, Any] = self.client.wait_for(told)
        return found

    def save(self, path: str, text: str) -> None:
        write(self.root, {path: text})
        self.client.notify("textDocument/didSave", {"textDocument": {"uri": (self.root / path).as_uri()}})

    def configure(self, text: str) -> None:
        write(self.root, {CONFIG: text})
        changed = {"uri": (self.root / CONFIG).as_uri(), "type": 2}
        self.client.notify("workspace/didChangeWatchedFiles", {"changes": [changed]})

    def symbols(self, query: str) -> list[str]:
        found = self.client.request("workspace/symbol", {"query": query})
        return [unquote(each["location"]["uri"].removeprefix(self.root.as_uri() + "/")) for each in found]

    def vectors(self) -> tuple[int, int]:
        """How many vectors are stored, and how many ever were: an id is never used twice."""
        (file,) = self.cache.glob("*/vectors-v*.db")
        with closing(apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            ((count, last),) = connection.execute("SELECT count(*), max(id) FROM vectors")
        return count, last


@contextmanager
def session(
    folder: Path, files: Mapping[str, str], config: str = "embedding: {model: ../model}\n", **options: Any
) -> Iterator[Session]:
    root = write(folder / "vault", {CONFIG: config, **files})
    variables = {"VAULT_LSP_EMBEDDING": "", "VAULT_LSP_MODEL_DIR": str(folder / "models")}
    with serving(folder / "cache", env=variables) as client:
        client.initialize(root, **options)
        yield Session(client, root, folder / "cache")


@contextmanager
def slow_session(folder: Path) -> Iterator[Session]:
    """A server whose child has work for seconds."""
    tiny_embedder(folder / "model", dimensions=256, max_tokens=512)
    notes = {f"n{number}.md": f"# Note {number}\n\n{f'Text {number}. ' * 90}\n" for number in range(NOTES)}
    with session(folder, notes) as here:
        yield here


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A vault that the server has embedded."""
    folder = tmp_path_factory.mktemp("embedded")
    tiny_embedder(folder / "model")
    files = {**FILLERS, MEANT: SAID}
    with session(folder, files, capabilities={"window": {"workDoneProgress": True}}) as here:
        here.wait_until(phase="idle", semantic="on")
        yield here


def test_vectors_appear_after_a_folder_is_opened(embedded: Session) -> None:
    status = embedded.status
    assert status | {"vault": ""} == {
        "vault": "",
        "phase": "idle",
        "documents": 31,
        "problems": 0,
        "semantic": "on",
        "model": "../model",
        "embedded": 31,
        "total": 31,
        "why": "",
    }
    told = embedded.client.notified("vault/status")
    assert [each["phase"] for each in told].index("embedding") > 0
    shown = [each["value"] for each in embedded.client.notified("$/progress")]
    assert {"kind": "begin", "title": "Embedding notes", "percentage": 0} in shown
    assert shown[-1] == {"kind": "end"}


def test_a_note_is_found_by_its_meaning_alone(embedded: Session) -> None:
    answer = embedded.client.request("vault/search", {"query": QUESTION, "limit": 3, "explain": True})
    assert (answer["semantic"], answer["embedded"], answer["reranked"], answer["note"]) == ("on", 1.0, False, "")
    assert answer["results"][0]["path"] == MEANT
    assert set(answer["results"][0]["channels"]) == {"vector", "indegree"}
    found = embedded.symbols(QUESTION)
    assert found[0] == MEANT
    assert len(found) == 20  # of all that share no word with the query only the nearest are offered
    assert embedded.client.request("vault/search", {"query": QUESTION, "mode": "keyword"})["results"] == []


def test_names_come_before_meaning_and_no_note_twice(embedded: Session) -> None:
    found = embedded.symbols("plum 7")
    assert found[0] == "notes/n7.md"
    assert len(found) == len(set(found))


def test_an_open_note_is_not_found_by_what_is_saved_of_it(embedded: Session) -> None:
    uri = (embedded.root / MEANT).as_uri()
    embedded.client.open(uri, "# Other\n")
    try:
        assert MEANT not in embedded.symbols(QUESTION)
    finally:
        embedded.client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    assert MEANT in embedded.symbols(QUESTION)


def test_a_save_embeds_nothing_but_the_new_text(embedded: Session) -> None:
    stored, _ = embedded.vectors()
    embedded.save("notes/n3.md", FILLERS["notes/n3.md"] + "\n## New\n\nQuinces too.\n")
    embedded.save("notes/new.md", "# Medlar\n")
    embedded.wait_until(phase="idle", semantic="on", embedded=32, total=32)
    assert embedded.vectors() == (stored + 2, stored + 2)
    embedded.client.notify("textDocument/didSave", {"textDocument": {"uri": (embedded.root / MEANT).as_uri()}})
    (embedded.root / "notes/new.md").rename(embedded.root / "medlar.md")
    embedded.client.wait_for(lambda: "medlar.md" in embedded.symbols("Medlar"))
    embedded.wait_until(phase="idle", semantic="on", embedded=32, total=32)
    assert embedded.vectors() == (stored + 2, stored + 2)


def test_searches_while_typing_are_all_answered_and_the_last_one_in_full(embedded: Session) -> None:
    client = embedded.client
    for cancelled in (True, False):
        asked = [
            client.start("workspace/symbol", {"query": QUESTION[:length]}) for length in range(3, len(QUESTION) + 1)
        ]
        for identity in asked[:-1] if cancelled else ():
            client.notify("$/cancelRequest", {"id": identity})
        last = client.finish(asked[-1], timeout=5)
        assert last[0]["location"]["uri"] == (embedded.root / MEANT).as_uri()
        for identity in asked[:-1]:
            response = client._responses[identity].get(timeout=5)
            assert "result" in response or (cancelled and response["error"]["code"] == -32800)
    search = client.start("vault/search", {"query": QUESTION})
    client.notify("$/cancelRequest", {"id": search})
    response = client._responses[search].get(timeout=5)
    assert "result" in response or response["error"]["code"] == -32800


def test_another_model_takes_over_when_it_is_complete_and_none_turns_vectors_off(embedded: Session) -> None:
    tiny_embedder(embedded.root.parent / "other", dimensions=16, seed=1)
    embedded.configure("embedding: {model: ../other}\n")
    embedded.wait_until(phase="idle", semantic="on", model="../other")
    embedded.configure("embedding: {model: none}\n")
    embedded.wait_until(phase="idle", semantic="off", model=None, why="embedding.model is none")
    assert embedded.symbols(QUESTION) == []


def test_a_missing_model_costs_one_line_and_is_used_once_it_is_there(tmp_path: Path) -> None:
    tiny_embedder(tmp_path / "made")
    with session(tmp_path, {"a.md": "# Quince\n\nText.\n"}) as here:
        here.wait_until(phase="idle", semantic="off", documents=1)
        here.client.wait_for(lambda: b"there is no such folder" in here.client.errors)
        answer = here.client.request("vault/search", {"query": "text"})
        assert [each["path"] for each in answer["results"]] == ["a.md"]
        assert (answer["semantic"], answer["embedded"]) == ("off", 0)
        assert "there is no such folder" in answer["note"]
        here.save("b.md", "# Medlar\n")
        here.wait_until(phase="idle", semantic="off", documents=2)
        assert "there is no such folder" in here.status["why"]
        (tmp_path / "made").rename(tmp_path / "model")
        here.client.request("workspace/executeCommand", {"command": "vault-lsp.reindex"})
        here.wait_until(phase="idle", semantic="on", embedded=2, why="")
        assert here.client.errors.count(b"there is no such folder") == 1


def test_a_model_that_does_not_load_is_not_tried_again_and_again(tmp_path: Path) -> None:
    tiny_embedder(tmp_path / "model")
    (tmp_path / "model/tokenizer.json").write_text("{}")
    with session(tmp_path, {"a.md": "# Quince\n"}) as here:
        here.client.wait_for(lambda: b"nothing is embedded" in here.client.errors)
        here.save("b.md", "# Medlar\n")
        here.wait_until(phase="idle", documents=2)
        assert "tokenizer" in here.status["why"] or "can't be loaded" in here.status["why"]
        assert here.symbols("medlar") == ["b.md"]
    assert here.client.errors.count(b"nothing is embedded") == 1


def test_embedding_can_be_left_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the client's setting; and as long as another process does it."""
    tiny_embedder(tmp_path / "model")
    monkeypatch.setenv("VAULT_LSP_INDEX_DIR", str(tmp_path / "cache"))
    files = {"a.md": "# Quince\n"}
    options = {"vaultLsp": {"embedding": {"enable": False}}}
    with session(tmp_path, files, initializationOptions=options) as here:
        here.wait_until(phase="idle", documents=1)
        assert "turned off" in here.status["why"]
        vault = Vault.open(here.root)
        with embedding_lock(vault.index.folder):
            here.client.notify("workspace/didChangeConfiguration", {"settings": {"vaultLsp.embedding.enable": True}})
            here.wait_until(phase="idle", semantic="off", why="another process is embedding")
        vault.close()
        here.wait_until(phase="idle", semantic="on", why="")


def test_a_killed_child_loses_nothing_and_is_followed_by_another(tmp_path: Path) -> None:
    with slow_session(tmp_path) as here:
        here.client.wait_for(lambda: any(each["embedded"] > 0 for each in here.client.notified("vault/status")))
        os.kill(embedding_child(here.client.process.pid), signal.SIGKILL)
        here.client.wait_for(lambda: b"ended with code -9" in here.client.errors)
        before = here.vectors()[0]
        assert 0 < before < NOTES
        here.wait_until(phase="idle", semantic="on", embedded=NOTES)
        assert here.vectors() == (NOTES, NOTES)


def test_the_child_ends_with_the_session(tmp_path: Path) -> None:
    with slow_session(tmp_path) as here:
        here.wait_until(phase="embedding")
        child = embedding_child(here.client.process.pid)
        assert here.client.close() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def embedding_child(server: int) -> int:
    """The only child that a server has once all is indexed."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
    (found,) = re.findall(rf"^ *(\d+) +{server}$", listed, flags=re.MULTILINE)
    return int(found)
