"""What commands share: options, completion of file names, an open vault, and an index that is up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vault_lsp.cli import output
from vault_lsp.cli.output import warn
from vault_lsp.cli.paths import vault_root
from vault_lsp.cli.progress import progress_bar
from vault_lsp.errors import IndexBusy, IndexReadOnly

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from vault_lsp.service import Vault

#: Heads every JSON answer.
SCHEMA = 1

_Command = TypeVar("_Command", bound=Callable[..., Any])


def vault_option(command: _Command) -> _Command:
    """The option that names the vault."""
    return click.option("--vault", "folder", metavar="DIR", help="The vault to work on.")(command)


def json_option(command: _Command) -> _Command:
    """The option that asks for JSON."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")(command)


def complete_files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete file names itself."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


@contextmanager
def open_vault(context: click.Context, folder: str | None) -> Iterator[Vault]:
    """The vault that a command works on; mistakes of its config are told."""
    from vault_lsp.service import Vault

    vault = Vault.open(vault_root(context, folder))
    for problem in vault.config_problems:
        warn(str(problem))
    try:
        yield vault
    finally:
        vault.close()


def sync(vault: Vault) -> None:
    """Bring the index up to date before an answer; where that is impossible, say so and answer from what there is."""
    try:
        with progress_bar() as progress:
            done = vault.reconcile(progress=progress)
    except (IndexReadOnly, IndexBusy) as error:
        if vault.needs_first_index():
            raise  # an empty answer would look like a true one
        warn(f"{error}; the answer may be out of date")
        return
    output.warn_skipped(done.skipped)
