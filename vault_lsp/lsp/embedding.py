"""The vectors of one folder's vault, made in the background whenever its index has come to rest.

Many passages are embedded in a child of low priority, a few in this process once the model for questions is in its
memory; never on the loop, and never on the threads that answer.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from vault_lsp.errors import Cancelled, ModelUnavailable, VaultLspError
from vault_lsp.lsp.progress import WorkDone
from vault_lsp.lsp.session import Root
from vault_lsp.semantic import FEW

if TYPE_CHECKING:
    from vault_lsp.embedding import Embedded
    from vault_lsp.indexer import Progress
    from vault_lsp.lsp.server import VaultServer
    from vault_lsp.semantic import Backlog
    from vault_lsp.service import Vault

log = logging.getLogger(__name__)

#: Quiet time after a change before its text is embedded, and the longest that steady changes can put it off.
_QUIET_SECONDS = 1.0
_MOST_SECONDS = 15.0
#: Another process embeds: looked at again so often.
_OTHERS_SECONDS = 2.0
#: A child that was killed is followed by another, and by no more of those that get nowhere than this.
_AGAIN_SECONDS = 1.0
_DEATHS = 2
#: A vault at rest waits so long for the server to be idle before the model for questions is loaded.
_BUSY_SECONDS = 1.0

_TITLES = {"preparing model": "Preparing the model for semantic search", "embedding": "Embedding notes"}


class Embedding:
    """Decides when what is embedded, and knows how far it is. Lives on the event loop."""

    def __init__(self, ls: VaultServer, root: Root, tell: Callable[[], None]) -> None:
        """`tell` is called whenever the status has changed."""
        self.ls = ls
        self.root = root
        #: "preparing model" or "embedding" while either is under way.
        self.phase: str | None = None
        #: Passages of the vault that have a vector of the coming model, and all; while it is embedding.
        self.embedded = self.total = 0
        #: Why nothing can be embedded, "" if it can.
        self.why = ""
        self._tell = tell
        self._due: float | None = None
        self._woken = asyncio.Event()
        self._changes = False
        self._put_off = 0.0
        self._running = False
        self._failed: str | None = None
        self._deaths = 0
        self._stopped = threading.Event()
        self._shown: WorkDone | None = None
        self._prepared: str | None = None
        self._ready = False
        self._preparing: asyncio.Task[None] | None = None

    def soon(self) -> None:
        """The index has changed: what it lacks is embedded when it has been quiet for a while."""
        now = time.monotonic()
        if not self._changes:
            self._changes, self._put_off = True, now + _MOST_SECONDS
        self._wake(min(now + _QUIET_SECONDS, self._put_off))

    def close(self) -> None:
        """Ends the waiting; work that is under way sees that the folder is closed."""
        self._due = None
        self._woken.set()

    def now(self) -> None:
        """Embeds at once, also by a model that has failed before."""
        self._failed, self._deaths = None, 0
        self._wake(time.monotonic())

    def settings_changed(self) -> None:
        """The client may have turned embedding off, or on again."""
        if self.ls.session.settings.embedding_enable:
            self._stopped.clear()
            self.soon()
        else:
            self._stopped.set()
            self._tell()

    async def model(self, seconds: float) -> None:
        """Waits until the model for questions is in memory, if it can be, but no longer than so many seconds."""
        vault = self.root.vault
        if self._ready or vault is None:
            return
        if self._preparing is None or self._preparing.done():
            self._preparing = self.ls.spawn(self._prepare(vault), f"load the model of {self.root.folder}")
        await asyncio.wait([self._preparing], timeout=seconds)

    def _wake(self, due: float) -> None:
        self._due = due
        self._woken.set()
        if not self._running and not self.root.closed.is_set():
            self._running = True
            self.ls.spawn(self._run(), f"embed {self.root.folder}")

    async def _run(self) -> None:
        try:
            while self._due is not None and not self.root.closed.is_set():
                if (seconds := self._due - time.monotonic()) > 0:
                    self._woken.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._woken.wait(), seconds)
                    continue
                self._due, self._changes = None, False
                await self._embed()
        finally:
            self._running = False

    async def _embed(self) -> None:
        """One look at what is missing, and the work on it."""
        ls, vault = self.ls, self.root.vault
        if vault is None or self._stopped.is_set() or not ls.session.settings.embedding_enable:
            return
        # The vault isn't closed while a thread uses it.
        self.root.readers += 1
        try:
            backlog = await ls.run(ls.embedders, vault.backlog)
            self._explain(backlog)
            if backlog.model is None:
                return
            if backlog.left and backlog.fingerprint != self._failed:
                await self._work_off(vault, backlog)
            elif backlog.passages and backlog.fingerprint != self._prepared:
                if ls.idle():
                    self._prepared = backlog.fingerprint
                    await self._prepare(vault)
                else:
                    self._wake(time.monotonic() + _BUSY_SECONDS)
        finally:
            self.root.readers -= 1

    async def _work_off(self, vault: Vault, backlog: Backlog) -> None:
        ls = self.ls
        few = backlog.left <= FEW and backlog.at_hand
        self.embedded = before = backlog.passages - backlog.left
        self.total = backlog.passages

        def progress(step: Progress) -> None:
            ls.call(self._progressed, step, before, few)

        try:
            if few:
                done = await ls.run(ls.embedders, _embed_here, vault, progress, self._cancelled)
            else:
                async with ls.backlogs:
                    done = await ls.run(ls.embedders, _embed_in_child, vault, progress, self._cancelled)
        except Cancelled:
            return
        except ModelUnavailable as error:
            self._failed = backlog.fingerprint
            self._complain(str(error))
        except VaultLspError as error:
            self._complain(str(error))
            self._deaths = 0 if self.embedded > before else self._deaths + 1
            if self._deaths <= _DEATHS:
                self._wake(time.monotonic() + _AGAIN_SECONDS)
        else:
            self._deaths = 0
            if done.model is not None and done.why:
                self.why = done.why
                self._wake(time.monotonic() + _OTHERS_SECONDS)
            elif done.embedded or not done.left:
                self._wake(time.monotonic() + _BUSY_SECONDS)
            # Else what is left is no longer in its file, which the next reconcile finds out.
        finally:
            self.phase = None
            self._ready = False  # another model may answer from now on
            if self._shown is not None:
                self._shown.end()
                self._shown = None
            self._tell()

    async def _prepare(self, vault: Vault) -> None:
        self.root.readers += 1
        try:
            self._ready = await self.ls.run(self.ls.embedders, vault.prepare_questions)
        except ModelUnavailable as error:
            self._complain(str(error))
        finally:
            self.root.readers -= 1

    def _progressed(self, step: Progress, before: int, few: bool) -> None:  # noqa: FBT001 - called by position
        if self.root.closed.is_set() or step.phase not in _TITLES:
            return
        if step.phase != self.phase:
            self.phase = step.phase
            if self._shown is not None:
                self._shown.end()
            self._shown = None if few else WorkDone(self.ls, _TITLES[step.phase])
        if self._shown is not None:
            self._shown.report(step.done, step.total)
        if step.phase == "embedding":
            self.embedded = min(before + step.done, self.total)
        self._tell()

    def _cancelled(self) -> bool:
        return self._stopped.is_set() or self.root.closed.is_set()

    def _explain(self, backlog: Backlog) -> None:
        if backlog.model is not None and backlog.fingerprint != self._failed:
            self.why = ""
        elif backlog.why:
            self._complain(backlog.why)

    def _complain(self, why: str) -> None:
        if why != self.why:
            log.warning("%s: nothing is embedded: %s", self.root.folder, why)
            self.why = why


def _embed_here(vault: Vault, progress: Callable[[Progress], None], cancelled: Callable[[], bool]) -> Embedded:
    return vault.embed(progress=progress, cancelled=cancelled, threads=1)


def _embed_in_child(vault: Vault, progress: Callable[[Progress], None], cancelled: Callable[[], bool]) -> Embedded:
    return vault.embed_in_child(progress=progress, cancelled=cancelled)
