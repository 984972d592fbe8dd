"""The models on this machine, those that embed and those that rerank: listed, fetched, removed."""

from __future__ import annotations

from pathlib import Path

from vault_lsp.embed import bundled, models
from vault_lsp.embed.bundled import Progress
from vault_lsp.embed.models import Installed, list_models, remove
from vault_lsp.rerank.models import RECIPES, recipe

__all__ = ["SUGGESTED", "Installed", "fetch", "list_models", "remove"]

#: Models that can be fetched and are known to serve. Those of fastembed's list can be fetched as well.
SUGGESTED = (
    bundled.NAME,
    "jinaai/jina-embeddings-v2-base-zh",
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
    *RECIPES,
)


def fetch(name: str, *, progress: Progress | None = None) -> Path:
    """Make a model ready and return its folder. The only function that uses the network.

    Raises ModelUnavailable with one line, within three seconds where there is no network.
    """
    return models.fetch(name, progress=progress, recipe=recipe(name))
