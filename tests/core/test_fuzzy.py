"""Names are found by their parts and initials."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_lsp.core.fuzzy import Folded, best, score


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("fgpg", "Fig Pruning Guide"),
        ("FPG", "Fig Pruning Guide"),
        ("prun", "Fig Pruning Guide"),
        ("guide fig", "Fig Pruning Guide"),
        ("figgde", "Fig Pruning Guide"),
        ("cafe", "Café au lait"),
        ("CAFÉ", "cafe"),
        ("ＡＢＣ", "abc"),
        ("rft", "readFileTwice"),
        ("快排", "快速排序"),
        ("排序 快速", "快速排序"),
        ("バカ", "ハ\u3099カ"),
        ("한글", "\u1112\u1161\u11ab\u1100\u1173\u11af 노트"),
        ("c++", "Notes on C++"),
        ("´", "´"),
        (".*", "glob .* pattern"),
        ("🚀", "🚀 launch"),
    ],
)
def test_a_name_matches_by_its_letters_in_order(query: str, name: str) -> None:
    assert score(query, name) is not None
    assert [match.position for match in best(query, Folded(["zzz", name]), 5)] == [1]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("gpgf", "Fig Pruning Guide"),
        ("figx", "Fig Pruning Guide"),
        ("バカ", "ハカ"),
        ("", "Fig"),
        ("  ", "Fig"),
        ("a", ""),
        ("pgmg", "programming"),
        ("fig fog", "Fig"),
    ],
)
def test_letters_out_of_order_or_scattered_do_not_match(query: str, name: str) -> None:
    assert score(query, name) is None
    assert best(query, Folded([name]), 5) == []


def test_closer_matches_come_first() -> None:
    names = ["Config file", "a guide to figs", "Fig pruning", "fine grafting", "fig", "Big fig"]
    found = [names[match.position] for match in best("fig", Folded(names), 10)]
    assert found == ["fig", "Fig pruning", "Big fig", "a guide to figs", "Config file", "fine grafting"]
    assert best("fig", Folded(names), 1)[0].position == 4


@given(st.text(max_size=8), st.lists(st.text(max_size=12), max_size=8))
def test_any_text_is_a_query_and_best_agrees_with_score(query: str, names: list[str]) -> None:
    matches = best(query, Folded(names), 100)
    assert {match.position for match in matches} <= {
        n for n, name in enumerate(names) if score(query, name) is not None
    }
    assert all(match.score == score(query, names[match.position]) for match in matches)
    assert all(0 < match.score <= 1 for match in matches)


@given(st.text(min_size=1).filter(str.strip))
def test_a_name_matches_itself_best(name: str) -> None:
    assert best(name, Folded(["zzz" + name + "zzz", name]), 1)[0].position == 1


def test_many_names_are_searched_quickly() -> None:
    names = Folded(
        [f"Notes on {topic} number {index}" for index in range(2000) for topic in ("figs", "plum trees", "学习")]
    )
    for query in ("n", "notes", "nof", "plum 19", "zzzz", "习1", "e" * 50):
        start = time.process_time()
        best(query, names, 50)
        assert time.process_time() - start < 0.5
