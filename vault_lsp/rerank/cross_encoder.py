"""Cross-encoders as ONNX models, run by fastembed."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vault_lsp.rerank.reranker import readable, sigmoid

#: Pairs of one run: memory grows with the batch, speed doesn't.
_BATCH = 8

#: Tokens of a query with its passage. Passages are shorter; memory grows with the square of what isn't.
_TOKENS = 512

#: fastembed knows models by name, in one list for the process.
_registering = threading.Lock()


class CrossEncoder:
    """A model that gives each pair of texts a logit."""

    def __init__(self, name: str, folder: Path, file: str, threads: int) -> None:
        """Load an ONNX file from a folder that also holds the tokenizer. Raises what fastembed and its engine do."""
        from fastembed.common.model_description import ModelSource  # noqa: PLC0415 - half a second
        from fastembed.rerank.cross_encoder import TextCrossEncoder  # noqa: PLC0415
        from loguru import logger  # noqa: PLC0415

        logger.disable("fastembed")
        # Always by folder, also for names of fastembed's list: it then looks for nothing and asks nobody.
        registered = f"vault-lsp/{hashlib.sha256(str(folder / file).encode('utf-8', 'replace')).hexdigest()[:16]}"
        weights = f"{file}_data"
        with _registering:
            if all(each["model"] != registered for each in TextCrossEncoder.list_supported_models()):
                TextCrossEncoder.add_custom_model(
                    registered,
                    sources=ModelSource(hf=registered),
                    model_file=file,
                    additional_files=[weights] if (folder / weights).is_file() else [],
                )
        self._name = name
        self._encoder = TextCrossEncoder(
            registered,
            cache_dir=str(folder),
            threads=threads,
            providers=["CPUExecutionProvider"],
            specific_model_path=str(folder),
            local_files_only=True,
            # The arena keeps what the longest batch ever took.
            enable_cpu_mem_arena=False,
        )
        inner: Any = self._encoder.model
        shape = inner.model.get_outputs()[0].shape
        if len(shape) != 2 or (isinstance(shape[1], int) and shape[1] != 1):
            raise ValueError("it doesn't give one number for a pair of texts")
        limits = inner.tokenizer.truncation
        if limits["max_length"] > _TOKENS:
            inner.tokenizer.enable_truncation(_TOKENS, strategy="longest_first", direction=limits["direction"])

    @property
    def name(self) -> str:
        """Name of the model, as it was chosen."""
        return self._name

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Score of each passage, from 0 to 1."""
        limit = 16 * _TOKENS
        texts = [readable(passage, limit) for passage in passages]
        return [sigmoid(logit) for logit in self._encoder.rerank(readable(query, limit), texts, batch_size=_BATCH)]
