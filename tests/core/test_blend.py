"""The order after a reranker: mixed by the rank before it, certain names first, nothing lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_lsp.core.blend import Blended, blend


def ranking(*scores: float) -> list[tuple[int, float]]:
    """Documents 1, 2, 3, … with these scores."""
    return list(enumerate(scores, start=1))


def documents(blended: Sequence[Blended]) -> list[int]:
    return [item.document for item in blended]


def test_without_a_title_hit_the_reranker_decides_alone() -> None:
    blended = blend(ranking(0.05, 0.04, 0.03), [0.1, 0.2, 0.9], title_best=None)
    assert documents(blended) == [3, 2, 1]
    assert [item.score for item in blended] == [0.9, 0.2, 0.1]
    assert {item.share for item in blended} == {0.0}


def test_a_title_hit_among_the_candidates_makes_the_first_stage_count() -> None:
    before = ranking(0.05, 0.04, 0.03)
    assert documents(blend(before, [0.4, 0.5, 0.6], title_best=2)) == [1, 2, 3]
    assert documents(blend(before, [0.4, 0.5, 0.6], title_best=None)) == [3, 2, 1]


def test_a_title_hit_that_the_reranker_did_not_read_does_not_count() -> None:
    blended = blend(ranking(0.05, 0.04, 0.03, 0.02), [0.1, 0.2], title_best=4)
    assert documents(blended) == [2, 1, 3, 4]
    assert blended[0].share == 0.0


def test_the_share_of_the_first_stage_falls_with_its_rank() -> None:
    blended = blend(ranking(*range(12, 0, -1)), [0.5] * 12, title_best=1)
    shares = {item.document: item.share for item in blended}
    assert [shares[rank] for rank in range(1, 13)] == [0.6] * 3 + [0.5] * 7 + [0.4] * 2


def test_every_number_of_a_blend_is_told() -> None:
    first, second, third, rest = blend(ranking(0.050, 0.035, 0.030, 0.010), [0.2, 0.6, 0.1], title_best=1)
    assert first == Blended(1, pytest.approx(0.6 * 1.0 + 0.4 * 0.2), 1.0, 0.2, 0.6)
    assert second == Blended(2, pytest.approx(0.6 * 0.25 + 0.4 * 0.6), pytest.approx(0.25), 0.6, 0.6)
    assert third == Blended(3, pytest.approx(0.4 * 0.1), 0.0, 0.1, 0.6)
    assert rest == Blended(4, 0.0, None, None, None)


@pytest.mark.parametrize("title_best", [None, 1])
def test_an_exact_name_stays_first_whatever_the_reranker_says(title_best: int | None) -> None:
    assert documents(blend(ranking(0.01, 0.05, 0.04), [0.0, 1.0, 0.9], title_best, exact=[1])) == [1, 2, 3]


def test_the_score_of_an_exact_name_does_not_weaken_the_first_stage_among_the_others() -> None:
    others = [(2, 0.05), (3, 0.04), (4, 0.03)]
    alone = blend(others, [0.3, 0.4, 0.5], title_best=2)
    beside = blend([(1, 9.0), *others], [0.0, 0.3, 0.4, 0.5], title_best=2, exact=[1])
    assert [item.first for item in beside[1:]] == [item.first for item in alone]


def test_an_exact_name_that_was_not_read_comes_before_those_that_were() -> None:
    assert documents(blend(ranking(0.05, 0.04, 0.03), [0.9, 0.8], None, exact=[3])) == [3, 1, 2]


def test_equal_scores_of_the_first_stage_leave_the_choice_to_the_reranker() -> None:
    assert documents(blend(ranking(0.02, 0.02, 0.02), [0.1, 0.3, 0.2], title_best=1)) == [2, 3, 1]


def test_nothing_to_blend_changes_nothing() -> None:
    assert blend([], [], None) == []
    assert documents(blend(ranking(0.05, 0.04), [], title_best=1)) == [1, 2]
    assert documents(blend(ranking(0.05), [0.5, 0.7], title_best=1)) == [1]


unit = st.floats(0, 1, allow_nan=False)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[tuple[int, float]], list[float], int | None, set[int]]:
    """A ranking, best first but for exact documents at its head, with scores for some of the first documents."""
    fused = sorted(draw(st.lists(unit, max_size=25)), reverse=True)
    numbers = draw(st.permutations(range(len(fused))))
    exact = set(draw(st.lists(st.sampled_from(numbers), max_size=3))) if numbers else set()
    ranked = sorted(zip(numbers, fused, strict=True), key=lambda item: item[0] not in exact)
    scores = draw(st.lists(unit, max_size=len(ranked)))
    return ranked, scores, draw(st.sampled_from([None, *numbers])), exact


@given(cases())
def test_no_document_is_lost_and_the_unread_keep_their_order(
    case: tuple[list[tuple[int, float]], list[float], int | None, set[int]],
) -> None:
    ranked, scores, title_best, exact = case
    blended = blend(ranked, scores, title_best, exact)
    before = [document for document, _ in ranked]
    assert sorted(documents(blended)) == sorted(before)
    assert [item.document for item in blended if item.rerank is None] == before[len(scores) :]
    certain = [item.document in exact for item in blended]
    assert certain == sorted(certain, reverse=True)
    for group in (True, False):
        falling = [item.score for item in blended if (item.document in exact) is group]
        assert falling == sorted(falling, reverse=True)
        assert all(0 <= score <= 1 for score in falling)


@given(cases(), st.data())
def test_a_better_score_never_lowers_a_document(
    case: tuple[list[tuple[int, float]], list[float], int | None, set[int]], data: st.DataObject
) -> None:
    ranked, scores, title_best, exact = case
    if not scores:
        return
    at = data.draw(st.integers(0, len(scores) - 1))
    raised = [*scores[:at], data.draw(st.floats(scores[at], 1)), *scores[at + 1 :]]
    document = ranked[at][0]
    old, new = (documents(blend(ranked, each, title_best, exact)).index(document) for each in (scores, raised))
    assert new <= old


@given(cases())
def test_a_reranker_that_finds_nothing_leaves_the_order(
    case: tuple[list[tuple[int, float]], list[float], int | None, set[int]],
) -> None:
    ranked, scores, title_best, exact = case
    blended = blend(ranked, [0.0] * len(scores), title_best, exact)
    assert documents(blended) == [document for document, _ in ranked]
