"""Which model serves a vault, and the way to it. Nothing here is heavy until a model is loaded."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from vault_lsp.config import UNKNOWN_MODEL
from vault_lsp.embed import bundled, folders, hub
from vault_lsp.embed.bundled import Progress
from vault_lsp.embed.embedder import Embedder, QueryEmbedder
from vault_lsp.embed.source import Source, folder_size, is_whole
from vault_lsp.errors import ModelUnavailable


class Choice(NamedTuple):
    """The model that serves, as `load` takes it, or None; and why. Unless it is `ready`, `load` prepares it first."""

    model: str | None
    why: str
    fingerprint: str | None = None
    dimensions: int | None = None
    ready: bool = True


class Installed(NamedTuple):
    """A model on this machine; `state` is ready, incomplete, or that the bundled one is still to be converted."""

    name: str
    place: Path | None
    bytes: int
    state: str


def choose(model: str, root: Path) -> Choice:
    """What the setting `embedding.model` of the vault at `root` comes to. Loads nothing and asks no network."""
    try:
        source, why = _located(model, root)
    except ModelUnavailable as error:
        return Choice(None, str(error))
    definition = source.definition
    name = definition.name if model == "auto" else model
    ready = source.folder != bundled.folder() or bundled.is_converted()
    return Choice(name, why, definition.fingerprint, definition.dimensions, ready)


def load(model: str, root: Path, *, threads: int, progress: Progress | None = None) -> Embedder:
    """The model in memory, on so many threads. Raises ModelUnavailable; never asks the network."""
    source = _prepared(model, root, progress)
    from vault_lsp.embed.runtime import FastEmbedder

    try:
        return FastEmbedder(source, threads)
    except ModelUnavailable:
        if not _repaired(source, progress):
            raise
        return FastEmbedder(source, threads)


def load_query_embedder(model: str, root: Path, *, threads: int = 1) -> QueryEmbedder:
    """What embeds queries alone, ready in a third of the time that `load` takes. Raises ModelUnavailable.

    The vectors are those of the model that `load` gives.
    """
    source = _prepared(model, root, None)
    if not source.plain:
        return load(model, root, threads=threads)
    from vault_lsp.embed.direct import DirectQueries

    try:
        return DirectQueries(source, threads)
    except ModelUnavailable:
        if not _repaired(source, None):
            raise
        return DirectQueries(source, threads)


def list_models() -> list[Installed]:
    """The bundled model, if there is one for this machine, and all that were fetched."""
    found = []
    if bundled.is_converted():
        found.append(Installed(bundled.NAME, bundled.folder(), folder_size(bundled.folder()), "ready"))
    elif bundled.is_carried():
        found.append(Installed(bundled.NAME, None, 0, "bundled, not yet converted"))
    for each in hub.installed():
        size = sum((each.folder / name).stat().st_size for name in each.sizes if (each.folder / name).is_file())
        found.append(Installed(each.recipe.name, each.folder, size, "ready" if each.is_whole() else "incomplete"))
    return found


def fetch(name: str, *, progress: Progress | None = None, recipe: hub.Recipe | None = None) -> Path:
    """Make a model ready and return its folder: the bundled one is converted, any other downloaded.

    The only function that uses the network. With `recipe` a model of any other kind is fetched; its folder is laid out
    as the hub's cache. Raises ModelUnavailable with one line, within three seconds where there is no network.
    """
    if name == bundled.NAME:
        if bundled.is_available():
            return bundled.convert(progress)
        name = hub.MULTILINGUAL_E5.name
    if found := hub.find(name):
        recipe = recipe or found.recipe
    from vault_lsp.embed import fetching

    return fetching.fetch(recipe or fetching.recipe_of(name), progress)


def remove(name: str) -> bool:
    """Delete a model's files; False where there are none. The bundled one can be converted anew."""
    if name == bundled.NAME and bundled.folder().exists():
        shutil.rmtree(bundled.folder())
        return True
    return hub.remove(hub.MULTILINGUAL_E5.name if name == bundled.NAME else name)


def _located(model: str, root: Path) -> tuple[Source, str]:
    """The model that a setting means, and why it is this one. Raises ModelUnavailable where there is none."""
    if model == "none":
        raise ModelUnavailable("embedding.model is none")
    if model == UNKNOWN_MODEL:
        raise ModelUnavailable("the configuration of embedding.model can't be read")
    if model in {"auto", bundled.NAME}:
        if bundled.is_available():
            return bundled.source(), "the bundled model"
        try:
            return hub.source(hub.MULTILINGUAL_E5.name), "fetched, since no model is bundled for this machine"
        except ModelUnavailable:
            how = f"run `vault-lsp model fetch {bundled.NAME}`"
            raise ModelUnavailable(f"no model is bundled for this machine: {how}") from None
    folder = root / Path(os.path.expanduser(model))  # noqa: PTH111 - Path's raises for a user that there isn't
    if folder.is_dir() or model.startswith((".", "~", "/")) or folder == Path(model):
        return folders.source(folder), "embedding.model"
    return hub.source(model), "embedding.model"


def _prepared(model: str, root: Path, progress: Progress | None) -> Source:
    source, _ = _located(model, root)
    if source.folder == bundled.folder():
        bundled.convert(progress)
    return source


def _repaired(source: Source, progress: Progress | None) -> bool:
    """Whether the model that can't be loaded was the bundled one, damaged, and was made anew."""
    if source.folder != bundled.folder() or is_whole(source.folder, checksums=True) or not bundled.is_carried():
        return False
    shutil.rmtree(source.folder, ignore_errors=True)
    bundled.convert(progress)
    return True
