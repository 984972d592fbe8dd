"""Hooks put in and taken out: what else is in their files stays as it is."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from tests.git.conftest import Repo
from tests.support import write
from vault_lsp.repository import EVENTS

SHELL = b"#!/bin/sh\necho before\nexec cat >/dev/null\n"


def hooks(repo: Repo, folder: str = ".git/hooks") -> dict[str, bytes]:
    return {
        file.name: file.read_bytes() for file in sorted((repo.top / folder).glob("post-*")) if file.suffix != ".sample"
    }


def put(repo: Repo, content: bytes, event: str = "post-commit", mode: int = 0o755) -> Path:
    write(repo.top / ".git/hooks", {event: content})
    file = repo.top / ".git/hooks" / event
    file.chmod(mode)
    return file


def states(repo: Repo) -> dict[str, str]:
    told = json.loads(repo.command("hook", "status", "--json"))
    return {hook["event"]: hook["state"] for hook in told["hooks"]}


def test_installing_says_what_is_written_where_and_uninstalling_leaves_nothing(bare: Repo) -> None:
    before = hooks(bare)
    said = bare.command("hook", "install")
    assert [line.split()[0] for line in said.splitlines()] == list(EVENTS)
    assert all(str(bare.top / ".git/hooks" / event) in said for event in EVENTS)
    assert set(states(bare).values()) == {"installed"}
    assert all(os.access(bare.top / ".git/hooks" / event, os.X_OK) for event in EVENTS)
    bare.command("hook", "uninstall")
    assert hooks(bare) == before == {}
    assert bare.git("config", "--local", "--list").count("vault-lsp") == 0


def test_installing_again_changes_nothing(bare: Repo) -> None:
    put(bare, SHELL)
    bare.command("hook", "install")
    first = hooks(bare)
    assert "already there" in bare.command("hook", "install")
    assert hooks(bare) == first


@pytest.mark.parametrize(
    "content",
    [
        SHELL,
        b"#!/usr/bin/env bash\nset -euo pipefail\nfalse\n",
        b"#!/bin/sh -eu\r\necho x\r\n",
        b"#!/bin/sh\n",
        b"#!/bin/sh",
        b"echo no first line\n",
        b"",
        "#!/bin/zsh\necho 中文\n".encode(),
        b"#!/bin/sh\nprintf '\\351'\nbad \xff bytes",
    ],
)
@pytest.mark.parametrize("mode", [0o755, 0o700, 0o775])
def test_a_shell_hook_is_kept_and_is_as_before_when_ours_is_taken_out(bare: Repo, content: bytes, mode: int) -> None:
    file = put(bare, content, mode=mode)
    bare.command("hook", "install")
    assert states(bare)["post-commit"] == "installed"
    assert stat.S_IMODE(file.stat().st_mode) == mode
    bare.command("hook", "install")
    bare.command("hook", "uninstall")
    assert file.read_bytes() == content
    assert stat.S_IMODE(file.stat().st_mode) == mode


def test_a_shell_hook_keeps_its_arguments_input_and_exit_code_and_ours_runs_too(bare: Repo) -> None:
    log = bare.base / "log"
    put(bare, f'#!/bin/sh\n(echo "$# $*"; cat) >>"{log}"\nexit 3\n'.encode(), "post-rewrite")
    put(bare, f'#!/bin/sh -eu\necho "commit $#" >>"{log}"\nexec true\n'.encode())
    bare.command("hook", "install")
    bare.commit({"a.md": "alpha\n"})
    bare.commit({"a.md": "beta\n"}, "--amend")
    lines = log.read_text().splitlines()
    assert lines[:3] == ["commit 0", "commit 0", "1 amend"]
    old, new = lines[3].split()[:2]
    assert len(old) == len(new) == 40
    bare.shows({"beta": ["a.md"]})


@pytest.mark.parametrize("content", [b"#!/usr/bin/env python3\nprint(1)\n", b"#!/usr/bin/perl\n1;\n", b"\x7fELF\0\0"])
def test_a_hook_in_another_language_is_left_alone_and_the_message_says_what_to_add(bare: Repo, content: bytes) -> None:
    file = put(bare, content)
    said = bare.command("hook", "install", code=1)
    assert "vault-lsp hook run --detach post-commit" in said
    assert file.read_bytes() == content
    assert states(bare) == {event: "other language" if event == "post-commit" else "installed" for event in EVENTS}
    bare.command("hook", "uninstall")
    assert hooks(bare) == {"post-commit": content}


def test_what_the_message_says_to_add_works(bare: Repo) -> None:
    bare.commit({"a.md": "alpha\n"})
    bare.command("hook", "run", "--detach", "post-commit")
    bare.shows({"alpha": ["a.md"]})


def test_a_hook_that_git_does_not_run_is_not_woken(bare: Repo) -> None:
    file = put(bare, SHELL, mode=0o644)
    assert "isn't executable" in bare.command("hook", "install", code=1)
    assert file.read_bytes() == SHELL
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_an_older_block_is_renewed_in_its_place(bare: Repo) -> None:
    bare.command("hook", "install")
    file = bare.top / ".git/hooks/post-commit"
    file.write_text(file.read_text().replace(sys.executable, "/old/python") + "echo mine\n")
    assert states(bare)["post-commit"] == "outdated"
    assert "renewed" in bare.command("hook", "install")
    assert sys.executable in file.read_text()
    bare.command("hook", "uninstall")
    assert file.read_text() == "#!/bin/sh\necho mine\n"


def test_a_folder_of_hooks_inside_the_repository_is_followed(bare: Repo) -> None:
    bare.git("config", "core.hooksPath", ".githooks")
    bare.command("hook", "install")
    assert set(hooks(bare, ".githooks")) == set(EVENTS)
    bare.commit({"a.md": "alpha\n"})
    bare.shows({"alpha": ["a.md"]})


def test_a_folder_of_hooks_that_others_share_is_refused_unless_forced(bare: Repo) -> None:
    shared = bare.base / "shared"
    bare.git("config", "core.hooksPath", str(shared))
    assert "core.hooksPath" in bare.command("hook", "install", code=1)
    assert not shared.exists()
    bare.command("hook", "install", "--force")
    assert {file.name for file in shared.iterdir()} == set(EVENTS)


def test_a_hook_that_is_a_link_out_of_the_repository_is_left_alone(bare: Repo) -> None:
    shared = write(bare.base, {"shared.sh": SHELL}) / "shared.sh"
    shared.chmod(0o755)
    (bare.top / ".git/hooks").mkdir(exist_ok=True)
    (bare.top / ".git/hooks/post-commit").symlink_to(shared)
    assert "outside the repository" in bare.command("hook", "install", code=1)
    assert shared.read_bytes() == SHELL


def test_a_link_inside_the_repository_stays_a_link(bare: Repo) -> None:
    target = write(bare.top, {"tools/hook.sh": SHELL}) / "tools/hook.sh"
    target.chmod(0o755)
    link = bare.top / ".git/hooks/post-commit"
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(target)
    bare.command("hook", "install")
    assert link.is_symlink()
    bare.command("hook", "uninstall")
    assert link.is_symlink()
    assert target.read_bytes() == SHELL


@pytest.mark.parametrize("place", ["nowhere", "bare.git"])
def test_without_a_working_tree_there_is_a_clear_error(bare: Repo, place: str) -> None:
    folder = bare.base / place
    folder.mkdir()
    if place == "bare.git":
        bare.git("init", "-q", "--bare", str(folder))
    said = bare.command("hook", "install", folder=folder, code=1)
    assert said.startswith("vault-lsp: ")
    assert "git" in said
    answer = json.loads(bare.command("hook", "install", "--json", folder=folder, code=1).splitlines()[0])
    assert answer["error"]["code"] == "git"


def test_a_linked_working_tree_shares_the_hooks(bare: Repo) -> None:
    bare.commit({"a.md": "alpha\n"})
    tree = bare.at(bare.base / "tree")
    bare.git("worktree", "add", "-q", str(tree.top))
    tree.command("hook", "install")
    assert set(hooks(bare)) == set(EVENTS)
    assert set(states(tree).values()) == set(states(bare).values()) == {"installed"}


def test_all_shipped_hooks_are_one_text_and_plain_posix_shell() -> None:
    folder = Path(__file__).parents[2] / "hooks"
    texts = {(folder / event).read_bytes() for event in EVENTS}
    assert len(texts) == 1
    (text,) = texts
    assert b"\r" not in text
    assert text.startswith(b"#!/bin/sh\n# >>> vault-lsp >>>\n")
    assert text.endswith(b"# <<< vault-lsp <<<\n")
    assert all(os.access(folder / event, os.X_OK) for event in EVENTS)
