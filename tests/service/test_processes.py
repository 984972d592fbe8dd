"""Other processes: killed ones, workers, the child, and two that index at once."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from vault_lsp import child, prepare
from vault_lsp.errors import Cancelled, IndexReadOnly, VaultLspError
from vault_lsp.indexer import Progress
from vault_lsp.search import Query
from vault_lsp.service import Vault

PACKAGE = Path(child.__file__).parent.parent

INDEX = """
import sys
from pathlib import Path
from vault_lsp.service import Vault
vault = Vault.open(Path(sys.argv[1]))
vault.reconcile(workers=int(sys.argv[2]))
vault.close()
"""


def fill(root: Path, count: int, size: int = 60) -> None:
    for number in range(count):
        (root / f"n{number:03}.md").write_text(f"# Note {number}\n\nword{number} [[n000]] " + "text 知识 " * size)


def start(root: Path, workers: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", INDEX, str(root), str(workers)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        stderr=subprocess.PIPE,
        text=True,
    )


def found_everywhere(vault: Vault, count: int) -> bool:
    with vault.view() as view:
        return all(
            [hit.path for hit in view.search(Query(f"word{number}")).hits][:1] == [f"n{number:03}.md"]
            for number in range(0, count, max(1, count // 20))
        )


def children() -> list[str]:
    tasks = Path("/proc/self/task").iterdir()
    return [child for task in tasks for child in (task / "children").read_text().split()]


def test_an_index_heals_after_any_number_of_kills(root: Path) -> None:
    fill(root, 120, 200)
    dice = random.Random(1)
    for round_ in range(20):
        process = start(root)
        time.sleep(0.1 + dice.random() * 0.25)
        process.kill()
        process.communicate()
        if round_ == 10:
            # The log of the killed writer is deleted: what it held is gone, the rest must not be damaged.
            for log in root.parent.glob("indexes/*/*.db-wal"):
                log.unlink()
    process = start(root)
    assert process.communicate()[1] == ""
    assert process.returncode == 0
    vault = Vault.open(root)
    assert found_everywhere(vault, 120)
    assert vault.verify() == []
    with closing(apsw.Connection(str(vault.index.file))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    vault.close()


def test_two_processes_may_index_at_once(root: Path) -> None:
    fill(root, 150)
    processes = [start(root, workers) for workers in (0, 0, 1)]
    for process in processes:
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0
    vault = Vault.open(root)
    assert not vault.pending()
    assert found_everywhere(vault, 150)
    assert vault.verify() == []
    vault.close()


def test_a_killed_worker_costs_no_note(root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(root, 200, 400)
    started: list[subprocess.Popen[bytes]] = []
    real = prepare._start

    def start_and_remember(folder: Path) -> subprocess.Popen[bytes]:
        started.append(real(folder))
        return started[-1]

    monkeypatch.setattr(prepare, "_start", start_and_remember)

    def kill(step: Progress) -> None:
        if step.phase == "indexing" and step.done > 0:
            for process in started:
                process.kill()

    done = vault.reconcile(progress=kill, workers=2)
    assert len(started) == 2
    assert len(done.added) == 200
    assert found_everywhere(vault, 200)
    assert children() == []


def test_a_worker_that_cannot_start_costs_no_note(root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(root, 20)
    monkeypatch.setattr(prepare, "_PROGRAM", "raise SystemExit(3)")
    assert len(vault.reconcile(workers=2).added) == 20


def test_no_program_in_the_vault_is_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(root, 3)
    for name in ("yaml", "rjieba", "pyromark", "apsw", "json", "vault_lsp", "sitecustomize"):
        (root / f"{name}.py").write_text(f"open({str(root / 'ran')!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(root)
    # A path that holds the current folder under its empty name is a common mistake.
    monkeypatch.setenv("PYTHONPATH", f"{PACKAGE}{os.pathsep}")
    vault = Vault.open(root)
    assert len(vault.reconcile(workers=1).added) == 3
    shutil.rmtree(vault.index.folder)
    assert len(vault.reconcile_in_child().added) == 3
    vault.close()
    assert not (root / "ran").exists()


def test_workers_need_no_path_to_the_package(root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(root, 3)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(prepare, "prepare", lambda root, task: pytest.fail("done here instead of in a worker"))
    assert len(vault.reconcile(workers=1).added) == 3


def test_notes_come_the_same_from_workers_as_from_this_process(root: Path, vault: Vault) -> None:
    fill(root, 30)
    (root / "bin.md").write_bytes(b"\0")
    (root / "surrogate.md").write_text('---\ntitle: "\\ud800"\n---\n')
    vault.reconcile(workers=2)
    assert vault.verify() == []


def test_the_child_reports_progress_and_the_result(root: Path, vault: Vault) -> None:
    fill(root, 30)
    (root / "bin.md").write_bytes(b"\0")
    steps: list[Progress] = []
    done = vault.reconcile_in_child(progress=steps.append)
    assert len(done.added) == 30
    assert set(done.skipped) == {"bin.md"}
    assert done.names
    assert steps[0] == Progress("scanning", 0, 0)
    assert steps[-1] == Progress("indexing", 31, 31)
    assert found_everywhere(vault, 30)
    assert children() == []


def test_the_child_follows_a_relative_index_folder(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(root, 3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VAULT_LSP_INDEX_DIR", "relative")
    vault = Vault.open(root)
    vault.reconcile_in_child()
    assert vault.counts() == (3, 0)
    assert vault.index.folder.parent == tmp_path / "relative"
    vault.close()


def test_an_error_of_the_child_is_the_error_that_it_was(
    root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.rmdir()
    with pytest.raises(VaultLspError, match=str(root)) as caught:
        vault.reconcile_in_child()
    assert caught.value.code == "vault-not-found"
    assert isinstance(child._error("index-read-only", "x"), IndexReadOnly)
    monkeypatch.setattr(child, "_PROGRAM", "raise SystemExit(3)")
    with pytest.raises(VaultLspError, match="ended with code 3"):
        vault.reconcile_in_child()


def test_a_cancelled_child_ends_at_once(root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_PROGRAM", "import time; time.sleep(60)")
    started = time.monotonic()
    with pytest.raises(Cancelled):
        vault.reconcile_in_child(cancelled=lambda: time.monotonic() > started + 0.3)
    assert time.monotonic() - started < 10
    assert children() == []


def test_the_child_and_its_workers_end_with_their_parent(root: Path) -> None:
    fill(root, 400, 2000)
    program = INDEX.replace("vault.reconcile(workers=int(sys.argv[2]))", "vault.reconcile_in_child()")
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(root), "0"], env={**os.environ, "PYTHONPATH": str(PACKAGE)}
    )
    family: set[int] = set()

    def descendants(of: int) -> set[int]:
        found = {int(pid) for pid in Path(f"/proc/{of}/task/{of}/children").read_text().split()}
        return found.union(*(descendants(pid) for pid in found))

    until = time.monotonic() + 20
    while len(family) < 2 and time.monotonic() < until and parent.poll() is None:
        try:
            family = descendants(parent.pid)
        except OSError:
            continue
        time.sleep(0.01)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert family
    until = time.monotonic() + 10
    while any(alive(pid) for pid in family) and time.monotonic() < until:
        time.sleep(0.05)
    assert [pid for pid in family if alive(pid)] == []


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_reading_goes_on_while_another_process_makes_the_first_index(root: Path) -> None:
    fill(root, 150, 300)
    process = start(root)
    vault = Vault.open(root)
    slowest = 0.0
    while process.poll() is None:
        started = time.perf_counter()
        with vault.view() as view:
            view.search(Query("word7"))
            view.paths()
        slowest = max(slowest, time.perf_counter() - started)
        time.sleep(0.005)
    process.communicate()
    assert slowest < 2
    assert found_everywhere(vault, 150)
    vault.close()
    assert threading.active_count() < 20
    assert json.loads((vault.index.folder / "vault.json").read_text())["root"] == str(root)
