"""What a path means that somebody typed: the vault, a file in it, lines of that file."""

from __future__ import annotations

import codecs
import errno
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from vault_lsp.errors import NotFound, VaultNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vault_lsp.core.model import NotePath
    from vault_lsp.service import Vault
    from vault_lsp.vault import Rules


class Lines(NamedTuple):
    """A file and the lines asked for: 1-based and inclusive, None where nothing was said."""

    path: NotePath
    first: int | None = None
    last: int | None = None


def vault_root(context: click.Context, folder: str | None) -> Path:
    """The vault that a command works on: as named by option or environment, else the one around the current folder."""
    from vault_lsp.vault import existing_folder, find_root

    named = folder if folder is not None else context.obj
    if named == "":
        raise VaultNotFound("--vault is empty")
    chosen = named or os.environ.get("VAULT_LSP_VAULT")
    if chosen:
        return existing_folder(Path(chosen))
    try:
        here = Path.cwd()
    except OSError as error:
        raise VaultNotFound("the current folder is gone; name a vault with --vault") from error
    return find_root(here)


def vault_file(rules: Rules, typed: str) -> NotePath:
    """Vault path of an existing file, typed from the vault's root or from the current folder; else NotFound."""
    from vault_lsp.vault import safe_file

    try:
        return safe_file(rules, typed)[0]
    except NotFound as error:
        near = None if typed.endswith(("/", os.sep)) else _from_here(typed)
        if near is not None:
            with suppress(NotFound):
                return safe_file(rules, os.fspath(near))[0]
        raise error from None


def vault_file_or_folder(vault: Vault, typed: str) -> NotePath:
    """The same; a folder will do as well."""
    try:
        return vault_file(vault.rules, typed)
    except NotFound:
        for file in _candidates(vault, typed):
            path = vault.path_of(file)
            if path is not None and _is_folder(vault, file):
                return path
        raise


def lines_of(rules: Rules, typed: str) -> Lines:
    """A file, `file:line` or `file:first-last`. A name that exists as it stands goes first: it may hold a colon."""
    try:
        return Lines(vault_file(rules, typed))
    except NotFound:
        split = re.fullmatch(r"(.+?):([0-9]+)(?:-([0-9]+))?", typed, re.DOTALL)
        if split is None:
            raise
        first, last = int(split[2][:15]), int((split[3] or split[2])[:15])
        path = vault_file(rules, split[1])
    if last < first:
        raise click.UsageError(f"{split[2]}-{split[3]}: the last line comes before the first")
    return Lines(path, first, last if split[3] else None)


def file_lines(root: Path, path: NotePath) -> list[bytes]:
    """The lines of a text file as UTF-8 without their ends; bytes that are no text stay as they are."""
    from vault_lsp.vault import decode, read

    try:
        data, _ = read(root / path)
    except OSError as error:
        raise NotFound(f"{path}: {(error.strerror or str(error)).lower()}") from error
    decoded = decode(data)
    if decoded.skipped is not None:
        raise NotFound(f"{path}: {decoded.skipped}")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = decoded.source.encode()
    lines = re.split(rb"\r\n|\n|\r", data.removeprefix(codecs.BOM_UTF8))
    if not lines[-1]:
        lines.pop()  # a final line end opens no further line for a reader
    return lines


def hint(vault: Vault, typed: str) -> list[NotePath]:
    """Vault paths that a file or folder may mean that is there or gone; the vault itself is the empty path."""
    found: list[NotePath] = []
    for file in _candidates(vault, typed):
        path = _root_or_path(vault, file)
        if path is not None and path not in found:
            if os.path.lexists(file):
                return [path]
            found.append(path)
    if not found:
        raise NotFound(f"{typed}: outside the vault or hidden")
    return found


def _candidates(vault: Vault, typed: str) -> Iterator[Path]:
    if not typed or "\0" in typed or any("\ud800" <= character <= "\udfff" for character in typed):
        raise NotFound(f"{typed}: not the name of a file of the vault")
    near = _from_here(typed)
    for file in (*([near] if near is not None else []), vault.root / typed):
        try:
            file.lstat()
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise NotFound(f"{typed[:80]}…: the name is too long") from error
        yield file


def _root_or_path(vault: Vault, file: Path) -> NotePath | None:
    from vault_lsp.core.model import NotePath

    normal = Path(os.path.normpath(file))
    if normal == vault.root:
        return NotePath("")
    try:
        if normal.resolve() == vault.root:
            return NotePath("")
    except (OSError, RuntimeError):
        return None
    return vault.path_of(file)


def _from_here(typed: str) -> Path | None:
    """The path as the current folder has it; None for what can't name a file."""
    if not typed or "\0" in typed:
        return None
    try:
        # Not `resolve`: a link inside the vault is the file it is called.
        return Path(os.path.normpath(Path.cwd() / typed))
    except OSError:
        return None


def _is_folder(vault: Vault, file: Path) -> bool:
    try:
        real = file.resolve()
        return real.is_dir() and (vault.rules.follow_symlinks or real.is_relative_to(vault.root))
    except (OSError, RuntimeError, ValueError):
        return False
