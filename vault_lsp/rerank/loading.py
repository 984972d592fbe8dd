"""A reranker that a resident process loads beside its work: no request waits for a model."""

from __future__ import annotations

import threading
from pathlib import Path

from vault_lsp.errors import ModelUnavailable
from vault_lsp.rerank.models import load
from vault_lsp.rerank.reranker import Reranker


class Loading:
    """One model, loaded by the first who asks for it, on a thread of its own. Safe to use from several threads."""

    def __init__(self, model: str, root: Path, *, threads: int) -> None:
        self._model = model
        self._root = root
        self._threads = threads
        self._lock = threading.Lock()
        self._started = False
        self._done = threading.Event()
        self._loaded: Reranker | None = None
        self._why = "the reranker is being loaded"

    def get(self, wait: float | None = 0) -> Reranker:
        """Give the model, after `wait` seconds at most; None waits as long as it takes.

        Raises ModelUnavailable while the model is not ready, and always if it can't be loaded.
        """
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._load, name="reranker", daemon=True).start()
        self._done.wait(wait)
        if self._loaded is None:
            raise ModelUnavailable(self._why)
        return self._loaded

    def _load(self) -> None:
        try:
            self._loaded = load(self._model, self._root, threads=self._threads)
        except ModelUnavailable as error:
            self._why = str(error)
        finally:
            self._done.set()
