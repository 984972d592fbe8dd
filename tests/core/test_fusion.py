"""Fused rankings: sums of weighted reciprocal ranks, explained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_lsp.core.fusion import K, Place, fuse


def test_documents_that_several_channels_rank_high_come_first() -> None:
    fused = fuse({"bm25": [1, 2, 3], "title": [3, 4]}, {"bm25": 1.0, "title": 1.5})
    assert [item.document for item in fused] == [3, 4, 1, 2]
    assert fused[0].channels == {"bm25": Place(3, 1.0), "title": Place(1, 1.5)}
    assert fused[0].score == pytest.approx(1 / (K + 3) + 1.5 / (K + 1))


def test_exact_names_come_before_everything() -> None:
    assert [item.document for item in fuse({"bm25": [1, 2], "title": [9]}, {"title": 0.01}, exact=[9])] == [9, 1, 2]


def test_a_channel_without_weight_finds_nothing() -> None:
    assert fuse({"bm25": [1]}, {"bm25": 0.0}) == []
    assert fuse({}) == []


def test_a_repeated_document_counts_once_where_it_stands_first() -> None:
    assert [item.channels["bm25"].rank for item in fuse({"bm25": [5, 5, 6]})] == [1, 2]


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 20)), min_size=1))
def test_scores_fall_and_no_document_is_lost(channels: dict[str, list[int]]) -> None:
    fused = fuse(channels)
    assert {item.document for item in fused} == {document for ranking in channels.values() for document in ranking}
    assert [item.score for item in fused] == sorted((item.score for item in fused), reverse=True)
