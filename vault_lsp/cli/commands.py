"""The commands: what they take, which question each asks of the vault, and what it prints.

Every command imports what it needs inside itself, so that a quick one stays quick.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vault_lsp import __version__
from vault_lsp.cli import output
from vault_lsp.cli.output import print_json, say, shown, warn
from vault_lsp.cli.paths import file_lines, lines_of, vault_file, vault_file_or_folder, vault_root
from vault_lsp.cli.pending import is_below, pending, wanted_paths
from vault_lsp.errors import IndexBusy, IndexReadOnly, NotFound

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from vault_lsp.core.model import NotePath
    from vault_lsp.indexer import Reconciled
    from vault_lsp.search import Hit
    from vault_lsp.service import Vault
    from vault_lsp.view import View

SCHEMA = 1

_Command = TypeVar("_Command", bound=Callable[..., Any])

_LOG_LEVELS = ("debug", "info", "warning", "error")


class _Commands(click.Group):
    """A group that hands on what click would print or swallow itself."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            output.finish()
        except KeyboardInterrupt:
            raise output.Interrupted("interrupted") from None
        return result


# The group ----------------------------------------------------------------------------------------------------------


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="vault-lsp")
@click.option("--vault", "folder", metavar="DIR", help="The vault; default: the one around the current folder.")
@click.option("--log-level", type=click.Choice(_LOG_LEVELS), default="warning", show_default=True)
@click.pass_context
def main(context: click.Context, folder: str | None, log_level: str) -> None:
    """Search, links and health of a folder of Markdown notes.

    Shell completion: eval "$(_VAULT_LSP_COMPLETE=bash_source vault-lsp)" (also zsh_source, fish_source).
    """
    logging.basicConfig(level=log_level.upper(), format="vault-lsp: %(message)s", stream=sys.stderr)
    context.obj = folder


def _on_vault(command: _Command) -> _Command:
    return click.option("--vault", "folder", metavar="DIR", help="The vault to work on.")(command)


def _as_json(command: _Command) -> _Command:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")(command)


def _files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete file names itself."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


# Commands -----------------------------------------------------------------------------------------------------------


@main.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=_files)
@click.option("--rebuild", is_flag=True, help="Build a new index beside the old one, then switch to it.")
@click.option("--dry-run", is_flag=True, help="List what would change; write nothing.")
@_on_vault
@_as_json
@click.pass_context
def index(
    context: click.Context, paths: tuple[str, ...], rebuild: bool, dry_run: bool, folder: str | None, as_json: bool
) -> None:
    """Make the index mirror the notes on disk: all, or the given files and folders, also if gone."""
    if rebuild and (paths or dry_run):
        raise click.UsageError("--rebuild goes with neither PATH nor --dry-run")
    if dry_run:
        _print_pending(pending(vault_root(context, folder), paths), as_json)
        return
    started = time.perf_counter()
    with _vault(context, folder) as vault:
        wanted = wanted_paths(vault, paths)
        with output.progress_bar() as progress:
            done = vault.rebuild(progress=progress) if rebuild else vault.reconcile(wanted, progress=progress)
        _print_reconciled(vault, done, wanted, time.perf_counter() - started, as_json)


@main.command()
@click.argument("query", nargs=-1)
@click.option("-k", "limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Most results.")
@click.option("--tag", "tags", multiple=True, help="Only notes with this tag, or one below it; all of several.")
@click.option("--area", help="Only notes of this first folder; `root` for notes at the root.")
@click.option("--folder", "below", metavar="PATH", help="Only notes in this folder and below.")
@click.option("--path-prefix", metavar="TEXT", help="Only notes whose path begins so.")
@click.option("--modified-after", metavar="DATE", help="An ISO date (local), or an age such as 7d or 3w.")
@click.option("--modified-before", metavar="DATE", help="The same; the day itself is not in it.")
@click.option("--kind", type=click.Choice(["note", "text"]))
@click.option("--title-weight", type=click.FloatRange(0, 100), help="Weight of titles and aliases against the text.")
@click.option("--explain", is_flag=True, help="Show each channel's rank and weight.")
@click.option("--no-sync", is_flag=True, help="Don't look for changed files first.")
@_on_vault
@_as_json
@click.pass_context
def search(
    context: click.Context, /, query: tuple[str, ...], folder: str | None, as_json: bool, **options: Any
) -> None:
    """Find notes. Any text is a legal query (after `--` if it begins with a dash).

    Filters without a query list the notes last changed.
    """
    from vault_lsp.search import Filters, Query, parse_date

    text = " ".join(query).strip()
    tags = tuple(tag.strip().removeprefix("#") for tag in options["tags"])
    if not all(tags):
        raise click.UsageError("--tag needs the name of a tag")
    weight = options["title_weight"]
    if weight is not None and not isfinite(weight):
        raise click.UsageError("--title-weight takes a number from 0 to 100")
    after, before = options["modified_after"], options["modified_before"]
    try:
        filters = Filters(
            tags=tags,
            area=options["area"],
            folder=options["below"],
            path_prefix=options["path_prefix"],
            modified_after_ns=None if after is None else parse_date(after),
            modified_before_ns=None if before is None else parse_date(before),
            kind=options["kind"],
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not text and filters == Filters():
        raise click.UsageError("give a query, or a filter to list the notes last changed")
    with _vault(context, folder) as vault:
        if not options["no_sync"]:
            _sync(vault)
        with vault.view() as view:
            answer = view.search(
                Query(text, options["limit"], filters, title_weight=weight, explain=options["explain"])
            )
        if as_json:
            print_json(answer.as_json(str(vault.root)))
            return
        for hit in answer.hits:
            _print_hit(hit)


@main.command()
@click.argument("place", metavar="PATH[:LINE[-LINE]]", shell_complete=_files)
@click.option("-l", "count", type=click.IntRange(1), help="So many lines from LINE on; default: all.")
@click.option("-C", "around", type=click.IntRange(0), help="LINE with so many lines around it.")
@_on_vault
@click.pass_context
def get(context: click.Context, place: str, count: int | None, around: int | None, folder: str | None) -> None:
    """Print a file of the vault, or lines of it, as they are; line ends become newlines."""
    from vault_lsp.config import load_config
    from vault_lsp.vault import Rules

    root = vault_root(context, folder)
    rules = Rules(root, load_config(root)[0])
    path, first, last = lines_of(rules, place)
    if (count is not None) + (around is not None) + (last is not None) > 1:
        raise click.UsageError("of -l, -C and PATH:LINE-LINE only one can be had")
    if around is not None and first is None:
        raise click.UsageError("-C needs PATH:LINE")
    found = file_lines(root, path)
    if first is not None and not 1 <= first <= max(len(found), 1):
        raise NotFound(f"{path}: no line {first}, the file has {len(found)}")
    first = first or 1
    if around is not None:
        first, last = max(1, first - around), first + around
    elif count is not None:
        last = first + count - 1
    output.say_bytes(b"".join(line + b"\n" for line in found[first - 1 : last]))


@main.command()
@_on_vault
@_as_json
@click.pass_context
def status(context: click.Context, folder: str | None, as_json: bool) -> None:
    """Show what is indexed, what is not and why, and where the index is."""
    with _vault(context, folder) as vault:
        told = vault.status()
        if as_json:
            print_json({"schema": SCHEMA, **told})
            return
        say(f"Vault    {shown(str(vault.root))}")
        say(f"Notes    {told['notes']} indexed, {len(told['skipped'])} skipped, {told['pending']} not up to date")
        say(f"Links    {told['links']} in notes, {told['files']} other files, {told['folders']} folders")
        say(f"Index    {shown(told['index']['path'])} ({told['index']['bytes'] / 1e6:.1f} MB)")
        say(f"Search   keyword; semantic: {told['semantic']}")
        for path, reason in told["skipped"].items():
            say(f"Skipped  {shown(path)}: {shown(reason)}")
        for problem in told["config_problems"]:
            say(f"Config   {shown(problem)}")


@main.command()
@click.argument("path", shell_complete=_files)
@_on_vault
@_as_json
@click.pass_context
def inspect(context: click.Context, path: str, folder: str | None, as_json: bool) -> None:
    """Show what the parser and the resolver see in one note."""
    with _vault(context, folder) as vault:
        note_path = vault_file(vault.rules, path)
        _sync(vault)
        with vault.view() as view:
            note, findings, found = view.require(note_path), view.findings(note_path), _links(view, note_path)
        seen = {
            "schema": SCHEMA,
            "path": note.path,
            "title": note.title,
            "aliases": list(note.aliases),
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


@main.command()
@click.argument("path", shell_complete=_files)
@_on_vault
@_as_json
@click.pass_context
def links(context: click.Context, path: str, folder: str | None, as_json: bool) -> None:
    """List where the links of a note lead."""
    with _vault(context, folder) as vault:
        note_path = vault_file(vault.rules, path)
        _sync(vault)
        with vault.view() as view:
            found = _links(view, note_path)
        if as_json:
            print_json({"schema": SCHEMA, "path": note_path, "links": found})
            return
        for link in found:
            say(f"{shown(note_path)}:{link['line']}:{link['column']}  {shown(link['target'])} → {output.leads(link)}")


@main.command()
@click.argument("path", shell_complete=_files)
@_on_vault
@_as_json
@click.pass_context
def backlinks(context: click.Context, path: str, folder: str | None, as_json: bool) -> None:
    """List the links of other notes that lead to a note, another file or a folder."""
    with _vault(context, folder) as vault:
        target = vault_file_or_folder(vault, path)
        _sync(vault)
        with vault.view() as view:
            found: list[dict[str, Any]] = [
                {"path": source, "target": link.target, "kind": link.kind, **output.span_json(link.place)}
                for source, link in view.backlinks(target)
            ]
        if as_json:
            print_json({"schema": SCHEMA, "path": target, "backlinks": found})
            return
        for link in found:
            say(f"{shown(link['path'])}:{link['line']}:{link['column']}  {shown(link['target'])}")


@main.command()
@click.option("--verify", is_flag=True, help="Prove that the index equals one made afresh.")
@click.option("--prune", is_flag=True, help="Remove old generations, and indexes of vaults that are gone.")
@_on_vault
@_as_json
@click.pass_context
def doctor(context: click.Context, verify: bool, prune: bool, folder: str | None, as_json: bool) -> int:
    """Check the installation and the index."""
    from vault_lsp.doctor import examine, prune_indexes

    with _vault(context, folder) as vault:
        if verify:
            _sync(vault)
        checks = examine(vault, verify=verify)
        removed = prune_indexes(vault) if prune else []
    if as_json:
        print_json({"schema": SCHEMA, "checks": [check._asdict() for check in checks], "removed": removed})
    else:
        for check in checks:
            say(f"{'ok ' if check.ok else 'BAD'}  {check.name}: {shown(check.message)}")
        for file in removed:
            say(f"removed {shown(file)}")
    return 0 if all(check.ok for check in checks) else 1


@main.command(context_settings={"ignore_unknown_options": True})
@click.option("--stdio", is_flag=True, expose_value=False, help="Speak on stdin and stdout (the default).")
@click.option("--tcp", metavar="HOST:PORT", help="Listen instead, for debugging; loopback addresses only.")
@click.option("--allow-remote", is_flag=True, help="Let --tcp listen on an address that others can reach.")
def lsp(tcp: str | None, allow_remote: bool) -> int:
    """Run the language server."""
    from vault_lsp.lsp import serve

    if tcp is None:
        return serve()
    host, _, port = tcp.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) <= 65535:
        raise click.UsageError("--tcp takes HOST:PORT")
    host = host.strip("[]") or "127.0.0.1"
    if not allow_remote and host not in ("localhost", "::1") and not host.startswith("127."):
        raise click.UsageError("--tcp listens on loopback addresses only; --allow-remote lifts that")
    return serve(tcp=(host, int(port)))


# Helpers ------------------------------------------------------------------------------------------------------------


@contextmanager
def _vault(context: click.Context, folder: str | None) -> Iterator[Vault]:
    from vault_lsp.service import Vault

    vault = Vault.open(vault_root(context, folder))
    for problem in vault.config_problems:
        warn(str(problem))
    try:
        yield vault
    finally:
        vault.close()


def _sync(vault: Vault) -> None:
    """Bring the index up to date before an answer; where that is impossible, say so and answer from what there is."""
    try:
        with output.progress_bar() as progress:
            done = vault.reconcile(progress=progress)
    except (IndexReadOnly, IndexBusy) as error:
        if vault.needs_first_index():
            raise  # an empty answer would look like a true one
        warn(f"{error}; the answer may be out of date")
        return
    output.warn_skipped(done.skipped)


def _print_pending(listed: dict[str, list[NotePath]], as_json: bool) -> None:
    if as_json:
        print_json({"schema": SCHEMA, "dry_run": True, **listed})
        return
    for what, paths in listed.items():
        for path in paths:
            say(f"{what:8} {shown(path)}")


def _print_reconciled(
    vault: Vault, done: Reconciled, wanted: Sequence[NotePath] | None, seconds: float, as_json: bool
) -> None:
    total, _ = vault.counts()
    with vault.view() as view:
        skipped, misread = view.skipped(), view.misread()
    if wanted is not None:
        skipped = {path: reason for path, reason in skipped.items() if is_below(path, wanted)}
        misread = {path: message for path, message in misread.items() if is_below(path, wanted)}
    output.warn_skipped(skipped)
    for path, message in misread.items():
        warn(f"{path}: {message}")
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "vault": str(vault.root),
                "notes": total,
                "added": len(done.added),
                "changed": len(done.changed),
                "removed": len(done.removed),
                "skipped": [{"path": path, "reason": reason} for path, reason in skipped.items()],
                "seconds": round(seconds, 3),
            }
        )
        return
    say(
        f"{total} notes indexed: {len(done.added)} added, {len(done.changed)} changed, {len(done.removed)} removed"
        f" ({seconds:.1f} s)"
    )


def _print_hit(hit: Hit) -> None:
    line = f":{hit.line_start}" if hit.line_start else ""
    say(f"{hit.score:.4f}  {shown(hit.path)}{line}  {shown(hit.title)}")
    if hit.snippet:
        say(f"        {shown(hit.snippet)}")
    for name, channel in (hit.channels or {}).items():
        say(f"        {name}: rank {channel['rank']}, weight {channel['weight']:g}")


def _links(view: View, path: NotePath) -> list[dict[str, Any]]:
    return [output.link_json(link, found, view.problem(path, link)) for link, found in view.links(path)]
