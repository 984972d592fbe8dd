"""Watches a folder on disk from our own thread: many clients can't watch, and others leave folders out.

Where the system can't watch (a network drive, no watches left) the folder is looked at again every few seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from vault_lsp.lsp.session import Root

log = logging.getLogger(__name__)

#: Events are gathered this long, so that a checkout of a thousand files is one batch.
_GATHER_MS = 200
_STEP_MS = 50
_RESCAN_SECONDS = 5.0


def start(root: Root, touched: Callable[[Iterable[str]], None], rescan: Callable[[], None]) -> threading.Thread:
    """Watches until the folder is closed. Both callbacks are called on the watching thread."""

    def run() -> None:
        try:
            _watch(root, touched)
        except Exception as error:  # noqa: BLE001  the watcher's errors have no common base; a walk does as well
            log.warning("watching %s failed (%s); looking every %d s", root.folder, error, _RESCAN_SECONDS)
        while not root.closed.wait(_RESCAN_SECONDS):
            rescan()

    thread = threading.Thread(target=run, name="lsp-watch", daemon=True)
    thread.start()
    return thread


def _watch(root: Root, touched: Callable[[Iterable[str]], None]) -> None:
    """Returns when the folder is closed; raises where it can't be watched."""
    from watchfiles import watch  # noqa: PLC0415  60 ms that the first answer needn't wait for

    for changes in watch(
        root.folder,
        watch_filter=lambda _change, file: file == root.config_file or not is_hidden(file, root.folder),
        debounce=_GATHER_MS,
        step=_STEP_MS,
        stop_event=root.closed,
        rust_timeout=1000,
        raise_interrupt=False,
        ignore_permission_denied=True,
    ):
        touched({file for _change, file in changes})


def is_hidden(file: str, folder: str) -> bool:
    """Whether a file below `folder` is hidden or lies in a hidden folder, such as `.git`."""
    return any(part.startswith(".") for part in Path(file[len(folder) :]).parts)
