"""Which reranker a setting means, and what is said of one that isn't there."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.rerank.tiny_qwen3 import write_tokenizer
from tests.tiny_models import tiny_cross_encoder
from vault_lsp.embed import hub
from vault_lsp.errors import ModelUnavailable
from vault_lsp.rerank import Choice, choose, load, models

ROOT = Path(__file__).resolve().parents[2]
INT8 = "BAAI/bge-reranker-v2-m3-int8"
QWEN3 = "Qwen/Qwen3-Reranker-0.6B"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty model folder."""
    monkeypatch.setenv("VAULT_LSP_MODEL_DIR", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.fixture
def mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if mlx-lm were installed: which is looked for, never imported."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())


@pytest.fixture
def apple(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")


def fetched(cache: Path, name: str, make: Callable[[Path], object]) -> Path:
    """A model as `model fetch` leaves it, made by `make` in its folder."""
    recipe = models.RECIPES[name]
    folder = cache / hub.folder_name(recipe.repository) / "snapshots/0123abc"
    folder.mkdir(parents=True, exist_ok=True)
    make(folder)
    sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in folder.rglob("*") if file.is_file()}
    hub.write_note(recipe, "0123abc", sizes, {})
    return folder


def fetch_onnx(cache: Path, name: str) -> Path:
    return fetched(cache, name, lambda folder: tiny_cross_encoder(folder, file=models.RECIPES[name].files[0]))


def write_qwen3(folder: Path) -> Path:
    (write_tokenizer(folder) / "model.safetensors").write_bytes(b"weights")
    return folder


def why(model: str, root: Path) -> str:
    """Why there is no such model; also what loading it says."""
    choice = choose(model, root)
    assert choice.model is None
    assert "\n" not in choice.why
    with pytest.raises(ModelUnavailable) as caught:
        load(model, root, threads=1)
    assert str(caught.value) == choice.why
    return choice.why


@pytest.mark.parametrize("setting", ["none", " none ", ""])
def test_none_is_none(setting: str, cache: Path, tmp_path: Path) -> None:
    assert why(setting, tmp_path) == "rerank.model is none"


@pytest.mark.parametrize("name", models.RECIPES)
def test_a_model_that_is_not_there_is_named_with_the_command_that_fetches_it(
    name: str, cache: Path, tmp_path: Path
) -> None:
    assert why(name, tmp_path) == f"{name} isn't installed: run `vault-lsp model fetch {name}`"
    recipe = models.recipe(name.lower())
    assert recipe is not None
    assert recipe.name == name


def test_no_other_name_has_a_recipe() -> None:
    assert models.recipe("intfloat/multilingual-e5-small") is None


def test_the_names_are_those_of_fastembed_with_their_files() -> None:
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    listed = {
        each["model"]: (each["sources"]["hf"], (each["model_file"], *each["additional_files"]))
        for each in TextCrossEncoder.list_supported_models()
        if not each["model"].startswith("vault-lsp/")
    }
    ours = {
        name: (recipe.repository, recipe.files)
        for name, recipe in models.RECIPES.items()
        if recipe.files[0].endswith(".onnx")
    }
    assert ours == listed


def test_all_weights_for_mlx_are_fetched_and_nothing_else() -> None:
    wanted = models.RECIPES[QWEN3].files
    there = ["model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json"]
    others = ["pytorch_model.bin", "onnx/model.onnx", "README.md", "run.py"]
    assert [name for name in there + others if any(fnmatchcase(name, each) for each in wanted)] == there


@pytest.mark.parametrize("setting", [INT8, INT8.upper(), "auto"])
def test_a_fetched_model_is_found_and_runs(setting: str, cache: Path, tmp_path: Path) -> None:
    folder = fetch_onnx(cache, INT8)
    assert choose(setting, tmp_path) == Choice(INT8, f"{INT8}, by fastembed", "onnx", folder, "onnx/model_int8.onnx")
    model = load(setting, tmp_path, threads=1)
    assert model.name == INT8
    assert 0 < model.scores("a", ["b"])[0] < 1


def test_the_variant_that_was_named_is_the_one_that_is_used(cache: Path, tmp_path: Path) -> None:
    full = "BAAI/bge-reranker-v2-m3"
    folder = fetch_onnx(cache, INT8)
    assert fetch_onnx(cache, full) == folder
    assert choose(INT8, tmp_path).file == "onnx/model_int8.onnx"
    assert choose(full, tmp_path).file == "onnx/model.onnx"


@pytest.mark.parametrize("missing", ["onnx/model_int8.onnx", "tokenizer.json", "tokenizer_config.json"])
def test_half_a_model_is_no_model(missing: str, cache: Path, tmp_path: Path) -> None:
    file = fetch_onnx(cache, INT8) / missing
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    assert why(INT8, tmp_path) == f"{INT8} is only partly downloaded: run `vault-lsp model fetch {INT8}`"
    file.write_bytes(content)
    assert choose(INT8, tmp_path).model == INT8
    file.unlink()
    file.symlink_to(tmp_path / "blob-that-never-came")
    assert why(INT8, tmp_path) == f"{INT8} is only partly downloaded: run `vault-lsp model fetch {INT8}`"


def test_a_fetched_repository_without_a_tokenizer_is_no_model(cache: Path, tmp_path: Path) -> None:
    def bare(folder: Path) -> None:
        (tiny_cross_encoder(folder, file="onnx/model_int8.onnx") / "tokenizer.json").unlink()

    fetched(cache, INT8, bare)
    assert "is only partly downloaded" in why(INT8, tmp_path)


@pytest.mark.parametrize("place", ["model.onnx", "onnx/model.onnx", "quantized.onnx"])
def test_a_folder_is_taken_relative_to_the_vault(place: str, tmp_path: Path) -> None:
    tiny_cross_encoder(tmp_path / "rankers/mine", file=place)
    choice = choose("rankers/mine", tmp_path)
    assert (choice.engine, choice.folder, choice.file) == ("onnx", tmp_path / "rankers/mine", place)
    assert choice.model is not None
    assert load(choice.model, Path("/"), threads=1).scores("a", ["b"])
    assert choose(str(tmp_path / "rankers/mine"), Path("/")) == choice


def test_a_folder_that_holds_no_model_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    assert "notes holds no reranker: " in why("./notes", tmp_path)
    folder = write_tokenizer(tmp_path / "half")
    assert "model.safetensors is missing" in why("half", tmp_path)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}), encoding="utf-8"
    )
    (folder / "model-1.safetensors").touch()
    assert "model-2.safetensors is missing" in why("half", tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"model_type": 1}', "[" * 100_000, "\0"])
def test_a_config_that_is_none_is_no_model(content: str, tmp_path: Path) -> None:
    (write_qwen3(tmp_path) / "config.json").write_text(content, encoding="utf-8")
    assert "config.json names no qwen3 model" in why(str(tmp_path), tmp_path)


def test_a_folder_for_mlx_needs_mlx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert why(str(write_qwen3(tmp_path)), tmp_path) == f"{tmp_path} needs mlx-lm: pip install 'vault-lsp[mlx]'"


@pytest.mark.usefixtures("mlx")
def test_a_folder_for_mlx_is_used_where_there_is_mlx(tmp_path: Path) -> None:
    choice = choose(str(write_qwen3(tmp_path)), tmp_path)
    assert choice == Choice(str(tmp_path), f"{tmp_path}, by mlx-lm, very slow on this machine", "mlx", tmp_path)


@pytest.mark.usefixtures("mlx", "apple")
def test_on_apple_silicon_auto_prefers_qwen3(cache: Path, tmp_path: Path) -> None:
    assert why("auto", tmp_path) == (
        f"rerank.model is auto, and {QWEN3} isn't installed: run `vault-lsp model fetch {QWEN3}`"
    )
    fetch_onnx(cache, INT8)
    assert choose("auto", tmp_path).model == INT8
    fetched(cache, QWEN3, write_qwen3)
    assert choose("auto", tmp_path)[:3] == (QWEN3, f"{QWEN3}, by mlx-lm", "mlx")


@pytest.mark.usefixtures("mlx")
def test_elsewhere_auto_never_takes_qwen3(cache: Path, tmp_path: Path) -> None:
    fetched(cache, QWEN3, write_qwen3)
    assert INT8 in why("auto", tmp_path)
    assert choose(QWEN3, tmp_path).engine == "mlx"


@pytest.mark.usefixtures("mlx", "apple")
def test_a_folder_with_both_is_run_by_what_suits_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_qwen3(tiny_cross_encoder(tmp_path / "both"))
    assert choose("both", tmp_path).engine == "mlx"
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert choose("both", tmp_path).engine == "onnx"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("bge-reranker-base", "neither a model's name nor a folder, did you mean BAAI/bge-reranker-base?"),
        ("Auto", "neither a model's name nor a folder, did you mean auto?"),
        ("./nowhere", "neither a model's name nor a folder"),
        ("~nobody-of-that-name/x/y", "neither a model's name nor a folder"),
        ("a\0b", "neither a model's name nor a folder"),
        ("somebody/model", "neither a model's name nor a folder"),
        ("../../a", "neither a model's name nor a folder"),
    ],
)
def test_a_setting_that_means_nothing_says_so(setting: str, said: str, cache: Path, tmp_path: Path) -> None:
    assert said in why(setting, tmp_path)


def test_choosing_loads_no_library_and_takes_no_time(cache: Path, tmp_path: Path) -> None:
    fetch_onnx(cache, INT8)
    program = """
import sys, time
from pathlib import Path
from vault_lsp.rerank import choose
started = time.perf_counter()
assert choose("auto", Path(".")).model
assert time.perf_counter() - started < 0.5
assert not {"numpy", "onnxruntime", "fastembed", "tokenizers", "mlx", "huggingface_hub"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)
