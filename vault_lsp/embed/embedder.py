"""What an embedding model is to the rest: texts in, unit vectors out, and a definition that tells its vectors apart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    #: One vector of shape (dimensions,), or many of shape (texts, dimensions); every vector has length 1.
    Vectors: TypeAlias = NDArray[np.float32]

Pooling = Literal["mean", "cls", "last", "none"]


@dataclass(frozen=True, slots=True)
class Definition:
    """All that decides which vector a text gets. `revision` names the weights and the code that runs them."""

    name: str
    revision: str
    dimensions: int
    pooling: Pooling
    normalize: bool
    query_prefix: str
    passage_prefix: str
    max_tokens: int

    @property
    def fingerprint(self) -> str:
        """A short name, different for every two models whose vectors must not meet."""
        return f"{self.name}@{hashlib.sha256(repr(astuple(self)).encode()).hexdigest()[:16]}"


class QueryEmbedder(Protocol):
    """A model in memory that embeds what is searched for, and a few passages. Threads may share it."""

    @property
    def definition(self) -> Definition:
        """What the vectors depend on."""

    def query(self, text: str) -> Vectors:
        """Vector of what is searched for, shape (dimensions,)."""

    def question(self, text: str) -> Callable[[], Vectors]:
        """The same, with the model's run left to whoever calls what is returned: on another thread, say."""

    def passages(self, texts: Sequence[str]) -> Vectors:
        """Vectors of texts that are searched, shape (texts, dimensions). A text past the model's limit is cut."""


class Embedder(QueryEmbedder, Protocol):
    """A model in memory, quick with many passages. Threads may share it, but for `count_tokens`."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens that each passage costs with its prefix, before it is cut to what the model takes."""
