"""Which vault a hook serves: a repository may hold it, lie in it, or have several working trees."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.git.conftest import Repo
from tests.support import write
from vault_lsp.repository import Repository

#: What git sets for its hooks, and what leads to one repository.
LEADING = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"),
    *("GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
}


def records_environment(repo: Repo) -> Path:
    """Put a program in the place of the hook's Python that records in which environment it is started."""
    log = repo.base / "environments"
    script = f'#!/bin/sh\nenv >>"{log}"\nexec "{sys.executable}" "$@"\n'
    python = write(repo.base / "fake", {"python": script}) / "python"
    python.chmod(0o755)
    for file in (repo.top / ".git/hooks").glob("post-*"):
        file.write_text(file.read_text().replace(sys.executable, str(python)))
    return log


def test_a_linked_working_tree_is_a_vault_of_its_own(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    tree = repo.at(repo.base / "tree")
    repo.git("worktree", "add", "-q", "-b", "side", str(tree.top))
    tree.commit({"b.md": "beta\n"})
    tree.shows({"alpha": ["a.md"], "beta": ["b.md"]})
    repo.shows({"alpha": ["a.md"], "beta": []})
    assert repo.git("status", "--porcelain") == tree.git("status", "--porcelain") == ""


def test_a_rebase_in_a_linked_working_tree(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    tree = repo.at(repo.base / "tree")
    repo.git("worktree", "add", "-q", "-b", "side", str(tree.top))
    for number in range(5):
        tree.commit({f"{number}.md": "rebased\n"})
    repo.commit({"base.md": "baseword\n"})
    tree.git("rebase", "-q", "main")
    tree.shows({"rebased": [f"{number}.md" for number in range(5)], "baseword": ["base.md"]})


def test_nothing_of_git_leaks_into_what_the_hook_runs(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    tree = repo.at(repo.base / "tree")
    repo.git("worktree", "add", "-q", "-b", "side", str(tree.top))
    log = records_environment(repo)
    tree.commit({"b.md": "beta\n"})
    repo.commit({"sub/c.md": "gamma\n"})
    repo.git("-C", str(repo.top / "sub"), "commit", "-q", "--allow-empty", "-m", "c", folder=repo.base)
    tree.shows({"beta": ["b.md"]})
    repo.shows({"gamma": ["sub/c.md"]})
    names = {line.partition("=")[0] for line in log.read_text().splitlines()}
    assert "VAULT_LSP_INDEX_DIR" in names
    assert not names & LEADING


def test_git_is_asked_without_what_would_lead_it_elsewhere(bare: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    other = bare.at(bare.base / "other")
    other.top.mkdir()
    other.git("init", "-q")
    for name in LEADING:
        monkeypatch.setenv(name, str(bare.top / ".git"))
    assert Repository.find(other.top) == Repository(other.top, other.top / ".git")


def test_a_commit_from_a_subfolder(repo: Repo) -> None:
    repo.commit({"sub/deep/a.md": "alpha\n"})
    repo.rest()
    repo.write({"sub/deep/a.md": "beta\n"})
    repo.git("commit", "-qam", "c", folder=repo.top / "sub/deep")
    repo.shows({"beta": ["sub/deep/a.md"], "alpha": []})


def test_a_submodule(bare: Repo) -> None:
    notes = bare.at(bare.base / "notes")
    notes.top.mkdir()
    notes.git("init", "-q", "-b", "main")
    notes.commit({"n.md": "alpha\n"})
    bare.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(notes.top), "vault")
    inside = bare.at(bare.top / "vault")
    assert (inside.top / ".git").is_file()
    inside.command("hook", "install")
    inside.commit({"m.md": "beta\n"})
    inside.shows({"alpha": ["n.md"], "beta": ["m.md"]})


def test_a_vault_in_a_folder_of_the_repository(bare: Repo) -> None:
    bare.write({"notes/.obsidian/app.json": "{}", "readme.md": "outside\n"})
    vault = bare.top / "notes"
    told = json.loads(bare.command("hook", "install", "--json", folder=vault))
    assert {hook["done"] for hook in told["hooks"]} == {"written"}
    bare.commit({"notes/a b.md": "alpha\n", "other.md": "alpha\n"})
    bare.shows({"alpha": ["a b.md"], "outside": []}, vault)
    assert json.loads(bare.command("hook", "status", "--json"))["vault"] == str(vault)


def test_a_working_tree_without_the_vault_of_the_repository_is_left_alone(bare: Repo) -> None:
    bare.write({"notes/.obsidian/app.json": "{}"})
    bare.command("hook", "install", folder=bare.top / "notes")
    bare.commit({"notes/a.md": "alpha\n"})
    bare.git("checkout", "-q", "--orphan", "empty")
    bare.git("rm", "-rqf", ".")
    said = bare.commit({"x.md": "beta\n"}, env={"VAULT_LSP_DEBUG": "1"})
    assert "no vault here" in said


def test_a_repository_in_a_folder_of_the_vault(tmp_path: Path) -> None:
    vault = write(tmp_path / "vault", {".obsidian/app.json": "{}", "top.md": "topword\n"})
    repo = Repo(vault / "part", tmp_path)
    repo.command("hook", "install")
    repo.commit({"a.md": "alpha\n"})
    repo.shows({"alpha": ["part/a.md"], "topword": ["top.md"]}, vault)
    (vault / "top.md").write_text("changed\n")
    repo.commit({"a.md": "beta\n"})
    repo.shows({"beta": ["part/a.md"], "changed": []}, vault)


def test_a_vault_elsewhere_that_was_named(bare: Repo) -> None:
    vault = write(bare.base / "elsewhere", {"n.md": "alpha\n"})
    bare.command("hook", "install", str(bare.top), "--vault", str(vault))
    bare.commit({"x.txt": "-"})
    bare.shows({"alpha": ["n.md"]}, vault)


def test_the_vault_of_the_environment_counts_where_it_has_to_do_with_the_repository(bare: Repo) -> None:
    bare.command("hook", "install")
    elsewhere = write(bare.base / "elsewhere", {"n.md": "farword\n"})
    bare.commit({"a.md": "alpha\n"}, env={"VAULT_LSP_VAULT": str(elsewhere)})
    bare.shows({"alpha": ["a.md"]})
    bare.commit({"sub/c.md": "innerword\n"}, env={"VAULT_LSP_VAULT": str(bare.top / "sub")})
    bare.shows({"innerword": ["c.md"]}, bare.top / "sub")
    bare.shows({"farword": []}, elsewhere)


def test_a_repository_whose_git_folder_lies_elsewhere(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "vault", tmp_path, init=False)
    repo.top.mkdir()
    there = ("--git-dir", str(tmp_path / "dots"), "--work-tree", str(repo.top))
    repo.git("init", "-q", "--bare", str(tmp_path / "dots"))
    repo.git(*there, "config", "core.bare", "false")
    repo.command("hook", "install", env={"GIT_DIR": str(tmp_path / "dots"), "GIT_WORK_TREE": str(repo.top)}, code=1)
    write(tmp_path / "dots", {"hooks/post-commit": (Path(__file__).parents[2] / "hooks/post-commit").read_bytes()})
    (tmp_path / "dots/hooks/post-commit").chmod(0o755)
    write(repo.base / "bin", {"vault-lsp": f'#!/bin/sh\nexec "{sys.executable}" -P -m vault_lsp "$@"\n'})
    (repo.base / "bin/vault-lsp").chmod(0o755)
    path = {"PATH": f"{repo.base / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    repo.write({"a.md": "alpha\n"})
    repo.git(*there, "add", "-A")
    repo.git(*there, "commit", "-qm", "c", env=path)
    repo.shows({"alpha": ["a.md"]})
