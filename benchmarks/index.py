"""Indexing against the least that the same work can take, in the same run: `python benchmarks/index.py VAULT`.

Prints, as medians over several runs:

- first index ÷ a bare loop in one process over the same notes (read, hash, parse, cut, segment, insert the same
  full-text columns), and the peak memory of all processes of the first index together
- reconcile without a change ÷ a bare walk that stats every note
- reconcile of one saved note of up to 8 kB, median and 95th percentile
- `search` in a fresh process minus an empty Python process

The vault is only read: notes that are saved lie in a copy.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw

from vault_lsp.core.chunk import chunks
from vault_lsp.core.model import NotePath
from vault_lsp.core.parse import parse
from vault_lsp.core.text import Text
from vault_lsp.core.tokens import index_terms
from vault_lsp.service import Vault
from vault_lsp.vault import LEFT_OUT, decode

FLOOR_SCHEMA = """
CREATE VIRTUAL TABLE chunk_fts USING fts5(
  title, words, bigrams, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 2')
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vault", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--words", default="数据", help="what the fresh process searches")
    parser.add_argument("--part", choices=["first", "noop", "save", "search"], action="append")
    chosen = parser.parse_args()
    parts = chosen.part or ["first", "noop", "save", "search"]
    with tempfile.TemporaryDirectory(prefix="vault-lsp-bench-") as folder:
        base = Path(folder)
        os.environ["VAULT_LSP_INDEX_DIR"] = str(base / "indexes")
        root = base / "vault"
        shutil.copytree(chosen.vault, root, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        for file in root.rglob("*.md"):
            os.utime(file, ns=(10**18, 10**18))
        if "first" in parts:
            first_index(root, base, chosen.runs)
        with closing(Vault.open(root)) as vault:
            vault.reconcile()
            if "noop" in parts:
                no_change(vault, 10 * chosen.runs)
            if "save" in parts:
                save(vault, 200)
        if "search" in parts:
            fresh_search(root, chosen.words, 5 * chosen.runs)


def first_index(root: Path, base: Path, runs: int) -> None:
    """Both in processes of their own, in turn, so that neither finds what the other has loaded."""
    ours, floors, peaks = [], [], []
    for _ in range(runs):
        shutil.rmtree(base / "indexes", ignore_errors=True)
        floors.append(timed_child("floor", root, base)[0])
        seconds, peak = timed_child("ours", root, base)
        ours.append(seconds)
        peaks.append(peak)
    took, floor = statistics.median(ours), statistics.median(floors)
    print(f"first index          {took:8.2f} s   bare loop {floor:8.2f} s   ratio {took / floor:.2f}")
    print(f"peak memory          {max(peaks) / 1e6:8.0f} MB  (all processes together, proportional set size)")


def timed_child(what: str, root: Path, base: Path) -> tuple[float, int]:
    """Seconds that a child reports, and the most memory that it and its children had together."""
    child = subprocess.Popen(
        [sys.executable, __file__, "--child", what, str(root), str(base)], stdout=subprocess.PIPE, text=True
    )
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.1):
            peak = max(peak, sum(proportional_size(pid) for pid in family(child.pid)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, _ = child.communicate()
    done.set()
    watcher.join()
    return float(json.loads(out)), peak


def family(pid: int) -> list[int]:
    """A process and all below it; empty for one that ended."""
    try:
        found = [
            int(below)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for below in (task / "children").read_text().split()
        ]
    except OSError:
        return []
    return [pid, *(member for below in found for member in family(below))]


def proportional_size(pid: int) -> int:
    """Memory of one process in bytes, pages that are shared counted in parts."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def ours(root: Path, _: Path) -> float:
    with closing(Vault.open(root)) as vault:
        started = time.perf_counter()
        vault.reconcile()
        return time.perf_counter() - started


def floor(root: Path, base: Path) -> float:
    """What no index can do without, as plainly as it can be written."""
    file = base / "floor.db"
    file.unlink(missing_ok=True)
    started = time.perf_counter()
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute("PRAGMA journal_mode=wal").fetchall()
        connection.execute("PRAGMA synchronous=normal").fetchall()
        connection.execute(FLOOR_SCHEMA)
        connection.execute("BEGIN")
        for path in stat_walk(root):
            data = (root / path).read_bytes()
            hashlib.sha256(data).digest()
            decoded = decode(data)
            if decoded.skipped is not None:
                continue
            text = Text(decoded.source)
            note = parse(NotePath(path), text)
            title = " ".join(index_terms(note.title))
            for chunk in chunks(note, text):
                terms = index_terms(chunk.text)
                head = f"{title} {' '.join(index_terms(' '.join(chunk.heading_path)))}"
                connection.execute("INSERT INTO chunk_fts VALUES(?, ?, ?)", (head, terms.words, terms.bigrams))
        connection.execute("COMMIT")
    return time.perf_counter() - started


def stat_walk(root: Path) -> list[str]:
    """Paths of all notes, each with a stat."""
    found = []
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(f"{root}/{folder}") as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in LEFT_OUT:
                        pending.append(f"{folder}{entry.name}/")
                elif entry.name.endswith(".md"):
                    entry.stat(follow_symlinks=False)
                    found.append(folder + entry.name)
    return found


def no_change(vault: Vault, runs: int) -> None:
    took, bare = [], []
    for _ in range(runs):
        bare.append(seconds(lambda: stat_walk(vault.root)))
        took.append(seconds(vault.reconcile))
    ours, least = statistics.median(took), statistics.median(bare)
    print(f"nothing changed      {ours * 1e3:8.1f} ms  stat walk {least * 1e3:8.1f} ms  ratio {ours / least:.2f}")


def save(vault: Vault, runs: int) -> None:
    notes = [path for path in stat_walk(vault.root) if (vault.root / path).stat().st_size <= 8192]
    took = []
    for number, path in enumerate(random.Random(1).sample(notes, min(runs, len(notes)))):
        file = vault.root / path
        file.write_bytes(file.read_bytes() + f"\nedition {number}\n".encode())
        took.append(seconds(lambda path=path: vault.reconcile([NotePath(path)])))
    took.sort()
    print(
        f"a saved note         {statistics.median(took) * 1e3:8.1f} ms  p95 {took[len(took) * 95 // 100] * 1e3:.1f} ms"
        f"  ({len(took)} notes of up to 8 kB)"
    )


def fresh_search(root: Path, words: str, runs: int) -> None:
    search, bare = [], []
    for _ in range(runs):
        bare.append(seconds(lambda: run("-c", "pass")))
        search.append(seconds(lambda: run("-m", "vault_lsp", "search", "--vault", str(root), words)))
    ours, least = statistics.median(search), statistics.median(bare)
    print(
        f"search, new process  {ours * 1e3:8.0f} ms  python {least * 1e3:11.0f} ms  more {(ours - least) * 1e3:.0f} ms"
    )


def run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)


def seconds(job: Callable[[], object]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        job = {"ours": ours, "floor": floor}[sys.argv[2]]
        print(json.dumps(job(Path(sys.argv[3]), Path(sys.argv[4]))))
    else:
        main()
