"""Is hybrid search better than its channels? `python benchmarks/quality.py VAULT... [--ablate] [--tune]`

Each VAULT is a folder of notes with a `queries.yaml`, as `vault-lsp eval` reads it. It is indexed and embedded first,
with the model of its config; the index is kept, so that a second run begins at once.

Prints for each vault, and as the mean of all, recall, MRR and nDCG of the best ten for hybrid, keyword and semantic
search, and how far hybrid lies from the better of the two, with 95 % intervals (paired bootstrap over the questions).
All of it on the odd questions (counted from 0): the even ones are for choosing. Options:

--ablate   hybrid search without one of its parts at a time, as differences from the whole
--prefix   the same without title and headings before the text that is embedded; embeds everything once more
--tune     weights of the channels that are best on the even questions, 150 of each vault, and what they give on the
           odd ones
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple
from unittest import mock

from vault_lsp import prepare, ranking, search
from vault_lsp.core import fusion, tokens
from vault_lsp.core.model import NotePath
from vault_lsp.evaluate import Question, Report, evaluate, match_paths, paired_bootstrap, read_queries
from vault_lsp.search import Query
from vault_lsp.service import Vault
from vault_lsp.store import search as store_search

MODES = ("hybrid", "keyword", "semantic")
METRICS = {"recall": "R@10", "mrr": "MRR@10", "ndcg": "nDCG@10"}
K = 10

#: Weights that are tried; what is not named keeps its own. Each costs a search for every question.
TUNED_ON = 150
GRID = {"vector": (0.3, 0.5, 0.7, 1.0, 1.4, 2.0), "title": (0.0, 0.5, 1.0, 1.5)}

Variant = Callable[[], AbstractContextManager[Any]]


class Part(NamedTuple):
    """A vault with one half of its questions."""

    vault: Vault
    questions: list[Question]

    @property
    def name(self) -> str:
        return self.vault.root.name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vaults", nargs="+", type=Path, metavar="VAULT")
    parser.add_argument("--ablate", action="store_true")
    parser.add_argument("--prefix", action="store_true")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--queries", default="queries.yaml", help="name of the file of questions in each vault")
    parser.add_argument("--mode", choices=MODES, help="measure one mode only, without a comparison")
    chosen = parser.parse_args()
    with opened(chosen.vaults) as vaults:
        even, odd = (halves(vaults, chosen.queries, half) for half in (0, 1))
        modes = (chosen.mode,) if chosen.mode else MODES
        reports = {mode: measured(odd, mode) for mode in modes}
        print_modes(odd, reports)
        if "hybrid" not in reports:
            return
        if not chosen.mode:
            print_differences("hybrid - better channel", odd, reports["hybrid"], better(reports))
        if chosen.ablate:
            for name, variant in VARIANTS.items():
                with variant():
                    print_differences(name, odd, measured(odd, "hybrid"), reports["hybrid"])
        if chosen.tune:
            tune(even, odd, reports["hybrid"])
    if chosen.prefix:
        without_prefix(chosen.vaults, chosen.queries, odd, reports)


# Vaults -------------------------------------------------------------------------------------------------------------


@contextmanager
def opened(roots: Iterable[Path]) -> Iterator[list[Vault]]:
    vaults = [Vault.open(root) for root in roots]
    try:
        for vault in vaults:
            fill(vault)
        yield vaults
    finally:
        for vault in vaults:
            vault.close()


def fill(vault: Vault) -> None:
    """Index and embed, with the time that it took."""
    started = time.perf_counter()
    vault.reconcile()
    indexed = time.perf_counter()
    done = vault.embed()
    seconds = time.perf_counter() - indexed
    told = vault.semantic()
    print(
        f"{vault.root.name}: {vault.counts()[0]} notes indexed in {indexed - started:.1f} s;"
        f" {done.embedded} passages embedded in {seconds:.1f} s ({done.embedded / seconds:.1f} a second),"
        f" {told.embedded} of {told.chunks} have a vector of {told.model}"
    )
    if told.state != "on":
        print(f"{vault.root.name}: semantic search is {told.state}: {told.why or done.why}")


def halves(vaults: Iterable[Vault], file: str, half: int) -> list[Part]:
    """Every other question of each vault."""
    parts = []
    for vault in vaults:
        with vault.view() as view:
            questions, unknown = match_paths(read_queries(vault.root / file), view.paths())
        if unknown:
            print(f"{vault.root.name}: {len(unknown)} paths of questions are not in the vault")
        parts.append(Part(vault, questions[half::2]))
    return parts


def measured(parts: Sequence[Part], mode: Any) -> list[Report]:
    """The report of each vault."""
    reports = []
    for part in parts:
        with part.vault.view() as view:

            def ask(query: str, k: int) -> list[NotePath]:
                return [hit.path for hit in view.search(Query(query, k, mode=mode, rerank=False)).hits]

            reports.append(evaluate(ask, part.questions, K))
        if sys.stderr.isatty():
            print(f"  {mode} on {part.name} done", file=sys.stderr)
    return reports


# Tables -------------------------------------------------------------------------------------------------------------


def print_modes(parts: Sequence[Part], reports: Mapping[str, Sequence[Report]]) -> None:
    print(f"\n{'':24} {'':10}" + "".join(f"{name:>9}" for name in METRICS.values()) + f"{'p50 ms':>9}{'p95 ms':>9}")
    for at, part in enumerate(parts):
        for mode, each in reports.items():
            overall = each[at].overall
            values = "".join(f"{getattr(overall, metric):9.4f}" for metric in METRICS)
            print(f"{part.name[:24]:24} {mode:10}{values}{overall.p50_ms:9.1f}{overall.p95_ms:9.1f}")
    if len(parts) > 1:
        for mode, each in reports.items():
            values = "".join(f"{mean(getattr(report.overall, metric) for report in each):9.4f}" for metric in METRICS)
            print(f"{'mean of the vaults':24} {mode:10}{values}")


def better(reports: Mapping[str, Sequence[Report]]) -> Callable[[int, str], Report]:
    """The better one of the two channels, vault by vault and metric by metric."""

    def choose(at: int, metric: str) -> Report:
        return max((reports[mode][at] for mode in MODES[1:]), key=lambda report: getattr(report.overall, metric))

    return choose


def print_differences(
    title: str, parts: Sequence[Part], reports: Sequence[Report], base: Sequence[Report] | Callable[[int, str], Report]
) -> None:
    print(f"\n{title}")
    sums: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for at, part in enumerate(parts):
        cells = []
        for metric, name in METRICS.items():
            against = base(at, metric) if callable(base) else base[at]
            interval = paired_bootstrap(reports[at].values(metric), against.values(metric))
            sums[metric].append(interval.mean)
            cells.append(f"{name} {interval.mean:+.4f} [{interval.low:+.4f} {interval.high:+.4f}]")
        print(f"  {part.name[:24]:24} " + "  ".join(cells))
    if len(parts) > 1:
        cells = [f"{name} {mean(sums[metric]):+.4f}" + " " * 18 for metric, name in METRICS.items()]
        print(f"  {'mean of the vaults':24} " + "  ".join(cells).rstrip())


# Variants -----------------------------------------------------------------------------------------------------------


@contextmanager
def weighing(weights: Mapping[str, float]) -> Iterator[None]:
    """Channels weigh other than by default."""
    with mock.patch.object(fusion, "WEIGHTS", {**fusion.WEIGHTS, **weights}):
        yield


def all_words() -> AbstractContextManager[Any]:
    """A chunk must hold every word of the query."""
    original = store_search.match_expression

    def expression(terms: tokens.QueryTerms, mode: tokens.Mode = "any") -> str | None:
        return original(terms, "all" if mode in ("any", "prefix") else mode)

    return mock.patch.object(store_search, "match_expression", expression)


def words_only() -> AbstractContextManager[Any]:
    """Scripts without spaces are searched by the words of the dictionary, not by pairs of characters."""
    original = search.query_terms

    def terms(text: str) -> tokens.QueryTerms:
        found = original(text)
        units = tuple(unit._replace(bigrams=()) if unit.words else unit for unit in found.units)
        return dataclasses.replace(found, units=units)

    return mock.patch.object(search, "query_terms", terms)


def pairs_only() -> AbstractContextManager[Any]:
    """The same by pairs of characters, not by words."""
    original = search.query_terms

    def terms(text: str) -> tokens.QueryTerms:
        found = original(text)
        units = tuple(unit._replace(words=()) if unit.bigrams else unit for unit in found.units)
        return dataclasses.replace(found, units=units)

    return mock.patch.object(search, "query_terms", terms)


@contextmanager
def ranks_only() -> Iterator[None]:
    """Channels count by rank alone, as in plain reciprocal rank fusion."""

    def plain(hits: Sequence[Any], *_: object) -> list[fusion.Ranked]:
        return [fusion.Ranked(hit.document) for hit in hits]

    with mock.patch.object(ranking, "_by_words", plain), mock.patch.object(ranking, "_by_meaning", plain):
        yield


def always_sure() -> AbstractContextManager[Any]:
    """Words count in full, however few of the query's the best passages hold."""
    return mock.patch.object(ranking, "_sureness", return_value=1.0)


VARIANTS: dict[str, Variant] = {
    "all words instead of any": all_words,
    "words without pairs of characters": words_only,
    "pairs of characters without words": pairs_only,
    "ranks without strengths": ranks_only,
    "words always sure": always_sure,
    "no titles": lambda: weighing({"title": 0.0}),
    "no links": lambda: weighing({"indegree": 0.0}),
    "equal weights": lambda: weighing({"bm25": 1.0, "vector": 1.0, "title": 1.0}),
}


def tune(even: Sequence[Part], odd: Sequence[Part], default: Sequence[Report]) -> None:
    """Choose weights by the mean MRR of the vaults on the even questions; report them on the odd ones."""
    results = []
    few = [part._replace(questions=part.questions[:: -(-len(part.questions) // TUNED_ON)]) for part in even]
    for values in itertools.product(*GRID.values()):
        weights = dict(zip(GRID, values, strict=True))
        with weighing(weights):
            score = mean(report.overall.mrr for report in measured(few, "hybrid"))
        results.append((score, weights))
    results.sort(key=lambda result: -result[0])
    print("\nweights on the even questions, mean MRR@10")
    for score, weights in results[:8]:
        print(f"  {score:.4f}  " + ", ".join(f"{name} {weight:g}" for name, weight in weights.items()))
    with weighing(results[0][1]):
        print_differences("the best of them - the default, on the odd questions", odd, measured(odd, "hybrid"), default)


def without_prefix(
    roots: Sequence[Path], file: str, odd: Sequence[Part], reports: Mapping[str, Sequence[Report]]
) -> None:
    """Embed the bare pieces into indexes of their own and compare."""
    folder = Path(os.environ.get("VAULT_LSP_INDEX_DIR") or odd[0].vault.index.folder.parent) / "without-prefix"

    def bare(_title: str, _headings: Iterable[str], piece: str) -> str:
        return piece

    with (
        mock.patch.dict(os.environ, {"VAULT_LSP_INDEX_DIR": str(folder)}),
        mock.patch.object(prepare, "passage", bare),
        opened(roots) as vaults,
    ):
        parts = halves(vaults, file, 1)
        for mode in ("semantic", "hybrid"):
            title = f"{mode}: no title and headings before the embedded text"
            print_differences(title, parts, measured(parts, mode), reports[mode])


if __name__ == "__main__":
    main()
