"""The command line as a process: streams, errors and exit codes around the commands."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any, cast

import click

from vault_lsp.cli.commands import main
from vault_lsp.cli.output import Interrupted, ReaderGone, message_line, mute, print_json
from vault_lsp.errors import VaultLspError

__all__ = ["main", "run"]


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by the caller
            # A terminal or pipe in another encoding must not turn a note's text into a traceback.
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
    except Interrupted as error:
        return _fail(error.code, str(error), wants_json, 130)
    except VaultLspError as error:
        return _fail(error.code, str(error), wants_json, 1)
    except ReaderGone:
        return 0  # the reader has seen enough
    except Exception as error:
        logging.getLogger(__name__).debug("unexpected", exc_info=True)
        message = f"unexpected {type(error).__name__}: {error} (--log-level debug shows more)"
        return _fail("internal", message, wants_json, 1)


def _fail(code: str, message: str, wants_json: bool, exit_code: int, context: click.Context | None = None) -> int:
    try:
        if wants_json:
            print_json({"schema": 1, "error": {"code": code, "message": message}})
            sys.stdout.flush()
            return exit_code
        if context is not None:
            click.echo(context.get_usage(), err=True)
        click.echo(f"vault-lsp: {message_line(message)}", err=True)
    except (OSError, VaultLspError, ReaderGone):
        mute()  # there is nobody left to tell
    return exit_code
