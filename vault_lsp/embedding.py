"""Embed what has no vector yet: resumable at any point, and never more than one batch is lost.

What is left to do is derived from the index and the vectors, never queued. Texts are cut out of the files once more,
so that the index needs no copy of them: a chunk that a file no longer holds is left to the next reconcile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vault_lsp.core.model import NotePath
from vault_lsp.core.script import script
from vault_lsp.errors import Cancelled
from vault_lsp.prepare import passages
from vault_lsp.store.vectors import Embedding, Missing

if TYPE_CHECKING:
    from vault_lsp.embed.embedder import QueryEmbedder

#: Texts of one run of the model, and so the most that a crash can cost. More at once is no faster, and takes memory.
BATCH = 4

#: Texts that are sorted by length before they are cut into batches: a batch costs as much as its longest text.
_WINDOW = 64

_Put = Callable[[list[Embedding]], object]


class Embedded(NamedTuple):
    """What a run has done: the model, how many texts got a vector, how many have none yet, and why if that is so."""

    model: str | None
    embedded: int
    left: int
    why: str = ""


class _Text(NamedTuple):
    sha: bytes
    passage: str


def cores() -> int:
    """Cores that this process may use, whatever the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


def default_threads() -> int:
    """Threads of a model: all cores but one, 8 at most."""
    # They wait actively: where another process takes a core from them, the whole is slower than with one less.
    return max(1, min(8, cores() - 1))


def embed_missing(
    root: Path,
    missing: Sequence[Missing],
    embedder: QueryEmbedder,
    put: _Put,
    progress: Callable[[int, int], None],
    cancelled: Callable[[], bool],
) -> int:
    """Embed texts in the order given, write each batch at once, and count them. Cancelled after the current batch."""
    done = 0
    progress(0, len(missing))
    # While the model computes, the next texts are read: it leaves the interpreter to others.
    with ThreadPoolExecutor(1, "read-ahead") as reader:
        windows = _windows(root, missing)
        ahead = reader.submit(next, windows, None)
        while (window := ahead.result()) is not None:
            ahead = reader.submit(next, windows, None)
            gone = window.looked_at - len(window.texts)
            for batch in _batches(window.texts):
                if cancelled():
                    raise Cancelled("embedding was cancelled")
                vectors = embedder.passages([text.passage for text in batch])
                put(
                    [
                        Embedding(text.sha, vector.tobytes(), script(text.passage))
                        for text, vector in zip(batch, vectors, strict=True)
                    ]
                )
                done += len(batch)
                progress(done + gone, len(missing))
    return done


class _Window(NamedTuple):
    texts: list[_Text]
    looked_at: int


def _windows(root: Path, missing: Sequence[Missing]) -> Iterator[_Window]:
    """Cut the backlog into windows, with the texts that the files hold now."""
    path: NotePath | None = None
    held: Mapping[bytes, str] = {}
    for wanted in _cut(missing):
        texts = []
        for item in wanted:
            if item.path != path:
                path, held = item.path, passages(root, item.path)
            if item.sha in held:
                texts.append(_Text(item.sha, held[item.sha]))
        yield _Window(texts, len(wanted))


def _cut(missing: Sequence[Missing]) -> Iterator[list[Missing]]:
    """Windows of the backlog, none of which holds both first chunks of notes and later ones."""
    for _, alike in groupby(missing, key=lambda item: item.ordinal == 0):
        while wanted := list(islice(alike, _WINDOW)):
            yield wanted


def _batches(texts: list[_Text]) -> Iterator[list[_Text]]:
    ordered = sorted(texts, key=lambda text: len(text.passage))
    for start in range(0, len(ordered), BATCH):
        yield ordered[start : start + BATCH]
