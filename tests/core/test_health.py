"""The findings of one note: which rule, on which text, saying what."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import pytest

from vault_lsp.core.globs import matches_any
from vault_lsp.core.health import findings
from vault_lsp.core.links import Anchors, Names, resolve
from vault_lsp.core.model import (
    Block,
    Definition,
    Finding,
    Heading,
    LabelUse,
    Link,
    Note,
    NotePath,
    Problem,
    Resolution,
    Severity,
)
from vault_lsp.core.rules import RULES, HealthConfig
from vault_lsp.core.slugs import slug
from vault_lsp.core.text import Place, Span, Text

_ITEM = re.compile(
    r"(?P<wikilink>!?\[\[(?P<target>[^]|]*)(?:\|(?P<display>[^]]*))?]])"
    r"|(?P<markdown>\[[^]]*]\((?P<destination>[^)]*)\))"
    r"|^(?P<definition>\[(?P<label>[^]]+)]: (?P<to>\S*).*)"
    r"|\[(?P<use>[^]]+)]"
    r"|(?:^|(?<= ))\^(?P<block>[\w-]+)$"
    r"|^(?P<marks>#+) (?P<heading>.*)",
    re.MULTILINE,
)


def note_of(path: str, source: str) -> Note:
    """A note with the links, labels, blocks and headings of simple text; `%%` lines around it make a comment."""
    text = Text(source)
    links, uses, definitions, blocks, headings = [], [], [], [], []
    for item in _ITEM.finditer(source):

        def place(group: str, item: re.Match[str] = item) -> Place:
            return text.place(Span(*item.span(group)))

        if item["wikilink"] or item["markdown"]:
            kind, group = ("wikilink", "target") if item["wikilink"] else ("markdown", "destination")
            target, end = item[group], item.end(group)
            bare, mark, rest = target.partition("#")
            links.append(
                Link(
                    "wikilink" if kind == "wikilink" else "markdown",
                    target,
                    bare,
                    mark + rest,
                    item["display"],
                    item[0].startswith("!"),
                    place(kind),
                    place(group),
                    text.place(Span(end - len(mark + rest), end)),
                    comment=source.startswith("%%"),
                )
            )
        elif item["definition"]:
            label = text.place(Span(item.start(), item.end("label") + 1))
            definitions.append(Definition(item["label"].lower(), item["to"], place("definition"), label))
        elif item["use"]:
            uses.append(item)
        elif item["block"]:
            blocks.append(Block(item["block"], text.place(Span(item.start("block") - 1, item.end()))))
        else:
            raw = item["heading"]
            headings.append(Heading(len(item["marks"]), raw, raw, slug(raw), text.place(Span(*item.span()))))
    defined = {definition.label for definition in definitions}
    label_uses = (
        LabelUse(item["use"].lower(), text.place(Span(*item.span())), item["use"].lower() in defined) for item in uses
    )
    return Note(
        NotePath(path),
        path,
        text.place(Span(0, 0)),
        headings=tuple(headings),
        links=tuple(links),
        blocks=tuple(blocks),
        definitions=tuple(definitions),
        label_uses=tuple(label_uses),
    )


class Texts(NamedTuple):
    """The catalogue of a vault of texts."""

    names: Names
    anchors: Callable[[NotePath], Anchors | None]

    def resolve(self, source: NotePath, link: Link) -> Resolution:
        return resolve(link.kind, link.path, link.subpath, source, self.names, self.anchors)


def check(
    files: Mapping[str, str], path: str = "log.md", config: HealthConfig | None = None, note: Note | None = None
) -> tuple[Finding, ...]:
    """The findings of one file in a vault of these texts."""
    aliases = [
        (name, NotePath(file))
        for file, text in files.items()
        for name in re.findall(r"^alias: (.*)", text, re.MULTILINE)
    ]
    names = Names.of(map(NotePath, files), [], aliases)
    checked = note or note_of(path, files[path])

    def anchors(target: NotePath) -> Anchors | None:
        return Anchors.of(note_of(target, files[target])) if target.endswith(".md") else None

    return findings(checked, Texts(names, anchors), config or HealthConfig())


def shown(files: Mapping[str, str], path: str = "log.md") -> list[tuple[str, str]]:
    """The findings as (rule, text of the range)."""
    return [(finding.rule, covered(files[path], finding.place)) for finding in check(files, path)]


def covered(source: str, place: Place) -> str:
    text = Text(source)
    start, end = (text.offset(point.line, point.utf32, "utf-32") for point in place)
    return source[start:end]


VAULT = {
    "soil.md": "# Soil\n## Loam\n## Sand\ntext ^one\n",
    "a/pear.md": "x",
    "b/pear.md": "y",
    "wine.md": "alias: vino",
    "img/plan.png": "",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[soil]] [[soil#loam]] [[soil#^one]] ![[plan.png]] [x](soil.md#sand)", []),
        ("[[gone]] and [[gone]]", [("broken-link", "[[gone]]"), ("broken-link", "[[gone]]")]),
        ("![[gone.png|200]]", [("broken-link", "![[gone.png|200]]")]),
        ("[x](gone.md)", [("broken-link", "gone.md")]),
        ("[[../up]]", [("broken-link", "[[../up]]")]),
        ("[[soil#Gravel|g]]", [("broken-heading", "[[soil#Gravel|g]]")]),
        ("[x](soil.md#gravel)", [("broken-heading", "#gravel")]),
        ("[x](#core)", [("broken-heading", "#core")]),
        ("[[soil#^two]]", [("broken-block", "[[soil#^two]]")]),
        ("[x](soil.md#^two)", [("broken-block", "#^two")]),
        ("[[pear]]", [("ambiguous-link", "[[pear]]")]),
        ("[x](pear.md)", [("ambiguous-link", "pear.md")]),
        ("[[a/pear]] [[b/pear.md]]", []),
        ("[[vino]]", [("alias-link", "[[vino]]")]),
        ("[[vino#x]]", [("alias-link", "[[vino#x]]"), ("broken-heading", "[[vino#x]]")]),
        ("[x](//example.org/a.md)", []),
        ("[[{{title}}]] ![[{{date}}#x]] [[<% tp.file.title %>]] [x]({{url}}) [a]({{x}}.md)", []),
        ("%%\n[[gone]] [[pear]] [[vino]] [[soil#no]]\n%%", []),
        (
            "[a]\n\n[a]: soil.md\n[a]: b.md\n[B]: soil.md",
            [("duplicate-definition", "[a]"), ("unused-definition", "[B]: soil.md")],
        ),
        (
            "[[soil]] [[soil|Earth]] [[wine]]\n\n[Soil]: soil.md\n[wine]: wine.md\n[earth]: x",
            [("unused-definition", "[earth]: x")],
        ),
        ("[//]: # (hidden)\n[//]: # (hidden too)\n[c]: <>", []),
        ("[^1]\n\n[^1]: a note\n[^1]: again\n[^2]: unused", []),
        ("[lost] and [^lost] and [{{x}}]", [("broken-reference", "[lost]")]),
        ("one ^dup\n\ntwo ^Dup\n\nthree ^dup", [("duplicate-block", "^Dup"), ("duplicate-block", "^dup")]),
    ],
)
def test_each_rule_marks_its_text(text: str, expected: list[tuple[str, str]]) -> None:
    assert shown({**VAULT, "log.md": text}) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[gone]]", "No file “gone” in the vault"),
        ("[[../up]]", "“../up” lies outside the vault"),
        ("[x](assets\\1.png)", "No file “assets\\1.png”: folders are parted by “/”"),
        ("[[soil#lome]]", "No heading “lome” in soil.md; it has “Loam”, “Soil”, “Sand”"),
        ("[[soil#lome#]]", "No heading “lome#” in soil.md; it has “Loam”, “Soil”, “Sand”"),
        ("[[soil#Soil#Gravel]]", "No heading “Soil#Gravel” in soil.md; it has “Soil”, “Loam”, “Sand”"),
        ("[[wine#Taste]]", "No heading “Taste” in wine.md, which has no headings"),
        ("[[#Taste]]", "No heading “Taste” in this note, which has no headings"),
        ("[[soil#^two]]", "No block “^two” in soil.md"),
        ("[[pear]]", "“pear” could be any of 2 files, the first is taken: a/pear.md, b/pear.md"),
        ("[[vino]]", "“vino” is only an alias of wine.md: write [[wine|vino]]"),
        ("![[vino|the wine]]", "“vino” is only an alias of wine.md: write ![[wine|the wine]]"),
        ("[lost]", "“[lost]” has no definition"),
        ("a ^x\n\nb ^x", "“^x” is on line 1 already, and links go there"),
        ("[a]\n[a]: x\n[a]: y", "“[a]” is defined on line 2 already, and that one counts"),
    ],
)
def test_a_message_names_what_is_wrong_and_what_is_there(text: str, message: str) -> None:
    assert [finding.message for finding in check({**VAULT, "log.md": text})] == [message]


def test_related_places_list_candidates_headings_and_the_first_of_two() -> None:
    def related(text: str) -> list[tuple[str, int, str]]:
        (finding,) = check({**VAULT, "log.md": text})
        return [(item.path, item.place.start.line, item.message) for item in finding.related]

    assert [item[:2] for item in related("[[pear]]")] == [("a/pear.md", 0), ("b/pear.md", 0)]
    assert related("[[soil#Gravel]]") == [("soil.md", 0, "Soil"), ("soil.md", 1, "Loam"), ("soil.md", 2, "Sand")]
    assert [item[:2] for item in related("x\n\na ^x\n\nb ^x")] == [("log.md", 2)]
    assert [item[:2] for item in related("[a]\n[a]: x\n[a]: y")] == [("log.md", 1)]


def test_headings_are_listed_nearest_first_and_not_all_of_a_long_note() -> None:
    text = "\n".join(f"# Chapter {number}" for number in range(1000)) + "\n"
    files = {"book.md": "# Watering plan\n" + text, "log.md": "[[book#watring plans]]"}
    (finding,) = check(files)
    assert finding.related[0].message == "Watering plan"
    assert len(finding.related) == 8


@pytest.mark.parametrize("path", ["README.md", "sub/readme.md", "README.zh.md", "Readme_EN.md"])
def test_a_readme_has_its_own_rule(path: str) -> None:
    (finding,) = check({path: "[x](gone.md)"}, path)
    assert (finding.rule, finding.severity) == ("readme-link", "error")


@pytest.mark.parametrize("path", ["readme rules.md", "my-readme.md", "readmes.md"])
def test_a_note_about_readmes_is_no_readme(path: str) -> None:
    assert [finding.rule for finding in check({path: "[x](gone.md)"}, path)] == ["broken-link"]


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("[[https://example.org/a]]", "hint"),
        ("[[mailto:me@example.org]]", "hint"),
        ("[[D:\\notes\\a]]", "hint"),
        ("[[Plan: the garden]]", "error"),
        ("[[C:]]", "error"),
    ],
)
def test_an_address_in_a_wikilink_is_only_a_hint(text: str, severity: str) -> None:
    assert [finding.severity for finding in check({"log.md": text})] == [severity]


def test_severities_come_from_the_config() -> None:
    files = {"log.md": "[[gone]] [[https://example.org]]\n[a]: x"}

    def severities(**rules: Severity) -> list[Severity]:
        config = HealthConfig({rule.replace("_", "-"): severity for rule, severity in rules.items()})
        return [finding.severity for finding in check(files, config=config)]

    assert severities() == [Severity.ERROR, Severity.HINT, Severity.HINT]
    assert severities(broken_link=Severity.WARNING) == [Severity.WARNING, Severity.HINT, Severity.HINT]
    assert severities(broken_link=Severity.OFF) == [Severity.HINT]
    assert severities(unused_definition=Severity.ERROR)[-1] == Severity.ERROR


@pytest.mark.parametrize(
    ("glob", "quiet"),
    [("log.md", True), ("a/", True), ("a/**", True), ("*.md", True), ("b/**", False), ("/log.md", False)],
)
def test_a_glob_exempts_notes_from_one_rule(glob: str, quiet: bool) -> None:  # noqa: FBT001 - a column of the table
    files = {"a/log.md": "[[gone]]\n[a]: x"}
    found = check(files, "a/log.md", HealthConfig(exempt={"broken-link": (glob,)}))
    assert [finding.rule for finding in found] == (
        ["unused-definition"] if quiet else ["broken-link", "unused-definition"]
    )


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (["broken-link"], ["unused-definition"]),
        ("broken-link", ["unused-definition"]),
        (True, []),
        (["unused-definition", 3, None], ["broken-link"]),
        ({"broken-link": 1}, ["broken-link", "unused-definition"]),
        (None, ["broken-link", "unused-definition"]),
    ],
)
def test_a_note_can_switch_rules_off_for_itself(value: object, left: list[str]) -> None:
    note = replace(note_of("log.md", "[[gone]]\n[a]: x"), frontmatter={"quiet": value})
    config = HealthConfig(ignore_key="quiet")
    assert [finding.rule for finding in check({"log.md": ""}, config=config, note=note)] == left


def test_what_the_parser_found_is_a_finding_too_and_all_are_in_the_order_of_the_text() -> None:
    text = Text("---\na: {\n---\n[[gone]]\nx")
    note = note_of("log.md", text.source)
    problems = (
        Problem("invalid-encoding", "later", text.place(Span(22, 23))),
        Problem("invalid-frontmatter", "early", text.place(Span(4, 8))),
        Problem("legacy-property", "first", text.place(Span(0, 3))),
    )
    found = check({"log.md": ""}, note=replace(note, problems=problems))
    assert [(finding.rule, finding.severity.value) for finding in found] == [
        ("legacy-property", "information"),
        ("invalid-frontmatter", "warning"),
        ("broken-link", "error"),
        ("invalid-encoding", "warning"),
    ]


def test_only_an_alias_of_one_note_can_be_fixed() -> None:
    files = {"wine.md": "alias: vino", "log.md": "[[vino]] [[gone]]"}
    assert [finding.fixable for finding in check(files)] == [True, False]
    found = check({**files, "red.md": "alias: vino", "log.md": "[[vino]]"})
    assert [(finding.rule, finding.fixable) for finding in found] == [("alias-link", False), ("ambiguous-link", False)]


def test_every_rule_says_what_it_is() -> None:
    for name, rule in RULES.items():
        assert re.fullmatch("[a-z]+(-[a-z]+)*", name)
        assert rule.weight is not Severity.OFF
        assert rule.description


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("README.md", "a/README.md", True),
        ("/README.md", "a/README.md", False),
        ("tmp/", "a/tmp/x.md", True),
        ("tmp/", "a/tmp", False),
        ("*.board.md", "d/x.board.md", True),
        ("*.md", "a/x.mdx", False),
        ("a/*/c.md", "a/b/c.md", True),
        ("a/*.md", "a/b/c.md", False),
        ("a/**/c.md", "a/c.md", True),
        ("a/**/c.md", "a/x/y/c.md", True),
        ("a/**", "a/x/y/c.md", True),
        ("a/**", "ab/c.md", False),
        ("**/c.md", "c.md", True),
        ("?.md", "é.md", True),
        ("?.md", "ab.md", False),
        ("[a-c].md", "b.md", True),
        ("[!a-c].md", "b.md", False),
        ("[z-a].md", "[z-a].md", True),
        ("a[--b&&]", "a&", True),
        ("a.c", "abc", False),
        ("cafe\u0301/", "café/x.md", True),
        ("", "a.md", False),
    ],
)
def test_globs_match_as_in_gitignore(pattern: str, path: str, matches: bool) -> None:  # noqa: FBT001 - as above
    assert matches_any([pattern], path) is matches
