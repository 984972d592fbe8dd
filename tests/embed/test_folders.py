"""A model in a folder of the user's, run by the real fastembed, and what is said of one that is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.support import environment
from tests.tiny_models import tiny_cross_encoder, tiny_embedder
from vault_lsp.embed import models, runtime
from vault_lsp.embed.embedder import Embedder
from vault_lsp.errors import ModelUnavailable

HARD = ("", " \n\t", "nul \0 byte", "lone \ud800 surrogate", "👩‍👩‍👧", "word " * 500, "知识")


def load(root: Path, setting: str = "model", threads: int = 1) -> Embedder:
    return models.load(setting, root, threads=threads)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts each run of the engine had."""
    seen: list[int] = []
    embed = runtime.TextEmbedding.passage_embed

    def counted(self: Any, texts: list[str], **options: Any) -> Any:
        seen.extend(min(options["batch_size"], len(texts) - i) for i in range(0, len(texts), options["batch_size"]))
        return embed(self, texts, **options)

    monkeypatch.setattr(runtime.TextEmbedding, "passage_embed", counted)
    return seen


@pytest.mark.parametrize("dimensions", [4, 8])
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("file", ["model.onnx", "onnx/model.onnx"])
def test_dimensions_are_read_from_the_model(tmp_path: Path, dimensions: int, file: str, *, pooled: bool) -> None:
    tiny_embedder(tmp_path / "model", dimensions=dimensions, pooled=pooled, file=file)
    choice = models.choose("model", tmp_path)
    assert (choice.model, choice.dimensions, choice.ready) == ("model", dimensions, True)
    embedder = load(tmp_path)
    assert embedder.definition.fingerprint == choice.fingerprint
    assert embedder.passages(["one", "two"]).shape == (2, dimensions)


@pytest.mark.parametrize("setting", ["model", "./model", "sub/../model", "absolute"])
def test_a_folder_is_relative_to_the_vault_or_absolute(tmp_path: Path, setting: str) -> None:
    folder = tiny_embedder(tmp_path / "model")
    (tmp_path / "sub").mkdir()
    setting = str(folder) if setting == "absolute" else setting
    choice = models.choose(setting, tmp_path)
    assert choice.model == setting
    assert choice.fingerprint == models.choose("model", tmp_path).fingerprint
    assert load(tmp_path, setting).definition.fingerprint == choice.fingerprint


def test_vectors_have_length_one_and_any_text_has_one(tmp_path: Path, runs: list[int]) -> None:
    tiny_embedder(tmp_path / "model")
    embedder = load(tmp_path)
    vectors = embedder.passages(HARD)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(HARD), 8)
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-6
    for text, vector in zip(HARD, vectors, strict=True):
        assert np.abs(embedder.passages([text])[0] - vector).max() < 1e-5, text
        assert abs(np.linalg.norm(embedder.query(text)) - 1) < 1e-6
    assert embedder.passages([]).shape == (0, 8)
    embedder.passages(["short"] * 50)
    assert max(runs) == 8
    assert sum(runs) == 2 * len(HARD) + 50


def test_long_texts_are_cut_and_run_one_by_one(tmp_path: Path, runs: list[int]) -> None:
    tiny_embedder(tmp_path / "model", max_tokens=64)
    embedder = load(tmp_path)
    start = "a" * 62  # and two special tokens
    vectors = embedder.passages([start, start + "b" * 3000, start + "c" * 3000])
    assert runs == [1, 1, 1]
    assert np.ptp(vectors, axis=0).max() < 1e-6
    assert embedder.count_tokens([start, start + "b" * 3000, ""]) == [64, 3064, 2]
    # Counting doesn't change how texts are cut.
    assert np.array_equal(embedder.passages([start + "b" * 3000])[0], vectors[1])


def test_neighbours_are_run_together_while_they_are_short() -> None:
    texts = ["a" * 100] * 10 + ["b" * 600, "c" * 600, "d" * 700, "e" * 5000, "f", "知" * 200, "g"]
    runs = list(runtime.batches(texts))
    assert [text for run in runs for text in run] == texts
    assert [len(run) for run in runs] == [8, 2, 2, 1, 1, 2, 1]
    assert list(runtime.batches([])) == []


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize(
    "pooling", [None, "pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_lasttoken"]
)
def test_the_light_query_embedder_pools_alike(tmp_path: Path, pooling: str | None, *, pooled: bool) -> None:
    folder = tiny_embedder(tmp_path / "model", pooled=pooled)
    if pooling:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps({pooling: True}), encoding="utf-8")
    full, light = load(tmp_path), models.load_query_embedder("model", tmp_path)
    for text in HARD:
        assert np.abs(full.query(text) - light.query(text)).max() < 1e-5, text


def test_prefixes_come_from_the_folder_or_from_the_family(tmp_path: Path) -> None:
    plain = tiny_embedder(tmp_path / "model")
    named = tiny_embedder(tmp_path / "my-e5-base")
    told = tiny_embedder(tmp_path / "other-e5-base")
    prompts = {"prompts": {"query": "ask: ", "document": "tell: "}}
    (told / "config_sentence_transformers.json").write_text(json.dumps(prompts), encoding="utf-8")
    used = {}
    for folder in (plain, named, told):
        embedder = load(tmp_path, folder.name)
        used[folder.name] = (embedder.definition.query_prefix, embedder.definition.passage_prefix)
        query, passage = used[folder.name]
        bare = load(tmp_path, "model")  # the same weights
        assert np.allclose(embedder.query("tea"), bare.query(f"{query}tea"), atol=1e-6)
        assert np.allclose(embedder.passages(["tea"]), bare.passages([f"{passage}tea"]), atol=1e-6)
        assert embedder.count_tokens(["tea"]) == bare.count_tokens([f"{passage}tea"])
    assert used == {"model": ("", ""), "my-e5-base": ("query: ", "passage: "), "other-e5-base": ("ask: ", "tell: ")}


def change_weights(folder: Path) -> None:
    tiny_embedder(folder, seed=1)


def change_dimensions(folder: Path) -> None:
    tiny_embedder(folder, dimensions=4)


def change_limit(folder: Path) -> None:
    tiny_embedder(folder, max_tokens=32)


def add_pooling(folder: Path) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}', encoding="utf-8")


def add_prompts(folder: Path) -> None:
    content = json.dumps({"prompts": {"query": "q: "}})
    (folder / "config_sentence_transformers.json").write_text(content, encoding="utf-8")


@pytest.mark.parametrize("change", [change_weights, change_dimensions, change_limit, add_pooling, add_prompts])
def test_whatever_changes_a_vector_changes_the_fingerprint(tmp_path: Path, change: Callable[[Path], None]) -> None:
    folder = tiny_embedder(tmp_path / "model")
    before = models.choose("model", tmp_path)
    assert models.choose("model", tmp_path) == before
    change(folder)
    after = models.choose("model", tmp_path)
    assert after.fingerprint != before.fingerprint
    assert load(tmp_path).definition.fingerprint == after.fingerprint


def test_a_fingerprint_depends_on_contents_alone(tmp_path: Path) -> None:
    fingerprints = set()
    for parent in ("here", "there"):
        folder = tiny_embedder(tmp_path / parent / "model")
        (folder / "README.md").write_text(parent, encoding="utf-8")
        fingerprints.add(models.choose(f"{parent}/model", tmp_path).fingerprint)
        os.utime(folder / "model.onnx", (1, 1))
        fingerprints.add(models.choose(f"{parent}/model", tmp_path).fingerprint)
    assert len(fingerprints) == 1


def test_a_known_folder_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_embedder(tmp_path / "model")
    before = models.choose("model", tmp_path)

    def fail(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("vault_lsp.embed.folders.sha256", fail)
    monkeypatch.setattr("vault_lsp.embed.direct.probe", fail)
    assert models.choose("model", tmp_path) == before


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def truncate(folder: Path) -> None:
    with (folder / "model.onnx").open("r+b") as file:
        file.truncate(1000)


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text, encoding="utf-8") and None


def scale(factor: float) -> Callable[[Path], None]:
    """A model whose vectors are all multiplied."""

    def damage(folder: Path) -> None:
        model = onnx.load(str(folder / "model.onnx"))
        last = model.graph.node[-1]
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(factor, np.float32), "factor"))
        model.graph.node.insert(-1, onnx.helper.make_node("Mul", [last.input[0], "factor"], ["scaled"]))
        last.input[0] = "scaled"
        onnx.save(model, str(folder / "model.onnx"))

    return damage


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (remove("model.onnx"), "model.onnx"),
        (remove("tokenizer.json"), "tokenizer.json"),
        (remove("tokenizer_config.json"), "tokenizer_config.json"),
        (truncate, "can't be run"),
        (scale(float("nan")), "gives no vectors"),
        (scale(float("inf")), "gives no vectors"),
        (tiny_cross_encoder, "gives no vectors"),
        (write("tokenizer.json", "{}"), "can't be loaded"),
        (write("tokenizer_config.json", '{"pad_token": "[PAD]"}'), "can't be loaded"),
        (write("tokenizer_config.json", "["), "can't be loaded"),
    ],
)
def test_a_folder_that_is_no_model_is_named_in_one_line(
    tmp_path: Path, damage: Callable[[Path], object], said: str
) -> None:
    folder = tiny_embedder(tmp_path / "model")
    damage(folder)
    with pytest.raises(ModelUnavailable) as caught:
        load(tmp_path)
    text = str(caught.value)
    assert said in text
    assert str(folder) in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "setting", ["nowhere", "./nowhere", "~/nowhere/at/all", "/nowhere/at/all", "", "a\0b", "org/name", "../.."]
)
def test_a_setting_that_means_nothing_is_answered_in_one_line(tmp_path: Path, setting: str) -> None:
    choice = models.choose(setting, tmp_path / "vault")
    assert choice.model is None
    assert choice.why
    assert "\n" not in choice.why
    with pytest.raises(ModelUnavailable):
        load(tmp_path / "vault", setting)


def test_none_is_no_model(tmp_path: Path) -> None:
    assert models.choose("none", tmp_path) == (None, "embedding.model is none", None, None, True)
    with pytest.raises(ModelUnavailable, match=r"^embedding\.model is none$"):
        load(tmp_path, "none")


def test_two_models_in_one_process_do_not_meet(tmp_path: Path, reached: list[Any], capfd: Any) -> None:
    for seed, name in enumerate(("one", "two")):
        tiny_embedder(tmp_path / name, dimensions=4 + seed, seed=seed)
    embedders = [load(tmp_path, name, threads=2) for name in ("one", "two", "one")]
    vectors = [embedder.passages(["tea"]) for embedder in embedders]
    assert [each.shape for each in vectors] == [(1, 4), (1, 5), (1, 4)]
    assert np.array_equal(vectors[0], vectors[2])
    assert reached == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("call", ["embed.models.load", "embed.models.load_query_embedder", "rerank.models.load"])
def test_the_runtime_leaves_nothing_behind_and_reports_to_nobody(tmp_path: Path, call: str) -> None:
    kind = tiny_embedder if call.startswith("embed") else tiny_cross_encoder
    module, _, function = call.rpartition(".")
    load = f"{function}({str(kind(tmp_path / 'tiny'))!r}, Path(), threads=1)"
    code = f"from pathlib import Path; from vault_lsp.{module} import {function}; {load}"
    places = {name: tmp_path / name for name in ("HOME", "TMPDIR")}
    for place in places.values():
        place.mkdir()
    surroundings = {name: value for name, value in environment().items() if name != "ORT_DISABLE_TELEMETRY"}
    surroundings |= {name: str(place) for name, place in places.items()}
    subprocess.run([sys.executable, "-c", code], env=surroundings, check=True)
    assert [file.name for place in places.values() for file in place.rglob("*")] == []
