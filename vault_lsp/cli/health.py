"""`health`: what is wrong with the notes of a vault."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vault_lsp.cli import output
from vault_lsp.cli.baseline import apart, read_baseline, write_baseline
from vault_lsp.cli.common import SCHEMA, complete_files, json_option, open_vault, sync, vault_option
from vault_lsp.cli.output import print_json, say, shown, warn
from vault_lsp.cli.reports import SHOWN, counted, finding_json, github, sarif
from vault_lsp.core.model import Severity
from vault_lsp.core.rules import RULES

if TYPE_CHECKING:
    from vault_lsp.core.model import Finding

_SHORTCUTS = {
    "broken_links": ("broken-link", "readme-link", "broken-heading", "broken-block"),
    "missing_tags": ("missing-tags",),
    "missing_frontmatter": ("missing-frontmatter",),
    "wikilinks": ("wikilink-in-note",),
}


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=complete_files)
@click.option(
    "--rule", "rules", multiple=True, type=click.Choice(list(RULES)), metavar="RULE", help="Run just this rule."
)
@click.option("--broken-links", is_flag=True, help="Run just the rules of links that lead nowhere.")
@click.option("--missing-tags", is_flag=True, help="Run just the rule of that name.")
@click.option("--missing-frontmatter", is_flag=True, help="Run just the rule of that name.")
@click.option("--wikilinks", is_flag=True, help="Run just the rule wikilink-in-note.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    help="Text for people, JSON, SARIF 2.1.0, or annotations of a GitHub workflow.",
)
@click.option(
    "--fail-on",
    type=click.Choice([*(severity.value for severity in SHOWN[:3]), "never"]),
    default="error",
    show_default=True,
    help="Exit with 1 where something at least this severe is found.",
)
@click.option(
    "--staged",
    "staged_only",
    is_flag=True,
    help="Report just what the next commit of git is about: its notes, and links to notes that it takes away.",
)
@click.option(
    "--baseline",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Leave out the findings that this file lists.",
)
@click.option("--update-baseline", is_flag=True, help="Write what is found now to the baseline.")
@vault_option
@json_option
@click.pass_context
def health(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    rules: tuple[str, ...],
    form: str,
    fail_on: str,
    staged_only: bool,
    baseline: Path | None,
    update_baseline: bool,
    folder: str | None,
    as_json: bool,
    **shortcuts: bool,
) -> None:
    """Report what is wrong with the vault, or with some of its notes and folders.

    Rules that are named run whatever the config says of their severity; exemptions stay.
    """
    from vault_lsp.audit import audit
    from vault_lsp.cli.paths import vault_file_or_folder
    from vault_lsp.cli.pending import is_below
    from vault_lsp.repository import Repository
    from vault_lsp.staged import staged

    named = [*rules, *(rule for name, group in _SHORTCUTS.items() if shortcuts[name] for rule in group)]
    if update_baseline and baseline is None:
        raise click.UsageError("--update-baseline needs --baseline FILE")
    if staged_only and (paths or update_baseline):
        raise click.UsageError("--staged goes with neither PATH nor --update-baseline")
    if update_baseline and (named or paths):
        raise click.UsageError("--update-baseline takes the whole vault and all rules: name no path and no rule")
    known = None if baseline is None or update_baseline else read_baseline(baseline)
    with open_vault(context, folder) as vault:
        wanted = [vault_file_or_folder(vault, path) for path in paths]
        sync(vault)
        config = vault.config.health.only(named) if named else vault.config.health
        with vault.view() as view:
            if staged_only:
                about = staged(vault, view, Repository.around(vault.root))
                found = tuple(filter(about.holds, audit(view, config, about.concerns)))
            else:
                found = audit(view, config, lambda path: not wanted or "" in wanted or is_below(path, wanted))
        root = vault.root
    if baseline is not None and update_baseline:
        write_baseline(baseline, found)
        known = read_baseline(baseline)
    if known is not None:
        found, stale = apart(found, known)
        # A run over part of the vault can't tell what is gone from the rest.
        if stale and not named and not paths and not staged_only:
            warn(f"{stale} in the baseline found no more; --update-baseline drops them")
    counts = counted(found)
    match "json" if as_json else form:
        case "json":
            report = {"schema": SCHEMA, "vault": str(root), "counts": counts}
            print_json({**report, "findings": [finding_json(finding) for finding in found]})
        case "sarif":
            print_json(sarif(found, root))
        case "github":
            for finding in found:
                say(github(finding))
        case _:
            _print(found, counts)
    if fail_on != "never" and any(counts[severity] for severity in SHOWN[: SHOWN.index(Severity(fail_on)) + 1]):
        context.exit(1)


def _print(found: tuple[Finding, ...], counts: Mapping[str, int]) -> None:
    """One block for each severity, the worst first, and a line that counts them."""
    for severity in SHOWN:
        for finding in (each for each in found if each.severity is severity):
            at = output.start_json(finding.place)
            place = f"{shown(finding.path)}:{at['line']}:{at['column']}"
            say(f"{place}: {severity.value}: {shown(finding.message)} [{finding.rule}]")
    told = [f"{counts[severity]} {severity.value}" for severity in SHOWN if counts[severity]]
    say(", ".join(told) if told else "no findings")
