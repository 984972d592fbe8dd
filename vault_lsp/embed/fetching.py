"""The only part that uses the network: brings a model from the hub into the folder of models, or says soon why not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from vault_lsp.embed.bundled import Progress
from vault_lsp.embed.hub import MULTILINGUAL_E5, Recipe, find, folder_name
from vault_lsp.embed.source import folder_size, model_folder
from vault_lsp.errors import ModelUnavailable

#: Seconds that the hub has to say anything at all.
PREFLIGHT = 2.0

#: Seconds without a byte after which a download is given up.
PATIENCE = 30.0


def recipe_of(name: str) -> Recipe:
    """How a model of fastembed's list is brought. Imports fastembed. Raises ModelUnavailable for any other name."""
    if name.lower() == MULTILINGUAL_E5.name:
        return MULTILINGUAL_E5
    from vault_lsp.embed.runtime import listed_recipe

    recipe = listed_recipe(name)
    if recipe is None:
        raise ModelUnavailable(f"{name} isn't the name of a model that fastembed knows")
    return recipe


def fetch(recipe: Recipe, progress: Progress | None = None, *, patience: float = PATIENCE) -> Path:
    """Bring a model here, or what is missing of it, and return its folder. A sound one is left alone.

    A hub that can't be reached is noticed within PREFLIGHT seconds, one that falls silent after `patience`.
    Raises ModelUnavailable with one line; what has come so far is kept for the next time.
    """
    found = find(recipe.name)
    if found and found.is_sound():
        return found.folder
    endpoint = _endpoint()
    _preflight(endpoint, recipe)
    place = model_folder() / folder_name(recipe.repository)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        result = _run_worker(recipe, place, progress or (lambda *_: None), patience)
    except OSError as error:
        raise ModelUnavailable(f"{recipe.name} can't be written to {place}: {error.strerror or error}") from error
    found = find(recipe.name)
    if "error" in result or found is None or not found.is_whole():
        why = result.get("error", "the download is incomplete")
        raise ModelUnavailable(f"{recipe.name} couldn't be downloaded from {endpoint}: {why}")
    return found.folder


def _endpoint() -> str:
    from huggingface_hub import constants

    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "TRUE", "YES", "ON"}:
        raise ModelUnavailable("HF_HUB_OFFLINE forbids downloads")
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or constants.ENDPOINT


def _preflight(endpoint: str, recipe: Recipe) -> None:
    """Ask the hub for the model, in a thread: looking up a name can't be given a time limit."""
    address = f"{endpoint}/api/models/{recipe.repository}"
    answer: list[str] = []

    def ask() -> None:
        try:
            with urlopen(Request(address, method="HEAD"), timeout=PREFLIGHT):  # noqa: S310 - the hub's own address
                answer.append("")
        except HTTPError as error:
            with error:
                # Any answer is one: what is wrong, if something is, the download says better.
                answer.append("it has no such model" if error.code == 404 else "")
        except (OSError, ValueError) as error:
            answer.append(f"it can't be reached ({getattr(error, 'reason', error)})")

    thread = threading.Thread(target=ask, name="preflight", daemon=True)
    thread.start()
    thread.join(PREFLIGHT)
    why = answer[0] if answer else f"it doesn't answer within {PREFLIGHT:g} s"
    if why:
        raise ModelUnavailable(f"{recipe.name} couldn't be downloaded from {endpoint}: {why}")


def _run_worker(recipe: Recipe, place: Path, progress: Progress, patience: float) -> dict[str, Any]:
    """Download in a process of its own, which can be ended when it hangs. Returns what it says at its end."""
    settings = {
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        # Plain requests, which can be resumed and whose files lie where ours are.
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_SHARED_BLOBS": "1",
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
    }
    command = [sys.executable, "-m", "vault_lsp.embed.download", json.dumps(asdict(recipe)), str(model_folder())]
    with subprocess.Popen(
        command,
        env={**os.environ, **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as worker:
        try:
            if not _watch(worker, recipe, place, progress, patience):
                return {"error": f"nothing has come for {patience:g} s"}
            assert worker.stdout is not None
            return _last_line(worker.stdout.read().splitlines())
        finally:
            worker.kill()


def _watch(worker: subprocess.Popen[bytes], recipe: Recipe, place: Path, progress: Progress, patience: float) -> bool:
    """Report the bytes that have come until the worker ends; False if none came for too long."""
    size, since = -1, time.monotonic()
    while worker.poll() is None:
        now = folder_size(place)
        if now != size:
            size, since = now, time.monotonic()
            if found := find(recipe.name):
                total = sum(found.sizes.values())
                progress("downloading", min(now, total), total)
        elif time.monotonic() - since > patience:
            return False
        with suppress(subprocess.TimeoutExpired):
            worker.wait(0.1)
    return True


def _last_line(lines: Sequence[bytes]) -> dict[str, Any]:
    try:
        content = json.loads(lines[-1])
    except (IndexError, ValueError):
        return {"error": "the download ended without a word"}
    return content if isinstance(content, dict) else {}
