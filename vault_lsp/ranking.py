"""Rank documents: ask every channel, weigh what each says by how sure it is, and fuse.

A channel's order alone would not do. Sixty chunks that share one common word with the question, and one that holds all
of it, are both a ranking; the strengths that go into the fusion tell them apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import apsw

from vault_lsp.config import SearchConfig
from vault_lsp.core import fusion
from vault_lsp.core.fold import bare
from vault_lsp.core.fusion import Fused, Ranked
from vault_lsp.core.model import NotePath
from vault_lsp.core.tokens import QueryTerms, query_terms
from vault_lsp.store import search as channels
from vault_lsp.store.search import NO_FILTERS, ChunkHit, Filters, NameHit

Mode = Literal["hybrid", "keyword", "semantic"]

#: Documents that each channel proposes: enough that a good hit of one is met by the others.
POOL = 60

#: A name that holds only a part of the query is believed where the text is among so many best ones: every other query
#: would else lead to the notes with the shortest and most common names.
_AGREED = 10

#: The best so many are also ranked by how many notes link to them.
_LINKED = 30

#: The best so many chunks tell how much of the query any chunk holds.
_SURE = 3

#: In so many days half of what makes a note a recent one is gone.
_HALF_LIFE_DAYS = 30
_DAY_NS = 86_400 * 10**9


class Query(NamedTuple):
    """What is asked: free text, filters that hold for every hit, and which channels take part.

    `rerank` asks for a second look by the reranker of the config, or forbids it; None leaves it to the config.
    """

    text: str
    limit: int = 10
    filters: Filters = NO_FILTERS
    title_weight: float | None = None
    explain: bool = False
    mode: Mode = "hybrid"
    rerank: bool | None = None


#: The best chunks by meaning: at most so many documents that pass the filters, best first, scores from -1 to 1.
Nearest = Callable[[Filters, int], Sequence[ChunkHit]]


class Ranking(NamedTuple):
    """Documents, best first, with the chunk that speaks for each; `meant` holds those whose chunk vectors chose."""

    fused: list[Fused]
    chunks: Mapping[int, int]
    meant: frozenset[int]
    titled: int | None


def rank(
    connection: apsw.Connection,
    query: Query,
    terms: QueryTerms,
    config: SearchConfig,
    popularity: Callable[[Sequence[NotePath]], Sequence[int]],
    nearest: Nearest | None,
) -> Ranking:
    """Rank documents for a query that says something.

    `popularity` counts the links to notes. `nearest` is None where vectors can't or must not take part.
    """
    pool = max(POOL, query.limit)
    weights = {**fusion.WEIGHTS, **config.weights}
    if query.title_weight is not None:
        weights["title"] = query.title_weight
    if query.mode == "semantic":
        near = list(nearest(query.filters, pool)) if nearest is not None else []
        fused = fusion.fuse({"vector": _by_meaning(near)}, {**weights, "vector": weights["vector"] or 1.0})
        return Ranking(fused, {hit.document: hit.chunk for hit in near}, frozenset(hit.document for hit in near), None)
    found = channels.keyword(connection, terms, query.filters, pool)
    named, exact = _names(connection, query, terms, found, pool)
    near = list(nearest(query.filters, pool)) if nearest is not None and query.mode == "hybrid" else []
    sure = _sureness(connection, terms, found) if near else 1.0
    rankings = {
        "bm25": _by_words(found, sure),
        "vector": _by_meaning(near),
        "title": [Ranked(hit.document, _told(hit, terms)) for hit in named],
    }
    paths = {hit.document: hit.path for hit in named} | {hit.document: hit.path for hit in (*near, *found)}
    # Only a prior: every candidate takes part in it, in the order that the others give where none has more links, and
    # as far as they rate it: a hub is a good answer only where it is an answer at all.
    best = fusion.fuse(rankings, weights)[:_LINKED]
    # Between three links and two lies no difference; what counts is the order of magnitude.
    links = dict(
        zip((item.document for item in best), popularity([paths[item.document] for item in best]), strict=True)
    )
    best.sort(key=lambda item: (item.document not in exact, -links[item.document].bit_length()))
    highest = max((item.score for item in best), default=0.0) or 1.0
    rankings["indegree"] = [Ranked(item.document, item.score / highest) for item in best]
    fused = fusion.fuse(rankings, weights, exact)
    chunks, meant = _spokesmen(fused, found, near)
    factors = _factors(connection, terms, config, fused, chunks)
    return Ranking(
        fusion.boosted(fused, factors) if factors else fused, chunks, meant, named[0].document if named else None
    )


def _by_words(found: Sequence[ChunkHit], sure: float) -> list[Ranked]:
    """Strength falls with the BM25 score, from how sure the words are at all."""
    best = max((hit.score for hit in found), default=0.0)
    return [Ranked(hit.document, sure * hit.score / best if best > 0 else sure) for hit in found]


def _by_meaning(near: Sequence[ChunkHit]) -> list[Ranked]:
    """Strength falls with the similarity, down to 0 for the last of the pool: cosines lie in a narrow band."""
    if not near:
        return []
    best, least = near[0].score, near[-1].score
    return [Ranked(hit.document, (hit.score - least) / (best - least) if best > least else 1.0) for hit in near]


def _sureness(connection: apsw.Connection, terms: QueryTerms, found: Sequence[ChunkHit]) -> float:
    """How much of the query the best chunks hold: little of it means that its words are not those of the vault."""
    return max(channels.shares(connection, terms, [hit.chunk for hit in found[:_SURE]]).values(), default=0.0)


def _names(
    connection: apsw.Connection, query: Query, terms: QueryTerms, found: Sequence[ChunkHit], pool: int
) -> tuple[list[NameHit], set[int]]:
    """Documents found by a name that can be believed, and those that are called just what is asked for."""
    named = channels.titles(connection, query.text, query.filters, pool)
    exact = {hit.document for hit in named if hit.match == "exact" or _is_called(hit.name, terms)}
    sure = exact | {hit.document for hit in found[:_AGREED]}
    named = [hit for hit in named if hit.document in sure or hit.match == "prefix" or _covers(hit.name, terms)]
    return named, exact


def _told(hit: NameHit, terms: QueryTerms) -> float:
    """How much of a query a name tells: all of it, but for a name that is only a part of what is asked for."""
    if hit.match != "words" or _covers(hit.name, terms):
        return 1.0
    names = query_terms(hit.name).units
    told = sum(len(unit.bigrams) or 1 for unit in names if not unit.weak)
    asked = sum(len(unit.bigrams) or 1 for unit in terms.units if not unit.weak)
    return min(1.0, told / max(1, asked))


def _is_called(name: str, terms: QueryTerms) -> bool:
    """Whether a name is the query but for its own numbers, for punctuation and stop words: `1. Two Sum`, `two-sum`."""
    wanted, words = _words(terms), _words(query_terms(name))
    return bool(wanted) and wanted in (words, [word for word in words if not word.isdecimal()])


def _words(terms: QueryTerms) -> list[str]:
    return [bare(word) for unit in terms.units if not unit.weak for word in unit.words]


def _covers(name: str, terms: QueryTerms) -> bool:
    """Whether a name holds all that was asked for, but for stop words."""
    held, words = bare(name), {bare(word) for unit in query_terms(name).units for word in unit.words}
    return all(
        bare(unit.text) in held if unit.bigrams else words.issuperset(map(bare, unit.words))
        for unit in terms.units
        if not unit.weak
    )


def _spokesmen(
    fused: Sequence[Fused], found: Sequence[ChunkHit], near: Sequence[ChunkHit]
) -> tuple[dict[int, int], frozenset[int]]:
    """The chunk of each document that is shown: that of the channel to which it owes more."""
    by_words = {hit.document: hit.chunk for hit in found}
    by_meaning = {hit.document: hit.chunk for hit in near}
    meant = frozenset(item.document for item in fused if _contribution(item, "vector") > _contribution(item, "bm25"))
    return {**by_meaning, **by_words, **{document: by_meaning[document] for document in meant}}, meant


def _contribution(item: Fused, channel: str) -> float:
    return item.channels[channel].contribution if channel in item.channels else 0.0


def _factors(
    connection: apsw.Connection,
    terms: QueryTerms,
    config: SearchConfig,
    fused: Sequence[Fused],
    chunks: Mapping[int, int],
) -> dict[int, dict[str, float]]:
    """What the config multiplies scores by: favoured areas, chunks with the very phrase, notes of the last weeks."""
    factors: dict[int, dict[str, float]] = {item.document: {} for item in fused}
    if config.areas or config.recency != 1:
        now = time.time_ns()
        for document, origin in channels.origins(connection, factors).items():
            factors[document]["area"] = config.areas.get(origin.area, 1.0)
            age = max(0, now - origin.mtime_ns) / _DAY_NS
            factors[document]["recency"] = 1 + (config.recency - 1) * 0.5 ** (age / _HALF_LIFE_DAYS)
    if config.phrase != 1 and sum(len(unit.bigrams) or 1 for unit in terms.units) > 1:
        held = channels.holding(connection, terms, "phrase", chunks.values())
        for document, chunk in chunks.items():
            if chunk in held and document in factors:
                factors[document]["phrase"] = config.phrase
    return factors if config.areas or config.recency != 1 or config.phrase != 1 else {}
