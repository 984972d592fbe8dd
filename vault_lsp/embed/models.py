"""Which model serves a vault, and the way to it. Nothing here is heavy until a model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from vault_lsp.embed import bundled
from vault_lsp.embed.bundled import Progress
from vault_lsp.embed.embedder import Embedder
from vault_lsp.embed.source import Source
from vault_lsp.errors import ModelUnavailable


class Choice(NamedTuple):
    """The model that serves, or why there is none. Where it isn't `ready` it must be prepared, which `load` does."""

    model: str | None
    why: str
    fingerprint: str | None = None
    dimensions: int | None = None
    ready: bool = True


def choose(model: str, root: Path) -> Choice:
    """What the setting `embedding.model` of the vault at `root` comes to. Loads nothing and asks no network."""
    if model == "none":
        return Choice(None, "embedding.model is none")
    try:
        source = _source(model, root)
    except ModelUnavailable as error:
        return Choice(None, str(error))
    why = "" if model == "auto" else "embedding.model"
    definition = source.definition
    return Choice(definition.name, why, definition.fingerprint, definition.dimensions, bundled.is_converted())


def load(model: str, root: Path, *, threads: int, progress: Progress | None = None) -> Embedder:
    """The model in memory, on so many threads. Raises ModelUnavailable; never asks the network."""
    source = _source(model, root)
    if source.folder == bundled.folder():
        bundled.convert(progress)
    from vault_lsp.embed.runtime import FastEmbedder

    return FastEmbedder(source, threads)


def _source(model: str, root: Path) -> Source:
    if model in {"auto", bundled.NAME} and bundled.is_available():
        return bundled.source()
    raise ModelUnavailable(f"{model} isn't installed: run `vault-lsp model fetch {bundled.NAME}`")
