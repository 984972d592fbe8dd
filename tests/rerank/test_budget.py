"""Reranking within a time budget: all scores in time, or none and the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_lsp.errors import Cancelled
from vault_lsp.rerank import rerank


class Timed:
    """Scores a passage by its length, on a clock that the work itself moves."""

    name = "timed"

    def __init__(self, ms_per_passage: float, answer: Callable[[list[float]], list[float]] = list) -> None:
        self.now = 100.0
        self.batches: list[int] = []
        self._cost = ms_per_passage / 1000
        self._answer = answer

    def clock(self) -> float:
        return self.now

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        assert query == "query"
        self.now += self._cost * len(passages)
        self.batches.append(len(passages))
        return self._answer([len(passage) / 1000 for passage in passages])

    def read(self, passages: Sequence[str], budget_ms: float) -> tuple[list[float] | None, list[str]]:
        """The scores, and what was reported."""
        said: list[str] = []
        return rerank(self, "query", passages, budget_ms=budget_ms, clock=self.clock, report=said.append), said


def texts(count: int) -> list[str]:
    return ["x" * (100 + number) for number in range(count)]


def test_every_passage_gets_its_score_in_order() -> None:
    model = Timed(10)
    scores, said = model.read(texts(20), 1500)
    assert scores == [(100 + number) / 1000 for number in range(20)]
    assert said == []
    assert sum(model.batches) == 20
    assert max(model.batches) <= 8


def test_the_first_batch_is_one_passage_so_that_little_is_risked() -> None:
    model = Timed(400)
    assert model.read(texts(20), 1500)[0] is None
    assert model.batches == [1]


def test_what_is_far_from_fitting_is_given_up_at_once() -> None:
    model = Timed(100)
    assert model.read(texts(60), 1500)[0] is None
    assert model.batches == [1]


def test_a_budget_that_runs_out_gives_no_scores_and_the_reason() -> None:
    model = Timed(100)
    scores, said = model.read(texts(20), 1500)
    assert scores is None
    assert said == ["timed read 13 of 20 passages in 1300 ms; all of them don't fit into rerank.budget_ms, 1500"]


def test_a_slow_start_alone_does_not_end_the_reading() -> None:
    model = Timed(20)
    answer = model.scores

    def slow_at_first(query: str, passages: Sequence[str]) -> list[float]:
        model.now += 0.1 if not model.batches else 0.0
        return answer(query, passages)

    model.scores = slow_at_first  # type: ignore[method-assign]
    assert model.read(texts(20), 1500)[0] is not None


def test_no_passage_needs_no_time() -> None:
    model = Timed(1000)
    assert model.read([], 1) == ([], [])
    assert model.batches == []


@given(st.floats(0.1, 300), st.integers(0, 30), st.integers(1, 3000))
def test_of_equal_passages_only_the_first_can_pass_the_budget(cost: float, count: int, budget: int) -> None:
    model = Timed(cost)
    scores, said = model.read(["same"] * count, budget)
    spent = (model.now - 100) * 1000
    assert spent <= max(budget, cost) + 1e-6
    assert (scores is None) == bool(said)
    if scores is not None:
        assert len(scores) == count


@given(st.integers(1, 30), st.integers(1, 3000))
def test_what_fits_twice_is_always_read(count: int, budget: int) -> None:
    model = Timed(budget / count / 2)
    assert model.read(["same"] * count, budget)[0] is not None


@pytest.mark.parametrize(
    "answer",
    [
        lambda scores: [math.nan, *scores[1:]],
        lambda scores: [*scores[:-1], math.inf],
        lambda scores: scores[1:],
        lambda scores: [*scores, 0.5],
    ],
    ids=["not a number", "infinite", "too few", "too many"],
)
def test_scores_that_are_none_are_not_used(answer: Callable[[list[float]], list[float]]) -> None:
    scores, said = Timed(1, answer).read(texts(5), 1500)
    assert scores is None
    assert said == ["timed gave no usable score"]


def test_a_model_that_fails_costs_no_search() -> None:
    def fail(_: list[float]) -> list[float]:
        raise RuntimeError("out of memory\n  at " + "x" * 1000)

    scores, said = Timed(1, fail).read(texts(5), 1500)
    assert scores is None
    assert said[0].startswith("timed failed: out of memory at xxx")
    assert len(said[0]) < 250


def test_the_reason_goes_to_the_log_where_nobody_asks_for_it(caplog: pytest.LogCaptureFixture) -> None:
    model = Timed(5000)
    assert rerank(model, "query", texts(9), budget_ms=1000, clock=model.clock) is None
    assert ["read 1 of 9 passages" in record.getMessage() for record in caplog.records] == [True]


def test_a_cancelled_search_reads_no_further() -> None:
    model = Timed(1)
    with pytest.raises(Cancelled):
        rerank(model, "query", texts(20), budget_ms=1500, clock=model.clock, cancelled=lambda: len(model.batches) >= 2)
    assert len(model.batches) == 2
