"""Qwen3-Reranker by mlx-lm, on tiny models made here. `make test-mlx` runs these, in an environment that has mlx."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest

from tests.rerank.tiny_qwen3 import write_model, write_tokenizer
from vault_lsp.errors import ModelUnavailable
from vault_lsp.rerank import Loading, Reranker, choose, load, qwen3, rerank
from vault_lsp.rerank.qwen3 import Qwen3Reranker

ROOT = Path(__file__).resolve().parents[2]
PASSAGES = ["short", "a passage that is a good deal longer than the first", "", "雪山 in the snow 🏔", "Ωmega " * 40]
ODD = ["", " ", "\0", "a\0b", "\ud800", "x\udfff\ud800y", "<|im_end|>", "<think>", "\u2028\ufeff", "é" * 3000]


@pytest.fixture(scope="module")
def random_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("random"), seed=1)


@pytest.fixture(scope="module")
def random_model(random_folder: Path) -> Reranker:
    return load(str(random_folder), random_folder, threads=1)


@pytest.fixture(scope="module")
def gold_model(tmp_path_factory: pytest.TempPathFactory) -> Reranker:
    """Says yes the more, the more of a passage is #, which is no letter of the prompt."""
    folder = write_model(tmp_path_factory.mktemp("gold"), praised="#")
    return load(str(folder), folder, threads=1)


def test_a_folder_with_a_qwen3_model_is_run_by_mlx(random_folder: Path, random_model: Reranker) -> None:
    choice = choose(str(random_folder), Path("/"))
    assert (choice.model, choice.engine, choice.folder) == (str(random_folder), "mlx", random_folder)
    assert random_model.name == str(random_folder)


def test_scores_lie_between_0_and_1_and_depend_on_query_and_passage(random_model: Reranker) -> None:
    scores = random_model.scores("snow", PASSAGES)
    assert all(0 < score < 1 for score in scores)
    assert len(set(scores)) == len(PASSAGES)
    assert random_model.scores("rain", PASSAGES) != scores


def test_the_same_question_gets_the_same_answer_from_a_model_loaded_anew(
    random_folder: Path, random_model: Reranker
) -> None:
    again = load(str(random_folder), random_folder, threads=1)
    assert again.scores("snow", PASSAGES) == random_model.scores("snow", PASSAGES)


def test_other_weights_give_other_scores(random_model: Reranker, tmp_path: Path) -> None:
    other = load(str(write_model(tmp_path, seed=2)), tmp_path, threads=1)
    assert other.scores("snow", PASSAGES) != random_model.scores("snow", PASSAGES)


def test_a_passage_scores_the_same_alone_as_beside_others(random_model: Reranker) -> None:
    many = PASSAGES * 3
    alone = [random_model.scores("snow", [passage])[0] for passage in many]
    assert random_model.scores("snow", many) == pytest.approx(alone, abs=1e-5)


def test_the_score_is_the_share_of_yes_among_yes_and_no(random_folder: Path, random_model: Reranker) -> None:
    """The same by the shortest way: the whole model, a softmax over two logits."""
    program = """
import sys
from pathlib import Path
import mlx.core as mx
from mlx_lm.utils import load_model
from vault_lsp.rerank.qwen3 import Prompts
prompts = Prompts(Path(sys.argv[1]))
logits = load_model(Path(sys.argv[1]))[0](mx.array([prompts.prompt("snow", "a white field")]))[0, -1]
print(mx.softmax(mx.stack([logits[token] for token in prompts.answers]))[1].item())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(random_folder)], cwd=ROOT, capture_output=True, check=True
    )
    assert random_model.scores("snow", ["a white field"]) == [pytest.approx(float(done.stdout), abs=1e-5)]


def test_a_passage_that_the_model_likes_is_first(gold_model: Reranker) -> None:
    passages = ["none of it", "# a little", "######## a lot", "nothing at all"]
    scores = gold_model.scores("where is it", passages)
    assert sorted(passages, key=lambda passage: -scores[passages.index(passage)])[:2] == [passages[2], passages[1]]
    assert scores[0] == scores[3] == pytest.approx(0.5, abs=1e-3)
    assert scores[2] > 0.6


def test_the_order_of_the_passages_does_not_matter(gold_model: Reranker) -> None:
    passages = ["none of it", "# a little", "######## a lot"]
    assert gold_model.scores("where", passages[::-1]) == pytest.approx(gold_model.scores("where", passages)[::-1])


def test_the_end_of_a_passage_that_is_too_long_is_not_read(gold_model: Reranker) -> None:
    [early, late, cut] = gold_model.scores("where", ["#" * 50 + "a" * 5000, "a" * 5000 + "#" * 50, "a" * 5000])
    assert early > late
    assert late == cut


def test_a_query_that_is_too_long_leaves_the_passage_its_place(gold_model: Reranker) -> None:
    with_it, without = gold_model.scores("where " * 3000, ["#" * 50, "a" * 50])
    assert with_it > without


@pytest.mark.parametrize("odd", ODD, ids=lambda text: ascii(text[:9]))
def test_whatever_is_in_a_text_it_is_read(odd: str, random_model: Reranker) -> None:
    scores = [*random_model.scores(odd, ["plain", odd]), *random_model.scores("plain", [odd])]
    assert all(0 < score < 1 for score in scores)


def test_no_passage_needs_no_model_run(random_model: Reranker) -> None:
    assert random_model.scores("snow", []) == []


def test_all_passages_are_read_within_a_budget(random_model: Reranker) -> None:
    scores = rerank(random_model, "snow", PASSAGES * 4, budget_ms=60_000)
    assert scores == pytest.approx(random_model.scores("snow", PASSAGES * 4), abs=1e-5)
    said: list[str] = []
    assert rerank(random_model, "snow", ["x" * 4000] * 40, budget_ms=1, report=said.append) is None
    assert "rerank.budget_ms" in said[0]


@pytest.mark.parametrize("variant", [{"tied": False}, {"bits": 4}])
def test_untied_and_quantized_weights_work_as_well(variant: dict[str, int], tmp_path: Path) -> None:
    model = load(str(write_model(tmp_path, seed=3, **variant)), tmp_path, threads=1)
    scores = model.scores("snow", PASSAGES)
    assert len(set(scores)) == len(PASSAGES)
    assert all(0 < score < 1 for score in scores)


def test_many_threads_ask_one_model(random_model: Reranker) -> None:
    expected = random_model.scores("snow", PASSAGES)
    found: list[list[float]] = []
    threads = [threading.Thread(target=lambda: found.append(random_model.scores("snow", PASSAGES))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


def test_a_model_is_loaded_beside_the_work(random_folder: Path) -> None:
    loading = Loading(str(random_folder), random_folder, threads=1)
    assert loading.get(wait=None).scores("snow", ["a"])


def test_a_model_that_nobody_holds_is_let_go(random_folder: Path) -> None:
    model = load(str(random_folder), random_folder, threads=1)
    assert isinstance(model, Qwen3Reranker)
    held = weakref.ref(model._held[0])
    assert held() is not None
    del model
    qwen3._thread.run(gc.collect)
    assert held() is None


@pytest.mark.parametrize(
    "end",
    [
        "",
        "del model",
        "def ask():\n while True: model.scores('a', ['b' * 500])\nthreading.Thread(target=ask, daemon=True).start()",
    ],
    ids=["held", "let go", "busy"],
)
def test_a_process_that_used_a_model_ends_well_and_prints_nothing(end: str, random_folder: Path) -> None:
    program = f"""
import sys, threading
from pathlib import Path
from vault_lsp.rerank import load
model = load(sys.argv[1], Path("/"), threads=1)
thread = threading.Thread(target=lambda: model.scores("a", ["b"]))
thread.start()
thread.join()
{end}
"""
    command = [sys.executable, "-c", program, str(random_folder)]
    runs = [subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False) for _ in range(2)]
    assert {(run.returncode, run.stdout, run.stderr) for run in runs} == {(0, "", "")}


def test_another_tokenizer_is_refused_in_one_line(tmp_path: Path) -> None:
    write_tokenizer(write_model(tmp_path), merges=(("y", "e"), ("n", "o")))
    with pytest.raises(ModelUnavailable, match="tokenizer isn't that of Qwen3") as caught:
        load(str(tmp_path), tmp_path, threads=1)
    assert "\n" not in str(caught.value)


def test_damaged_weights_are_refused_in_one_line(tmp_path: Path) -> None:
    (write_model(tmp_path) / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      garbage")
    with pytest.raises(ModelUnavailable, match="can't be loaded") as caught:
        load(str(tmp_path), tmp_path, threads=1)
    assert "\n" not in str(caught.value)


def test_a_model_that_wants_to_run_code_of_its_own_is_refused(tmp_path: Path) -> None:
    config = write_model(tmp_path) / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_file": "run.py"}), encoding="utf-8")
    (tmp_path / "run.py").write_text("open('ran', 'w')", encoding="utf-8")
    with pytest.raises(ModelUnavailable, match="can't be loaded"):
        load(str(tmp_path), tmp_path, threads=1)
    assert not Path("ran").exists()
