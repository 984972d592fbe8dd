"""A lock between processes that the system releases when its holder dies."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from vault_lsp.errors import IndexBusy
from vault_lsp.store.place import refused


def embedding_lock(folder: Path) -> AbstractContextManager[None]:
    """Held by the only one that embeds for the index in `folder`; errors as those of `lock`."""
    return lock(folder / "vectors-v.lock", "another process is embedding for this index")


@contextmanager
def lock(file: Path, taken: str = "another process holds it") -> Iterator[None]:
    """Held by one process or thread at a time.

    IndexBusy at once where another holds it, IndexReadOnly where the file can't be written.
    """
    with refused(file):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Closing the descriptor releases the lock, and so does the end of the process.
        if not _take(descriptor):
            raise IndexBusy(f"{file}: {taken}")
        yield
    finally:
        os.close(descriptor)


if sys.platform == "win32":

    def _take(descriptor: int) -> bool:
        import msvcrt  # noqa: PLC0415 - one platform only

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def _take(descriptor: int) -> bool:
        import fcntl  # noqa: PLC0415 - one platform only

        try:
            # Not lockf: its locks belong to the process, and two threads would share one.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
