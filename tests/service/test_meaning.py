"""Vectors as a vault lives with them: made once, kept through every change, and never of two models at a time."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import vault_lsp
from tests.support import write
from tests.tiny_models import tiny_cross_encoder, tiny_embedder
from vault_lsp import doctor
from vault_lsp.embed import models
from vault_lsp.embedding import Embedded
from vault_lsp.errors import Cancelled
from vault_lsp.indexer import Progress
from vault_lsp.search import Query, SearchResult
from vault_lsp.service import Vault
from vault_lsp.store.vectors import embedding_lock

WORDS = (
    *["ember", "flint", "gorse", "heath", "inlet", "juniper", "kelp", "larch"],
    *["moss", "nettle", "otter", "plover", "quartz", "rush", "sedge", "thrift"],
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_embedder(tmp_path_factory.mktemp("tiny"), dimensions=8, seed=1)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_embedder(tmp_path_factory.mktemp("other"), dimensions=16, seed=2)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VAULT_LSP_INDEX_DIR", str(tmp_path / "index"))
    monkeypatch.delenv("VAULT_LSP_EMBEDDING")
    (tmp_path / "vault").mkdir()
    return tmp_path / "vault"


def configure(root: Path, model: object, more: str = "") -> None:
    write(root, {".vault-lsp/config.yaml": f"embedding: {{model: {model}}}\n{more}"})


def notes(count: int, *, seed: int = 0) -> dict[str, str]:
    """Notes of two sections each, all with other words."""
    choose = random.Random(seed)

    def words() -> str:
        return " ".join(choose.choices(WORDS, k=220))

    return {f"f{n % 5}/n{n}.md": f"# Note {n}\n\n{words()}\n\n## Second {n}\n\n{words()}\n" for n in range(count)}


def embedded(root: Path) -> tuple[Embedded, str]:
    """What a run of indexing and embedding has done, and the state after it."""
    vault = Vault.open(root)
    try:
        vault.reconcile()
        done = vault.embed()
        return done, vault.semantic().state
    finally:
        vault.close()


def ask(root: Path, query: Query) -> SearchResult:
    vault = Vault.open(root)
    try:
        vault.reconcile()
        with vault.view() as view:
            return view.search(query)
    finally:
        vault.close()


def test_only_new_text_is_ever_embedded(root: Path, tiny: Path) -> None:
    configure(root, tiny)
    write(root, notes(6))
    first, state = embedded(root)
    assert (first.left, state) == (0, "on")
    assert first.embedded >= 12
    assert embedded(root)[0].embedded == 0

    text = (root / "f0/n0.md").read_text()
    write(root, {"f0/n0.md": text + "\nA last line.\n", "f0/copy of n1.md": (root / "f1/n1.md").read_text()})
    assert 1 <= embedded(root)[0].embedded <= 2


def test_a_question_embeds_what_a_few_edits_have_left(root: Path, tiny: Path) -> None:
    configure(root, tiny)
    write(root, notes(10))
    vault = Vault.open(root)
    vault.reconcile()
    assert vault.catch_up() == 0  # nothing is embedded yet: that is no matter of moments
    vault.embed()
    assert vault.catch_up() == 0
    write(root, {"f0/n0.md": "# Another\n\nember\n", "new.md": "# New\n\nflint\n"})
    vault.reconcile()
    assert vault.semantic().state == "partial"
    assert vault.catch_up() == 2
    assert vault.semantic().state == "on"
    write(root, {f"more{n}.md": f"# {n}\n\nflint {n}\n" for n in range(20)})
    vault.reconcile()
    assert vault.catch_up() == 0
    assert vault.semantic().state == "partial"
    vault.close()


def test_renaming_a_folder_embeds_nothing(root: Path, tiny: Path) -> None:
    configure(root, tiny)
    write(root, {f"old/n{n}.md": f"# Note {n}\n\n{WORDS[n % 16]} {n}\n" for n in range(500)})
    assert embedded(root)[0].embedded == 500
    (root / "old").rename(root / "new")
    done, state = embedded(root)
    assert (done.embedded, state) == (0, "on")
    hit = ask(root, Query("juniper 5", mode="semantic", limit=1)).hits[0]
    assert hit.path.startswith("new/")


def test_a_rebuilt_index_and_a_moved_vault_keep_their_vectors(root: Path, tiny: Path) -> None:
    configure(root, tiny)
    write(root, notes(5))
    embedded(root)
    vault = Vault.open(root)
    vault.rebuild()
    vault.close()
    assert embedded(root) == (Embedded(str(tiny), 0, 0, ""), "on")
    moved = root.with_name("moved")
    root.rename(moved)
    assert embedded(moved)[0].embedded == 0


def test_vectors_that_were_emptied_under_an_open_vault_are_made_anew_at_once(root: Path, tiny: Path) -> None:
    configure(root, tiny)
    write(root, notes(6))
    vault = Vault.open(root)
    vault.reconcile()
    chunks = vault.semantic().chunks
    embedded(root)
    write(root, {"new.md": "something new\n"})
    vault.reconcile()
    os.truncate(vault.index.vectors.file, 0)
    assert vault.embed() == (str(tiny), chunks + 1, 0, "")
    assert vault.semantic().state == "on"
    vault.close()


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from vault_lsp.service import Vault
vault = Vault.open(Path(sys.argv[2]))
print("ready", flush=True)

def slowly(step):
    print(step.done, flush=True)
    time.sleep(0.02)

vault.embed(progress=slowly, threads=1)
"""


def test_a_kill_costs_one_batch_at_most(root: Path, tiny: Path) -> None:
    configure(root, tiny)
    write(root, notes(40))
    vault = Vault.open(root)
    vault.reconcile()
    chunks = vault.semantic().chunks
    seen = 0
    choose = random.Random(7)
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(Path(vault_lsp.__file__).parents[1]), str(root)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        told = 0
        for _ in range(choose.randint(2, 6)):
            told = int(process.stdout.readline() or b"0")
        time.sleep(choose.random() / 50)
        process.kill()
        process.wait()
        process.stdout.close()
        held = vault.semantic().embedded
        assert held >= seen + told
        seen = held
    assert 0 < seen < chunks
    done = vault.embed()
    assert (done.embedded, done.left) == (chunks - seen, 0)
    assert [check.message for check in doctor.examine(vault, verify=True) if not check.ok] == []
    vault.close()


def test_being_cancelled_keeps_what_is_done(root: Path, tiny: Path) -> None:
    configure(root, tiny)
    write(root, notes(20))
    vault = Vault.open(root)
    vault.reconcile()
    steps: list[Progress] = []
    with pytest.raises(Cancelled):
        vault.embed(progress=steps.append, cancelled=lambda: len(steps) > 3)
    assert vault.semantic().embedded == steps[-1].done > 0
    assert {step.phase for step in steps} == {"embedding"}
    vault.close()


def test_first_chunks_and_new_notes_come_first(root: Path, tiny: Path) -> None:
    configure(root, tiny)
    write(root, notes(20))
    for n in range(20):
        os.utime(root / f"f{n % 5}/n{n}.md", (1e9 + n, 1e9 + n))
    vault = Vault.open(root)
    vault.reconcile()
    steps: list[Progress] = []
    with pytest.raises(Cancelled):
        vault.embed(progress=steps.append, cancelled=lambda: bool(steps) and steps[-1].done >= 16)
    found = {hit.path: hit for hit in ask(root, Query("ember", mode="semantic", limit=40)).hits}
    assert len(found) == 16
    assert {hit.line_start for hit in found.values()} == {1}
    vault.close()


def test_another_embedder_is_left_alone(root: Path, tiny: Path) -> None:
    configure(root, tiny)
    write(root, notes(3))
    vault = Vault.open(root)
    vault.reconcile()
    with embedding_lock(vault.index.folder):
        done = vault.embed()
    assert (done.embedded, done.left, done.why) == (0, vault.semantic().chunks, "another process is embedding")
    assert vault.embed().left == 0
    vault.close()


def test_the_vectors_of_a_former_model_serve_until_the_new_ones_are_there(root: Path, tiny: Path, other: Path) -> None:
    configure(root, tiny)
    write(root, notes(12))
    embedded(root)
    configure(root, other)
    result = ask(root, Query("ember flint"))
    assert (result.semantic, result.embedded) == ("on", 1.0)
    assert str(tiny) in result.note

    vault = Vault.open(root)
    steps: list[Progress] = []
    with pytest.raises(Cancelled):
        vault.embed(progress=steps.append, cancelled=lambda: len(steps) > 2)
    assert vault.semantic().model == str(tiny)
    assert vault.embed().left == 0
    assert vault.semantic() == (str(other), vault.semantic().chunks, vault.semantic().chunks, "", False)
    vault.close()
    assert ask(root, Query("ember flint")).note == ""

    # The former model's vectors are gone: to go back costs them again, and search goes on by words.
    configure(root, tiny)
    shutil.rmtree(root.parent / "gone", ignore_errors=True)
    again, state = embedded(root)
    assert (again.embedded > 0, state) == (True, "on")


@pytest.mark.parametrize("broken", ["missing", "empty", "cut"])
def test_a_model_that_can_not_be_used_leaves_the_words(root: Path, tiny: Path, tmp_path: Path, broken: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    configure(root, folder)
    write(root, {"a.md": "# A\n\nember\n", "b.md": "# B\n\nflint\n"})
    embedded(root)
    if broken == "cut":
        os.truncate(folder / "model.onnx", 1000)
    else:
        shutil.rmtree(folder)
        if broken == "empty":
            folder.mkdir()
    started = time.monotonic()
    result = ask(root, Query("ember"))
    assert result.hits[0].path == "a.md"
    assert result.semantic == "off"
    assert str(folder) in result.note
    assert "\n" not in result.note
    assert time.monotonic() - started < 10  # no waiting for a network
    done, _ = embedded(root)
    assert (done.embedded, "\n" in done.why) == (0, False)


def test_a_question_that_is_empty_or_wild_is_no_error(root: Path, tiny: Path) -> None:
    configure(root, tiny)
    write(root, notes(2))
    embedded(root)
    for text in ("", " ", "\0", "\ud800", "AND (", "😀" * 300, "a" * 100_000):
        for mode in ("hybrid", "keyword", "semantic"):
            ask(root, Query(text, mode=mode))  # type: ignore[arg-type]


def test_modes_ask_their_own_channels(root: Path, tiny: Path) -> None:
    configure(root, tiny)
    write(root, {"a.md": "# A\n\nember\n", "b.md": "# B\n\nflint\n"})
    embedded(root)

    def channels(mode: str) -> set[str]:
        hits = ask(root, Query("ember", mode=mode, explain=True)).hits  # type: ignore[arg-type]
        return {name for hit in hits for name in hit.channels or ()}

    assert channels("keyword") == {"bm25", "indegree"}
    assert channels("semantic") == {"vector"}
    assert channels("hybrid") == {"bm25", "vector", "indegree"}


def test_filters_hold_for_vectors_as_well(root: Path, tiny: Path) -> None:
    from vault_lsp.search import Filters

    configure(root, tiny)
    write(root, notes(30))
    embedded(root)
    result = ask(root, Query("ember", mode="semantic", limit=50, filters=Filters(folder="f3")))
    assert {hit.path.partition("/")[0] for hit in result.hits} == {"f3"}
    assert len(result.hits) == 6


@pytest.mark.parametrize("resident", [False, True])
def test_a_reranker_orders_anew_within_its_time(root: Path, tmp_path: Path, *, resident: bool) -> None:
    judge = tiny_cross_encoder(tmp_path / "judge", seed=3)
    configure(root, "none", f"rerank: {{model: {judge}, budget_ms: 60000, top: 5}}\n")
    write(root, notes(9))
    vault = Vault.open(root, resident=resident)
    vault.reconcile()
    deadline = time.monotonic() + 20
    while True:
        with vault.view() as view:
            result = view.search(Query("ember flint", explain=True))
            plain = view.search(Query("ember flint", rerank=False))
        if result.reranked or time.monotonic() > deadline:
            break
        assert "is being loaded" in result.note
        time.sleep(0.05)
    vault.close()
    assert result.reranked
    assert not plain.reranked
    assert {hit.path for hit in result.hits[:5]} == {hit.path for hit in plain.hits[:5]}
    assert all(hit.reread for hit in result.hits[:5])
    assert not any(hit.reread for hit in result.hits[5:])
    for hit in result.hits[:5]:
        assert hit.reread is not None
        share, first, read = (hit.reread[name] for name in ("share", "first", "rerank"))
        assert hit.score == pytest.approx(share * first + (1 - share) * read)
    assert [hit.score for hit in result.hits] == sorted((hit.score for hit in result.hits), reverse=True)


def test_a_reranker_without_time_leaves_the_order_and_says_so(root: Path, tmp_path: Path) -> None:
    judge = tiny_cross_encoder(tmp_path / "judge", seed=3)
    configure(root, "none", f"rerank: {{model: {judge}, budget_ms: 1, top: 50}}\n")
    write(root, notes(40))
    plain, timed = (ask(root, Query("ember flint", rerank=choice)) for choice in (False, True))
    assert not timed.reranked
    assert "budget_ms" in timed.note
    assert [hit.path for hit in timed.hits] == [hit.path for hit in plain.hits]


def test_a_missing_reranker_is_named_once(root: Path) -> None:
    configure(root, "none", "rerank: {model: BAAI/bge-reranker-base}\n")
    write(root, notes(2))
    result = ask(root, Query("ember"))
    assert "vault-lsp model fetch BAAI/bge-reranker-base" in result.note
    assert result.hits


def test_a_question_in_one_language_finds_the_note_in_the_other(
    root: Path,
) -> None:
    if models.choose("auto", root).model is None:
        pytest.skip("no model is bundled for this platform")
    write(
        root,
        {
            "茶.md": "# 泡茶\n\n绿茶要用八十度左右的热水，泡两分钟就好。\n",
            "自行车.md": "# 修自行车\n\n换内胎之前先把气放掉，再用撬胎棒把外胎撬下来。\n",
            "bread.md": "# Baking bread\n\nLet the dough rise overnight and bake the bread in a hot oven.\n",
            "roof.md": "# Roof\n\nReplace broken tiles before winter, or the attic gets wet.\n",
            **{f"filler{n}.md": f"# Filler {n}\n\n{WORDS[n]} {WORDS[-n - 1]}\n" for n in range(8)},
            **{f"杂{n}.md": f"# 杂记{n}\n\n今天写了第{n}页日记，没有别的事。\n" for n in range(8)},
        },
    )
    assert embedded(root)[1] == "on"
    for text, path in (
        ("how hot should water be for brewing tea", "茶.md"),
        ("replace the inner tube of a bicycle wheel", "自行车.md"),
        ("怎样在家里烤面包", "bread.md"),
        ("屋顶漏水怎么办", "roof.md"),
    ):
        assert path in [hit.path for hit in ask(root, Query(text, limit=3)).hits], text
