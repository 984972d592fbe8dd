"""Models from a hub: fetched by the real client from a hub on this machine, and every way in which that ends badly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.embed.hub_server import FakeHub, serving
from tests.tiny_models import tiny_cross_encoder, tiny_embedder
from vault_lsp.embed import bundled, fetching, hub, models, source
from vault_lsp.errors import ModelUnavailable

E5 = "intfloat/multilingual-e5-small"

#: A name of fastembed's list, and the repository that it means.
LISTED = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
LISTED_REPOSITORY = "Qdrant/paraphrase-multilingual-MiniLM-L12-v2-onnx-Q"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with the two models, and the setting that names it."""
    fake = FakeHub()
    fake.repositories = {
        E5: tiny_embedder(tmp_path / "e5", dimensions=384, file="onnx/model.onnx"),
        LISTED_REPOSITORY: tiny_embedder(tmp_path / "listed", dimensions=384, seed=1, file="model_optimized.onnx"),
    }
    with serving(fake) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("NO_PROXY", "*")
        yield fake


def refused(name: str, **options: Any) -> str:
    """What is said of a model that can't be fetched: one line, and soon."""
    start = time.monotonic()
    with pytest.raises(ModelUnavailable) as caught:
        fetching.fetch(hub.MULTILINGUAL_E5, **options) if options else models.fetch(name)
    assert time.monotonic() - start < 60  # no hang; how long exactly is for a benchmark
    text = str(caught.value)
    assert "\n" not in text
    assert name in text
    return text


def incomplete(name: str, root: Path) -> bool:
    choice = models.choose(name, root)
    return choice.model is None and f"partly downloaded: run `vault-lsp model fetch {name}`" in choice.why


@pytest.mark.parametrize(("name", "limit"), [(E5, 64), (LISTED, 64)])
def test_a_fetched_model_is_used_without_the_network(
    server: FakeHub, tmp_path: Path, reached: list[Any], name: str, limit: int
) -> None:
    assert models.choose(name, tmp_path).model is None
    assert f"vault-lsp model fetch {name}" in models.choose(name, tmp_path).why
    told: list[tuple[str, int, int]] = []
    folder = models.fetch(name, progress=lambda *step: told.append(step))
    assert folder.is_relative_to(source.model_folder())
    assert all(phase == "downloading" and 0 <= done <= total for phase, done, total in told)
    asked = len(server.asked)
    server.manner = "silent"
    choice = models.choose(name.lower(), tmp_path)
    assert (choice.dimensions, choice.ready) == (384, True)
    embedder = models.load(name, tmp_path, threads=1)
    assert embedder.definition.fingerprint == choice.fingerprint
    assert embedder.definition.max_tokens == limit
    assert embedder.passages(["tea", "rain"]).shape == (2, 384)
    light = models.load_query_embedder(name, tmp_path)
    assert np.abs(light.query("tea 茶") - embedder.query("tea 茶")).max() < 1e-5
    assert models.fetch(name) == folder
    assert len(server.asked) == asked
    assert reached == []


def test_only_the_files_that_are_needed_are_fetched(server: FakeHub, tmp_path: Path) -> None:
    (server.repositories[E5] / "pytorch_model.bin").write_bytes(bytes(10))
    (server.repositories[E5] / "onnx/model_O4.onnx").write_bytes(bytes(10))
    folder = models.fetch(E5)
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    assert names == {
        *("onnx/model.onnx", "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    }


def test_auto_is_the_fetched_model_where_none_is_bundled(
    server: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled, "weights_file", lambda: None)
    models.fetch("multilingual-e5-small")
    assert [each.name for each in models.list_models()] == [E5]
    choice = models.choose("auto", tmp_path)
    assert choice.model == E5
    embedder = models.load("auto", tmp_path, threads=1)
    assert embedder.definition.query_prefix == "query: "
    assert embedder.definition.fingerprint == choice.fingerprint != bundled.DEFINITION.fingerprint


@pytest.mark.parametrize("manner", ["cut", "stalled", "wrong"])
def test_what_came_in_part_is_no_model_and_is_completed_by_the_next_fetch(
    server: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manner: Any
) -> None:
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "1")
    server.manner = manner
    refused(E5, patience=1.5)
    assert incomplete(E5, tmp_path)
    with pytest.raises(ModelUnavailable, match="partly downloaded"):
        models.load(E5, tmp_path, threads=1)
    [listed] = [each for each in models.list_models() if each.name == E5]
    assert listed.state == "incomplete"
    server.manner = "whole"
    folder = models.fetch(E5)
    assert (folder / "onnx/model.onnx").read_bytes() == (server.repositories[E5] / "onnx/model.onnx").read_bytes()
    assert models.load(E5, tmp_path, threads=1).query("tea").shape == (384,)


def truncate(file: Path) -> None:
    target = file.resolve()
    target.write_bytes(target.read_bytes()[:1000])


def damage(file: Path) -> None:
    target = file.resolve()
    target.write_bytes(bytes(target.stat().st_size))


@pytest.mark.parametrize("harm", [truncate, damage])
def test_a_model_that_was_harmed_is_repaired_by_the_next_fetch(server: FakeHub, tmp_path: Path, harm: Any) -> None:
    folder = models.fetch(E5)
    harm(folder / "onnx/model.onnx")
    with pytest.raises(ModelUnavailable):
        models.load(E5, tmp_path, threads=1)
    assert models.choose(E5, tmp_path).model is None or harm is damage  # contents are not read to choose
    assert models.fetch(E5) == folder
    assert models.load(E5, tmp_path, threads=1).query("tea").shape == (384,)


def test_an_empty_folder_of_the_models_name_is_no_model(server: FakeHub, tmp_path: Path, models_dir: Path) -> None:
    (models_dir / "models--intfloat--multilingual-e5-small/blobs").mkdir(parents=True)
    assert incomplete(E5, tmp_path)
    models.fetch(E5)
    assert models.choose(E5, tmp_path).model == E5


def test_a_silent_hub_is_given_up_soon(server: FakeHub) -> None:
    server.manner = "silent"
    said = refused(E5)
    assert "doesn't answer" in said or "timed out" in said


def test_without_a_network_there_is_one_line(reached: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert "can't be reached" in refused(E5)
    assert reached == ["hub.invalid"]
    assert not source.model_folder().exists()


def test_a_hub_can_be_forbidden(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelUnavailable, match="HF_HUB_OFFLINE"):
        models.fetch(E5)
    assert server.asked == []


def test_a_name_that_nobody_knows_is_refused_without_asking(server: FakeHub) -> None:
    assert "fastembed" in refused("no/such-model")
    assert server.asked == []


def test_a_repository_that_is_gone_is_said_to_be(server: FakeHub) -> None:
    del server.repositories[E5]
    assert "no such model" in refused(E5)


def test_a_repository_without_the_model_is_said_to_be(server: FakeHub, tmp_path: Path) -> None:
    (server.repositories[E5] / "onnx/model.onnx").unlink()
    assert "has no onnx/model.onnx" in refused(E5)


def test_models_of_other_kinds_are_fetched_by_a_recipe(server: FakeHub, tmp_path: Path) -> None:
    server.repositories["some/reranker"] = tiny_cross_encoder(tmp_path / "reranker")
    recipe = hub.Recipe("some/reranker", "some/reranker", ("*.onnx", "vocab*.txt"))
    folder = models.fetch(recipe.name, recipe=recipe)
    assert (folder / "model.onnx").is_file()
    place = source.model_folder() / "models--some--reranker"
    assert folder == place / "snapshots" / (place / "refs/main").read_text(encoding="ascii")
    choice = models.choose("some/reranker", tmp_path)
    assert choice.model is None
    assert "embeds" in choice.why


def test_a_removed_model_is_gone(server: FakeHub, tmp_path: Path, models_dir: Path) -> None:
    models.fetch(E5)
    models.fetch(LISTED)
    assert {each.name: each.state for each in models.list_models()}.items() >= {E5: "ready", LISTED: "ready"}.items()
    assert models.remove(E5)
    assert models.choose(E5, tmp_path).model is None
    assert models.choose(LISTED, tmp_path).model == LISTED
    assert models.remove(LISTED)
    assert not models.remove(LISTED)
    assert not models.remove("no/such-model")
    assert [each for each in models_dir.iterdir() if each.name.startswith((".removed", "models--"))] == []
