"""What a link leads to, and the keys under which links and targets meet."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vault_lsp.core.links import Anchors, Names, heading_key, link_key, name_key, resolve, target_keys
from vault_lsp.core.model import Anchor, Block, Found, Heading, LinkKind, Missing, Note, NotePath, Resolution
from vault_lsp.core.slugs import slug
from vault_lsp.core.text import Text

Aliases = Mapping[str, tuple[str, ...]]


def catalogue(paths: str | list[str], aliases: Aliases | None = None) -> Names:
    """Names of a vault; of a string, the words are its paths. A path that ends with a slash is a folder."""
    paths = paths.split() if isinstance(paths, str) else paths
    files = [NotePath(path) for path in paths if not path.endswith("/")]
    folders = {path[:-1] for path in paths if path.endswith("/")}
    folders |= {path[: match.start()] for path in paths for match in re.finditer("/", path)}
    pairs = [(alias, NotePath(path)) for path, names in (aliases or {}).items() for alias in names]
    return Names.of(files, [NotePath(folder) for folder in sorted(folders)], pairs)


def anchors_of(source: str) -> Anchors:
    """Anchors of a note of which each line is a heading, `^id` or `<name>`."""
    text, headings, blocks, names, slugs = Text(source), [], [], [], dict[str, int]()
    for number in range(len(text.line_starts)):
        line, place = text.line(number), text.place(text.line_span(number))
        if marks := re.match("#+(>?) ", line):
            raw = line[marks.end() :]
            count = slugs[slug(raw)] = slugs.get(slug(raw), -1) + 1
            anchor = f"{slug(raw)}-{count}" if count else slug(raw)
            headings.append(Heading(line.index(" "), raw, raw, anchor, place, linkable=not marks[1]))
        elif line.startswith("^"):
            blocks.append(Block(line[1:], place))
        elif line.startswith("<"):
            names.append(Anchor(line[1:-1], place))
    start = text.place(text.line_span(0))
    return Anchors.of(
        Note(NotePath("n.md"), "n", start, headings=tuple(headings), blocks=tuple(blocks), anchors=tuple(names))
    )


def follow(
    names: Names,
    link: str,
    source: str = "log.md",
    kind: LinkKind = "wikilink",
    notes: Mapping[str, str] | None = None,
    *,
    aliases: bool = True,
) -> Resolution:
    path, mark, rest = link.partition("#")
    texts = notes or {}
    return resolve(
        kind,
        path,
        mark + rest,
        NotePath(source),
        names,
        lambda target: anchors_of(texts[target]) if target in texts else None,
        aliases=aliases,
    )


def target(names: Names, link: str, source: str = "log.md", kind: LinkKind = "wikilink") -> str | None:
    found = follow(names, link, source, kind)
    return found.path if isinstance(found, Found) else None


@pytest.mark.parametrize(
    ("files", "source", "link", "expected"),
    [
        # by name, wherever the file lies
        ("beds/leek.md", "log.md", "leek", "beds/leek.md"),
        ("beds/leek.md", "beds/log.md", "leek", "beds/leek.md"),
        ("beds/leek.md", "log.md", "leek.md", "beds/leek.md"),
        ("beds/leek.md", "log.md", "LEEK.MD", "beds/leek.md"),
        ("beds/Leek.MD", "log.md", "leek", "beds/Leek.MD"),
        ("a/bigleek.md", "log.md", "leek", None),
        # an exact path, then the own folder and below, then the shortest path, then the alphabet
        ("Leek.md x/Leek.md a/b/Leek.md", "x/log.md", "Leek", "Leek.md"),
        ("x/Leek.md a/b/Leek.md", "x/log.md", "Leek", "x/Leek.md"),
        ("xxxx/Leek.md a/b/Leek.md", "log.md", "Leek", "a/b/Leek.md"),
        ("b/Leek.md xx/Leek.md", "xx/log.md", "Leek", "xx/Leek.md"),
        ("b/Leek.md xx/Leek.md", "xx/deep/log.md", "Leek", "b/Leek.md"),
        ("x/deep/Leek.md y/Leek.md", "x/log.md", "Leek", "x/deep/Leek.md"),
        ("x/deep/Leek.md x/d/Leek.md y/Leek.md", "x/log.md", "Leek", "x/d/Leek.md"),
        ("x/deep/Leek.md y/Leek.md", "xy/log.md", "Leek", "y/Leek.md"),
        ("bb/Leek.md aa/Leek.md", "log.md", "Leek", "aa/Leek.md"),
        # the end of a path, at component borders
        ("a/b/Leek.md", "log.md", "b/Leek", "a/b/Leek.md"),
        ("b/Leek.md a/b/Leek.md", "a/b/log.md", "b/Leek", "b/Leek.md"),
        ("ab/Leek.md", "log.md", "b/Leek", None),
        ("Projects/Leek.md", "log.md", "projects/leek", "Projects/Leek.md"),
        # relative paths are exact
        ("leek.md a/leek.md", "a/log.md", "../leek", "leek.md"),
        ("leek.md a/leek.md", "a/log.md", "./leek.md", "a/leek.md"),
        ("a/b/leek.md", "a/log.md", "./b/../b/leek", "a/b/leek.md"),
        ("other/leek.md", "a/log.md", "./leek", None),
        ("other/leek.md", "a/log.md", "../leek", None),
        ("leek.md a/leek.md", "a/log.md", "/leek", "leek.md"),
        ("sub/leek.md", "log.md", "/leek", None),
        ("sub/leek.md", "log.md", "/sub/leek", "sub/leek.md"),
        # paths that are no paths
        ("b.md a/b.md", "log.md", "a/../b", None),
        ("a/b.md", "log.md", "a//b", None),
        ("a/b.md", "log.md", "a/./b", None),
        ("a/b.md", "log.md", "a\\b", None),
        # dots in a name
        ("v1.2.md", "log.md", "v1.2", "v1.2.md"),
        ("x/2024.01.05.md", "log.md", "2024.01.05", "x/2024.01.05.md"),
        ("plan.png x/plan.png.md", "log.md", "plan.png", "plan.png"),
        ("x/plan.png plan.png.md", "log.md", "plan.png", "x/plan.png"),
        ("plan.png plan.png.md", "log.md", "plan.png.md", "plan.png.md"),
        ("x/v1.2 sub/v1.2.md", "log.md", "sub/v1.2", "sub/v1.2.md"),
        ("LICENSE LICENSE.md", "log.md", "LICENSE", "LICENSE.md"),
        ("x/LICENSE", "log.md", "LICENSE", "x/LICENSE"),
        ("x.md.md", "log.md", "x.md", "x.md.md"),
        # attachments need their extension
        ("img/plan.png", "log.md", "plan.png", "img/plan.png"),
        ("img/plan.png", "log.md", "img/Plan.PNG", "img/plan.png"),
        ("img/plan.png", "log.md", "plan", None),
        ("plan.canvas", "log.md", "plan", None),
        ("plan.markdown", "log.md", "plan", None),
        # spelling
        ("Straße.md", "log.md", "STRASSE", None),
        ("ABC.md", "log.md", "ＡＢＣ", None),
        ("my-note.md", "log.md", "my note", None),
        ("计划/部署方案.md", "日志.md", "部署方案", "计划/部署方案.md"),
        # folders, after files
        ("assets/k.txt", "log.md", "assets/", "assets"),
        ("assets/k.txt", "log.md", "assets", "assets"),
        ("a/assets/k.txt", "a/log.md", "./assets/", "a/assets"),
        ("a/assets/k.txt", "log.md", "assets/", "a/assets"),
        ("assets/k.txt x/assets.md", "log.md", "assets", "x/assets.md"),
        ("assets/k.txt assets.md", "log.md", "assets/", "assets"),
        ("leek.md", "log.md", "leek/", None),
        ("a/leek.md", "a/log.md", "..", ""),
        ("a/leek.md", "a/log.md", ".", "a"),
        ("a/leek.md", "log.md", "/", ""),
        # the same note
        ("log.md a/log.md", "a/log.md", "", "a/log.md"),
        ("log.md", "log.md", "  ", "log.md"),
        ("log.md", "log.md", "log", "log.md"),
        # signs that mean nothing in a name
        ("fig+1.md", "log.md", "fig+1", "fig+1.md"),
        ("[odd](name)*.md", "log.md", "[odd](name)*", "[odd](name)*.md"),
        ("a%20b.md", "log.md", "a%20b", "a%20b.md"),
    ],
)
def test_a_path_leads_to_one_file(files: str, source: str, link: str, expected: str | None) -> None:
    assert target(catalogue(files), link, source) == expected


@pytest.mark.parametrize("kind", ["wikilink", "markdown", "reference", "frontmatter"])
def test_every_kind_of_link_is_looked_up_vault_wide(kind: LinkKind) -> None:
    assert target(catalogue(["Sub/My Note.md"]), "My Note.md", "other/log.md", kind) == "Sub/My Note.md"


@pytest.mark.parametrize("link", ["../leek", "../../leek", "a/../../leek", "./../leek", ".."])
def test_a_path_that_climbs_out_of_the_vault_leads_nowhere(link: str) -> None:
    relative = link.startswith(".")
    expected = Missing("outside") if relative else Missing("no-file")
    assert follow(catalogue("leek.md"), link) == expected
    if relative:
        assert link_key(link, NotePath("log.md")) is None


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("name", ["Café", "한글 노트", "バカ", "Ångström"])
def test_composed_and_decomposed_names_meet_and_the_bytes_on_disk_are_kept(name: str, form: str) -> None:
    path = unicodedata.normalize(form, f"b/{name}.md")
    names = catalogue([path])
    for written in ("NFC", "NFD"):
        assert target(names, unicodedata.normalize(written, name)) == path


def test_a_no_break_space_and_outer_spaces_do_not_count() -> None:
    names = catalogue(["b/my\u00a0note.md", "b/other note.md"])
    assert target(names, " my note ") == "b/my\u00a0note.md"
    assert target(names, "other\u00a0note") == "b/other note.md"
    assert target(catalogue(["b/note .md"]), "note ") is None


@pytest.mark.parametrize(
    ("files", "source", "link", "path", "others"),
    [
        ("a/pear.md b/pear.md", "log.md", "pear", "a/pear.md", ("b/pear.md",)),
        ("aa/pear.md b/pear.md c/pear.md", "z/log.md", "pear", "b/pear.md", ("c/pear.md", "aa/pear.md")),
        ("a/x/pear.md b/x/pear.md", "log.md", "x/pear", "a/x/pear.md", ("b/x/pear.md",)),
        ("pear.md b/pear.md", "b/log.md", "pear", "pear.md", ()),
        ("a/pear.md b/pear.md", "b/log.md", "pear", "b/pear.md", ()),
        ("b/c/pear.md b/d/pear.md a/pear.md", "b/log.md", "pear", "b/c/pear.md", ()),
        ("a/img/1.png b/img/1.png", "log.md", "img/1.png", "a/img/1.png", ("b/img/1.png",)),
        ("a/img/1.png b/img/2.png", "log.md", "img", "a/img", ("b/img",)),
    ],
)
def test_others_are_told_where_only_the_length_of_the_path_decided(
    files: str, source: str, link: str, path: str, others: tuple[str, ...]
) -> None:
    assert follow(catalogue(files), link, source) == Found(NotePath(path), others=tuple(map(NotePath, others)))


@pytest.mark.parametrize(
    ("files", "link", "path", "others"),
    [
        ("n/MAAS.md n/MaaS.md", "MaaS", "n/MaaS.md", ()),
        ("n/MAAS.md n/MaaS.md", "MAAS.md", "n/MAAS.md", ()),
        ("n/MAAS.md n/MaaS.md", "./n/MaaS", "n/MaaS.md", ()),
        ("n/MAAS.md n/MaaS.md", "maas", "n/MAAS.md", ("n/MaaS.md",)),
        ("MAAS.md MaaS.md", "MaaS", "MaaS.md", ()),
        ("A/x.md a/x.md", "a/x", "a/x.md", ()),
    ],
)
def test_names_that_differ_in_case_only_are_told_apart_by_the_spelling(
    files: str, link: str, path: str, others: tuple[str, ...]
) -> None:
    assert follow(catalogue(files), link) == Found(NotePath(path), others=tuple(map(NotePath, others)))


WINE: Aliases = {"wine.md": ("vino", "Red One", "a/b"), "x/ml.md": ("AI",), "y/ml2.md": ("ai", "leek")}


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("vino", Found(NotePath("wine.md"), alias=True)),
        ("VINO ", Found(NotePath("wine.md"), alias=True)),
        ("red one", Found(NotePath("wine.md"), alias=True)),
        ("a/b", Found(NotePath("wine.md"), alias=True)),
        ("ai", Found(NotePath("x/ml.md"), others=(NotePath("y/ml2.md"),), alias=True)),
        ("leek", Found(NotePath("beds/leek.md"))),
        ("./vino", Missing()),
        ("x/vino", Missing()),
        ("vino.md", Missing()),
    ],
)
def test_an_alias_resolves_last(link: str, expected: Resolution) -> None:
    names = catalogue("wine.md x/ml.md y/ml2.md beds/leek.md", WINE)
    assert follow(names, link) == expected


def test_aliases_can_be_left_out_and_never_count_for_markdown_links() -> None:
    names = catalogue("wine.md", {"wine.md": ("vino",)})
    assert follow(names, "vino", aliases=False) == Missing()
    assert follow(names, "vino", kind="markdown") == Missing()
    assert follow(names, "vino", kind="frontmatter") == Found(NotePath("wine.md"), alias=True)


SOIL = """# Soil
## Sand
### Uses
## Clay
### Uses
# pH^2 table
## Who? What: "a/b" (v1.2) & more!
## See [[Other]] now
## **Bold** part
## It's re-use_me
## Foo #tag
## 一、背景（必读）
## 🚀 発射 準備
## C++ 入门
## C#
## a\u3000b\u00a0 c
#> quoted
# a
# a
^crumb-1
^DUP
^dup
<Top>"""


@pytest.mark.parametrize(
    ("subpath", "line"),
    [
        ("#Sand", 1),
        ("#sand", 1),
        ("#Uses", 2),
        ("#Clay#Uses", 4),
        ("#Soil#Clay#Uses", 4),
        ("# # Sand", 1),
        ("##Sand", 1),
        ("#pH^2 table", 5),
        ('#Who? What "a/b" (v1.2) & more!', 6),
        ("#who what a b v1 2 more", 6),
        ("#See Other now", 7),
        ("#Bold part", 8),
        ("#**Bold** part", 8),
        ("#It's re-use_me", 9),
        ("#Foo tag", 10),
        ("#Foo #tag", "heading"),
        ("#一、背景（必读）", 11),
        ("#🚀 発射 準備", 12),
        ("#C++ 入门", 13),
        ("#C#", 14),
        ("#A b c", 15),
        ("#a", 17),
        ("#^crumb-1", 19),
        ("#^CRUMB-1", 19),
        ("#^dup", 20),
        ("#", None),
        ("#^", None),
        ("##", None),
        ("", None),
        ("#[^1]", None),
        ("#背景", "heading"),
        ("#Its reuse me", "heading"),
        ("#Uses#Clay", "heading"),
        ("#Sand#Soil", "heading"),
        ("#quoted", "heading"),
        ("#who-what-ab-v12--more", "heading"),
        ("#top", "heading"),
        ("#crumb-1", "heading"),
        ("#^crumb", "block"),
    ],
)
def test_a_subpath_leads_to_a_heading_or_block(subpath: str, line: int | str | None) -> None:
    names = catalogue("soil.md")
    found = follow(names, "soil" + subpath, notes={"soil.md": SOIL})
    assert isinstance(found, Found)
    assert found.path == "soil.md"
    assert (found.missing or (found.anchor and found.anchor.start.line)) == line
    assert follow(names, subpath, "soil.md", notes={"soil.md": SOIL}) == found


@pytest.mark.parametrize(
    ("subpath", "line"),
    [
        ("#Sand", 1),
        ("#who-what-ab-v12--more", 6),
        ("#Who-What-ab-v12--More", 6),
        ("#一背景必读", 11),
        ("#a", 17),
        ("#a-1", 18),
        ("#a-2", "heading"),
        ("#top", 22),
        ("#Top", 22),
        ("#quoted", "heading"),
        ("#^crumb-1", 19),
    ],
)
@pytest.mark.parametrize("kind", ["markdown", "reference"])
def test_a_markdown_fragment_may_also_be_a_slug_or_an_html_anchor(
    kind: LinkKind, subpath: str, line: int | str
) -> None:
    found = follow(catalogue("soil.md"), "soil.md" + subpath, kind=kind, notes={"soil.md": SOIL})
    assert isinstance(found, Found)
    assert (found.missing or (found.anchor and found.anchor.start.line)) == line


@pytest.mark.parametrize("link", ["a.pdf#page=3", "pic.png#outline", "table.base#View one", "bad.md#Any", "dir/#x"])
def test_any_subpath_fits_a_file_without_known_anchors(link: str) -> None:
    found = follow(catalogue("a.pdf pic.png table.base bad.md dir/k.txt"), link)
    assert found == Found(NotePath(link.partition("#")[0].rstrip("/")))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a | b # c : d ^ e", "a b c d e"),
        ("[x](y.md)", "x y md"),
        ("`move`", "move"),
        ("Headers-With_Special 'Marks'", "headers-with_special 'marks'"),
        ("为什么？", "为什么？"),
        ("  tab\tand\u3000wide ", "tab and wide"),
        ("Cafe\u0301", "café"),
        ("!?", ""),
    ],
)
def test_headings_compare_blind_to_case_and_most_punctuation(text: str, key: str) -> None:
    assert heading_key(text) == key


def test_an_overlay_adds_files_and_replaces_aliases() -> None:
    names = catalogue("a/wine.md b/old.md", {"a/wine.md": ("vino",), "b/old.md": ("ale",)})
    over = names.with_overlay({NotePath("new/beer.md"): ("ale",), NotePath("a/wine.md"): ("vin",)})
    assert target(over, "beer") == "new/beer.md"
    assert target(over, "wine") == "a/wine.md"
    assert target(over, "vin") == "a/wine.md"
    assert target(over, "vino") is None
    assert follow(over, "ale") == Found(NotePath("b/old.md"), others=(NotePath("new/beer.md"),), alias=True)
    assert target(names, "beer") is None
    assert target(names, "vino") == "a/wine.md"
    assert over.files_named("beer.md") == ("new/beer.md",)
    again = over.with_overlay({NotePath("a/wine.md"): ()})
    assert target(again, "beer") is None
    assert target(again, "vin") is None


def test_a_new_buffer_competes_with_the_files_on_disk() -> None:
    names = catalogue("b/pear.md").with_overlay({NotePath("a/pear.md"): ()})
    assert follow(names, "pear") == Found(NotePath("a/pear.md"), others=(NotePath("b/pear.md"),))
    assert target(names.with_overlay({NotePath("pear.md"): ()}), "pear") == "pear.md"


@pytest.mark.parametrize(
    ("path", "source", "key"),
    [
        ("Leek", "a/log.md", "leek"),
        ("b/Leek.md", "a/log.md", "b/leek"),
        ("./Leek.md", "a/log.md", "/a/leek"),
        ("../b/Leek", "a/log.md", "/b/leek"),
        ("/b/Leek", "a/log.md", "/b/leek"),
        ("", "a/Log.md", "/a/log"),
        ("img/", "a/log.md", "img"),
        ("../..", "a/log.md", None),
    ],
)
def test_the_key_of_a_link_needs_nothing_but_its_source(path: str, source: str, key: str | None) -> None:
    assert link_key(path, NotePath(source)) == key


COMPONENT = st.text("aAbé.\u0301 ", min_size=1, max_size=3).filter(lambda part: part.strip(". ") != "")
EXTENSION = st.sampled_from([".md", "", ".md.md", ".MD", ".png", ".png.md"])
PATH = st.builds(
    lambda parts, extension: "/".join(parts) + extension, st.lists(COMPONENT, min_size=1, max_size=3), EXTENSION
)
LINK = st.builds(
    lambda start, path, end: start + path + end,
    st.sampled_from(["", "", "./", "../", "/", "../../"]),
    PATH | st.just(""),
    st.sampled_from(["", ".md", "/"]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PATH, max_size=6), st.lists(LINK, max_size=6), PATH, st.data())
def test_a_link_that_leads_to_a_file_has_one_of_its_keys(
    paths: list[str], links: list[str], source: str, data: st.DataObject
) -> None:
    aliases: dict[str, tuple[str, ...]] = {path: (data.draw(LINK | PATH),) for path in paths[:2]}
    names = catalogue([*paths, source], aliases)
    # Whole paths, their ends and aliases are drawn too, so that most links lead somewhere.
    near = [*paths, *(path.rpartition("/")[2] for path in paths), *(alias for (alias,) in aliases.values())]
    for link in [*links, *near, *(path.removesuffix(".md") for path in near)]:
        key = link_key(link, NotePath(source))
        found = resolve("wikilink", link, "", NotePath(source), names, lambda _: None)
        if isinstance(found, Found):
            for path in (found.path, *found.others):
                assert key in target_keys(path, aliases.get(path, ()))
        if key is None:
            assert found == Missing("outside")


@settings(max_examples=200, deadline=None)
@given(st.lists(PATH, min_size=1, max_size=6), PATH)
def test_the_answer_does_not_depend_on_the_order_of_the_files(paths: list[str], source: str) -> None:
    shuffled = sorted(paths, reverse=True)
    for path in paths:
        link = path.rpartition("/")[2]
        assert follow(catalogue(paths), link, source) == follow(catalogue(shuffled), link, source)


@settings(max_examples=200, deadline=None)
@given(st.lists(PATH, max_size=5), st.lists(PATH, min_size=1, max_size=3), PATH)
def test_an_overlay_of_new_notes_equals_a_catalogue_with_them(paths: list[str], new: list[str], source: str) -> None:
    files = [NotePath(path) for path in paths]
    notes = [NotePath(path) for path in new]
    whole = Names.of([*files, *notes], [], [("al", path) for path in dict.fromkeys(notes)])
    over = Names.of(files, [], []).with_overlay(dict.fromkeys(notes, ("al",)))
    for link in (*paths, *new, "al", *(path.rpartition("/")[2] for path in new)):
        assert follow(over, link, source) == follow(whole, link, source)


@given(st.text())
def test_keys_are_stable(text: str) -> None:
    assert heading_key(heading_key(text)) == heading_key(text)
    assert name_key(name_key(text).strip()) == name_key(text)


def test_many_candidates_for_one_name_stay_quick_to_tell_apart() -> None:
    names = catalogue([f"d{number}/README.md" for number in range(3000)])
    assert target(names, "../d7/README.md", "d3/log.md") == "d7/README.md"
    assert target(names, "d8/README", "d3/log.md") == "d8/README.md"
    assert target(names, "README", "d9/log.md") == "d9/README.md"
