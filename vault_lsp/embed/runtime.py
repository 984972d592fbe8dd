"""The one way in which texts become vectors in bulk: a folder with a model, run by fastembed, without the network."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from loguru import logger

from vault_lsp.embed.embedder import Definition
from vault_lsp.embed.source import Source
from vault_lsp.errors import ModelUnavailable

if TYPE_CHECKING:
    from vault_lsp.embed.embedder import Vectors

#: Texts of one run. More are not faster, and memory grows with them.
BATCH = 4

_POOLING = {
    "mean": PoolingType.MEAN,
    "cls": PoolingType.CLS,
    "last": PoolingType.LAST_TOKEN,
    "none": PoolingType.DISABLED,
}

_registering = threading.Lock()


class FastEmbedder:
    """An `Embedder` on fastembed."""

    def __init__(self, source: Source, threads: int) -> None:
        """Load the model. Raises ModelUnavailable where its files can't be read or don't fit each other."""
        logger.disable("fastembed")  # it writes to stderr what is raised anyway
        self._definition = source.definition
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a static model has no threads
                self._model = TextEmbedding(
                    source.listed or _registered(source),
                    cache_dir=str(source.folder),
                    threads=threads,
                    providers=["CPUExecutionProvider"],
                    specific_model_path=str(source.folder),
                    local_files_only=True,
                    # The arena keeps what the longest batch ever took.
                    enable_cpu_mem_arena=False,
                )
            self._tokenizer: Any = vars(self._model.model)["tokenizer"]
            self._limit = dict(self._tokenizer.truncation or {})
            self._limit["max_length"] = min(self._limit.get("max_length", 512), source.definition.max_tokens)
            self._padding = self._tokenizer.padding
            self._tokenizer.enable_truncation(**self._limit)
        except Exception as error:  # onnxruntime and tokenizers raise nothing narrower
            where = f"{source.definition.name} in {source.folder}"
            raise ModelUnavailable(f"{where} can't be loaded: {_line(error)}") from error

    @property
    def definition(self) -> Definition:
        """What the vectors depend on."""
        return self._definition

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens that each passage costs with its prefix, before it is cut to what the model takes."""
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        try:
            prefix = self._definition.passage_prefix
            encoded = self._tokenizer.encode_batch_fast([prefix + clean(text) for text in texts])
        finally:
            self._tokenizer.enable_truncation(**self._limit)
            if self._padding:
                self._tokenizer.enable_padding(**self._padding)
        return [len(each.ids) for each in encoded]

    def passages(self, texts: Sequence[str]) -> Vectors:
        """Vectors of texts that are searched, shape (texts, dimensions). A text past the model's limit is cut."""
        prefix = self._definition.passage_prefix
        return self._vectors(self._model.passage_embed([prefix + clean(text) for text in texts], batch_size=BATCH))

    def query(self, text: str) -> Vectors:
        """Vector of what is searched for, shape (dimensions,)."""
        vectors: Vectors = self._vectors(self._model.query_embed(self._definition.query_prefix + clean(text)))[0]
        return vectors

    def _vectors(self, found: Iterable[Any]) -> Vectors:
        rows = list(found)
        return unit(np.array(rows, np.float32).reshape(len(rows), self._definition.dimensions))


def clean(text: str) -> str:
    """A text that every tokenizer takes: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def unit(vectors: Vectors) -> Vectors:
    """Vectors brought to length 1, whatever the model gave. One without a direction gets the first axis."""
    vectors = np.nan_to_num(vectors, copy=False)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    vectors[lengths[..., 0] == 0, 0] = lengths[lengths == 0] = 1
    vectors /= lengths
    return vectors


def _registered(source: Source) -> str:
    """The name under which fastembed knows a model that isn't of its list."""
    name = f"vault-lsp/{source.definition.fingerprint}/{source.model_file}"
    with _registering:
        # Its registry belongs to the process and refuses a name that it knows.
        if all(known.model != name for known in TextEmbedding._list_supported_models()):  # noqa: SLF001 - no public look
            TextEmbedding.add_custom_model(
                name,
                pooling=_POOLING[source.definition.pooling],
                normalization=source.definition.normalize,
                sources=ModelSource(hf=name),
                dim=source.definition.dimensions,
                model_file=source.model_file,
            )
    return name


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
