"""What the parser sees in a note: links, headings, blocks, anchors, references, comments, positions."""

from __future__ import annotations

import re

import pytest

from vault_lsp.core import parse as module
from vault_lsp.core.model import Note, NotePath, Problem
from vault_lsp.core.parse import parse
from vault_lsp.core.slugs import slug, slugs
from vault_lsp.core.text import Encoding, Place, Point, Text


def note(source: str, path: str = "garden/fig.md") -> Note:
    found = parse(NotePath(path), Text(source))
    assert "unreadable-markdown" not in {problem.rule for problem in found.problems}
    return found


def cut(source: str, place: Place, encoding: Encoding = "utf-16") -> str:
    """The text of a place, found by its columns in one unit and by no code of the product."""
    lines = re.findall(r"[^\r\n]*(?:\r\n|\n|\r|\Z)", source)
    codec, width = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}[encoding]

    def offset(point: Point) -> int:
        encoded = lines[point.line].encode(codec, "surrogatepass")[: point.column(encoding) * width]
        return sum(map(len, lines[: point.line])) + len(encoded.decode(codec, "surrogatepass"))

    return source[offset(place.start) : offset(place.end)]


def targets(source: str) -> list[str]:
    return [link.target for link in note(source).links]


@pytest.mark.parametrize(
    ("source", "target", "path", "subpath", "display"),
    [
        ("[[Fig]]", "Fig", "Fig", "", None),
        ("[[Fig.md]]s", "Fig.md", "Fig.md", "", None),
        ("[[Fig|sweet]]", "Fig", "Fig", "", "sweet"),
        ("[[Fig|]]", "Fig", "Fig", "", ""),
        ("[[Fig#Peel|p]]", "Fig#Peel", "Fig", "#Peel", "p"),
        ("[[Fig#Peel#Inner]]", "Fig#Peel#Inner", "Fig", "#Peel#Inner", None),
        ("[[#Peel||two]]", "#Peel", "", "#Peel", "|two"),
        ("[[Fig|a#b]]", "Fig", "Fig", "", "a#b"),
        ("[[Fig#^b1]]", "Fig#^b1", "Fig", "#^b1", None),
        ("[[#^b1]]", "#^b1", "", "#^b1", None),
        ("[[Fig#]]", "Fig#", "Fig", "#", None),
        ("[[Fig\\|sweet]]", "Fig", "Fig", "", "sweet"),
        ("| a |\n|---|\n| [[Fig#Peel\\|p]] |", "Fig#Peel", "Fig", "#Peel", "p"),
        ("[[ Sweet fig ]]", " Sweet fig ", "Sweet fig", "", None),
        ("[[Sweet%20fig]]", "Sweet%20fig", "Sweet%20fig", "", None),
        ("[[https://example.org/a]]", "https://example.org/a", "https://example.org/a", "", None),
        ("[[Fi]g]]", "Fi]g", "Fi]g", "", None),
        ("[[Fig#`cut`|`cut`]]", "Fig#`cut`", "Fig", "#`cut`", "`cut`"),
        ("[[无花果｜别名＃题]]", "无花果｜别名＃题", "无花果｜别名＃题", "", None),
        ("[[a&#124;b]]", "a&#124;b", "a&", "#124;b", None),
        ("[[|]]", "|", "|", "", None),
        ("[[|x]]", "|x", "|x", "", None),
        ("[[|#x]]", "|#x", "|", "#x", None),
        ("[[out [[Fig]] out]]", "Fig", "Fig", "", None),
        ("note^[[[Fig]]] and", "Fig", "Fig", "", None),
        ("note^[see [[Fig]]]", "Fig", "Fig", "", None),
        ("\\`[[Fig]]\\`", "Fig", "Fig", "", None),
        ("one ` tick [[Fig]]", "Fig", "Fig", "", None),
        ("[[{{date}}]]", "{{date}}", "{{date}}", "", None),
        ("[[<% name %>]]", "<% name %>", "<% name %>", "", None),
    ],
)
def test_a_wikilink_is_split_at_the_first_bar_and_then_at_the_first_hash(
    source: str, target: str, path: str, subpath: str, display: str | None
) -> None:
    (link,) = note(source).links
    assert (link.kind, link.embed) == ("wikilink", False)
    assert (link.target, link.path, link.subpath, link.display) == (target, path, subpath, display)
    assert cut(source, link.place).startswith("[[")
    assert cut(source, link.place).endswith("]]")
    assert cut(source, link.target_place) == target
    assert cut(source, link.subpath_place) == subpath


@pytest.mark.parametrize(
    "source",
    [
        "[[]]",
        "[[ ]]",
        "[[over\nlines]]",
        "[[Fig|over\r\nlines]]",
        "\\[[Fig]]",
        "\\[\\[Fig\\]\\]",
        "【【Fig】】 ［［Fig］］ [[Fig］］",
        "`[[Fig]]`",
        "type `[[` and `]]`",
        "```\n[[Fig]]\n```",
        "````md\n```\n[[Fig]]\n```sh\n[[Fig]]\n````",
        "~~~\n[[Fig]]",
        "    [[Fig]]",
        "$a [[Fig]] b$",
        "$$\n[[Fig]]\n$$",
        "$$\na\n=\n[[Fig]]\n$$",
        "text <!-- [[Fig]] --> text",
        "<!-- one\n\n[[Fig]] [f](fig.md) -->",
        "<div>\n[[Fig]]\n</div>",
        "<img src='fig.png'> <a href=\"fig.md\">",
    ],
)
def test_what_is_no_link_in_obsidian_is_none_here(source: str) -> None:
    assert note(source).links == ()


def test_a_link_over_lines_hides_no_other() -> None:
    assert targets("[[fig\n]] and [[pear and [[plum]]") == ["plum"]
    assert targets("[[fig\n[p](pear.md) and ]] then [[plum]]") == ["pear.md", "plum"]
    assert targets("> [[fig\n> [[pear]] ]] [[plum]]") == ["pear", "plum"]


def test_links_count_in_callouts_footnotes_headings_cells_and_after_inline_html() -> None:
    source = (
        "> [!tip] [[a]]\n> [[b]]\n\nx<br>[[c]]\n\n## on [[d]]\n\n- [ ] [[e]]\n\n| [[f]] |\n|--|\n| [[g]] |\n\n"
        "y[^1]\n\n[^1]: [[h]]\n\n<div>\n\n[[i]]\n\n</div>\n\nkey:: [[j]]\n"
    )
    assert targets(source) == list("abcdefghij")


@pytest.mark.parametrize(
    ("source", "target", "path", "subpath"),
    [
        ("[f](fig.md)", "fig.md", "fig.md", ""),
        ("[f](Sweet%20fig)", "Sweet%20fig", "Sweet fig", ""),
        ("[f](<Sweet fig.md>)", "Sweet fig.md", "Sweet fig.md", ""),
        ("[f]( <Sweet fig.md> 'title' )", "Sweet fig.md", "Sweet fig.md", ""),
        ('[f](fig.md "a [title](no.md)")', "fig.md", "fig.md", ""),
        ('[f](fig.md\n"title")', "fig.md", "fig.md", ""),
        ("[f](\nfig.md)", "fig.md", "fig.md", ""),
        ("> [f](\n> fig.md)", "fig.md", "fig.md", ""),
        ("[f](fig_(raw).md)", "fig_(raw).md", "fig_(raw).md", ""),
        ("[f](a((b)c)d.md)", "a((b)c)d.md", "a((b)c)d.md", ""),
        ("[f](fig_\\(raw.md)", "fig_\\(raw.md", "fig_(raw.md", ""),
        ("[f](#Part%20One)", "#Part%20One", "", "#Part One"),
        ("[f](fig.md#A%20b#c)", "fig.md#A%20b#c", "fig.md", "#A b#c"),
        ("[f](fig.md#^b1)", "fig.md#^b1", "fig.md", "#^b1"),
        ("[f](F%23.md#x)", "F%23.md#x", "F#.md", "#x"),
        ("[f](100%2525.md)", "100%2525.md", "100%25.md", ""),
        ("[f](100%.md)", "100%.md", "100%.md", ""),
        ("[f](%E4%zz.md)", "%E4%zz.md", "%E4%zz.md", ""),
        ("[f](a%5B1%5D.md)", "a%5B1%5D.md", "a[1].md", ""),
        ("[f](%E6%9E%9C.md#%E7%9A%AE)", "%E6%9E%9C.md#%E7%9A%AE", "果.md", "#皮"),
        ("[f](果.md#皮)", "果.md#皮", "果.md", "#皮"),
        ("[f](a\\_b&amp;c.md#d)", "a\\_b&amp;c.md#d", "a_b&c.md", "#d"),
        ("[](fig.md)", "fig.md", "fig.md", ""),
        ("[a [b] c](fig.md)", "fig.md", "fig.md", ""),
        ("[`]`](fig.md)", "fig.md", "fig.md", ""),
        ("[a\\]](fig.md)", "fig.md", "fig.md", ""),
        ("[a ](fig.md)", "fig.md", "fig.md", ""),
        ("[**a**](../fig.md)", "../fig.md", "../fig.md", ""),
        ("[f](/fig.md)", "/fig.md", "/fig.md", ""),
        ("[f](figs/)", "figs/", "figs/", ""),
    ],
)
def test_a_markdown_destination_is_split_at_its_hash_and_decoded_once(
    source: str, target: str, path: str, subpath: str
) -> None:
    (link,) = note(source).links
    assert (link.kind, link.target, link.path, link.subpath, link.embed) == ("markdown", target, path, subpath, False)
    assert cut(source, link.place).startswith("[")
    assert cut(source, link.place).endswith(")")
    assert cut(source, link.target_place) == target
    assert cut(source, link.subpath_place) == target[target.find("#") :] * ("#" in target and bool(subpath))


def test_the_hash_of_an_entity_parts_no_destination() -> None:
    source = "[f](a&#33;&#x23;b.md)  [g](a&#33;.md#c)"
    first, second = note(source).links
    assert (first.path, first.subpath, cut(source, first.subpath_place)) == ("a!", "#b.md", "")
    assert (second.path, second.subpath, cut(source, second.subpath_place)) == ("a!.md", "#c", "#c")


@pytest.mark.parametrize(
    "source",
    [
        "[f](sweet fig.md)",
        "[f]()",
        "[f](<>)",
        "[]()",
        "\\[f](fig.md)",
        "[w](https://example.org/fig.md)",
        "[w](//example.org/fig.md)",
        "[m](mailto:me@example.org) [t](tel:1) [o](obsidian://open?x)",
        "[d](D:/fig.png)",
        "<https://example.org> <me@example.org> <fig.md> fig.md",
        "- [ ] todo\n- [x] done\n- [-] other\n\nsaid [sic]",
    ],
)
def test_what_does_not_lead_into_the_vault_is_no_link(source: str) -> None:
    assert note(source).links == ()
    assert note(source).label_uses == ()


def test_images_and_embeds_are_links_that_embed() -> None:
    source = "![[fig]] ![[pic.png|a|100]] ![alt|200](pic.png) [![in](pic.png)](fig.md) \\![[plum]]"
    found = note(source).links
    assert [(link.target, link.display, link.embed) for link in found] == [
        ("fig", None, True),
        ("pic.png", "a|100", True),
        ("pic.png", "alt|200", True),
        ("fig.md", "![in](pic.png)", False),
        ("pic.png", "in", True),
        ("plum", None, False),
    ]
    assert [cut(source, link.place)[:2] for link in found] == ["![", "![", "![", "[!", "![", "[["]


def test_references_lead_where_their_definition_does() -> None:
    source = (
        "[one][Key  A] [key a][] [KEY a] ![pic][p] [web][w]\n\n"
        "[key A]: fig.md#Peel 'title'\n[p]: <my pic.png>\n[w]: https://example.org"
    )
    found = note(source)
    assert [(link.kind, link.target, link.path, link.subpath, link.embed) for link in found.links] == [
        ("reference", "fig.md#Peel", "fig.md", "#Peel", False),
        ("reference", "fig.md#Peel", "fig.md", "#Peel", False),
        ("reference", "fig.md#Peel", "fig.md", "#Peel", False),
        ("reference", "my pic.png", "my pic.png", "", True),
    ]
    assert [cut(source, link.target_place) for link in found.links] == ["Key  A", "key a", "KEY a", "p"]
    assert all(link.subpath_place == Place(link.target_place.end, link.target_place.end) for link in found.links)
    assert [(use.label, cut(source, use.place), use.defined) for use in found.label_uses] == [
        ("key a", "[Key  A]", True),
        ("key a", "[key a]", True),
        ("key a", "[KEY a]", True),
        ("p", "[p]", True),
        ("w", "[w]", True),
    ]
    assert [(d.label, d.target, cut(source, d.place), cut(source, d.label_place)) for d in found.definitions] == [
        ("key a", "fig.md#Peel", "[key A]: fig.md#Peel 'title'", "[key A]"),
        ("p", "my pic.png", "[p]: <my pic.png>", "[p]"),
        ("w", "https://example.org", "[w]: https://example.org", "[w]"),
    ]


def test_full_and_collapsed_references_without_a_definition_are_reported() -> None:
    source = "[a][no] [Nope][] [lone] ![i][no2] x[i][j] f()[0][1] `[q][r]` [果][皮] [^9] [t][^9]"
    assert [(use.label, cut(source, use.place), use.defined) for use in note(source).label_uses] == [
        ("no", "[no]", False),
        ("nope", "[Nope]", False),
        ("no2", "[no2]", False),
        ("皮", "[皮]", False),
    ]


def test_every_definition_counts_also_the_second_of_a_label() -> None:
    source = (
        "[a]\n\n[a]: one.md\n[A]: two.md\n\n> [a]: three.md\n\n- [a]: four.md\n\n[a]:\n  five.md\n\n"
        "```\n[a]: code.md\n```\n\ntext\n[a]: text.md\n\n<div>\n[a]: html.md\n</div>\n\n"
        "    [a]: indented.md\n\n`[a]: x`"
    )
    found = note(source)
    assert [definition.target for definition in found.definitions] == [
        "one.md",
        "two.md",
        "three.md",
        "four.md",
        "five.md",
    ]
    assert cut(source, found.definitions[1].place) == "[A]: two.md"
    assert {link.target for link in found.links} == {"one.md"}


def test_a_definition_right_below_a_footnote_is_one() -> None:
    source = "[the fig][f], [f][] and [f].[^1]\n\n[^1]: See [[plum]].\n[f]: fig.md\n[f]: pear.md\n"
    found = note(source)
    assert [(link.kind, link.target) for link in found.links] == [("reference", "fig.md")] * 3 + [("wikilink", "plum")]
    assert [cut(source, link.place) for link in found.links[:3]] == ["[the fig][f]", "[f][]", "[f]"]
    assert [(d.label, cut(source, d.place)) for d in found.definitions] == [
        ("^1", "[^1]: See [[plum]]."),
        ("f", "[f]: fig.md"),
        ("f", "[f]: pear.md"),
    ]
    assert [(use.label, use.defined) for use in found.label_uses] == [("f", True)] * 3 + [("^1", True)]


def test_footnotes_have_labels_too() -> None:
    source = "One[^a] two[^A].\n\n[^a]: text\n  more\n"
    found = note(source)
    assert [(use.label, cut(source, use.place)) for use in found.label_uses] == [("^a", "[^a]"), ("^a", "[^A]")]
    assert [(d.label, d.target, cut(source, d.label_place)) for d in found.definitions] == [("^a", "", "[^a]")]


def test_links_in_comments_are_marked() -> None:
    source = (
        "%%[[a]]%% [[b]] %% [[c]] %%\n\n%%\n[[d]]\n\n- [[e]]\n%%\n\n100%% sure of [[f]]\n\n%%%% [[g]] %%%%\n\n"
        "100%% [[h]]\n\n> %% [[i]]\n> [[j]] %% [[k]]\n\n%% open [[l]]\n"
    )
    assert "".join(link.target for link in note(source).links if link.comment) == "acdeij"
    assert "".join(link.target for link in note(source).links) == "abcdefghijkl"


def test_a_comment_mark_in_code_opens_nothing() -> None:
    assert [link.comment for link in note("`%%` [[a]] `%%`\n\n```\n%%\n```\n[[b]]\n\n```\n%%\n```").links] == [
        False,
        False,
    ]


def test_headings_and_block_ids_in_a_comment_do_not_count() -> None:
    found = note("# Fig\n\n%%\n# Hidden\n\ntext ^hidden\n%%\n\n## Peel\n\ntext ^shown\n")
    assert [heading.text for heading in found.headings] == ["Fig", "Peel"]
    assert [block.id for block in found.blocks] == ["shown"]


def outline(source: str) -> list[tuple[int, str, str, str, bool]]:
    return [(h.level, h.text, h.raw, cut(source, h.place), h.linkable) for h in note(source).headings]


@pytest.mark.parametrize(
    ("source", "level", "text", "raw", "place"),
    [
        ("# Fig", 1, "Fig", "Fig", "# Fig"),
        ("###### Deep\n", 6, "Deep", "Deep", "###### Deep"),
        ("# Closed ##  \r\nx", 1, "Closed", "Closed", "# Closed ##  "),
        ("## C#", 2, "C#", "C#", "## C#"),
        ("# Esc \\#", 1, "Esc #", "Esc \\#", "# Esc \\#"),
        ("   #\tTab", 1, "Tab", "Tab", "#\tTab"),
        ("# # twice", 1, "# twice", "# twice", "# # twice"),
        ("#", 1, "", "", "#"),
        ("## ##", 2, "", "", "## ##"),
        ("Under\n===\n", 1, "Under", "Under", "Under\n==="),
        ("Two\nlines  \n---", 2, "Two lines", "Two\nlines", "Two\nlines  \n---"),
        ("## [[fig]] and [p](pear.md)", 2, "fig and p", "[[fig]] and [p](pear.md)", "## [[fig]] and [p](pear.md)"),
        (
            "## [[fig|a *b*]] `c` $d$ <i>e</i>",
            2,
            "a b c d e",
            "[[fig|a *b*]] `c` $d$ <i>e</i>",
            "## [[fig|a *b*]] `c` $d$ <i>e</i>",
        ),
        ("## x &amp; y [^1]\n\n[^1]: z", 2, "x & y", "x &amp; y [^1]", "## x &amp; y [^1]"),
        ("# 目录 🍈", 1, "目录 🍈", "目录 🍈", "# 目录 🍈"),
        ("# {{date}}", 1, "{{date}}", "{{date}}", "# {{date}}"),
        ("# One\fpage\u2028more", 1, "One\fpage\u2028more", "One\fpage\u2028more", "# One\fpage\u2028more"),
        ("# a\rb", 1, "a", "a", "# a"),
    ],
)
def test_a_heading_has_its_text_and_its_source(source: str, level: int, text: str, raw: str, place: str) -> None:
    assert outline(source) == [(level, text, raw, place, True)]


@pytest.mark.parametrize(
    "source",
    [
        "#NoSpace",
        "####### Seven",
        "    # Indented",
        "```sh\n# comment\n```",
        "<div>\n# html\n</div>",
        "\\# not",
        "---\n# in front matter\n---\n",
        "* * *\n- - -",
    ],
)
def test_what_is_no_heading(source: str) -> None:
    assert note(source).headings == ()


def test_headings_in_lists_quotes_and_footnotes_are_in_the_outline_but_no_targets() -> None:
    source = "- # In list\n\n> ## In quote\n> Under\n> line\n> ---\n\nx[^1]\n\n[^1]: # In note\n\n# Free\n"
    assert [(text, raw, linkable) for _, text, raw, _, linkable in outline(source)] == [
        ("In list", "In list", False),
        ("In quote", "In quote", False),
        ("Under line", "Under\nline", False),
        ("In note", "In note", False),
        ("Free", "Free", True),
    ]


def test_a_lone_equals_sign_in_a_formula_makes_no_heading() -> None:
    source = "# Fig\n\n$$\na\n=\nb #no [[no]] ^no\n$$\n\nThen [[yes]] #yes\n\n$$ c $$\n\n## Peel\n"
    found = note(source)
    assert [heading.text for heading in found.headings] == ["Fig", "Peel"]
    assert [link.target for link in found.links] == ["yes"]
    assert [tag.name for tag in found.tags] == ["yes"]
    assert found.blocks == ()


@pytest.mark.parametrize(
    ("text", "anchor"),
    [
        ("Fig & Pear", "fig--pear"),
        ("Größe", "größe"),
        ("v1.2, no!", "v12-no"),
        ("snake_case It", "snake_case-it"),
        ("水果 目录：一", "水果-目录一"),
        ("- cut -", "--cut--"),
        ("C++ 🍈", "c-"),
        ("हिन्दी", "हिन्दी"),
        ("tab\tand x²", "taband-x"),
    ],
)
def test_slugs_are_those_of_github(text: str, anchor: str) -> None:
    assert slug(text) == anchor


def test_repeated_slugs_are_numbered() -> None:
    assert slugs(["a", "a", "A!", "a-1", "a", "b"]) == ["a", "a-1", "a-2", "a-1-1", "a-3", "b"]
    assert [heading.slug for heading in note("# Fig\n\n> ## Fig\n\n## Fig").headings] == ["fig", "fig-1", "fig-2"]
    assert len(set(slugs(["x"] * 50_000))) == 50_000


@pytest.mark.parametrize(
    ("source", "ids"),
    [
        ("text ^b1", ["b1"]),
        ("text ^b1  \nmore\n", []),
        ("one\ntwo ^b1", ["b1"]),
        ("- item ^i1\n  - sub ^i2\n- last ^i3", ["i1", "i2", "i3"]),
        ("- one ^i1\n\n  para ^i2\n\n1. num ^i3", ["i1", "i2", "i3"]),
        ("- one\n- two\n\n^list1\n\nx", ["list1"]),
        ("> quote ^q1", ["q1"]),
        ("> [!tip] T\n> body\n^q2", ["q2"]),
        ("| a |\n|--|\n| b |\n\n^t1", ["t1"]),
        ("| a |\n|--|\n| b |\n^t2", ["t2"]),
        ("```\ncode\n```\n^c1", ["c1"]),
        ("$$\nx\n$$ ^m1", ["m1"]),
        ("![[fig.png]]^im", ["im"]),
        ("![a](fig.png)^im2", ["im2"]),
        ("as shown.]^P2", ["P2"]),
        ("# Head ^h1", ["h1"]),
        ("`code` ^k-9", ["k-9"]),
        ("全文　^w1", ["w1"]),
        ("text ^b1\r\n\r\nmore ^b2\r\n", ["b1", "b2"]),
        ("a ^b c", []),
        ("x^2", []),
        ("see (x)^2", []),
        ("`code ^no`", []),
        ("```\nx ^no\n```", []),
        ("$x ^no$", []),
        ("text ^under_score", []),
        ("text ^标题", []),
        ("text \\^no", []),
        ("text ^", []),
        ("*text ^no*", []),
        ("note^[^x]", []),
        ("| a ^no |\n|--|\n| b ^no |", []),
    ],
)
def test_a_block_id_ends_a_block(source: str, ids: list[str]) -> None:
    found = note(source).blocks
    assert [block.id for block in found] == ids
    assert [cut(source, block.place) for block in found] == [f"^{name}" for name in ids]


def test_a_repeated_block_id_is_a_problem_where_it_comes_again() -> None:
    source = "one ^dup\n\ntwo ^other\n\nthree ^DUP\n\n- four ^dup"
    found = note(source).problems
    assert [(problem.rule, cut(source, problem.place)) for problem in found] == [
        ("duplicate-block", "^DUP"),
        ("duplicate-block", "^dup"),
    ]
    assert all("line 1" in problem.message for problem in found)


def test_html_ids_and_heading_ids_are_anchors() -> None:
    source = (
        '<a name="top"></a>\n\n<div class=x id=\'box\'>\n<!-- <a id="hidden"> -->\n<A\n  NAME = low>\n</div>\n\n'
        'text <span id=皮>x</span> <b name="no">y</b> `<a id="code">`\n\n'
        "## Peel {#peel .x}\n\n### Cut {.y #cut} \n\nx {#no}\n"
    )
    found = note(source)
    names = ["top", "box", "low", "皮", "peel", "cut"]
    assert [anchor.name for anchor in found.anchors] == names
    assert [cut(source, anchor.place) for anchor in found.anchors] == names
    assert [(heading.text, heading.slug) for heading in found.headings] == [("Peel", "peel"), ("Cut", "cut")]


@pytest.mark.parametrize(
    ("source", "path", "title", "place"),
    [
        ("# Fig\n\n# Pear", "a.md", "Fig", "# Fig"),
        ("## Fig\n\nPear\n====\n", "a.md", "Pear", "Pear\n===="),
        ("---\ntitle: Meta\n---\n# Fig", "a.md", "Fig", "# Fig"),
        ("---\ntitle: 'Meta'\n---\n## Fig", "a.md", "Meta", "Meta"),
        ("---\ntitle: 2031\n---\n", "a.md", "2031", "2031"),
        ("---\ntitle:\n---\n", "x/Sweet fig.md", "Sweet fig", ""),
        ("#\n\n> # Quoted\n\n%%\n# Hidden\n%%", "x/v1.2.MD", "v1.2", ""),
        ("", "x/.md", ".md", ""),
    ],
)
def test_the_title_is_the_first_heading_or_the_property_or_the_name(
    source: str, path: str, title: str, place: str
) -> None:
    found = note(source, path)
    assert found.title == title
    assert cut(source, found.title_place) == place


def test_front_matter_and_body_make_one_note() -> None:
    source = "---\r\ntags: [a]\r\naliases: x, y\r\nup: '[[Fig]]'\r\n---\r\n#b [[Pear]] ^c\r\n"
    found = note(source)
    assert found.frontmatter == {"tags": ["a"], "aliases": "x, y", "up": "[[Fig]]"}
    assert [alias.name for alias in found.aliases] == ["x", "y"]
    assert [(tag.name, cut(source, tag.place)) for tag in found.tags] == [("a", "a"), ("b", "#b")]
    assert [(link.kind, cut(source, link.place)) for link in found.links] == [
        ("frontmatter", "[[Fig]]"),
        ("wikilink", "[[Pear]]"),
    ]
    assert [(problem.rule, cut(source, problem.place)) for problem in found.problems] == [
        ("legacy-property", "aliases")
    ]


def test_a_note_without_front_matter_has_none() -> None:
    assert note("text").frontmatter is None
    assert note("---\n---\ntext").frontmatter == {}
    assert note("---\ntitle: open\n\n# Body").headings[0].text == "Body"


def test_the_body_of_broken_front_matter_is_parsed() -> None:
    found = note("---\na: b: c\ntags: [x]\n---\n# Fig\n[[Pear]]\n")
    assert (found.title, [tag.name for tag in found.tags], [link.target for link in found.links]) == (
        "Fig",
        ["x"],
        ["Pear"],
    )
    assert [(problem.rule, problem.place.start.line) for problem in found.problems] == [("invalid-frontmatter", 1)]


def test_problems_of_reading_the_file_come_first() -> None:
    place = Place(Point(0, 0, 0, 0), Point(0, 1, 1, 1))
    handed = Problem("invalid-encoding", "2 bytes", place)
    found = parse(NotePath("a.md"), Text("---\ntag: x\n---\na ^x\n\nb ^x"), [handed]).problems
    assert [problem.rule for problem in found] == ["invalid-encoding", "legacy-property", "duplicate-block"]
    assert found[0] is handed


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
@pytest.mark.parametrize(
    "source",
    [
        "😀😀[[B]][[C]]\n看𠮷 [[B]]，[[C]]。\n👨‍👩‍👧 é [[B]] x",
        "a [[B]]\r\nb [[C]]\r\n\r\n[[B]]",
        "a [[B]]\rb [[C]]\r\r[[B]]\r",
        "é\fpage [[B]]\nx\u2028y\x85z\x0b [[C]]\n\x1c\x1d [[B]]",
        "\0 [[B]] \0[[C]]\n\0",
        "---\nx: 😀\n---\r\n\r\n🍈 [[B]]\r[[C]]",
        "> é [[B]]\n> - 😀 [[C]]\n>   1. [[B]]",
        "\ud800 [[B]] \udfff[[C]]",
    ],
)
def test_places_are_right_whatever_the_lines_and_characters(source: str, encoding: Encoding) -> None:
    found = note(source).links
    assert len(found) == source.count("[[")
    assert [cut(source, link.place, encoding) for link in found] == re.findall(r"\[\[.\]\]", source)


@pytest.mark.parametrize(
    ("source", "links", "tags"),
    [
        ("[[" * 40_000, 0, 0),
        ("[x](" + "()" * 30_000, 0, 0),
        ("`a" * 50_000, 0, 0),
        ("#a" * 50_000, 0, 50_000),
        ("_#a" * 30_000, 0, 30_000),
        ("word " * 200_000 + "[[Fig]]", 1, 0),
        ("[[ok]] " * 25_000, 25_000, 0),
        ("[[好]] " * 25_000, 25_000, 0),
        ("- " * 3_000 + "[[x]]", 1, 0),
        (">" * 20_000 + " [[x]]", 1, 0),
        ("# h\n" * 25_000, 0, 0),
        ("[![a](b)](c)" * 10_000, 20_000, 0),
        ("[[a\n" * 30_000, 0, 0),
        ("[[a\n]] " * 30_000, 0, 0),
        ("[[|" * 30_000, 0, 0),
        ("%% " * 50_000, 0, 0),
        ("$$\n\n" * 30_000, 0, 0),
        ("^a " * 50_000, 0, 0),
        ("[a]: b\n" * 10_000, 0, 0),
        ("a]:" * 50_000 + "\n\n[a]: b", 0, 0),
        ("[a][b] " * 30_000, 0, 0),
        ("<div>\n" + "<a id=\n" * 30_000, 0, 0),
        ("[a](" + "\\(" * 30_000 + ")", 1, 0),
        ("a\r" * 50_000, 0, 0),
        ("://" + "_#a" * 30_000 + " #z", 0, 1),
        ("---\n" + "a: b\n" * 10_000 + "---\n", 0, 0),
        ("---\ntags: " + "{{a}}, " * 10_000 + "\n---\n", 0, 0),
        ("---\nx: *y\ntags: " + "a, " * 20_000 + "\n---\n", 0, 20_000),
    ],
    ids=lambda value: repr(value[:12]) if isinstance(value, str) else None,
)
def test_hostile_texts_are_parsed_in_linear_time(source: str, links: int, tags: int) -> None:
    found = note(source)
    assert len(found.links) == links
    assert len(found.tags) == tags


def test_a_panic_of_the_markdown_parser_leaves_a_note_with_its_title(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def fail(*_: object) -> None:
        raise PanicException("boom")

    monkeypatch.setattr(module, "scan", fail)
    found = parse(NotePath("a/Fig.md"), Text("---\ntags: [x]\n---\n# Head"))
    assert (found.title, [tag.name for tag in found.tags]) == ("Fig", ["x"])
    assert [problem.rule for problem in found.problems] == ["unreadable-markdown"]


def test_an_interrupt_is_no_panic(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "scan", interrupt)
    with pytest.raises(KeyboardInterrupt):
        parse(NotePath("a.md"), Text("x"))
