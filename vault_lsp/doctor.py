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
from vault_lsp.store import compare, db, matrix, place, vector_file


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    message: str


def examine(vault: Vault, *, verify: bool = False) -> list[Check]:
    """Look at the programs below, the model, the index and the vectors; `verify` compares them with fresh ones."""
    checks = [
        Check("python", ok=True, message=platform.python_version()),
        _sqlite(),
        _sqlite_vec(),
        _segmenter(),
        _model(vault),
        Check("config", not vault.config_problems, "; ".join(map(str, vault.config_problems)) or "sound"),
        _index(vault),
        _vectors(vault),
    ]
    if verify:
        try:
            differences = vault.verify()
            if vault.index.vectors.file.exists() and vector_file.extension_problem() is None:
                differences += compare.vector_problems(vault.index.vectors.file)
        except VaultLspError as error:
            differences = [str(error)]
        shown = "; ".join(differences[:5]) + (f" and {len(differences) - 5} more" if len(differences) > 5 else "")
        checks.append(Check("verify", not differences, shown or "equal to an index made afresh"))
    return checks


def prune_indexes(vault: Vault) -> list[str]:
    """Remove old generations of this vault's index, and the indexes of vaults that are gone; what was removed.

    What a process has open stays: one that still answers from an older generation, or a rebuild that isn't finished.
    """
    old = vault.index.older_generations() + vault.index.vectors.older_generations()
    removed = [str(file) for file in old if place.remove(file)]
    removed += [str(file) for file in matrix.leftovers(vault.index.vectors.file) if _unlink(file)]
    with suppress(OSError):
        others = [folder for folder in place.cache_folder().iterdir() if folder != vault.index.folder]
        removed += [str(folder) for folder in others if place.is_orphan(folder) and _remove_folder(folder)]
    return removed


def _remove_folder(folder: Path) -> bool:
    """Remove the index of a vault that is gone, unless a process still has it open."""
    if any(place.in_use(file) for kind in ("index", "vectors") for file in folder.glob(f"{kind}-v*.db")):
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _unlink(file: Path) -> bool:
    try:
        file.unlink()
    except OSError:
        # On some platforms a file stays as long as a process has it in its memory.
        return False
    return True


def _sqlite() -> Check:
    try:
        with closing(apsw.Connection(":memory:")) as connection:
            connection.execute("CREATE VIRTUAL TABLE t USING fts5(x, content='', contentless_delete=1)").fetchall()
    except apsw.Error as error:
        return Check("sqlite", ok=False, message=f"{apsw.sqlite_lib_version()} without FTS5: {error}")
    return Check("sqlite", ok=True, message=f"{apsw.sqlite_lib_version()} with FTS5")


def _sqlite_vec() -> Check:
    try:
        return Check("sqlite-vec", ok=True, message=vector_file.extension_version())
    except VaultLspError as error:
        return Check("sqlite-vec", ok=False, message=f"{error}: search goes on with keywords alone")


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


def _vectors(vault: Vault) -> Check:
    file = vault.index.vectors.file
    if not file.exists():
        return Check("vectors", ok=True, message="none yet")
    try:
        vector_file.check(file)
    except VaultLspError as error:
        return Check("vectors", ok=False, message=str(error))
    return Check("vectors", ok=True, message=f"{file} is sound")
