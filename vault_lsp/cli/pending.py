"""Which part of the vault `index` was asked for, and what it would change there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from vault_lsp.cli.paths import hint

if TYPE_CHECKING:
    from pathlib import Path

    from vault_lsp.core.model import NotePath
    from vault_lsp.service import Vault


def wanted_paths(vault: Vault, typed: Sequence[str]) -> list[NotePath] | None:
    """The paths to look at; None for the whole vault."""
    paths = list(dict.fromkeys(path for each in typed for path in hint(vault, each)))
    return None if not typed or "" in paths else paths


def pending(root: Path, typed: Sequence[str]) -> dict[str, list[NotePath]]:
    """What a reconcile would do to which note. Makes no index where there is none."""
    from vault_lsp.service import Vault
    from vault_lsp.vault import walk

    vault = Vault(root)
    wanted = wanted_paths(vault, typed)
    if vault.index.file.exists():
        with closing(Vault.open(root)) as vault:
            found = vault.pending()
        changed = [entry.path for entry, known in found.stale if _differs(root / entry.path, known.hash)]
        listed = {
            "added": [entry.path for entry in found.new],
            "changed": changed,
            "removed": [path for path, _ in found.gone],
        }
    else:
        new = [entry.path for entry in walk(vault.rules) if entry.kind == "note" and entry.skipped is None]
        listed = {"added": new, "changed": [], "removed": []}
    return {
        what: sorted(path for path in paths if wanted is None or is_below(path, wanted))
        for what, paths in listed.items()
    }


def is_below(path: NotePath, wanted: Sequence[NotePath]) -> bool:
    """Whether a path is one of the wanted ones or lies below one."""
    return any(path == each or path.startswith(f"{each}/") for each in wanted)


def _differs(file: Path, known: bytes | None) -> bool:
    """Whether a file whose stamp is another one, or too young to be trusted, holds other bytes than those indexed."""
    import hashlib

    from vault_lsp.vault import read

    try:
        return hashlib.sha256(read(file)[0]).digest() != known
    except OSError:
        return True
