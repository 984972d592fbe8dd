"""Keeps the index of one workspace folder in step with the disk for as long as the folder is open.

Saves, file events of the client, our own watching and other processes are all hints that end in the same idempotent
reconcile; hints that arrive while one runs are gathered into the next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from vault_lsp.errors import Cancelled, IndexBusy, IndexDamaged, VaultLspError
from vault_lsp.lsp import watch
from vault_lsp.lsp.embedding import Embedding
from vault_lsp.lsp.progress import WorkDone
from vault_lsp.lsp.session import Root
from vault_lsp.semantic import Semantic
from vault_lsp.service import Vault

if TYPE_CHECKING:
    from vault_lsp.indexer import Progress
    from vault_lsp.lsp.server import VaultServer

log = logging.getLogger(__name__)

#: The scan of a vault that has an index waits a moment, so that the first requests find both cores free.
_SCAN_DELAY = 0.7
_POLL_SECONDS = 1.0
#: What is said beside the reason why a vault is not wholly embedded.
_TURNED_OFF = "embedding is turned off in the editor's settings"
#: With more bytes of changed notes than this a scan pays for a process of its own.
_CHILD_BYTES = 1 << 20
_STATUS_SECONDS = 0.5
#: An index that is damaged again sooner can't be helped; to try and to complain at every request would help nobody.
_MEND_SECONDS = 30.0


class Keeper:
    """Opens a folder's vault, scans it, and reconciles what is reported as changed. Lives on the event loop."""

    def __init__(self, ls: VaultServer, root: Root) -> None:
        self.ls = ls
        self.root = root
        self._files: set[str] = set()
        self._scan_wanted = False
        self._draining = False
        self._scanning = asyncio.Lock()
        self._large = False
        self._phase = "scanning"
        self._status_at = 0.0
        self._mended_at = float("-inf")
        self._counts = (0, 0)
        self._semantic = Semantic(None, 0, 0, "")
        self._told: dict[str, object] = {}
        self.embedding = Embedding(ls, root, self._embedding_told)
        self._task = ls.spawn(self._live(), f"vault {root.folder}")

    def touch(self, files: Iterable[str]) -> None:
        """Notes that files, or folders with all they hold, may have changed."""
        held = {file for file in files if self.root.holds(file)}
        if self.root.config_file in held:
            self.ls.reopen(self.root)
        elif held:
            self._files |= held
            self._drain_soon()

    def rescan(self) -> None:
        """Notes that anything may have changed."""
        self._scan_wanted = True
        self._drain_soon()

    def mend(self) -> None:
        """Has a damaged index made anew; until then requests wait as they do for a first index."""
        now = time.monotonic()
        if now - self._mended_at < _MEND_SECONDS or self.root.closed.is_set():
            return
        self._mended_at = self.root.begun = now
        self.root.first_index = True
        self.root.named.clear()
        self.root.scanned.clear()
        self.rescan()

    def close(self) -> None:
        """Lets go of the folder; its vault is closed when nobody reads it any more."""
        self.root.closed.set()
        self._task.cancel()
        self.embedding.close()
        for event in (self.root.opened, self.root.named, self.root.scanned):
            event.set()
        self.ls.spawn(self._close_vault(), "close vault")

    async def rebuild(self) -> None:
        """Scans the whole vault now and waits for the end. Then what is missing is embedded, which can take long."""
        await self.root.opened.wait()
        await self._scan()
        self.embedding.now()

    async def _live(self) -> None:
        root, ls = self.root, self.ls
        try:
            root.vault = await ls.run(ls.writer, _open, root.folder)
            ls.vaults.add(root.vault)
            root.first_index = await ls.run(ls.writer, root.vault.needs_first_index)
        except VaultLspError as error:
            ls.show_error(f"{root.folder}: {error}")
            return
        finally:
            if root.vault is not None and not root.first_index:
                root.named.set()
            root.opened.set()
            if root.vault is None:
                root.named.set()
                root.scanned.set()
        ls.checks.publish_config(root.config_file, root.vault.config_problems)
        try:
            if not root.first_index:
                await asyncio.sleep(_SCAN_DELAY)
            # Before the scan, so that no change falls between the two.
            watch.start(root, lambda found: ls.call(self.touch, found), lambda: ls.call(self.rescan))
            await self._scan()
        except VaultLspError as error:
            log.warning("%s: %s", root.folder, error)
        finally:
            root.named.set()
            root.scanned.set()
        self.embedding.now()
        await self._poll()

    async def _scan(self) -> None:
        """The whole vault; much of it in a child process, so that typing isn't slowed."""
        root, ls = self.root, self.ls
        async with self._scanning:
            vault = root.vault
            if vault is None:
                return
            shown = WorkDone(ls, "Indexing notes") if root.first_index else None

            def progress(step: Progress) -> None:
                ls.call(self._progressed, step, shown)

            self._tell("scanning", 0, 0)
            try:
                self._large = await ls.run(ls.scanner, _pending_bytes, vault) > _CHILD_BYTES
                reconcile = vault.reconcile_in_child if self._large else vault.reconcile
                await ls.run(ls.scanner, reconcile, progress=progress, cancelled=root.closed.is_set)
            except Cancelled:
                return
            except VaultLspError as error:
                ls.show_error(f"{root.folder}: {error}")
            finally:
                root.first_index = False
                if shown is not None:
                    shown.end()
                root.named.set()
                root.scanned.set()
            changed = await ls.run(ls.writer, _changed, root, vault)
            if changed:
                self._changed()
        await self._tell_counted()

    def _changed(self) -> None:
        self.ls.index_changed(self.root)
        self.embedding.soon()

    def _progressed(self, step: Progress, shown: WorkDone | None) -> None:
        # What is indexed in a moment is waited for as a whole.
        if self._large and step.phase == "indexing" and not self.root.named.is_set():
            self.root.named.set()
            self.ls.index_changed(self.root)
        if shown is not None:
            shown.report(step.done, step.total)
        now = time.monotonic()
        if step.phase != self._phase or now - self._status_at >= _STATUS_SECONDS:
            self._status_at = now
            self._tell(step.phase, step.done, step.total)

    def _drain_soon(self) -> None:
        if not self._draining and not self.root.closed.is_set():
            self._draining = True
            self.ls.spawn(self._drain(), "reconcile")

    async def _drain(self) -> None:
        """Reconciles what has gathered until nothing is left."""
        root, ls = self.root, self.ls
        try:
            await root.opened.wait()
            while (self._files or self._scan_wanted) and root.vault is not None:
                if self._scan_wanted:
                    self._scan_wanted = False
                    self._files.clear()
                    await self._scan()
                    continue
                files, self._files = self._files, set()
                try:
                    changed = await ls.run(ls.writer, _reconcile, root, root.vault, files)
                except IndexBusy as error:
                    log.warning("%s: %s; trying again", root.folder, error)
                    self._files |= files
                    await asyncio.sleep(_POLL_SECONDS)
                    continue
                if changed:
                    self._changed()
                    await self._tell_counted()
        finally:
            self._draining = False

    async def _poll(self) -> None:
        """Sees what other processes write: a commit hook, the command line, a second editor."""
        root, ls = self.root, self.ls
        while root.vault is not None:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                if ls.idle() and not self._draining and await ls.run(ls.writer, _changed, root, root.vault):
                    self._changed()
                    if await ls.run(ls.writer, root.vault.needs_first_index):
                        self.rescan()  # somebody deleted the index, and an empty one stands in its place
            except IndexDamaged:
                self.mend()
            except VaultLspError as error:
                log.warning("%s: %s", root.folder, error)

    async def _close_vault(self) -> None:
        while self.root.readers:
            await asyncio.sleep(0.05)
        vault, self.root.vault = self.root.vault, None
        if vault is not None:
            await self.ls.run(self.ls.writer, vault.close)
            self.ls.vaults.discard(vault)

    async def status(self) -> dict[str, object]:
        """What the vault holds and what is being done, in the words of `vault/status`."""
        vault = self.root.vault
        if vault is not None:
            self._counts, self._semantic = await self.ls.run(self.ls.readers, _counted, vault)
        return self._status("indexing" if self._scanning.locked() else self.embedding.phase or "idle")

    def _status(self, phase: str, done: int = 0, total: int = 0) -> dict[str, object]:
        """`documents` of `total` are indexed while that goes on; else `embedded` of `total` passages have a vector."""
        notes, problems = self._counts
        semantic, embedding = self._semantic, self.embedding
        counting = phase in {"scanning", "indexing"}
        coming = embedding.phase is not None
        enabled = self.ls.session.settings.embedding_enable
        return {
            "vault": self.root.uri,
            "phase": phase,
            "documents": done if counting else notes,
            "embedded": embedding.embedded if coming else semantic.embedded,
            "total": total if counting else embedding.total if coming else semantic.chunks,
            "problems": problems,
            "semantic": semantic.state,
            "model": semantic.model,
            "why": embedding.why or (semantic.why if enabled else semantic.why and f"{semantic.why}; {_TURNED_OFF}"),
        }

    def _embedding_told(self) -> None:
        """Embedding has begun, got on or ended."""
        if self.root.closed.is_set():
            return
        phase, now = self.embedding.phase, time.monotonic()
        if phase is None or phase != self._phase or now - self._status_at >= _STATUS_SECONDS:
            self._status_at = now
            self.ls.spawn(self._tell_counted(), "status")

    async def _tell_counted(self) -> None:
        self._notify(await self.status())

    def _tell(self, phase: str, done: int, total: int) -> None:
        self._notify(self._status(phase, done, total))

    def _notify(self, status: dict[str, object]) -> None:
        self._phase = str(status["phase"])
        if status != self._told:
            self._told = status
            self.ls.protocol.notify("vault/status", status)


def _open(folder: str) -> Vault:
    return Vault.open(Path(folder), resident=True)


def _counted(vault: Vault) -> tuple[tuple[int, int], Semantic]:
    """Notes, files that are none, and vectors."""
    counts = vault.counts()
    try:
        return counts, vault.semantic()
    except VaultLspError as error:
        return counts, Semantic(None, 0, 0, str(error))


def _pending_bytes(vault: Vault) -> int:
    """How much a whole scan would have to read. Looks at stamps only.

    Nothing where the index is damaged: only this process knows that, so that no other one would mend it.
    """
    try:
        pending = vault.pending()
    except IndexDamaged:
        return 0
    entries = [*pending.new, *(entry for entry, _known in pending.stale)]
    return sum(entry.stamp.size for entry in entries if entry.stamp is not None)


def _reconcile(root: Root, vault: Vault, files: set[str]) -> bool:
    """One pass over all that is reported. True when the index differs from what it was when last asked."""
    paths = [path for file in sorted(files) if (path := root.path_of(file)) is not None]
    if paths:
        vault.reconcile(paths, cancelled=root.closed.is_set)
    return _changed(root, vault)


def _changed(root: Root, vault: Vault) -> bool:
    """Whether any process has changed the index since this was last asked; on the index's thread only."""
    version = vault.data_version()
    changed, root.data_version = version != root.data_version, version
    return changed
