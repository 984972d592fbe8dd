"""The file of vectors: damage, death, other processes, the missing extension, and what is kept or dropped."""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import numpy as np
import pytest

from vault_lsp import doctor
from vault_lsp.core.model import NotePath
from vault_lsp.core.tokens import query_terms
from vault_lsp.errors import IndexBusy, IndexReadOnly, VectorsUnavailable
from vault_lsp.service import Vault
from vault_lsp.store import compare, db, matrix, place, search, vector_file, vector_store, vectors
from vault_lsp.store.connections import Connections
from vault_lsp.store.search import NO_FILTERS
from vault_lsp.store.vectors import Embedding, Model

QUERY = np.array([1, 0, 0, 0], np.float32)
COUNT = 12


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("VAULT_LSP_INDEX_DIR", str(folder))
    return folder


@pytest.fixture
def root(tmp_path: Path, cache: Path) -> Path:
    folder = tmp_path / "vault"
    folder.mkdir()
    for number in range(COUNT):
        (folder / f"n{number:02}.md").write_text(f"# Note {number}\n\nword{number}\n", "utf-8")
    return folder


@pytest.fixture
def vault(root: Path) -> Iterator[Vault]:
    opened = Vault.open(root)
    opened.reconcile()
    yield opened
    opened.close()


def store_of(vault: Vault) -> vectors.VectorStore:
    return vault._connections.vectors


def vector(seed: object) -> bytes:
    numbers = np.random.default_rng(abs(hash(seed)) % 2**32).normal(size=4).astype(np.float32)
    return (numbers / np.linalg.norm(numbers)).tobytes()


def embed(vault: Vault, name: str = "m", count: int | None = None) -> Model:
    """Give every chunk that lacks one a vector."""
    store = store_of(vault)
    with vault._connections.reader() as reader, store.writer() as connection:
        model = store.add_model(connection, f"{name}@1", name, 4)
        missing = vectors.missing(reader, model, count)
        store.put(connection, model, [Embedding(item.sha, vector(item.sha)) for item in missing])
    return model


def covered(vault: Vault, model: Model) -> tuple[int, int]:
    with vault._connections.reader() as connection:
        return vectors.coverage(connection, model)


def near(vault: Vault, model: Model, *, resident: bool = False) -> list[str]:
    with vault._connections.reader() as connection:
        return [hit.path for hit in vectors.nearest(connection, model, QUERY, NO_FILTERS, 99, resident=resident)]


def prune(vault: Vault, model: Model) -> int:
    with vault._connections.reader() as connection:
        return store_of(vault).prune(connection, model)


def keyword(vault: Vault, word: str) -> list[str]:
    with vault._connections.reader() as connection:
        return [hit.path for hit in search.keyword(connection, query_terms(word), NO_FILTERS, 5)]


def vector_files(vault: Vault) -> list[str]:
    return sorted(file.name for file in vault.index.folder.glob("vectors-v*.db"))


# Readable by others ---------------------------------------------------------------------------------------------------


def test_what_is_stored_is_readable_without_the_extension(vault: Vault) -> None:
    embed(vault)
    with closing(apsw.Connection(str(vault.index.vectors.file))) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT sha) FROM vectors").fetchall() == [(COUNT, COUNT)]
        assert connection.execute("SELECT fingerprint, name, dimensions, rows FROM models").fetchall() == [
            ("m@1", "m", 4, COUNT)
        ]
    if os.name == "posix":
        assert vault.index.folder.stat().st_mode & 0o777 == 0o700


def test_without_the_extension_only_vectors_are_missing(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    model = embed(vault)

    def refuse(_: apsw.Connection) -> None:
        raise ImportError("No module named 'sqlite_vec'")

    monkeypatch.setattr(vector_file, "_load", refuse)
    vector_file.extension_problem.cache_clear()
    try:
        assert vectors.extension_problem() == "the package sqlite-vec is not installed"
        again = Vault.open(vault.root)
        assert keyword(again, "word7") == ["n07.md"]
        assert covered(again, model) == (COUNT, COUNT)
        for resident in (False, True):
            with pytest.raises(VectorsUnavailable, match="not installed"):
                near(again, model, resident=resident)
        with pytest.raises(VectorsUnavailable, match="not installed"):
            embed(again)
        (vault.root / "n07.md").write_text("other", "utf-8")
        again.reconcile()
        assert keyword(again, "word7") == []
        checks = {check.name: check for check in doctor.examine(again, verify=True)}
        assert not checks["sqlite-vec"].ok
        assert "not installed" in checks["sqlite-vec"].message
        assert checks["verify"].ok
        again.close()
    finally:
        vector_file.extension_problem.cache_clear()


def test_of_a_read_only_folder_vectors_are_still_read(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    model = embed(vault)
    expected = near(vault, model)
    vault.close()
    monkeypatch.setattr(db, "can_write", lambda _: False)
    again = Vault.open(vault.root)
    assert near(again, model) == near(again, model, resident=True) == expected
    with pytest.raises(IndexReadOnly):
        embed(again)
    vault.index.vectors.file.unlink()
    monkeypatch.setattr(vector_file, "create", lambda _: pytest.fail("the folder is read-only"))
    monkeypatch.setattr(vector_file, "create_folder", refuse_to_write)
    bare = Vault.open(vault.root)
    assert covered(bare, model) == (COUNT, 0)
    assert near(bare, model) == []
    assert keyword(bare, "word7") == ["n07.md"]
    again.close()
    bare.close()


def refuse_to_write(_: object) -> None:
    raise IndexReadOnly("the index can't be written")


# Damage ---------------------------------------------------------------------------------------------------------------


def cut_off(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def overwrite(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def other_database(file: Path) -> None:
    file.unlink()
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute("CREATE TABLE mine(x)").fetchall()


def without_a_table(file: Path) -> None:
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute("DROP TABLE models").fetchall()


def without_numbers(file: Path) -> None:
    with closing(apsw.Connection(str(file))) as connection:
        vector_file.load_extension(connection)
        connection.execute("DROP TABLE vec_1").fetchall()


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"junk" * 5000),
        cut_off,
        overwrite,
        other_database,
        without_a_table,
        without_numbers,
    ],
    ids=["empty", "junk", "cut off", "overwritten", "another database", "without a table", "without numbers"],
)
def test_a_damaged_file_is_left_and_another_begun(
    damage: Callable[[Path], object], vault: Vault, caplog: pytest.LogCaptureFixture
) -> None:
    embed(vault)
    vault.close()
    index = vault.index.file.read_bytes()
    damaged = vault.index.vectors.file
    damage(damaged)
    before = damaged.read_bytes()
    caplog.set_level(logging.WARNING)
    again = Vault.open(vault.root)
    assert keyword(again, "word7") == ["n07.md"]
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        "the database of vectors is damaged and is begun anew"
    ]
    assert damaged.read_bytes() == before
    assert vector_files(again) == ["vectors-v1.1.db", "vectors-v1.2.db"]
    assert again.index.generation() == 1
    model = embed(again)
    assert covered(again, model) == (COUNT, COUNT)
    assert len(near(again, model)) == COUNT
    again.close()
    assert vault.index.file.read_bytes() == index
    assert compare.vector_problems(again.index.vectors.file) == []


def test_damage_under_a_running_process_costs_vectors_and_nothing_else(vault: Vault) -> None:
    model = embed(vault)
    assert len(near(vault, model)) == COUNT
    with store_of(vault).writer() as connection:
        connection.execute("PRAGMA wal_checkpoint(truncate)").fetchall()
    overwrite(vault.index.vectors.file)
    seen = []
    for _ in range(4):
        assert keyword(vault, "word7") == ["n07.md"]
        try:
            seen.append(len(near(vault, model)))
        except VectorsUnavailable:
            seen.append(-1)
    assert seen[-1] == 0
    assert vector_files(vault) == ["vectors-v1.1.db", "vectors-v1.2.db"]
    model = embed(vault)
    assert len(near(vault, model)) == COUNT
    assert vault.index.generation() == 1


def test_a_deleted_file_is_begun_anew_under_an_open_vault(vault: Vault) -> None:
    model = embed(vault)
    assert len(near(vault, model, resident=True)) == COUNT
    for file in vault.index.folder.glob("vectors-v*"):
        file.unlink()
    assert covered(vault, model) == (COUNT, 0)
    assert near(vault, model, resident=True) == []
    model = embed(vault)
    assert len(near(vault, model, resident=True)) == len(near(vault, model)) == COUNT


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("DELETE FROM vec_1 WHERE rowid = 3", "1 without numbers"),
        ("DELETE FROM vectors WHERE id = 3", "1 numbers of no vector"),
        ("UPDATE models SET rows = rows + 1", "12 of them up to 12, and not 13"),
        ("UPDATE models SET last = 2", "12 of them up to 12, and not 12 up to 2"),
        ("UPDATE vectors SET model = 7 WHERE id = 3", "1 of no model"),
        ("UPDATE vectors SET script = 5 WHERE id = 3", "1 of another script"),
        ("UPDATE vec_1 SET embedding = '[1, 2, 3, 4]' WHERE rowid = 3", "1 not of length 1"),
        ("UPDATE scripts SET total = zeroblob(32)", "the sum of those of script 0"),
        ("DELETE FROM scripts", "no sum of those of script 0"),
    ],
)
def test_whatever_does_not_agree_is_found(statement: str, complaint: str, vault: Vault) -> None:
    embed(vault)
    assert doctor.examine(vault, verify=True)[-1].message == "equal to an index made afresh"
    with store_of(vault).writer() as connection:
        connection.execute(statement).fetchall()
    assert complaint in "; ".join(compare.vector_problems(vault.index.vectors.file))
    assert not doctor.examine(vault, verify=True)[-1].ok


# Death ----------------------------------------------------------------------------------------------------------------

PUTTER = """
import sys
from pathlib import Path
import numpy as np
from vault_lsp.store import place, vectors
root = Path(sys.argv[1])
store = vectors.VectorStore(place.locate(root, None))
with vectors.embedding_lock(store.index.folder):
    with store.writer() as connection:
        model = store.add_model(connection, "m@1", "m", 4)
    for batch in range(int(sys.argv[2]), 100000):
        with store.writer() as connection:
            one = np.array([1, 0, 0, 0], np.float32).tobytes()
            store.put(connection, model, [vectors.Embedding(b"%d.%d" % (batch, at), one) for at in range(8)])
        print(batch, flush=True)
"""


def test_killed_at_any_moment_at_most_one_batch_is_lost(root: Path) -> None:
    Vault.open(root).close()
    done = 0
    moments = random.Random(4)
    for _ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", PUTTER, str(root), str(done)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            last = int(process.stdout.readline())
            with pytest.raises(IndexBusy), vectors.embedding_lock(place.locate(root, None).folder):
                pass
            time.sleep(moments.uniform(0, 0.08))
            process.send_signal(signal.SIGKILL)
            for line in process.stdout:
                last = int(line)
        with vectors.embedding_lock(place.locate(root, None).folder), closing(Vault.open(root)) as vault:
            file = vault.index.vectors.file
            assert compare.vector_problems(file) == []
            with closing(vector_file.connect(file, writable=False)) as connection:
                (stored,) = db.one(connection, "SELECT count(*) FROM vectors")
            assert stored in (8 * (last + 1), 8 * (last + 2))
            done = stored // 8
            assert vector_files(vault) == ["vectors-v1.1.db"]


# Locks ----------------------------------------------------------------------------------------------------------------


def test_one_embeds_at_a_time_even_in_one_process(tmp_path: Path) -> None:
    outcome: list[str] = []

    def attempt() -> None:
        try:
            with vectors.embedding_lock(tmp_path):
                outcome.append("taken")
        except IndexBusy:
            outcome.append("busy")

    with vectors.embedding_lock(tmp_path):
        attempt()
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    attempt()
    assert outcome == ["busy", "busy", "taken"]


def test_two_writers_and_readers_at_once_lose_nothing(vault: Vault) -> None:
    stores = [store_of(vault), vectors.VectorStore(vault.index)]
    model = embed(vault)
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for batch in range(40):
                with stores[number].writer() as connection:
                    items = [Embedding(b"%d.%d.%d" % (number, batch, at), vector(at)) for at in range(5)]
                    stores[number].put(connection, model, items)
        except BaseException as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    def read() -> None:
        try:
            for resident in [False, True] * 40:
                assert len(near(vault, model, resident=resident)) == COUNT
        except BaseException as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in (0, 1)]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stores[1].close()
    assert failures == []
    assert compare.vector_problems(vault.index.vectors.file) == []
    with vault._connections.reader() as connection:
        assert db.one(connection, "SELECT rows FROM vec.models")[0] == COUNT + 2 * 40 * 5


# Kept and dropped -----------------------------------------------------------------------------------------------------


def test_a_new_index_keeps_the_vectors(root: Path, vault: Vault) -> None:
    model = embed(vault)
    expected = near(vault, model)
    vault.rebuild()
    assert (near(vault, model), covered(vault, model)) == (expected, (COUNT, COUNT))
    vault._connections.start_over("tried out")
    assert near(vault, model) == []
    assert prune(vault, model) == 0
    vault.reconcile()
    assert near(vault, model) == expected
    assert prune(vault, model) == 0
    (root / "sub").mkdir()
    for file in root.glob("n0*.md"):
        file.rename(root / "sub" / file.name)
    vault.reconcile()
    assert covered(vault, model) == (COUNT, COUNT)


def test_a_moved_vault_brings_its_vectors(root: Path, vault: Vault) -> None:
    model = embed(vault)
    expected = near(vault, model, resident=True)
    vault.close()
    moved = root.rename(root.with_name("moved"))
    again = Vault.open(moved)
    assert again.index.folder != vault.index.folder
    assert covered(again, model) == (COUNT, COUNT)
    assert near(again, model, resident=True) == near(again, model) == expected
    again.reconcile()
    assert covered(again, model) == (COUNT, COUNT)
    again.close()


def test_vectors_of_texts_that_are_gone_stay_until_they_are_many(
    root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_store, "_KEPT", 5)
    model = embed(vault)
    texts = {file: file.read_bytes() for file in root.glob("*.md")}

    def leave(count: int) -> None:
        for file, text in sorted(texts.items()):
            file.unlink(missing_ok=True)
            if count > 0:
                file.write_bytes(text)
            count -= 1
        vault.reconcile()

    leave(6)
    assert prune(vault, model) == 0
    leave(COUNT)
    assert covered(vault, model) == (COUNT, COUNT)
    leave(5)
    assert prune(vault, model) == COUNT - 5
    assert covered(vault, model) == (5, 5)
    leave(COUNT)
    assert covered(vault, model) == (COUNT, 5)
    assert compare.vector_problems(vault.index.vectors.file) == []


def test_a_former_model_goes_when_the_new_one_has_everything(vault: Vault) -> None:
    old, new = embed(vault, "old"), embed(vault, "new", 3)
    near(vault, old, resident=True)
    assert prune(vault, new) == 0
    assert len(near(vault, old)) == COUNT
    embed(vault, "new")
    assert prune(vault, new) == COUNT
    with vault._connections.reader() as connection:
        assert vectors.models(connection) == [new]
    assert near(vault, old) == near(vault, old, resident=True) == []
    assert len(near(vault, new)) == COUNT
    assert embed(vault, "old").id > new.id


def test_prune_of_the_folder_removes_what_nobody_uses(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "_TAIL", 2)
    model = embed(vault)
    near(vault, model, resident=True)
    (mapped,) = vault.index.folder.glob("*.map")
    current = vault.index.vectors.file
    left = [
        vault.index.folder / name
        for name in (
            "vectors-v0.1.db",
            "vectors-v1.1.db.0a1b2c3d",
            "vectors-v1.1.m1.5-5.map",
            "vectors-v1.7.m1.5-5.map",
        )
    ]
    for file in left:
        shutil.copy(mapped, file)
    assert sorted(doctor.prune_indexes(vault)) == sorted(map(str, left))
    assert doctor.prune_indexes(vault) == []
    assert mapped.exists()
    assert current.exists()
    assert len(near(vault, model, resident=True)) == COUNT


def test_an_orphaned_folder_stays_while_its_vectors_are_open(vault: Vault, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    other = Vault.open(gone)
    file = other.index.vectors.file
    other.close()
    gone.rmdir()
    with closing(vector_file.connect(file, writable=False)):
        assert doctor.prune_indexes(vault) == []
    assert doctor.prune_indexes(vault) == [str(file.parent)]


# The matrix -----------------------------------------------------------------------------------------------------------


def maps(vault: Vault) -> list[Path]:
    return sorted(vault.index.folder.glob("*.map*"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"{}"),
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(file.read_bytes().replace(b'"serial": "', b'"serial": "0', 1)),
        lambda file: file.unlink(),
    ],
    ids=["empty", "no header", "cut off", "of another database", "gone"],
)
def test_a_map_that_is_not_ours_is_built_anew(
    spoil: Callable[[Path], object], vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "_TAIL", 2)
    model = embed(vault)
    expected = near(vault, model, resident=True)
    assert expected == near(vault, model)
    (file,) = maps(vault)
    content = file.read_bytes()
    vectors.forget(vault.index.folder)
    spoil(file)
    assert near(vault, model, resident=True) == expected
    assert [found.read_bytes() for found in maps(vault)] == [content]


def test_the_map_follows_what_is_new_and_what_is_gone(
    root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "_TAIL", 4)
    monkeypatch.setattr(vector_store, "_KEPT", 5)
    model = embed(vault)
    near(vault, model, resident=True)
    assert [file.name for file in maps(vault)] == ["vectors-v1.1.m1.12-12.map"]
    for number in range(3):
        (root / f"x{number}.md").write_text(f"new {number}", "utf-8")
    vault.reconcile()
    embed(vault)
    assert len(near(vault, model, resident=True)) == COUNT + 3
    assert [file.name for file in maps(vault)] == ["vectors-v1.1.m1.12-12.map"]
    for number in range(3, 6):
        (root / f"x{number}.md").write_text(f"new {number}", "utf-8")
    vault.reconcile([NotePath(f"x{number}.md") for number in range(3, 6)])
    embed(vault)
    assert len(near(vault, model, resident=True)) == COUNT + 6
    near(vault, model, resident=True)
    assert [file.name for file in maps(vault)] == ["vectors-v1.1.m1.18-18.map"]
    for file in root.glob("n*.md"):
        file.unlink()
    vault.reconcile()
    assert prune(vault, model) == COUNT
    assert len(near(vault, model, resident=True)) == 6
    assert [file.name for file in maps(vault)] == ["vectors-v1.1.m1.18-6.map"]


def test_without_room_for_a_map_vectors_are_held_in_memory(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "_TAIL", 2)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    model = embed(vault)
    assert near(vault, model, resident=True) == near(vault, model, resident=True) == near(vault, model)
    assert maps(vault) == []


def test_a_shared_folder_of_an_earlier_version_learns_to_ignore_vectors(tmp_path: Path) -> None:
    index = place.Index(tmp_path / "shared", tmp_path)
    index.folder.mkdir()
    (index.folder / "mine.txt").write_text("x")
    (index.folder / "vault.json").write_text("{}")
    (index.folder / ".gitignore").write_text("/index-v*\n/current-v*\n")
    connections = Connections(index)
    connections.open()
    connections.close()
    lines = (index.folder / ".gitignore").read_text().split()
    assert lines == ["/index-v*", "/current-v*", "/vectors-v*", "/vault.json*", "/CACHEDIR.TAG*"]
