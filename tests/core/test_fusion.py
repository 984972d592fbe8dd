"""Fused rankings: sums of weighted reciprocal ranks, explained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_lsp.core.fusion import EXACT, K, Place, Ranked, boosted, fuse


def ranked(*documents: int) -> list[Ranked]:
    return [Ranked(document) for document in documents]


def test_documents_that_several_channels_rank_high_come_first() -> None:
    fused = fuse({"bm25": ranked(1, 2, 3), "title": ranked(3, 4)}, {"bm25": 1.0, "title": 1.5})
    assert [item.document for item in fused] == [3, 4, 1, 2]
    assert fused[0].channels == {"bm25": Place(3, 1.0), "title": Place(1, 1.5)}
    assert fused[0].score == pytest.approx(1 / (K + 3) + 1.5 / (K + 1))


def test_a_strong_first_hit_outweighs_a_weak_one() -> None:
    sure = [Ranked(1, 1.0), Ranked(2, 0.1)]
    fused = fuse({"bm25": sure, "vector": [Ranked(2, 0.5), Ranked(1, 0.5)]}, {})
    assert [item.document for item in fused] == [1, 2]
    assert fused[1].score == pytest.approx(0.1 / (K + 2) + 0.5 / (K + 1))


def test_exact_names_come_before_everything_and_their_score_says_so() -> None:
    fused = fuse({"bm25": ranked(1, 2), "title": ranked(*range(3, 60), 9)}, {"bm25": 1, "title": 0.01}, exact=[9])
    assert fused[0].document == 9
    assert EXACT in fused[0].channels
    assert fused[0].score > fused[1].score


def test_an_exact_name_that_no_channel_found_is_no_hit() -> None:
    assert fuse({"bm25": [], "title": []}, exact=[9]) == []


def test_a_channel_without_weight_finds_nothing() -> None:
    assert fuse({"bm25": ranked(1)}, {"bm25": 0.0}) == []
    assert fuse({}) == []


def test_a_repeated_document_counts_once_where_it_stands_first() -> None:
    assert [item.channels["bm25"].rank for item in fuse({"bm25": ranked(5, 5, 6)})] == [1, 2]


def test_factors_change_the_order_but_never_that_of_exact_names() -> None:
    fused = fuse({"bm25": ranked(1, 2, 3)}, exact=[3])
    after = boosted(fused, {2: {"area": 1.5, "recency": 1.0}, 1: {"phrase": 1.2}})
    assert [item.document for item in after] == [3, 2, 1]
    assert after[1].factors == {"area": 1.5}
    assert after[1].score == pytest.approx(1.5 / (K + 2))


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 20)), min_size=1))
def test_scores_fall_and_no_document_is_lost(channels: dict[str, list[int]]) -> None:
    fused = fuse({name: ranked(*documents) for name, documents in channels.items()})
    assert {item.document for item in fused} == {document for ranking in channels.values() for document in ranking}
    assert [item.score for item in fused] == sorted((item.score for item in fused), reverse=True)
