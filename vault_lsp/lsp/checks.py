"""When which open note is checked, and what is published: debouncing, superseding, refreshing.

Lives on the event loop; the checks themselves run in threads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from vault_lsp.config import ConfigProblem
from vault_lsp.lsp import convert
from vault_lsp.lsp.protocol import Json, encode
from vault_lsp.lsp.session import Document, Root

if TYPE_CHECKING:
    from vault_lsp.lsp.server import VaultServer

_ASK_SECONDS = 10.0
#: Reasons to check everything again that come within this time are one.
_GATHER_SECONDS = 0.03


@dataclass(slots=True)
class _Slot:
    """The state of one open document: when it last changed, the timer or the check that is under way."""

    changed: float = float("-inf")
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None
    #: What other notes can link to in it, as of the last check.
    surface: int | None = None
    #: Whether it was opened with a text that others can link to in other ways than to the saved one.
    unsaved: bool = False
    #: Whether something changed while a check was under way.
    again: bool = False


class Checks:
    """Decides when which open note is checked.

    The first change after a pause is checked at once, those that follow when they pause. A result for a text that is no
    longer current is dropped.
    """

    def __init__(self, ls: VaultServer) -> None:
        self._ls = ls
        self._slots: dict[str, _Slot] = {}
        self._refresh_timer: asyncio.TimerHandle | None = None
        self._refresh_keys: set[str] = set()
        self._configs: set[str] = set()
        ls.at_stop.append(self.stop)

    def opened(self, document: Document) -> None:
        """Checks a note that was just opened."""
        self._slots[document.key] = _Slot(asyncio.get_running_loop().time())
        self._start(document.key)

    def changed(self, document: Document) -> None:
        """Checks a note that is being typed in: now, or when the typing pauses."""
        slot = self._slots.setdefault(document.key, _Slot())
        loop = asyncio.get_running_loop()
        delay = self._ls.session.settings.diagnostics_debounce_ms / 1000
        quiet = loop.time() - slot.changed >= delay
        slot.changed = loop.time()
        if slot.timer is not None:
            slot.timer.cancel()
            slot.timer = None
        # A client that asks for diagnostics does so at once: a check at the same time would only slow its answer.
        if quiet and slot.task is None and self._pushes():
            self._start(document.key)
        else:
            slot.timer = loop.call_later(delay, self._start, document.key)

    def closed(self, document: Document) -> None:
        """Takes a note's diagnostics away and checks those that may have linked to its unsaved text."""
        slot = self._slots.pop(document.key, None)
        if slot is not None:
            self._cancel(slot)
        if self._pushes():
            self._publish(document.uri, None, Json("[]"))
        if document.edited or (slot is not None and slot.unsaved):
            self._refresh_around(document)

    def refresh(self, root: Root | None, but: str | None = None) -> None:
        """Checks every open note of a vault soon, since the vault changed around them; many calls make one."""
        self._refresh_keys.update(each.key for each in self._ls.session.documents_of(root) if each.key != but)
        if self._refresh_timer is None and not self._ls.stopping.is_set():
            self._refresh_timer = asyncio.get_running_loop().call_later(0.03, self._refresh)

    def publish_config(self, file: str, problems: Sequence[ConfigProblem]) -> None:
        """Shows what has no effect in a vault's config, on the config itself; it is no note and is never pulled."""
        if problems or file in self._configs:
            self._configs.add(file)
            self._publish(convert.uri_of(file), None, encode([convert.wire_config_problem(each) for each in problems]))

    def stop(self) -> None:
        """Cancels every timer and check."""
        for slot in self._slots.values():
            self._cancel(slot)
        self._slots.clear()
        if self._refresh_timer is not None:
            self._refresh_timer.cancel()

    def _refresh_around(self, document: Document) -> None:
        """Checks the other open notes of every vault that a note lies in."""
        for root in self._ls.session.roots:
            if document.file is not None and root.holds(document.file):
                self.refresh(root, but=document.key)

    def _refresh(self) -> None:
        self._refresh_timer = None
        keys, self._refresh_keys = self._refresh_keys, set()
        if not self._pushes():
            if self._ls.session.client.refresh_diagnostics:
                self._ls.spawn(self._ask_for_refresh(), "diagnostic refresh")
            return
        for key in keys:
            slot = self._slots.get(key)
            if slot is None or slot.timer is not None:
                continue  # closed, or about to be checked anyway
            if slot.task is not None:
                slot.again = True
            else:
                self._start(key)

    def _start(self, key: str) -> None:
        slot = self._slots.get(key)
        document = self._ls.session.documents.get(key)
        if slot is None or document is None:
            return
        if slot.timer is not None:
            slot.timer.cancel()
            slot.timer = None
        if slot.task is not None:
            slot.task.cancel()  # it checks a text that is no longer current
        slot.task = self._ls.spawn(self._check(slot, document), f"check {document.uri}")

    async def _check(self, slot: _Slot, document: Document) -> None:
        from vault_lsp.lsp.features.diagnose import check  # noqa: PLC0415  it imports the server, which imports us

        own = asyncio.current_task()
        try:
            answer = await self._ls.read(
                document.uri, partial(check, wanted=self._pushes(), first=slot.surface is None)
            )
        finally:
            if slot.task is own:
                slot.task = None
        if self._ls.session.documents.get(document.key) is not document or answer is None:
            return
        surface, saved, items = answer
        if slot.surface is None:
            slot.surface, slot.unsaved = saved, saved != surface
        if self._pushes():
            self._publish(document.uri, document.version, items)
        if slot.surface != surface:
            self._refresh_around(document)
        slot.surface = surface
        if slot.again:
            slot.again = False
            self._start(document.key)

    def _pushes(self) -> bool:
        return not self._ls.session.client.pull_diagnostics

    def _publish(self, uri: str, version: int | None, items: Json) -> None:
        numbered = "" if version is None else f',"version":{version}'
        parameters = Json(f'{{"uri":{json.dumps(uri)}{numbered},"diagnostics":{items}}}')
        self._ls.protocol.notify(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS, parameters)

    async def _ask_for_refresh(self) -> None:
        try:
            await self._ls.protocol.ask(types.WORKSPACE_DIAGNOSTIC_REFRESH, None, _ASK_SECONDS)
        except (TimeoutError, JsonRpcException):
            return  # a client that can't is told nothing new

    @staticmethod
    def _cancel(slot: _Slot) -> None:
        if slot.timer is not None:
            slot.timer.cancel()
        if slot.task is not None:
            slot.task.cancel()
