"""One index file: made whole, opened as what it is, and every error of the driver as one of ours."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from vault_lsp.errors import IndexBusy, IndexDamaged, IndexReadOnly, VaultLspError
from vault_lsp.store import db, notes, place, rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "index-v3.1.db"
    db.create(made, tmp_path)
    return made


def test_an_index_appears_whole_and_once(tmp_path: Path) -> None:
    file = tmp_path / "index-v3.1.db"
    serials: list[str] = []
    barrier = threading.Barrier(6)

    def make() -> None:
        barrier.wait()
        db.create(file, tmp_path)
        with closing(db.connect(file, writable=True)) as connection:
            serials.append(notes.state(connection).serial)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(serials) == 6
    assert len(set(serials)) == 1
    assert [found.name for found in tmp_path.iterdir()] == [file.name]


def test_without_hard_links_an_index_is_renamed_into_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    file = tmp_path / "index-v3.1.db"
    db.create(file, tmp_path)
    with closing(db.connect(file, writable=True)) as connection, db.atomic(connection):
        rows.bump_names(connection)
    db.create(file, tmp_path)
    with closing(db.connect(file, writable=False)) as connection:
        assert notes.state(connection).names == 1
    assert [found.name for found in tmp_path.iterdir()] == [file.name]


def test_a_reader_cannot_write(file: Path) -> None:
    with closing(db.connect(file, writable=False)) as reader, pytest.raises(IndexReadOnly), db.translated(file):
        reader.execute("DELETE FROM meta")


def test_a_check_takes_the_writing_of_others_for_no_damage(file: Path) -> None:
    with closing(db.connect(file, writable=True)) as writer, closing(db.connect(file, writable=False)) as reader:
        for number in range(1, 200):
            reader.execute("SELECT rowid FROM name_fts WHERE name_fts MATCH 'one'").fetchall()
            with db.atomic(writer):
                writer.execute("INSERT INTO name_fts(rowid, words) VALUES(?, 'one two')", (number,))
                writer.execute("DELETE FROM name_fts WHERE rowid = ?", (number - number % 3,))
            if number % 20 == 0:
                db.check(file)


def test_a_snapshot_sees_one_state(file: Path) -> None:
    with closing(db.connect(file, writable=True)) as writer, closing(db.connect(file, writable=False)) as reader:
        with db.snapshot(reader):
            with db.atomic(writer):
                rows.count_change(writer)
            assert notes.state(reader).changes == 0
        assert notes.state(reader).changes == 1


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_transaction_is_written_whole_or_not_at_all(error: type[BaseException], file: Path) -> None:
    with closing(db.connect(file, writable=True)) as writer:
        with pytest.raises(error), db.atomic(writer):  # noqa: PT012 - what fails is what was begun
            rows.count_change(writer)
            raise error
        assert notes.state(writer).changes == 0
        with db.atomic(writer):
            rows.count_change(writer)
        assert notes.state(writer).changes == 1


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (apsw.BusyError, IndexBusy),
        (apsw.LockedError, IndexBusy),
        (apsw.CorruptError, IndexDamaged),
        (apsw.NotADBError, IndexDamaged),
        (apsw.SQLError, IndexDamaged),
        (apsw.ReadOnlyError, IndexReadOnly),
        (apsw.FullError, IndexReadOnly),
        (apsw.CantOpenError, IndexReadOnly),
        (apsw.IOError, IndexReadOnly),
        (ValueError, ValueError),
    ],
)
def test_an_error_of_the_driver_becomes_one_with_the_path(
    raised: type[Exception], expected: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(expected) as caught, db.translated(tmp_path / "x.db"):
        raise raised("what")
    assert not isinstance(caught.value, VaultLspError) or str(tmp_path / "x.db") in str(caught.value)


def test_a_file_in_use_is_known_without_asking_its_user(file: Path) -> None:
    assert not place.in_use(file)
    with closing(db.connect(file, writable=False)):
        assert place.in_use(file)
        assert not place.remove(file)
    assert not place.in_use(file)
    assert place.remove(file)
    assert not file.exists()


def test_what_is_no_database_can_be_removed(tmp_path: Path) -> None:
    junk = tmp_path / "index-v0.7.db"
    junk.write_bytes(b"junk" * 999)
    (tmp_path / "index-v0.8.db").mkdir()
    assert place.remove(junk)
    assert not place.remove(tmp_path / "index-v0.8.db")


def test_the_pointer_names_the_generation_and_rubbish_in_it_the_first(tmp_path: Path) -> None:
    index = place.Index(tmp_path, tmp_path)
    assert index.file.name == "index-v3.1.db"
    index.point_to(tmp_path / "index-v3.7.db")
    assert index.file.name == "index-v3.7.db"
    assert index.next_generation().name == "index-v3.8.db"
    (tmp_path / "index-v3.12.db-wal").touch()
    assert index.next_generation().name == "index-v3.13.db"
    for rubbish in (b"", b"x", b"-3", b"\xff"):
        index.pointer.write_bytes(rubbish)
        assert index.generation() == 1


def test_a_log_without_its_database_is_never_taken_up(tmp_path: Path) -> None:
    index = place.Index(tmp_path, tmp_path)
    assert index.vacant() == index.file
    (tmp_path / "index-v3.1.db-wal").write_bytes(b"x")
    assert index.vacant().name == "index-v3.2.db"
