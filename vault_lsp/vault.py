"""The folder of notes on disk: where it begins, what belongs to it, and how bytes become text."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from vault_lsp.config import Config
from vault_lsp.core.model import NotePath, Stamp
from vault_lsp.errors import NotFound, VaultNotFound

#: Folders that are never part of a vault, at any depth, beside those that begin with a dot.
LEFT_OUT = frozenset({"node_modules", "tmp"})

#: A larger note is skipped with a warning: its parse would take gigabytes.
LARGEST_NOTE = 16 * 1024 * 1024

#: Share of undecodable bytes up to which a file is still a text with a few bad bytes.
_BAD_BYTES = 0.01


class Entry(NamedTuple):
    """One file or folder of the vault. `stamp` is set for notes; `skipped` says why a note can't be indexed."""

    path: NotePath
    kind: str
    stamp: Stamp | None = None
    skipped: str | None = None


class Decoded(NamedTuple):
    """Text of a file, or the reason why there is none. `replaced` counts bytes that stand as U+FFFD."""

    source: str
    replaced: int = 0
    skipped: str | None = None


class Rules:
    """Which paths of the vault count: hidden ones never, excluded ones as link targets only."""

    def __init__(self, root: Path, config: Config) -> None:
        self.root = root
        self.follow_symlinks = config.follow_symlinks
        self._gitignore = config.gitignore
        self._excluded: Callable[[str], bool] | None = None
        if config.exclude:
            from pathspec import GitIgnoreSpec  # noqa: PLC0415 - most vaults exclude nothing

            self._excluded = GitIgnoreSpec.from_lines(config.exclude).match_file
        self._gitignores: dict[str, Callable[[str], bool] | None] = {}

    def hides(self, path: str) -> bool:
        """Whether the path, or a folder above it, is hidden or always left out."""
        *folders, name = path.split("/")
        return name.startswith(".") or any(folder.startswith(".") or folder in LEFT_OUT for folder in folders)

    def excludes(self, path: str) -> bool:
        """Whether the config (or a `.gitignore`, where the config asks for it) keeps the file out of the index."""
        if self._excluded is not None and self._excluded(path):
            return True
        return self._gitignore and self._git_ignores(path)

    def _git_ignores(self, path: str) -> bool:
        ignored = False
        folder = ""
        for part in ("", *path.split("/")[:-1]):
            folder = f"{folder}{part}/" if part else folder
            if folder not in self._gitignores:
                self._gitignores[folder] = _gitignore(self.root / folder / ".gitignore")
            match = self._gitignores[folder]
            ignored = ignored or (match is not None and match(path[len(folder) :]))
        return ignored


def find_root(start: Path) -> Path:
    """The vault that holds `start`: nearest `.vault-lsp/`, then `.obsidian/`, then the git top level, else `start`."""
    start = existing_folder(start)
    here = (start, *start.parents)
    for marker in (".vault-lsp", ".obsidian"):
        for folder in here:
            if (folder / marker).is_dir():
                return folder
    return next((folder for folder in here if (folder / ".git").exists()), start)


def existing_folder(folder: Path) -> Path:
    """The real path of a folder; VaultNotFound where there is none."""
    try:
        real = folder.expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise VaultNotFound(f"{folder}: no such folder") from error
    if not real.is_dir():
        raise VaultNotFound(f"{folder}: not a folder")
    return real


def is_note(name: str) -> bool:
    """Whether a file name is that of a note."""
    return name[-3:].lower() == ".md"


def walk(rules: Rules, below: str = "", seen: set[tuple[int, int]] | None = None) -> Iterator[Entry]:
    """Every file and folder of the vault below a folder, folders before what they hold.

    Only notes are asked for their stamp. A folder that can't be read is an entry with its reason.
    """
    seen = set() if seen is None else seen
    pending = [below]
    while pending:
        folder = pending.pop()
        prefix = f"{folder}/" if folder else ""
        try:
            with os.scandir(rules.root / folder if folder else rules.root) as entries:
                listed = list(entries)
        except OSError as error:
            if folder or not isinstance(error, FileNotFoundError):
                yield Entry(NotePath(folder), "folder", None, _reason(error))
            else:
                raise VaultNotFound(f"{rules.root}: {_reason(error)}") from error
            continue
        for item in listed:
            name = item.name
            if name[0] == ".":
                continue
            path = prefix + name
            try:
                if item.is_symlink():
                    entry = _linked(rules, item, path, seen)
                elif item.is_dir(follow_symlinks=False):
                    if name in LEFT_OUT:
                        continue
                    entry = Entry(NotePath(path), "folder")
                elif name[-3:].lower() == ".md":
                    entry = _note(rules, path, item.stat(follow_symlinks=False))
                else:
                    entry = Entry(NotePath(path), "file")
            except OSError as error:
                entry = Entry(NotePath(path), "note" if is_note(name) else "file", None, _reason(error))
            if entry is None:
                continue
            if not _is_text(path):
                yield Entry(NotePath(printable(path)), entry.kind, None, "the name is not valid UTF-8")
                continue
            if entry.kind == "folder":
                pending.append(path)
            yield entry


def entry_at(rules: Rules, path: NotePath) -> Entry | None:
    """What stands at one path now, by the same rules as `walk`; None when there is nothing that counts."""
    if not _is_text(path) or "\0" in path or rules.hides(path):
        return None
    file = rules.root / path
    try:
        status = file.lstat()
        if not _stays_inside(rules, file.parent):
            return None
        if stat.S_ISLNK(status.st_mode):
            if not _stays_inside(rules, file):
                return None
            status = file.stat()
        if stat.S_ISDIR(status.st_mode):
            return None if PurePosixPath(path).name in LEFT_OUT else Entry(path, "folder")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return Entry(path, "note" if is_note(path) else "file", None, _reason(error))
    return _note(rules, path, status) if is_note(path) else Entry(path, "file")


def read(file: Path) -> tuple[bytes, Stamp]:
    """The bytes of a regular file with the stamp they had before the read; never waits for a pipe."""
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file")
        return stream.read(), stamp(status)


def decode(data: bytes) -> Decoded:
    """Text of a note's bytes: UTF-8 or UTF-16 with a mark; a few bad bytes are replaced, more are a reason to skip."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            source = data.decode("utf-16")
        except UnicodeDecodeError:
            return Decoded("", 0, "not UTF-16 as its byte order mark says")
        return Decoded(source) if "\0" not in source else Decoded("", 0, "binary (NUL characters)")
    if b"\0" in data:
        return Decoded("", 0, "binary (NUL bytes)")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return Decoded(data.decode("utf-8"))
    except UnicodeDecodeError:
        source = data.decode("utf-8", "replace")
        bad = len(data) - len(data.decode("utf-8", "ignore").encode("utf-8"))
    if bad > _BAD_BYTES * len(data):
        return Decoded("", 0, f"not UTF-8 ({bad} of {len(data)} bytes)")
    return Decoded(source, bad)


def stamp(status: os.stat_result) -> Stamp:
    """The part of a stat that tells whether a file changed."""
    # ctime on Windows is the time of creation: harmless here, it only never changes.
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def safe_file(rules: Rules, path: str) -> tuple[NotePath, Path]:
    """A vault file for a path that a person or an agent typed; NotFound for everything outside, hidden or absent."""
    if not path or "\0" in path or not _is_text(path) or path.endswith(("/", "\\")):
        raise NotFound(f"{printable(path)}: not a file of the vault")
    typed = Path(path)
    joined = typed if typed.is_absolute() else rules.root / typed
    # Normalised by text, not by `resolve`: a path that climbs over a file must not come back inside through it.
    normal = Path(os.path.normpath(joined))
    if not normal.is_relative_to(rules.root):
        raise NotFound(f"{printable(path)}: outside the vault")
    relative = NotePath(normal.relative_to(rules.root).as_posix())
    try:
        inside = rules.follow_symlinks or normal.resolve().is_relative_to(rules.root)
        regular = normal.is_file()
    except (OSError, RuntimeError, ValueError):
        inside = regular = False
    if rules.hides(relative) or not inside:
        raise NotFound(f"{printable(path)}: outside the vault or hidden")
    if not regular:
        raise NotFound(f"{printable(path)}: not found in the vault")
    return relative, normal


def printable(path: str) -> str:
    """A path that any terminal and any JSON reader takes: undecodable bytes and control characters are escaped."""
    shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in shown)


def _note(rules: Rules, path: str, status: os.stat_result) -> Entry:
    if not stat.S_ISREG(status.st_mode):
        return Entry(NotePath(path), "note", None, "not a regular file")
    if rules.excludes(path):
        return Entry(NotePath(path), "file")
    if status.st_size > LARGEST_NOTE:
        return Entry(NotePath(path), "note", stamp(status), f"larger than {LARGEST_NOTE >> 20} MiB")
    return Entry(NotePath(path), "note", stamp(status))


def _linked(rules: Rules, item: os.DirEntry[str], path: str, seen: set[tuple[int, int]]) -> Entry | None:
    """What a symbolic link adds: a file inside the vault always, what lies outside only where the config says so."""
    target = Path(item.path)
    try:
        status = item.stat()
    except OSError as error:
        reason = "dangling symbolic link" if isinstance(error, FileNotFoundError) else _reason(error)
        return Entry(NotePath(path), "note", None, reason) if is_note(path) else None
    if not _stays_inside(rules, target):
        return Entry(NotePath(path), "note", None, "symbolic link out of the vault") if is_note(path) else None
    if not stat.S_ISDIR(status.st_mode):
        return _note(rules, path, status) if is_note(path) else Entry(NotePath(path), "file")
    # A link to a folder of the same vault would show every note twice, one to a parent never ends.
    real = target.resolve()
    if real.is_relative_to(rules.root) or rules.root.is_relative_to(real):
        return None
    if (status.st_dev, status.st_ino) in seen or target.name in LEFT_OUT:
        return None
    seen.add((status.st_dev, status.st_ino))
    return Entry(NotePath(path), "folder")


def _stays_inside(rules: Rules, file: Path) -> bool:
    if rules.follow_symlinks:
        return True
    try:
        return file.resolve().is_relative_to(rules.root)
    except (OSError, RuntimeError):
        return False


def _gitignore(file: Path) -> Callable[[str], bool] | None:
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - only where the config asks for it

    return GitIgnoreSpec.from_lines(lines).match_file


def _is_text(path: str) -> bool:
    return path.isascii() or not any("\ud800" <= character <= "\udfff" for character in path)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
