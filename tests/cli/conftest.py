"""Commands run inside the test's own process, with their streams caught as bytes."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import write
from vault_lsp.cli import run
from vault_lsp.config import CONFIG_FILE

NO_MODEL = "embedding: {model: none}\n"


class Done(NamedTuple):
    """What a command left: its exit code, and its output."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def out(self) -> str:
        return self.stdout.decode()

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        assert self.out.count("\n") == 1
        return json.loads(self.out)


class Shell:
    """A vault, and a way to run commands on it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.monkeypatch = monkeypatch

    def __call__(self, *arguments: str, code: int | None = 0) -> Done:
        """Runs one command; it must end with `code` and must not show a traceback."""
        out, err = io.BytesIO(), io.BytesIO()
        with self.monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
            patch.setattr(sys, "stderr", io.TextIOWrapper(err, encoding="ascii"))
            ended = run(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
            done = Done(ended, out.getvalue(), err.getvalue().decode())
            for stream in (sys.stdout, sys.stderr):
                stream.detach()
        assert b"Traceback" not in done.stdout + done.stderr.encode()
        assert "--log-level debug shows more" not in done.stderr
        if code is not None:
            assert done.code == code, done
        return done

    def write(self, files: dict[str, str | bytes]) -> None:
        write(self.root, files)

    def hits(self, *arguments: str) -> list[str]:
        """The paths of the notes that a search finds."""
        return [result["path"] for result in self("search", "--json", *arguments).json["results"]]


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_LSP_INDEX_DIR", str(tmp_path / "index"))
    monkeypatch.setenv("VAULT_LSP_MODEL_DIR", str(tmp_path / "models"))
    for name in ("VAULT_LSP_VAULT", "VAULT_LSP_EMBEDDING"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Shell]:
    """Makes a vault named `vault` of path → content, with the current folder in it.

    It has no embedding model unless its config says so.
    """

    def make(**files: str | bytes) -> Shell:
        root = tmp_path / "vault"
        (root / ".obsidian").mkdir(parents=True, exist_ok=True)
        write(root, {CONFIG_FILE: NO_MODEL, **files})
        monkeypatch.chdir(root)
        return Shell(root, monkeypatch)

    return make
