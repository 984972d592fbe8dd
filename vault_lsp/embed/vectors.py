"""What every way to run a model does to texts and vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vault_lsp.embed.embedder import Vectors


def clean(text: str) -> str:
    """A text that every tokenizer takes: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def unit(vectors: Vectors) -> Vectors:
    """Vectors brought to length 1, whatever the model gave. One without a direction gets the first axis."""
    vectors = np.nan_to_num(vectors, posinf=0, neginf=0)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    first = np.zeros_like(vectors)
    first[..., 0] = 1
    return np.where(lengths == 0, first, vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)


def line(error: BaseException) -> str:
    """The message of an error of another library on one line."""
    return " ".join(str(error).split()) or type(error).__name__
