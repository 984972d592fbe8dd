"""After each event of git the index is as the working tree is: asked with `--no-sync`."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.git.conftest import Repo


def test_the_first_commit(repo: Repo) -> None:
    repo.commit({"a.md": "rootword\n", "sub/b.md": "otherword\n"})
    repo.shows({"rootword": ["a.md"], "otherword": ["sub/b.md"]})


def test_a_commit_takes_what_is_in_the_working_tree_not_in_the_commit(repo: Repo) -> None:
    repo.commit({"a.md": "first\n"})
    repo.rest()
    repo.write({"a.md": "committedword\n", "b.md": "uncommittedword\n"})
    repo.git("add", "a.md")
    repo.write({"a.md": "laterword\n"})
    repo.git("commit", "-qm", "c")
    repo.shows({"committedword": [], "laterword": ["a.md"]})


def test_an_amended_commit(repo: Repo) -> None:
    repo.commit({"a.md": "before\n"})
    repo.commit({"b.md": "beta\n"})
    repo.commit({"a.md": "afterword\n"}, "--amend")
    repo.shows({"before": [], "afterword": ["a.md"], "beta": ["b.md"]})


def test_a_commit_without_other_hooks(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"}, "--no-verify")
    repo.shows({"alpha": ["a.md"]})


def test_deleted_and_renamed_notes(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n", "b.md": "beta\n", "c.md": "gamma\n"})
    repo.rest()
    repo.git("rm", "-q", "a.md")
    repo.git("mv", "b.md", "sub new.md")
    repo.git("commit", "-qm", "c")
    repo.shows({"alpha": [], "beta": ["sub new.md"], "gamma": ["c.md"]})


def test_two_commits_at_once(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    repo.rest()
    repo.commit({"b.md": "beta\n"})
    repo.git("commit", "-q", "--allow-empty", "-m", "c")
    repo.shows({"beta": ["b.md"]})


def branch(repo: Repo, files: dict[str, str], name: str = "side") -> None:
    repo.git("checkout", "-q", "-b", name)
    repo.commit(files)
    repo.git("checkout", "-q", "main")
    repo.rest()


@pytest.mark.parametrize("how", [["--no-ff"], ["--ff-only"]])
def test_a_merge(repo: Repo, how: list[str]) -> None:
    repo.commit({"a.md": "alpha\n"})
    branch(repo, {"m.md": "mergedword\n"})
    repo.shows({"mergedword": []})
    repo.git("merge", "-q", *how, "-m", "m", "side")
    repo.shows({"mergedword": ["m.md"]})


def test_a_squashed_merge(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    branch(repo, {"m.md": "mergedword\n"})
    repo.git("merge", "-q", "--squash", "side")
    repo.shows({"mergedword": ["m.md"]})


def test_a_merge_with_a_conflict_that_a_commit_ends(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    branch(repo, {"a.md": "theirs\n", "new.md": "newword\n"})
    repo.commit({"a.md": "ours\n"})
    repo.git("merge", "side", code=1)
    repo.commit({"a.md": "solvedword\n"})
    repo.shows({"solvedword": ["a.md"], "newword": ["new.md"], "ours": []})


def test_a_pull(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    other = repo.at(repo.base / "other")
    repo.git("clone", "-q", str(repo.top), str(other.top), folder=repo.base)
    other.commit({"pulled.md": "pulledword\n"})
    repo.git("pull", "-q", str(other.top), "main")
    repo.shows({"pulledword": ["pulled.md"]})


def test_another_branch(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    branch(repo, {"side.md": "sideword\n", "a.md": "changed\n"})
    repo.shows({"alpha": ["a.md"], "sideword": []})
    repo.git("switch", "-q", "side")
    repo.shows({"alpha": [], "sideword": ["side.md"]})


def test_a_file_restored(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    repo.commit({"a.md": "beta\n"})
    repo.rest()
    repo.git("checkout", "-q", "HEAD~1", "--", "a.md")
    repo.shows({"alpha": ["a.md"], "beta": []})


def picked(repo: Repo) -> None:
    repo.git("cherry-pick", "side")


def reverted(repo: Repo) -> None:
    repo.git("cherry-pick", "side")
    repo.git("revert", "--no-edit", "HEAD")


@pytest.mark.parametrize(("how", "expected"), [(picked, ["side.md"]), (reverted, [])])
def test_a_picked_and_a_reverted_commit(repo: Repo, how: Callable[[Repo], None], expected: list[str]) -> None:
    repo.commit({"a.md": "alpha\n"})
    branch(repo, {"side.md": "sideword\n"})
    how(repo)
    repo.shows({"sideword": expected})


@pytest.mark.parametrize("backend", ["--merge", "--apply"])
def test_a_rebase_of_many_commits(repo: Repo, backend: str) -> None:
    repo.commit({"a.md": "alpha\n"})
    repo.git("checkout", "-q", "-b", "side")
    for number in range(30):
        repo.commit({f"{number:02}.md": f"rebased note {number}\n"})
    repo.git("checkout", "-q", "main")
    repo.commit({"base.md": "baseword\n"})
    repo.git("checkout", "-q", "side")
    repo.rest()
    repo.git("rebase", "-q", backend, "main")
    repo.shows({"rebased": [f"{number:02}.md" for number in range(30)], "baseword": ["base.md"]})


def test_a_rebase_that_only_goes_forward(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    repo.git("branch", "side")
    repo.commit({"b.md": "beta\n"})
    repo.git("checkout", "-q", "side")
    repo.shows({"beta": []})
    repo.git("rebase", "-q", "main")
    repo.shows({"beta": ["b.md"]})


def test_what_runs_no_hook_is_found_by_the_next_search(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    repo.commit({"a.md": "beta\n"})
    repo.rest()
    repo.git("reset", "-q", "--hard", "HEAD~1")
    assert '"a.md"' in repo.command("search", "--json", "alpha")
    repo.write({"a.md": "gamma\n"})
    repo.git("stash", "-q")
    assert '"a.md"' in repo.command("search", "--json", "alpha")


#: Names that git quotes, cuts or takes for something else.
NAMES: dict[str | bytes, str] = {
    "中 文.md": "wordone",
    'q"uote.md': "wordtwo",
    "tab\tx.md": "wordthree",
    "-dash.md": "wordfour",
    "glob[1]*.md": "wordfive",
    "sub dir/日本.md": "wordsix",
    "new\nline.md": "wordseven",
    ":(top)x.md": "wordeight",
    "it's.md": "wordnine",
    "𠀀 😀.md": "wordten",
}

SETTINGS = [
    [],
    ["core.quotePath=false"],
    ["core.quotePath=true", "i18n.logOutputEncoding=GBK", "color.ui=always"],
    ["diff.noprefix=true", "status.relativePaths=true", "diff.renames=copies", "diff.external=false"],
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: ",".join(each) or "none")
def test_names_of_all_kinds(repo: Repo, settings: list[str]) -> None:
    for setting in settings:
        repo.git("config", *setting.split("=", 1))
    repo.commit({"z.md": "first\n"})
    repo.rest()
    repo.commit({str(name): f"{word}\n" for name, word in NAMES.items()})
    repo.shows({word: [str(name)] for name, word in NAMES.items()})


def test_a_name_that_is_no_text_harms_nobody(repo: Repo) -> None:
    repo.commit({"z.md": "first\n"})
    with open(os.path.join(os.fsencode(repo.top), b"bad\xff.md"), "wb") as file:  # noqa: PTH118, PTH123
        file.write(b"badword\n")
    repo.commit({"good.md": "goodword\n"})
    repo.shows({"goodword": ["good.md"], "badword": []})


def test_rules_of_the_vault_changed_by_a_commit_count_for_all_notes(repo: Repo) -> None:
    repo.commit({"drafts/a.md": "alpha\n", "b.md": "beta\n"})
    repo.shows({"alpha": ["drafts/a.md"]})
    repo.commit({".vault-lsp/config.yaml": "exclude: [drafts/]\n"})
    repo.shows({"alpha": [], "beta": ["b.md"]})
