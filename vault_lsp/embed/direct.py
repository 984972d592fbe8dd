"""Vectors of single texts for a process that embeds few: the same model without fastembed's imports and memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vault_lsp.embed.embedder import Definition
from vault_lsp.embed.pieces import QueryTokenizer
from vault_lsp.embed.source import TABLE, Source
from vault_lsp.embed.vectors import clean, line, unit
from vault_lsp.errors import ModelUnavailable

if TYPE_CHECKING:
    from vault_lsp.embed.embedder import Vectors


class DirectQueries:
    """Embeds queries as the `Embedder` of the same model does, and passages one by one. Threads may share it."""

    def __init__(self, source: Source, threads: int) -> None:
        """Load the model. Raises ModelUnavailable where its files can't be read or don't fit each other."""
        self._definition = source.definition
        try:
            self._session = _session(source.folder / source.model_file, threads)
            table = source.folder / TABLE
            self._short = QueryTokenizer(table) if table.exists() else None
            self._tokenizer = None if self._short else _tokenizer(source)
        except Exception as error:  # onnxruntime and tokenizers raise nothing narrower
            where = f"{source.definition.name} in {source.folder}"
            raise ModelUnavailable(f"{where} can't be loaded: {line(error)}") from error

    @property
    def definition(self) -> Definition:
        """What the vectors depend on."""
        return self._definition

    def query(self, text: str) -> Vectors:
        """Vector of what is searched for, shape (dimensions,)."""
        return self.question(text)()

    def question(self, text: str) -> Callable[[], Vectors]:
        """The same, with the model's run left to whoever calls what is returned: on another thread, say."""
        tokens = self._tokens(self._definition.query_prefix + clean(text))
        return lambda: unit(self._run(tokens))

    def passages(self, texts: Sequence[str]) -> Vectors:
        """Vectors of texts that are searched, shape (texts, dimensions). A text past the model's limit is cut."""
        rows = [self._run(self._tokens(self._definition.passage_prefix + clean(text))) for text in texts]
        return unit(np.array(rows, np.float32).reshape(len(rows), self._definition.dimensions))

    def _run(self, tokens: list[int]) -> Vectors:
        [first, *_] = self._session.run(None, _given(self._session, np.array([tokens], np.int64)))
        return np.array(self._pooled(first[0]), np.float32)

    def _tokens(self, text: str) -> list[int]:
        if self._short:
            return self._short.encode(text, self._definition.max_tokens)
        assert self._tokenizer is not None
        numbers: list[int] = self._tokenizer.encode(text).ids
        return numbers

    def _pooled(self, states: Any) -> Any:
        match self._definition.pooling:
            case "mean":
                return states.mean(axis=0, dtype=np.float64)
            case "cls":
                return states[0] if states.ndim == 2 else states
            case "last":
                return states[-1]
            case "none":
                return states


def probe(file: Path) -> tuple[int, bool]:
    """Dimensions of a model's vectors, and whether it gives one a text instead of one a token.

    Raises ModelUnavailable where it can't be run on tokens.
    """
    try:
        session = _session(file, 1)
        tokens = np.zeros((1, 2), np.int64)
        [first, *_] = session.run(None, _given(session, tokens))
    except Exception as error:  # onnxruntime raises nothing narrower
        raise ModelUnavailable(f"{file} can't be run: {line(error)}") from error
    if not isinstance(first, np.ndarray) or first.ndim not in {2, 3} or first.shape[0] != 1:
        raise ModelUnavailable(f"{file} gives no vectors of texts")
    # A model that rates pairs of texts has a single number; one that was broken gives none at all.
    if first.shape[-1] < 2 or not np.isfinite(first).all():
        raise ModelUnavailable(f"{file} gives no vectors of texts")
    return int(first.shape[-1]), first.ndim == 2


def _tokenizer(source: Source) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(source.folder / "tokenizer.json"))
    direction = (tokenizer.truncation or {}).get("direction", "right")
    tokenizer.enable_truncation(source.definition.max_tokens, direction=direction)
    tokenizer.no_padding()
    return tokenizer


def _session(file: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 4  # what is wrong is raised
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _given(session: Any, tokens: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """The inputs of a run, those that the model knows."""
    given = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)}
    return {each.name: given[each.name] for each in session.get_inputs()}
