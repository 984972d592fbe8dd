"""A model in a folder of the user's: an ONNX file, a tokenizer, and what sentence-transformers writes beside them."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from vault_lsp.embed import families
from vault_lsp.embed.embedder import Definition
from vault_lsp.embed.source import RUNTIME, Source, model_folder, sha256
from vault_lsp.errors import ModelUnavailable

#: Where the model of a folder may lie.
MODEL_FILES = ("model.onnx", "onnx/model.onnx")

#: Files that are needed, and files that are looked at where they are.
_NEEDED = ("tokenizer.json", "tokenizer_config.json")
_USED = (
    *("special_tokens_map.json", "config.json", "sentence_bert_config.json"),
    *("config_sentence_transformers.json", "1_Pooling/config.json"),
)

#: Remembers what was read of a folder while its files are unchanged.
_MEMORY = "folders.json"


def source(folder: Path) -> Source:
    """The model of a folder. Reads its files once; then only looks whether they changed.

    Raises ModelUnavailable, with the path, where a file is missing or the model can't be run.
    """
    if not folder.is_dir():
        raise ModelUnavailable(f"{folder}: there is no such folder")
    model_file = next((name for name in MODEL_FILES if (folder / name).is_file()), None)
    if model_file is None:
        raise ModelUnavailable(f"{folder} has no {' or '.join(MODEL_FILES)}")
    for name in _NEEDED:
        if not (folder / name).is_file():
            raise ModelUnavailable(f"{folder} has no {name}")
    try:
        known = _known(folder, model_file)
    except OSError as error:
        raise ModelUnavailable(f"{folder} can't be read: {error.strerror or error}") from error
    prefixes = families.prompts(folder) or families.prefixes(folder.name)
    definition = Definition(
        name=folder.name,
        revision=f"{known['sha256']}, {RUNTIME}",
        dimensions=known["dimensions"],
        pooling="none" if known["pooled"] else families.pooling(folder),
        normalize=True,
        query_prefix=prefixes.query,
        passage_prefix=prefixes.passage,
        max_tokens=families.max_tokens(folder),
    )
    return Source(definition, folder, model_file)


def _known(folder: Path, model_file: str) -> dict[str, Any]:
    """Checksum of all that decides a vector, dimensions, and whether the model gives one vector a text."""
    memory = model_folder() / _MEMORY
    files = _files(folder, model_file)
    stamp = [[name, *_stamp(folder / name)] for name in files]
    key = str(folder.resolve())
    remembered = _read(memory)
    known = remembered.get(key)
    if isinstance(known, dict) and known.get("stamp") == stamp:
        return known
    from vault_lsp.embed.direct import probe

    dimensions, pooled = probe(folder / model_file)
    listed = "".join(f"{name} {sha256(folder / name)}\n" for name in files)
    digest = hashlib.sha256(listed.encode()).hexdigest()
    known = {"stamp": stamp, "sha256": digest, "dimensions": dimensions, "pooled": pooled}
    # Only a memory: where it can't be written, the files are read again.
    with suppress(OSError):
        memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = memory.with_name(f".{_MEMORY}.{os.getpid()}")
        part.write_text(json.dumps({**_read(memory), key: known}), encoding="utf-8")
        part.replace(memory)
    return known


def _files(folder: Path, model_file: str) -> list[str]:
    """Names of the files that decide a vector: weights may lie beside the model, in files that begin with its name."""
    model = folder / model_file
    beside = [file.relative_to(folder).as_posix() for file in model.parent.glob(f"{model.stem}*") if file.is_file()]
    return sorted({*beside, *_NEEDED, *(name for name in _USED if (folder / name).is_file())})


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _read(memory: Path) -> dict[str, Any]:
    try:
        content = json.loads(memory.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
