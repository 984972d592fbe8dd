"""Rank a retrieval set with the keyword channels and print how well it went.

usage: python benchmarks/ranking.py SET.jsonl.gz [--half even|odd]

SET holds one JSON object a line: {"kind": "note", "path", "title", "text"} or {"kind": "query", "query", "relevance":
{path: grade}}. MRR and recall are cut at 10. Tune on one half of the queries, report the other. Substring recall asks
for random runs of 2 to 4 Chinese characters and counts the notes that hold them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import time
import unicodedata
from pathlib import Path, PurePosixPath
from statistics import mean, median, quantiles

import apsw

from vault_lsp.core.chunk import chunks
from vault_lsp.core.fusion import Ranked, fuse
from vault_lsp.core.model import Heading, Note, NotePath
from vault_lsp.core.text import Span, Text
from vault_lsp.core.tokens import index_terms, match_expression, query_terms
from vault_lsp.store.search import NO_FILTERS, keyword, titles

SCHEMA = """
CREATE TABLE documents(id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, kind TEXT, area TEXT, title TEXT,
    mtime_ns INTEGER);
CREATE TABLE tags(document INTEGER, name TEXT, key TEXT);
CREATE TABLE chunks(id INTEGER PRIMARY KEY, document INTEGER, ordinal INTEGER);
CREATE TABLE names(id INTEGER PRIMARY KEY, document INTEGER, kind TEXT, name TEXT, key TEXT);
CREATE INDEX names_key ON names(key);
CREATE VIRTUAL TABLE chunk_fts USING fts5(title, words, bigrams, content='', contentless_delete=1,
    tokenize='unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE name_fts USING fts5(words, bigrams, content='', contentless_delete=1,
    tokenize='unicode61 remove_diacritics 2');
"""


def index(rows: list[dict]) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    for statement in SCHEMA.split(";\n"):
        connection.execute(statement)
    with connection:
        for row in rows:
            add(connection, row)
    return connection


def add(connection: apsw.Connection, row: dict) -> None:
    stem = PurePosixPath(row["path"]).stem
    title = row["title"] or stem
    text = Text((f"# {row['title']}\n\n" if row["title"] else "") + row["text"])
    place = text.place(Span(0, 0))
    headings = (Heading(1, title, title, "", place),) if row["title"] else ()
    connection.execute("INSERT INTO documents(path, kind, area, title) VALUES (?, 'note', '', ?)", (row["path"], title))
    document = connection.last_insert_rowid()
    for kind, name in (("title", title), ("file", stem)):
        key = unicodedata.normalize("NFC", name).lower()
        connection.execute(
            "INSERT INTO names(document, kind, name, key) VALUES (?, ?, ?, ?)", (document, kind, name, key)
        )
        rowid = connection.last_insert_rowid()
        connection.execute("INSERT INTO name_fts(rowid, words, bigrams) VALUES (?, ?, ?)", (rowid, *index_terms(name)))
    for chunk in chunks(Note(NotePath(row["path"]), title, place, headings=headings), text):
        connection.execute("INSERT INTO chunks(document, ordinal) VALUES (?, ?)", (document, chunk.ordinal))
        connection.execute(
            "INSERT INTO chunk_fts(rowid, title, words, bigrams) VALUES (?, ?, ?, ?)",
            (connection.last_insert_rowid(), " ".join(index_terms(title)), *index_terms(chunk.text)),
        )


def rank(connection: apsw.Connection, query: str) -> tuple[list[int], list[int]]:
    """Documents by BM25 alone, and fused with names."""
    found = [hit.document for hit in keyword(connection, query_terms(query), NO_FILTERS, 50)]
    named = titles(connection, query, NO_FILTERS, 20)
    exact = [hit.document for hit in named if hit.match == "exact"]
    return found, [
        item.document
        for item in fuse(
            {"bm25": list(map(Ranked, found)), "title": [Ranked(hit.document) for hit in named]}, exact=exact
        )
    ]


def rate(ranking: list[str], relevance: dict[str, float]) -> tuple[float, float, float]:
    """Reciprocal rank, whether the first is right, and recall, all within ten."""
    wanted = {path for path, grade in relevance.items() if grade > 0}
    right = [place for place, path in enumerate(ranking[:10], start=1) if path in wanted]
    return (1 / right[0] if right else 0.0, float(bool(right) and right[0] == 1), len(right) / max(1, len(wanted)))


def substring_recall(connection: apsw.Connection, notes: list[dict], count: int) -> float | None:
    """Share of the notes holding a random run of characters that the phrase finds."""
    chooser = random.Random(1)
    runs = [run for note in notes for run in re.findall(r"[\u4e00-\u9fff]{4,}", note["text"])]
    if not runs:
        return None
    sql = (
        "SELECT DISTINCT documents.path FROM chunk_fts JOIN chunks ON chunks.id = chunk_fts.rowid"
        " JOIN documents ON documents.id = chunks.document WHERE chunk_fts MATCH ?"
    )
    shares = []
    for run in chooser.choices(runs, k=count):
        length = chooser.randint(2, 4)
        start = chooser.randint(0, len(run) - length)
        piece = run[start : start + length]
        holding = {note["path"] for note in notes if piece in note["text"]}
        expression = match_expression(query_terms(piece), "phrase")
        found = {path for (path,) in connection.execute(sql, (expression,))}
        shares.append(len(holding & found) / len(holding))
    return mean(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", type=Path)
    parser.add_argument("--half", choices=("even", "odd"), help="take every other query only")
    arguments = parser.parse_args()
    with gzip.open(arguments.set, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    notes = [row for row in rows if row["kind"] == "note"]
    queries = [row for row in rows if row["kind"] == "query"]
    if arguments.half:
        queries = queries[arguments.half == "odd" :: 2]
    connection = index(notes)
    paths = dict(connection.execute("SELECT id, path FROM documents"))
    query_terms("字")  # the dictionary is loaded once and is not what is measured
    ratings: dict[str, list[tuple[float, float, float]]] = {"bm25": [], "bm25 + names": []}
    times = []
    for query in queries:
        start = time.perf_counter()
        rankings = rank(connection, query["query"])
        times.append(1000 * (time.perf_counter() - start))
        for ranking, rating in zip(rankings, ratings.values(), strict=True):
            rating.append(rate([paths[document] for document in ranking], query["relevance"]))
    print(f"{arguments.set.name}: {len(notes)} notes, {len(queries)} queries")
    for name, rating in ratings.items():
        first, top, recall = (mean(column) for column in zip(*rating, strict=True))
        print(f"{name:14} MRR@10 {first:.3f}  R@1 {top:.3f}  R@10 {recall:.3f}")
    print(f"{'latency':14} median {median(times):.1f} ms  p95 {quantiles(times, n=20)[-1]:.1f} ms")
    recall = substring_recall(connection, notes, 500)
    if recall is not None:
        print(f"{'substrings':14} recall {recall:.4f}")


if __name__ == "__main__":
    main()
