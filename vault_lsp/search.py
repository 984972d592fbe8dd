"""Search as one answer: the channels asked, fused, and each hit shown with its place and a preview."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import apsw

from vault_lsp.core import fusion
from vault_lsp.core.fold import bare
from vault_lsp.core.model import NotePath
from vault_lsp.core.snippet import snippet
from vault_lsp.core.text import Text
from vault_lsp.core.tokens import QueryTerms, query_terms
from vault_lsp.store import search as channels
from vault_lsp.store.search import Filters, Row

__all__ = ["Filters", "Hit", "Query", "SearchResult", "answer", "parse_date"]

#: Documents that each channel proposes: enough that a good hit of one is met by the others.
_POOL = 60

#: A name that holds only a part of the query is believed where the text is among so many best ones: every other query
#: would else lead to the notes with the shortest and most common names.
_AGREED = 10

#: The best so many are also ranked by how many notes link to them.
_LINKED = 30

#: The span of times that the index can hold, in nanoseconds since the epoch.
_TIMES = 2**63 - 1


class Query(NamedTuple):
    """What is asked: free text, and filters that hold for every hit."""

    text: str
    limit: int = 10
    filters: Filters = channels.NO_FILTERS
    title_weight: float | None = None
    explain: bool = False


class Hit(NamedTuple):
    """A note with the place that answers best. Lines are 1-based and inclusive, in the file as it is on disk."""

    path: NotePath
    title: str
    kind: str
    area: str
    tags: tuple[str, ...]
    score: float
    line_start: int | None
    line_end: int | None
    page_start: int | None
    page_end: int | None
    snippet: str
    heading: str
    indegree: int
    channels: Mapping[str, Mapping[str, float]] | None = None


class SearchResult(NamedTuple):
    """Hits, best first. `semantic` tells whether vectors took part: on, partial or off."""

    query: str
    hits: tuple[Hit, ...]
    took_ms: float
    semantic: str = "off"

    def as_json(self, vault: str) -> dict[str, Any]:
        """The answer as the contract of scripts has it."""
        results = []
        for hit in self.hits:
            shown = hit._asdict()
            if hit.channels is None:
                del shown["channels"]
            results.append(shown)
        return {
            "schema": 1,
            "query": self.query,
            "vault": vault,
            "semantic": self.semantic,
            "embedded": 0.0,
            "reranked": False,
            "took_ms": round(self.took_ms, 1),
            "results": results,
        }


def answer(
    connection: apsw.Connection,
    query: Query,
    read: Callable[[NotePath], Text | None],
    indegree: Callable[[NotePath], int],
) -> SearchResult:
    """Ask every channel, fuse their rankings, and show the best hits.

    `read` gives the text of a file as it is now, for previews: a file that is gone is no hit. `indegree` counts the
    notes that link to one.
    """
    started = time.perf_counter()
    terms = query_terms(query.text)
    if query.text.strip():
        ranked, chunk_of = _ranked(connection, query, terms, indegree)
    else:
        recent = channels.recent(connection, query.filters, max(_POOL, 2 * query.limit))
        ranked = [fusion.Fused(document, 0.0, {}) for document, _ in recent]
        chunk_of = {}
    hits: list[Hit] = []
    while ranked and len(hits) < query.limit:
        batch, ranked = ranked[: query.limit - len(hits)], ranked[query.limit - len(hits) :]
        rows = channels.hydrate(connection, [(item.document, chunk_of.get(item.document)) for item in batch])
        for item, row in zip(batch, rows, strict=True):
            text = read(row.path)
            if text is not None:
                hits.append(_hit(item, row, terms, text, indegree(row.path), explain=query.explain))
    return SearchResult(query.text, tuple(hits), (time.perf_counter() - started) * 1000)


def parse_date(text: str) -> int:
    """Nanoseconds since the epoch of an ISO date or time (local where no zone is given), or of an age: 7d, 3w.

    ValueError with a message for anything else.
    """
    age = re.fullmatch(r"([0-9]{1,6})([dw])", text.strip())
    if age:
        days = int(age[1]) * (7 if age[2] == "w" else 1)
        when = datetime.now().astimezone() - timedelta(days=min(days, 365_000))
    else:
        try:
            when = datetime.fromisoformat(text.strip())
            # Not `timestamp()` of local time: the platform refuses the first and the last years.
            when = when.astimezone() if when.tzinfo is None and 1900 < when.year < 3000 else when
        except ValueError:
            message = f"{text!r} is no date: give 2026-01-31, or an age such as 7d or 3w"
            raise ValueError(message) from None
    since = when.replace(tzinfo=when.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    nanoseconds = (since // timedelta(microseconds=1)) * 1000
    return max(-_TIMES, min(_TIMES, nanoseconds))


def _ranked(
    connection: apsw.Connection, query: Query, terms: QueryTerms, indegree: Callable[[NotePath], int]
) -> tuple[list[fusion.Fused], dict[int, int]]:
    pool = max(_POOL, query.limit)
    named = channels.titles(connection, query.text, query.filters, pool)
    found = channels.keyword(connection, terms, query.filters, pool)
    weights = dict(fusion.WEIGHTS)
    if query.title_weight is not None:
        weights["title"] = query.title_weight
    exact = {hit.document for hit in named if hit.match == "exact" or _is_called(hit.name, terms)}
    sure = exact | {hit.document for hit in found[:_AGREED]}
    named = [hit for hit in named if hit.document in sure or hit.match == "prefix" or _covers(hit.name, terms)]
    rankings = {"bm25": [hit.document for hit in found], "title": [hit.document for hit in named]}
    # Only a prior: every candidate takes part in it, in the order that the others give where none has more links.
    paths = {hit.document: hit.path for hit in named} | {hit.document: hit.path for hit in found}
    best = [item.document for item in fusion.fuse(rankings, weights, exact)[:_LINKED]]
    # Between three links and two lies no difference; what counts is the order of magnitude.
    rankings["indegree"] = sorted(best, key=lambda document: -indegree(paths[document]).bit_length())
    return fusion.fuse(rankings, weights, exact), {hit.document: hit.chunk for hit in found}


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


def _hit(item: fusion.Fused, row: Row, terms: QueryTerms, text: Text, indegree: int, *, explain: bool) -> Hit:
    lines = _lines(row, terms, text) if row.chunk is not None else None
    body = text.source[text.line_starts[lines[0]] : text.line_span(lines[1]).end] if lines is not None else ""
    return Hit(
        path=row.path,
        title=row.title,
        kind=row.kind,
        area=row.area,
        tags=row.tags,
        score=item.score,
        line_start=lines[0] + 1 if lines is not None else None,
        line_end=lines[1] + 1 if lines is not None else None,
        page_start=row.page_start,
        page_end=row.page_end,
        snippet=snippet(body, terms),
        heading=" › ".join(row.heading_path),
        indegree=indegree,
        channels={name: place._asdict() for name, place in item.channels.items()} if explain else None,
    )


def _lines(row: Row, terms: QueryTerms, text: Text) -> tuple[int, int]:
    """First and last line of a chunk in the file as it is now, 0-based.

    A file may have changed since it was indexed. Then the lines may hold nothing of the query, and another line does.
    """
    count = len(text.line_starts)
    if count > 1 and text.line_starts[-1] == len(text):
        count -= 1  # a final line end opens no further line for a reader
    first, last = min(row.line_start, count - 1), min(row.line_end, count - 1)
    wanted = {bare(word) for unit in terms.units if not unit.weak for word in (*unit.words, *unit.bigrams)}

    def held(start: int, end: int) -> bool:
        body = bare(text.source[text.line_starts[start] : text.line_span(end).end])
        return any(word in body for word in wanted)

    if not held(first, last):
        elsewhere = next((line for line in range(count) if held(line, line)), None)
        if elsewhere is not None:
            return elsewhere, elsewhere
    return first, last
