"""What can happen to the index file, and to the vault as a whole."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from vault_lsp import doctor
from vault_lsp.core.model import NotePath
from vault_lsp.errors import IndexBusy, IndexDamaged, IndexReadOnly
from vault_lsp.search import Query
from vault_lsp.service import Vault
from vault_lsp.store import db, place

NOTES = 40


def fill(root: Path) -> None:
    """Notes of some hundred bytes, one word in each that no other has."""
    past = time.time_ns() - 60 * 10**9
    for number in range(NOTES):
        file = root / f"n{number:03}.md"
        file.write_text(f"# Note {number}\n\nword{number} [[n{(number + 1) % NOTES:03}]] " + "text " * 60)
        os.utime(file, ns=(past, past))


def indexed(root: Path) -> Path:
    """Index the vault, close it, and give its index file."""
    fill(root)
    vault = Vault.open(root)
    vault.reconcile()
    vault.close()
    time.sleep(0.02)  # so that whatever comes next has another time
    return vault.index.file


def hits(vault: Vault, query: str) -> list[str]:
    with vault.view() as view:
        return [hit.path for hit in view.search(Query(query)).hits]


def sync_and_search(root: Path, query: str) -> list[str]:
    """What the search command does."""
    vault = Vault.open(root)
    try:
        vault.reconcile()
        return hits(vault, query)
    finally:
        vault.close()


# Damage ---------------------------------------------------------------------------------------------------------------


def overwrite(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as stream:
        stream.seek(at)
        stream.write(data)


def user_version(file: Path) -> None:
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute("PRAGMA user_version = 999").fetchall()


def drop_table(file: Path) -> None:
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute("DROP TABLE links").fetchall()


def folder_instead(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "junk": lambda file: file.write_bytes(os.urandom(100)),
    "empty": lambda file: file.write_bytes(b""),
    "cut off": lambda file: os.truncate(file, file.stat().st_size // 3),
    "cut off within a page": lambda file: os.truncate(file, file.stat().st_size - 1000),
    "another database": lambda file: (
        file.unlink(),
        closing(apsw.Connection(str(file))).thing.execute("CREATE TABLE t(x)"),
    ),
    "user_version": user_version,
    "a table less": drop_table,
    "folder": folder_instead,
    "head": lambda file: overwrite(file, 0, bytes(8192)),
    **{
        f"hole at {part}/16": lambda file, part=part: overwrite(file, file.stat().st_size * part // 16, bytes(8192))
        for part in range(1, 16)
    },
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_is_noticed_built_anew_and_never_answers_with_nothing(
    damage: str, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = indexed(root)
    DAMAGE[damage](file)
    vault = Vault.open(root)
    try:
        # Without a sync, an answer is right or the vault says that nothing is indexed.
        assert hits(vault, "word7") == ["n007.md"] or vault.needs_first_index()
        vault.reconcile()
        assert [hits(vault, f"word{number}") for number in (0, 7, 39)] == [["n000.md"], ["n007.md"], ["n039.md"]]
        assert vault.verify() == []
    finally:
        vault.close()
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 1
    assert sync_and_search(root, "word7") == ["n007.md"]


def test_damage_under_an_open_vault_heals_at_the_next_reconcile(root: Path) -> None:
    file = indexed(root)
    vault = Vault.open(root)
    for part in range(1, 8):
        overwrite(file, file.stat().st_size * part // 8 // 4096 * 4096, bytes(4096))
    failed = False
    for number in range(NOTES):
        try:
            assert hits(vault, f"word{number}") == [f"n{number:03}.md"]
            with vault.view() as view:
                view.backlinks(NotePath(f"n{number:03}.md"))
        except IndexDamaged:
            failed = True
    assert failed
    vault.reconcile([NotePath("n000.md")])
    assert vault.verify() == []
    assert hits(vault, "word7") == ["n007.md"]
    vault.close()


def test_an_index_that_nobody_touched_is_not_checked_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = indexed(root)
    checked: list[Path] = []
    monkeypatch.setattr(db, "check", checked.append)
    Vault.open(root).close()
    first, second = Vault.open(root), Vault.open(root)
    (root / "new.md").write_text("new")
    first.reconcile()
    (root / "newer.md").write_text("newer")
    second.reconcile()
    first.close()
    second.close()
    Vault.open(root).close()
    assert checked == []
    os.utime(file, ns=(1, 1))
    Vault.open(root).close()
    assert checked == [file]


def test_an_index_of_an_older_schema_lies_beside_untouched_until_it_is_pruned(root: Path, vault: Vault) -> None:
    old = vault.index.folder / "index-v0.1.db"
    with closing(apsw.Connection(str(old))) as connection:
        connection.execute("CREATE TABLE notes(x)").fetchall()
    before = old.read_bytes()
    fill(root)
    vault.reconcile()
    assert hits(vault, "word7") == ["n007.md"]
    assert old.read_bytes() == before
    assert doctor.prune_indexes(vault) == [str(old)]


# Deleted, remade, pruned ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["file", "folder", "file without its log"])
def test_an_index_deleted_under_an_open_vault_is_made_again(what: str, root: Path) -> None:
    fill(root)
    vault, other = Vault.open(root), Vault.open(root)
    vault.reconcile()
    before = other.data_version()
    if what == "folder":
        shutil.rmtree(vault.index.folder)
    else:
        vault.index.file.unlink()
        if what == "file":
            for side in ("-wal", "-shm"):
                vault.index.file.with_name(vault.index.file.name + side).unlink()
    assert other.data_version() != before
    assert other.needs_first_index()
    vault.reconcile([NotePath("n000.md")])
    assert hits(vault, "word7") == hits(other, "word7") == ["n007.md"]
    other.reconcile()
    assert other.verify() == vault.verify() == []
    vault.close()
    other.close()
    assert sync_and_search(root, "word39") == ["n039.md"]


def test_a_rebuild_answers_all_the_time_and_others_follow(root: Path, vault: Vault) -> None:
    fill(root)
    vault.reconcile()
    other = Vault.open(root)
    seen: list[list[str]] = []
    with other.view() as old:
        vault.rebuild(progress=lambda _: seen.append(hits(other, "word7")))
        # A question that began before goes on in the old generation.
        assert [hit.path for hit in old.search(Query("word7")).hits] == ["n007.md"]
    assert seen
    assert all(found == ["n007.md"] for found in seen)
    assert vault.index.generation() == 2
    assert hits(other, "word8") == ["n008.md"]
    (root / "n007.md").write_text("changed")
    other.reconcile()
    assert hits(vault, "word7") == []
    other.close()


def test_a_rebuild_cut_short_changes_nothing(root: Path, vault: Vault) -> None:
    fill(root)
    vault.reconcile()

    def fail(step: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vault.rebuild(progress=fail)
    assert vault.index.generation() == 1
    assert hits(vault, "word7") == ["n007.md"]
    assert [file.name for file in vault.index.folder.glob("index-*.db")] == ["index-v3.1.db"]


def test_prune_removes_what_nobody_uses(root: Path, vault: Vault, tmp_path: Path, cache: Path) -> None:
    gone, kept = tmp_path / "gone", tmp_path / "kept"
    for folder in (gone, kept):
        folder.mkdir()
        (folder / "x.md").write_text("x")
        other = Vault.open(folder)
        other.reconcile()
        other.close()
    orphan, living = place.locate(gone, None).folder, place.locate(kept, None).folder
    shutil.rmtree(gone)
    (cache / "foreign").mkdir()
    (cache / "foreign/precious.txt").write_text("x")
    fill(root)
    vault.reconcile()
    with closing(db.connect(vault.index.file, writable=False)) as reader:
        vault.rebuild()
        assert doctor.prune_indexes(vault) == [str(orphan)]
        assert reader.execute("SELECT count(*) FROM documents").fetchall() == [(NOTES,)]
    assert [Path(file).name for file in doctor.prune_indexes(vault)] == ["index-v3.1.db"]
    assert doctor.prune_indexes(vault) == []
    assert sorted(file.name for file in vault.index.folder.iterdir() if file.suffix not in (".db-wal", ".db-shm")) == [
        *("CACHEDIR.TAG", "current-v3", "index-v3.2.db", "index-v3.2.seal", "vault.json"),
        *("vectors-v1.1.db", "vectors-v1.1.seal"),
    ]
    assert living.exists()
    assert (cache / "foreign/precious.txt").exists()
    assert hits(vault, "word7") == ["n007.md"]


def test_an_index_of_a_vault_that_is_gone_stays_while_it_is_open(vault: Vault, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    other = Vault.open(gone)
    other.reconcile()
    gone.rmdir()
    assert doctor.prune_indexes(vault) == []
    other.close()
    assert doctor.prune_indexes(vault) == [str(other.index.folder)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE links SET target = 'x' WHERE rowid IN (SELECT 1) OR document = 1",
        "DELETE FROM links WHERE document = 3",
        "UPDATE documents SET title = 'Other' WHERE path = 'n007.md'",
        "DELETE FROM documents WHERE path = 'n007.md'",
        "UPDATE chunks SET line_end = line_end + 1 WHERE document = 3",
        "DELETE FROM chunk_fts WHERE rowid = 3",
        "DELETE FROM name_fts WHERE rowid = 3",
        "INSERT INTO files VALUES('ghost.png', 'file', NULL)",
        "UPDATE headings SET slug = 'x' WHERE document = 2",
        "UPDATE names SET key = 'x' WHERE document = 2",
    ],
)
def test_verify_sees_a_row_that_was_altered_by_hand(statement: str, root: Path) -> None:
    file = indexed(root)
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute(statement.replace("rowid IN (SELECT 1) OR ", "")).fetchall()
    vault = Vault.open(root)
    assert vault.verify() != []
    checks = {check.name: check for check in doctor.examine(vault, verify=True)}
    assert not checks["verify"].ok
    vault.rebuild()
    checks = {check.name: check for check in doctor.examine(vault, verify=True)}
    assert [check for check in checks.values() if not check.ok] == []
    vault.close()


# Places ---------------------------------------------------------------------------------------------------------------


def test_the_index_folder_is_private_and_a_cache(vault: Vault) -> None:
    folder = vault.index.folder
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert json.loads((folder / "vault.json").read_text()) == {"root": str(vault.root)}
    assert not (folder / ".gitignore").exists()


def test_two_vaults_of_one_name_have_two_indexes(tmp_path: Path) -> None:
    (tmp_path / "a/notes").mkdir(parents=True)
    (tmp_path / "b/notes").mkdir(parents=True)
    assert place.locate(tmp_path / "a/notes", None).folder != place.locate(tmp_path / "b/notes", None).folder


@pytest.mark.parametrize("configured", [".vault-lsp/index", "idx", ".vault-lsp", "notes", "."])
def test_an_index_inside_the_vault_ignores_itself(configured: str, root: Path) -> None:
    fill(root)
    for folder in (".vault-lsp", "notes"):
        (root / folder).mkdir()
    (root / "notes/mine.md").write_text("mineword")
    (root / ".vault-lsp/config.yaml").write_text(f"index:\n  path: {configured}\n")
    subprocess.run(["git", "init", "-q", root], check=True)
    vault = Vault.open(root)
    vault.reconcile()
    assert vault.index.folder == (root / configured).resolve()
    assert vault.index.file.is_file()
    assert not vault.pending()
    assert not vault.reconcile()
    assert hits(vault, "mineword") == ["notes/mine.md"]
    status = subprocess.run(
        ["git", "-C", root, "status", "--porcelain", "-uall"], check=True, capture_output=True, text=True
    ).stdout
    listed = {line[3:] for line in status.splitlines()} - {f"n{number:03}.md" for number in range(NOTES)}
    assert listed - {".gitignore", f"{configured}/.gitignore"} == {"notes/mine.md", ".vault-lsp/config.yaml"}
    vault.close()


# Moved ----------------------------------------------------------------------------------------------------------------


def test_a_moved_vault_finds_its_index(root: Path, tmp_path: Path) -> None:
    indexed(root)
    (root / "n001.md").write_text("edited before the move")
    moved = root.rename(tmp_path / "elsewhere")
    (moved / "n000.md").write_text("edited since")
    vault = Vault.open(moved)
    assert hits(vault, "word7") == ["n007.md"]
    assert not vault.needs_first_index()
    assert len(vault.pending().stale) == 2
    assert sorted(vault.reconcile().changed) == ["n000.md", "n001.md"]
    assert vault.verify() == []
    assert place.recorded_root(vault.index.folder) == moved
    with closing(db.connect(vault.index.file, writable=False)) as connection:
        assert connection.execute("SELECT value FROM meta WHERE key = 'root'").fetchall() == [(str(moved),)]
    vault.close()
    assert not [file for file in vault.index.folder.iterdir() if file.name.count(".") > 2]
    # And once more, from the new place.
    vault = Vault.open(moved.rename(tmp_path / "further"))
    assert not vault.reconcile()
    vault.close()


def test_a_copied_vault_gets_an_index_of_its_own(root: Path, tmp_path: Path) -> None:
    indexed(root)
    shutil.copytree(root, tmp_path / "copy")
    vault = Vault.open(tmp_path / "copy")
    assert vault.needs_first_index()
    vault.close()


def test_another_vault_does_not_take_the_index_of_one_that_is_gone(root: Path, tmp_path: Path) -> None:
    file = indexed(root)
    shutil.rmtree(root)
    other = tmp_path / "other"
    other.mkdir()
    fill(other)
    for note in other.glob("*.md"):
        os.utime(note, ns=(10**18, 10**18))
    vault = Vault.open(other)
    assert vault.needs_first_index()
    vault.close()
    assert file.exists()


@pytest.mark.parametrize("damage", ["junk", "empty", "cut off", "hole at 8/16", "user_version", "folder"])
def test_a_damaged_index_of_a_moved_vault_is_no_help_and_no_harm(damage: str, root: Path, tmp_path: Path) -> None:
    DAMAGE[damage](indexed(root))
    assert sync_and_search(root.rename(tmp_path / "elsewhere"), "word7") == ["n007.md"]


# Many at once ---------------------------------------------------------------------------------------------------------


def test_a_busy_writer_is_told_after_a_while_and_readers_never_wait(
    root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root)
    vault.reconcile()
    monkeypatch.setattr(db, "BUSY_MS", 50)
    other = Vault.open(root)
    (root / "n007.md").write_text("changed")
    with closing(db.connect(vault.index.file, writable=True)) as writer, db.atomic(writer):
        started = time.monotonic()
        with pytest.raises(IndexBusy, match=rf"{vault.index.file}.*another process is writing"):
            other.reconcile()
        assert time.monotonic() - started < 5
        started = time.monotonic()
        assert hits(other, "word7") == ["n007.md"]
        assert time.monotonic() - started < 5
    other.reconcile()
    assert hits(vault, "changed") == ["n007.md"]
    other.close()


def test_the_log_is_emptied_once_nobody_reads_an_older_state(root: Path, vault: Vault) -> None:
    fill(root)
    vault.reconcile()
    log = vault.index.file.with_name(vault.index.file.name + "-wal")
    number = 0

    def edit(until: Callable[[], bool]) -> None:
        nonlocal number
        while not until() and number < 400:
            number += 1
            (root / "big.md").write_text(f"edition{number} " + " ".join(f"w{number}x{n}" for n in range(9000)))
            vault.reconcile([NotePath("big.md")])

    with vault.view() as view:
        edit(lambda: log.stat().st_size > 10 << 20)
        assert [hit.path for hit in view.search(Query("word7")).hits] == ["n007.md"]
        assert view.note(NotePath("big.md")) is None
    vault.reconcile()
    edit(lambda: number % 2 == 0)
    vault.reconcile([NotePath("big.md")])
    assert log.stat().st_size <= 8 << 20
    vault.close()
    assert not log.exists()
    assert place.locate(root, None).sealed()


def test_threads_and_vaults_share_one_index(root: Path) -> None:
    fill(root)
    vaults = [Vault.open(root) for _ in range(3)]
    vaults[0].reconcile()
    errors: list[BaseException] = []
    stop = time.monotonic() + 1.5

    def read(vault: Vault) -> None:
        while time.monotonic() < stop:
            with vault.view() as view:
                # One state: the note and the search agree.
                found = [hit.path for hit in view.search(Query("shared")).hits]
                note = view.require(NotePath("n000.md"))
                assert bool(found) == ("shared" in note.title)
            assert hits(vault, "word7") == ["n007.md"]

    def write(vault: Vault) -> None:
        number = 0
        while time.monotonic() < stop:
            number += 1
            (root / "n000.md").write_text(f"# {'shared' if number % 2 else 'alone'} {number}\n")
            vault.reconcile([NotePath("n000.md")] if number % 3 else None)
            if number % 20 == 0:
                vault.rebuild()

    def run(job: Callable[[Vault], None], vault: Vault) -> None:
        try:
            job(vault)
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            errors.append(error)

    jobs = [(read, vaults[0]), (read, vaults[0]), (read, vaults[1]), (write, vaults[1]), (write, vaults[2])]
    threads = [threading.Thread(target=run, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    vaults[0].reconcile()
    assert vaults[0].verify() == []
    for vault in vaults:
        vault.close()


def test_two_threads_may_open_a_vault_for_the_first_time_at_once(root: Path) -> None:
    fill(root)
    barrier = threading.Barrier(4)
    found: list[object] = []

    def run() -> None:
        try:
            barrier.wait()
            found.append(sync_and_search(root, "word7"))
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            found.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["n007.md"]] * 4
    assert place.locate(root, None).generation() == 1


def test_a_closed_vault_leaves_no_file_thread_or_process_open(root: Path) -> None:
    fill(root)

    def cycle(workers: int) -> None:
        vault = Vault.open(root)
        vault.reconcile(workers=workers)
        with vault.view() as view:
            view.search(Query("word7"))
        reader = vault.view()
        reader.__enter__()
        vault.close()
        reader.__exit__(None, None, None)
        (root / "n000.md").write_text(str(time.time_ns()))

    cycle(1)
    files, threads = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    for number in range(50):
        cycle(2 if number % 25 == 0 else 0)
    assert len(list(Path("/proc/self/fd").iterdir())) <= files
    assert threading.active_count() <= threads
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    assert children == []


# Read-only and full ---------------------------------------------------------------------------------------------------

FULL = """
import resource, signal, sys
from pathlib import Path
from vault_lsp.service import Vault
from vault_lsp.errors import VaultLspError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
vault = Vault.open(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    vault.reconcile()
except VaultLspError as error:
    print(error.code, error)
vault.close()
"""


@pytest.mark.parametrize("size", [150_000, 300_000])
def test_a_disk_that_takes_no_more_is_told_and_the_next_run_heals(size: int, root: Path) -> None:
    fill(root)
    for note in root.glob("*.md"):
        note.write_text(note.read_text() + " ".join(f"{note.stem}x{number}" for number in range(900)))
    before = {note: note.read_bytes() for note in root.glob("*.md")}
    ended = subprocess.run(
        [sys.executable, "-c", FULL, str(root), str(size)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("index-read-only")
    assert str(place.locate(root, None).file) in ended.stdout
    assert len(ended.stdout.splitlines()) == 1
    assert {note: note.read_bytes() for note in root.glob("*.md")} == before
    assert sync_and_search(root, "word7") == ["n007.md"]
    vault = Vault.open(root)
    assert vault.verify() == []
    vault.close()


def test_a_full_disk_is_named_as_such(root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IndexReadOnly, match="no space left"), db.translated(vault.index.file):
        raise apsw.FullError("database or disk is full")
    with pytest.raises(IndexReadOnly, match="no space left"), place.refused(vault.index.folder):
        raise OSError(28, "No space left on device")
