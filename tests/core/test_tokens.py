"""What is indexed is found, and nothing that is typed is syntax. FTS5 itself judges."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vault_lsp.core.fold import bare, fold
from vault_lsp.core.tokens import Mode, index_terms, match_expression, query_terms


class Notes:
    """Texts in a full-text index like the real one."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.connection = apsw.Connection(":memory:")
        self.connection.execute(
            "CREATE VIRTUAL TABLE fts USING fts5(words, bigrams, content='', contentless_delete=1,"
            " tokenize='unicode61 remove_diacritics 2')"
        ).fetchall()
        for number, text in enumerate(texts):
            self.connection.execute(
                "INSERT INTO fts(rowid, words, bigrams) VALUES (?, ?, ?)", (number, *index_terms(text))
            ).fetchall()

    def find(self, query: str, mode: Mode = "any") -> list[int]:
        expression = match_expression(query_terms(query), mode)
        if expression is None:
            return []
        rows = self.connection.execute("SELECT rowid FROM fts WHERE fts MATCH ? ORDER BY rank", (expression,))
        return [row for (row,) in rows]


def found(text: str, query: str, mode: Mode = "any") -> bool:
    return Notes([text]).find(query, mode) == [0]


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("the tool-chain of C++ and C#, on .NET", ["tool-chain", "chain", "C++", "c++", "C#", ".NET", "csharp", "net"]),
        ("don't panic at 20.04 or node.js", ["don't", "don\u2019t", "20.04", "node.js", "NODE.JS", "panic"]),
        (
            "def read_file_twice(httpServer): XMLHttpRequest",
            ["read_file_twice", "file", "http", "server", "xml", "httpserver"],
        ),
        ("Café résumé naïve Ångström Straße", ["cafe", "CAFÉ", "resume", "naive", "angstrom", "strasse", "Straße"]),
        ("Cafe\u0301 in two pieces", ["café", "cafe"]),
        ("园艺修剪指南，果树冬天修剪。", ["修剪", "果树", "园艺修剪指南", "剪指", "冬", "南", "剪"]),
        ("步骤三重跑gen-itgc后50条清零", ["gen-itgc", "itgc", "gen", "50", "清零", "重跑"]),
        ("パーカーを着る。ガイドブック", ["パーカー", "ガイド", "着る", "ブック", "ｶﾞｲﾄﾞ", "カ\u3099イト\u3099"]),
        ("Pythonを使う、C言語も", ["python", "使う", "C", "言語"]),
        ("오늘 끝말잇기 게임을 했다. AI를 배운다", ["끝말잇기", "게임", "잇기", "AI", "배운"]),
        (unicodedata.normalize("NFD", "한글 노트와 バカ"), ["한글", "노트", "バカ"]),
        ("ＡＢＣ１２３の型番、ﾊﾝｶｸ", ["ABC123", "ＡＢＣ１２３", "ハンカク", "型番"]),
        ("𠮷野家と𪚥", ["𠮷野家", "𪚥", "野家"]),
        ("Сегодня ёлка и Москва", ["москва", "МОСКВА", "Ёлка"]),
        ("ภาษาไทยง่ายมาก", ["ภาษา", "ไทย", "ง่าย"]),
        ("हिन्दी में लिखना", ["हिन्दी", "लिखना"]),
        ("اللُّغَةُ العربية", ["اللغة", "العربية"]),
        ("שָׁלוֹם עולם", ["שלום", "עולם"]),
        (
            "party 🎉 time 👍🏽, flag 🇯🇵🇫🇷, family 👨\u200d👩\u200d👧",
            ["🎉", "👍", "👍🏿", "🇫🇷", "👨\u200d👩\u200d👧", "👩"],
        ),
        ("❤️ and ☎ cost 5 € ± 1 →→→ ok", ["❤", "❤️", "☎", "€", "±", "→"]),
        ("soft\u00adhyphen zero\u200bwidth non\u200cjoiner", ["softhyphen", "width", "nonjoiner"]),
        ("ﬁnd ligatures, H₂O and x²", ["find", "h2o", "x2"]),
        ("noncharacters \ufffe\uffff pass", ["noncharacters", "pass"]),
        ("nul\x00and bell\x07here \ud83d half", ["nul", "here", "half"]),
    ],
)
def test_a_word_of_the_text_is_found_however_it_is_written(text: str, queries: list[str]) -> None:
    notes = Notes([text])
    assert [query for query in queries if notes.find(query) != [0]] == []


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("バカな話", ["ハカ", "パカ"]),
        ("ハカの話", ["バカ"]),
        ("हिन्दी", ["हन", "हिन्दू"]),
        ("plain zebra", ["%", "_", "*", "100%", "OR 1=1", '"', "()", "^", "zeb"]),
        ("part of a 20 year plan, 04 done", ["20.04"]),
        ("flag 🇯🇵🇫🇷", ["🇵🇫"]),
        ("一二。三四", ["二三"]),
    ],
)
def test_what_the_text_does_not_say_is_not_found(text: str, queries: list[str]) -> None:
    notes = Notes([text])
    assert [query for query in queries if notes.find(query)] == []


def test_a_sign_behind_a_name_prefers_the_notes_that_have_it() -> None:
    notes = Notes(["vitamin c c c c and calcium", "a C++ primer", "C# in depth", "none"])
    assert notes.find("C++")[0] == 1
    assert notes.find("C#")[0] == 2
    assert notes.find("C++", "all") == [1]


def test_stop_words_count_only_where_there_is_nothing_else() -> None:
    notes = Notes(["the and of", "fig", "这 是 什么", "快速排序"])
    assert notes.find("the fig") == [1]
    assert notes.find("the") == [0]
    assert notes.find("什么是快速排序") == [3]
    assert notes.find("什么") == [2]


def test_modes_differ_in_what_they_ask_for() -> None:
    notes = Notes(["fig pruning guide", "guide to the fig", "pruned figs"])
    assert sorted(notes.find("fig guide", "any")) == [0, 1]
    assert sorted(notes.find("guide fig", "all")) == [0, 1]
    assert notes.find("fig pruning", "phrase") == [0]
    assert sorted(notes.find("prun fig", "prefix")) == [0, 1, 2]


SYNTAX = [
    "AND", "foo AND", "NOT x", "a OR", "NEAR(", "NEAR(a b, 2)", "*", "a*", "^", "^a", "(foo", ")", '"', '"open', '""',
    "''", "foo:bar", "{words}:x", "words:x", "-foo", "--flag", "+", "a + b", "; DROP TABLE fts;--", "' OR 1=1 --", "\\",
    "`x`", "[[Target]]", "#tag", "%", "_", "100%", "?", ":", ",", "\x00", "\ud800", "\U0010ffff", "\ue000", "\u0301",
    "🏽", "🇯", "", " ", "\u3000", "#" * 5000, "a " * 5000, "字" * 5000, "a-" * 5000, '"' * 999, "\u0e31", "\u3099",
    "\U000f3099",
]  # fmt: skip


@pytest.mark.parametrize("mode", ["any", "all", "phrase", "prefix"])
def test_syntax_is_text_in_every_mode(mode: Mode) -> None:
    notes = Notes(["foo AND bar", "zebra"])
    for query in SYNTAX:
        notes.find(query, mode)
    assert notes.find("zebra", mode) == [1]


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40), st.sampled_from(["any", "all", "phrase", "prefix"]))
def test_any_text_is_indexed_and_found_again_by_itself(text: str, mode: Mode) -> None:
    notes = Notes(["zebra", text])
    hits = notes.find(text, mode)
    assert 1 in hits if query_terms(text) else hits == []


CJK = st.text(alphabet="果树修剪指南冬天的园艺カガバハーきぎ한글노트", min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(CJK, st.data())
def test_every_substring_of_a_run_is_found(run: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(run) - 1))
    end = data.draw(st.integers(start + 1, len(run)))
    assert found(f"abc {run}，x", run[start:end], "phrase")


@settings(max_examples=150, deadline=None)
@given(CJK, CJK)
def test_a_run_is_found_as_a_phrase_only_where_it_stands(run: str, other: str) -> None:
    assert found(other, run, "phrase") == (run in other)


def test_symbols_and_marks_never_fall_silent() -> None:
    characters = [chr(code) for code in range(0x80, sys.maxunicode + 1)]
    silent = [
        f"{ord(character):x}"
        for character in characters
        if unicodedata.category(character) in ("So", "Sm", "Sc")
        and not unicodedata.normalize("NFKC", character).isascii()
        and not query_terms(character)
    ]
    assert silent == []
    torn = [
        f"{ord(character):x}"
        for character in characters
        if unicodedata.category(character) in ("Mn", "Me", "Mc") and len(fold(f"क{character}क").split()) != 1
    ]
    assert torn == []


def test_bare_text_has_neither_case_nor_accents() -> None:
    assert bare("Ångström CAFÉ Ｗide") == "angstrom cafe wide"
    assert bare("ガイド 한글") == "ガイド 한글"


@pytest.mark.parametrize(
    "unit", ["a", "aB", "a_", "字", "字a", "か", "🎉", "👨\u200d", "\u0301", "C++", ".a", "\u0e31", "-", "\n", "🇯"]
)
def test_time_is_linear_in_a_monotonous_text(unit: str) -> None:
    text = unit * (300_000 // len(unit))
    index_terms(text)
    query_terms(text)
