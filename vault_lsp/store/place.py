"""Where the index of a vault lies, which of its generations is current, and who else has it open.

An index is a cache. Its file is never unlinked or renamed while another process may hold it: a rebuild makes the next
generation beside it and moves a pointer.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import apsw

from vault_lsp.errors import IndexReadOnly
from vault_lsp.store.db import SCHEMA_VERSION, VECTORS_VERSION

#: What SQLite keeps beside a database, and what we do.
_SIDES = ("-wal", "-shm", "-journal")

#: How the names of all files of an index folder begin.
OWN_NAMES = ("index-v", "vectors-v", "current-v", "vault.json", "CACHEDIR.TAG")


class Seal(NamedTuple):
    """Size and time of the index file when its last writer left it: a file that differs was touched by others."""

    size: int
    mtime_ns: int


class Generations:
    """The database files of one kind in an index folder, of which one is current."""

    def __init__(self, folder: Path, kind: str, pointer: str) -> None:
        """`kind` begins the files' names and ends with the version of their schema."""
        self.folder = folder
        self.kind = kind
        #: The small file that names the current generation.
        self.pointer = folder / pointer
        self._finished = re.compile(rf"{kind}\.(\d+)\.db")
        self._taken = re.compile(rf"{kind}\.(\d+)\..*")

    @property
    def file(self) -> Path:
        """The database file of the current generation; it may not exist yet."""
        return self.folder / f"{self.kind}.{self.generation()}.db"

    def generation(self) -> int:
        """Number of the current generation, 1 where nothing was built yet."""
        with suppress(OSError, ValueError):
            return max(1, int(self.pointer.read_text("ascii")))
        return 1

    def next_generation(self) -> Path:
        """The file name of a generation that nobody uses yet."""
        taken = [int(match[1]) for match in map(self._taken.fullmatch, _names(self.folder)) if match]
        return self.folder / f"{self.kind}.{max([self.generation(), *taken]) + 1}.db"

    def point_to(self, file: Path) -> None:
        """Make a finished generation the current one, for every process at its next look."""
        match = self._finished.fullmatch(file.name)
        assert match is not None
        with refused(self.pointer):
            _write(self.pointer, match[1])

    def vacant(self) -> Path:
        """A file name for a database where none is, the current one if it can be.

        A log that lies there without its database belongs to one that was deleted, maybe under a process that still
        writes: SQLite would mix the two.
        """
        file = self.file
        if any(file.with_name(file.name + side).exists() for side in _SIDES):
            file = self.next_generation()
        return file

    def older_generations(self) -> list[Path]:
        """Database files that are not the current one: of earlier generations and schemas, and builds cut short."""
        own = self.file.name
        begin = self.kind.rstrip("0123456789")
        return sorted(
            self.folder / name
            for name in _names(self.folder)
            if name.startswith(begin) and ".db" in name and name != own and not name.endswith(_SIDES)
        )

    def read_seal(self) -> Seal | None:
        """The seal of the current file, None where it was never sealed."""
        with suppress(OSError, ValueError, TypeError):
            return Seal(*json.loads(self._seal_file().read_text("ascii")))
        return None

    def sealed(self) -> bool:
        """Whether the file is as its last writer of ours left it."""
        with suppress(OSError):
            return self.read_seal() == file_seal(self.file)
        return False

    def write_seal(self) -> None:
        """Record the file's state after our own last write."""
        with suppress(OSError):
            seal = file_seal(self.file)
            if seal != self.read_seal():
                _write(self._seal_file(), json.dumps(list(seal)))

    def _seal_file(self) -> Path:
        return self.file.with_suffix(".seal")


class Index(Generations):
    """The place of one vault's index and its current generation, and of the vectors beside it."""

    def __init__(self, folder: Path, root: Path) -> None:
        super().__init__(folder, f"index-v{SCHEMA_VERSION}", f"current-v{SCHEMA_VERSION}")
        self.root = root
        self.vectors = Generations(folder, f"vectors-v{VECTORS_VERSION}", f"current-vectors-v{VECTORS_VERSION}")

    def write_root(self) -> None:
        """Record which vault the folder belongs to."""
        with refused(self.folder):
            _write(self.folder / "vault.json", json.dumps({"root": str(self.root)}))


def locate(root: Path, configured: str | None) -> Index:
    """The index of a vault: `index.path` of its config, else below VAULT_LSP_INDEX_DIR, else below the user's cache."""
    if configured:
        return Index((root / Path(configured).expanduser()).resolve(), root)
    return Index(cache_folder() / _key(root), root)


def cache_folder() -> Path:
    """The folder that holds the indexes of all vaults."""
    if chosen := os.environ.get("VAULT_LSP_INDEX_DIR"):
        return Path(chosen).expanduser().resolve()
    import platformdirs  # noqa: PLC0415 - not needed where the place is given

    return Path(platformdirs.user_cache_dir("vault-lsp", appauthor=False)) / "vaults"


def create_folder(index: Index) -> None:
    """Make the index folder, private to its user and invisible to backups and to git.

    Of a folder that holds files of others as well, git is told to ignore only what is ours.
    """
    with refused(index.folder):
        index.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = _names(index.folder)
        if "vault.json" in names:
            _ignore_newer_names(index.folder / ".gitignore")
            return
        shared = any(not name.startswith(OWN_NAMES) for name in names)
        if not shared:
            (index.folder / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n", "ascii")
        if index.folder.is_relative_to(index.root) and ".gitignore" not in names:
            ignored = [_ignored(name) for name in OWN_NAMES] if shared else ["*\n"]
            (index.folder / ".gitignore").write_text("".join(ignored), "ascii")
        index.write_root()


def recorded_root(folder: Path) -> Path | None:
    """The vault that an index folder was made for; None for a folder that is not ours."""
    try:
        root = json.loads((folder / "vault.json").read_text("utf-8"))["root"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Path(root) if isinstance(root, str) and root else None


def is_orphan(folder: Path) -> bool:
    """Whether a folder is the index of a vault that no longer exists."""
    root = recorded_root(folder)
    try:
        return root is not None and not root.exists()
    except OSError:
        return False


def current_file(folder: Path) -> Path | None:
    """The current database of an index folder of this schema, None where it has none."""
    file = Index(folder, folder).file
    return file if file.is_file() else None


def file_seal(file: Path) -> Seal:
    """Size and time of a file now."""
    status = file.stat()
    return Seal(status.st_size, status.st_mtime_ns)


def in_use(file: Path) -> bool:
    """Whether a process has the database open, so that nobody else can have it alone. False for what is no database."""
    try:
        with closing(apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.set_busy_timeout(0)
            connection.execute("PRAGMA locking_mode=exclusive").fetchall()
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except (apsw.BusyError, apsw.LockedError):
        return True
    except apsw.Error:
        return False
    return False


def remove(file: Path) -> bool:
    """Remove a database that nobody has open, with what lies beside it. False when it is in use or can't be removed."""
    if in_use(file):
        return False
    try:
        file.unlink()
    except OSError:
        return False
    for side in (*(file.with_name(file.name + end) for end in _SIDES), file.with_suffix(".seal")):
        with suppress(OSError):
            side.unlink()
    return True


@contextmanager
def refused(file: Path) -> Iterator[None]:
    """Turn an error of the file system into IndexReadOnly with the path."""
    try:
        yield
    except OSError as error:
        raise IndexReadOnly(f"{file}: the index can't be written ({(error.strerror or str(error)).lower()})") from error


def _key(root: Path) -> str:
    """Folder name for a vault: readable, and different for every real path."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", root.name)[:40].strip("-.") or "vault"
    return f"{readable}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}"


def _ignored(name: str) -> str:
    return f"/{name}*\n"


def _ignore_newer_names(file: Path) -> None:
    """Add to a list that an earlier version of ours made the names that it didn't know."""
    with suppress(OSError, ValueError):
        text = file.read_text("ascii")
        if text.startswith(_ignored(OWN_NAMES[0])):
            missing = [line for line in map(_ignored, OWN_NAMES) if line not in text]
            if missing:
                _write(file, text + "".join(missing))


def _names(folder: Path) -> list[str]:
    try:
        return [file.name for file in folder.iterdir()]
    except OSError:
        return []


def _write(file: Path, text: str) -> None:
    """Replace a small file in one step."""
    aside = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        aside.write_text(text, "utf-8")
        aside.replace(file)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
