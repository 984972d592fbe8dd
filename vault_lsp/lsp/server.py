"""The language server: its life from the first byte to the exit code, and the one way in which requests are answered.

The event loop only moves messages and state. Whatever reads the disk, the index or a long text runs on the readers'
pool with a frozen copy of what it needs; changing the index is one thread's work, a whole scan another's.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter

from vault_lsp import __version__
from vault_lsp.core.model import NotePath
from vault_lsp.errors import Cancelled, IndexDamaged, NotInMemory, VaultLspError
from vault_lsp.lsp import convert, transport
from vault_lsp.lsp.checks import Checks
from vault_lsp.lsp.keeper import Keeper
from vault_lsp.lsp.lone import LoneView, parse_lone
from vault_lsp.lsp.look import Look
from vault_lsp.lsp.memory import Memory
from vault_lsp.lsp.protocol import Json, RequestFailed, VaultProtocol, encode
from vault_lsp.lsp.session import Document, Root, Session
from vault_lsp.semantic import LOADING
from vault_lsp.service import Vault

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: More than there are cores: some wait for the same long text to be parsed.
_READERS = 8
#: While a vault is indexed for the first time, requests wait for the names of its files, without which every link would
#: be broken, and those that need every note for the whole index, until this long after its folder was opened. Then they
#: answer from what there is.
_NAMES_SECONDS = 10.0
_INDEX_SECONDS = 8.0
#: How long work in threads may take to notice that the server ends.
_GRACE_SECONDS = 3.0


class VaultServer(LanguageServer):
    """One client's server."""

    protocol: VaultProtocol

    def __init__(self) -> None:
        super().__init__(
            "vault-lsp",
            __version__,
            text_document_sync_kind=types.TextDocumentSyncKind.Full,
            protocol_cls=VaultProtocol,
            converter_factory=default_converter,
            max_workers=1,
        )
        # It logs the text of notes, and a traceback for every error response. What matters comes to
        # `report_server_error`.
        logging.getLogger("pygls").setLevel(logging.CRITICAL)
        self.session = Session()
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self.stopping = threading.Event()
        self.readers = ThreadPoolExecutor(_READERS, "lsp-read")
        self.writer = ThreadPoolExecutor(1, "lsp-index")
        self.scanner = ThreadPoolExecutor(2, "lsp-scan")
        #: One of them waits for a child's long work, which `backlogs` allows to one folder at a time.
        self.embedders = ThreadPoolExecutor(2, "lsp-embed")
        self.backlogs = asyncio.Lock()
        #: Called once when the session ends.
        self.at_stop: list[Callable[[], None]] = []
        self.keepers: dict[str, Keeper] = {}
        #: Every open vault, also of folders that were just removed.
        self.vaults: set[Vault] = set()
        self.checks = Checks(self)
        self._adopts = False
        self._adopting: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running: dict[Future[Any], ThreadPoolExecutor] = {}
        self._memory = Memory(self.session)

    def end(self, code: int) -> None:
        """Ends the process with `code`; the first call decides."""
        if not self.ended.done():
            self.ended.set_result(code)

    def stop_work(self) -> None:
        """Stops everything that runs on its own: timers, checks, scans, watchers. Safe to call twice."""
        self.stopping.set()
        for root in self.session.roots:
            root.closed.set()
        for callback in self.at_stop:
            callback()
        self.at_stop.clear()
        for task in list(self._tasks):
            task.cancel()

    def report_server_error(self, error: Exception, source: type[Exception]) -> None:
        """Errors go to the log. Sending them to the client fails the same way when sending is what failed."""
        if isinstance(error, JsonRpcInternalError):
            log.error("%s: %s\n%s", source.__name__, error, "".join((error.data or {}).get("traceback", ())))
        elif isinstance(error, JsonRpcException):
            log.info("%s: %s", source.__name__, error)
        else:
            log.error("%s: %s", source.__name__, error, exc_info=error)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Runs a coroutine of the server's own; what it raises is logged."""

        async def guarded() -> None:
            try:
                await work
            except Cancelled:
                return
            except VaultLspError as error:
                log.warning("%s: %s", name, error)
            except Exception:  # the boundary of a background task
                log.exception("%s failed", name)

        task = asyncio.get_running_loop().create_task(guarded(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # one that was cancelled before its first step complains
        if self.stopping.is_set():
            task.cancel()
        return task

    async def run(self, pool: ThreadPoolExecutor, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a job in a thread."""
        future = pool.submit(job, *args, **kwargs)
        self._running[future] = pool
        future.add_done_callback(lambda done: self._running.pop(done, None))
        return await asyncio.wrap_future(future)

    async def answer(self, uri: str, job: Callable[[Look], object], *, whole: bool = False) -> Json | None:
        """What a job makes of one document, as JSON; None for a document that nobody has opened and no vault holds."""
        return await self.read(uri, lambda look: encode(job(look)), whole=whole)

    def from_memory(self, uri: str, job: Callable[[Look], object]) -> Json | None:
        """What a job makes of an open buffer without leaving the loop; None where something must be read for it."""
        look = self._memory.look(uri)
        if look is None:
            return None
        try:
            return encode(job(look))
        except NotInMemory:
            return None

    async def read(self, uri: str, job: Callable[[Look], T], *, whole: bool = False) -> T | None:
        """What a job makes of one document. A job that needs the `whole` vault waits a while for a first index."""
        key = convert.file_of(uri) or uri
        if (adopting := self._adopting.get(key)) is not None:
            await asyncio.wait([adopting])
        file = convert.file_of(uri)
        root = self.session.root_of(file)
        return await self._read(root, job, lambda: self.session.document(uri), file, whole=whole)

    async def read_root(self, root: Root, job: Callable[[Look], T]) -> T | None:
        """What a job makes of a whole vault; None for a vault that could not be opened."""
        await self.ready(root, whole=True)
        return await self._read(root, job, _no_document, root.folder, whole=True) if root.vault is not None else None

    async def ready(self, root: Root, *, whole: bool) -> None:
        """Waits until a vault is open and its names are known, and its notes too where `whole` asks for them."""
        await root.opened.wait()
        if root.first_index:
            await _wait(root.named, root.begun + _NAMES_SECONDS)
            if whole:
                await _wait(root.scanned, root.begun + _INDEX_SECONDS)

    async def _read(
        self,
        root: Root | None,
        job: Callable[[Look], T],
        document: Callable[[], Document | None],
        file: str | None,
        *,
        whole: bool,
    ) -> T | None:
        """Runs a job when the vault is ready for it, and once more when it had to mend its index first."""
        try:
            if root is not None:
                await self.ready(root, whole=whole)
            try:
                return await self._look(root, job, document(), file)
            except IndexDamaged:
                keeper = self.keepers.get(root.folder) if root is not None else None
                if root is None or keeper is None:
                    raise
                keeper.mend()
                await self.ready(root, whole=whole)
                return await self._look(root, job, document(), file)
        except VaultLspError as error:
            raise RequestFailed(str(error)) from error

    async def _look(
        self, root: Root | None, job: Callable[[Look], T], document: Document | None, file: str | None
    ) -> T | None:
        """Freezes the session for one job and runs it; cancelling the request reaches the job."""
        cancelled = threading.Event()
        buffers = {each.key: each for each in self.session.buffers_in(root)}
        client, settings = self.session.client, self.session.settings

        def stopped() -> bool:
            return cancelled.is_set() or self.stopping.is_set()

        def look() -> T | None:
            vault = root.vault if root is not None else None
            if root is not None and vault is not None and file is not None:
                path = NotePath("") if file == root.folder else root.note_path(file)
                if path is not None:
                    overlay = {
                        own: each.note(own, vault.parse)
                        for each in buffers.values()
                        if each.file is not None and (own := root.note_path(each.file)) is not None
                    }
                    with vault.view(overlay, stopped) as view:
                        return job(Look(view, path, document, root, client, settings, buffers, stopped))
            if document is None:
                return None
            lone = LoneView(document.note(NotePath(convert.stem_of(document.uri)), parse_lone))
            return job(Look(lone, lone.path, document, None, client, settings, buffers, stopped))

        revision = root.revision if root is not None else 0
        if root is not None:
            root.readers += 1
        try:
            found = await self.run(self.readers, look)
            if root is not None:
                root.read_at = max(root.read_at, revision)
        finally:
            cancelled.set()
            if root is not None:
                root.readers -= 1
        return found

    # Folders --------------------------------------------------------------------------------------------------------

    def add_root(self, uri: str, folder: str) -> None:
        """Opens a folder's vault, unless it is open already."""
        if folder not in self.keepers:
            root = Root(uri, folder)
            self.session.roots.append(root)
            self.keepers[folder] = Keeper(self, root)
            self.checks.refresh(root)

    def remove_root(self, folder: str | None) -> None:
        """Closes a folder's vault. Its open notes stay open, alone or in an outer folder."""
        keeper = self.keepers.pop(folder or "", None)
        if keeper is not None:
            self.session.roots.remove(keeper.root)
            keeper.close()
            for root in (None, *self.session.roots):
                self.checks.refresh(root)

    def adopt_single_files(self) -> None:
        """From now on a file that is opened brings the marked vault around it along: the client named no folder."""
        self._adopts = True

    def adopt(self, document: Document) -> None:
        """Opens the vault that an opened file lies in, where the client named no folders."""
        file = document.file
        if not self._adopts or file is None or self.session.root_of(file) is not None:
            return

        async def find() -> None:
            folder = await self.run(self.readers, _marked_folder, file)
            if folder is not None:
                self.add_root(convert.uri_of(folder), folder)

        task = self._adopting[document.key] = self.spawn(find(), "find the vault")
        task.add_done_callback(lambda _: self._adopting.pop(document.key, None))

    def touch(self, uris: Iterable[str]) -> None:
        """Tells every vault that files, or folders with all they hold, may have changed."""
        files = [file for uri in uris if (file := convert.file_of(uri)) is not None]
        for keeper in list(self.keepers.values()):
            keeper.touch(files)

    def reopen(self, root: Root) -> None:
        """Opens a vault anew, since its config changed."""
        self.remove_root(root.folder)
        self.add_root(root.uri, root.folder)

    def index_changed(self, root: Root) -> None:
        """The vault says something else than before: what was shown of it is checked again."""
        root.revision += 1
        self.checks.refresh(root)

    # Client ---------------------------------------------------------------------------------------------------------

    def configure(self, given: object) -> None:
        """Takes the client's settings over; what isn't usable is named and stays as it was."""
        settings, problems = self.session.settings.updated(given)
        if problems:
            self.show_error("; ".join(problems))
        if settings != self.session.settings:
            switched = settings.embedding_enable != self.session.settings.embedding_enable
            self.session.settings = settings
            for keeper in self.keepers.values() if switched else ():
                keeper.embedding.settings_changed()
            for root in (None, *self.session.roots):
                self.checks.refresh(root)

    def show_error(self, message: str) -> None:
        """Tells the person something that they can put right."""
        log.error("%s", message)
        parameters = types.ShowMessageParams(types.MessageType.Error, f"vault-lsp: {message}")
        self.protocol.notify(types.WINDOW_SHOW_MESSAGE, parameters)

    # Work -----------------------------------------------------------------------------------------------------------

    def call(self, function: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Calls a function on the loop, from any thread; drops the call when the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(partial(function, *args, **kwargs))

    def idle(self) -> bool:
        """Whether no job is running or waiting, but for embedding."""
        return all(pool is self.embedders for pool in self._running.copy().values())

    def finish(self) -> bool:
        """Waits for work in threads after the loop has ended; False when something did not stop in time."""
        for pool in (self.readers, self.writer, self.scanner, self.embedders):
            pool.shutdown(wait=False, cancel_futures=True)
        if wait(list(self._running), _GRACE_SECONDS).not_done:
            return False
        for vault in self.vaults:
            vault.close()
        return not any(thread.name == LOADING for thread in threading.enumerate())


def run(tcp: tuple[str, int] | None = None) -> int:
    """Serves one client on stdio, or on a TCP port for debugging, until it ends; returns the exit code."""
    # Another thread that computes gives way to the loop within a millisecond, not five.
    sys.setswitchinterval(0.001)
    server_box: list[VaultServer] = []
    try:
        code = asyncio.run(_serve_tcp(*tcp, server_box) if tcp else _serve_stdio(server_box))
    except KeyboardInterrupt:
        code = 130
    if server_box and not server_box[0].finish():
        log.error("work in threads did not stop in time")
        logging.shutdown()
        os._exit(code)
    return code


def create() -> VaultServer:
    """A server with every feature registered. Needs a running event loop."""
    from vault_lsp.lsp.features import diagnose, navigate, search, symbols, sync, workspace  # noqa: PLC0415  they import us

    server = VaultServer()
    for feature in (workspace, sync, navigate, symbols, search, diagnose):
        feature.register(server)
    gc.freeze()  # a full collection takes 30 ms with the protocol's types and 2 without
    gc.enable()
    return server


async def _serve_stdio(box: list[VaultServer]) -> int:
    loop = asyncio.get_running_loop()
    source, sink = transport.claim_stdio()
    server = create()
    box.append(server)

    def ended() -> None:
        server.end(0 if server.protocol.was_shut_down else 1)

    def deliver(body: bytes | None) -> None:
        """Runs on the reading thread; after the loop has closed nobody wants to know."""
        try:
            loop.call_soon_threadsafe(*((server.protocol.receive, body) if body is not None else (ended,)))
        except RuntimeError:
            log.debug("a message came after the end")

    writer = transport.PipeWriter(sink, lambda: deliver(None))
    server.protocol.set_writer(writer)
    if not transport.read_on_loop(loop, source, server.protocol.receive, ended):
        transport.read_pipe(source, deliver)
    try:
        return await _until_ended(server)
    finally:
        with suppress(NotImplementedError, OSError, ValueError):
            loop.remove_reader(source)
        writer.close()


async def _serve_tcp(host: str, port: int, box: list[VaultServer]) -> int:
    server = create()
    box.append(server)
    streams: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, stream: asyncio.StreamWriter) -> None:
        if server.protocol.writer is not None:
            stream.close()
            return
        server.protocol.set_writer(stream)
        streams.append(stream)
        frames = transport.Frames()
        with suppress(ConnectionError):
            while received := await reader.read(1 << 16):
                for body in frames.feed(received):
                    server.protocol.receive(body)
        server.end(0 if server.protocol.was_shut_down else 1)

    listener = await asyncio.start_server(connected, host, port)
    async with listener:
        print(f"listening on {host}:{listener.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
        try:
            return await _until_ended(server)
        finally:
            for stream in streams:
                stream.close()  # else the listener waits for it as it closes, since Python 3.12


async def _until_ended(server: VaultServer) -> int:
    loop = asyncio.get_running_loop()
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if hasattr(signal, name) and os.name != "nt":
            loop.add_signal_handler(getattr(signal, name), server.end, 1)
    try:
        return await server.ended
    finally:
        server.stop_work()
        server.protocol.cancel_all()
        await asyncio.sleep(0)


def _no_document() -> None:
    """A question about a whole vault is about no document."""


async def _wait(event: asyncio.Event, deadline: float) -> None:
    if not event.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), max(deadline - time.monotonic(), 0))


def _marked_folder(file: str) -> str | None:
    """The nearest folder above a file that is marked as a vault."""
    for folder in Path(file).parents:
        if any((folder / marker).is_dir() for marker in (".vault-lsp", ".obsidian")):
            return str(folder)
    return None
