"""`health --staged`: what the next commit is about, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.git.conftest import Repo
from vault_lsp.cli import main
from vault_lsp.repository import EVENTS

OLD = {"a.md": "[[nowhere]]\n", "b.md": "[[target]] and [[nowhere]] and [x](sub/target.md)\n", "target.md": "# T\n"}


def told(repo: Repo, *options: str, code: int = 0, folder: Path | None = None) -> list[tuple[str, str, int]]:
    answer = json.loads(
        repo.command("health", "--staged", "--json", "--rule", "broken-link", *options, code=code, folder=folder)
    )
    return [(each["path"], each["rule"], each["column"]) for each in answer["findings"]]


def test_old_findings_do_not_count(bare: Repo) -> None:
    bare.commit(OLD)
    assert told(bare) == []
    bare.write({"new 中.md": "😀 [[gone]]\n", "unstaged.md": "[[gone]]\n"})
    bare.git("add", "new 中.md")
    assert told(bare, code=1) == [("new 中.md", "broken-link", 3)]


@pytest.mark.parametrize("how", [["rm", "-q", "target.md"], ["mv", "target.md", "other.md"]])
def test_links_that_a_commit_breaks_count_and_others_of_the_same_note_do_not(bare: Repo, how: list[str]) -> None:
    bare.commit(OLD)
    bare.git(*how)
    assert told(bare, code=1) == [("b.md", "broken-link", 1)]


def test_a_note_moved_to_another_folder_breaks_only_what_names_its_folder(bare: Repo) -> None:
    bare.commit({**OLD, "c.md": "[t](./target.md)\n"})
    (bare.top / "sub").mkdir()
    bare.git("mv", "target.md", "sub/target.md")
    assert told(bare, code=1) == [("c.md", "broken-link", 5)]


def test_outside_a_repository_it_says_so(bare: Repo) -> None:
    folder = bare.base / "plain"
    folder.mkdir()
    assert "git" in bare.command("health", "--staged", folder=folder, code=1)


def test_the_hooks_of_the_framework_name_commands_and_stages_that_exist() -> None:
    hooks = yaml.safe_load((Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text())
    assert {hook["id"]: hook["stages"] for hook in hooks} == {
        "vault-lsp-health": ["pre-commit"],
        "vault-lsp-index": list(EVENTS),
    }
    for hook in hooks:
        program, *words = hook["entry"].split()
        assert program == "vault-lsp"
        assert CliRunner().invoke(main, [*words, "--help"]).exit_code == 0
