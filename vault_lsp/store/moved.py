"""A vault that was moved or renamed finds the index, and the vectors, that were made at its old place."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import apsw

from vault_lsp.errors import VaultLspError
from vault_lsp.store import db, vector_file
from vault_lsp.store.place import Generations, Index, cache_folder, current_file, is_orphan

#: Notes that are compared, and the share of them that must be the same: some are edited between two openings.
_SAMPLE = 64
_SHARE = 0.5


def take_over(root: Path, file: Path) -> bool:
    """Copy to `file` the index of a vault whose folder is gone and whose notes are those of `root`; True if found.

    The old index is only read: another process may still hold it.
    """
    best = max(_candidates(root, file), default=None)
    if best is None:
        return False
    if not _copy(best[1], file, db.INDEX_ID, root, db.check):
        return False
    _take_vectors_over(Index(best[1].parent, root).vectors, Index(file.parent, root).vectors, root)
    return True


def _take_vectors_over(old: Generations, new: Generations, root: Path) -> None:
    """Copy the vectors as well, where there are none yet."""
    if old.file.is_file() and not new.file.exists():
        file = new.vacant()
        if _copy(old.file, file, vector_file.VECTORS_ID, root, vector_file.check):
            with suppress(VaultLspError):
                if file != new.file:
                    new.point_to(file)
                new.write_seal()


def _copy(old: Path, file: Path, application_id: int, root: Path, check: Callable[[Path], None]) -> bool:
    aside = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        with closing(apsw.Connection(str(aside))) as target:
            with (
                closing(db.connect(old, writable=False, application_id=application_id)) as source,
                target.backup("main", source, "main") as copy,
            ):
                copy.step()
            with db.atomic(target):
                target.execute(
                    "UPDATE meta SET value = iif(key = 'root', ?, ?) WHERE key IN ('root', 'serial')",
                    (str(root), secrets.token_hex(8)),
                )
        check(aside)
        db.place(aside, file)
    except (VaultLspError, apsw.Error, OSError):
        # Whatever is wrong with the old one: a new one is only a matter of time.
        return False
    finally:
        for end in ("", "-wal", "-shm"):
            with suppress(OSError):
                aside.with_name(aside.name + end).unlink()
    return True


def _candidates(root: Path, file: Path) -> Iterator[tuple[float, Path]]:
    """Indexes of vaults that are gone, with the share of notes that are the same here."""
    with suppress(OSError):
        for folder in cache_folder().iterdir():
            candidate = current_file(folder)
            if candidate is not None and candidate != file and is_orphan(folder):
                with suppress(VaultLspError, apsw.Error):
                    share = _share(candidate, root)
                    if share >= _SHARE:
                        yield share, candidate


def _share(candidate: Path, root: Path) -> float:
    """Share of a sample of its notes that lie below `root` with the same size and time."""
    with closing(db.connect(candidate, writable=False)) as connection, db.translated(candidate):
        sample = connection.execute(
            "SELECT path, size, mtime_ns FROM documents WHERE hash IS NOT NULL ORDER BY hash LIMIT ?", (_SAMPLE,)
        ).fetchall()
    same = sum(_is_same(root / str(path), size, mtime_ns) for path, size, mtime_ns in sample)
    return same / len(sample) if sample else 0.0


def _is_same(file: Path, size: object, mtime_ns: object) -> bool:
    try:
        status = file.stat()
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (size, mtime_ns)
