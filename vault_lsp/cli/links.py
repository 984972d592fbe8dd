"""`inspect`, `links` and `backlinks`: what one note says, where it leads, and what leads to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from vault_lsp.cli import output
from vault_lsp.cli.common import SCHEMA, complete_files, json_option, open_vault, sync, vault_option
from vault_lsp.cli.output import print_json, say, shown
from vault_lsp.cli.paths import vault_file, vault_file_or_folder

if TYPE_CHECKING:
    from vault_lsp.core.model import NotePath
    from vault_lsp.service import Vault
    from vault_lsp.view import View


@click.command()
@click.argument("path", shell_complete=complete_files)
@vault_option
@json_option
@click.pass_context
def inspect(context: click.Context, path: str, folder: str | None, as_json: bool) -> None:
    """Show what the parser and the resolver see in one note."""
    with open_vault(context, folder) as vault:
        note_path = vault_file(vault.rules, path)
        sync(vault)
        with vault.view() as view:
            note, findings, found = view.require(note_path), view.findings(note_path), _links_of(view, note_path)
        seen = {
            "schema": SCHEMA,
            "path": note.path,
            "title": note.title,
            "aliases": [alias.name for alias in note.aliases],
            "frontmatter": dict(note.frontmatter or {}),
            "headings": [{"level": h.level, "text": h.text, "line": h.place.start.line + 1} for h in note.headings],
            "tags": [{"name": tag.name, **output.start_json(tag.place)} for tag in note.tags],
            "blocks": [{"id": block.id, "line": block.place.start.line + 1} for block in note.blocks],
            "links": found,
            "problems": [{"rule": f.rule, "line": f.place.start.line + 1, "message": f.message} for f in findings],
        }
        if as_json:
            print_json(seen)
        else:
            output.print_inspected(seen)


@click.command()
@click.argument("path", shell_complete=complete_files)
@vault_option
@json_option
@click.pass_context
def links(context: click.Context, path: str, folder: str | None, as_json: bool) -> None:
    """List where the links of a note lead."""
    note, found = _asked(context, folder, lambda vault: vault_file(vault.rules, path), _links_of)
    if as_json:
        print_json({"schema": SCHEMA, "path": note, "links": found})
    else:
        _print_links([{"from": note, "to": f" → {output.leads(link)}", **link} for link in found])


@click.command()
@click.argument("path", shell_complete=complete_files)
@vault_option
@json_option
@click.pass_context
def backlinks(context: click.Context, path: str, folder: str | None, as_json: bool) -> None:
    """List the links of other notes that lead to a note, another file or a folder."""
    target, found = _asked(context, folder, lambda vault: vault_file_or_folder(vault, path), _backlinks_of)
    if as_json:
        print_json({"schema": SCHEMA, "path": target, "backlinks": found})
    else:
        _print_links([{"from": link["path"], "to": "", **link} for link in found])


def _asked(
    context: click.Context,
    folder: str | None,
    locate: Callable[[Vault], NotePath],
    list_links: Callable[[View, NotePath], list[dict[str, Any]]],
) -> tuple[NotePath, list[dict[str, Any]]]:
    """The file that was typed, and its links of one direction."""
    with open_vault(context, folder) as vault:
        path = locate(vault)
        sync(vault)
        with vault.view() as view:
            return path, list_links(view, path)


def _links_of(view: View, path: NotePath) -> list[dict[str, Any]]:
    return [output.link_json(link, found, view.problem(path, link)) for link, found in view.links(path)]


def _backlinks_of(view: View, path: NotePath) -> list[dict[str, Any]]:
    return [
        {"path": source, "target": link.target, "kind": link.kind, **output.span_json(link.place)}
        for source, link in view.backlinks(path)
    ]


def _print_links(links: Sequence[dict[str, Any]]) -> None:
    for link in links:
        say(f"{shown(link['from'])}:{link['line']}:{link['column']}  {shown(link['target'])}{link['to']}")
