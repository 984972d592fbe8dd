"""A model on disk: its definition, its files, and whether they are all there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vault_lsp.embed.embedder import Definition

#: Named in every fingerprint. Changes when the code that runs a model gives other vectors of the same weights; so do
#: other releases of fastembed, whose series the requirement in pyproject.toml therefore holds fast.
RUNTIME = "fastembed 0.9"

#: Tokens of a passage at most, whatever the model takes: chunks are shorter, and memory grows with the square.
MAX_TOKENS = 512

#: Lists the files of a finished folder. It is written last.
MANIFEST = "manifest.json"

#: The table that `pieces` makes of a tokenizer.
TABLE = "pieces.bin"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model lies and how it is run.

    `listed` is its name in fastembed's own list, if it is there. A `plain` model needs nothing but its tokens.
    """

    definition: Definition
    folder: Path
    model_file: str
    listed: str | None = None
    plain: bool = True


def model_folder() -> Path:
    """The folder of all models: VAULT_LSP_MODEL_DIR, or one in the user's cache."""
    if chosen := os.environ.get("VAULT_LSP_MODEL_DIR"):
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("vault-lsp", appauthor=False)) / "models"


@contextmanager
def built_aside(target: Path) -> Iterator[Path]:
    """A new folder beside `target` that takes its place at the end, with a manifest; nothing is left after an error.

    Of several processes that do this at once, the first to end wins; the others' work is dropped.
    """
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield aside
        write_manifest(aside, {})
        _take_place(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_manifest(folder: Path, more: dict[str, Any]) -> None:
    """List the files of a folder with sizes and checksums, and whatever else there is to say of it."""
    listed = {
        file.relative_to(folder).as_posix(): {"size": file.stat().st_size, "sha256": sha256(file)}
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != MANIFEST and not file.relative_to(folder).parts[0].startswith(".")
    }
    part = folder / f".{MANIFEST}.{os.getpid()}"
    part.write_text(json.dumps({**more, "files": listed}, indent=1), encoding="utf-8")
    part.replace(folder / MANIFEST)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What `write_manifest` wrote; None where there is none."""
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and isinstance(content.get("files"), dict) else None


def is_whole(folder: Path, *, checksums: bool = False) -> bool:
    """Whether all files of the manifest are there with their sizes, and on request with their contents."""
    manifest = read_manifest(folder)
    if manifest is None:
        return False
    try:
        return all(
            (folder / name).stat().st_size == entry["size"]
            and (not checksums or sha256(folder / name) == entry["sha256"])
            for name, entry in manifest["files"].items()
        )
    except (OSError, KeyError, TypeError):
        return False


def sha256(file: Path) -> str:
    """Checksum of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    total = 0
    for file in _files(folder):
        with suppress(OSError):
            total += file.stat().st_size
    return total


def _files(folder: Path) -> Iterable[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def _take_place(new: Path, target: Path) -> None:
    # mkdtemp made it for this user alone, which is right for a cache as well.
    for _ in range(3):
        if is_whole(target):
            return
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            # What lies there is damaged: a folder can't be replaced in one step, so it is moved away first.
            with suppress(FileNotFoundError):
                target.rename(old / "damaged")
            with suppress(OSError):
                new.rename(target)
                return
        finally:
            shutil.rmtree(old, ignore_errors=True)
    if not is_whole(target):
        new.rename(target)
