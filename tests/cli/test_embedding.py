"""Vectors on the command line: `index` makes them, `search` uses them, and what is in the way is one line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import environment
from tests.tiny_models import tiny_cross_encoder, tiny_embedder
from vault_lsp.store import vector_file

CONFIG = ".vault-lsp/config.yaml"

NOTES = {
    "a.md": "# Apple\n\nan apple a day\n",
    "b.md": "# Pear\n\nbanana and pear\n",
    "c.md": "# 梨\n\n梨和苹果\n",
}


@pytest.fixture
def learned(shell: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes a vault with a tiny model of its own."""

    def make(**files: str | bytes) -> Any:
        monkeypatch.delenv("VAULT_LSP_EMBEDDING")
        model = tiny_embedder(tmp_path / "tiny")
        return shell(**{CONFIG: f"embedding: {{model: {model}}}\n", **files})

    return make


def channels(run: Any, *arguments: str) -> dict[str, set[str]]:
    """The channels of each note that a search finds."""
    results = run("search", "--json", "--explain", *arguments).json["results"]
    return {hit["path"]: set(hit["channels"]) for hit in results}


def test_index_embeds_what_is_new_and_nothing_else(learned: Callable[..., Any]) -> None:
    run = learned(**NOTES)
    first, second = run("index").lines
    assert first.startswith("3 notes indexed: 3 added")
    assert second.startswith("3 passages embedded with ")
    assert len(run("index").lines) == 1
    run.write({"a.md": "# Apple\n\nanother text\n", "copy.md": NOTES["b.md"]})
    answer = run("index", "--json").json
    assert (answer["added"], answer["changed"], answer["embedded"], answer["left"]) == (1, 1, 1, 0)
    assert answer["model"].endswith("tiny")
    assert answer["why"] == ""
    assert run("index", "--rebuild", "--json").json["embedded"] == 0


def test_status_tells_the_model_and_how_far_it_has_come(learned: Callable[..., Any]) -> None:
    run = learned(**NOTES)
    run("index")
    told = run("status", "--json").json
    assert (told["semantic"], told["chunks"], told["embedded"], told["model_note"]) == ("on", 3, 3, "")
    assert told["model"].endswith("tiny")
    assert "100% embedded" in run("status").out
    run.write({"d.md": "new words\n"})
    run("index", "--no-embed")
    told = run("status", "--json").json
    assert (told["semantic"], told["chunks"], told["embedded"]) == ("partial", 4, 3)
    assert "3 of 4" in told["model_note"]
    assert "75% embedded" in run("status").out


def test_without_embedding_the_words_are_indexed_alone(learned: Callable[..., Any]) -> None:
    run = learned(**NOTES)
    answer = run("index", "--no-embed", "--json").json
    assert (answer["added"], answer["embedded"], answer["left"]) == (3, 0, 3)
    assert run("status", "--json").json["semantic"] == "off"
    assert channels(run, "apple") == {"a.md": {"bm25", "title", "indegree", "exact"}}


def test_the_mode_chooses_the_channels(learned: Callable[..., Any]) -> None:
    run = learned(**NOTES)
    run("index")
    assert set(channels(run, "apple")) == {"a.md", "b.md", "c.md"}
    assert "vector" in channels(run, "apple")["b.md"]
    assert set(channels(run, "--mode", "keyword", "apple")) == {"a.md"}
    assert all(found == {"vector"} for found in channels(run, "--mode", "semantic", "apple").values())
    answer = run("search", "--json", "apple").json
    assert (answer["semantic"], answer["embedded"], answer["reranked"], answer["note"]) == ("on", 1.0, False, "")
    explained = run("search", "--explain", "--mode", "semantic", "apple").lines
    assert any(line.startswith("        vector: rank 1, weight ") and ", adds 0.0" in line for line in explained)


def test_filters_hold_for_vectors_too(learned: Callable[..., Any]) -> None:
    run = learned(**{f"in/{name}": text for name, text in NOTES.items()}, **{"out.md": "apple\n"})
    run("index")
    assert set(run.hits("--mode", "semantic", "--area", "in", "apple")) == {f"in/{name}" for name in NOTES}


def test_partial_coverage_is_told_to_people_and_is_data_for_scripts(learned: Callable[..., Any]) -> None:
    run = learned(**NOTES)
    run("index")
    run.write({f"d{n}.md": f"apple of tree {n}\n" for n in range(9)})  # more than a question embeds by itself
    done = run("search", "apple")
    assert done.stderr == "vault-lsp: 3 of 12 passages are embedded: `vault-lsp index` goes on\n"
    done = run("search", "--json", "apple")
    assert done.stderr == ""
    assert (done.json["semantic"], done.json["embedded"]) == ("partial", 0.25)
    assert "d0.md" in [hit["path"] for hit in done.json["results"]]
    assert run("search", "--mode", "keyword", "apple").stderr == ""
    assert run("search", "--area", "root").stderr == ""


def test_a_vault_without_vectors_is_no_news_to_scripts(learned: Callable[..., Any]) -> None:
    run = learned(**NOTES)
    assert run("search", "apple").stderr == ""
    assert "nothing is embedded yet" in run("search", "--mode", "semantic", "apple").stderr
    assert run.hits("apple") == ["a.md"]


@pytest.mark.parametrize("model", ["/none/such", "no/such-model", "broken"])
def test_a_model_that_is_not_there_is_one_line_and_search_goes_on(
    shell: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.delenv("VAULT_LSP_EMBEDDING")
    if model == "broken":
        model = str(tiny_embedder(tmp_path / "broken"))
        file = next((tmp_path / "broken").glob("*.onnx"))
        file.write_bytes(file.read_bytes()[:100])
    run = shell(**NOTES, **{CONFIG: f"embedding: {{model: {model}}}\n"})
    started = time.monotonic()
    done = run("index")
    assert done.out.startswith("3 notes indexed")
    assert done.stderr.count("\n") == 1
    done = run("search", "apple")
    assert "a.md" in done.out
    assert done.stderr.count("\n") <= 1
    assert run("search", "--json", "apple").json["semantic"] == "off"
    assert time.monotonic() - started < 9


def test_a_model_that_breaks_later_is_one_line_and_search_goes_on(learned: Callable[..., Any], tmp_path: Path) -> None:
    run = learned(**NOTES)
    run("index")
    for file in (tmp_path / "tiny").glob("*.onnx"):
        file.unlink()
    for options in ([], ["--json"]):
        done = run("search", *options, "apple")
        assert "a.md" in done.out
        assert done.stderr.startswith("vault-lsp: ")
        assert done.stderr.count("\n") == 1
    answer = run("index", "--json")
    assert answer.json["embedded"] == 0
    assert answer.stderr.count("\n") == 1


def test_another_model_makes_its_own_vectors_and_the_old_ones_serve_until_then(
    learned: Callable[..., Any], tmp_path: Path
) -> None:
    run = learned(**NOTES)
    run("index")
    other = tiny_embedder(tmp_path / "other", dimensions=16, seed=1)
    run.write({CONFIG: f"embedding: {{model: {other}}}\n"})
    done = run("search", "--json", "--explain", "apple")
    assert done.json["results"][0]["path"] == "a.md"
    assert done.json["semantic"] != "off"
    assert done.stderr == ""
    done = run("search", "apple")
    assert done.stderr == (
        f"vault-lsp: {tmp_path / 'tiny'} still answers, until all is embedded by {other}: run `vault-lsp index`\n"
    )
    assert run("index", "--json").json["embedded"] == 3
    told = run("status", "--json").json
    assert (told["semantic"], told["embedded"]) == ("on", 3)
    assert told["model"].endswith("other")


def test_a_config_that_can_not_be_read_embeds_nothing_anew(learned: Callable[..., Any]) -> None:
    run = learned(**NOTES)
    run("index")
    right = (run.root / CONFIG).read_text()
    run.write({CONFIG: right.rstrip("}\n"), "d.md": "# Date\n\nanother apple\n"})
    told = run("index", "--json")
    assert (told.json["embedded"], told.json["model"]) == (0, None)
    assert "vault-lsp: the configuration of embedding.model can't be read\n" in told.stderr
    assert "vector" in channels(run, "apple")["a.md"]
    run.write({CONFIG: right})
    assert run("index", "--json").json["embedded"] == 1


def test_vectors_of_a_model_that_is_gone_do_not_answer_for_another(learned: Callable[..., Any], tmp_path: Path) -> None:
    run = learned(**NOTES)
    run("index")
    other = tiny_embedder(tmp_path / "other", seed=1)
    run.write({CONFIG: f"embedding: {{model: {other}}}\n"})
    (tmp_path / "tiny").rename(tmp_path / "gone")
    done = run("search", "apple")
    told = f"nothing is embedded by {other} yet, and {tmp_path / 'tiny'} is no longer there"
    assert done.stderr.startswith(f"vault-lsp: {told}")
    assert done.stderr.count("\n") == 1
    assert set(channels(run, "apple")) == {"a.md"}
    assert run("index", "--json").json["embedded"] == 3
    assert run("search", "apple").stderr == ""


def test_without_the_extension_only_meaning_is_missing_and_vectors_come_back_with_it(
    learned: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = learned(**NOTES)
    run("index")
    with without_extension(monkeypatch):
        (run.root / "b.md").unlink()
        run.write({"d.md": "# Date\n\na new apple\n", "e.md": "one more\n"})
        for options in ([], ["--rebuild"], ["--json"]):
            done = run("index", *options)
            assert done.stderr == "vault-lsp: the package sqlite-vec is not installed\n"
        assert (done.json["embedded"], done.json["why"]) == (0, "the package sqlite-vec is not installed")
        assert channels(run, "apple").keys() == {"a.md", "d.md"}
        told = run("status", "--json").json
        assert (told["semantic"], told["model_note"]) == ("off", "the package sqlite-vec is not installed")
        assert run("get", "d.md").lines == ["# Date", "", "a new apple"]
    answer = run("index", "--json").json
    assert (answer["embedded"], answer["left"]) == (2, 0)
    assert "vector" in channels(run, "apple")["d.md"]


@contextmanager
def without_extension(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installation in which sqlite-vec can't be imported."""
    vector_file.extension_problem.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "sqlite_vec", None)
            yield
    finally:
        vector_file.extension_problem.cache_clear()


def test_another_process_that_embeds_is_left_alone(learned: Callable[..., Any], tmp_path: Path) -> None:
    run = learned(**NOTES)
    run("index", "--no-embed")
    folder = Path(run("status", "--json").json["index"]["path"]).parent
    code = (
        "import sys; from pathlib import Path; from vault_lsp.store.vectors import embedding_lock\n"
        "with embedding_lock(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        done = run("index", "--json")
        assert (done.json["embedded"], done.json["left"]) == (0, 3)
        assert done.stderr == "vault-lsp: another process is embedding\n"
    finally:
        holder.communicate(b"")
    assert run("index", "--json").json["embedded"] == 3


def test_ctrl_c_while_embedding_keeps_what_is_done(learned: Callable[..., Any]) -> None:
    run = learned(**{f"{n}.md": f"# Note {n}\n\n" + f"words of note {n} " * 40 for n in range(600)})
    run("index", "--no-embed")
    process = subprocess.Popen(
        [sys.executable, "-m", "vault_lsp", "index"],
        cwd=run.root,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + 20
    while run("status", "--json").json["embedded"] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out.startswith(b"600 notes indexed")
    assert err.startswith(b"vault-lsp: interrupted: ")
    assert err.endswith(b"the next `vault-lsp index` goes on from there\n")
    assert err.count(b"\n") == 1
    kept = int(err.split()[2])
    assert 0 < kept < 600
    assert run("index", "--json").json["embedded"] == 600 - kept
    assert run("status", "--json").json["embedded"] == 600


def test_embedding_shows_its_rate_and_the_time_left_on_a_terminal(
    learned: Callable[..., Any], on_terminal: Callable[..., Any]
) -> None:
    run = learned(**{f"{n}.md": f"# Note {n}\n\n" + f"words of note {n} " * 40 for n in range(700)})
    out, shown = on_terminal("index", "--json", cwd=run.root)
    assert json.loads(out)["embedded"] == 700
    assert re.search(rb"Embedding, \d+ a second +\[#+", shown)
    assert b"100%" in shown


def test_a_person_is_told_that_nothing_is_embedded_yet(
    learned: Callable[..., Any], on_terminal: Callable[..., Any]
) -> None:
    run = learned(**NOTES)
    assert b"nothing is embedded yet: run `vault-lsp index`" in on_terminal("search", "apple", cwd=run.root)[1]


def test_a_reranker_reads_the_best_hits_when_asked(learned: Callable[..., Any], tmp_path: Path) -> None:
    run = learned(**NOTES)
    run("index")
    reranker = tiny_cross_encoder(tmp_path / "cross")
    config = (run.root / CONFIG).read_text() + f"rerank: {{model: {reranker}, budget_ms: 20000}}\n"
    run.write({CONFIG: config})
    assert run("search", "--json", "apple").json["reranked"] is True
    assert run("search", "--json", "--no-rerank", "apple").json["reranked"] is False
    explained = run("search", "--explain", "apple").out
    assert "rerank" in explained
    run.write({"q.yaml": "- {query: apple, expected_paths: [a.md]}\n- {query: pear, expected_paths: [b.md]}\n"})
    answer = run("eval", "q.yaml", "--json").json
    assert list(answer["modes"]) == ["hybrid", "keyword", "semantic", "reranked"]
    assert ("reranked", "hybrid") in {(each["mode"], each["against"]) for each in answer["differences"]}
    assert "reranked" not in run("eval", "q.yaml", "--json", "--no-rerank").json["modes"]


def test_a_reranker_that_is_not_there_is_told_and_the_first_order_stays(learned: Callable[..., Any]) -> None:
    run = learned(**NOTES)
    run("index")
    plain = run.hits("apple")
    done = run("search", "--json", "--rerank", "apple")
    assert [hit["path"] for hit in done.json["results"]] == plain
    assert done.json["reranked"] is False
    assert "vault-lsp model fetch" in done.stderr
    run.write({"q.yaml": "- {query: apple, expected_paths: [a.md]}\n"})
    done = run("eval", "q.yaml", "--json", "--rerank")
    assert "reranked" not in done.json["modes"]
    assert done.stderr.startswith("vault-lsp: reranked: ")
    assert done.stderr.count("\n") == 1


def test_models_are_listed_and_removed(shell: Callable[..., Any], tmp_path: Path) -> None:
    run = shell(**NOTES)
    listed = run("model", "list", "--json").json
    assert listed["schema"] == 1
    assert all({"name", "place", "bytes", "state"} <= set(each) for each in listed["models"])
    assert len(run("model", "list").lines) == len(listed["models"])
    assert run("model", "remove", "no/such", "--json", code=1).json["error"] == {
        "code": "model-unavailable",
        "message": "no/such is not on this machine",
    }
    assert "no/such" in run("model", "remove", "no/such", code=1).stderr
    assert not os.path.lexists(tmp_path / "models")


def test_a_model_that_nobody_knows_can_not_be_fetched(shell: Callable[..., Any]) -> None:
    done = shell(**NOTES)("model", "fetch", "nobody/knows", code=1)
    assert done.out == ""
    assert done.stderr.count("\n") == 1
    assert "nobody/knows" in done.stderr


def test_doctor_tells_the_model(learned: Callable[..., Any]) -> None:
    run = learned(**NOTES)
    run("index")
    checks = {check["name"]: check for check in run("doctor", "--json").json["checks"]}
    assert checks["model"]["ok"]
    assert "tiny" in checks["model"]["message"]
    run.write({CONFIG: "embedding: {model: /none/such}\n"})
    failed = json.loads(run("doctor", "--json", code=1).out)
    assert [check["name"] for check in failed["checks"] if not check["ok"]] == ["model"]
