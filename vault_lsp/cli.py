"""The command line: commands, text and JSON output, exit codes.

Every command imports what it needs inside itself, so that a quick one stays quick.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from vault_lsp import __version__
from vault_lsp.errors import IndexBusy, IndexReadOnly, NotFound, VaultLspError

if TYPE_CHECKING:
    from vault_lsp.core.model import Link, NotePath, Resolution
    from vault_lsp.core.text import Place
    from vault_lsp.indexer import Progress, Reconciled
    from vault_lsp.service import Vault

SCHEMA = 1

_Command = TypeVar("_Command", bound=Callable[..., Any])

_LOG_LEVELS = ("debug", "info", "warning", "error")


# The group ----------------------------------------------------------------------------------------------------------


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: 0 success, 1 failure, 2 wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe in another encoding must not turn a note's text into a traceback.
        if stream is not None:  # an editor may start us without one
            cast(Any, stream).reconfigure(encoding="utf-8", errors="backslashreplace")
    wants_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    try:
        return int(main.main(args=list(arguments), prog_name="vault-lsp", standalone_mode=False) or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        return _fail("usage", error.format_message(), wants_json, 2, error.ctx)
    except click.ClickException as error:
        return _fail("error", error.format_message(), wants_json, error.exit_code)
    except VaultLspError as error:
        return _fail(error.code, str(error), wants_json, 1)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", "interrupted", wants_json, 130)
    except BrokenPipeError:
        # The reader has seen enough; Python would complain once more while it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        logging.getLogger(__name__).debug("unexpected", exc_info=True)
        return _fail(
            "internal", f"unexpected {type(error).__name__}: {error} (--log-level debug shows more)", wants_json, 1
        )


def _fail(code: str, message: str, wants_json: bool, exit_code: int, context: click.Context | None = None) -> int:
    if wants_json:
        click.echo(json.dumps({"schema": SCHEMA, "error": {"code": code, "message": message}}, ensure_ascii=False))
        return exit_code
    if context is not None:
        click.echo(context.get_usage(), err=True)
    click.echo(f"vault-lsp: {message}", err=True)
    return exit_code


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
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


# Commands -----------------------------------------------------------------------------------------------------------


@main.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--rebuild", is_flag=True, help="Build a new index beside the old one, then switch to it.")
@click.option("--dry-run", is_flag=True, help="List what would change; write nothing.")
@_on_vault
@_as_json
@click.pass_context
def index(
    context: click.Context, paths: tuple[str, ...], rebuild: bool, dry_run: bool, folder: str | None, as_json: bool
) -> None:
    """Make the index mirror the notes on disk: all of them, or the given files and folders."""
    started = time.perf_counter()
    with _vault(context, folder) as vault:
        if dry_run:
            _print_pending(vault, as_json)
            return
        wanted = [_vault_path(vault, path) for path in paths] or None
        if rebuild and wanted:
            raise click.UsageError("--rebuild takes no PATH")
        with _progress() as progress:
            done = vault.rebuild(progress=progress) if rebuild else vault.reconcile(wanted, progress=progress)
        _print_reconciled(vault, done, time.perf_counter() - started, as_json)


@main.command()
@click.argument("query", nargs=-1)
@click.option("-k", "limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Most results.")
@click.option("--tag", "tags", multiple=True, help="Only notes with this tag, or one below it; all of several.")
@click.option("--area", help="Only notes of this first folder; `root` for notes at the root.")
@click.option("--folder", "below", metavar="PATH", help="Only notes in this folder and below.")
@click.option("--path-prefix", help="Only notes whose path begins so.")
@click.option("--modified-after", metavar="DATE", help="An ISO date (local), or an age such as 7d or 3w.")
@click.option("--modified-before", metavar="DATE")
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
    """Find notes. Any text is a legal query; filters alone list the notes last changed."""
    from vault_lsp.search import Filters, Query, parse_date

    text = " ".join(query).strip()
    after, before = options["modified_after"], options["modified_before"]
    try:
        filters = Filters(
            tags=tuple(tag.removeprefix("#") for tag in options["tags"]),
            area=options["area"],
            folder=options["below"],
            path_prefix=options["path_prefix"],
            modified_after_ns=parse_date(after) if after else None,
            modified_before_ns=parse_date(before) if before else None,
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
                Query(text, options["limit"], filters, title_weight=options["title_weight"], explain=options["explain"])
            )
        if as_json:
            _print_json(answer.as_json(str(vault.root)))
            return
        for hit in answer.hits:
            line = f":{hit.line_start}" if hit.line_start else ""
            click.echo(f"{hit.score:.4f}  {_shown(hit.path)}{line}  {_shown(hit.title)}")
            if hit.snippet:
                click.echo(f"        {hit.snippet}")
            for name, channel in (hit.channels or {}).items():
                click.echo(f"        {name}: rank {channel['rank']}, weight {channel['weight']}")


@main.command()
@click.argument("place", metavar="PATH[:LINE]")
@click.option("-l", "count", type=click.IntRange(1), help="So many lines from LINE on; default: all.")
@click.option("-C", "around", type=click.IntRange(0), help="LINE with so many lines around it.")
@_on_vault
@click.pass_context
def get(context: click.Context, place: str, count: int | None, around: int | None, folder: str | None) -> None:
    """Print lines of a file of the vault."""
    from vault_lsp.service import Vault

    vault = Vault(_root(context, folder))
    path, line = _place(vault, place)
    if count is not None and around is not None:
        raise click.UsageError("-l and -C exclude each other")
    if around is not None and line is None:
        raise click.UsageError("-C needs PATH:LINE")
    text = vault.text(path)
    if text is None:
        raise NotFound(f"{_shown(path)}: not a text file")
    lines = [text.line(number) for number in range(len(text.line_starts))]
    if lines and not lines[-1]:
        lines.pop()  # a final line end opens no further line for a reader
    first = 1 if line is None else line
    if line is not None and not 1 <= line <= max(len(lines), 1):
        raise NotFound(f"{_shown(path)}: no line {line}, the file has {len(lines)}")
    last = len(lines) if count is None else first + count - 1
    if around is not None:
        first, last = max(1, first - around), first + around
    for shown in lines[first - 1 : last]:
        click.echo(shown)


@main.command()
@_on_vault
@_as_json
@click.pass_context
def status(context: click.Context, folder: str | None, as_json: bool) -> None:
    """Show what is indexed, what is not and why, and where the index is."""
    with _vault(context, folder) as vault:
        told = vault.status()
        if as_json:
            _print_json({"schema": SCHEMA, **told})
            return
        click.echo(f"Vault    {vault.root}")
        click.echo(
            f"Notes    {told['notes']} indexed, {len(told['skipped'])} skipped, {told['pending']} not up to date"
        )
        click.echo(f"Links    {told['links']} in notes, {told['files']} other files, {told['folders']} folders")
        click.echo(f"Index    {told['index']['path']} ({told['index']['bytes'] / 1e6:.1f} MB)")
        click.echo(f"Search   keyword; semantic: {told['semantic']}")
        for path, reason in told["skipped"].items():
            click.echo(f"Skipped  {_shown(path)}: {reason}")
        for problem in told["config_problems"]:
            click.echo(f"Config   {problem}")


@main.command()
@click.argument("path")
@_on_vault
@_as_json
@click.pass_context
def inspect(context: click.Context, path: str, folder: str | None, as_json: bool) -> None:
    """Show what the parser and the resolver see in one note."""
    with _vault(context, folder) as vault:
        note_path = _existing(vault, path)
        _sync(vault)
        with vault.view() as view:
            note, links = view.require(note_path), view.links(note_path)
            findings = view.findings(note_path)
        seen = {
            "schema": SCHEMA,
            "path": note.path,
            "title": note.title,
            "aliases": list(note.aliases),
            "frontmatter": dict(note.frontmatter or {}),
            "headings": [{"level": h.level, "text": h.text, "line": h.place.start.line + 1} for h in note.headings],
            "tags": [{"name": tag.name, **_start(tag.place)} for tag in note.tags],
            "blocks": [{"id": block.id, "line": block.place.start.line + 1} for block in note.blocks],
            "links": [_link_json(link, resolution) for link, resolution in links],
            "problems": [{"rule": f.rule, "line": f.place.start.line + 1, "message": f.message} for f in findings],
        }
        if as_json:
            _print_json(seen)
            return
        _print_inspected(seen)


@main.command()
@click.argument("path")
@_on_vault
@_as_json
@click.pass_context
def links(context: click.Context, path: str, folder: str | None, as_json: bool) -> None:
    """List where the links of a note lead."""
    with _vault(context, folder) as vault:
        note_path = _existing(vault, path)
        _sync(vault)
        with vault.view() as view:
            found = [_link_json(link, resolution) for link, resolution in view.links(note_path)]
        if as_json:
            _print_json({"schema": SCHEMA, "path": note_path, "links": found})
            return
        for link in found:
            leads = _shown(link["resolved"]) if link["resolved"] else link["problem"]
            click.echo(f"{_shown(note_path)}:{link['line']}:{link['column']}  {_shown(link['target'])} → {leads}")


@main.command()
@click.argument("path")
@_on_vault
@_as_json
@click.pass_context
def backlinks(context: click.Context, path: str, folder: str | None, as_json: bool) -> None:
    """List the links of other notes that lead to a note or file."""
    with _vault(context, folder) as vault:
        note_path = _existing(vault, path)
        _sync(vault)
        with vault.view() as view:
            found: list[dict[str, Any]] = [
                {"path": source, "target": link.target, "kind": link.kind, **_range(link.place)}
                for source, link in view.backlinks(note_path)
            ]
        if as_json:
            _print_json({"schema": SCHEMA, "path": note_path, "backlinks": found})
            return
        for link in found:
            click.echo(f"{_shown(link['path'])}:{link['line']}:{link['column']}  {_shown(link['target'])}")


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
        _print_json({"schema": SCHEMA, "checks": [check._asdict() for check in checks], "removed": removed})
    else:
        for check in checks:
            click.echo(f"{'ok ' if check.ok else 'BAD'}  {check.name}: {check.message}")
        for file in removed:
            click.echo(f"removed {file}")
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


def _root(context: click.Context, folder: str | None) -> Path:
    from vault_lsp.vault import existing_folder, find_root

    chosen = folder or context.obj or os.environ.get("VAULT_LSP_VAULT")
    return existing_folder(Path(chosen)) if chosen else find_root(Path.cwd())


@contextmanager
def _vault(context: click.Context, folder: str | None) -> Iterator[Vault]:
    from vault_lsp.service import Vault

    vault = Vault.open(_root(context, folder))
    for problem in vault.config_problems:
        click.echo(f"vault-lsp: {problem}", err=True)
    try:
        yield vault
    finally:
        vault.close()


def _sync(vault: Vault) -> None:
    """Bring the index up to date before an answer; where that is impossible, say so and answer from what there is."""
    try:
        with _progress() as progress:
            done = vault.reconcile(progress=progress)
    except (IndexReadOnly, IndexBusy) as error:
        click.echo(f"vault-lsp: {error}; the answer may be out of date", err=True)
        return
    _warn_skipped(done)


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """A progress bar on a terminal, for work that takes long enough to be noticed."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    bars: list[Any] = []
    started = time.monotonic()

    def show(progress: Progress) -> None:
        if progress.total < 50 or (not bars and time.monotonic() - started < 0.3):
            return
        if not bars:
            bars.append(click.progressbar(length=progress.total, label=progress.phase.capitalize(), file=sys.stderr))
            bars[0].__enter__()
        bars[0].update(progress.done - bars[0].pos)

    try:
        yield show
    finally:
        for bar in bars:
            bar.__exit__(None, None, None)


def _existing(vault: Vault, typed: str) -> NotePath:
    """Vault path of an existing file, typed from the vault's root or from the current folder."""
    try:
        return vault.locate_file(typed)
    except NotFound:
        near = Path(os.path.abspath(typed)) if typed and "\0" not in typed else None  # noqa: PTH100 - keeps links
        if near is None or not near.is_file():
            raise
        return vault.locate_file(str(near))


def _vault_path(vault: Vault, typed: str) -> NotePath:
    """Vault path of a file or folder that may be gone."""
    if "\0" in typed:
        raise NotFound("a path can't hold a NUL")
    for base in (Path.cwd(), vault.root):
        path = vault.path_of(base / typed)
        if path is not None and ((base / typed).exists() or base == vault.root):
            return path
    raise NotFound(f"{_shown(typed)}: outside the vault or hidden")


def _place(vault: Vault, typed: str) -> tuple[NotePath, int | None]:
    """A file, or a file and a line: a colon may belong to the name."""
    try:
        return _existing(vault, typed), None
    except NotFound:
        split = re.fullmatch(r"(.+):(\d{1,9})", typed, re.DOTALL)
        if split is None:
            raise
        return _existing(vault, split[1]), int(split[2])


def _print_pending(vault: Vault, as_json: bool) -> None:
    pending = vault.pending()
    listed = {
        "added": sorted(entry.path for entry in pending.new),
        "changed": sorted(entry.path for entry, _ in pending.stale),
        "removed": sorted(path for path, _ in pending.gone),
    }
    if as_json:
        _print_json({"schema": SCHEMA, "dry_run": True, **listed})
        return
    for what, paths in listed.items():
        for path in paths:
            click.echo(f"{what:8} {_shown(path)}")


def _print_reconciled(vault: Vault, done: Reconciled, seconds: float, as_json: bool) -> None:
    total, _ = vault.counts()
    if as_json:
        _print_json(
            {
                "schema": SCHEMA,
                "vault": str(vault.root),
                "notes": total,
                "added": len(done.added),
                "changed": len(done.changed),
                "removed": len(done.removed),
                "skipped": [{"path": path, "reason": reason} for path, reason in done.skipped.items()],
                "seconds": round(seconds, 3),
            }
        )
        return
    _warn_skipped(done)
    click.echo(
        f"{total} notes indexed: {len(done.added)} added, {len(done.changed)} changed, {len(done.removed)} removed"
        f" ({seconds:.1f} s)"
    )


def _warn_skipped(done: Reconciled) -> None:
    for path, reason in done.skipped.items():
        click.echo(f"vault-lsp: skipped {_shown(path)}: {reason}", err=True)


def _print_inspected(seen: Mapping[str, Any]) -> None:
    click.echo(f"{_shown(seen['path'])}: {_shown(seen['title'])}")
    for alias in seen["aliases"]:
        click.echo(f"  alias    {_shown(alias)}")
    for key, value in seen["frontmatter"].items():
        click.echo(f"  property {_shown(key)}: {json.dumps(value, ensure_ascii=False)}")
    for heading in seen["headings"]:
        click.echo(f"  {heading['line']:>5}  {'#' * heading['level']} {_shown(heading['text'])}")
    for tag in seen["tags"]:
        click.echo(f"  {tag['line']:>5}  #{_shown(tag['name'])}")
    for block in seen["blocks"]:
        click.echo(f"  {block['line']:>5}  ^{block['id']}")
    for link in seen["links"]:
        leads = _shown(link["resolved"]) if link["resolved"] else link["problem"]
        click.echo(f"  {link['line']:>5}  {link['kind']} {_shown(link['target'])} → {leads}")
    for problem in seen["problems"]:
        click.echo(f"  {problem['line']:>5}  {problem['rule']}: {_shown(problem['message'])}")


def _link_json(link: Link, resolution: Resolution) -> dict[str, Any]:
    from vault_lsp.core.model import Found

    found = isinstance(resolution, Found)
    problem = None if found else "broken-link"
    if isinstance(resolution, Found) and resolution.missing:
        problem = f"broken-{resolution.missing}"
    return {
        "kind": link.kind,
        "target": link.target,
        "path": link.path,
        "subpath": link.subpath,
        "display": link.display,
        "embed": link.embed,
        **_range(link.place),
        "resolved": resolution.path if isinstance(resolution, Found) else None,
        "problem": problem,
    }


def _start(place: Place) -> dict[str, int]:
    return {"line": place.start.line + 1, "column": place.start.utf32 + 1}


def _range(place: Place) -> dict[str, int]:
    return {**_start(place), "end_line": place.end.line + 1, "end_column": place.end.utf32 + 1}


def _print_json(value: Mapping[str, Any]) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def _shown(text: str) -> str:
    from vault_lsp.vault import printable

    return printable(text)
