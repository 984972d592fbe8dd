"""`index`, `status` and `doctor`: the state of a vault's index."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from vault_lsp.cli import output
from vault_lsp.cli.common import SCHEMA, complete_files, json_option, open_vault, sync, vault_option
from vault_lsp.cli.output import print_json, say, shown, warn
from vault_lsp.cli.paths import vault_root
from vault_lsp.cli.pending import is_below, pending, wanted_paths
from vault_lsp.cli.progress import at_terminal, progress_bar
from vault_lsp.errors import IndexBusy, IndexReadOnly, ModelUnavailable, VectorsUnavailable

if TYPE_CHECKING:
    from vault_lsp.core.model import NotePath
    from vault_lsp.embedding import Embedded
    from vault_lsp.indexer import Reconciled
    from vault_lsp.semantic import Semantic
    from vault_lsp.service import Vault


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=complete_files)
@click.option("--rebuild", is_flag=True, help="Build a new index beside the old one, then switch to it.")
@click.option("--dry-run", is_flag=True, help="List what would change; write nothing.")
@click.option("--no-embed", is_flag=True, help="Leave texts without a vector as they are.")
@vault_option
@json_option
@click.pass_context
def index(
    context: click.Context,
    paths: tuple[str, ...],
    rebuild: bool,
    dry_run: bool,
    no_embed: bool,
    folder: str | None,
    as_json: bool,
) -> None:
    """Make the index mirror the notes on disk: all, or the given files and folders, also if gone.

    Then texts that have no vector yet are embedded; Ctrl-C stops that, and the next run goes on from there.
    """
    if rebuild and (paths or dry_run):
        raise click.UsageError("--rebuild goes with neither PATH nor --dry-run")
    if dry_run:
        _print_pending(pending(vault_root(context, folder), paths), as_json)
        return
    started = time.perf_counter()
    with open_vault(context, folder) as vault:
        wanted = wanted_paths(vault, paths)
        with progress_bar() as progress:
            done = vault.rebuild(progress=progress) if rebuild else vault.reconcile(wanted, progress=progress)
        told = _reconciled(vault, done, wanted, time.perf_counter() - started)
        if not as_json:
            _print_reconciled(told)
        started = time.perf_counter()
        embedded = _not_embedded(vault) if no_embed else _embed(vault)
        if as_json:
            told["seconds"] = round(told["seconds"] + time.perf_counter() - started, 3)
            print_json({**told, **embedded._asdict()})
        elif embedded.embedded:
            _print_embedded(embedded, time.perf_counter() - started)


@click.command()
@vault_option
@json_option
@click.pass_context
def status(context: click.Context, folder: str | None, as_json: bool) -> None:
    """Show what is indexed, what is not and why, and where the index is."""
    with open_vault(context, folder) as vault:
        told, semantic = vault.status(), vault.semantic()
        if as_json:
            print_json({"schema": SCHEMA, **told})
            return
        say(f"Vault    {shown(str(vault.root))}")
        say(f"Notes    {told['notes']} indexed, {len(told['skipped'])} skipped, {told['pending']} not up to date")
        say(f"Links    {told['links']} in notes, {told['files']} other files, {told['folders']} folders")
        say(f"Index    {shown(told['index']['path'])} ({told['index']['bytes'] / 1e6:.1f} MB)")
        say(f"Search   {_search_line(semantic)}")
        for path, reason in told["skipped"].items():
            say(f"Skipped  {shown(path)}: {shown(reason)}")
        for problem in told["config_problems"]:
            say(f"Config   {shown(problem)}")


@click.command()
@click.option("--verify", is_flag=True, help="Prove that the index equals one made afresh.")
@click.option("--prune", is_flag=True, help="Remove old generations, and indexes of vaults that are gone.")
@vault_option
@json_option
@click.pass_context
def doctor(context: click.Context, verify: bool, prune: bool, folder: str | None, as_json: bool) -> int:
    """Check the installation and the index."""
    from vault_lsp.doctor import examine, prune_indexes

    with open_vault(context, folder) as vault:
        if verify:
            sync(vault)
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


def _print_pending(listed: dict[str, list[NotePath]], as_json: bool) -> None:
    if as_json:
        print_json({"schema": SCHEMA, "dry_run": True, **listed})
        return
    for what, paths in listed.items():
        for path in paths:
            say(f"{what:8} {shown(path)}")


def _reconciled(vault: Vault, done: Reconciled, wanted: Sequence[NotePath] | None, seconds: float) -> dict[str, Any]:
    """What a reconcile did, as JSON; files with problems are named on stderr."""
    total, _ = vault.counts()
    with vault.view() as view:
        skipped, misread = view.skipped(), view.misread()
    if wanted is not None:
        skipped = {path: reason for path, reason in skipped.items() if is_below(path, wanted)}
        misread = {path: message for path, message in misread.items() if is_below(path, wanted)}
    output.warn_skipped(skipped)
    for path, message in misread.items():
        warn(f"{path}: {message}")
    return {
        "schema": SCHEMA,
        "vault": str(vault.root),
        "notes": total,
        "added": len(done.added),
        "changed": len(done.changed),
        "removed": len(done.removed),
        "skipped": [{"path": path, "reason": reason} for path, reason in skipped.items()],
        "seconds": round(seconds, 3),
    }


def _print_reconciled(told: Mapping[str, Any]) -> None:
    counts = ", ".join(f"{told[what]} {what}" for what in ("added", "changed", "removed"))
    say(f"{told['notes']} notes indexed: {counts} ({told['seconds']:.1f} s)")
    output.finish()  # embedding may take long


def _embed(vault: Vault) -> Embedded:
    """Embed what has no vector. Where that can't be done the reason is told, and search goes on by words."""
    try:
        with progress_bar() as progress:
            done = vault.embed(progress=progress)
    except KeyboardInterrupt:
        semantic = vault.semantic()
        kept = f"{semantic.embedded} of {semantic.chunks} passages are embedded"
        raise output.Interrupted(f"interrupted: {kept}, the next `vault-lsp index` goes on from there") from None
    except (IndexBusy, IndexReadOnly, ModelUnavailable, VectorsUnavailable) as error:
        warn(str(error))
        return _not_embedded(vault, str(error))
    # That a vault without a model has no vectors is no news to a script.
    if done.why and (vault.embedding_model not in ("auto", "none") or at_terminal()):
        warn(done.why)
    return done


def _not_embedded(vault: Vault, why: str = "") -> Embedded:
    from vault_lsp.embedding import Embedded

    semantic = vault.semantic()
    return Embedded(semantic.model, 0, semantic.chunks - semantic.embedded, why)


def _print_embedded(done: Embedded, seconds: float) -> None:
    left = f", {done.left} left" if done.left else ""
    say(f"{done.embedded} passages embedded with {shown(done.model or '')}{left} ({seconds:.1f} s)")


def _search_line(semantic: Semantic) -> str:
    if semantic.model is None:
        return f"by words only: {shown(semantic.why)}"
    if semantic.state == "off":
        return f"by words; by meaning with {shown(semantic.model)}: {shown(semantic.why)}"
    why = f" ({shown(semantic.why)})" if semantic.why else ""
    return f"by words and by meaning with {shown(semantic.model)}: {semantic.share:.0%} embedded{why}"
