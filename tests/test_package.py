"""What is installed: the wheel has the package and nothing else, and the lock has what the package asks for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vault_lsp import __version__

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
#: Requirement → the lines of its hashes.
LOCKED = dict(re.findall(r"^([a-z0-9][^\\\n]*?) \\\n((?:    --hash=.*\n)+)", LOCK, re.MULTILINE))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=True,
    )
    [file] = folder.iterdir()
    return file


def test_the_wheel_has_every_module_and_no_test(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = {file for file in (ROOT / "vault_lsp").rglob("*") if file.is_file() and file.parent.name != "__pycache__"}
    hooks = {f"vault_lsp/hooks/{file.name}" for file in (ROOT / "hooks").iterdir()}
    assert names == {file.relative_to(ROOT).as_posix() for file in files} | hooks


def test_the_wheel_names_version_licence_and_command(wheel: Path) -> None:
    assert wheel.name == f"vault_lsp-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        parts = {name.partition(".dist-info/")[2]: archive.read(name).decode() for name in archive.namelist()}
    metadata = Parser().parsestr(parts["METADATA"])
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    assert "vault-lsp = vault_lsp.__main__:main" in parts["entry_points.txt"]
    assert "licenses/LICENSE" in parts


def test_the_wheel_runs_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault/note.md").write_text("# Note\n\nA spade.\n", encoding="utf-8")
    program = (
        "import sys, vault_lsp; from vault_lsp.__main__ import main; print(vault_lsp.__file__, flush=True); "
        "sys.argv[1:] = ['search', 'spade']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path / "vault",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "VAULT_LSP_INDEX_DIR": str(tmp_path / "index")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "site"))
    assert "note.md" in done.stdout


def test_the_wheel_puts_hooks_into_a_repository(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "vault").mkdir()
    subprocess.run(["git", "init", "-q", str(tmp_path / "vault")], check=True)
    subprocess.run(
        [sys.executable, "-P", "-m", "vault_lsp", "hook", "install"],
        cwd=tmp_path / "vault",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "VAULT_LSP_INDEX_DIR": str(tmp_path / "index")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=60,
        check=True,
    )
    assert (tmp_path / "vault/.git/hooks/post-commit").is_file()


def requirements() -> list[Requirement]:
    groups = PROJECT["dependency-groups"]["dev"]
    return [
        Requirement(text)
        for text in (*PROJECT["project"]["dependencies"], *groups, *PROJECT["build-system"]["requires"])
    ]


@pytest.mark.parametrize("wanted", requirements(), ids=str)
def test_the_lock_has_a_fitting_version_of_every_dependency(wanted: Requirement) -> None:
    versions = [
        version
        for name, _, version in (line.partition(";")[0].strip().partition("==") for line in LOCKED)
        if canonicalize_name(name) == canonicalize_name(wanted.name)
    ]
    assert versions  # several where a Python is too old for the newest
    assert all(wanted.specifier.contains(version, prereleases=True) for version in versions)


def test_the_lock_pins_versions_by_hash_and_names_no_place() -> None:
    lines = [line for line in LOCK.splitlines() if line and not line.startswith("#")]
    assert len(LOCKED) + sum(hashes.count("\n") for hashes in LOCKED.values()) == len(lines)
    assert all("==" in line for line in LOCKED)
    assert "://" not in LOCK
    assert not re.search(r"^-|file:|@ ", LOCK, re.MULTILINE)
