"""How well does search rank? Questions with known answers are asked, and the rankings measured and compared."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vault_lsp.core.model import NotePath
from vault_lsp.questions import Question, QuestionsError, UnknownPath, match_paths, read_queries

__all__ = [
    "METRICS",
    "Interval",
    "Outcome",
    "Question",
    "QuestionsError",
    "Report",
    "Summary",
    "UnknownPath",
    "evaluate",
    "match_paths",
    "measure",
    "paired_bootstrap",
    "read_queries",
]

#: What is measured of each question, each from 0 to 1, by the name that reports give it.
METRICS = ("recall", "mrr", "ndcg", "success")

RESAMPLES = 10_000

#: Draws of the bootstrap that are held in memory at once.
_BATCH = 2_000_000


class Outcome(NamedTuple):
    """What came of one question: the first k notes found, the metrics, and how long it took."""

    question: Question
    found: tuple[NotePath, ...]
    recall: float
    mrr: float
    ndcg: float
    success: float
    took_ms: float


class Summary(NamedTuple):
    """Means over questions, and percentiles of their times in milliseconds."""

    questions: int
    recall: float
    mrr: float
    ndcg: float
    success: float
    p50_ms: float
    p95_ms: float


class Report(NamedTuple):
    """The outcome of every question in the order asked, all of them in one line, and a line for each tag."""

    k: int
    outcomes: tuple[Outcome, ...]
    overall: Summary
    tags: Mapping[str, Summary]

    def values(self, metric: str) -> list[float]:
        """One metric of every question, in the order asked."""
        return [getattr(outcome, metric) for outcome in self.outcomes]

    def misses(self) -> list[Outcome]:
        """The outcomes without one relevant note."""
        return [outcome for outcome in self.outcomes if outcome.mrr == 0]


class Interval(NamedTuple):
    """A mean and the ends of its confidence interval."""

    mean: float
    low: float
    high: float


def evaluate(
    search: Callable[[str, int], Sequence[NotePath]],
    questions: Sequence[Question],
    k: int,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Ask every question for its best `k` notes and measure the rankings; ValueError without a question.

    The first question, and the first that isn't in ASCII, are asked once more than they count: models and dictionaries
    are loaded by then, and nothing is timed that happens once only.
    """
    if not questions:
        message = "there is no question to ask"
        raise ValueError(message)
    for kind in (questions, [question for question in questions if not question.query.isascii()]):
        if kind:
            search(kind[0].query, k)
    outcomes = []
    for done, question in enumerate(questions, start=1):
        started = time.perf_counter()
        found = search(question.query, k)
        outcomes.append(measure(question, found, k, took_ms=(time.perf_counter() - started) * 1000))
        if progress is not None:
            progress(done, len(questions))
    tags = dict.fromkeys(tag for question in questions for tag in question.tags)
    return Report(
        k,
        tuple(outcomes),
        _summary(outcomes),
        {tag: _summary([outcome for outcome in outcomes if tag in outcome.question.tags]) for tag in sorted(tags)},
    )


def measure(question: Question, ranking: Sequence[NotePath], k: int, *, took_ms: float = 0.0) -> Outcome:
    """Measure one ranking, cut at `k`.

    Recall: share of all relevant notes. MRR: reciprocal rank of the first. nDCG: gains are the grades, discounts
    log2(rank + 1), against the best order of all relevant notes. Success: whether the first note is relevant.
    """
    found = tuple(dict.fromkeys(ranking))[:k]
    grades = [max(0.0, question.relevance.get(path, 0.0)) for path in found]
    ideal = sorted((grade for grade in question.relevance.values() if grade > 0), reverse=True)
    right = [rank for rank, grade in enumerate(grades, start=1) if grade > 0]
    return Outcome(
        question,
        found,
        recall=len(right) / len(ideal) if ideal else 0.0,
        mrr=1 / right[0] if right else 0.0,
        ndcg=_gain(grades) / _gain(ideal[:k]) if ideal else 0.0,
        success=float(right[:1] == [1]),
        took_ms=took_ms,
    )


def paired_bootstrap(
    values: Sequence[float],
    others: Sequence[float],
    *,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    seed: int = 1,
) -> Interval:
    """Mean difference of two modes over the same questions, with the percentile interval of resampled questions.

    The same seed gives the same interval. ValueError for lists of different lengths, or empty ones.
    """
    import numpy as np  # noqa: PLC0415 - a tenth of a second

    if len(values) != len(others) or not values:
        message = "both modes need an outcome of every question"
        raise ValueError(message)
    differences = np.asarray(values, dtype=np.float64) - np.asarray(others, dtype=np.float64)
    count = len(differences)
    generator = np.random.default_rng(seed)
    means = []
    rows = max(1, _BATCH // count)
    for start in range(0, resamples, rows):
        drawn = generator.integers(0, count, size=(min(rows, resamples - start), count), dtype=np.int32)
        means.append(differences.take(drawn).mean(axis=1))
    low, high = np.quantile(np.concatenate(means), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(differences.mean()), float(low), float(high))


def _gain(grades: Sequence[float]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, start=1))


def _summary(outcomes: Sequence[Outcome]) -> Summary:
    count = len(outcomes)
    means = {metric: math.fsum(getattr(outcome, metric) for outcome in outcomes) / count for metric in METRICS}
    times = sorted(outcome.took_ms for outcome in outcomes)
    return Summary(count, **means, p50_ms=_percentile(times, 50), p95_ms=_percentile(times, 95))


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent of all don't exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
