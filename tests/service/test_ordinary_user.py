"""Files and folders without permission, as a user who isn't root sees them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vault_lsp

NOBODY = 65534

#: Everything is imported before the user changes: the interpreter itself may lie where only root can read.
PROGRAM = """
import codecs, contextlib, io, json, os, sys
from pathlib import Path
import ctypes, pathspec, platformdirs, rjieba, sqlite_vec, yaml, tempfile
import vault_lsp.cli, vault_lsp.doctor
from vault_lsp.service import Vault
from vault_lsp.search import Query

vault_lsp.doctor._segmenter()
ctypes.CDLL(sqlite_vec.loadable_path() + ".so")
for name in ("ascii", "utf-8-sig", "utf-16"):
    codecs.lookup(name)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
os.chdir("/")
root = Path(sys.argv[1])

def hits(vault, query):
    with vault.view() as view:
        return [hit.path for hit in view.search(Query(query)).hits]

def command(*arguments):
    streams = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        code = vault_lsp.cli.run(arguments)
    for stream in streams:
        stream.flush()
    return [code, *(stream.buffer.getvalue().decode() for stream in streams)]

def act():
    BODY

print("\\n" + json.dumps(act()))
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that any user can reach, with a vault in it."""
    folder = Path(tempfile.mkdtemp(prefix="vault-lsp-"))
    folder.chmod(0o755)
    (folder / "vault").mkdir()
    (folder / "index").mkdir()
    yield folder
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)


def own(base: Path) -> None:
    if os.geteuid() == 0:
        for path in [base, *base.rglob("*")]:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def run(base: Path, body: str) -> Any:
    """What the statements of `body` return, run by an ordinary user."""
    program = PROGRAM.replace("    BODY", "\n".join("    " + line for line in body.strip().splitlines()))
    ended = subprocess.run(
        [sys.executable, "-c", program, str(base / "vault")],
        env={
            **os.environ,
            "VAULT_LSP_INDEX_DIR": str(base / "index"),
            "PYTHONPATH": str(Path(vault_lsp.__file__).parent.parent),
            "LC_ALL": "C",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


OPEN_AND_SYNC = """
vault = Vault.open(root)
done = vault.reconcile()
"""


def test_what_cannot_be_read_is_told_and_the_rest_is_indexed(base: Path) -> None:
    root = base / "vault"
    (root / "ok.md").write_text("alphaword [[secret]]")
    (root / "secret.md").write_text("secretword")
    (root / "locked").mkdir()
    (root / "locked/x.md").write_text("lockedword")
    os.mkfifo(root / "pipe.md")
    (root / "dead.md").symlink_to("nowhere.md")
    own(base)
    (root / "secret.md").chmod(0)
    (root / "locked").chmod(0)
    answer = run(
        base,
        OPEN_AND_SYNC
        + """
version = vault.data_version()
again = vault.reconcile()
with vault.view() as view:
    links = [link.source for link in view.backlinks("secret.md")]
return [done.added, done.skipped, bool(again), vault.data_version() == version, hits(vault, "alphaword"), links,
        vault.status()["skipped"], command("--vault", str(root), "index")]
""",
    )
    reasons = {
        "secret.md": "permission denied",
        "locked": "permission denied",
        "pipe.md": "not a regular file",
        "dead.md": "dangling symbolic link",
    }
    assert answer[:2] == [["ok.md"], reasons]
    assert answer[2:4] == [False, True]
    assert answer[4:6] == [["ok.md"], ["ok.md"]]
    assert answer[6] == reasons
    assert answer[7][0] == 0
    (root / "secret.md").chmod(0o644)
    (root / "locked").chmod(0o755)
    assert run(
        base, OPEN_AND_SYNC + "return [sorted(done.added + done.changed), vault.verify(), vault.counts()[0]]"
    ) == [
        ["locked/x.md", "secret.md"],
        [],
        3,
    ]


def test_a_vault_that_cannot_be_read_at_all_is_told_and_its_index_kept(base: Path) -> None:
    root = base / "vault"
    (root / "ok.md").write_text("alphaword")
    own(base)
    run(base, OPEN_AND_SYNC + "vault.close()")
    root.chmod(0)
    code, _, message = run(base, 'return command("--vault", str(root), "index")')
    assert code == 1
    assert str(root) in message
    assert len(message.splitlines()) == 1
    root.chmod(0o755)
    assert run(base, 'vault = Vault.open(root)\nreturn hits(vault, "alphaword")') == ["ok.md"]


@pytest.mark.parametrize("killed", [False, True])
def test_a_read_only_vault_and_index_answer_and_say_so_once(base: Path, killed: object) -> None:
    root = base / "vault"
    (root / "n.md").write_text("# N\nalphaword [[n]]")
    own(base)
    run(base, OPEN_AND_SYNC + ("print(0, flush=True)\nos._exit(0)" if killed else "vault.close()"))
    for path in [root, *root.rglob("*"), base / "index", *(base / "index").rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    before = sorted((path, path.stat().st_mtime_ns) for path in base.rglob("*"))
    answer = run(
        base,
        """
at = ("--vault", str(root))
return [command(*at, "search", "alphaword"), command(*at, "get", "n.md"), command(*at, "status"),
        command(*at, "links", "n.md"), command(*at, "index"), command(*at, "doctor"),
        command(*at, "index", "--rebuild")]
""",
    )
    search, get, status, links, index, doctor, rebuild = answer
    assert search[0] == 0
    assert "n.md" in search[1]
    assert [get[0], status[0], links[0], doctor[0]] == [0, 0, 0, 0], doctor
    assert index == [0, index[1], ""] or index[0] == 1
    assert rebuild[0] == 1
    assert len(rebuild[2].splitlines()) == 1
    assert sorted((path, path.stat().st_mtime_ns) for path in base.rglob("*")) == before
    # A change that can't be recorded is told in one line, and answers go on.
    (root / "n.md").chmod(0o644)
    (root / "n.md").write_text("# N\nbetaword")
    search, index = run(
        base,
        """
at = ("--vault", str(root))
return [command(*at, "search", "alphaword"), command(*at, "index")]
""",
    )
    assert search[0] == 0
    assert len(search[2].splitlines()) == 1
    assert "read-only" in search[2]
    assert index[0] == 1
    assert len(index[2].splitlines()) == 1
    assert str(base / "index") in index[2]
    assert "read-only" in index[2]


def test_without_a_place_for_an_index_one_line_says_where(base: Path) -> None:
    (base / "vault/n.md").write_text("alphaword")
    own(base)
    (base / "index").chmod(0o555)
    code, _, message = run(base, 'return command("--vault", str(root), "index")')
    assert code == 1
    assert len(message.splitlines()) == 1
    assert str(base / "index") in message


def test_a_damaged_read_only_index_is_told_and_not_answered_from(base: Path) -> None:
    (base / "vault/n.md").write_text("alphaword")
    own(base)
    run(base, OPEN_AND_SYNC + "vault.close()")
    (file,) = (base / "index").glob("*/index-*.db")
    file.write_bytes(b"junk" * 2000)
    file.parent.chmod(0o555)
    code, out, message = run(base, 'return command("--vault", str(root), "search", "alphaword")')
    assert code == 1
    assert out == ""
    assert str(file) in message
