"""Search as one answer: the channels asked, fused, and each hit shown with its place and a preview."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal, NamedTuple

import apsw

from vault_lsp.config import Config
from vault_lsp.core import fusion
from vault_lsp.core.blend import Blended, blend
from vault_lsp.core.chunk import passage
from vault_lsp.core.fold import bare
from vault_lsp.core.fusion import Fused
from vault_lsp.core.model import NotePath
from vault_lsp.core.snippet import snippet
from vault_lsp.core.text import Text
from vault_lsp.core.tokens import QueryTerms, query_terms
from vault_lsp.ranking import POOL, Nearest, Query, Ranking, rank
from vault_lsp.store import search as channels
from vault_lsp.store.search import Filters, Row

__all__ = ["Filters", "Hit", "Meaning", "Query", "SearchResult", "answer", "parse_date"]

#: The span of times that the index can hold, in nanoseconds since the epoch.
_TIMES = 2**63 - 1


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
    line: int | None = None
    channels: Mapping[str, Mapping[str, float]] | None = None
    factors: Mapping[str, float] | None = None
    reread: Mapping[str, float] | None = None


class Meaning(NamedTuple):
    """What vectors can add to a search. `note` says why they add nothing, or not all, in one line."""

    state: Literal["on", "partial", "off"] = "off"
    embedded: float = 0.0
    nearest: Nearest | None = None
    note: str = ""


class About(NamedTuple):
    """What a search asks of notes beside their rows: the text of a file as it is now, and the notes that link to it.

    `popularity` counts about the same as `indegrees`, and sooner.
    """

    text: Callable[[NotePath], Text | None]
    indegrees: Callable[[Sequence[NotePath]], Sequence[int]]
    popularity: Callable[[Sequence[NotePath]], Sequence[int]]


#: A second look: a query and the passages of its best hits, to a score from 0 to 1 for each; or None and the reason.
Reread = Callable[[str, Sequence[str]], tuple[Sequence[float] | None, str]]


class SearchResult(NamedTuple):
    """Hits, best first, and how they came about.

    `semantic` tells whether vectors take part (on, partial or off), `embedded` which share of the chunks has one.
    `note` says in one line what could have been better: no model, no vectors yet, a reranker that took too long.
    """

    query: str
    hits: tuple[Hit, ...]
    took_ms: float
    semantic: str = "off"
    embedded: float = 0.0
    reranked: bool = False
    note: str = ""

    def as_json(self, vault: str) -> dict[str, Any]:
        """The answer as the contract of scripts has it."""
        results = []
        for hit in self.hits:
            shown = hit._asdict()
            for name in ("channels", "factors", "reread"):
                if shown[name] is None:
                    del shown[name]
            results.append(shown)
        return {
            "schema": 1,
            "query": self.query,
            "vault": vault,
            "semantic": self.semantic,
            "embedded": round(self.embedded, 4),
            "reranked": self.reranked,
            "took_ms": round(self.took_ms, 1),
            "note": self.note,
            "results": results,
        }


def answer(
    connection: apsw.Connection,
    query: Query,
    config: Config,
    about: About,
    meaning: Meaning,
    reread: Reread | None = None,
) -> SearchResult:
    """Ask every channel, fuse their rankings, and show the best hits. A file that is gone is no hit."""
    started = time.perf_counter()
    terms = query_terms(query.text)
    if query.text.strip():
        ranking = rank(connection, query, terms, config.search, about.popularity, meaning.nearest)
    else:
        recent = channels.recent(connection, query.filters, max(POOL, 2 * query.limit))
        ranking = Ranking([Fused(document, 0.0, {}) for document, _ in recent], {}, frozenset(), None)
    show = _Shower(connection, terms, ranking, about)
    notes = [] if query.mode == "keyword" else [meaning.note]
    ranked = ranking.fused
    blended: dict[int, Blended] = {}
    if reread is not None and query.text.strip() and ranked:
        scores, why = reread(query.text, show.passages(ranked[: config.rerank.top]))
        notes.append(why)
        if scores is not None:
            ranked, blended = _blended(ranking, scores)
    hits = islice(show.hits(ranked, query.limit, blended if query.explain else {}, explain=query.explain), query.limit)
    return SearchResult(
        query.text,
        tuple(hits),
        (time.perf_counter() - started) * 1000,
        meaning.state,
        meaning.embedded,
        bool(blended),
        "; ".join(filter(None, notes)),
    )


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


class _Shower:
    """Turns ranked documents into what a person sees of them."""

    def __init__(
        self,
        connection: apsw.Connection,
        terms: QueryTerms,
        ranking: Ranking,
        about: About,
    ) -> None:
        self._connection = connection
        self._terms = terms
        self._wanted = frozenset(
            bare(word) for unit in terms.units if not unit.weak for word in (*unit.words, *unit.bigrams)
        )
        self._ranking = ranking
        self._about = about

    def passages(self, ranked: Sequence[Fused]) -> list[str]:
        """The text of each document's best chunk, under its title; the title alone where there is no more."""
        found = []
        for item, row in self._rows(ranked):
            text = self._about.text(row.path)
            lines = self._lines(item, row, text) if text is not None else None
            body = _between(text, lines) if text is not None and lines is not None else ""
            found.append(passage(row.title, row.heading_path, body))
        return found

    def hits(
        self, ranked: Sequence[Fused], size: int, blended: Mapping[int, Blended], *, explain: bool
    ) -> Iterator[Hit]:
        """Hits in order, looked up `size` at a time; a file that is gone is none."""
        for start in range(0, len(ranked), size):
            rows = list(self._rows(ranked[start : start + size]))
            links = self._about.indegrees([row.path for _, row in rows])
            for (item, row), indegree in zip(rows, links, strict=True):
                text = self._about.text(row.path)
                if text is not None:
                    hit = self._hit(item, row, text, blended.get(item.document), explain=explain)
                    yield hit._replace(indegree=indegree)

    def _rows(self, ranked: Sequence[Fused]) -> Iterator[tuple[Fused, Row]]:
        chunks = self._ranking.chunks
        rows = channels.hydrate(self._connection, [(item.document, chunks.get(item.document)) for item in ranked])
        return zip(ranked, rows, strict=True)

    def _hit(self, item: Fused, row: Row, text: Text, blended: Blended | None, *, explain: bool) -> Hit:
        lines = self._lines(item, row, text)
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
            snippet=snippet(_between(text, lines), self._terms) if lines is not None else "",
            heading=" › ".join(row.heading_path),
            indegree=0,
            line=self._best_line(text, lines) + 1 if lines is not None else None,
            channels={name: _shown(place) for name, place in item.channels.items()} if explain else None,
            factors=dict(item.factors) if explain else None,
            reread=_reread(blended) if explain else None,
        )

    def _lines(self, item: Fused, row: Row, text: Text) -> tuple[int, int] | None:
        """First and last line of a chunk in the file as it is now, 0-based; None where no chunk was found.

        A file may have changed since it was indexed. Then the lines may hold nothing of the query, and another line
        does; but a chunk that was found by its meaning need not hold a word of it.
        """
        if row.chunk is None:
            return None
        count = len(text.line_starts)
        if count > 1 and text.line_starts[-1] == len(text):
            count -= 1  # a final line end opens no further line for a reader
        first, last = min(row.line_start, count - 1), min(row.line_end, count - 1)
        meant = item.document in self._ranking.meant
        if not meant and not any(self._held(text, line) for line in range(first, last + 1)):
            elsewhere = next((line for line in range(count) if self._held(text, line)), None)
            if elsewhere is not None:
                return elsewhere, elsewhere
        return first, last

    def _best_line(self, text: Text, lines: tuple[int, int]) -> int:
        """The line of a passage that holds most of the query, the first of several; 0-based."""
        return max(range(lines[0], lines[1] + 1), key=lambda line: (self._held(text, line), -line))

    def _held(self, text: Text, line: int) -> int:
        """How many things of the query a line holds."""
        body = bare(text.line(line))
        return sum(word in body for word in self._wanted)


def _between(text: Text, lines: tuple[int, int]) -> str:
    return text.source[text.line_starts[lines[0]] : text.line_span(lines[1]).end]


def _shown(place: fusion.Place) -> dict[str, float]:
    return {**place._asdict(), "contribution": place.contribution}


def _reread(blended: Blended | None) -> dict[str, float] | None:
    """What the score of a document that the reranker has read was made of: share · first + (1 - share) · rerank."""
    if blended is None or blended.rerank is None or blended.first is None or blended.share is None:
        return None
    return {"rerank": blended.rerank, "first": blended.first, "share": blended.share}


def _blended(ranking: Ranking, scores: Sequence[float]) -> tuple[list[Fused], dict[int, Blended]]:
    """The documents in the order that the reranker and the first stage agree on, with their new scores."""
    by_document = {item.document: item for item in ranking.fused}
    certain = [item.document for item in ranking.fused if fusion.EXACT in item.channels]
    order = [(item.document, item.score) for item in ranking.fused]
    found = blend(order, scores, ranking.titled, certain)
    return (
        [by_document[item.document]._replace(score=item.score) for item in found],
        {item.document: item for item in found},
    )
