"""Baselines: the findings that a vault is allowed to keep, so that only new ones count."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vault_lsp.cli.reports import fingerprints

if TYPE_CHECKING:
    from vault_lsp.core.model import Finding

_VERSION = 1


def read_baseline(file: Path) -> frozenset[str]:
    """The fingerprints of a baseline; a missing or damaged one is an error that names the file."""
    try:
        data = json.loads(file.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}; --update-baseline writes a baseline") from error
    except json.JSONDecodeError as error:
        raise click.ClickException(f"{file}:{error.lineno}: not JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise click.ClickException(f"{file}:{line}: not UTF-8") from error
    except RecursionError as error:
        raise click.ClickException(f"{file}:1: nested too deeply for a baseline") from error
    entries = data.get("findings") if isinstance(data, dict) and data.get("version") == _VERSION else None
    if not isinstance(entries, list):
        raise click.ClickException(f"{file}:1: not a baseline of version {_VERSION}")
    known: set[str] = set()
    for number, entry in enumerate(entries, 1):
        mark = entry.get("fingerprint") if isinstance(entry, dict) else None
        if not isinstance(mark, str):
            raise click.ClickException(f"{file}: entry {number} of its findings has no fingerprint")
        known.add(mark)
    return frozenset(known)


def write_baseline(file: Path, found: Sequence[Finding]) -> None:
    """Write the findings as a baseline, one a line and sorted, in one step."""
    rows = sorted(
        (each.path, each.rule, each.subject, mark) for each, mark in zip(found, fingerprints(found), strict=True)
    )
    lines = [
        json.dumps({"path": path, "rule": rule, "subject": subject, "fingerprint": mark}, ensure_ascii=False)
        for path, rule, subject, mark in rows
    ]
    body = ",\n".join(f"    {line}" for line in lines)
    text = f'{{\n  "version": {_VERSION},\n  "findings": [\n{body}\n  ]\n}}\n'
    target = Path(os.path.realpath(file))
    try:
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o644
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as out:
                # A lone surrogate, of a name that isn't UTF-8, becomes an escape that JSON reads back.
                out.write(text.encode("utf-8", "backslashreplace"))
            Path(name).chmod(mode)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error


def apart(found: Sequence[Finding], known: frozenset[str]) -> tuple[tuple[Finding, ...], int]:
    """The findings that a baseline lacks, and how many of its entries are found no more."""
    marks = list(fingerprints(found))
    fresh = tuple(each for each, mark in zip(found, marks, strict=True) if mark not in known)
    return fresh, len(known.difference(marks))
