"""A lock between processes that the system releases when its holder dies."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vault_lsp.errors import IndexBusy
from vault_lsp.store.place import refused


@contextmanager
def embedding_lock(folder: Path) -> Iterator[None]:
    """Held by the only one that embeds for the index in `folder`.

    IndexBusy at once where another process or thread holds it, IndexReadOnly where the folder can't be written.
    """
    file = folder / "vectors-v.lock"
    with refused(file):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Closing the descriptor releases the lock, and so does the end of the process.
        if not _take(descriptor):
            raise IndexBusy(f"{file}: another process is embedding for this index")
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
