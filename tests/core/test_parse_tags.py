"""Tags in the body."""

from __future__ import annotations

import pytest

from vault_lsp.core.model import NotePath
from vault_lsp.core.parse import parse
from vault_lsp.core.text import Text


def tags(source: str) -> list[str]:
    """The tags of a note; each place must cover its tag with the `#`."""
    text = Text(source)
    found = parse(NotePath("a.md"), text).tags
    for tag in found:
        start, end = (text.offset(point.line, point.utf8, "utf-8") for point in tag.place)
        assert source[start:end] == f"#{tag.name}"
    return [tag.name for tag in found]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("#one and #two-b #c_d #a/b/c", ["one", "two-b", "c_d", "a/b/c"]),
        ("#y2031 #2a #- #_ #2031-01", ["y2031", "2a", "-", "_", "2031-01"]),
        ("#спам #日本語 #标签 #태그 #É #हिन्दी", ["спам", "日本語", "标签", "태그", "É", "हिन्दी"]),
        ("#🌲 #✅done #a🌲", ["🌲", "✅done", "a🌲"]),
        ("#done. #next, #ask? #so; (see #it)", ["done", "next", "ask", "so", "it"]),
        ("#标签，后面 #标签。", ["标签，后面", "标签。"]),
        ("#a—b #a…b #a\u200db #a\u3000b", ["a", "a", "a", "a"]),
        ("#tag/ #a/b// #/x", ["tag", "a/b", "/x"]),
        ("#a#b #n/#o #a#1#b", ["a", "b", "n", "o", "a"]),
        ("x\u00a0#nb y\u3000#wide z\t#tab\u2003#em", ["nb", "wide", "tab", "em"]),
        ("_#uc_ snake_case_#wc **#bold** ~~#gone~~ ==#lit==", ["uc", "wc", "bold", "gone", "lit"]),
        ("*one* #two `three` #four", ["two", "four"]),
        ("#a_b_c #a_b and c_d", ["a_b_c", "a_b"]),
        ("|#up|x|\n|--|--|\n|#low|y #z|", ["up", "low", "z"]),
        ("[Talk #in](https://x) [#at](y.md) [a #ref][r]\n\n[r]: z.md", ["in", "at", "ref"]),
        ("## Head #tag\n\nUnder #line\n---", ["tag", "line"]),
        ("- #li\n- [ ] #task\n1. #num\n> #quote\n>#tight", ["li", "task", "num", "quote", "tight"]),
        ("x[^1]\n\n[^1]: #foot", ["foot"]),
        ("%% #in %% %%#close%%\n\n%%\n#block\n%%", ["in", "close", "block"]),
        ("a<br>#br <span>#sp</span>", ["br", "sp"]),
        ("\\[\\[#esc\\]\\] \\(#par", ["esc", "par"]),
        ("#one\n#two\r\n#three\r#four", ["one", "two", "three", "four"]),
        ("#Work #work", ["Work", "work"]),
        ("#NoHeading", ["NoHeading"]),
        ("[[Fig]] #after ![[pic.png]] #too", ["after", "too"]),
    ],
)
def test_tags_are_found_in_running_text(source: str, names: list[str]) -> None:
    assert tags(source) == names


@pytest.mark.parametrize(
    "source",
    [
        "# Head",
        "# ",
        "#",
        "#1984 #20 #7/",
        "x#y word#no é#no 字#no",
        "(#x) [#x] {#x} \"#x\" '#x' “#x” x—#x .#x /#x ,#x 。#x",
        "##two ###three",
        "\\#esc \\##esc",
        "#?-x # space #, #.",
        "https://x.example/#part http://x.example/a_#b <https://x.example/_#c>",
        "[t](#anchor) [[Fig#Head]] [[#Head]] [[Fig|see #x]] ![alt #x](pic.png)",
        "&#39; &#x27; &#039; &num;x",
        "`#code` ``a #code``",
        "```\n#code\n```",
        "    #indented",
        "$#x$ $a #x$ $$\n#x\n$$",
        "<!-- #x --> y",
        "<div>\n#x\n</div>",
        "<p>x #t</p>",
        "<span style='color: #fff' title=' #x'>y</span>",
        "[[a]]#x `c`#x [a](b)#x",
        "{#id}",
    ],
)
def test_what_is_no_tag(source: str) -> None:
    assert tags(source) == []
