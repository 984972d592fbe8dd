"""The process that downloads a model: `python -m vault_lsp.embed.download RECIPE FOLDER`. Its last line is JSON."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.hf_api import RepoSibling

from vault_lsp.embed import hub
from vault_lsp.embed.source import sha256
from vault_lsp.embed.vectors import line


def main() -> None:
    """Download, and say how it went."""
    fields = json.loads(sys.argv[1])
    recipe = hub.Recipe(**{**fields, "files": tuple(fields["files"])})
    try:
        download(recipe, Path(sys.argv[2]))
    except Exception as error:  # noqa: BLE001 - the client's own, its transport's, the system's
        answer = {"error": line(error)}
    else:
        answer = {}
    sys.stdout.write(json.dumps(answer) + "\n")


def download(recipe: hub.Recipe, cache: Path) -> None:
    """Bring the files that are missing or wrong, and check all that come. Raises what the client raises."""
    info = HfApi().model_info(recipe.repository, files_metadata=True, timeout=10)
    revision = info.sha or "main"
    files = {each.rfilename: each for each in info.siblings or () if _is_wanted(recipe, each.rfilename)}
    missing = [name for name in recipe.files if name not in files and not set(name) & set("*?[")]
    if missing:
        raise FileNotFoundError(f"{recipe.repository} has no {missing[0]}")
    sizes = {name: each.size or 0 for name, each in files.items()}
    hub.write_note(recipe, revision, sizes, {name: each.lfs.sha256 for name, each in files.items() if each.lfs})
    place = hub.note_file(recipe).parent
    for name, each in files.items():
        file = place / "snapshots" / revision / name
        if file.exists() and not _is_right(file, each):
            _drop(file)
        hf_hub_download(recipe.repository, name, revision=revision, cache_dir=cache)
        if not _is_right(file, each):
            _drop(file)
            raise ValueError(f"{name} came damaged")
    # What other programs take for the sign that a snapshot is there.
    (place / "refs").mkdir(exist_ok=True)
    (place / "refs" / "main").write_text(revision, encoding="ascii")


def _is_wanted(recipe: hub.Recipe, name: str) -> bool:
    return name in hub.SMALL_FILES or any(fnmatchcase(name, pattern) for pattern in recipe.files)


def _is_right(file: Path, expected: RepoSibling) -> bool:
    """Whether a file has its length and, if the hub tells it, its checksum."""
    return file.stat().st_size == expected.size and (expected.lfs is None or sha256(file) == expected.lfs.sha256)


def _drop(file: Path) -> None:
    """Delete a file of a snapshot with the blob that it points to."""
    blob = file.resolve()
    file.unlink()
    with suppress(FileNotFoundError):
        blob.unlink()


if __name__ == "__main__":
    main()
