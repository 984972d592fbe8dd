"""The side of one open vault that knows meanings: which model serves, how far it has come, and its vectors.

A model that was configured anew serves when all its vectors are there; until then those of the former one do, if that
can still be loaded. Vectors of two models never meet in one question.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from weakref import WeakValueDictionary

from vault_lsp.config import Config
from vault_lsp.embed import models
from vault_lsp.embedding import Embedded, default_threads, embed_missing
from vault_lsp.errors import IndexBusy, ModelUnavailable, VaultLspError, VectorsUnavailable
from vault_lsp.indexer import Progress
from vault_lsp.ranking import Query
from vault_lsp.rerank import Loading, rerank
from vault_lsp.search import Meaning, Reread
from vault_lsp.store import vectors
from vault_lsp.store.search import NO_FILTERS, ChunkHit, Filters
from vault_lsp.store.vectors import Embedding, Model, VectorStore

if TYPE_CHECKING:
    import apsw

    from vault_lsp.embed.embedder import QueryEmbedder
    from vault_lsp.store.connections import Connections

log = logging.getLogger(__name__)

State = Literal["on", "partial", "off"]

#: Name of the threads that load a model beside the work of others. The interpreter must not end under them.
LOADING = "load model"


class Semantic(NamedTuple):
    """Whether a vault can be searched by meaning: the serving model, its coverage, and what is in the way.

    `superseded`: the vectors that are there are of another model than the configured one.
    """

    model: str | None
    chunks: int
    embedded: int
    why: str
    superseded: bool = False

    @property
    def state(self) -> State:
        """Whether all, some or none of the chunks have a vector of a model that serves."""
        if self.model is None or (self.embedded == 0 and self.chunks > 0):
            return "off"
        return "on" if self.embedded >= self.chunks else "partial"

    @property
    def share(self) -> float:
        """Share of the chunks that have a vector, 1 for a vault without any text."""
        if self.model is None:
            return 0.0
        return self.embedded / self.chunks if self.chunks else 1.0


class Backlog(NamedTuple):
    """What the configured model has still to embed: how many passages, or why it can't, "" where none is wanted.

    `at_hand`: the model is in this process's memory, where a few passages cost less than a process of their own.
    """

    model: str | None
    fingerprint: str | None
    passages: int
    left: int
    at_hand: bool
    why: str


class _Serving(NamedTuple):
    semantic: Semantic
    model: Model | None


#: So many passages take no longer with the model for questions, one by one, than the one for passages takes to load.
FEW = 16

#: Passages that a single question embeds before it is answered.
_EDITS = 8

#: So many seconds a resident process believes what it saw of the models on this machine.
_LATELY = 1.0

#: A model that could not be loaded is tried again after so many seconds.
_TRY_AGAIN = 60.0

#: Models for questions, which all vaults of a process share.
_shared: WeakValueDictionary[str, QueryEmbedder] = WeakValueDictionary()
_loading = threading.Lock()


class Meanings:
    """Vectors and models of one vault. Safe to use from several threads."""

    def __init__(self, root: Path, config: Config, connections: Connections, *, resident: bool) -> None:
        """`resident`: the process lives on, so that what is loaded pays later."""
        self.root = root
        self.model = os.environ.get("VAULT_LSP_EMBEDDING") or config.embedding.model
        self._rerank = config.rerank
        self._rerankers: dict[str, Loading] = {}
        self.resident = resident
        self._connections = connections
        self._store: VectorStore = connections.vectors
        self._guard = threading.Lock()
        self._embedder: tuple[str, QueryEmbedder] | None = None
        self._failed = (0.0, "", "")
        self._chosen: dict[str, tuple[float, models.Choice]] = {}

    # Asking ---------------------------------------------------------------------------------------------------------

    def status(self, connection: apsw.Connection) -> Semantic:
        """What is embedded, by which model, and what is in the way."""
        return self._serving(connection).semantic

    def meaning(
        self, connection: apsw.Connection, query: Query, check: Callable[[], None], *, patient: bool
    ) -> Meaning:
        """What vectors can add to a search. Whoever isn't patient gets nothing while the model is being loaded."""
        semantic, model = self._serving(connection)
        if query.mode == "keyword" or not query.text.strip():
            return Meaning(semantic.state, semantic.share)
        if model is None or semantic.state == "off":
            return Meaning("off", semantic.share, None, semantic.why)
        try:
            embedder = self._loaded(model) if patient else self._at_hand(model)
        except VaultLspError as error:
            return Meaning("off", semantic.share, None, str(error))
        if embedder is None:
            return Meaning("off", semantic.share, None, "the model is being loaded")
        check()
        answer = vectors.begin(connection, model, embedder.question(query.text), resident=self.resident, check=check)

        def nearest(filters: Filters, pool: int) -> Sequence[ChunkHit]:
            try:
                return answer(filters, pool)
            except VectorsUnavailable as error:
                log.warning("%s: the search went on by words: %s", self.root, error)
                return []

        return Meaning(semantic.state, semantic.share, nearest, semantic.why)

    def reread(self, query: Query, check: Callable[[], None]) -> Reread | None:
        """A second look at the best hits, if the query or else the config wants one; `check` may raise Cancelled."""
        if query.rerank is False or (query.rerank is None and self._rerank.model == "none"):
            return None
        model = "auto" if self._rerank.model == "none" else self._rerank.model
        with self._guard:
            # A process that answers once waits for the model; the budget is for reading alone.
            loading = self._rerankers.setdefault(model, Loading(model, self.root, threads=default_threads()))

        def reread(text: str, passages: Sequence[str]) -> tuple[Sequence[float] | None, str]:
            said: list[str] = []
            try:
                reranker = loading.get(0 if self.resident else None)
            except ModelUnavailable as error:
                return None, str(error)

            def cancelled() -> bool:
                check()
                return False

            scores = rerank(
                *(reranker, text, passages),
                budget_ms=self._rerank.budget_ms,
                cancelled=cancelled,
                report=said.append,
            )
            return scores, "; ".join(said)

        return reread

    def prepare(self) -> bool:
        """Make ready what a first question would wait for; False where nothing can serve."""
        with self._connections.reader() as connection:
            semantic, model = self._serving(connection)
            if model is None or semantic.state == "off":
                return False
            vector = self._loaded(model).query("")
            with suppress(VectorsUnavailable):
                vectors.nearest(connection, model, vector, NO_FILTERS, 1, resident=self.resident)
            return True

    # Embedding ------------------------------------------------------------------------------------------------------

    def backlog(self) -> Backlog:
        """What `embed` would do now."""
        choice = models.choose(self.model, self.root)
        with self._connections.reader() as connection:
            chunks, _ = vectors.coverage(connection, None)
            if choice.model is None or choice.fingerprint is None:
                why = "" if self.model == "none" else choice.why
                return Backlog(None, None, chunks, chunks, at_hand=False, why=why)
            if (problem := vectors.extension_problem()) is not None:
                return Backlog(None, None, chunks, chunks, at_hand=False, why=problem)
            left = self._left(connection, choice.fingerprint)
        at_hand = self._in_memory(choice.fingerprint) is not None
        return Backlog(choice.model, choice.fingerprint, chunks, left, at_hand, "")

    def catch_up(self) -> int:
        """Embed what a few edits have left, where the rest is embedded: less than a second's work. How much it was."""
        backlog = self.backlog()
        if not 0 < backlog.left <= min(_EDITS, backlog.passages - 1) or not self._choose(self.model).ready:
            return 0
        try:
            return self.embed(lambda _: None, lambda: False, 1).embedded if self.prepare() else 0
        except VaultLspError as error:
            log.info("%s: what was edited last is not embedded: %s", self.root, error)
            return 0

    def embed(
        self, progress: Callable[[Progress], None], cancelled: Callable[[], bool], threads: int | None
    ) -> Embedded:
        """Embed what has no vector of the configured model. Another embedder at work is left alone."""
        choice = models.choose(self.model, self.root)
        with self._connections.reader() as connection:
            chunks, _ = vectors.coverage(connection, None)
        if choice.model is None or choice.fingerprint is None or choice.dimensions is None:
            return Embedded(None, 0, chunks, choice.why)
        try:
            with vectors.embedding_lock(self._store.index.folder):
                damaged = self._store.current()
                try:
                    return self._embed(choice, progress, cancelled, threads or default_threads())
                except VectorsUnavailable:
                    # What was found damaged is begun anew, once.
                    if self._store.current() in (damaged, None):
                        raise
                    return self._embed(choice, progress, cancelled, threads or default_threads())
        except IndexBusy:
            with self._connections.reader() as connection:
                left = self._left(connection, choice.fingerprint)
            return (
                Embedded(choice.model, 0, left, "another process is embedding")
                if left
                else Embedded(choice.model, 0, 0)
            )

    def _embed(
        self,
        choice: models.Choice,
        progress: Callable[[Progress], None],
        cancelled: Callable[[], bool],
        threads: int,
    ) -> Embedded:
        assert choice.model is not None
        assert choice.fingerprint is not None
        assert choice.dimensions is not None
        with self._store.writer() as connection:
            model = self._store.add_model(connection, choice.fingerprint, choice.model, choice.dimensions)
        done = 0
        embedder: QueryEmbedder | None = None

        def put(batch: list[Embedding]) -> None:
            with self._store.writer() as connection:
                self._store.put(connection, model, batch)

        while True:
            with self._connections.reader() as connection:
                missing = vectors.missing(connection, model)
            if not missing:
                break
            if embedder is None:
                embedder = self._for_passages(model, len(missing), threads, progress)
            begun = done

            def report(now: int, total: int, begun: int = begun) -> None:
                progress(Progress("embedding", begun + now, begun + total))

            done += embed_missing(self.root, missing, embedder, put, report, cancelled)
            if done == begun:
                break  # what is left is in files that have changed since: the next reconcile sees to it
        with self._connections.reader() as connection:
            self._store.prune(connection, model)
            return Embedded(choice.model, done, len(missing))

    def _for_passages(
        self, model: Model, count: int, threads: int, progress: Callable[[Progress], None]
    ) -> QueryEmbedder:
        held = self._in_memory(model.fingerprint)
        if held is not None and count <= FEW:
            return held

        def converting(_phase: str, done: int, total: int) -> None:
            progress(Progress("preparing model", done, total))

        embedder = models.load(model.name, self.root, threads=threads, progress=converting)
        if embedder.definition.fingerprint != model.fingerprint:
            raise ModelUnavailable(f"{model.name} is no longer the model that it was when it was chosen; try again")
        return embedder

    # Inside ---------------------------------------------------------------------------------------------------------

    def _serving(self, connection: apsw.Connection) -> _Serving:
        """The model that answers now; none where the vectors can't be read."""
        try:
            return self._best_serving(connection)
        except VectorsUnavailable as error:
            return _Serving(Semantic(None, vectors.coverage(connection, None)[0], 0, str(error)), None)

    def _choose(self, model: str) -> models.Choice:
        """What a setting comes to, which means looking at files: a process that lives on does so once a second."""
        now = time.monotonic()
        at, choice = self._chosen.get(model, (float("-inf"), None))
        if choice is None or not self.resident or now - at > _LATELY:
            choice = models.choose(model, self.root)
            self._chosen[model] = now, choice
        return choice

    def _best_serving(self, connection: apsw.Connection) -> _Serving:
        choice = self._choose(self.model)
        chunks, _ = vectors.coverage(connection, None)
        if self.model == "none":
            return _Serving(Semantic(None, chunks, 0, choice.why), None)
        best: tuple[int, Model] | None = None
        former: Model | None = None
        for model in vectors.models(connection):
            _, embedded = vectors.coverage(connection, model)
            wanted = model.fingerprint == choice.fingerprint
            if wanted and embedded >= chunks:
                return _Serving(Semantic(model.name, chunks, embedded, ""), model)
            # A former model must still be there to embed a question.
            if (wanted or self._choose(model.name).fingerprint == model.fingerprint) and (
                best is None or embedded > best[0]
            ):
                best = embedded, model
            elif embedded and not wanted:
                former = model
        if (problem := vectors.extension_problem()) is not None:
            return _Serving(Semantic(None, chunks, 0, problem), None)
        # A process that lives on embeds by itself.
        how = "" if self.resident else ": run `vault-lsp index`"
        if best is None or best[0] == 0:
            if choice.model is None:
                why = choice.why
            elif former is not None:
                why = f"nothing is embedded by {choice.model} yet, and {former.name} is no longer there{how}"
            else:
                why = f"nothing is embedded yet{how}"
            return _Serving(Semantic(choice.model, chunks, 0, why, superseded=former is not None), None)
        embedded, model = best
        if model.fingerprint == choice.fingerprint:
            why = f"{embedded} of {chunks} passages are embedded{how and ': `vault-lsp index` goes on'}"
        elif choice.model is None:
            why = choice.why
        else:
            why = f"{model.name} still answers, until all is embedded by {choice.model}{how}"
        superseded = model.fingerprint != choice.fingerprint
        return _Serving(Semantic(model.name, chunks, embedded, why, superseded=superseded), model)

    def _left(self, connection: apsw.Connection, fingerprint: str) -> int:
        chunks, _ = vectors.coverage(connection, None)
        for model in vectors.models(connection):
            if model.fingerprint == fingerprint:
                return chunks - vectors.coverage(connection, model)[1]
        return chunks

    def _in_memory(self, fingerprint: str) -> QueryEmbedder | None:
        held = self._embedder
        return held[1] if held is not None and held[0] == fingerprint else None

    def _loaded(self, model: Model) -> QueryEmbedder:
        """The model for questions, loaded by the first that asks; others wait. ModelUnavailable where it can't be."""
        with _loading:
            held = self._in_memory(model.fingerprint) or _shared.get(model.fingerprint)
            if held is None:
                held = self._load(model)
                _shared[model.fingerprint] = held
            self._embedder = (model.fingerprint, held)
            return held

    def _load(self, model: Model) -> QueryEmbedder:
        self._expect(model)
        try:
            embedder = models.load_query_embedder(model.name, self.root, threads=1)
        except ModelUnavailable as error:
            self._failed = (time.monotonic(), model.fingerprint, str(error))
            raise
        if embedder.definition.fingerprint != model.fingerprint:
            raise ModelUnavailable(f"{model.name} is not the model that made the vectors: run `vault-lsp index`")
        return embedder

    def _expect(self, model: Model) -> None:
        """Raises again what a model has failed with lately."""
        at, fingerprint, why = self._failed
        if fingerprint == model.fingerprint and time.monotonic() - at < _TRY_AGAIN:
            raise ModelUnavailable(why)

    def _at_hand(self, model: Model) -> QueryEmbedder | None:
        """The model for questions if it is in memory; if not, it will be."""
        held = self._in_memory(model.fingerprint)
        if held is not None:
            return held
        self._expect(model)
        if not _loading.locked():
            threading.Thread(target=self._load_quietly, args=(model,), daemon=True, name=LOADING).start()
        return None

    def _load_quietly(self, model: Model) -> None:
        with suppress(VaultLspError):
            self._loaded(model)
