"""From a file to its rows: read, hash, decode, parse, cut, segment. Runs in worker processes for many notes.

A worker is a process that takes pickled batches of paths on its standard input and answers with pickled results on its
standard output. It ends when its input ends, so it never outlives the process that started it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from vault_lsp.core.chunk import CHUNKER_VERSION, chunks, passage
from vault_lsp.core.model import Note, NotePath, Problem, Stamp
from vault_lsp.core.parse import PARSER_VERSION, parse
from vault_lsp.core.text import Place, Point, Text
from vault_lsp.core.tokens import SEGMENTER_VERSION
from vault_lsp.store import rows
from vault_lsp.vault import Decoded, decode, read

#: Batches are cut at this many bytes of notes, so that neither memory nor a transaction grows without bound.
BATCH_BYTES = 1 << 19
BATCH_NOTES = 64

#: Which code makes the rows: those of another version are made anew at the next look.
MADE_BY = f"{PARSER_VERSION}.{CHUNKER_VERSION}.{SEGMENTER_VERSION}"

_PROGRAM = """
import sys
sys.path.append(sys.argv[1])
from vault_lsp.prepare import work
work(sys.argv[2])
"""

_LENGTH = struct.Struct("<Q")


class Task(NamedTuple):
    """A note to look at; `hash` is what the index holds, None where it holds nothing or what other code made."""

    path: NotePath
    size: int
    hash: bytes | None


class Prepared(NamedTuple):
    """What became of one note.

    `stamp` is None when the file vanished. `rows` is None when the bytes are those that the index already holds, or
    when the note is `skipped` for a reason.
    """

    path: NotePath
    stamp: Stamp | None
    hash: bytes | None = None
    rows: rows.Rows | None = None
    skipped: str | None = None


def prepare(root: Path, task: Task) -> Prepared:
    """Make the rows of one note. Never raises for anything that a file can hold or that can happen to it."""
    try:
        data, stamp = read(root / task.path)
    except (FileNotFoundError, NotADirectoryError):
        return Prepared(task.path, None)
    except OSError as error:
        return Prepared(task.path, Stamp(task.size, 0, 0, 0), skipped=(error.strerror or str(error)).lower())
    digest = hashlib.sha256(data).digest()
    if digest == task.hash:
        return Prepared(task.path, stamp, digest)
    decoded = decode(data)
    if decoded.skipped is not None:
        return Prepared(task.path, stamp, digest, skipped=decoded.skipped)
    text = Text(decoded.source)
    note = parse_decoded(task.path, text, decoded)
    return Prepared(task.path, stamp, digest, rows.rows(note, chunks(note, text)))


def passages(root: Path, path: NotePath) -> dict[bytes, str]:
    """The texts to embed of a note as it is on disk now, by their SHA-256; none where it can't be read as a note."""
    try:
        decoded = decode(read(root / path)[0])
    except OSError:
        return {}
    if decoded.skipped is not None:
        return {}
    text = Text(decoded.source)
    note = parse_decoded(path, text, decoded)
    return {
        bytes.fromhex(chunk.sha): passage(note.title, chunk.heading_path, chunk.text) for chunk in chunks(note, text)
    }


def parse_decoded(path: NotePath, text: Text, decoded: Decoded) -> Note:
    """Parse a text; bytes that could not be decoded become a problem of the note."""
    problems: tuple[Problem, ...] = ()
    if decoded.replaced:
        at = text.point(max(text.source.find("\ufffd"), 0))
        one = decoded.replaced == 1
        message = f"replaced {decoded.replaced} byte{'' if one else 's'} that {'is' if one else 'are'} not UTF-8"
        problems = (Problem("invalid-encoding", message, Place(at, Point(at.line, *(n + 1 for n in at[1:])))),)
    return parse(path, text, problems)


def batches(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """Cut tasks into batches of bounded size, in order."""
    batch: list[Task] = []
    size = 0
    for task in tasks:
        if batch and (size + task.size > BATCH_BYTES or len(batch) >= BATCH_NOTES):
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += task.size
    if batch:
        yield batch


def prepare_all(root: Path, tasks: Sequence[Task], workers: int) -> Generator[list[Prepared], None, None]:
    """Prepare notes in order of arrival, in `workers` processes; in this one for none."""
    if workers == 0:
        for batch in batches(tasks):
            yield [prepare(root, task) for task in batch]
        return
    answers: queue.Queue[list[Prepared] | BaseException | None] = queue.Queue(maxsize=workers * 2)
    source = batches(tasks)
    lock = threading.Lock()
    stop = threading.Event()

    def next_batch() -> list[Task] | None:
        with lock:
            return None if stop.is_set() else next(source, None)

    processes: list[subprocess.Popen[bytes]] = []
    threads: list[threading.Thread] = []
    try:
        for _ in range(workers):
            process = _start(root)
            processes.append(process)
            thread = threading.Thread(target=_drive, args=(root, process, next_batch, answers, stop), daemon=True)
            thread.start()
            threads.append(thread)
        ended = 0
        while ended < workers:
            answer = answers.get()
            if answer is None:
                ended += 1
            elif isinstance(answer, BaseException):
                raise answer
            else:
                yield answer
    finally:
        stop.set()
        for process in processes:
            process.kill()
        for thread in threads:
            while thread.is_alive():
                with suppress(queue.Empty):
                    answers.get_nowait()
                thread.join(0.01)
        for process in processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()


def _start(root: Path) -> subprocess.Popen[bytes]:
    # The current folder may be a vault with a `yaml.py` of its own, which must never be imported: -P leaves it out of
    # the path, and relative entries of PYTHONPATH start from another folder. So our own package is named.
    package = Path(__file__).resolve().parent.parent
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, os.fspath(package), os.fspath(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=package,
    )


def _drive(
    root: Path,
    process: subprocess.Popen[bytes],
    next_batch: Callable[[], list[Task] | None],
    answers: queue.Queue[list[Prepared] | BaseException | None],
    stop: threading.Event,
) -> None:
    """Feed one worker. A worker that dies (out of memory, killed) costs speed, not notes: its batch is done here."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        alive = True
        while (batch := next_batch()) is not None:
            prepared = None
            if alive:
                try:
                    _send(process.stdin, batch)
                    prepared = _receive(process.stdout)
                except (OSError, EOFError, ValueError):
                    alive = False
            if stop.is_set():
                break
            answers.put([prepare(root, task) for task in batch] if prepared is None else prepared)
    except BaseException as error:  # noqa: BLE001 - handed on to the thread that waits for the answer
        answers.put(error)
    finally:
        answers.put(None)


def _send(stream: IO[bytes], value: object) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def _receive(stream: IO[bytes]) -> list[Prepared] | None:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    # Only ever read from a pipe to a child of ours.
    answer: list[Prepared] = pickle.loads(data)  # noqa: S301
    return answer


def work(root: str) -> None:
    """Be a worker for the vault at `root`, until the standard input ends."""
    source = sys.stdin.buffer
    # Nothing that a library prints may reach the pipe.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # A parent that is gone has closed the pipe: what is left to flush then fails once more.
    with suppress(KeyboardInterrupt, BrokenPipeError), sink:
        while True:
            head = source.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                return
            (length,) = _LENGTH.unpack(head)
            tasks: list[Task] = pickle.loads(source.read(length))  # noqa: S301 - sent by our parent
            _send(sink, [prepare(Path(root), task) for task in tasks])
