"""Blend the order of the first stage with what a reranker says of its best documents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

#: Share of the first stage where its title channel's best hit is a candidate: for its ranks 1 to 3, 4 to 10, and below.
#: The higher the first stage ranks a document, the more it is believed.
SHARES = ((3, 0.60), (10, 0.50))
LOWEST_SHARE = 0.40


class Blended(NamedTuple):
    """A document with what its place was made of; nothing is known of one that the reranker didn't read."""

    document: int
    #: share · first + (1 - share) · rerank, from 0 to 1; 0 where the reranker didn't read the document.
    score: float
    #: Score of the first stage, stretched so that the candidates reach from 0 to 1.
    first: float | None = None
    rerank: float | None = None
    #: What the first stage weighs; 0 where no name was met and the reranker decides alone.
    share: float | None = None


def blend(
    ranking: Sequence[tuple[int, float]],
    rerank: Sequence[float],
    title_best: int | None,
    exact: Collection[int] = (),
) -> list[Blended]:
    """Put the best documents of a ranking in a new order; the rest keeps its own behind them.

    `ranking` has documents with their fused scores, best first, and `rerank` a score from 0 to 1 for each of the first
    of them, the candidates. If the title channel's best document is one of those, the two scores are mixed by the rank
    in the first stage; if not, the reranker decides. Documents in `exact` come before all others. Ties keep the order.
    """
    candidates = ranking[: len(rerank)]
    titled = any(document == title_best for document, _ in candidates)
    certain = frozenset(exact)
    # A certain document is compared with its like alone, and so its score must not squeeze the others together.
    stretched = {
        document: score
        for sure in (True, False)
        for document, score in _stretched([item for item in candidates if (item[0] in certain) is sure]).items()
    }
    blended = []
    for rank, ((document, _), read) in enumerate(zip(candidates, rerank, strict=False), start=1):
        share = _share(rank) if titled else 0.0
        first = stretched[document]
        blended.append(Blended(document, share * first + (1 - share) * read, first, read, share))
    blended += [Blended(document, 0.0) for document, _ in ranking[len(rerank) :]]
    # Those that were not read have the lowest score that there is, and the sort is stable.
    return sorted(blended, key=lambda item: (item.document not in certain, -item.score))


def _share(rank: int) -> float:
    return next((share for last, share in SHARES if rank <= last), LOWEST_SHARE)


def _stretched(items: Sequence[tuple[int, float]]) -> dict[int, float]:
    """Scores moved and scaled so that the lowest is 0 and the highest 1; all are 1 where they are equal."""
    scores = [score for _, score in items]
    if not scores or max(scores) == min(scores):
        return {document: 1.0 for document, _ in items}
    low, high = min(scores), max(scores)
    return {document: (score - low) / (high - low) for document, score in items}
