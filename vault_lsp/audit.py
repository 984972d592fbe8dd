"""Every finding of a vault: note by note, then what only the whole graph tells."""

from __future__ import annotations

from collections.abc import Callable, Container

from vault_lsp.core.model import Finding, NotePath
from vault_lsp.core.rules import HealthConfig
from vault_lsp.view import View


def audit(
    view: View,
    config: HealthConfig,
    wanted: Container[NotePath] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[Finding, ...]:
    """All findings of the wanted notes (None: all), by path and place, as this config wants them.

    `progress` is told how many notes are done, of how many.
    """
    paths = [path for path in view.paths() if wanted is None or path in wanted]
    found: list[Finding] = []
    for done, path in enumerate(paths):
        progress(done, len(paths))
        found += view.findings(path, config)
    return tuple(found)
