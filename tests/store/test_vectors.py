"""Vectors beside a real index: what is near, missing and covered, always equal to what counting by hand gives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vault_lsp.errors import Cancelled
from vault_lsp.store import coverage, db, matrix, place, vector_store, vectors
from vault_lsp.store.compare import vector_problems
from vault_lsp.store.connections import Connections
from vault_lsp.store.search import NO_FILTERS, Filters
from vault_lsp.store.vectors import Embedding, Model

DIMENSIONS = 4
RESIDENT = pytest.mark.parametrize("resident", [False, True], ids=["from the database", "from the matrix"])


def unit(*numbers: float) -> np.ndarray:
    vector = np.array(numbers, np.float32)
    return vector / np.linalg.norm(vector)


class Notes:
    """An index whose chunks are written by hand: each has a text, and equal texts have the same sha."""

    def __init__(self, folder: Path) -> None:
        self.connections = Connections(place.Index(folder, folder))
        self.connections.open()
        self.store = self.connections.vectors
        with self.connections.writer() as connection, db.atomic(connection):
            connection.execute("UPDATE meta SET value = 1 WHERE key = 'walked'")
        self.documents: dict[str, tuple[list[str], int]] = {}
        self.embedded: dict[str, tuple[np.ndarray, int]] = {}

    def write(self, path: str, *texts: str, mtime_ns: int = 0, tag: str | None = None) -> None:
        """Put a note, or put another in its place."""
        with self.connections.writer() as connection, db.atomic(connection):
            self._clear(connection, path)
            connection.execute(
                "INSERT INTO documents(path, kind, area, title, mtime_ns, scanned_ns, hash)"
                " VALUES(?, 'note', 'root', 'x', ?, 0, x'00')",
                (path, mtime_ns),
            )
            document = connection.last_insert_rowid()
            if tag:
                connection.execute("INSERT INTO tags VALUES(?, 0, ?, ?, x'00')", (document, tag, tag))
            for ordinal, text in enumerate(texts):
                connection.execute(
                    "INSERT INTO chunks(document, ordinal, heading_path, line_start, line_end, sha)"
                    " VALUES(?, ?, '[]', 0, 0, ?)",
                    (document, ordinal, sha(text)),
                )
        self.documents[path] = list(texts), mtime_ns

    def remove(self, path: str) -> None:
        with self.connections.writer() as connection, db.atomic(connection):
            self._clear(connection, path)
        self.documents.pop(path, None)

    def _clear(self, connection: apsw.Connection, path: str) -> None:
        connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'changes'")
        mine = "(SELECT id FROM documents WHERE path = ?)"
        connection.execute(f"DELETE FROM chunks WHERE document IN {mine}", (path,))
        connection.execute(f"DELETE FROM tags WHERE document IN {mine}", (path,))
        connection.execute("DELETE FROM documents WHERE path = ?", (path,))

    def model(self, name: str = "m", dimensions: int = DIMENSIONS) -> Model:
        with self.store.writer() as connection:
            return self.store.add_model(connection, f"{name}@1", name, dimensions)

    def put(self, model: Model, vectors_of: dict[str, np.ndarray], script: int = 0) -> int:
        with self.store.writer() as connection:
            batch = [Embedding(sha(text), vector.tobytes(), script) for text, vector in vectors_of.items()]
            added = self.store.put(connection, model, batch)
        for text, vector in vectors_of.items():
            self.embedded.setdefault(text, (vector, script))
        return added

    def near(self, model: Model, query: np.ndarray, pool: int = 10, *, resident: bool, **filters: Any) -> list[Any]:
        with self.connections.reader() as connection:
            hits = vectors.nearest(connection, model, query, Filters(**filters), pool, resident=resident)
            ordinals = dict(connection.execute("SELECT id, ordinal FROM chunks"))
        return [(hit.path, ordinals[hit.chunk], round(hit.score, 5)) for hit in hits]

    def brute(self, query: np.ndarray, pool: int, prefix: str = "") -> list[tuple[str, int, float]]:
        """The same by hand: the best chunk of every note, by cosine less what is usual in its script."""
        exact = query.astype(np.float64) / np.linalg.norm(query.astype(np.float64))
        cosine = {text: float((vector * exact).sum()) for text, (vector, _) in self.embedded.items()}
        mean = sum(cosine.values()) / max(1, len(cosine))
        usual = {}
        for script in {script for _, script in self.embedded.values()}:
            mine = [cosine[text] for text, (_, its) in self.embedded.items() if its == script]
            usual[script] = (sum(mine) + 5 * mean) / (len(mine) + 5)
        best = []
        for path, (texts, _) in self.documents.items():
            found = [
                (round(usual[self.embedded[text][1]] - cosine[text], 9), ordinal)
                for ordinal, text in enumerate(texts)
                if text in self.embedded
            ]
            if found and path.startswith(prefix):
                best.append((min(found)[0], path, min(found)[1]))
        return [(path, ordinal, round(-score, 5)) for score, path, ordinal in sorted(best)[:pool]]

    def coverage(self, model: Model | None) -> tuple[int, int]:
        with self.connections.reader() as connection:
            return vectors.coverage(connection, model)

    def missing(self, model: Model, limit: int | None = None) -> list[tuple[str, int]]:
        with self.connections.reader() as connection:
            return [(item.path, item.ordinal) for item in vectors.missing(connection, model, limit)]

    def prune(self, model: Model) -> int:
        with self.connections.reader() as connection:
            return self.store.prune(connection, model)

    def maps(self) -> list[str]:
        return sorted(file.name for file in self.connections.index.folder.glob("*.map*"))


def sha(text: str) -> bytes:
    return text.encode().ljust(32, b".")


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notes]:
    made = Notes(tmp_path)
    yield made
    made.connections.close()


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few vectors are many: maps are built, answers widened and orphans pruned with a handful of them."""
    take_small_steps(monkeypatch)


def take_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(matrix, "_TAIL", 3)
    monkeypatch.setattr(matrix, "_BLOCK", 4)
    monkeypatch.setattr(matrix, "_PRODUCT", 5 * 4 * DIMENSIONS)
    monkeypatch.setattr(vectors, "_BLOCK", 3)
    monkeypatch.setattr(vectors._Search, "_first", lambda self: 2)
    monkeypatch.setattr(vector_store, "_KEPT", 4)
    monkeypatch.setattr(vector_store, "_REMOVED_AT_ONCE", 2)
    monkeypatch.setattr(coverage, "_LISTED", 3)


# Near -----------------------------------------------------------------------------------------------------------------


@RESIDENT
def test_the_nearest_documents_come_with_their_best_chunk(*, resident: bool, notes: Notes) -> None:
    model = notes.model()
    notes.write("a.md", "far", "close")
    notes.write("b.md", "closer")
    notes.write("c.md", "unembedded")
    notes.put(model, {"far": unit(0, 0, 1, 0), "close": unit(1, 1, 0, 0), "closer": unit(4, 1, 0, 0)})
    found = notes.near(model, unit(1, 0, 0, 0), resident=resident)
    assert [(path, ordinal) for path, ordinal, _ in found] == [("b.md", 0), ("a.md", 1)]
    assert found == notes.brute(unit(1, 0, 0, 0), 10)
    assert notes.near(model, unit(1, 0, 0, 0), 1, resident=resident) == found[:1]
    assert notes.near(model, 7 * unit(1, 0, 0, 0), resident=resident) == found
    assert notes.near(model, unit(1, 0, 0, 0), 0, resident=resident) == []
    assert notes.near(model, np.zeros(DIMENSIONS, np.float32), resident=resident) == []


@RESIDENT
def test_of_equally_near_documents_the_path_decides(*, resident: bool, notes: Notes) -> None:
    model = notes.model()
    vector = unit(0.3, 0.1, 0.7, 0.2)
    for name in "gbdface":
        notes.write(f"{name}.md", f"own {name}", "shared", f"own {name}")
        notes.put(model, {f"own {name}": vector, "shared": vector})
    found = notes.near(model, unit(1, 2, 3, 4), 4, resident=resident)
    assert [(path, ordinal) for path, ordinal, _ in found] == [("a.md", 0), ("b.md", 0), ("c.md", 0), ("d.md", 0)]


@RESIDENT
def test_a_filter_costs_no_hit_and_orphans_take_no_place(*, resident: bool, notes: Notes, small_steps: None) -> None:
    model = notes.model()
    for number in range(40):
        notes.write(f"many/{number:02}.md", f"many {number}")
        notes.put(model, {f"many {number}": unit(9, number / 99, 0, 0)})
        notes.put(model, {f"orphan {number}": unit(9, 0, number / 99, 0)})
        del notes.embedded[f"orphan {number}"]
    notes.write("few/one.md", "one", tag="t")
    notes.write("few/two.md", "two")
    notes.put(model, {"one": unit(1, 0, 0, 9), "two": unit(0, 0, 0, 1)})
    query = unit(1, 0, 0, 0)
    paths = lambda **filters: [path for path, *_ in notes.near(model, query, resident=resident, **filters)]  # noqa: E731
    assert paths(folder="few") == ["few/one.md", "few/two.md"]
    assert paths(tags=("t",)) == ["few/one.md"]
    assert paths(tags=("none",)) == []
    assert paths(path_prefix="many/3") == [f"many/{number}.md" for number in range(30, 40)]
    assert len(notes.near(model, query, 100, resident=resident)) == 42


@RESIDENT
def test_texts_of_one_script_are_compared_among_themselves(*, resident: bool, notes: Notes) -> None:
    model = notes.model()
    for number in range(40):
        notes.write(f"en/{number}.md", f"en {number}")
        notes.put(model, {f"en {number}": unit(1, 0.05 + number / 200, 0, 0.1)})
    notes.write("zh/answer.md", "answer")
    notes.put(model, {"answer": unit(1, 0, 0.9, 0)}, script=1)
    for number in range(40):
        notes.write(f"zh/{number}.md", f"zh {number}")
        notes.put(model, {f"zh {number}": unit(0.1, number / 99, 1, 0)}, script=1)
    found = notes.near(model, unit(1, 0, 0, 0), 60, resident=resident)
    assert found == notes.brute(unit(1, 0, 0, 0), 60)
    assert found[0][0] == "zh/answer.md"


def test_a_question_of_the_wrong_size_is_refused(notes: Notes) -> None:
    model = notes.model()
    with pytest.raises(ValueError, match="4 numbers"):
        notes.near(model, unit(1, 2), resident=False)


def test_a_caller_who_gives_up_is_heard_during_the_scan(notes: Notes) -> None:
    model = notes.model()
    notes.write("a.md", "text")
    notes.put(model, {"text": unit(1, 0, 0, 0)})

    def give_up() -> None:
        raise Cancelled("the request was cancelled")

    with notes.connections.reader() as connection, pytest.raises(Cancelled):
        vectors.nearest(connection, model, unit(1, 0, 0, 0), NO_FILTERS, 5, resident=True, check=give_up)
    assert len(notes.near(model, unit(1, 0, 0, 0), resident=True)) == 1


# Missing and covered --------------------------------------------------------------------------------------------------


def test_first_chunks_come_first_then_recent_notes_and_each_text_once(notes: Notes) -> None:
    model = notes.model()
    notes.write("old.md", "o0", "o1", "o2", mtime_ns=1)
    notes.write("new.md", "n0", "n1", "o1", mtime_ns=9)
    notes.write("same.md", "s0", "n0", "o2", mtime_ns=9)
    assert notes.missing(model) == [
        *(("new.md", 0), ("same.md", 0), ("old.md", 0)),
        *(("new.md", 1), ("new.md", 2), ("same.md", 2)),
    ]
    assert notes.missing(model, 2) == [("new.md", 0), ("same.md", 0)]
    notes.put(model, {"o1": unit(1, 0, 0, 0), "n0": unit(1, 0, 0, 0)})
    assert notes.missing(model) == [("same.md", 0), ("old.md", 0), ("new.md", 1), ("same.md", 2)]
    assert notes.missing(notes.model("other"))[0] == ("new.md", 0)


def test_models_do_not_meet(notes: Notes) -> None:
    one, two = notes.model("one"), notes.model("two", 2)
    notes.write("a.md", "a")
    notes.write("b.md", "b")
    notes.put(one, {"a": unit(1, 0, 0, 0)})
    notes.put(two, {"b": unit(1, 0)})
    for resident in (False, True):
        assert [path for path, *_ in notes.near(one, unit(1, 0, 0, 0), resident=resident)] == ["a.md"]
        assert [path for path, *_ in notes.near(two, unit(1, 0), resident=resident)] == ["b.md"]
    assert notes.coverage(one) == notes.coverage(two) == (2, 1)
    assert notes.coverage(None) == (2, 0)
    with notes.connections.reader() as connection:
        assert vectors.models(connection) == [one, two]
    assert notes.model("one") == one
    with pytest.raises(ValueError, match="not of 3"):
        notes.model("one", 3)


@pytest.mark.parametrize(
    "vector",
    [
        b"",
        np.ones(DIMENSIONS - 1, np.float32).tobytes(),
        np.ones(DIMENSIONS, np.float32).tobytes(),
        np.full(DIMENSIONS, np.nan, np.float32).tobytes(),
        np.zeros(DIMENSIONS, np.float32).tobytes(),
    ],
)
def test_what_is_no_unit_vector_is_not_stored_nor_the_rest_of_its_batch(vector: bytes, notes: Notes) -> None:
    model = notes.model()
    batch = [Embedding(sha("good"), unit(1, 0, 0, 0).tobytes()), Embedding(sha("bad"), vector)]
    with notes.store.writer() as connection, pytest.raises(ValueError, match="vector of m"):
        notes.store.put(connection, model, batch)
    assert notes.put(model, {"good": unit(1, 0, 0, 0)}) == 1


def test_a_text_is_stored_once(notes: Notes) -> None:
    model = notes.model()
    notes.write("a.md", "a")
    assert notes.put(model, {"a": unit(1, 0, 0, 0), "b": unit(0, 1, 0, 0)}) == 2
    assert notes.put(model, {"a": unit(0, 0, 1, 0), "c": unit(0, 1, 0, 0)}) == 1
    assert notes.near(model, unit(1, 0, 0, 0), resident=False) == notes.near(model, unit(1, 0, 0, 0), resident=True)
    assert vector_problems(notes.store.index.vectors.file) == []


# Any sequence of events -----------------------------------------------------------------------------------------------

TEXTS = [f"t{number}" for number in range(14)]
NUMBERS = st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0])
VECTORS = st.tuples(*[NUMBERS] * DIMENSIONS).filter(any).map(lambda numbers: unit(*numbers))
PATHS = st.sampled_from(["a.md", "b.md", "x/c.md", "x/d.md", "y/e.md"])
EVENTS = st.one_of(
    st.tuples(st.just("write"), PATHS, st.lists(st.sampled_from(TEXTS), max_size=4)),
    st.tuples(st.just("remove"), PATHS),
    st.tuples(st.just("put"), st.dictionaries(st.sampled_from(TEXTS), VECTORS, max_size=5), st.sampled_from([0, 1])),
    st.tuples(st.just("prune")),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("ask"), VECTORS, st.integers(1, 5), st.sampled_from(["", "x", "y/e"])),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EVENTS, min_size=4, max_size=16))
def test_after_any_events_all_answers_equal_those_by_hand(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[Any, ...]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        take_small_steps(patch)
        notes = Notes(tmp_path_factory.mktemp("index"))
        model = notes.model()
        for event in [*events, ("prune",), ("ask", unit(1, 2, 3, 4), 3, ""), ("reopen",), ("ask", unit(4, 1), 5, "x")]:
            happen(notes, model, event)
            live = [text for texts, _ in notes.documents.values() for text in texts]
            assert notes.coverage(model) == (len(live), sum(text in notes.embedded for text in live))
            assert {notes.documents[path][0][at] for path, at in notes.missing(model)} == {*live} - {*notes.embedded}
        assert vector_problems(notes.store.index.vectors.file) == []
        notes.connections.close()


def happen(notes: Notes, model: Model, event: tuple[Any, ...]) -> None:
    match event:
        case "write", path, texts:
            notes.write(path, *texts, mtime_ns=len(texts))
        case "remove", path:
            notes.remove(path)
        case "put", batch, script:
            notes.put(model, batch, script)
        case ("prune",):
            live = {text for texts, _ in notes.documents.values() for text in texts}
            orphans = {*notes.embedded} - live
            if len(orphans) > max(4, len(notes.embedded) / 2):
                assert notes.prune(model) == len(orphans)
                notes.embedded = {text: kept for text, kept in notes.embedded.items() if text in live}
            else:
                assert notes.prune(model) == 0
        case ("reopen",):
            notes.connections.close()
            held = notes.documents, notes.embedded
            notes.__init__(notes.store.index.folder)  # type: ignore[misc]
            notes.documents, notes.embedded = held
        case "ask", query, pool, prefix:
            query = np.resize(query, DIMENSIONS)
            for resident in (False, True):
                found = notes.near(model, query, pool, resident=resident, path_prefix=prefix or None)
                assert found == notes.brute(query, pool, prefix)
