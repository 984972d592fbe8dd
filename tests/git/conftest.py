"""Real repositories with the hooks in them, and a look at what the hooks left in the index."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import environment, write


class Repo:
    """A repository, in an environment of its own: no setting of the user's, an index folder of the test's."""

    def __init__(self, top: Path, base: Path, *, init: bool = True) -> None:
        self.top = top
        self.base = base
        self.env = {
            **{name: value for name, value in environment().items() if not name.startswith(("GIT_", "VAULT_LSP_"))},
            "HOME": str(base / "home"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "A",
            "GIT_AUTHOR_EMAIL": "a@localhost",
            "GIT_COMMITTER_NAME": "A",
            "GIT_COMMITTER_EMAIL": "a@localhost",
            "VAULT_LSP_INDEX_DIR": str(base / "index"),
            "VAULT_LSP_MODEL_DIR": str(base / "models"),
            "VAULT_LSP_EMBEDDING": "none",
        }
        (base / "home").mkdir(exist_ok=True)
        if init:
            top.mkdir(parents=True, exist_ok=True)
            self.git("init", "-q", "-b", "main")

    def at(self, top: Path) -> Repo:
        """The same surroundings for another working tree."""
        return Repo(top, self.base, init=False)

    def run(
        self, *command: str | bytes, env: Mapping[str, str] | None = None, folder: Path | None = None, code: int = 0
    ) -> str:
        """What a command prints, errors included; it ends with `code`."""
        done = subprocess.run(
            command,
            cwd=folder or self.top,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def git(
        self, *arguments: str | bytes, env: Mapping[str, str] | None = None, folder: Path | None = None, code: int = 0
    ) -> str:
        return self.run("git", *arguments, env=env, folder=folder, code=code)

    def command(
        self, *arguments: str, env: Mapping[str, str] | None = None, folder: Path | None = None, code: int = 0
    ) -> str:
        """What `vault-lsp` prints."""
        return self.run(sys.executable, "-P", "-m", "vault_lsp", *arguments, env=env, folder=folder, code=code)

    def write(self, files: Mapping[str, str | bytes]) -> None:
        write(self.top, files)

    def commit(self, files: Mapping[str, str | bytes], *options: str, **more: Mapping[str, str]) -> str:
        """Write files and commit all there is; what git printed."""
        self.write(files)
        self.git("add", "-A")
        return self.git("commit", "-q", "-m", "c", *options, **more)

    def found(self, word: str, vault: Path | None = None) -> list[str]:
        """The notes that hold a word, as the index has them."""
        answer = self.command(
            "search", "--no-sync", "--json", "--mode", "keyword", "-k", "50", word, "--vault", str(vault or self.top)
        )
        return sorted(result["path"] for result in json.loads(answer.splitlines()[-1])["results"])

    def rest(self) -> None:
        """Wait until no hook of this test is at work any more."""
        marker = os.fsencode(str(self.base / "index"))
        deadline = time.monotonic() + 60
        quiet = 0
        while quiet < 2:
            assert time.monotonic() < deadline, "a hook goes on for ever"
            quiet = quiet + 1 if not _at_work(marker) else 0
            time.sleep(0.05)

    def shows(self, expected: Mapping[str, list[str]], vault: Path | None = None) -> None:
        """After the hooks are done, each word is in just these notes."""
        self.rest()
        assert {word: self.found(word, vault) for word in expected} == expected


def _at_work(marker: bytes) -> list[int]:
    """Processes of this test that run a hook: those with its index folder in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if marker in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """A repository that is a vault, with the hooks and an empty index."""
    repo = Repo(tmp_path / "repo", tmp_path)
    repo.command("hook", "install")
    return repo


@pytest.fixture
def bare(tmp_path: Path) -> Repo:
    """A repository without hooks."""
    return Repo(tmp_path / "repo", tmp_path)
