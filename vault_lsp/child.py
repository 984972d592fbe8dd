"""Reconcile, or embed, in a child process: the parent stays quick to answer, the child runs at low priority.

The child reports as lines of JSON on its standard output and ends when its parent, and so its standard input, ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from vault_lsp import errors
from vault_lsp.embed.source import model_folder
from vault_lsp.embedding import Embedded
from vault_lsp.errors import Cancelled, VaultLspError
from vault_lsp.indexer import Progress, Reconciled
from vault_lsp.store.place import cache_folder

_PROGRAM = """
import sys
sys.path.append(sys.argv[1])
from vault_lsp.child import run
run(sys.argv[2], sys.argv[3])
"""

_Job = Literal["reconcile", "embed"]
_CALLED: dict[_Job, str] = {"reconcile": "indexing", "embed": "embedding"}


def reconcile(root: Path, progress: Callable[[Progress], None], cancelled: Callable[[], bool]) -> Reconciled:
    """Reconcile the vault at `root` in a child and hand on its progress. Raises what the child would have raised."""
    return Reconciled(**_done("reconcile", root, progress, cancelled))


def embed(root: Path, progress: Callable[[Progress], None], cancelled: Callable[[], bool]) -> Embedded:
    """Embed what has no vector yet, in the same way."""
    return Embedded(**_done("embed", root, progress, cancelled))


def run(job: _Job, root: str) -> None:
    """Be the child: do one job for a vault and report."""
    from vault_lsp.service import Vault  # noqa: PLC0415 - which imports this module

    with suppress(OSError, AttributeError):
        os.nice(10)

    def watch_parent() -> None:
        # Not through `sys.stdin`: a thread that waits inside a buffered stream aborts the interpreter at its exit.
        while os.read(0, 4096):
            continue
        os._exit(1)

    threading.Thread(target=watch_parent, daemon=True).start()
    # Nothing that a library prints may stand among the reports.
    sink = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(**message: object) -> None:
        sink.write(json.dumps(message) + "\n")
        sink.flush()

    def report(progress: Progress) -> None:
        say(progress=progress)

    try:
        vault = Vault.open(Path(root))
        try:
            done = (
                vars(vault.reconcile(progress=report)) if job == "reconcile" else vault.embed(progress=report)._asdict()
            )
        finally:
            vault.close()
        say(done=done)
    except VaultLspError as error:
        say(error=str(error), code=error.code)


def _done(job: _Job, root: Path, progress: Callable[[Progress], None], cancelled: Callable[[], bool]) -> dict[str, Any]:
    package = Path(__file__).resolve().parent.parent
    # As for the workers: nothing is imported from the current folder, which may be a vault.
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, os.fspath(package), job, os.fspath(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        cwd=package,
        # A relative folder would be another one there.
        env={**os.environ, "VAULT_LSP_INDEX_DIR": str(cache_folder()), "VAULT_LSP_MODEL_DIR": str(model_folder())},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process, cancelled, ended), daemon=True)
    watcher.start()
    try:
        for line in process.stdout:
            message = json.loads(line)
            if "progress" in message:
                progress(Progress(*message["progress"]))
            elif "done" in message:
                done: dict[str, Any] = message["done"]
                return done
            elif "error" in message:
                raise _error(message["code"], message["error"])
        if cancelled():
            raise Cancelled(f"{_CALLED[job]} was cancelled")
        raise VaultLspError(f"{root}: the process of {_CALLED[job]} ended with code {process.wait()}")
    finally:
        ended.set()
        watcher.join()
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()
        process.stdout.close()


def _watch(process: subprocess.Popen[str], cancelled: Callable[[], bool], ended: threading.Event) -> None:
    """End the child as soon as its result is no longer wanted, whether or not it has anything to report."""
    while not ended.wait(0.1):
        if cancelled():
            process.kill()
            return


def _error(code: str, message: str) -> VaultLspError:
    kinds = {
        kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, VaultLspError)
    }
    return kinds.get(code, VaultLspError)(message)
