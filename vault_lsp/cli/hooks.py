"""`hook`: git's hooks put in, taken out and looked at, and what they run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vault_lsp.cli.common import SCHEMA, json_option, vault_option
from vault_lsp.cli.output import print_json, say, shown, warn
from vault_lsp.cli.paths import vault_root
from vault_lsp.errors import VaultLspError

if TYPE_CHECKING:
    from vault_lsp.hooking import Change
    from vault_lsp.repository import Repository


@click.group()
def hook() -> None:
    """Keep the index fresh through git: after a commit, a merge, a checkout or a rebase."""


@hook.command()
@click.argument("repository", required=False, metavar="[REPOSITORY]", type=click.Path())
@click.option("--force", is_flag=True, help="Also where other repositories share the hooks.")
@vault_option
@json_option
@click.pass_context
def install(context: click.Context, repository: str | None, force: bool, folder: str | None, as_json: bool) -> int:
    """Put hooks into a repository; default: the one around the vault, else around the current folder.

    A shell script that is there already is kept and runs as before, any other hook is left alone. The vault is the one
    around REPOSITORY, or the one named; a repository remembers it.
    """
    from vault_lsp.hooking import install as put

    named = _named(context, folder)
    found = _repository(repository, vault_root(context, folder))
    vault = vault_root(context, folder) if named or repository is None else None
    changes = put(found, vault, force=force)
    _print(changes, found, as_json)
    return 1 if any(change.advice for change in changes) else 0


@hook.command()
@click.argument("repository", required=False, metavar="[REPOSITORY]", type=click.Path())
@vault_option
@json_option
@click.pass_context
def uninstall(context: click.Context, repository: str | None, folder: str | None, as_json: bool) -> None:
    """Take the hooks out again; what else is in their files stays, byte for byte."""
    from vault_lsp.hooking import uninstall as take_out

    found = _repository(repository, vault_root(context, folder))
    _print(take_out(found), found, as_json)


@hook.command()
@click.argument("repository", required=False, metavar="[REPOSITORY]", type=click.Path())
@vault_option
@json_option
@click.pass_context
def status(context: click.Context, repository: str | None, folder: str | None, as_json: bool) -> None:
    """Show which hooks are in a repository, and which vault they serve."""
    from vault_lsp.hook import vault_of
    from vault_lsp.hooking import look

    found = _repository(repository, vault_root(context, folder))
    hooks, vault = look(found), vault_of(found)
    if as_json:
        listed = [{"event": each.event, "file": os.fspath(each.file), "state": each.state} for each in hooks]
        told = {"repository": os.fspath(found.top), "vault": None if vault is None else os.fspath(vault)}
        print_json({"schema": SCHEMA, **told, "hooks": listed})
        return
    say(f"Repository     {shown(os.fspath(found.top))}")
    say(f"Vault          {'none on this branch' if vault is None else shown(os.fspath(vault))}")
    for each in hooks:
        say(f"{each.event:14} {each.state} ({shown(os.fspath(each.file))})")


@hook.command()
@click.argument("event")
@click.argument("arguments", nargs=-1)
@click.option("--top", type=click.Path(), help="The top of the working tree; default: around the current folder.")
@click.option("--git-dir", type=click.Path(), help="The folder of git that belongs to it.")
@click.option("--detach", is_flag=True, help="Return at once and go on in the background.")
@click.pass_context
def run(
    _context: click.Context, event: str, arguments: tuple[str, ...], top: str | None, git_dir: str | None, detach: bool
) -> None:
    """Do what the hook of EVENT does. It never fails, and speaks only with VAULT_LSP_DEBUG=1."""
    from vault_lsp.hook import run as follow
    from vault_lsp.repository import Repository

    loud = bool(os.environ.get("VAULT_LSP_DEBUG"))
    if detach and not loud:
        _start_again(event, arguments, top, git_dir)
        return
    try:
        found = Repository(Path(top), Path(git_dir)) if top and git_dir else Repository.find(Path(top or "."))
        follow(found, event, arguments, warn if loud else _nothing)
    except (VaultLspError, OSError) as error:
        if loud:
            warn(str(error))


def _start_again(event: str, arguments: tuple[str, ...], top: str | None, git_dir: str | None) -> None:
    """Run the same in a process that holds nothing of this one open."""
    import subprocess
    import sys

    named = [word for name, value in (("--top", top), ("--git-dir", git_dir)) if value for word in (name, value)]
    nothing = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, "-P", "-m", "vault_lsp", "hook", "run", *named, "--", event, *arguments],
        stdin=nothing,
        stdout=nothing,
        stderr=nothing,
        start_new_session=True,
    )


def _nothing(_message: str) -> None:
    pass


def _named(context: click.Context, folder: str | None) -> bool:
    return bool(folder or context.find_root().obj)


def _repository(named: str | None, vault: Path) -> Repository:
    from vault_lsp.repository import Repository
    from vault_lsp.vault import existing_folder

    return Repository.find(existing_folder(Path(named))) if named is not None else Repository.around(vault)


def _print(changes: list[Change], repository: Repository, as_json: bool) -> None:
    if as_json:
        listed = [{**change._asdict(), "file": os.fspath(change.file)} for change in changes]
        print_json({"schema": SCHEMA, "repository": os.fspath(repository.top), "hooks": listed})
        return
    for change in changes:
        say(f"{change.event:14} {change.done}: {shown(os.fspath(change.file))}")
        if change.advice:
            warn(f"{change.file}: {change.advice}")
