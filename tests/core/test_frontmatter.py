"""Front matter: bounds, values, tags, aliases, links and problems."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_lsp.core import frontmatter, yaml12
from vault_lsp.core.frontmatter import FrontMatter


def read(block: str) -> FrontMatter:
    """The front matter made of these lines."""
    source = f"---\n{block}\n---\n"
    bounds = frontmatter.find(source)
    assert bounds is not None
    return frontmatter.read(source, bounds.block)


def cut(block: str, span: tuple[int, int]) -> str:
    return f"---\n{block}\n---\n"[slice(*span)]


def problems(block: str) -> list[tuple[str, str]]:
    return [(flaw.rule, cut(block, flaw.span)) for flaw in read(block).problems]


def names_of(found: FrontMatter) -> tuple[str, ...]:
    return tuple(alias.name for alias in found.aliases)


def tags(block: str) -> list[str]:
    return [tag.name for tag in read(block).tags]


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("---\na: 1\n---\nbody", "body"),
        ("---\r\na: 1\r\n---\r\nbody", "body"),
        ("---\ra: 1\r---\rbody", "body"),
        ("---  \na: 1\n--- \t\nbody", "body"),
        ("---\na: 1\n---", ""),
        ("---\n---\nbody", "body"),
        ("---\na: |\n  ---\n---\nbody", "body"),
    ],
)
def test_front_matter_stands_between_lines_of_three_dashes(source: str, body: str) -> None:
    bounds = frontmatter.find(source)
    assert bounds is not None
    assert source[bounds.body :] == body


@pytest.mark.parametrize(
    "source",
    [
        "",
        "---",
        "----\na: 1\n----\n",
        "\n---\na: 1\n---\n",
        " ---\na: 1\n---\n",
        "---\na: 1\n",
        "---\na: 1\n...\n",
        "---\na: 1\n--- x\n",
    ],
)
def test_anything_else_is_body(source: str) -> None:
    assert frontmatter.find(source) is None


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"),
        ("Off", "Off"),
        ("true", True),
        ("FALSE", False),
        ("12:45", "12:45"),
        ("2031-02-03", "2031-02-03"),
        ("2031-02-03T04:05:06Z", "2031-02-03T04:05:06Z"),
        ("2031-19-77", "2031-19-77"),
        ("2_500", "2_500"),
        ("0042", 42),
        ("0o17", 15),
        ("0xfF", 255),
        ("-3.5e2", -350.0),
        (".5", 0.5),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("1e999", "1e999"),
        ("9" * 5000, "9" * 5000),
        ("", None),
        ("~", None),
        ("Null", None),
        ('"7"', "7"),
        ("!!str 7", "7"),
        ("!!int '7'", 7),
        ("|\n  two\n  lines", "two\nlines\n"),
        ("[1, [x, {y: no}]]", [1, ["x", {"y": "no"}]]),
        ("[[roof]]", [["roof"]]),
        ("#fff", None),
        ('"😀 \\t"', "😀 \t"),
    ],
)
def test_values_follow_the_core_schema_of_yaml_1_2(written: str, value: object) -> None:
    found = read(f"key: {written}")
    assert found.properties == {"key": value}
    assert not found.problems


def test_keys_are_texts() -> None:
    assert read("on: 1\n3: x\n2031-01-01: y\n[a, b]: z").properties == {
        "on": 1,
        "3": "x",
        "2031-01-01": "y",
        "['a', 'b']": "z",
    }


def test_a_json_object_is_front_matter() -> None:
    assert read('{"a": 1, "tags": ["x"]}').properties == {"a": 1, "tags": ["x"]}


@pytest.mark.parametrize("block", ["", "# only a comment", "~"])
def test_an_empty_block_has_no_properties_and_no_problem(block: str) -> None:
    assert read(block) == FrontMatter({}, None, (), (), (), ())


@pytest.mark.parametrize("block", ["标题：没有空格", "- a\n- b", "just words"])
def test_a_block_that_is_no_map_is_reported(block: str) -> None:
    assert read(block).properties == {}
    assert problems(block) == [("invalid-frontmatter", block.partition("\n")[0])]


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ("a: 1\nb: c: d\ne: 2", "b: c: d"),
        ("书: 上: 下", "书: 上: 下"),
        ("a: *nobody", "a: *nobody"),
        ("<<: *nobody\na: 1", "<<: *nobody"),
        ("x: 1\nwho: @me", "who: @me"),
        ("x:\n  - `code`", "  - `code`"),
        ("x:\n  - 1\n  - % q", "  - % q"),
        ("a: 1\n\tb: 2", "\tb: 2"),
        ('a: 1\np: "C:\\Users"', 'p: "C:\\Users"'),
        ("q: [[x]], [[y]]", "q: [[x]], [[y]]"),
        ("a: 1\nbell: \x07\nc: 2", "bell: \x07"),
        ("a: 1\r\nbell: \x07\r\nc: 2", "bell: \x07"),
        ("é: 😀\nb: c: d", "b: c: d"),
        ("a: 1\n...\nb: 2", "b: 2"),
    ],
)
def test_yaml_that_cannot_be_read_is_reported_with_its_line(block: str, line: str) -> None:
    found = read(block)
    assert problems(block) == [("invalid-frontmatter", line)]
    assert found.properties == {}


def test_an_unknown_yaml_tag_is_reported_and_its_value_kept() -> None:
    assert problems("a: !mine x\nb: 2") == [("invalid-frontmatter", "!mine x")]
    assert read("a: !mine x\nb: 2").properties == {"a": "x", "b": 2}


def test_a_repeated_key_is_reported_where_it_comes_again() -> None:
    block = "title: one\ntags: [a]\ntitle: two\ntags: [b]"
    found = read(block)
    assert [flaw.message for flaw in found.problems] == [
        "Property title is there twice",
        "Property tags is there twice",
    ]
    assert [flaw.span.start for flaw in found.problems] == [4 + block.rindex("title"), 4 + block.rindex("tags")]
    assert tags(block) == ["b"]
    assert found.properties["title"] == "two"


@pytest.mark.parametrize(
    "block",
    [
        "tags: [red, 'blue sky', \"#green\"]\naliases: [One, 'Two b']\nbad: a: b",
        'tags:\n  - red\n  - green\n\naliases:\n- One\n- "Two b"\nbad: @x',
        "Tags: red, green\nALIASES: One, Two b\nbad: 'open",
        "x: 1\n\ttags: [red, green]\n\taliases: [One, Two b]",
        "tag: red\nkeywords:\n  - no\ntags: #green\ntags: [green]\nalias: One\naliases: [Two b]\nbad: *x",
    ],
)
def test_tags_and_aliases_of_a_broken_block_are_salvaged(block: str) -> None:
    found = read(block)
    assert [tag.name for tag in found.tags] == ["red", "green", "green"][: len(found.tags)]
    assert {tag.name for tag in found.tags} == {"red", "green"}
    assert [cut(block, tag.span) for tag in found.tags] == [tag.name for tag in found.tags]
    assert names_of(found) == ("One", "Two b")
    assert tuple(cut(block, alias.span) for alias in found.aliases) == names_of(found)
    assert [flaw.rule for flaw in found.problems] == ["invalid-frontmatter"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("{{date}}", "{{date}}"),
        ("{{date:YYYY: MM}} at {{time}}", "{{date:YYYY: MM}} at {{time}}"),
        ('"{{a}}-{{b}}"', "{{a}}-{{b}}"),
        ("[{{a}}, b{{c}}]", ["{{a}}", "b{{c}}"]),
        ("x # {{hidden}}\nnext: {{shown}}", "x"),
    ],
)
def test_a_placeholder_of_a_template_is_a_valid_value(written: str, value: object) -> None:
    found = read(f"key: {written}")
    assert found.properties["key"] == value
    assert found.properties.get("next", "{{shown}}") == "{{shown}}"
    assert not found.problems


def test_a_placeholder_names_no_tag_and_no_alias() -> None:
    found = read("tags: [{{tag}}, real]\naliases: [{{title}}, Real]")
    assert [tag.name for tag in found.tags] == ["real"]
    assert names_of(found) == ("Real",)


@pytest.mark.parametrize(
    ("block", "names"),
    [
        ("tags: [a, b/c]", ["a", "b/c"]),
        ("tags:\n  - a\n  - '#b'", ["a", "b"]),
        ("tags: journal", ["journal"]),
        ("Tags: [x]\nTAG: y", ["x", "y"]),
        ("tags: one, two  three", ["one", "two", "three"]),
        ("tags: [2031, 1.5, true, null, 0x1F, work]", ["work"]),
        ("tags: ['2031', 31-12]", ["31-12"]),
        ("tags: [two words, a.b, ok/, '']", ["ok"]),
        ("tags: [标签, тег, 📝]", ["标签", "тег", "📝"]),
        ("tags: #comment", []),
        ("tags:", []),
        ("tags: {a: 1}", []),
        ("other: [a]", []),
        ("deep: {tags: [a]}", []),
    ],
)
def test_tags_of_the_front_matter(block: str, names: list[str]) -> None:
    found = read(block)
    assert [tag.name for tag in found.tags] == names
    assert [cut(block, tag.span) for tag in found.tags] == names


@pytest.mark.parametrize(
    ("block", "names"),
    [
        ("aliases: [Fig, 'Fig tree']", ("Fig", "Fig tree")),
        ("aliases: Fig", ("Fig",)),
        ("Aliases: Fig, Ficus", ("Fig", "Ficus")),
        ("alias: Fig\naliases: [Ficus, Fig]", ("Fig", "Ficus")),
        ("aliases: [2031, 007, true, null, 2031-01-01]", ("2031", "007", "true", "2031-01-01")),
        ("aliases:\n  -\n  - a: b\n  - [x]\n  - Fig", ("Fig",)),
        ("aliases:", ()),
        ("aliases: {a: [b]}", ()),
    ],
)
def test_aliases_of_the_front_matter(block: str, names: tuple[str, ...]) -> None:
    found = read(block)
    assert names_of(found) == names
    assert tuple(cut(block, alias.span) for alias in found.aliases) == names


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("tag: x", [("legacy-property", "tag")]),
        ("ALIAS: x", [("legacy-property", "ALIAS")]),
        ("alias: [x, y]", [("legacy-property", "alias")]),
        ("tags: a, b", [("legacy-property", "tags")]),
        ("aliases: a, b", [("legacy-property", "aliases")]),
        ("tag: a, b", [("legacy-property", "tag")]),
        ("tag:", []),
        ("tags: a", []),
        ("aliases: a b", []),
        ("tags: [a]", []),
        ("tags: {a: 1}", [("invalid-frontmatter", "tags: {a: 1}")]),
        ("x: 1\naliases: [[a], b]", [("invalid-frontmatter", "aliases: [[a], b]")]),
    ],
)
def test_old_spellings_and_wrong_types_are_reported(block: str, expected: list[tuple[str, str]]) -> None:
    assert problems(block) == expected


@pytest.mark.parametrize(
    ("block", "title"),
    [
        ("title: Fig", "Fig"),
        ("Title: ' Fig '", "Fig"),
        ("title: 007", "007"),
        ("title: 2031-01-01", "2031-01-01"),
        ("title:", None),
        ("title: ''", None),
        ("title: [a]", None),
        ("title: null", None),
    ],
)
def test_the_title_is_the_text_of_its_property(block: str, title: str | None) -> None:
    found = read(block).title
    assert (found.name if found else None) == title
    if found:
        assert cut(block, found.span).strip() == title


@pytest.mark.parametrize(
    ("block", "path", "subpath", "display", "whole", "target"),
    [
        ('up: "[[Fig]]"', "Fig", "", None, "[[Fig]]", "Fig"),
        ("up: '[[Fig#Peel|the peel]]'", "Fig", "#Peel", "the peel", "[[Fig#Peel|the peel]]", "Fig#Peel"),
        ("up: '[[Fig\\|f]]'", "Fig", "", "f", "[[Fig\\|f]]", "Fig"),
        ('up: "[[#Here]]"', "", "#Here", None, "[[#Here]]", "#Here"),
        ('l:\n  - x\n  - "[[Fig]]"', "Fig", "", None, "[[Fig]]", "Fig"),
        ('a: {b: [1, "[[Fig]]"]}', "Fig", "", None, "[[Fig]]", "Fig"),
        ('é: "[[无花果#皮|皮]]"', "无花果", "#皮", "皮", "[[无花果#皮|皮]]", "无花果#皮"),
        ("up: ' [[Fig]] '", "Fig", "", None, "[[Fig]]", "Fig"),
        (
            "up: '[f](Sweet%20Fig.md#A%20b)'",
            "Sweet Fig.md",
            "#A b",
            "f",
            "[f](Sweet%20Fig.md#A%20b)",
            "Sweet%20Fig.md#A%20b",
        ),
        ("up: '[f](<Sweet Fig.md> \"t\")'", "Sweet Fig.md", "", "f", '[f](<Sweet Fig.md> "t")', "Sweet Fig.md"),
        ("up: '[f](fig_(a).md)'", "fig_(a).md", "", "f", "[f](fig_(a).md)", "fig_(a).md"),
    ],
)
def test_a_quoted_value_that_is_a_link_as_a_whole_is_one(
    block: str, path: str, subpath: str, display: str | None, whole: str, target: str
) -> None:
    (link,) = read(block).links
    assert (link.kind, link.path, link.subpath, link.display, link.embed) == (
        "frontmatter",
        path,
        subpath,
        display,
        False,
    )
    assert cut(block, (link.start, link.end)) == whole
    assert cut(block, (link.target_start, link.target_end)) == link.target == target
    assert cut(block, (link.subpath_start, link.target_end)) == target[
        len(target) - len(target.partition("#")[2]) - 1 :
    ] * bool(subpath)


@pytest.mark.parametrize(
    "value",
    [
        '"see [[x]]"',
        '"[[x]] [[y]]"',
        "[[x]]",
        '"[[]]"',
        '"x"',
        '"[w](https://example.org)"',
        '"[w]()"',
        '"![[x]]"',
        "|\n  [[x]]",
    ],
)
def test_any_other_value_is_no_link(value: str) -> None:
    assert read(f"up: {value}").links == ()


def test_a_link_behind_escapes_stands_for_its_whole_value() -> None:
    block = 'up: "[[a\\u0062c|x]]"'
    (link,) = read(block).links
    assert (link.path, cut(block, (link.start, link.end))) == ("abc", "[[a\\u0062c|x]]")


def test_aliases_of_aliases_do_not_explode() -> None:
    rows = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
    found = read("\n".join([*rows, "tags: [kept]"]))
    assert [flaw.rule for flaw in found.problems] == ["invalid-frontmatter"]
    assert [tag.name for tag in found.tags] == ["kept"]
    assert read("a: &a [1]\nb: [*a, *a]").properties["b"] == [[1], [1]]


@pytest.mark.parametrize(
    "block", ["a: " + "[" * 20_000, "a: " + "{" * 20_000, "- " * 20_000, "a: &a [*a]", "? " * 20_000]
)
def test_deep_nesting_is_a_problem_and_no_crash(block: str) -> None:
    assert [flaw.rule for flaw in read(block).problems] == ["invalid-frontmatter"]


def test_whatever_a_yaml_library_throws_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RecursionError

    monkeypatch.setattr(yaml12.yaml, "parse", fail)
    assert problems("a: 1\ntags: [x]") == [("invalid-frontmatter", "a: 1")]
    assert tags("a: 1\ntags: [x]") == ["x"]


pieces = st.sampled_from(
    [
        *(
            "tags",
            "aliases",
            ": ",
            "- ",
            "\n",
            "  ",
            "[",
            "]",
            "{",
            "}",
            '"',
            "'",
            "#",
            "&a ",
            "*a",
            "!t ",
            "|",
            "é",
            "😀",
        ),
        *("{{x}}", "[[y]]", "\t", ", ", "1", "null", "\r\n", "\x07", "\u2028", "%", "@", "\\", "---", "<<", "?"),
    ]
)


@given(st.lists(pieces, max_size=25).map("".join))
def test_any_block_is_read(block: str) -> None:
    source = f"---\n{block}\n---\n"
    bounds = frontmatter.find(source)
    assert bounds is not None
    found = frontmatter.read(source, bounds.block)
    json.dumps(found.properties, allow_nan=False)
    spans = [*(tag.span for tag in found.tags), *(flaw.span for flaw in found.problems)]
    spans += [(link.start, link.end) for link in found.links]
    assert all(bounds.block.start <= start <= end <= bounds.body for start, end in spans)
    assert found == frontmatter.read(source, bounds.block)
