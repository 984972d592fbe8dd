"""Definition and references: each test is a vault as one string, with the cursor at `$0`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import Cursor, write
from tests.support import vault as fixture
from vault_lsp.core.model import Found, Note, NotePath
from vault_lsp.core.text import Point
from vault_lsp.service import Vault
from vault_lsp.view import View


class Asked:
    """A vault with its cursor, and questions about it; places are given as `path:line`, with the text on request."""

    def __init__(self, vault: Vault, files: Mapping[str, str], cursor: Cursor | None) -> None:
        self.vault = vault
        self.files = dict(files)
        self.cursor = cursor
        self.open: dict[NotePath, Note] = {}

    def buffer(self, path: str, text: str) -> Asked:
        """Opens a text in place of the file."""
        self.files[path] = text
        self.open[NotePath(path)] = self.vault.parse(NotePath(path), text)
        return self

    def point(self) -> tuple[NotePath, Point]:
        assert self.cursor is not None
        path, line, column = self.cursor
        return NotePath(path), Point(line, column, column, column)

    def definition(self) -> list[str]:
        with self.vault.view(self.open) as view:
            return [f"{target.path}:{target.place.start.line}" for target in view.definition(*self.point())]

    def origin(self) -> list[str]:
        """The text under the cursor that the definition is of."""
        path, point = self.point()
        with self.vault.view(self.open) as view:
            return [self.text(path, target.origin) for target in view.definition(path, point)]

    def references(self, *, declaration: bool = False) -> list[str]:
        with self.vault.view(self.open) as view:
            found = view.references(*self.point(), declaration=declaration)
        assert len(set(found)) == len(found)
        return [f"{each.path}:{each.place.start.line}" for each in found]

    def referring(self) -> list[str]:
        """The texts of the references."""
        with self.vault.view(self.open) as view:
            found = view.references(*self.point(), declaration=False)
        return [self.text(each.path, each.place) for each in found]

    def text(self, path: str, place: object) -> str:
        lines = self.files[path].split("\n")
        start, end = place  # type: ignore[misc]
        if start.line == end.line:
            return lines[start.line][start.utf32 : end.utf32]
        return "\n".join(
            [lines[start.line][start.utf32 :], *lines[start.line + 1 : end.line], lines[end.line][: end.utf32]]
        )


Ask = Callable[[str], Asked]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Writes and indexes a vault that is given as one string."""
    monkeypatch.setenv("VAULT_LSP_INDEX_DIR", str(tmp_path / "index"))
    opened: list[Vault] = []

    def make(text: str) -> Asked:
        made = fixture(text)
        root = write(tmp_path / f"vault{len(opened)}", made.files)
        opened.append(Vault.open(root))
        opened[-1].reconcile()
        return Asked(opened[-1], made.files, made.cursor)

    yield make
    for vault in opened:
        vault.close()


# Definition -----------------------------------------------------------------------------------------------------------

#: Files that the links of the next test may lead to, followed by the note `log.md` with the cursor.
GARDEN = """=== beds/leek.md
# Leek

## Soil & Water

### Deep

## Soil & Water

- item ^it-1

text ^para-2
=== Café plan.md
---
aliases: [winter list, 冬单]
title: Plan
---
no heading
=== img/map.png
x
=== 菜园/计划 一.md
# 计划

## 二、浇水（必读）
=== C#.md
# Sharp
=== v1.2 notes.md
x
=== up/leek2.md
x
=== log.md
"""


@pytest.mark.parametrize(
    ("line", "target"),
    [
        # Wikilinks: name, path, extension, case, spaces, display, embeds, attachments.
        ("see [[le$0ek]] here", "beds/leek.md:0"),
        ("[[LEEK$0]]", "beds/leek.md:0"),
        ("[[leek.md$0]]", "beds/leek.md:0"),
        ("[[beds/leek$0]]", "beds/leek.md:0"),
        ("[[/beds/leek$0]]", "beds/leek.md:0"),
        ("[[./beds/leek$0]]", "beds/leek.md:0"),
        ("[[ leek $0]]", "beds/leek.md:0"),
        ("[[leek|the sho$0wn text]]", "beds/leek.md:0"),
        ("![[leek$0]]", "beds/leek.md:0"),
        ("![[map.png|20$00]]", "img/map.png:0"),
        ("[[map.png$0]]", "img/map.png:0"),
        ("[[Cafe\u0301 plan$0]]", "Café plan.md:0"),
        ("[[v1.2 notes$0]]", "v1.2 notes.md:0"),
        ("今天[[菜园/计划 一$0]]。", "菜园/计划 一.md:0"),
        ("😀😀[[leek$0]]", "beds/leek.md:0"),
        # Aliases.
        ("[[Winter List$0]]", "Café plan.md:0"),
        ("[[冬单$0|x]]", "Café plan.md:0"),
        # Headings and blocks.
        ("[[leek#Soil & Water$0]]", "beds/leek.md:2"),
        ("[[leek#soil water$0]]", "beds/leek.md:2"),
        ("[[leek#Soil & Water#Deep$0]]", "beds/leek.md:4"),
        ("[[leek#^it-1$0]]", "beds/leek.md:8"),
        ("[[leek#^PARA-2$0]]", "beds/leek.md:10"),
        ("[[leek#Gone$0]]", "beds/leek.md:0"),
        ("[[leek#$0]]", "beds/leek.md:0"),
        ("[[计划 一#二、浇水（必读）$0]]", "菜园/计划 一.md:2"),
        # Markdown links.
        ("[x](beds/le$0ek.md)", "beds/leek.md:0"),
        ("[te$0xt](beds/leek.md)", "beds/leek.md:0"),
        ("[x](./beds/leek.md$0)", "beds/leek.md:0"),
        ("[x](/beds/leek.md$0)", "beds/leek.md:0"),
        ("[x](leek$0)", "beds/leek.md:0"),
        ("[x](<Café plan.md$0>)", "Café plan.md:0"),
        ("[x](Caf%C3%A9%20plan.md$0)", "Café plan.md:0"),
        ("[x](C%23.md$0)", "C#.md:0"),
        ('[x](beds/leek.md#soil--water$0 "title")', "beds/leek.md:2"),
        ("[x](beds/leek.md#soil--water-1$0)", "beds/leek.md:6"),
        ("![pic](img/map.png$0)", "img/map.png:0"),
        ("[![pi$0c](img/map.png)](beds/leek.md)", "img/map.png:0"),
        ("[![pic](img/map.png)](beds/le$0ek.md)", "beds/leek.md:0"),
        ("| a |\n|---|\n| [[leek\\|L$0]] |", "beds/leek.md:0"),
        # Reference links, from either end.
        ("[tex$0t][Ref]\n\n[ref]: beds/leek.md", "beds/leek.md:0"),
        ("[ref$0][]\n\n[ref]: beds/leek.md#deep", "beds/leek.md:4"),
        ("[re$0f]\n\n[ref]: <Café plan.md> 'T'", "Café plan.md:0"),
        ("[ref]\n\n[re$0f]: beds/leek.md#Deep", "beds/leek.md:4"),
        ("[ref]: beds/le$0ek.md", "beds/leek.md:0"),
        ("[ref]: Caf%C3%A9%20plan.md$0", "Café plan.md:0"),
        ("[ref]: #He$0re\n\n## Here", "log.md:2"),
        # Inside the same note.
        ("[[#Here$0]]\n\n## Here", "log.md:2"),
        ("[x](#here$0)\n\n## Here", "log.md:2"),
        ("[[#^b$0]]\n\ntext ^b", "log.md:2"),
        ("[[log#Here$0]]\n\n## Here", "log.md:2"),
        # Footnotes, both ways.
        ("word[^1$0]\n\n[^1]: text", "log.md:2"),
        ("word\n\nmore[^n]\n\n[^n$0]: text", "log.md:2"),
        ("word[^1]\n\n[^1]: see [[leek$0]]", "beds/leek.md:0"),
        # Comments, lists, quotes, headings.
        ("%% [[leek$0]] %%", "beds/leek.md:0"),
        ("> - [ ] [[leek$0]]", "beds/leek.md:0"),
        ("# On [[leek$0]]", "beds/leek.md:0"),
        # Front matter.
        ('---\nup: "[[leek$0]]"\n---', "beds/leek.md:0"),
        ('---\nup:\n  - "[[winter list$0|w]]"\n---', "Café plan.md:0"),
    ],
)
def test_definition_leads_to(ask: Ask, line: str, target: str) -> None:
    assert ask(GARDEN + line).definition() == [target]


@pytest.mark.parametrize(
    "line",
    [
        *("plain $0text", "[[nowhere$0]]", "[[eek$0]]", "[[ds/leek$0]]", "[[../leek$0]]", "[[../../etc/passwd$0]]"),
        *("`[[leek$0]]`", "```\n[[leek$0]]\n```", "<!-- [[leek$0]] -->", "\\[[leek$0]]", "[x](beds/le ek.md$0)"),
        *("[x](https://example.org/leek.md$0)", "<https://example.org$0>", "[x](mailto:leek@example.org$0)"),
        *("[alone$0]", "[text][none$0]", "- [x$0] done", "[r]: https://example.org$0", "word[^9$0]", "#ta$0g"),
        *("## Hea$0ding", "text ^bl$0ock", "[[leek]] $0 [[leek]]", "[[a%20b$0]]", "$0", "[^1]: foot$0note\n\nuse[^1]"),
        "[[winter list/$0x]]",
    ],
)
def test_definition_of_anything_else_is_nothing(ask: Ask, line: str) -> None:
    assert ask(GARDEN + line).definition() == []


@pytest.mark.parametrize(
    ("line", "origin"),
    [
        ("x $0[[leek]] y", "[[leek]]"),
        ("x [[leek]]$0 y", "[[leek]]"),
        ("[[leek]]$0[[up/leek2]]", "[[up/leek2]]"),
        ("[[leek]$0][[up/leek2]]", "[[leek]]"),
        ("[[leek]][$0[up/leek2]]", "[[up/leek2]]"),
        ("[a](beds/leek.md)$0[b](up/leek2.md)", "[b](up/leek2.md)"),
        ("$0![[leek]]", "![[leek]]"),
        ("[a][r]$0\n\n[r]: beds/leek.md", "[a][r]"),
        ("x[^1$0]\n\n[^1]: y", "[^1]"),
    ],
)
def test_a_cursor_at_either_end_of_a_link_is_on_it(ask: Ask, line: str, origin: str) -> None:
    assert ask(GARDEN + line).origin() == [origin]


@pytest.mark.parametrize(
    ("files", "source", "target"),
    [
        (["Note.md", "z/Note.md", "a/b/Note.md"], "a/b/src.md", "Note.md"),
        (["z/Note.md", "a/b/Note.md", "b/Note.md"], "a/b/src.md", "a/b/Note.md"),
        (["zz/Note.md", "a/b/Note.md"], "src.md", "zz/Note.md"),
        (["b/Note.md", "a/Note.md"], "src.md", "a/Note.md"),
        (["x/note.md", "y/Note.md"], "src.md", "x/note.md"),
    ],
)
def test_of_several_notes_the_nearest_is_meant(ask: Ask, files: list[str], source: str, target: str) -> None:
    text = "".join(f"=== {file}\nx\n" for file in files) + f"=== {source}\n[[Note$0]]"
    assert ask(text).definition() == [f"{target}:0"]


# References -----------------------------------------------------------------------------------------------------------


def test_the_title_stands_for_the_note(ask: Ask) -> None:
    asked = ask(
        """=== leek.md
# Le$0ek
[[#Leek]] [[#Other]] [[leek]]
## Other
=== a.md
[[leek]] [[Leek#Leek]] [[leek#Other]]
=== b/c.md
[x](../leek.md) [y](/leek.md#leek) [[leek|L]] [z](https://example.org/leek.md)
"""
    )
    assert asked.references() == [
        "a.md:0",
        "a.md:0",
        "a.md:0",
        "b/c.md:0",
        "b/c.md:0",
        "b/c.md:0",
        "leek.md:1",
        "leek.md:1",
    ]
    assert asked.references(declaration=True)[0] == "leek.md:0"


@pytest.mark.parametrize(
    "note", ["---\ntitle: Le$0ek\n---\nbody\n", "---\naliases: [x]\ntitle: 'Leek$0'\n---\n## Sub\n", "Leek$0\n====\n"]
)
def test_a_title_that_is_no_first_level_heading_stands_for_the_note_too(ask: Ask, note: str) -> None:
    assert ask(f"=== leek.md\n{note}=== a.md\n[[leek]] [[x]]\n").references()[0] == "a.md:0"


def test_a_link_without_anchor_means_the_note_and_all_links_to_it(ask: Ask) -> None:
    asked = ask(
        """=== leek.md
x
=== a.md
[[le$0ek]] again [[leek]] [[leek#gone]]
=== b.md
[f](leek) [[garlic]]
"""
    )
    assert asked.references() == ["a.md:0", "a.md:0", "a.md:0", "b.md:0"]
    assert asked.references(declaration=True) == ["leek.md:0", "a.md:0", "a.md:0", "a.md:0", "b.md:0"]


def test_a_heading_has_the_links_to_it_alone(ask: Ask) -> None:
    asked = ask(
        """=== leek.md
# Leek
## So$0il
[[#Soil]] [x](#soil)
## Water
=== a.md
[[leek#Soil]] [[leek#Water]] [[leek]] [y](leek.md#soil) [[leek#Leek#Soil]]
=== m.md
## Soil
[[#Soil]]
"""
    )
    assert asked.referring() == ["[[leek#Soil]]", "[y](leek.md#soil)", "[[leek#Leek#Soil]]", "[[#Soil]]", "[x](#soil)"]
    assert asked.references(declaration=True)[0] == "leek.md:1"


def test_a_link_to_a_heading_has_the_references_of_the_heading(ask: Ask) -> None:
    asked = ask("=== leek.md\n# L\n## Soil\n[[#Soil]]\n=== a.md\n[[leek#So$0il]] [[leek]]\n=== b.md\n![[leek#soil]]\n")
    assert asked.references(declaration=True) == ["leek.md:1", "a.md:0", "b.md:0", "leek.md:2"]


@pytest.mark.parametrize("cursor", ["n.md", "a.md"])
def test_a_block_has_the_links_to_it(ask: Ask, cursor: str) -> None:
    mark = {"n.md": ("$0", ""), "a.md": ("", "$0")}[cursor]
    asked = ask(
        f"=== n.md\npara ^pa{mark[0]}r1\n\n[[#^par1]]\n=== a.md\n[[n#^par1{mark[1]}]] ![[n#^PAR1]] [[n]] [[n#^par12]]\n"
        "=== sub/m.md\n[[n#^par1|x]] [[#^par1]]\n"
    )
    assert asked.referring() == ["[[n#^par1]]", "![[n#^PAR1]]", "[[#^par1]]", "[[n#^par1|x]]"]
    assert asked.references(declaration=True)[0] == "n.md:0"


def test_names_that_lead_nowhere_have_references_too(ask: Ask) -> None:
    asked = ask("=== a.md\n[[not ye$0t]]\n=== b.md\n[[Not Yet|soon]] [[not yet#x]] [m](not%20yet.md) [[other]]\n")
    assert asked.references() == ["a.md:0", "b.md:0", "b.md:0", "b.md:0"]
    assert asked.references(declaration=True) == asked.references()


@pytest.mark.parametrize("cursor", [0, 1, 2, 3])
def test_labels_have_their_uses_in_the_note(ask: Ask, cursor: int) -> None:
    lines = ["[t][Lab]", "[lab] and [lab][]", "[LAB]: https://example.org", "[other]: x.md"]
    spots = ["[t][L", "[la", "[LA", "[oth"]
    lines[cursor] = spots[cursor] + "$0" + lines[cursor][len(spots[cursor]) :]
    asked = ask("=== n.md\n" + "\n\n".join(lines) + "\n=== m.md\n[lab]\n\n[lab]: https://example.org\n")
    if cursor == 3:
        assert asked.references() == []
        assert asked.references(declaration=True) == ["n.md:6"]
    else:
        assert asked.references() == ["n.md:0", "n.md:2", "n.md:2"]
        assert asked.references(declaration=True) == ["n.md:4", "n.md:0", "n.md:2", "n.md:2"]


@pytest.mark.parametrize("text", ["one[^a$0] two[^a] [^b]\n\n[^a]: note", "one[^a] two[^a] [^b]\n\n[^a$0]: note"])
def test_a_footnote_has_its_marks(ask: Ask, text: str) -> None:
    asked = ask(f"=== n.md\n{text}\n\n[^b]: other\n=== m.md\nx[^a]\n\n[^a]: y\n")
    assert asked.references() == ["n.md:0", "n.md:0"]
    assert asked.references(declaration=True) == ["n.md:2", "n.md:0", "n.md:0"]


def test_a_tag_has_all_its_places(ask: Ask) -> None:
    asked = ask("=== n.md\n#gar$0den and #garden/tree\n=== a.md\n---\ntags: [Garden, x]\n---\ntext #GARDEN #gardener\n")
    assert asked.references() == ["a.md:1", "a.md:3", "n.md:0"]


def test_links_through_an_alias_count_as_references_of_the_note(ask: Ask) -> None:
    asked = ask("=== leek.md\n---\naliases: [porree]\n---\n# Le$0ek\n=== a.md\n[[porree]] [[leek]] [p](porree)\n")
    assert asked.referring() == ["[[porree]]", "[[leek]]"]


def test_attachments_and_folders_have_references(ask: Ask) -> None:
    asked = ask("=== img/p.png\nx\n=== a.md\n![[p.png$0]] [i](img/)\n=== b.md\n![x](img/p.png) [[p]] [j](img)\n")
    assert asked.referring() == ["![[p.png]]", "![x](img/p.png)"]
    asked = ask("=== img/p.png\nx\n=== a.md\n![[p.png]] [i](im$0g/)\n=== b.md\n![x](img/p.png) [j](img)\n")
    assert asked.referring() == ["[i](img/)", "[j](img)"]


def test_names_full_of_odd_characters_have_references(ask: Ask) -> None:
    names = ["[odd](name)*", "fig+1", "a.b", "%_'\"", "50% (x) & y", "C++", "emoji 🌻", "$1"]
    for name in names:
        asked = ask(f"=== {name}.md\n# Ti$0tle\n=== x.md\n[[fig1]] [[aXb]] [[a]]\n=== b.md\n[y](<{name}.md>)\n")
        assert asked.references() == ["b.md:0"]


@pytest.mark.parametrize("text", ["[[leek]] $0plain", "$0", "```\n[[leek$0]]\n```", "text `[[le$0ek]]`"])
def test_plain_text_has_no_references(ask: Ask, text: str) -> None:
    asked = ask(f"=== leek.md\nx\n=== a.md\nfirst\n\n{text}\n")
    assert asked.references() == asked.references(declaration=True) == []


# Open buffers ---------------------------------------------------------------------------------------------------------


def test_an_open_buffer_counts_instead_of_its_file(ask: Ask) -> None:
    asked = ask("=== leek.md\n# Old\n## Soil\n=== a.md\n[[leek#So$0il]]\n=== b.md\n[[leek]]\n")
    asked.buffer("leek.md", "# New\n\ntext\n\n## Soil\n\n[[#Soil]]\n")
    assert asked.definition() == ["leek.md:4"]
    asked.buffer("b.md", "nothing\n\n[[leek#soil]]\n")
    assert asked.references() == ["a.md:0", "b.md:2", "leek.md:6"]
    asked.buffer("leek.md", "# New\n")
    assert asked.definition() == ["leek.md:0"]


def test_a_note_that_is_only_a_buffer_yet_can_be_linked(ask: Ask) -> None:
    asked = ask("=== a.md\n[[fresh$0]] [[fresh#Part]]\n=== b.md\n[[nick]]\n")
    assert asked.definition() == []
    asked.buffer("sub/fresh.md", "---\naliases: [nick]\n---\n# Fresh\n## Part\n[[b]]\n")
    assert asked.definition() == ["sub/fresh.md:0"]
    assert asked.references() == ["a.md:0", "a.md:0", "b.md:0"]
    with asked.vault.view(asked.open) as view:
        assert [link.source for link in view.backlinks(NotePath("b.md"))] == ["sub/fresh.md"]
        assert view.paths() == ("a.md", "b.md", "sub/fresh.md")


def test_aliases_of_a_buffer_replace_those_of_its_file(ask: Ask) -> None:
    text = "=== leek.md\n---\naliases: [porree]\n---\n# L\n=== a.md\n[[{}$0]]\n"
    asked = ask(text.format("porree")).buffer("leek.md", "---\naliases: [allium]\n---\n# L\n")
    assert asked.definition() == []
    asked = ask(text.format("allium")).buffer("leek.md", "---\naliases: [allium]\n---\n# L\n")
    assert asked.definition() == ["leek.md:0"]


def test_tags_and_broken_names_of_buffers_count(ask: Ask) -> None:
    asked = ask("=== a.md\n#herb$0\n=== b.md\n#herb\n").buffer("b.md", "none\n").buffer("c.md", "x #Herb\n")
    assert asked.references() == ["a.md:0", "c.md:0"]
    asked = ask("=== a.md\n[[gone$0]]\n=== b.md\n[[gone]]\n").buffer("b.md", "\n\n[[Gone]]\n")
    assert asked.references() == ["a.md:0", "b.md:2"]


# Against brute force --------------------------------------------------------------------------------------------------

_NAMES = ["a", "b", "A", "x y", "é", "a.b"]
_FOLDERS = ["", "", "f/", "f/g/", "h/"]
_PATHS = st.builds(lambda folder, name: f"{folder}{name}.md", st.sampled_from(_FOLDERS), st.sampled_from(_NAMES))
_TARGETS = st.builds(
    lambda lead, folder, name, end: f"{lead}{folder}{name}{end}",
    st.sampled_from(["", "", "/", "./", "../"]),
    st.sampled_from(["", "", "f/", "g/", "h/"]),
    st.sampled_from([*_NAMES, "nick", "none"]),
    st.sampled_from(["", "", ".md", "#Part", "#^blk", "#gone"]),
)
_LINKS = st.builds(
    lambda target, markdown: f"[t](<{target}>)" if markdown else f"[[{target}]]", _TARGETS, st.booleans()
)
_NOTES = st.builds(
    lambda alias, links: (
        (f"---\naliases: [{alias}]\n---\n" if alias else "") + "# Top\n## Part\nt ^blk\n" + " ".join(links)
    ),
    st.sampled_from(["", "", "nick", "a", "x y"]),
    st.lists(_LINKS, max_size=5),
)
_VAULTS = st.dictionaries(_PATHS, _NOTES, min_size=1, max_size=6)


def leading_to(view: View, path: NotePath) -> set[object]:
    """Every link of every note that resolves to a file, found by trying them all."""
    found: set[object] = set()
    for source in view.paths():
        for link, resolution in view.links(source):
            if isinstance(resolution, Found) and resolution.path == path:
                found.add((source, link.place))
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=_VAULTS, buffers=st.dictionaries(_PATHS, _NOTES, max_size=2))
def test_references_are_all_links_that_lead_there_and_no_others(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, str], buffers: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("brute")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VAULT_LSP_INDEX_DIR", str(folder / "index"))
        vault = Vault.open(write(folder / "vault", files))
    try:
        vault.reconcile()
        overlay = {NotePath(path): vault.parse(NotePath(path), text) for path, text in buffers.items()}
        with vault.view(overlay) as view:
            for path in view.paths():
                all_links = leading_to(view, path)
                backlinks = {(source, link.place) for source, link in view.backlinks(path)}
                assert backlinks == {each for each in all_links if each[0] != path}  # type: ignore[index]
                assert view.indegree(path) == len({source for source, _ in backlinks})
                for source, link, resolution in [(path, *pair) for pair in view.links(path)]:
                    where = view.definition(source, link.place.start)
                    if not isinstance(resolution, Found):
                        assert where == ()
                        continue
                    assert [target.path for target in where] == [resolution.path]
                    referring = {tuple(each) for each in view.references(source, link.place.start, declaration=False)}
                    assert (source, link.place) in referring or not link.path
                    assert referring <= leading_to(view, resolution.path)
    finally:
        vault.close()
