"""The command group, and which commands are in it.

Every command imports what it needs inside itself, so that a quick one stays quick.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import click

from vault_lsp import __version__
from vault_lsp.cli import output
from vault_lsp.cli.evaluating import evaluation
from vault_lsp.cli.graphing import graph
from vault_lsp.cli.health import health
from vault_lsp.cli.hooks import hook
from vault_lsp.cli.indexing import doctor, index, status
from vault_lsp.cli.links import backlinks, inspect, links
from vault_lsp.cli.models import model
from vault_lsp.cli.searching import get, search
from vault_lsp.cli.serving import lsp

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


for _command in (
    index,
    search,
    get,
    status,
    inspect,
    links,
    backlinks,
    graph,
    health,
    evaluation,
    model,
    doctor,
    hook,
    lsp,
):
    main.add_command(_command)
