"""The lock of the environment with mlx: as strict as the other, and with the same versions of what both have."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("requirements.lock", "requirements-mlx.lock")}


def locked(name: str) -> list[Requirement]:
    """The requirements of a lock file; each has its hashes."""
    found = re.findall(r"^([a-z0-9][^\\\n]*?) \\\n(?:    --hash=\S+(?: \\)?\n)+", TEXTS[name], re.MULTILINE)
    lines = [line for line in TEXTS[name].splitlines() if line and not line.startswith(("#", "    --hash="))]
    assert len(found) == len(lines)
    return [Requirement(line) for line in found]


def wanted() -> list[Requirement]:
    texts = (
        *PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"]["mlx"],
        *PROJECT["dependency-groups"]["mlx"],
    )
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_the_lock_has_a_fitting_version_of_everything(requirement: Requirement) -> None:
    name = canonicalize_name(requirement.name)
    specifiers = [each.specifier for each in locked("requirements-mlx.lock") if canonicalize_name(each.name) == name]
    assert specifiers
    for specifier in specifiers:
        [pinned] = specifier
        assert pinned.operator == "=="
        assert requirement.specifier.contains(pinned.version, prereleases=True)


def test_what_both_environments_have_is_the_same() -> None:
    versions: list[dict[str, set[str]]] = []
    for name in TEXTS:
        versions.append({})
        for requirement in locked(name):
            versions[-1].setdefault(requirement.name, set()).add(str(requirement.specifier))
    common = versions[0].keys() & versions[1].keys()
    assert {"pytest", "apsw", "hatchling"} <= common
    assert {name: versions[0][name] for name in common} == {name: versions[1][name] for name in common}


def test_the_lock_names_no_place() -> None:
    text = TEXTS["requirements-mlx.lock"]
    assert "://" not in text
    assert not re.search(r"^-|file:|@ ", text, re.MULTILINE)
