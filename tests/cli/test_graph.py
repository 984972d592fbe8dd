"""`graph`: the notes and the links between them, in each format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FILES: dict[str, str | bytes] = {
    "a.md": '# Say "A" & B\n[[中文]] [[中文]] [[gone]] ![[p.png]] [[a]]\n',
    "中文.md": "[[a]]\n",
    "lone.md": "",
    "p.png": b"",
}


def test_the_graph_as_json_has_every_note_and_each_link_once(shell: Callable[..., Any]) -> None:
    answer = shell(**FILES)("graph").json
    assert answer["nodes"] == [
        {"path": "a.md", "title": 'Say "A" & B'},
        {"path": "lone.md", "title": "lone"},
        {"path": "中文.md", "title": "中文"},
    ]
    assert [(edge["source"], edge["target"]) for edge in answer["edges"]] == [
        ("a.md", "a.md"),
        ("a.md", "中文.md"),
        ("中文.md", "a.md"),
    ]


def test_the_graph_for_graphviz(shell: Callable[..., Any]) -> None:
    assert shell(**FILES)("graph", "--format", "dot").lines == [
        "digraph vault {",
        '  "a.md" [label="Say \\"A\\" & B"];',
        '  "lone.md" [label="lone"];',
        '  "中文.md" [label="中文"];',
        '  "a.md" -> "a.md";',
        '  "a.md" -> "中文.md";',
        '  "中文.md" -> "a.md";',
        "}",
    ]


def test_the_graph_for_mermaid(shell: Callable[..., Any]) -> None:
    assert shell(**FILES)("graph", "--format", "mermaid").lines == [
        "graph LR",
        '  n0["Say &quot;A&quot; &amp; B"]',
        '  n1["lone"]',
        '  n2["中文"]',
        "  n0 --> n0",
        "  n0 --> n2",
        "  n2 --> n0",
    ]
