"""Whether the client's process is still there."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vault_lsp.lsp.server import VaultServer

log = logging.getLogger(__name__)

_PARENT_SECONDS = 2.0


async def watch_parent(server: VaultServer, process: int) -> None:
    """Ends the server when the client's process is gone: a pipe that a third process inherited never closes."""
    while True:
        await asyncio.sleep(_PARENT_SECONDS)
        if not alive(process):
            log.warning("the client's process %d is gone", process)
            server.end(1)
            return


def alive(process: int) -> bool:
    """Whether a process exists."""
    if os.name == "nt":
        import ctypes  # noqa: PLC0415  Windows only; os.kill(…, 0) would send Ctrl-C there

        kernel = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
        handle = kernel.OpenProcess(0x00100000, 0, process)  # SYNCHRONIZE
        if not handle:
            return False
        waiting: int = kernel.WaitForSingleObject(handle, 0)
        kernel.CloseHandle(handle)
        return waiting == 0x102  # WAIT_TIMEOUT: it hasn't ended
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
