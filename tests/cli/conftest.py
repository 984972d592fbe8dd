"""Commands run inside the test's own process, with their streams caught as bytes."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import environment, write
from vault_lsp.cli import run


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


def run_on_terminal(*arguments: str, cwd: Path) -> tuple[bytes, bytes]:
    """Runs a command whose stderr is a terminal; its stdout, and what the terminal showed."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "vault_lsp", *arguments],
            cwd=cwd,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=theirs,
        )
        os.close(theirs)
        shown = bytearray()
        while True:
            ready, _, _ = select.select([ours], [], [], 30)
            try:
                data = os.read(ours, 4096) if ready else b""
            except OSError:  # the other side is gone
                break
            if not data:
                break
            shown += data
        out, _ = process.communicate(timeout=20)
        assert process.returncode == 0, shown
    finally:
        os.close(ours)
    return out, bytes(shown)


@pytest.fixture
def on_terminal() -> Callable[..., tuple[bytes, bytes]]:
    """Runs a command in a process of its own whose stderr is a terminal."""
    return run_on_terminal


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_LSP_INDEX_DIR", str(tmp_path / "index"))
    monkeypatch.setenv("VAULT_LSP_MODEL_DIR", str(tmp_path / "models"))
    monkeypatch.delenv("VAULT_LSP_VAULT", raising=False)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Shell]:
    """Makes a vault named `vault` of path → content, with the current folder in it."""

    def make(**files: str | bytes) -> Shell:
        root = tmp_path / "vault"
        (root / ".obsidian").mkdir(parents=True, exist_ok=True)
        write(root, files)
        monkeypatch.chdir(root)
        return Shell(root, monkeypatch)

    return make
