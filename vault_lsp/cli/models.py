"""`model`: the models of this machine. `model fetch` is the only command that downloads anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from vault_lsp.cli.common import SCHEMA, json_option
from vault_lsp.cli.output import print_json, say, shown, table
from vault_lsp.cli.progress import progress_bar
from vault_lsp.errors import ModelUnavailable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from vault_lsp.models import Installed


def _installed(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the models on this machine, for the shell."""
    from vault_lsp.models import list_models

    return _beginning(incomplete, [model.name for model in list_models()])


def _fetchable(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from vault_lsp.models import SUGGESTED

    return _beginning(incomplete, SUGGESTED)


def _beginning(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.group()
def model() -> None:
    """List, fetch and remove models that embed or rerank."""


@model.command(name="list")
@json_option
def list_installed(as_json: bool) -> None:
    """List the models on this machine."""
    from vault_lsp.models import list_models

    models = list_models()
    if as_json:
        print_json({"schema": SCHEMA, "models": [_json(each) for each in models]})
        return
    rows = [[shown(each.name), shown(each.state), f"{each.bytes / 1e6:.0f} MB"] for each in models]
    for line, each in zip(table(rows) if rows else [], models, strict=True):
        say(f"{line}  {shown(str(each.place)) if each.place else ''}".rstrip())


@model.command()
@click.argument("name", shell_complete=_fetchable)
@json_option
def fetch(name: str, as_json: bool) -> None:
    """Download a model, or what is missing of it, and keep it for use without a network."""
    from vault_lsp.indexer import Progress
    from vault_lsp.models import fetch as fetch_model

    with progress_bar() as progress:
        place = fetch_model(name, progress=lambda phase, done, total: progress(Progress(phase, done, total)))
    if as_json:
        print_json({"schema": SCHEMA, "model": name, "place": str(place)})
    else:
        say(f"{shown(name)} is in {shown(str(place))}")


@model.command()
@click.argument("name", shell_complete=_installed)
@json_option
def remove(name: str, as_json: bool) -> None:
    """Remove a model from this machine; vectors made with it stay."""
    from vault_lsp.models import remove as remove_model

    if not remove_model(name):
        raise ModelUnavailable(f"{name} is not on this machine")
    if as_json:
        print_json({"schema": SCHEMA, "model": name, "removed": True})
    else:
        say(f"removed {shown(name)}")


def _json(installed: Installed) -> dict[str, object]:
    return {**installed._asdict(), "place": None if installed.place is None else str(installed.place)}
