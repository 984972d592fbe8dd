"""Snippets show the matches, on one line, without torn characters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vault_lsp.core.snippet import snippet
from vault_lsp.core.tokens import query_terms

FILLER = "Nothing of note stands here, only words that fill the page. "


def show(text: str, query: str, width: int = 60) -> str:
    return snippet(text, query_terms(query), width)


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("winter", "winter"),
        ("WINTER pruning", "pruned in winter"),
        ("cafe", "Café"),
        ("适者生存", "即适者生存的道理"),
        ("生存", "适者生存"),
        ("ABC", "ＡＢＣ"),
        ("ハンカク", "ﾊﾝｶｸ"),
        ("ガイド", "カ\u3099イト\u3099"),
        ("끝말", "끝말잇기를"),
        ("🎉", "🎉"),
        ("the winter", "in winter"),
    ],
)
def test_the_window_lies_round_the_match(query: str, shown: str) -> None:
    text = FILLER * 5 + f"\n\n- {shown} -\n" + FILLER * 5
    line = show(text, query)
    assert shown in line
    assert len(line) <= 60
    assert line[0] == line[-1] == "…"
    assert "\n" not in line


def test_the_window_with_more_of_the_query_wins() -> None:
    text = "fig " + FILLER * 3 + "a fig is pruned in winter. " + FILLER * 3
    assert "fig is pruned in winter" in show(text, "fig pruned winter")


def test_a_short_text_is_shown_whole_and_without_control_characters() -> None:
    assert show("# Fig\n\n\tSweet.\x1b[31m \u202e\n", "fig") == "# Fig Sweet. [31m"
    assert show("", "fig") == ""


def test_without_a_match_the_beginning_is_shown() -> None:
    assert show(FILLER * 5, "xyz").startswith("Nothing of note")


def test_characters_are_not_torn() -> None:
    family = "👨\u200d👩\u200d👧"
    line = show(family * 20 + "fig" + family * 20, "fig", 30).strip("…")
    assert not line.startswith(("\u200d", "👩", "👧"))
    assert not line.endswith("\u200d")
    for query in ("fig", "zzz"):
        line = show("🇯🇵" * 40 + "fig" + "🇯🇵" * 40, query, 31).strip("…")
        assert line.replace("🇯🇵", "") in ("", "fig")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300), st.text(max_size=10), st.integers(10, 80))
def test_any_text_gives_one_short_line(text: str, query: str, width: int) -> None:
    line = show(text, query, width)
    assert len(line) <= width
    assert len(line.splitlines()) <= 1
