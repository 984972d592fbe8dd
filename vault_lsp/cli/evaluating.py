"""`eval`: how well search answers questions whose answers are known, mode against mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from vault_lsp.cli.common import SCHEMA, complete_files, json_option, open_vault, sync, vault_option
from vault_lsp.cli.output import print_json, say, shown, table, warn
from vault_lsp.cli.progress import progress_bar
from vault_lsp.errors import ModelUnavailable

if TYPE_CHECKING:
    from vault_lsp.core.model import NotePath
    from vault_lsp.evaluate import Interval, Outcome, Question, Report, Summary
    from vault_lsp.indexer import Progress
    from vault_lsp.ranking import Mode
    from vault_lsp.semantic import Semantic
    from vault_lsp.service import Vault
    from vault_lsp.view import View

_SINGLE = ("keyword", "semantic")
_RERANKED = "reranked"

#: What a second look by the reranker stands on.
_STAGES = {_RERANKED: "hybrid"}

#: What is measured, as people write it.
_NAMES = {"recall": "recall@{k}", "mrr": "MRR@{k}", "ndcg": "nDCG@{k}", "success": "success@1"}

#: Unknown paths that are told one by one.
_TOLD = 20


class _Difference(NamedTuple):
    metric: str
    mode: str
    against: str
    interval: Interval


@click.command(name="eval")
@click.argument("questions", metavar="QUERIES", shell_complete=complete_files)
@click.option("-k", "k", type=click.IntRange(1, 1000), default=10, show_default=True, help="Results that count.")
@click.option(
    "--mode",
    type=click.Choice(["all", "hybrid", *_SINGLE]),
    default="all",
    show_default=True,
    help="What is measured; all of them as far as there are vectors.",
)
@click.option("--rerank/--no-rerank", default=None, help="Measure the reranker as well; default: as in the config.")
@click.option(
    "--part", type=click.Choice(["even", "odd"]), help="Every other question: tune on one part, report the other."
)
@click.option("--limit", type=click.IntRange(1), help="So many questions, spread evenly over the file.")
@click.option("--misses", is_flag=True, help="List the questions without one right note among the results.")
@click.option("--verbose", is_flag=True, help="List every question with the rank of its first right note.")
@click.option("--no-sync", is_flag=True, help="Don't look for changed files first.")
@vault_option
@json_option
@click.pass_context
def evaluation(
    context: click.Context, /, questions: str, k: int, folder: str | None, as_json: bool, **options: Any
) -> None:
    """Measure search on questions with known answers.

    QUERIES is a YAML, JSON or JSON Lines file of {query, expected_paths: [PATH…] or relevance: {PATH: GRADE}, tags:
    […]}. Differences between modes come with their 95 % interval (paired bootstrap).
    """
    from vault_lsp.evaluate import read_queries

    asked = read_queries(Path(questions))
    if options["part"]:
        asked = asked[options["part"] == "odd" :: 2]
    if options["limit"]:
        asked = _spread(asked, options["limit"])
    with open_vault(context, folder) as vault:
        if not options["no_sync"]:
            sync(vault)
        semantic = vault.semantic()
        modes = _modes(vault, semantic, options["mode"], options["rerank"])
        with vault.view() as view:
            known = _known(asked, view.paths(), questions)
            with progress_bar() as progress:
                reports = _ask(view, known, modes, k, semantic.why, progress)
        differences = _differences(reports)
        if as_json:
            print_json(
                {
                    "schema": SCHEMA,
                    "vault": str(vault.root),
                    "questions": len(known),
                    "left_out": len(asked) - len(known),
                    "k": k,
                    "semantic": semantic.state,
                    "embedded": round(semantic.share, 4),
                    "modes": {mode: _report_json(report, **options) for mode, report in reports.items()},
                    "differences": [
                        {
                            "metric": each.metric,
                            "mode": each.mode,
                            "against": each.against,
                            **{name: round(value, 4) for name, value in each.interval._asdict().items()},
                        }
                        for each in differences
                    ],
                }
            )
            return
        _print_reports(reports, k)
        _print_differences(differences, k)
        if options["verbose"]:
            _print_ranks(reports, questions)
        if options["misses"]:
            _print_misses(reports, questions)


def _spread(questions: list[Question], limit: int) -> list[Question]:
    count = min(limit, len(questions))
    return [questions[at * len(questions) // count] for at in range(count)]


def _modes(vault: Vault, semantic: Semantic, mode: str, rerank: bool | None) -> list[str]:
    """The modes to measure; ModelUnavailable for one that needs vectors where there are none."""
    if semantic.state == "off":
        if mode in ("hybrid", "semantic"):
            raise ModelUnavailable(f"semantic search is off: {semantic.why or 'nothing is embedded yet'}")
        modes = ["keyword"]
        if mode == "all" and vault.embedding_model != "none":
            warn(f"only keyword search is measured: {semantic.why}")
    else:
        modes = ["hybrid", *_SINGLE] if mode == "all" else [mode]
        if semantic.why:
            warn(semantic.why)
    wanted = vault.config.rerank.model != "none" if rerank is None else rerank
    return [*modes, *([_RERANKED] if wanted else [])]


def _known(asked: list[Question], paths: Sequence[NotePath], file: str) -> list[Question]:
    """The questions that the vault can answer; what it doesn't have is told."""
    from vault_lsp.evaluate import QuestionsError, match_paths

    known, unknown = match_paths(asked, paths)
    for each in unknown[:_TOLD]:
        hint = f", did you mean {each.near}?" if each.near else ""
        warn(f"{file}:{each.line}: not in the vault: {each.path}{hint}")
    if len(unknown) > _TOLD:
        warn(f"{file}: {len(unknown) - _TOLD} more paths are not in the vault")
    if not known:
        raise QuestionsError(f"{file}: the vault has no note that a question expects")
    if len(known) < len(asked):
        warn(f"{len(asked) - len(known)} of {len(asked)} questions are left out: the vault has no note they expect")
    return known


def _ask(
    view: View,
    questions: list[Question],
    modes: Sequence[str],
    k: int,
    standing: str,
    progress: Callable[[Progress], None],
) -> dict[str, Report]:
    """A report for each mode. What a search had to say is told once, but for what is `standing` and told already."""
    from vault_lsp.evaluate import evaluate
    from vault_lsp.indexer import Progress
    from vault_lsp.search import Query

    reports: dict[str, Report] = {}
    total = len(modes) * len(questions)
    for mode in modes:
        notes: Counter[str] = Counter()
        reranked = 0

        def search(query: str, limit: int, mode: str = mode, notes: Counter[str] = notes) -> list[NotePath]:
            nonlocal reranked
            answer = view.search(
                Query(query, limit, mode=cast("Mode", _STAGES.get(mode, mode)), rerank=mode == _RERANKED)
            )
            reranked += answer.reranked
            if answer.note and answer.note != standing:
                notes[answer.note] += 1
            return [hit.path for hit in answer.hits]

        before = len(reports) * len(questions)

        def tell(done: int, _: int, before: int = before) -> None:
            progress(Progress("asking", before + done, total))

        report = evaluate(search, questions, k, progress=tell)
        for note in notes:
            warn(f"{mode}: {note}")
        if mode == _RERANKED and reranked == 0:
            continue  # it would be hybrid once more, under a name that promises another order
        reports[mode] = report
    return reports


def _differences(reports: Mapping[str, Report]) -> list[_Difference]:
    """Hybrid against the better of the single channels, metric by metric, and the reranker against the first stage."""
    from vault_lsp.evaluate import METRICS, paired_bootstrap

    found = []
    for metric in METRICS:
        pairs = []
        if "hybrid" in reports and all(mode in reports for mode in _SINGLE):
            best = max(_SINGLE, key=lambda mode: getattr(reports[mode].overall, metric))
            pairs.append(("hybrid", best))
        if _RERANKED in reports and (base := "hybrid" if "hybrid" in reports else "keyword") in reports:
            pairs.append((_RERANKED, base))
        for mode, against in pairs:
            interval = paired_bootstrap(reports[mode].values(metric), reports[against].values(metric))
            found.append(_Difference(metric, mode, against, interval))
    return sorted(found, key=lambda each: each.mode == _RERANKED)


def _summary_json(summary: Summary) -> dict[str, Any]:
    from vault_lsp.evaluate import METRICS

    return {
        "questions": summary.questions,
        **{metric: round(getattr(summary, metric), 4) for metric in METRICS},
        "latency_ms": {"p50": round(summary.p50_ms, 2), "p95": round(summary.p95_ms, 2)},
    }


def _report_json(report: Report, *, misses: bool, verbose: bool, **_: object) -> dict[str, Any]:
    shown_outcomes = {"each": report.outcomes} if verbose else {}
    if misses:
        shown_outcomes["misses"] = tuple(report.misses())
    return {
        **_summary_json(report.overall),
        "tags": {tag: _summary_json(summary) for tag, summary in report.tags.items()},
        **{name: [_outcome_json(outcome) for outcome in each] for name, each in shown_outcomes.items()},
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    from vault_lsp.evaluate import METRICS

    question = outcome.question
    return {
        "query": question.query,
        "line": question.line,
        "expected": [path for path, grade in question.relevance.items() if grade > 0],
        "found": list(outcome.found),
        **{metric: round(getattr(outcome, metric), 4) for metric in METRICS},
    }


def _print_reports(reports: Mapping[str, Report], k: int) -> None:
    def row(name: str, summary: Summary) -> list[str]:
        measured = [f"{getattr(summary, metric):.3f}" for metric in _NAMES]
        return [name, str(summary.questions), *measured, f"{summary.p50_ms:.1f}", f"{summary.p95_ms:.1f}"]

    rows = [["", "questions", *(name.format(k=k) for name in _NAMES.values()), "p50 ms", "p95 ms"]]
    for mode, report in reports.items():
        rows.append(row(mode, report.overall))
        rows += [row(f"  {shown(tag)}", summary) for tag, summary in report.tags.items()]
    for line in table(rows):
        say(line)


def _print_differences(differences: Sequence[_Difference], k: int) -> None:
    if not differences:
        return
    say("")
    rows = [["difference", "", "mean", "95 % interval"]]
    for each in differences:
        mean, low, high = each.interval
        name = f"{each.mode} - {each.against}"
        rows.append([name, _NAMES[each.metric].format(k=k), f"{mean:+.4f}", f"{low:+.4f} to {high:+.4f}"])
    for line in table(rows):
        say(line)


def _print_ranks(reports: Mapping[str, Report], file: str) -> None:
    say("")
    for outcomes in zip(*(report.outcomes for report in reports.values()), strict=True):
        question = outcomes[0].question
        ranks = (f"{mode} {_rank(outcome)}" for mode, outcome in zip(reports, outcomes, strict=True))
        say(f"{shown(file)}:{question.line}  {', '.join(ranks)}  {shown(question.query)}")


def _print_misses(reports: Mapping[str, Report], file: str) -> None:
    """The misses of the first mode, which is hybrid where all are measured."""
    mode, report = next(iter(reports.items()))
    misses = report.misses()
    say("")
    say(f"{len(misses)} of {report.overall.questions} questions missed by {mode}")
    for outcome in misses:
        question = outcome.question
        say(f"{shown(file)}:{question.line}  {shown(question.query)}")
        say(f"        expected {shown(', '.join(path for path, grade in question.relevance.items() if grade > 0))}")
        say(f"        found    {shown(', '.join(outcome.found[:3])) or 'nothing'}")


def _rank(outcome: Outcome) -> str:
    return str(round(1 / outcome.mrr)) if outcome.mrr else "-"
