"""Which reranker serves: chosen by name or folder, found on this machine, loaded. Nothing is ever downloaded."""

from __future__ import annotations

import difflib
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from vault_lsp.embed import hub
from vault_lsp.embed.hub import Recipe
from vault_lsp.errors import ModelUnavailable
from vault_lsp.rerank.reranker import Reranker, one_line

Engine = Literal["mlx", "onnx"]


class Choice(NamedTuple):
    """The reranker that a setting means. `model` is what `load` takes; where it is None, `why` says why in one line."""

    model: str | None
    why: str
    engine: Engine | None = None
    #: The folder with the model's files, and where the engine is onnx, which of them is the model.
    folder: Path | None = None
    file: str | None = None


def _mlx(name: str) -> Recipe:
    return Recipe(name, name, ("model*.safetensors*",))


def _onnx(name: str, repository: str | None = None, *files: str) -> Recipe:
    """The first file is the model."""
    return Recipe(name, repository or name, files or ("onnx/model.onnx",))


_M3 = "onnx-community/bge-reranker-v2-m3-ONNX"

#: How the rerankers with a name are fetched: those for mlx, and those of fastembed's list.
RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        _mlx("Qwen/Qwen3-Reranker-0.6B"),
        _mlx("mlx-community/Qwen3-Reranker-0.6B-4bit"),
        _onnx("BAAI/bge-reranker-v2-m3-int8", _M3, "onnx/model_int8.onnx"),
        _onnx("BAAI/bge-reranker-v2-m3", _M3, "onnx/model.onnx", "onnx/model.onnx_data"),
        _onnx("BAAI/bge-reranker-base"),
        _onnx("jinaai/jina-reranker-v2-base-multilingual"),
        _onnx("jinaai/jina-reranker-v1-turbo-en"),
        _onnx("jinaai/jina-reranker-v1-tiny-en"),
        _onnx("Xenova/ms-marco-MiniLM-L-12-v2"),
        _onnx("Xenova/ms-marco-MiniLM-L-6-v2"),
    )
}


def recipe(name: str) -> Recipe | None:
    """How a reranker is fetched; None for a name that is no reranker's."""
    return next((each for known, each in RECIPES.items() if known.casefold() == name.casefold()), None)


def choose(model: str, root: Path) -> Choice:
    """Find the reranker that `rerank.model` means: none, auto, a name, or a folder, relative to the vault's.

    Cheap: files are looked at, no model is loaded and no library imported.
    """
    wanted = model.strip()
    if wanted in {"", "none"}:
        return Choice(None, "rerank.model is none")
    if wanted == "auto":
        return _recommended()
    if known := recipe(wanted):
        return _installed(known)
    folder = root / os.path.expanduser(wanted)  # noqa: PTH111 - Path's raises for a user that there isn't
    if folder.is_dir():
        return _in_folder(str(folder.resolve()), folder.resolve())
    near = difflib.get_close_matches(wanted, [*RECIPES, "auto", "none"], n=1, cutoff=0.5)
    hint = f", did you mean {near[0]}?" if near else ""
    return Choice(None, f"rerank.model is {wanted}, which is neither a model's name nor a folder{hint}")


def load(model: str, root: Path, *, threads: int) -> Reranker:
    """Bring a reranker into memory, a matter of a second or several; `threads` bounds those of a CPU.

    Raises ModelUnavailable with one line.
    """
    choice = choose(model, root)
    if choice.model is None or choice.folder is None:
        raise ModelUnavailable(choice.why)
    loaded: Reranker
    try:
        if choice.engine == "mlx":
            from vault_lsp.rerank.qwen3 import Qwen3Reranker  # noqa: PLC0415 - only where it serves

            loaded = Qwen3Reranker(choice.model, choice.folder)
        else:
            from vault_lsp.rerank.cross_encoder import CrossEncoder  # noqa: PLC0415 - only where it serves

            assert choice.file is not None
            loaded = CrossEncoder(choice.model, choice.folder, choice.file, threads)
        # What the files are is seen when they are used. The first run is also the slowest.
        [score] = loaded.scores("query", ["passage"])
    except Exception as error:
        # Libraries raise what they like here, down to plain Exception.
        raise ModelUnavailable(f"the reranker {choice.model} can't be loaded: {one_line(error)}") from error
    if not 0 <= score <= 1:
        raise ModelUnavailable(f"the reranker {choice.model} gives no usable score")
    return loaded


def _recommended() -> Choice:
    """Of the models recommended for this machine, the first that is on it."""
    names = ["BAAI/bge-reranker-v2-m3-int8"]
    if _apple_silicon():
        names[:0] = ["Qwen/Qwen3-Reranker-0.6B", "mlx-community/Qwen3-Reranker-0.6B-4bit"]
    choices = [_installed(RECIPES[name]) for name in names]
    best = next((choice for choice in choices if choice.model), None)
    return best or Choice(None, f"rerank.model is auto, and {choices[0].why}")


def _apple_silicon() -> bool:
    return sys.platform == "darwin" and platform.machine() == "arm64"


def _installed(wanted: Recipe) -> Choice:
    """A named model if it is whole in the folder of models."""
    name = wanted.name
    found = hub.find(name)
    if found is None:
        return Choice(None, f"{name} isn't installed: run `vault-lsp model fetch {name}`")
    file = next((each for each in wanted.files if each.endswith(".onnx")), None)
    choice = _in_folder(name, found.folder, file)
    if not found.is_whole() or (choice.model is None and choice.engine is None):
        return Choice(None, f"{name} is only partly downloaded: run `vault-lsp model fetch {name}`")
    return choice


def _in_folder(name: str, folder: Path, file: str | None = None) -> Choice:
    """The model that a folder holds; `file` names its ONNX file where that is known."""
    mlx, onnx = _mlx_gap(folder), _onnx_file(folder, file)
    if mlx is None and file is None and (onnx is None or _apple_silicon()):
        if importlib.util.find_spec("mlx") and importlib.util.find_spec("mlx_lm"):
            slow = "" if _apple_silicon() else ", very slow on this machine"
            return Choice(name, f"{name}, by mlx-lm{slow}", "mlx", folder)
        if onnx is None:
            return Choice(None, f"{name} needs mlx-lm: pip install 'vault-lsp[mlx]'", "mlx")
    if onnx is not None:
        return Choice(name, f"{name}, by fastembed", "onnx", folder, onnx)
    return Choice(None, f"{name} holds no reranker: {mlx}, and there is no ONNX file with a tokenizer")


def _mlx_gap(folder: Path) -> str | None:
    """What a folder lacks to be a Qwen3 model for mlx; None if nothing."""
    config = _json(folder / "config.json")
    if config.get("model_type") != "qwen3":
        return "config.json names no qwen3 model"
    shards = _json(folder / "model.safetensors.index.json").get("weight_map")
    weights = set(shards.values()) if isinstance(shards, dict) else {"model.safetensors"}
    missing = [each for each in sorted({"tokenizer.json", *map(str, weights)}) if not (folder / each).is_file()]
    return f"{missing[0]} is missing" if missing else None


def _onnx_file(folder: Path, file: str | None) -> str | None:
    """The ONNX model of a folder that has what fastembed needs beside it."""
    if not all((folder / each).is_file() for each in ("tokenizer.json", "tokenizer_config.json")):
        return None
    if file is not None:
        return file if (folder / file).is_file() else None
    files = (*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx"))
    found = sorted(path.relative_to(folder).as_posix() for path in files if path.is_file())
    usual = [each for each in ("model.onnx", "onnx/model.onnx") if each in found]
    return next(iter(usual or found), None)


def _json(file: Path) -> Mapping[str, object]:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
