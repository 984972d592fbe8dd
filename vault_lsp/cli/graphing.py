"""`graph`: which note links to which, for programs that draw it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vault_lsp.cli.common import SCHEMA, json_option, open_vault, sync, vault_option
from vault_lsp.cli.output import print_json, say, shown

if TYPE_CHECKING:
    from vault_lsp.core.model import NotePath

#: An edge: from, to.
_Edges = list[tuple["NotePath", "NotePath"]]


@click.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "dot", "mermaid"]),
    default="json",
    show_default=True,
    help="One JSON object, or a drawing for Graphviz or Mermaid.",
)
@vault_option
@json_option
@click.pass_context
def graph(context: click.Context, /, form: str, folder: str | None, as_json: bool) -> None:
    """Print the notes and the links between them."""
    from vault_lsp import audit

    with open_vault(context, folder) as vault:
        sync(vault)
        with vault.view() as view:
            notes = {note.path: note for note in view.for_rules()}
            nodes = audit.graph(view, notes)
    titles = {path: notes[path].title for path in sorted(nodes)}
    edges = sorted((path, target) for path, node in nodes.items() for target in node.links if target in nodes)
    if as_json or form == "json":
        print_json(
            {
                "schema": SCHEMA,
                "vault": str(vault.root),
                "nodes": [{"path": path, "title": title} for path, title in titles.items()],
                "edges": [{"source": source, "target": target} for source, target in edges],
            }
        )
        return
    for line in (_dot if form == "dot" else _mermaid)(titles, edges):
        say(line)


def _dot(titles: dict[NotePath, str], edges: _Edges) -> Iterator[str]:
    """The graph in Graphviz' language; JSON's strings are its quoted ones but for the escapes of single letters."""
    yield "digraph vault {"
    for path, title in titles.items():
        yield f"  {_quoted(path)} [label={_quoted(title)}];"
    for source, target in edges:
        yield f"  {_quoted(source)} -> {_quoted(target)};"
    yield "}"


def _mermaid(titles: dict[NotePath, str], edges: _Edges) -> Iterator[str]:
    """The graph as a flowchart: notes by number, since Mermaid takes few characters in a name."""
    numbers = {path: f"n{number}" for number, path in enumerate(titles)}
    yield "graph LR"
    for path, title in titles.items():
        label = shown(title).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
        yield f'  {numbers[path]}["{label}"]'
    for source, target in edges:
        yield f"  {numbers[source]} --> {numbers[target]}"


def _quoted(text: str) -> str:
    return json.dumps(shown(text), ensure_ascii=False)
