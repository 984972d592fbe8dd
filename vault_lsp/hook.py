"""What a hook of git does: find the vault that an event of a repository concerns, and bring its index up to date.

A hook is a nudge. It mirrors the working tree and not the commit, several at once do their work together, and whatever
goes wrong is left to the look at the disk that comes before each answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from vault_lsp.core.model import NotePath
from vault_lsp.errors import IndexBusy, VaultLspError, VaultNotFound
from vault_lsp.repository import VAULT_SETTING, Repository
from vault_lsp.service import Vault
from vault_lsp.store.lock import lock
from vault_lsp.store.place import refused
from vault_lsp.vault import existing_folder, find_root

#: Files that decide about other files.
_CONCERN_ALL = (".gitignore", "config.yaml")

_Say = Callable[[str], None]


def run(repository: Repository, event: str, arguments: Sequence[str], say: _Say) -> None:
    """Bring the index of the repository's vault up to date after an event; then embed what it brought.

    `arguments` are those that git gave its hook; `say` is told what is done. Raises what keeps the index from it.
    """
    root = vault_of(repository)
    if root is None:
        say(f"{event}: no vault here")
        return
    vault = Vault.open(root)
    try:
        paths = concerned(vault, repository, event, arguments)
        if paths is not None and not paths:
            say(f"{event}: nothing of the vault {root} was touched")
            return
        if _together(vault, paths, event, say):
            _embed(vault, say)
    finally:
        vault.close()


def vault_of(repository: Repository) -> Path | None:
    """The vault that a repository has to do with.

    The one that its setting names (there may be none on this branch), else that of VAULT_LSP_VAULT if one of the two
    lies in the other, else the one around the top of the working tree.
    """
    if named := repository.setting(VAULT_SETTING):
        with suppress(VaultNotFound):
            return existing_folder(repository.top / Path(named).expanduser())
        return None
    if chosen := os.environ.get("VAULT_LSP_VAULT"):
        with suppress(VaultNotFound):
            root = existing_folder(Path(chosen))
            if related(repository, root):
                return root
    return find_root(repository.top)


def related(repository: Repository, root: Path) -> bool:
    """Whether the vault lies in the working tree, or the working tree in the vault."""
    top = repository.top.resolve()
    return root.is_relative_to(top) or top.is_relative_to(root)


def concerned(vault: Vault, repository: Repository, event: str, arguments: Sequence[str]) -> list[NotePath] | None:
    """The vault paths that an event has touched; None where only a look at the whole vault can tell."""
    if not related(repository, vault.root):
        return None
    touched = repository.touched(event, arguments)
    if touched is None or any(file.name in _CONCERN_ALL for file in touched):
        return None
    return [path for path in map(vault.path_of, touched) if path is not None]


def _together(vault: Vault, paths: list[NotePath] | None, event: str, say: _Say) -> bool:
    """Reconcile, unless another is at it: that one then looks at everything once more. Whether this one did it."""
    held = vault.index.folder / "index-v.hook"
    mark = vault.index.folder / "index-v.again"
    asked = worked = False
    while True:
        with ExitStack() as stack:
            try:
                stack.enter_context(lock(held))
            except IndexBusy:
                if asked or worked:
                    # Who holds it now looks for the mark when done.
                    say(f"{event}: left to the one that is at work")
                    return worked
                with refused(mark):
                    mark.touch()
                # Whoever held it may have looked for the mark just before it was made: so try once more.
                asked = True
                continue
            # The mark goes before the look that it asks for: one that comes later asks for another look.
            if _removed(mark) or worked:
                paths = None
            done = vault.reconcile(paths)
            counts = f"{len(done.added)} added, {len(done.changed)} changed, {len(done.removed)} removed"
            say(f"{event}: {counts} in the index of {vault.root}")
            worked = True
        if not mark.exists():
            return True


def _removed(mark: Path) -> bool:
    if not mark.exists():
        return False
    with refused(mark):
        mark.unlink(missing_ok=True)
    return True


def _embed(vault: Vault, say: _Say) -> None:
    """Embed at the lowest priority what has no vector; whoever embeds already takes it along."""
    with suppress(OSError, AttributeError):
        os.nice(19)
    try:
        done = vault.embed()
    except VaultLspError as error:
        say(str(error))
    else:
        if done.embedded or done.why:
            say(f"{done.embedded} passages embedded" + (f" ({done.why})" if done.why else ""))
