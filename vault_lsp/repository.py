"""A git repository: where it is, where its hooks lie, and which files an event has touched.

Git is asked in the format that needs no quoting (`-z`), and in an environment without the variables by which git leads
its hooks to one repository.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from vault_lsp.errors import GitError

#: What git tells its hooks that ours follow.
Event = Literal["post-commit", "post-merge", "post-checkout", "post-rewrite"]
EVENTS: tuple[Event, ...] = get_args(Event)

#: The setting of a repository that names its vault, from the top of the working tree.
VAULT_SETTING = "vault-lsp.vault"

#: Variables of git that lead to no repository: how to reach others, and which settings count.
_HARMLESS = (
    "GIT_EXEC_PATH",
    "GIT_SSH",
    "GIT_SSL",
    "GIT_ASKPASS",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_TRACE",
)

#: Past so many paths a look at the whole vault is no slower.
_MANY = 2000


class Repository(NamedTuple):
    """A working tree, and the folder in which git keeps what belongs to it."""

    top: Path
    git_dir: Path

    @classmethod
    def find(cls, start: Path) -> Repository:
        """The repository around a folder; GitError where there is none, or none with a working tree."""
        inside = _git(["rev-parse", "--is-inside-work-tree"], start).strip()
        if inside != b"true":
            raise GitError(f"{start}: no working tree here (a bare repository, or the inside of .git)")
        return cls(
            _path(_git(["rev-parse", "--show-toplevel"], start)),
            _path(_git(["rev-parse", "--absolute-git-dir"], start)),
        )

    @classmethod
    def around(cls, vault: Path) -> Repository:
        """The repository around a vault, else the one in it around the current folder."""
        try:
            return cls.find(vault)
        except GitError:
            here = Path.cwd()
            if here.is_relative_to(vault):
                return cls.find(here)
            raise

    def git(self, *arguments: str) -> bytes:
        """What a git command prints; GitError if it fails."""
        return _git([f"--git-dir={self.git_dir}", f"--work-tree={self.top}", *arguments], self.top)

    def setting(self, name: str) -> str | None:
        """The value of a setting of git, None where it isn't set."""
        try:
            return os.fsdecode(self.git("config", "-z", "--get", name).removesuffix(b"\0"))
        except GitError:
            return None

    @property
    def hooks(self) -> Path:
        """The folder of the hooks, as git itself finds it; linked working trees share one."""
        return self.top / _path(self.git("rev-parse", "--git-path", "hooks"))

    @property
    def common_dir(self) -> Path:
        """The folder that all working trees of the repository share."""
        return (self.top / _path(self.git("rev-parse", "--git-common-dir"))).resolve()

    def touched(self, event: str, arguments: Sequence[str]) -> list[Path] | None:
        """The files that an event has touched, there or gone; None where only a look at all of them can tell.

        `arguments` are those that git gave its hook; those of a commit the commit, of a merge also both its ends.
        """
        try:
            names = self._names(event, arguments)
        except GitError:
            return None
        return None if names is None or len(names) > _MANY else [self.top / os.fsdecode(name) for name in names]

    def _names(self, event: str, arguments: Sequence[str]) -> list[bytes] | None:
        match (event, *arguments):
            case ("post-commit", commit) if commit:
                return self._differing("-m", commit)
            case ("post-merge", "0", old, new) | ("post-checkout", old, new, "1") if old.strip("0") and new:
                return self._differing(old, new)
        # Single files came from the index, a squash from nowhere, a rewrite has many steps.
        return None

    def _differing(self, *commits: str) -> list[bytes]:
        options = ("-r", "-z", "--root", "--no-commit-id", "--name-only", "--no-renames", "--no-ext-diff")
        return sorted(set(filter(None, self.git("diff-tree", *options, *commits, "--").split(b"\0"))))

    def staged(self) -> tuple[list[Path], list[Path]]:
        """Files that the next commit adds or changes, and files that it takes away (deleted or renamed)."""
        kept: list[Path] = []
        gone: list[Path] = []
        for letter, wanted in (("d", kept), ("D", gone)):
            names = self.git(
                "diff", "--cached", "-z", "--name-only", "--no-renames", "--no-ext-diff", f"--diff-filter={letter}"
            )
            wanted += [self.top / os.fsdecode(name) for name in names.split(b"\0") if name]
        return kept, gone


def environment() -> dict[str, str]:
    """The environment of this process without what would lead git to another repository than the one it is asked of."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name.startswith(_HARMLESS)
    }
    # To look must never keep a lock from somebody who works.
    return {**kept, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def _git(arguments: Sequence[str], folder: Path) -> bytes:
    try:
        done = subprocess.run(
            ["git", *arguments],  # noqa: S607 - git is where PATH says
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise GitError(f"git can't be started: {error.strerror or error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        raise GitError(f"{folder}: {said.removeprefix('fatal: ') or f'git {arguments[0]} failed'}")
    return done.stdout


def _path(printed: bytes) -> Path:
    """A path that git printed on one line."""
    return Path(os.fsdecode(printed.removesuffix(b"\n").removesuffix(b"\r")))
