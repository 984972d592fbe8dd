"""`search` and `get`: find notes, and read them."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from vault_lsp.cli import output
from vault_lsp.cli.common import complete_files, json_option, open_vault, sync, vault_option
from vault_lsp.cli.output import print_json, say, shown, warn
from vault_lsp.cli.paths import file_lines, lines_of, vault_root
from vault_lsp.cli.progress import at_terminal
from vault_lsp.errors import NotFound

if TYPE_CHECKING:
    from vault_lsp.search import Hit, SearchResult
    from vault_lsp.service import Vault


@click.command()
@click.argument("query", nargs=-1)
@click.option("-k", "limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Most results.")
@click.option("--tag", "tags", multiple=True, help="Only notes with this tag, or one below it; all of several.")
@click.option("--area", help="Only notes of this first folder; `root` for notes at the root.")
@click.option("--folder", "below", metavar="PATH", help="Only notes in this folder and below.")
@click.option("--path-prefix", metavar="TEXT", help="Only notes whose path begins so.")
@click.option("--modified-after", metavar="DATE", help="An ISO date (local), or an age such as 7d or 3w.")
@click.option("--modified-before", metavar="DATE", help="The same; the day itself is not in it.")
@click.option("--kind", type=click.Choice(["note", "text"]))
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "keyword", "semantic"]),
    default="hybrid",
    show_default=True,
    help="By words, by meaning, or both.",
)
@click.option("--title-weight", type=click.FloatRange(0, 100), help="Weight of titles and aliases against the text.")
@click.option("--rerank/--no-rerank", default=None, help="Let a model read the best hits; default: as in the config.")
@click.option("--explain", is_flag=True, help="Show what each channel adds to the score.")
@click.option("--no-sync", is_flag=True, help="Don't look for changed files first.")
@vault_option
@json_option
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
    with open_vault(context, folder) as vault:
        if not options["no_sync"]:
            sync(vault)
            if text and options["mode"] != "keyword":
                vault.catch_up()
        with vault.view() as view:
            answer = view.search(
                Query(
                    text,
                    options["limit"],
                    filters,
                    title_weight=weight,
                    explain=options["explain"],
                    mode=options["mode"],
                    rerank=options["rerank"],
                )
            )
        if answer.note and _is_news(vault, answer, options["mode"], as_json):
            warn(answer.note)
        if as_json:
            print_json(answer.as_json(str(vault.root)))
            return
        for hit in answer.hits:
            _print_hit(hit)


@click.command()
@click.argument("place", metavar="PATH[:LINE[-LINE]]", shell_complete=complete_files)
@click.option("-l", "count", type=click.IntRange(1), help="So many lines from LINE on; default: all.")
@click.option("-C", "around", type=click.IntRange(0), help="LINE with so many lines around it.")
@vault_option
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


def _is_news(vault: Vault, answer: SearchResult, mode: str, as_json: bool) -> bool:
    """Whether a person or script should hear of what an answer notes about itself.

    A model that fails, or that was named and isn't there, always is news. The rest is in the JSON, and that a vault has
    no vectors at all is no news to a script, nor to those who want it so.
    """
    semantic = vault.semantic()
    configured = vault.embedding_model
    if answer.note != semantic.why or (semantic.model is None and configured not in ("auto", "none")):
        return True
    if as_json:
        return False
    worth = mode == "semantic" or answer.semantic == "partial" or semantic.superseded
    return worth or (configured != "none" and at_terminal())


def _print_hit(hit: Hit) -> None:
    line = f":{hit.line}" if hit.line else ""
    say(f"{hit.score:.4f}  {shown(hit.path)}{line}  {shown(hit.title)}")
    if hit.snippet:
        say(f"        {shown(hit.snippet)}")
    for name, channel in (hit.channels or {}).items():
        strength = "" if channel["strength"] == 1 else f" × {channel['strength']:.2f}"
        adds = f"adds {channel['contribution']:.4f}"
        say(f"        {name}: rank {channel['rank']}, weight {channel['weight']:g}{strength}, {adds}")
    for name, factor in (hit.factors or {}).items():
        say(f"        {name}: × {factor:.3g}")
    if hit.reread:
        score, first, share = (hit.reread[name] for name in ("rerank", "first", "share"))
        say(f"        reranker: {score:.3f}, mixed with {first:.3f} of the first order (share {share:g})")
