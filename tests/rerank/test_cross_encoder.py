"""Cross-encoders by fastembed, on tiny models made here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.tiny_models import VOCABULARY, tiny_cross_encoder, tiny_embedder
from vault_lsp.errors import ModelUnavailable
from vault_lsp.rerank import Loading, Reranker, choose, load, rerank

ROOT = Path(__file__).resolve().parents[2]
PASSAGES = ["short", "a passage that is a good deal longer than the first", "", "雪山 in the snow", "omega " * 40]
ODD = ["", " ", "\0", "a\0b", "\ud800", "x\udfff\ud800y", "[SEP][CLS]", "\u2028\ufeff", "é" * 3000, "🏔️"]


def praising(folder: Path, letter: str) -> Path:
    """Write a cross-encoder whose logit counts a letter: a model that has an opinion."""
    tiny_cross_encoder(folder)
    weights = np.zeros(len(VOCABULARY), np.float32)
    weights[VOCABULARY[letter]] = 1.0
    nodes = [
        helper.make_node("Gather", ["weights", "input_ids"], ["each"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["each", "mask"], ["seen"]),
        helper.make_node("ReduceSum", ["seen", "axis"], ["logits"], keepdims=1),
    ]
    tokens = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
        for name in ("input_ids", "attention_mask")
    ]
    result = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])
    constants = [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.array([1]), "axis")]
    graph = helper.make_graph(nodes, "praising", tokens, [result], constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "model.onnx"
    )
    return folder


@pytest.fixture(scope="module")
def random_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_cross_encoder(tmp_path_factory.mktemp("random"), seed=5)


@pytest.fixture(scope="module")
def random_model(random_folder: Path) -> Reranker:
    return load(str(random_folder), random_folder, threads=1)


@pytest.fixture(scope="module")
def gold_model(tmp_path_factory: pytest.TempPathFactory) -> Reranker:
    folder = praising(tmp_path_factory.mktemp("gold"), "#")
    return load(str(folder), folder, threads=1)


def test_scores_lie_between_0_and_1_and_depend_on_query_and_passage(random_model: Reranker) -> None:
    scores = random_model.scores("snow", PASSAGES)
    assert all(0 < score < 1 for score in scores)
    assert len(set(scores)) == len(PASSAGES)
    assert random_model.scores("rain", PASSAGES) != scores


def test_the_same_question_gets_the_same_answer_from_a_model_loaded_anew(
    random_folder: Path, random_model: Reranker
) -> None:
    again = load(str(random_folder), random_folder, threads=2)
    assert again.scores("snow", PASSAGES) == pytest.approx(random_model.scores("snow", PASSAGES), abs=1e-6)


def test_other_weights_give_other_scores(random_model: Reranker, tmp_path: Path) -> None:
    other = load(str(tiny_cross_encoder(tmp_path, seed=2)), tmp_path, threads=1)
    assert other.scores("snow", PASSAGES) != random_model.scores("snow", PASSAGES)


def test_a_passage_scores_the_same_alone_as_beside_others(random_model: Reranker) -> None:
    many = PASSAGES * 4
    alone = [random_model.scores("snow", [passage])[0] for passage in many]
    assert random_model.scores("snow", many) == pytest.approx(alone, abs=1e-5)


def test_a_score_is_the_sigmoid_of_the_logit(gold_model: Reranker) -> None:
    logistic = [1 / (1 + np.exp(-count)) for count in (0, 1, 3)]
    assert gold_model.scores("where", ["none", "# one", "# # # three"]) == pytest.approx(logistic, abs=1e-6)


def test_a_passage_that_the_model_likes_is_first(gold_model: Reranker) -> None:
    passages = ["none of it", "# a little", "#### a lot", "nothing at all"]
    scores = rerank(gold_model, "where is it", passages, budget_ms=60_000)
    assert scores is not None
    assert sorted(range(4), key=lambda place: -scores[place]) == [2, 1, 0, 3]


def test_the_end_of_a_passage_that_is_too_long_is_not_read(gold_model: Reranker) -> None:
    assert gold_model.scores("where", ["#" + "a" * 5000, "a" * 5000 + "#"]) == pytest.approx([0.731, 0.5], abs=1e-3)


def test_a_model_that_takes_long_texts_is_given_no_more_than_memory_allows(tmp_path: Path) -> None:
    config = praising(tmp_path, "#") / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_max_length": 8192}), encoding="utf-8")
    model = load(str(tmp_path), tmp_path, threads=1)
    [near, far] = model.scores("where", ["a" * 400 + "#", "a" * 600 + "#"])
    assert near > 0.7
    assert far == pytest.approx(0.5)


@pytest.mark.parametrize("odd", ODD, ids=lambda text: ascii(text[:9]))
def test_whatever_is_in_a_text_it_is_read(odd: str, random_model: Reranker) -> None:
    scores = [*random_model.scores(odd, ["plain", odd]), *random_model.scores("plain", [odd])]
    assert all(0 < score < 1 for score in scores)


def test_no_passage_has_no_score(random_model: Reranker) -> None:
    assert random_model.scores("snow", []) == []


def test_a_logit_that_is_no_number_is_reported(tmp_path: Path) -> None:
    graph = onnx.load(praising(tmp_path, "#") / "model.onnx")
    weights = np.array(numpy_helper.to_array(graph.graph.initializer[0]))
    weights[VOCABULARY["!"]] = np.nan
    graph.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "weights"))
    onnx.save(graph, tmp_path / "model.onnx")
    said: list[str] = []
    model = load(str(tmp_path), tmp_path, threads=1)
    assert rerank(model, "a", ["b", "c!"], budget_ms=60_000, report=said.append) is None
    assert said == [f"{tmp_path} gave no usable score"]


def test_many_threads_ask_one_model(random_model: Reranker) -> None:
    expected = random_model.scores("snow", PASSAGES)
    found: list[list[float]] = []
    threads = [threading.Thread(target=lambda: found.append(random_model.scores("snow", PASSAGES))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(scores == pytest.approx(expected, abs=1e-6) for scores in found)


def test_one_folder_can_be_loaded_twice_and_by_many_threads(random_folder: Path) -> None:
    loadings = [Loading(str(random_folder), random_folder, threads=1) for _ in range(4)]
    for loading in loadings:
        with pytest.raises(ModelUnavailable, match="is being loaded"):
            loading.get()
    assert all(loading.get(wait=None).scores("snow", ["a"]) for loading in loadings)


def test_a_loading_that_fails_says_so_every_time(tmp_path: Path) -> None:
    loading = Loading(str(tmp_path), tmp_path, threads=1)
    for _ in range(2):
        with pytest.raises(ModelUnavailable, match="holds no reranker"):
            loading.get(wait=None)


def test_a_file_that_changed_is_read_anew(tmp_path: Path) -> None:
    before = load(str(tiny_cross_encoder(tmp_path, seed=3)), tmp_path, threads=1).scores("snow", PASSAGES)
    assert load(str(tiny_cross_encoder(tmp_path, seed=4)), tmp_path, threads=1).scores("snow", PASSAGES) != before


def embedder(folder: Path) -> None:
    tiny_embedder(folder)


def embedder_of_one_vector(folder: Path) -> None:
    tiny_embedder(folder, pooled=True)


def damaged_model(folder: Path) -> None:
    (tiny_cross_encoder(folder) / "model.onnx").write_bytes(b"no model\n" * 9)


def damaged_tokenizer(folder: Path) -> None:
    (tiny_cross_encoder(folder) / "tokenizer.json").write_text('{"version": "1.0"}', encoding="utf-8")


def tokenizer_without_limit(folder: Path) -> None:
    (tiny_cross_encoder(folder) / "tokenizer_config.json").write_text("{}", encoding="utf-8")


@pytest.mark.parametrize(
    "make", [embedder, embedder_of_one_vector, damaged_model, damaged_tokenizer, tokenizer_without_limit]
)
def test_what_is_no_cross_encoder_is_refused_in_one_line(make: object, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path)
    assert choose(str(tmp_path), tmp_path).engine == "onnx"
    with pytest.raises(ModelUnavailable, match="can't be loaded: ") as caught:
        load(str(tmp_path), tmp_path, threads=1)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_loading_prints_nothing_and_asks_nobody(random_folder: Path, tmp_path: Path) -> None:
    program = """
import socket, sys
from pathlib import Path
def refuse(*_):
    raise AssertionError("the network was asked")
socket.socket.connect = socket.getaddrinfo = refuse
from vault_lsp.errors import ModelUnavailable
from vault_lsp.rerank import load
assert load(sys.argv[1], Path("/"), threads=1).scores("a", ["b"])
try:
    load("BAAI/bge-reranker-base", Path("/"), threads=1)
except ModelUnavailable as error:
    assert "vault-lsp model fetch BAAI/bge-reranker-base" in str(error)
else:
    raise AssertionError("there is no such model")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(random_folder)],
        cwd=ROOT,
        env={**os.environ, "VAULT_LSP_MODEL_DIR": str(tmp_path)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
