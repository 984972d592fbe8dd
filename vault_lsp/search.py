"""Search as one answer: the channels asked, fused, and each hit shown with its place and a preview."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import apsw

from vault_lsp.core import fusion
from vault_lsp.core.model import NotePath
from vault_lsp.core.snippet import snippet
from vault_lsp.core.text import Text
from vault_lsp.core.tokens import QueryTerms, query_terms
from vault_lsp.store import search as channels
from vault_lsp.store.search import Filters, Row

__all__ = ["Filters", "Hit", "Query", "SearchResult", "answer", "parse_date"]

#: Documents that each channel proposes: enough that a good hit of one is met by the others.
_POOL = 60


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

    `read` gives the text of a file as it is now, for previews; `indegree` counts the notes that link to one.
    """
    started = time.perf_counter()
    terms = query_terms(query.text)
    if query.text.strip():
        ranked, chunk_of = _ranked(connection, query, terms)
    else:
        recent = channels.recent(connection, query.filters, query.limit)
        ranked = [fusion.Fused(document, 0.0, {}) for document, _ in recent]
        chunk_of = {}
    ranked = ranked[: query.limit]
    rows = channels.hydrate(connection, [(item.document, chunk_of.get(item.document)) for item in ranked])
    hits = tuple(
        _hit(item, row, terms, read, indegree(row.path), explain=query.explain)
        for item, row in zip(ranked, rows, strict=True)
    )
    return SearchResult(query.text, hits, (time.perf_counter() - started) * 1000)


def parse_date(text: str) -> int:
    """Nanoseconds since the epoch of an ISO date or time (local where no zone is given), or of an age: 7d, 3w.

    ValueError with a message for anything else.
    """
    age = re.fullmatch(r"(\d{1,6})([dw])", text.strip())
    if age:
        days = int(age[1]) * (7 if age[2] == "w" else 1)
        when = datetime.now().astimezone() - timedelta(days=min(days, 365_000))
    else:
        try:
            when = datetime.fromisoformat(text.strip())
        except ValueError:
            message = f"{text!r} is no date: give 2026-01-31, or an age such as 7d or 3w"
            raise ValueError(message) from None
    return int(when.timestamp() * 1_000_000_000)


def _ranked(connection: apsw.Connection, query: Query, terms: QueryTerms) -> tuple[list[fusion.Fused], dict[int, int]]:
    named = channels.titles(connection, query.text, query.filters, _POOL)
    found = channels.keyword(connection, terms, query.filters, _POOL)
    weights = dict(fusion.WEIGHTS)
    if query.title_weight is not None:
        weights["title"] = query.title_weight
    fused = fusion.fuse(
        {"bm25": [hit.document for hit in found], "title": [hit.document for hit in named]},
        weights,
        exact=[hit.document for hit in named if hit.match == "exact"],
    )
    return fused, {hit.document: hit.chunk for hit in found}


def _hit(
    item: fusion.Fused,
    row: Row,
    terms: QueryTerms,
    read: Callable[[NotePath], Text | None],
    indegree: int,
    *,
    explain: bool,
) -> Hit:
    text = read(row.path)
    lines = len(text.line_starts) if text is not None else 0
    body = ""
    if text is not None and row.chunk is not None and row.line_start < lines:
        last = min(row.line_end, lines - 1)
        body = text.source[text.line_starts[row.line_start] : text.line_span(last).end]
    return Hit(
        path=row.path,
        title=row.title,
        kind=row.kind,
        area=row.area,
        tags=row.tags,
        score=item.score,
        line_start=row.line_start + 1 if row.chunk is not None else None,
        line_end=row.line_end + 1 if row.chunk is not None else None,
        page_start=row.page_start,
        page_end=row.page_end,
        snippet=snippet(body, terms),
        heading=" › ".join(row.heading_path),
        indegree=indegree,
        channels={name: place._asdict() for name, place in item.channels.items()} if explain else None,
    )
