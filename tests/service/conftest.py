"""Every test of the service has a vault folder and an index folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vault_lsp.service import Vault


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "indexes"
    monkeypatch.setenv("VAULT_LSP_INDEX_DIR", str(folder))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    folder.mkdir()
    return folder


@pytest.fixture
def vault(root: Path) -> Iterator[Vault]:
    """An open vault without a note."""
    opened = Vault.open(root)
    yield opened
    opened.close()
