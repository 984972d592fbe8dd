"""Every test has a folder of models of its own, and no network but what it serves itself."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vault_lsp.embed import bundled

ROOT = Path(__file__).resolve().parents[2]

CONVERT = "from vault_lsp.embed import bundled; print(bundled.convert())"


@pytest.fixture(autouse=True)
def models_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of models."""
    folder = tmp_path / "models"
    monkeypatch.setenv("VAULT_LSP_MODEL_DIR", str(folder))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub-home"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return folder


@pytest.fixture(autouse=True)
def reached(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every address outside this machine that a test tried to reach; trying fails."""
    tried: list[Any] = []
    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def only_here(self: socket.socket, address: Any) -> None:
        if address[0] != "127.0.0.1":
            tried.append(address)
            raise OSError("the network is off")
        connect(self, address)

    def only_numbers(host: Any, *rest: Any, **more: Any) -> Any:
        if host != "127.0.0.1":
            tried.append(host)
            raise OSError("the network is off")
        return resolve(host, *rest, **more)

    monkeypatch.setattr(socket.socket, "connect", only_here)
    monkeypatch.setattr(socket, "getaddrinfo", only_numbers)
    return tried


@pytest.fixture(scope="session")
def converted_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models in which two processes have converted the bundled one at the same time."""
    if not bundled.is_carried():
        pytest.skip("no model is bundled for this machine")
    folder = tmp_path_factory.mktemp("bundled")
    environment = {**os.environ, "VAULT_LSP_MODEL_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    runs = [
        subprocess.Popen([sys.executable, "-c", CONVERT], env=environment, stdout=subprocess.PIPE) for _ in range(2)
    ]
    answers = [run.communicate(timeout=120)[0].decode().strip() for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert set(answers) == {str(folder / bundled.folder().name)}
    return folder


@pytest.fixture
def converted(converted_once: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundled model, converted; the folder of models. It is not to be changed."""
    monkeypatch.setenv("VAULT_LSP_MODEL_DIR", str(converted_once))
    return converted_once
