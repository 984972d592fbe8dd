"""Properties that hold for every text."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from vault_lsp.core.model import Note, NotePath
from vault_lsp.core.parse import parse
from vault_lsp.core.text import Place, Text

PIECES = [
    *"[]()!#^`$%|\\<>*_~-=:\"'{}&/. \n\t1ax",
    *("[[", "]]", "![[", "](", "][", "]: ", "[^1]", "[^1]: ", "%%", "$$", "```\n", "~~~\n", "---\n", "===\n", "\n\n"),
    *("# ", "## ", "> ", "- ", "1. ", "- [ ] ", "    ", "| ", " |\n|--|\n", "\r\n", "\r", "\f", "\u2028", "\x85", "\0"),
    *(
        "é",
        "中",
        "。",
        "😀",
        "𠮷",
        "\u3000",
        "\ud800",
        "Fig",
        "[[Fig]]",
        "[[Fig#Peel|p]]",
        "[f](fig.md#p)",
        "[f]: fig.md\n",
    ),
    *("#tag", " ^id\n\n", "<!--", "-->", "<div>\n", "</div>\n", '<a id="x">', "{#id}", "&amp;", "%20", "https://x.y/"),
    *("title: x\n", "tags: [a]\n", "aliases: ", "{{x}}", 'x: "[[y]]"\n'),
]
texts = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
notes = (
    texts
    | texts.map(lambda body: f"---\n{body}")
    | st.tuples(texts, texts).map(lambda both: "---\n{}\n---\n{}".format(*both))
)


def read(source: str) -> Note:
    return parse(NotePath("a/Fig.md"), Text(source))


def cut(text: Text, place: Place) -> str:
    """The text of a place, which must be the same in all units and end before the line end."""
    spans = set()
    for point in place:
        assert 0 <= point.line < len(text.line_starts)
        line = text.line(point.line)
        before = line[: point.utf32]
        assert len(before) == point.utf32
        assert len(before.encode("utf-16-le", "surrogatepass")) // 2 == point.utf16
        assert len(before.encode("utf-8", "surrogatepass")) == point.utf8
        spans.add(text.line_starts[point.line] + point.utf32)
    assert place.start <= place.end
    return text.source[min(spans) : max(spans)]


def places(note: Note) -> list[Place]:
    found = [note.title_place]
    for group in (note.tags, note.headings, note.blocks, note.anchors, note.label_uses, note.problems):
        found += [item.place for item in group]
    for link in note.links:
        found += [link.place, link.target_place, link.subpath_place]
    for definition in note.definitions:
        found += [definition.place, definition.label_place]
    return found


@settings(max_examples=250)
@given(notes)
def test_every_place_lies_in_the_text_and_covers_what_it_names(source: str) -> None:
    text = Text(source)
    note = read(source)
    assert "unreadable-markdown" not in {problem.rule for problem in note.problems}
    for place in places(note):
        cut(text, place)
    for link in note.links:
        whole = cut(text, link.place)
        if link.kind != "frontmatter":
            assert re.match(r"!\[" if link.embed else r"\[", whole)
            assert whole.endswith(("]]", ")", "]"))
        if link.kind in {"wikilink", "markdown"}:
            assert cut(text, link.target_place) == link.target.replace("\ufffd", "\ud800")
            assert cut(text, link.subpath_place)[:1] in {"", "#"}
        if link.kind == "wikilink":
            assert not re.search(r"[\r\n]", whole)
    for block in note.blocks:
        assert cut(text, block.place) == f"^{block.id}"
    for heading in note.headings:
        assert not cut(text, heading.place).endswith(("\n", "\r"))
        assert "\n" not in heading.text
    for definition in note.definitions:
        assert re.match(r"\[.*\]\Z", cut(text, definition.label_place), re.DOTALL)
    for use in note.label_uses:
        assert re.match(r"\[.*\]\Z", cut(text, use.place), re.DOTALL)
    for tag in note.tags:
        assert cut(text, tag.place).removeprefix("#") == tag.name.replace("\ufffd", "\ud800")


@given(notes)
def test_the_same_text_gives_the_same_note(source: str) -> None:
    assert read(source) == read(source)


@given(texts)
def test_front_matter_moves_the_body_and_changes_nothing_in_it(body: str) -> None:
    if body.startswith("---"):
        return
    plain, moved = read(body), read(f"---\nx: 1\n---\n{body}")

    def facts(note: Note) -> object:
        return (
            [(link[:6], link.comment) for link in note.links],
            [tag.name for tag in note.tags],
            [(heading[:4], heading.linkable) for heading in note.headings],
            [block.id for block in note.blocks],
            [anchor.name for anchor in note.anchors],
            [definition[:2] for definition in note.definitions],
            [(use.label, use.defined) for use in note.label_uses],
        )

    assert facts(plain) == facts(moved)
    shifts = {
        after.start.line - before.start.line for before, after in zip(places(plain)[1:], places(moved)[1:], strict=True)
    }
    assert shifts <= {3}


@given(texts)
def test_the_kind_of_line_end_does_not_matter(body: str) -> None:
    source = re.sub(r"\r\n?", "\n", body)
    ours, windows = read(source), read(source.replace("\n", "\r\n"))
    assert [link[:5] for link in ours.links] == [
        (*link[:4], link.display and link.display.replace("\r\n", "\n")) for link in windows.links
    ]
    assert ours.tags == windows.tags
    assert ours.blocks == windows.blocks
    # A line end inside a code span is a space to the Markdown parser, or two.
    assert [(h.level, h.text.split(), h.place) for h in ours.headings] == [
        (h.level, h.text.split(), h.place) for h in windows.headings
    ]
