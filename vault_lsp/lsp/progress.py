"""Work-done progress that never waits for the client and always ends."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.exceptions import JsonRpcException

if TYPE_CHECKING:
    from vault_lsp.lsp.server import VaultServer

log = logging.getLogger(__name__)

_CREATE_SECONDS = 5.0


class WorkDone:
    """One bar in the client's window; does nothing for a client that shows none, or refuses, or doesn't answer."""

    def __init__(self, ls: VaultServer, title: str) -> None:
        self._ls = ls
        self._title = title
        self._token = f"vault-lsp-{uuid.uuid4()}"  # a string: Zed refuses numbers
        self._begun = False
        self._ended = False
        self._percentage = -1
        if ls.session.client.work_done_progress:
            ls.spawn(self._create(), "progress")

    def report(self, done: int, total: int) -> None:
        """Shows how far the work is; only whole per cents travel."""
        percentage = done * 100 // total if total else 0
        if percentage > self._percentage:
            self._percentage = percentage
            if self._begun and not self._ended:
                self._send({"kind": "report", "message": f"{done} of {total}", "percentage": percentage})

    def end(self) -> None:
        """Takes the bar away."""
        if self._begun and not self._ended:
            self._send({"kind": "end"})
        self._ended = True

    async def _create(self) -> None:
        parameters = types.WorkDoneProgressCreateParams(token=self._token)
        try:
            await self._ls.protocol.ask(types.WINDOW_WORK_DONE_PROGRESS_CREATE, parameters, _CREATE_SECONDS)
        except (TimeoutError, JsonRpcException) as error:
            log.info("the client shows no progress: %r", error)
            return
        if not self._ended:
            self._begun = True
            self._send({"kind": "begin", "title": self._title, "percentage": max(self._percentage, 0)})

    def _send(self, value: dict[str, object]) -> None:
        self._ls.protocol.notify(types.PROGRESS, {"token": self._token, "value": value})
