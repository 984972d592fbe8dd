"""Embedding with the bundled model against a bare loop on the same session: `python benchmarks/embedding.py VAULT`.

Prints:

- the conversion at first use: seconds and peak memory of its process
- our embedder ÷ a bare loop that runs the same ONNX file on the same chunks, tokenized before, on one and on two
  threads; chunks come sorted by length, as the backlog gives them
- peak memory of a process that embeds
- a query in a fresh process minus an empty Python process

The vault is only read, and the model is converted into a folder that is deleted at the end.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from vault_lsp.core.chunk import chunks, passage
from vault_lsp.core.model import NotePath
from vault_lsp.core.parse import parse
from vault_lsp.core.text import Text
from vault_lsp.embed import bundled, models
from vault_lsp.vault import decode

CONVERT = "from vault_lsp.embed import bundled; bundled.convert()"

QUERY = """
from pathlib import Path
from vault_lsp.embed import models
models.load_query_embedder("auto", Path()).query("how to keep tea fresh")
"""

#: Embeds every line of stdin.
EMBED = """
import sys
from pathlib import Path
from vault_lsp.embed import models
texts = sys.stdin.read().split("\\0")
models.load("auto", Path(), threads=1).passages(texts)
"""

#: Appended to a program: prints the most memory that its process ever had, in kilobytes. On Linux `getrusage` would
#: count what the parent had when it started the process.
PEAK = """
import resource, sys
from pathlib import Path
if sys.platform == "linux":
    peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
sys.stdout.write(str(peak))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vault", type=Path)
    parser.add_argument("--chunks", type=int, default=80, help="how many, drawn at random")
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    texts = sample(chosen.vault, chosen.chunks)
    with tempfile.TemporaryDirectory(prefix="vault-lsp-bench-") as folder:
        os.environ["VAULT_LSP_MODEL_DIR"] = folder
        seconds, peak = child(CONVERT + PEAK)
        print(f"conversion: {seconds:.1f} s, peak {int(peak) >> 10} MB")
        for threads in (1, 2):
            speed(texts, threads, chosen.runs)
        _, peak = child(EMBED + PEAK, "\0".join(texts))
        print(f"a process that embeds: peak {int(peak) >> 10} MB")
        empty = statistics.median(child("pass")[0] for _ in range(5 * chosen.runs))
        asked = statistics.median(child(QUERY)[0] for _ in range(5 * chosen.runs))
        print(f"a query in a fresh process: {asked - empty:.3f} s above an empty one of {empty:.3f} s")


def sample(vault: Path, count: int) -> list[str]:
    """Texts of chunks, shortest first."""
    found: list[str] = []
    for file in sorted(vault.rglob("*.md")):
        text = Text(decode(file.read_bytes()).source)
        note = parse(NotePath(file.relative_to(vault).as_posix()), text)
        found += (passage(note.title, chunk.heading_path, chunk.text) for chunk in chunks(note, text))
    return sorted(random.Random(0).sample(found, min(count, len(found))), key=len)


def speed(texts: list[str], threads: int, runs: int) -> None:
    """Both in turn, so that what else the machine does falls on both."""
    embedder = models.load("auto", Path(), threads=threads)
    tokens = embedder.count_tokens(texts)
    bare = floor(texts, threads)
    ours, floors = [], []
    for _ in range(runs):
        floors.append(timed(bare))
        ours.append(timed(lambda: embedder.passages(texts)))
    fast, least = statistics.median(ours), statistics.median(floors)
    print(
        f"{threads} thread(s), {len(texts)} chunks of {statistics.mean(tokens):.0f} tokens: {len(texts) / fast:.1f} "
        f"chunks/s, {least / fast:.2f} of the bare loop's {len(texts) / least:.1f}"
    )


def floor(texts: list[str], threads: int) -> Callable[[], None]:
    """The loop: one chunk a run, which is the fastest way, with the session's own defaults."""
    tokenizer = Tokenizer.from_file(str(bundled.folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(bundled.DEFINITION.max_tokens)
    inputs = []
    for text in texts:
        ids = np.array([tokenizer.encode(bundled.DEFINITION.passage_prefix + text).ids], np.int64)
        inputs.append({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        str(bundled.folder() / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )

    def loop() -> None:
        for given in inputs:
            session.run(None, given)

    return loop


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def child(program: str, given: str = "") -> tuple[float, str]:
    """Seconds that a program takes in a process of its own, and what it prints."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=given,
        capture_output=True,
        encoding="utf-8",
        errors="surrogatepass",
        check=True,
    )
    return time.perf_counter() - start, done.stdout


if __name__ == "__main__":
    main()
