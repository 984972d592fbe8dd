"""The folder of notes on disk: where it begins, what belongs to it, and how bytes become text."""

from __future__ import annotations

import codecs
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
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

#: Whether `lstat` may find a file under a name that differs in case or Unicode form from the one on disk.
SPELLINGS = sys.platform in ("darwin", "win32")


_Decision = Callable[[str], bool | None]


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

    def __init__(self, root: Path, config: Config, index: tuple[Path, tuple[str, ...]] | None = None) -> None:
        """`index` is the folder of the index, and how the names of its files begin: they never count."""
        self.root = root
        self.follow_symlinks = config.follow_symlinks
        self.gitignore = config.gitignore
        self._excluded: Callable[[str], bool] | None = None
        if config.exclude:
            from pathspec import GitIgnoreSpec  # noqa: PLC0415 - most vaults exclude nothing

            self._excluded = GitIgnoreSpec.from_lines(config.exclude).match_file
        self._gitignores: dict[str, _Decision] = {}
        self._ignored_folders: dict[str, bool] = {}
        #: The folder of the index, if it lies in the vault, and the beginnings of names.
        self.own: tuple[str | None, tuple[str, ...]] = (None, ())
        if index is not None and index[0].is_relative_to(root):
            folder = index[0].relative_to(root).as_posix()
            self.own = ("" if folder == "." else folder, index[1])

    def hides(self, path: str) -> bool:
        """Whether the path, or a folder above it, is hidden or always left out."""
        *folders, name = path.split("/")
        if name.startswith(".") or any(folder.startswith(".") or folder in LEFT_OUT for folder in folders):
            return True
        return "/".join(folders) == self.own[0] and name.startswith(self.own[1])

    def excludes(self, path: str) -> bool:
        """Whether the config (or a `.gitignore`, where the config asks for it) keeps the file out of the index."""
        if self._excluded is not None and self._excluded(path):
            return True
        return self.gitignore and self._git_ignores(path)

    @property
    def filters(self) -> bool:
        """Whether `excludes` can say yes at all."""
        return self.gitignore or self._excluded is not None

    def passes_link(self, path: str) -> bool:
        """Whether a folder above the path is a symbolic link."""
        parent = os.path.dirname(self.root / path)  # noqa: PTH120 - a text to be compared
        return os.path.realpath(parent) != os.path.normpath(parent)

    def refresh(self) -> None:
        """Forget the `.gitignore` files that were read: they may have changed."""
        self._gitignores.clear()
        self._ignored_folders.clear()

    def _git_ignores(self, path: str) -> bool:
        """As git does: the file nearest to the path decides, but nothing comes back inside an ignored folder."""
        folder = path.rpartition("/")[0]
        if folder:
            ignored = self._ignored_folders.get(folder)
            if ignored is None:
                ignored = self._ignored_folders[folder] = self._git_ignores(folder) or self._git_decides(folder + "/")
            if ignored:
                return True
        return self._git_decides(path)

    def _git_decides(self, path: str) -> bool:
        parts = path.rstrip("/").split("/")[:-1]
        for depth in range(len(parts), -1, -1):
            above = "".join(part + "/" for part in parts[:depth])
            decide = self._gitignores.get(above)
            if decide is None:
                decide = self._gitignores[above] = _gitignore(self.root / above / ".gitignore")
            decision = decide(path[len(above) :])
            if decision is not None:
                return decision
        return False


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
    """The real path of a folder; VaultNotFound where there is none that can be listed."""
    try:
        real = folder.expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise VaultNotFound(f"{folder}: no such folder") from error
    if not real.is_dir():
        raise VaultNotFound(f"{folder}: not a folder")
    if not os.access(real, os.R_OK | os.X_OK):
        raise VaultNotFound(f"{folder}: permission denied")
    return real


def is_note(name: str) -> bool:
    """Whether a file name is that of a note."""
    return name[-3:].lower() == ".md"


def walk(rules: Rules, below: str = "", seen: set[tuple[int, int]] | None = None) -> Iterator[Entry]:
    """Every file and folder of the vault below a folder, folders before what they hold.

    Only notes are asked for their stamp. A folder that can't be read comes a second time, with the reason.
    """
    seen = set() if seen is None else seen
    own_folder, own_names = rules.own
    pending = [below]
    while pending:
        folder = pending.pop()
        prefix = f"{folder}/" if folder else ""
        try:
            with os.scandir(f"{rules.root}/{folder}") as entries:
                listed = list(entries)
        except OSError as error:
            if not folder:
                raise VaultNotFound(f"{rules.root}: {_reason(error)}") from error
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                yield Entry(NotePath(folder), "folder", None, _reason(error))
            continue
        if rules.follow_symlinks:
            # Of several links to one folder the same one counts every time.
            listed.sort(key=lambda item: item.name)
        own = own_names if folder == own_folder else ()
        for item in listed:
            name = item.name
            if name[0] == "." or (own and name.startswith(own)):
                continue
            path = prefix + name
            entry: Entry | None
            try:
                if item.is_symlink():
                    entry = _linked(rules, Path(item.path), path, seen)
                elif item.is_dir(follow_symlinks=False):
                    entry = None if name in LEFT_OUT else Entry(NotePath(path), "folder")
                elif name[-3:].lower() == ".md":
                    entry = _note(rules, path, item.stat(follow_symlinks=False))
                else:
                    entry = Entry(NotePath(path), "file")
            except (FileNotFoundError, NotADirectoryError):
                continue  # it vanished while we looked
            except OSError as error:
                entry = Entry(NotePath(path), "note" if is_note(name) else "file", None, _reason(error))
            if entry is None:
                continue
            if not _is_text(name):
                yield Entry(NotePath(printable(path)), entry.kind, None, "the name is not valid UTF-8")
                continue
            if entry.kind == "folder":
                pending.append(path)
            yield entry


def entry_at(rules: Rules, path: NotePath) -> Entry | None:
    """What stands at one path now, by the same rules as `walk`; None when there is nothing that counts."""
    if not is_vault_path(path) or rules.hides(path):
        return None
    file = rules.root / path
    try:
        status = file.lstat()
        if (rules.passes_link(path) and not rules.follow_symlinks) or not _spelt_so(rules, path):
            return None
        if stat.S_ISLNK(status.st_mode):
            return _linked(rules, file, path, set())
        if stat.S_ISDIR(status.st_mode):
            return None if file.name in LEFT_OUT else Entry(path, "folder")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = _reason(error) if isinstance(error, OSError) else "not a name"
        return Entry(path, "note" if is_note(path) else "file", None, reason)
    return _note(rules, path, status) if is_note(path) else Entry(path, "file")


def is_vault_path(path: str) -> bool:
    """Whether a text has the form of a vault path: relative, with plain parts."""
    return _is_text(path) and "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def read(file: Path) -> tuple[bytes, Stamp]:
    """The bytes of a regular file with the stamp they had before the read; never waits for a pipe."""
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    with os.fdopen(descriptor, "rb") as stream:
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
    try:
        shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        shown = path.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in shown)


def _note(rules: Rules, path: str, status: os.stat_result) -> Entry:
    if not stat.S_ISREG(status.st_mode):
        return Entry(NotePath(path), "note", None, "not a regular file")
    if rules.excludes(path):
        return Entry(NotePath(path), "file")
    if status.st_size > LARGEST_NOTE:
        return Entry(NotePath(path), "note", stamp(status), f"larger than {LARGEST_NOTE >> 20} MiB")
    return Entry(NotePath(path), "note", stamp(status))


def _linked(rules: Rules, target: Path, path: str, seen: set[tuple[int, int]]) -> Entry | None:
    """What a symbolic link adds: a file inside the vault always, what lies outside only where the config says so."""
    try:
        status = target.stat()
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


def _spelt_so(rules: Rules, path: str) -> bool:
    """Whether the names on disk are spelt as in the path, where the file system takes other spellings too."""
    if not SPELLINGS:
        return True
    folder = str(rules.root)
    for part in path.split("/"):
        if part not in os.listdir(folder):  # noqa: PTH208 - names are compared, not paths
            return False
        folder = f"{folder}/{part}"
    return True


def _stays_inside(rules: Rules, file: Path) -> bool:
    if rules.follow_symlinks:
        return True
    try:
        return file.resolve().is_relative_to(rules.root)
    except (OSError, RuntimeError):
        return False


def _gitignore(file: Path) -> _Decision:
    """What a `.gitignore` says of paths below it: ignored, not ignored, or nothing."""
    try:
        lines = file.read_bytes().decode("utf-8", "replace").splitlines()
    except OSError:
        return lambda _: None
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - only where the config asks for it

    check = GitIgnoreSpec.from_lines(lines).check_file
    return lambda path: check(path).include


def _is_text(path: str) -> bool:
    return path.isascii() or not any("\ud800" <= character <= "\udfff" for character in path)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
