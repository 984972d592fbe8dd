"""Is the installation sound, and the index? One check a line, each with what was found."""

from __future__ import annotations

import platform
import shutil
from contextlib import closing, suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import apsw

from vault_lsp.embed import models
from vault_lsp.errors import VaultLspError
from vault_lsp.service import Vault
from vault_lsp.store import db, place, vectors


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    message: str


def examine(vault: Vault, *, verify: bool = False) -> list[Check]:
    """Look at what is installed, at the model and the index; with `verify` compare it with one made afresh."""
    checks = [
        Check("python", ok=True, message=platform.python_version()),
        _sqlite(),
        _vectors(),
        _segmenter(),
        _model(vault),
        Check("config", not vault.config_problems, "; ".join(map(str, vault.config_problems)) or "sound"),
        _index(vault),
    ]
    if verify:
        try:
            differences = vault.verify()
        except VaultLspError as error:
            differences = [str(error)]
        shown = "; ".join(differences[:5]) + (f" and {len(differences) - 5} more" if len(differences) > 5 else "")
        checks.append(Check("verify", not differences, shown or "equal to an index made afresh"))
    return checks


def prune_indexes(vault: Vault) -> list[str]:
    """Remove old generations of this vault's index, and the indexes of vaults that are gone; what was removed.

    What a process has open stays: one that still answers from an older generation, or a rebuild that isn't finished.
    """
    removed = [str(file) for file in vault.index.older_generations() if place.remove(file)]
    with suppress(OSError):
        others = [folder for folder in place.cache_folder().iterdir() if folder != vault.index.folder]
        removed += [str(folder) for folder in others if place.is_orphan(folder) and _remove_folder(folder)]
    return removed


def _remove_folder(folder: Path) -> bool:
    """Remove the index of a vault that is gone, unless a process still has it open."""
    if any(place.in_use(file) for file in folder.glob("index-v*.db")):
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _sqlite() -> Check:
    try:
        with closing(apsw.Connection(":memory:")) as connection:
            connection.execute("CREATE VIRTUAL TABLE t USING fts5(x, content='', contentless_delete=1)").fetchall()
    except apsw.Error as error:
        return Check("sqlite", ok=False, message=f"{apsw.sqlite_lib_version()} without FTS5: {error}")
    return Check("sqlite", ok=True, message=f"{apsw.sqlite_lib_version()} with FTS5")


def _vectors() -> Check:
    problem = vectors.extension_problem()
    if problem is not None:
        return Check("sqlite-vec", ok=False, message=problem)
    return Check("sqlite-vec", ok=True, message=metadata.version("sqlite-vec"))


def _segmenter() -> Check:
    import rjieba  # noqa: PLC0415 - a tenth of a second

    words = rjieba.cut_for_search("知识管理")
    return Check("segmenter", bool(words), f"rjieba {metadata.version('rjieba')}")


def _model(vault: Vault) -> Check:
    configured = vault.embedding_model
    choice = models.choose(configured, vault.root)
    if choice.model is None:
        return Check("model", ok=configured in ("auto", "none"), message=choice.why)
    ready = "" if choice.ready else ", made ready when it is first used"
    return Check("model", ok=True, message=f"{choice.model}, {choice.dimensions} dimensions{ready} ({choice.why})")


def _index(vault: Vault) -> Check:
    file = vault.index.file
    try:
        db.check(file)
    except VaultLspError as error:
        return Check("index", ok=False, message=str(error))
    return Check("index", ok=True, message=f"{file} is sound")
