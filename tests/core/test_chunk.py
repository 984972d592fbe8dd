"""Chunks hold the whole body, know their place, and change only near an edit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vault_lsp.core.chunk import LIMIT, chunks, passage, property_text
from vault_lsp.core.model import Chunk, Heading, Note, NotePath
from vault_lsp.core.text import Span, Text

_HEADING = re.compile(r"^(#{1,6}) ([^\r\n]*)", re.MULTILINE)


def cut(
    source: str, frontmatter: Mapping[str, object] | None = None, *, unlinkable: tuple[str, ...] = ()
) -> tuple[Chunk, ...]:
    """Chunks of a note whose headings are its lines with number signs."""
    text = Text(source)
    headings = tuple(
        Heading(len(match[1]), match[2], match[2], "", text.place(Span(*match.span())), match[2] not in unlinkable)
        for match in _HEADING.finditer(source)
    )
    start = text.place(Span(0, 0))
    return chunks(Note(NotePath("a.md"), "a", start, headings=headings, frontmatter=frontmatter), text)


def paragraph(number: int, words: int = 40) -> str:
    return " ".join(f"word{number}x{index}" for index in range(words))


def test_a_short_note_is_one_chunk_under_what_its_sections_share() -> None:
    (chunk,) = cut("# Fig\n\nSweet.\n\n## Pulp\nRed.\n\n## Peel\nThin.\n\n\n")
    assert chunk[:4] == (0, ("Fig",), 0, 8)
    assert chunk.text == "# Fig\n\nSweet.\n\n## Pulp\nRed.\n\n## Peel\nThin."
    assert chunk.sha == sha256(passage("a", chunk.heading_path, chunk.text).encode()).hexdigest()


def test_sections_that_do_not_fit_together_are_cut_at_headings() -> None:
    body = "\n\n".join(paragraph(number) for number in range(3))
    found = cut(f"# T\n\nintro\n\n## A\n\n{body}\n\n## B\n\n{body}\n\n### C\n\n{body}\n")
    assert [(chunk.heading_path, chunk.text.split("\n")[0]) for chunk in found] == [
        (("T",), "# T"),
        (("T", "B"), "## B"),
        (("T", "B", "C"), "### C"),
    ]


def test_headings_that_no_link_reaches_are_not_in_the_path() -> None:
    (chunk,) = cut("# Quoted\ntext", unlinkable=("Quoted",))
    assert chunk.heading_path == ()


def test_a_long_section_is_cut_after_paragraphs() -> None:
    paragraphs = [paragraph(number) for number in range(20)]
    found = cut("# T\n\n" + "\n\n".join(paragraphs))
    assert len(found) > 3
    assert all(chunk.heading_path == ("T",) for chunk in found)
    assert "\n\n".join(chunk.text for chunk in found) == "# T\n\n" + "\n\n".join(paragraphs)


def test_a_long_paragraph_is_cut_after_sentences() -> None:
    found = cut("果树要在冬天修剪，这样来年才会长得好。你知道吗？" * 100)
    assert len(found) > 3
    assert all(chunk.text[-1] in "。？" and len(chunk.text) <= LIMIT for chunk in found)
    found = cut("Prune the fig in winter, when it sleeps. Do you know why? " * 100)
    assert all(chunk.text[-1] in ".?" and len(chunk.text) <= 4 * LIMIT for chunk in found)


def test_code_is_cut_at_line_ends_and_only_when_it_must() -> None:
    code = "```py\n" + "\n\n".join(f"line_{index} = {index}" for index in range(20)) + "\n```"
    found = cut(f"{paragraph(1, 80)}\n\n{code}\n\n{paragraph(2, 80)}\n\n{code}\n\n{paragraph(3, 80)}")
    assert len(found) > 1
    assert all(chunk.text.count("```") % 2 == 0 for chunk in found)
    rows = [f"| cell {index} | {'x' * 60} |" for index in range(200)]
    found = cut("\n".join(rows))
    assert "\n".join(chunk.text for chunk in found).split("\n") == rows


def test_text_without_any_break_is_cut_at_the_limit() -> None:
    found = cut("x" * 10_000 + "\n")
    assert "".join(chunk.text for chunk in found) == "x" * 10_000
    assert {(chunk.line_start, chunk.line_end) for chunk in found} == {(0, 0)}
    family = "👨\u200d👩\u200d👧e\u0301"
    for chunk in cut(family * 2000):
        assert not chunk.text.startswith(("\u200d", "\u0301"))


@pytest.mark.parametrize("source", ["", "\n\n", " \t\r\n\u3000\n", "\r\r"])
def test_a_blank_note_has_no_chunk(source: str) -> None:
    assert cut(source) == ()


def test_front_matter_is_left_out_of_the_text_but_not_lost() -> None:
    source = "---\ntitle: T\nauthor: Ada\ntags: [a]\n---\nbody\n"
    values = {"title": "T", "author": "Ada", "tags": ["a"]}
    (chunk,) = cut(source, values)
    assert (chunk.text, chunk.line_start, chunk.line_end) == ("body", 5, 5)
    (chunk,) = cut(source.removesuffix("body\n"), values)
    assert (chunk.text, chunk.line_start, chunk.line_end) == ("Ada", 0, 4)
    assert cut("---\ntags: [a]\n---\n", {"tags": ["a"]}) == ()
    (chunk,) = cut("---\nnot closed", None)
    assert chunk.line_start == 0


def test_property_text_lists_nested_values_once() -> None:
    note = Note(
        NotePath("a.md"), "a", Text("").place(Span(0, 0)),
        frontmatter={"by": ["Ada", {"x": "Bo"}, "Ada"], "year": 1999, "done": True, "none": None, "Aliases": ["n"]},
    )  # fmt: skip
    assert property_text(note) == "Ada\nBo\n1999"


def test_line_ends_do_not_change_the_text() -> None:
    source = "# T\n\n" + "\n".join(paragraph(number, 10) for number in range(60))
    assert [chunk.sha for chunk in cut(source)] == [chunk.sha for chunk in cut(source.replace("\n", "\r\n"))]


LINES = st.lists(
    st.sampled_from(
        [
            "",
            " ",
            "# One",
            "## Two",
            "### Three",
            "text",
            paragraph(7, 9),
            paragraph(8, 90),
            "```",
            "果树。修剪" * 60,
            "| a | b |",
        ]
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]))
def test_every_line_that_is_not_blank_lies_in_a_chunk(lines: list[str], end: str) -> None:
    found = cut(end.join(lines))
    covered = {line for chunk in found for line in range(chunk.line_start, chunk.line_end + 1)}
    assert [number for number, line in enumerate(lines) if line.strip() and number not in covered] == []
    assert "".join("".join(chunk.text for chunk in found).split()) == "".join("".join(lines).split())
    assert [chunk.ordinal for chunk in found] == list(range(len(found)))
    assert all(chunk.text.strip() for chunk in found)


def test_an_edit_changes_only_chunks_near_it() -> None:
    def shas(sections: list[str]) -> set[str]:
        return {chunk.sha for chunk in cut("\n\n".join(sections))}

    sections = [f"## S{number}\n\n{paragraph(number, 60)}" for number in range(60)]
    before = shas(sections)
    changed = [
        len(shas([*sections[:edited], f"## S{edited}\n\n{paragraph(99, words)}", *sections[edited + 1 :]]) - before)
        for edited in range(0, 60, 7)
        for words in range(0, 200, 17)
    ]
    assert len(before) > 20
    assert sum(changed) / len(changed) < 4


def test_a_monotonous_note_takes_linear_time() -> None:
    for unit in ("\n", "# a\n", "```\n", "a", "字", "a\n\n", "\u0301", "|a|\n", "。"):
        cut(unit * (200_000 // len(unit)))
