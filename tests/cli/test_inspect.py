"""`inspect`, `links` and `backlinks`: what a note holds, where its links lead, and who links to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FILES: dict[str, str | bytes] = {
    "notes/Bed.md": (
        "---\n"
        "aliases: [plot, 苗床]\n"
        'up: "[[Index|top]]"\n'
        "n: 3\n"
        "tags: [garden]\n"
        "---\n"
        "# Bed 😀 one\n"
        "\n"
        "😀 [[Index]] and [[nowhere]], [[Index#Gone]], ![[Index#^b9]] #herb/dill\n"
        "[doc](../img/plan.png) [x](<../Index.md#Part one>) %% [[hidden]] %% [[{{date}}]]\n"
        "\n"
        "text ^blk-1\n"
    ),
    "Index.md": "# Index\n\n## Part one\n\n[[plot]] [[苗床|bed]] [[Bed#^blk-1]] ![[plan.png]] [[Index]] [dir](img/)\n",
    "img/plan.png": b"x",
    "README.md": "[gone](gone.md) [[notes/Bed]]\n",
}


def test_inspect_shows_all_that_a_note_holds(shell: Callable[..., Any]) -> None:
    seen = shell(**FILES)("inspect", "--json", "notes/Bed.md").json
    links = seen.pop("links")
    assert seen == {
        "schema": 1,
        "path": "notes/Bed.md",
        "title": "Bed 😀 one",
        "aliases": ["plot", "苗床"],
        "frontmatter": {"aliases": ["plot", "苗床"], "up": "[[Index|top]]", "n": 3, "tags": ["garden"]},
        "headings": [{"level": 1, "text": "Bed 😀 one", "line": 7}],
        "tags": [{"name": "garden", "line": 5, "column": 8}, {"name": "herb/dill", "line": 9, "column": 61}],
        "blocks": [{"id": "blk-1", "line": 12}],
        "problems": seen["problems"],
    }
    assert [(problem["rule"], problem["line"]) for problem in seen["problems"]] == [
        ("broken-link", 9),
        ("broken-heading", 9),
        ("broken-block", 9),
    ]
    assert [(link["target"], link["resolved"], link["problem"]) for link in links] == [
        ("Index", "Index.md", None),
        ("Index", "Index.md", None),
        ("nowhere", None, "broken-link"),
        ("Index#Gone", "Index.md", "broken-heading"),
        ("Index#^b9", "Index.md", "broken-block"),
        ("../img/plan.png", "img/plan.png", None),
        ("../Index.md#Part one", "Index.md", None),
        ("hidden", None, None),
        ("{{date}}", None, None),
    ]
    assert links[0] == {
        "kind": "frontmatter",
        "target": "Index",
        "path": "Index",
        "subpath": "",
        "display": "top",
        "embed": False,
        "line": 3,
        "column": 6,
        "end_line": 3,
        "end_column": 19,
        "resolved": "Index.md",
        "problem": None,
    }
    # The emoji is one code point; ends are exclusive.
    assert [links[1][key] for key in ("line", "column", "end_line", "end_column")] == [9, 3, 9, 12]
    assert links[4]["embed"] is True
    assert (links[4]["path"], links[4]["subpath"]) == ("Index", "#^b9")
    assert (links[6]["kind"], links[6]["path"], links[6]["subpath"]) == ("markdown", "../Index.md", "#Part one")


def test_inspect_as_text_is_a_line_an_item(shell: Callable[..., Any]) -> None:
    lines = shell(**FILES)("inspect", "notes/Bed.md").lines
    assert lines[:4] == ["notes/Bed.md: Bed 😀 one", "  alias    plot", "  alias    苗床", *lines[3:4]]
    assert "      7  # Bed 😀 one" in lines
    assert "      9  #herb/dill" in lines
    assert "     12  ^blk-1" in lines
    assert "      9  wikilink nowhere → broken-link" in lines
    assert "      9  wikilink Index#Gone → Index.md, broken-heading" in lines


def test_links_are_those_of_inspect(shell: Callable[..., Any]) -> None:
    run = shell(**FILES)
    listed = run("links", "--json", "notes/Bed.md").json
    assert listed == {
        "schema": 1,
        "path": "notes/Bed.md",
        "links": run("inspect", "--json", "notes/Bed.md").json["links"],
    }
    assert "notes/Bed.md:9:3  Index → Index.md" in run("links", "notes/Bed.md").lines
    assert run("links", "--json", "README.md").json["links"][0]["problem"] == "readme-link"


def test_backlinks_of_a_note_count_its_aliases_and_anchors_and_not_itself(shell: Callable[..., Any]) -> None:
    run = shell(**FILES)
    found = run("backlinks", "--json", "notes/Bed.md").json
    assert found["path"] == "notes/Bed.md"
    assert [(link["path"], link["line"], link["column"], link["target"]) for link in found["backlinks"]] == [
        ("Index.md", 5, 1, "plot"),
        ("Index.md", 5, 10, "苗床"),
        ("Index.md", 5, 21, "Bed#^blk-1"),
        ("README.md", 1, 17, "notes/Bed"),
    ]
    assert found["backlinks"][1] == {
        "path": "Index.md",
        "target": "苗床",
        "kind": "wikilink",
        "line": 5,
        "column": 10,
        "end_line": 5,
        "end_column": 20,
    }
    assert run("backlinks", "notes/Bed.md").lines[-1] == "README.md:1:17  notes/Bed"
    assert {link["path"] for link in run("backlinks", "--json", "Index.md").json["backlinks"]} == {"notes/Bed.md"}


def test_files_and_folders_have_backlinks_too(shell: Callable[..., Any]) -> None:
    run = shell(**FILES)
    assert [link["path"] for link in run("backlinks", "--json", "img/plan.png").json["backlinks"]] == [
        "Index.md",
        "notes/Bed.md",
    ]
    for folder in ("img", "img/", "./img"):
        assert [link["target"] for link in run("backlinks", "--json", folder).json["backlinks"]] == ["img/"]
    assert run("backlinks", "--json", "README.md").json["backlinks"] == []
    assert run("backlinks", "README.md").out == ""


def test_an_unsaved_index_is_no_matter_the_files_count(shell: Callable[..., Any]) -> None:
    run = shell(**FILES)
    run("index")
    run.write({"new.md": "[[Bed]]\n", "Index.md": "nothing\n"})
    assert {link["path"] for link in run("backlinks", "--json", "notes/Bed.md").json["backlinks"]} == {
        "new.md",
        "README.md",
    }


def test_a_note_that_can_not_be_indexed_says_why(shell: Callable[..., Any]) -> None:
    done = shell(**{"bin.md": b"\x00\x01"})("inspect", "bin.md", code=1)
    assert "binary (NUL bytes)" in done.stderr
