"""A hook never fails, delays or speaks into what git does, whatever is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.git.conftest import Repo
from tests.support import write

BARE = "/usr/bin:/bin"

#: Holds the write lock of a database until its input ends.
HOLD = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    "env",
    [
        {"PATH": BARE},
        {"LANG": "C", "LC_ALL": "C"},
        {"HOME": ""},
        {"PYTHONPATH": "/nowhere"},
        {"PYTHONHOME": "/nowhere"},
        {"VAULT_LSP_VAULT": "/nowhere"},
        {"VAULT_LSP_INDEX_DIR": "/dev/null/x"},
        {"VAULT_LSP_EMBEDDING": "no/such/model"},
    ],
    ids=lambda env: next(iter(env)),
)
def test_a_commit_in_an_odd_environment_is_silent(repo: Repo, env: Mapping[str, str]) -> None:
    assert repo.commit({"a.md": "alpha\n"}, env=env) == ""
    assert repo.git("status", "--porcelain") == ""
    repo.rest()


def test_a_short_path_and_another_locale_are_no_hindrance(repo: Repo) -> None:
    repo.commit({"笔记.md": "alpha\n"}, env={"PATH": BARE, "LANG": "C", "LC_ALL": "C"})
    repo.shows({"alpha": ["笔记.md"]})


def test_without_a_home_the_hook_works(repo: Repo) -> None:
    del repo.env["HOME"]
    assert repo.commit({"a.md": "alpha\n"}) == ""
    repo.shows({"alpha": ["a.md"]})


def test_a_python_that_is_gone_is_told_only_with_debug(repo: Repo) -> None:
    for file in (repo.top / ".git/hooks").glob("post-*"):
        file.write_text(file.read_text().replace(sys.executable, "/gone/python"))
    assert repo.commit({"a.md": "alpha\n"}, env={"PATH": BARE}) == ""
    said = repo.commit({"b.md": "beta\n"}, env={"PATH": BARE, "VAULT_LSP_DEBUG": "1"})
    assert "vault-lsp hook install" in said


def test_debug_tells_what_was_done(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    repo.rest()
    said = repo.commit({"b.md": "beta\n"}, env={"VAULT_LSP_DEBUG": "1"})
    assert "post-commit: 1 added, 0 changed, 0 removed" in said


def test_the_hook_can_be_turned_off(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"}, env={"VAULT_LSP_HOOK": "0"})
    repo.shows({"alpha": []})


@pytest.mark.parametrize("what", ["index", "lock", "vault"])
def test_a_folder_that_can_not_be_written_disturbs_no_commit(repo: Repo, what: str) -> None:
    repo.commit({"a.md": "alpha\n"})
    repo.rest()
    (index,) = (repo.base / "index").iterdir()
    target = {"index": index, "lock": index / "index-v.hook", "vault": repo.top / "a.md"}[what]
    # Root may write anywhere: something else in its place is refused to everybody.
    if what == "index":
        index.rename(index.with_name("aside"))
        index.write_bytes(b"no folder")
    else:
        target.unlink()
        target.mkdir()
    repo.git("commit", "-q", "--allow-empty", "-m", "c")
    assert repo.commit({"b.md": "beta\n"}) == ""
    repo.rest()


def test_notes_that_can_not_be_read_disturb_no_commit(repo: Repo) -> None:
    assert (
        repo.commit({"bad.md": "---\na: [\n---\nalpha\n", "nul.md": b"a\0b", ".vault-lsp/config.yaml": "a: [\n"}) == ""
    )
    repo.shows({"alpha": ["bad.md"]})


def test_an_index_that_somebody_else_writes_is_waited_for_in_the_background(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    repo.rest()
    (index,) = (repo.base / "index").glob("*/index-v*.db")
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            HOLD,
            str(index),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline()
    assert repo.commit({"b.md": "beta\n"}) == ""
    holder.stdin.close()
    holder.wait()
    holder.stdout.close()
    repo.shows({"beta": ["b.md"]})


@pytest.mark.parametrize("streams_are_kept", [False, True])
def test_nobody_who_reads_the_output_of_git_waits_for_the_hook(repo: Repo, *, streams_are_kept: bool) -> None:
    """The hook's process hangs until a file is there; the caller's pipes are closed before that."""
    gate = repo.base / "gate"
    os.mkfifo(gate)
    fake = write(repo.base / "fake", {"python": f'#!/bin/sh\nread line <"{gate}"\n'}) / "python"
    fake.chmod(0o755)
    for file in (repo.top / ".git/hooks").glob("post-*"):
        text = file.read_text().replace(sys.executable, str(fake))
        file.write_text(text if not streams_are_kept else text.replace("#!/bin/sh\n", "#!/bin/sh\nexec 7>&1 8>&2\n", 1))
    assert repo.commit({"a.md": "alpha\n"}) == ""
    # It still hangs: it is let go now, which needs a reader at the other end.
    gate.write_text("go\n")


def test_many_commits_leave_no_process_behind_and_are_all_there(repo: Repo) -> None:
    for number in range(30):
        repo.commit({f"{number:02}.md": "many\n"})
    repo.shows({"many": [f"{number:02}.md" for number in range(30)]})
    (index,) = (repo.base / "index").iterdir()
    assert not (index / "index-v.again").exists()


def test_a_hook_killed_at_work_holds_up_no_later_one(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    repo.rest()
    (index,) = (repo.base / "index").iterdir()
    program = (
        "import sys, os; from pathlib import Path; from vault_lsp.store.lock import lock\n"
        "with lock(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(index / "index-v.hook")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=repo.env,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline()
    assert repo.commit({"b.md": "beta\n"}) == ""
    deadline = time.monotonic() + 20
    while not (index / "index-v.again").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    holder.kill()
    holder.communicate()
    repo.rest()
    repo.commit({"c.md": "gamma\n"})
    # The work that was left to the dead one is done as well.
    repo.shows({"beta": ["b.md"], "gamma": ["c.md"]})


def test_a_push_to_a_bare_clone(repo: Repo) -> None:
    repo.commit({"a.md": "alpha\n"})
    clone: Path = repo.base / "bare.git"
    repo.git("clone", "-q", "--bare", str(repo.top), str(clone))
    repo.commit({"b.md": "beta\n"})
    assert repo.git("push", "-q", str(clone), "main") == ""
    repo.shows({"beta": ["b.md"]})
