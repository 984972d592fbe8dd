"""Time hybrid search in a resident process against what it can't do without, in the same run.

usage: python benchmarks/hybrid.py [--chunks 50000] [--queries 40] [--keep FOLDER]

Writes a vault of synthetic notes, indexes it, and gives every chunk a random unit vector, as if by the bundled model.
The floor is the sum of three medians: a product of all vectors with the query in numpy with the best 200 picked out, a
bare full-text query for 200 rows, and the embedding of the query. Peak memory is that of this process (PSS).
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command does, and so for the floor as well

import numpy as np

from vault_lsp.core.tokens import match_expression, query_terms
from vault_lsp.embed import models
from vault_lsp.embed.embedder import QueryEmbedder
from vault_lsp.search import Query
from vault_lsp.service import Vault
from vault_lsp.store import vectors
from vault_lsp.store.vector_file import load_extension
from vault_lsp.store.vectors import Embedding

CHUNKS_A_NOTE = 8
WORDS_A_CHUNK = 180


def words(count: int) -> list[str]:
    """Pronounceable words, always the same."""
    chooser = random.Random(1)
    syllables = [first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou"]
    return ["".join(chooser.choices(syllables, k=chooser.randint(2, 4))) for _ in range(count)]


def write_vault(root: Path, chunks: int) -> list[str]:
    """Notes whose words are spread as in a language: few are common, most are rare. Returns the words."""
    chooser = random.Random(2)
    known = words(40_000)
    weights = [1 / (rank + 10) for rank in range(len(known))]
    for note in range(max(1, chunks // CHUNKS_A_NOTE)):
        sections = [
            f"## Section {section}\n\n" + " ".join(chooser.choices(known, weights, k=WORDS_A_CHUNK))
            for section in range(CHUNKS_A_NOTE)
        ]
        file = root / f"area{note % 20}" / f"note{note}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        links = " ".join(f"[[note{chooser.randrange(chunks // CHUNKS_A_NOTE)}]]" for _ in range(3))
        file.write_text(f"# {' '.join(chooser.choices(known, k=3))}\n\n{links}\n\n" + "\n\n".join(sections), "utf-8")
    return known


def fill(vault: Vault, dimensions: int, fingerprint: str, name: str) -> int:
    """Give every chunk a random unit vector."""
    store = vault._connections.vectors
    generator = np.random.default_rng(3)
    with store.writer() as connection:
        model = store.add_model(connection, fingerprint, name, dimensions)
    with vault._connections.reader() as reader:
        shas = [item.sha for item in vectors.missing(reader, model)]
    for start in range(0, len(shas), 2000):
        batch = shas[start : start + 2000]
        rows = generator.standard_normal((len(batch), dimensions), np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        with store.writer() as connection:
            store.put(
                connection,
                model,
                [Embedding(sha, row.tobytes(), 0) for sha, row in zip(batch, rows, strict=True)],
            )
    return len(shas)


def timed(work: Callable[[str], object], texts: list[str]) -> list[float]:
    """Milliseconds of each call, after three that don't count."""
    for text in texts[:3]:
        work(text)
    found = []
    for text in texts:
        started = time.perf_counter()
        work(text)
        found.append((time.perf_counter() - started) * 1000)
    return found


def peak_mb() -> float:
    """Memory that is this process's own, and its share of what others map as well."""
    rows = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(row.split()[1]) for row in rows if row.startswith("Pss:")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=50_000)
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--keep", type=Path, help="a folder for vault and index, to be used again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vault-lsp-bench-") as temporary:
        folder = options.keep or Path(temporary)
        os.environ["VAULT_LSP_INDEX_DIR"] = str(folder / "index")
        root = folder / "vault"
        if not root.exists():
            write_vault(root, options.chunks)
        known = words(40_000)
        vault = Vault.open(root, resident=True)
        started = time.perf_counter()
        vault.reconcile()
        print(f"indexed in {time.perf_counter() - started:.1f} s")
        choice = models.choose("auto", root)
        assert choice.model
        assert choice.fingerprint
        assert choice.dimensions
        started = time.perf_counter()
        added = fill(vault, choice.dimensions, choice.fingerprint, choice.model)
        print(f"{added} vectors stored in {time.perf_counter() - started:.1f} s")
        measure(vault, known, options.queries)
        vault.close()


def measure(vault: Vault, known: list[str], count: int) -> None:
    chooser = random.Random(4)
    # As people ask: a few words, some of them common.
    weights = [1 / (rank + 10) ** 0.5 for rank in range(len(known))]
    texts = [" ".join(chooser.choices(known, weights, k=chooser.randint(3, 6))) for _ in range(count)]
    embedder: QueryEmbedder = models.load_query_embedder("auto", vault.root)

    def search(text: str) -> object:
        with vault.view() as view:
            return view.search(Query(text))

    search(texts[0])
    print(f"semantic {vault.semantic().state}, {vault.semantic().chunks} chunks, load {os.getloadavg()[0]:.1f}")
    whole = timed(search, texts)
    peak = peak_mb()
    embed = timed(embedder.query, texts)
    with vault._connections.reader() as reader:
        (model,) = vectors.models(reader)
        load_extension(reader)
        rows = reader.execute(f"SELECT embedding FROM vec.vec_{model.id}")
        matrix = np.frombuffer(b"".join(row for (row,) in rows), np.float32).reshape(-1, model.dimensions)
        expressions = [match_expression(query_terms(text)) or "" for text in texts]
        statement = "SELECT rowid, rank FROM chunk_fts WHERE chunk_fts MATCH ? ORDER BY rank LIMIT 200"
        text_query = timed(lambda expression: reader.execute(statement, (expression,)).fetchall(), expressions)
        queries = {text: embedder.query(text) for text in texts}
        scan = timed(lambda text: np.argpartition(matrix @ queries[text], -200)[-200:], texts)
    floor = median(scan) + median(text_query) + median(embed)
    for name, times in (("numpy scan", scan), ("full-text query", text_query), ("query embedding", embed)):
        print(f"{name:20} median {median(times):7.1f} ms")
    print(f"{'floor':20} sum    {floor:7.1f} ms")
    p95 = quantiles(whole, n=20)[-1]
    print(f"{'hybrid search':20} median {median(whole):7.1f} ms, p95 {p95:.1f} ms, ratio {median(whole) / floor:.2f}")
    print(f"peak memory after the searches {peak:.0f} MB")


if __name__ == "__main__":
    main()
