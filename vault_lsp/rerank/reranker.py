"""What a reranker is to the rest, and a search's best passages read by it within a time budget."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from vault_lsp.errors import Cancelled

log = logging.getLogger(__name__)

#: Passages of a batch. Larger ones are hardly faster and take gigabytes; between two of them time is looked at.
BATCH = 4

#: An estimate of the time that all the rest takes may be wrong by so much before reading on is given up.
_DOUBT = 2.0

#: What a passage costs besides its text, in bytes of text: the query and the instruction are read with each.
_FIXED = 200


class Reranker(Protocol):
    """A model in memory that reads a query and a passage together. Safe to use from several threads."""

    @property
    def name(self) -> str:
        """Name of the model, as it is chosen."""

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """How well each passage answers, from 0 to 1. Whatever is in a text, it is read; what is too long is cut."""


def rerank(
    reranker: Reranker,
    query: str,
    passages: Sequence[str],
    *,
    budget_ms: float,
    clock: Callable[[], float] = time.monotonic,
    cancelled: Callable[[], bool] | None = None,
    report: Callable[[str], None] = log.warning,
) -> list[float] | None:
    """Score of every passage from 0 to 1; None where they can't all be read in `budget_ms`, or the model fails.

    Passages are read in their order, and `report` is told in one line why there are no scores: never does a search fail
    for its reranker. A running batch can't be stopped, so the next is begun only if it should fit, judged by those
    before it, and none if the rest is far from fitting. `clock` counts seconds. Raises Cancelled once `cancelled` says
    so.
    """
    started = clock()
    scores: list[float] = []
    work = [_FIXED + len(passage.encode("utf-8", "replace")) for passage in passages]
    for batch in _batches(work):
        if cancelled is not None and cancelled():
            raise Cancelled("the search was cancelled")
        spent = (clock() - started) * 1000
        done = sum(work[: batch.start])
        rate = spent / done if done else 0.0
        next_end = spent + rate * len(batch) * max(work[place] for place in batch)
        all_end = spent + rate * sum(work[batch.start :]) / _DOUBT
        if max(next_end, all_end) > budget_ms:
            report(
                f"{reranker.name} read {batch.start} of {len(passages)} passages in {spent:.0f} ms; "
                f"all of them don't fit into rerank.budget_ms, {budget_ms:.0f}"
            )
            return None
        try:
            found = reranker.scores(query, [passages[place] for place in batch])
        except Exception as error:
            # Libraries raise what they like here, down to plain Exception.
            log.debug("%s failed", reranker.name, exc_info=error)
            report(f"{reranker.name} failed: {one_line(error)}")
            return None
        if len(found) != len(batch) or not all(math.isfinite(score) for score in found):
            report(f"{reranker.name} gave no usable score")
            return None
        scores += found
    return scores


def one_line(error: BaseException) -> str:
    """What an error of a library says, short enough for a message."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:199]}…"


def readable(text: str, limit: int) -> str:
    """The first `limit` characters of a text as models take it: a lone surrogate is no character to them."""
    return text[:limit].encode("utf-8", "replace").decode("utf-8")


def sigmoid(logit: float) -> float:
    """A model's unbounded score as a number from 0 to 1."""
    return 0.5 * (1 + math.tanh(logit / 2))


def _batches(work: Sequence[int]) -> Iterator[range]:
    """Places of the passages of each batch. The first has but one: it tells what reading costs on this machine."""
    if work:
        yield range(1)
    for start in range(1, len(work), BATCH):
        yield range(start, min(start + BATCH, len(work)))
