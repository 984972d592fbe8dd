"""The keyword channels of search as SQL: chunks, names, and recent notes.

Filters act inside every statement and not after its limit, so that a filter never costs a hit. Nothing a user typed
becomes part of a statement: values are bound, and the full-text expression quotes every token.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import apsw

from vault_lsp.core.fold import bare
from vault_lsp.core.model import NotePath
from vault_lsp.core.tokens import Mode, QueryTerms, asked_for, match_expression, query_terms
from vault_lsp.store.db import one

Match = Literal["exact", "prefix", "words"]


@dataclass(frozen=True, slots=True)
class Filters:
    """What a hit must fulfil; None and empty mean no condition.

    All of `tags` must be there, a tag standing for its nested tags as well. `folder` means everything below it,
    `path_prefix` is compared with the path's beginning as it is. Times are file modification times in nanoseconds,
    the later one exclusive.
    """

    tags: tuple[str, ...] = ()
    area: str | None = None
    folder: str | None = None
    path_prefix: str | None = None
    modified_after_ns: int | None = None
    modified_before_ns: int | None = None
    kind: Literal["note", "text"] | None = None


class ChunkHit(NamedTuple):
    """The best chunk of a document. A higher score is better; scores of different queries don't compare."""

    document: int
    chunk: int
    path: NotePath
    score: float


class NameHit(NamedTuple):
    """A document found by one of its names; `kind` tells which: title, alias or file."""

    document: int
    path: NotePath
    name: str
    kind: str
    match: Match


class Origin(NamedTuple):
    """What of a document's place and time its rank may depend on."""

    area: str
    mtime_ns: int


class Row(NamedTuple):
    """What a result shows of a document and one of its chunks. Lines are 0-based and inclusive."""

    document: int
    chunk: int | None
    path: NotePath
    title: str
    kind: str
    area: str
    mtime_ns: int
    line_start: int
    line_end: int
    page_start: int | None
    page_end: int | None
    tags: tuple[str, ...]
    heading_path: tuple[str, ...]


NO_FILTERS = Filters()

#: A chunk that holds all that was asked for outranks one that has some of it more often.
_FACTORS: tuple[tuple[Mode, float], ...] = (("all", 1.25), ("phrase", 1.1))

#: A condition for filters, with the values of `bindings`: the ids of the documents that fulfil them.
ALLOWED = """
SELECT documents.id FROM documents
WHERE (:kind IS NULL OR documents.kind = :kind)
  AND (:areas IS NULL OR documents.area IN (SELECT value FROM json_each(:areas)))
  AND (:after IS NULL OR documents.mtime_ns >= :after)
  AND (:before IS NULL OR documents.mtime_ns < :before)
  AND (:folders IS NULL OR EXISTS (
        SELECT 1 FROM json_each(:folders) WHERE documents.path >= value AND documents.path < value || char(1114111)))
  AND (:prefixes IS NULL OR EXISTS (
        SELECT 1 FROM json_each(:prefixes) WHERE documents.path >= value AND documents.path < value || char(1114111)))
  AND (:tags IS NULL OR documents.id IN (
        SELECT tags.document FROM json_each(:tags) AS wanted
        JOIN tags ON tags.key = wanted.value OR (tags.key > wanted.value || '/' AND tags.key < wanted.value || '0')
        GROUP BY tags.document HAVING count(DISTINCT wanted.key) = json_array_length(:tags)))
"""

# `:unfiltered OR` spares the list of allowed documents where no condition is set, and keeps the planner from asking the
# full-text index once for every allowed row.
_CHUNKS = f"""
SELECT chunks.document, chunks.id, documents.path, found.score
FROM (SELECT rowid AS id, rank AS score FROM chunk_fts
      WHERE chunk_fts MATCH :match AND rank MATCH 'bm25(4.0, 1.0, 0.5)'
        AND (:unfiltered OR rowid IN (SELECT id FROM chunks WHERE document IN ({ALLOWED})))
      ORDER BY rank LIMIT :count) AS found
JOIN chunks ON chunks.id = found.id JOIN documents ON documents.id = chunks.document
ORDER BY found.score, documents.path, chunks.ordinal
"""

_NAMES_EXACT = f"""
SELECT names.document, documents.path, names.name, names.kind
FROM names JOIN documents ON documents.id = names.document
WHERE names.key = :key AND (:unfiltered OR names.document IN ({ALLOWED}))
ORDER BY names.kind = 'alias', documents.path, names.kind DESC LIMIT :count
"""

_NAMES_PREFIX = f"""
SELECT names.document, documents.path, names.name, names.kind
FROM names JOIN documents ON documents.id = names.document
WHERE names.key > :key AND names.key < :key || char(1114111) AND (:unfiltered OR names.document IN ({ALLOWED}))
ORDER BY length(names.key), documents.path, names.kind DESC LIMIT :count
"""

_NAMES_WORDS = f"""
SELECT names.document, documents.path, names.name, names.kind
FROM (SELECT rowid AS id, rank AS score FROM name_fts
      WHERE name_fts MATCH :match AND rank MATCH 'bm25(1.0, 0.5)'
        AND (:unfiltered OR rowid IN (SELECT id FROM names WHERE document IN ({ALLOWED})))
      ORDER BY rank LIMIT :count) AS found
JOIN names ON names.id = found.id JOIN documents ON documents.id = names.document
ORDER BY found.score, length(names.key), documents.path
"""

_PREFIX = re.compile(r'"([^"]*)"[*]')

#: How a word may go on that was typed to the middle of one of the endings that stemming takes away.
_ENDINGS = (
    "able ability al alism ality ally ance ant ate ated ates ating ation ational ations ative ator ed ement ence ent "
    "er es ful fulness ible ibility ic ical ies ing ings ion ism ity ive iveness ivity ization ize izer ly ment ness "
    "ous ousness tional"
)
_ENDS = sorted({ending[start:] for ending in _ENDINGS.split() for start in range(len(ending))})

_BY_KEY: tuple[tuple[str, Match], ...] = ((_NAMES_EXACT, "exact"), (_NAMES_PREFIX, "prefix"))
_BY_WORDS: tuple[Mode, ...] = ("all", "any")

_RECENT = f"""
SELECT id, path FROM documents WHERE :unfiltered OR id IN ({ALLOWED}) ORDER BY mtime_ns DESC, path LIMIT :count
"""

_HOLDING = """
SELECT rowid FROM chunk_fts WHERE chunk_fts MATCH :match AND rowid IN (SELECT value FROM json_each(:chunks))
"""

_ORIGINS = """
SELECT id, area, coalesce(mtime_ns, 0) FROM documents WHERE id IN (SELECT value FROM json_each(?))
"""

#: Words of a query that are looked for one by one: more of them tell no more.
_MOST_SHARED = 32

_HYDRATE = """
SELECT wanted.value ->> 0, chunks.id, documents.path, coalesce(documents.title, documents.path), documents.kind,
       documents.area, coalesce(documents.mtime_ns, 0), coalesce(chunks.line_start, 0), coalesce(chunks.line_end, 0),
       chunks.page_start, chunks.page_end,
       (SELECT json_group_array(name)
        FROM (SELECT name FROM tags WHERE document = documents.id GROUP BY key ORDER BY key)),
       coalesce(chunks.heading_path, '[]')
FROM json_each(:wanted) AS wanted
JOIN documents ON documents.id = wanted.value ->> 0
LEFT JOIN chunks ON chunks.id = wanted.value ->> 1
ORDER BY wanted.key
"""


def keyword(connection: apsw.Connection, terms: QueryTerms, filters: Filters, limit: int) -> list[ChunkHit]:
    """Rank chunks by BM25 and give the best one of each document, at most `limit`, best first.

    Chunks with all of the terms, and more so side by side, are raised. Where whole words find too little, words that
    begin like the query's follow.
    """
    hits = _best_chunks(connection, terms, "any", filters, limit)
    if len(hits) < limit:
        known = {hit.document for hit in hits}
        lowest = hits[-1].score if hits else 1.0
        for hit in _best_chunks(connection, terms, "prefix", filters, limit):
            if hit.document not in known:
                hits.append(hit._replace(score=lowest * 0.5 * hit.score / (1 + hit.score)))
    return hits[:limit]


def titles(connection: apsw.Connection, query: str, filters: Filters, limit: int) -> list[NameHit]:
    """Find documents by title, alias and file name, best first.

    Exact matches come first, then names that begin with the query, names that hold all of its words, and names that
    the query holds in full. A name that shares only some words with the query is no hit: chunks find those better.
    """
    terms = query_terms(query)
    key = unicodedata.normalize("NFC", query.strip()).lower()
    values = bindings(filters)
    hits: dict[int, NameHit] = {}
    if key and _is_text(key):
        for sql, match in _BY_KEY:
            if len(hits) < limit:
                _add_names(hits, connection.execute(sql, {"key": key, "count": 4 * limit, **values}), match)
    for mode in _BY_WORDS:
        expression = match_expression(terms, mode)
        if expression and len(hits) < limit:
            rows = connection.execute(_NAMES_WORDS, {"match": expression, "count": max(100, 4 * limit), **values})
            named = rows if mode == "all" else (row for row in rows if _is_named(row[2], terms))
            _add_names(hits, named, "words")
    return list(hits.values())[:limit]


def recent(connection: apsw.Connection, filters: Filters, limit: int) -> list[tuple[int, NotePath]]:
    """List documents as (id, path), the most recently modified first."""
    rows = connection.execute(_RECENT, {"count": limit, **bindings(filters)})
    return [(document, NotePath(path)) for document, path in rows]


def shares(connection: apsw.Connection, terms: QueryTerms, chunks: Iterable[int]) -> dict[int, float]:
    """How much of what a query asks for each chunk holds, from 0 to 1."""
    asked = asked_for(terms)[:_MOST_SHARED]
    wanted = json.dumps(list(chunks))
    held: dict[int, int] = {}
    for expression in asked:
        for (chunk,) in connection.execute(_HOLDING, {"match": expression, "chunks": wanted}):
            held[chunk] = held.get(chunk, 0) + 1
    return {chunk: count / len(asked) for chunk, count in held.items()}


def holding(connection: apsw.Connection, terms: QueryTerms, mode: Mode, chunks: Iterable[int]) -> set[int]:
    """Those of the chunks that match a query in the given way."""
    expression = match_expression(terms, mode)
    if expression is None:
        return set()
    rows = connection.execute(_HOLDING, {"match": expression, "chunks": json.dumps(list(chunks))})
    return {chunk for (chunk,) in rows}


def origins(connection: apsw.Connection, documents: Iterable[int]) -> dict[int, Origin]:
    """Area and time of documents."""
    rows = connection.execute(_ORIGINS, (json.dumps(list(documents)),))
    return {document: Origin(area, mtime_ns) for document, area, mtime_ns in rows}


def hydrate(connection: apsw.Connection, wanted: Iterable[tuple[int, int | None]]) -> list[Row]:
    """Fetch what results show, in the order given; (document, None) stands for the document's beginning."""
    rows = connection.execute(_HYDRATE, {"wanted": json.dumps(list(wanted))})
    return [
        Row._make((*columns, tuple(json.loads(tags)), tuple(json.loads(heading_path))))
        for *columns, tags, heading_path in rows
    ]


def bindings(filters: Filters) -> dict[str, object]:
    """Values for a statement with `ALLOWED` in it."""
    folder = _folder(filters.folder)
    return {
        "unfiltered": filters == NO_FILTERS,
        "kind": filters.kind,
        "areas": None if filters.area is None else json.dumps(_forms(filters.area)),
        "after": filters.modified_after_ns,
        "before": filters.modified_before_ns,
        "folders": None if not folder else json.dumps([form + "/" for form in _forms(folder)]),
        "prefixes": None if not filters.path_prefix else json.dumps(_forms(filters.path_prefix)),
        "tags": json.dumps(sorted({_tag_key(tag) for tag in filters.tags})) if filters.tags else None,
    }


def _best_chunks(
    connection: apsw.Connection, terms: QueryTerms, mode: Mode, filters: Filters, limit: int
) -> list[ChunkHit]:
    expression = match_expression(terms, mode)
    if expression is None or limit <= 0:
        return []
    if mode == "prefix":
        expression = _of_stems(connection, expression)
    values = bindings(filters)
    count = max(200, 3 * limit)
    while True:
        rows = _chunk_rows(connection, expression, values, count)
        if len(rows) < count or len({row.document for row in rows}) >= limit:
            break
        count *= 16
    factors = _factors(connection, terms, values, count) if mode == "any" and len(rows) > 1 else {}
    best: dict[int, ChunkHit] = {}
    for row in rows:
        hit = row._replace(score=row.score * factors.get(row.chunk, 1.0))
        if row.document not in best or best[row.document].score < hit.score:
            best[row.document] = hit
    return sorted(best.values(), key=lambda hit: -hit.score)[:limit]


def _of_stems(connection: apsw.Connection, expression: str) -> str:
    """The expression with its prefixes fitted to an index of stems.

    There `universities`* would be `univers`*, and find what has nothing to do with it; `universi`* would find nothing.
    """
    stems = connection.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
    plain = connection.fts5_tokenizer("unicode61", ["remove_diacritics", "2"])

    def tokens(tokenizer: apsw.FTS5Tokenizer, word: str) -> list[str]:
        text = word.encode("utf-8", "replace")
        found = tokenizer(text, apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False)
        return [str(token) for token in found]

    def fitted(match: re.Match[str]) -> str:
        word = match[1]
        if tokens(plain, word) != tokens(stems, word) and _is_known(connection, f'"{word}"'):
            return f'"{word}"'
        if not word.isalpha() or not word.isascii() or _is_known(connection, match[0]):
            return match[0]
        # What is typed of a word can be longer than its stem.
        whole = {stem: word + end for end in _ENDS for stem in tokens(stems, word + end) if len(stem) < len(word)}
        known = [f'"{whole[stem]}"' for stem in sorted(whole) if _is_known(connection, f'"{whole[stem]}"')]
        return " OR ".join(known or [match[0]])

    return _PREFIX.sub(fitted, expression)


def _is_known(connection: apsw.Connection, expression: str) -> bool:
    asked = "SELECT EXISTS (SELECT 1 FROM chunk_fts WHERE chunk_fts MATCH ?)"
    return bool(one(connection, asked, (expression,))[0])


def _chunk_rows(connection: apsw.Connection, expression: str, values: dict[str, object], count: int) -> list[ChunkHit]:
    arguments = {"match": expression, "count": count, **values}
    return [
        ChunkHit(document, chunk, NotePath(path), -score)
        for document, chunk, path, score in connection.execute(_CHUNKS, arguments)
    ]


def _factors(connection: apsw.Connection, terms: QueryTerms, values: dict[str, object], count: int) -> dict[int, float]:
    """How much each chunk is raised for holding everything, or everything side by side."""
    factors: dict[int, float] = {}
    if len(terms.units) > 1:
        for mode, factor in _FACTORS:
            expression = match_expression(terms, mode)
            if expression:
                for row in _chunk_rows(connection, expression, values, count):
                    factors[row.chunk] = factors.get(row.chunk, 1.0) * factor
    return factors


def _folder(folder: str | None) -> str:
    parts = (folder or "").split("/")
    return "/".join(part for part in parts if part not in ("", "."))


def _forms(name: str) -> list[str]:
    """Give the name as it is and in both normal forms: paths keep the bytes that are on disk, which nobody types."""
    name = name.encode("utf-8", "replace").decode("utf-8")
    return list(dict.fromkeys((name, unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name))))


def _tag_key(tag: str) -> str:
    return unicodedata.normalize("NFC", tag.strip().lstrip("#").rstrip("/")).lower()


def _is_text(text: str) -> bool:
    """Whether SQLite can take the string: it can't if half of a surrogate pair is in it."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _is_named(name: str, terms: QueryTerms) -> bool:
    """Whether the query holds the whole name; names of a single letter or number are met too often by chance."""
    words, runs = _name_parts(name)
    if not words and not runs:
        return False
    said = {bare(word) for unit in terms.units for word in unit.words}
    return said.issuperset(words) and all(any(run in unit.text for unit in terms.units) for run in runs)


@lru_cache(maxsize=4096)
def _name_parts(name: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Words and runs that a query must hold to name it; none where the name tells too little."""
    units = [unit for unit in query_terms(name).units if not unit.weak]
    if not any(len(unit.text) > 1 and not unit.text.isdecimal() for unit in units):
        return frozenset(), ()
    words = frozenset(bare(word) for unit in units if not unit.bigrams for word in unit.words)
    return words, tuple(unit.text for unit in units if unit.bigrams)


def _add_names(hits: dict[int, NameHit], rows: Iterable[tuple[Any, ...]], match: Match) -> None:
    for document, path, name, kind in rows:
        hits.setdefault(document, NameHit(document, NotePath(path), name, kind, match))
