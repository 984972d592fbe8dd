"""The one way in which texts become vectors in bulk: a folder with a model, run by fastembed, without the network."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from fastembed.text.onnx_embedding import OnnxTextEmbedding
from fastembed.text.pooled_embedding import PooledEmbedding
from fastembed.text.pooled_normalized_embedding import PooledNormalizedEmbedding
from loguru import logger

from vault_lsp.embed.embedder import Definition, Pooling
from vault_lsp.embed.hub import Recipe
from vault_lsp.embed.source import Source
from vault_lsp.embed.vectors import clean, line, unit
from vault_lsp.errors import ModelUnavailable

if TYPE_CHECKING:
    from vault_lsp.embed.embedder import Vectors

#: Texts of one run at most.
BATCH = 8

#: Bytes of one run of several texts at most, about 300 tokens. Larger runs are slower and take more memory.
BATCH_BYTES = 1300

_POOLING = {
    "mean": PoolingType.MEAN,
    "cls": PoolingType.CLS,
    "last": PoolingType.LAST_TOKEN,
    "none": PoolingType.DISABLED,
}

#: What the classes of fastembed do that run an encoder as it is.
_POOLED_BY: dict[type, Pooling] = {
    OnnxTextEmbedding: "cls",
    PooledEmbedding: "mean",
    PooledNormalizedEmbedding: "mean",
}

_registering = threading.Lock()


class FastEmbedder:
    """An `Embedder` on fastembed."""

    def __init__(self, source: Source, threads: int) -> None:
        """Load the model. Raises ModelUnavailable where its files can't be read or don't fit each other."""
        logger.disable("fastembed")  # it writes to stderr what is raised anyway
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else tokenizing takes every core
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
                )
            self._tokenizer: Any = vars(self._model.model)["tokenizer"]
            self._limit = dict(self._tokenizer.truncation or {})
            self._limit["max_length"] = min(self._limit.get("max_length", 512), source.definition.max_tokens)
            self._padding = self._tokenizer.padding
            self._tokenizer.enable_truncation(**self._limit)
            self.query("")  # shows whether what is written of the model is true
        except Exception as error:  # onnxruntime and tokenizers raise nothing narrower
            where = f"{source.definition.name} in {source.folder}"
            raise ModelUnavailable(f"{where} can't be loaded: {line(error)}") from error

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
        found: list[Any] = []
        for run in batches([prefix + clean(text) for text in texts]):
            found += self._model.passage_embed(run, batch_size=BATCH)
        return self._vectors(found)

    def query(self, text: str) -> Vectors:
        """Vector of what is searched for, shape (dimensions,)."""
        vectors: Vectors = self._vectors(self._model.query_embed(self._definition.query_prefix + clean(text)))[0]
        return vectors

    def question(self, text: str) -> Callable[[], Vectors]:
        """The same, with the model's run left to whoever calls what is returned: on another thread, say."""
        return lambda: self.query(text)

    def _vectors(self, found: Iterable[Any]) -> Vectors:
        rows = list(found)
        return unit(np.array(rows, np.float32).reshape(len(rows), self._definition.dimensions))


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Neighbours that are run together. Each costs as much as the longest of its run, so the caller sorts by length."""
    run: list[str] = []
    longest = 0
    for text in texts:
        size = len(text.encode())
        longest = max(longest, size)
        if run and (len(run) == BATCH or longest * (len(run) + 1) > BATCH_BYTES):
            yield run
            run, longest = [], size
        run.append(text)
    if run:
        yield run


def listed_recipe(name: str) -> Recipe | None:
    """How a model of fastembed's list is brought and run; None for a name that it doesn't know."""
    for kind in TextEmbedding.EMBEDDINGS_REGISTRY:
        for model in kind._list_supported_models():  # noqa: SLF001 - the public list doesn't say who runs a model
            if model.model.lower() == name.lower() and model.sources.hf:
                return Recipe(
                    name=model.model,
                    repository=model.sources.hf,
                    files=(model.model_file, *model.additional_files),
                    model_file=model.model_file,
                    dimensions=model.dim or 0,
                    pooling=_POOLED_BY.get(kind, "none"),
                    listed=True,
                    plain=kind in _POOLED_BY and not model.additional_files,
                )
    return None


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
