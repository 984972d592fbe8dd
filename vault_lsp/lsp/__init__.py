"""The language server; the only place that knows the protocol."""

from __future__ import annotations

import gc


def serve(tcp: tuple[str, int] | None = None) -> int:
    """Serve one client on stdio, or on a TCP port for debugging, until it ends; returns the exit code."""
    # Collecting garbage while the protocol's thousand types are made, which live for ever, is a fifth of that time.
    gc.disable()
    from vault_lsp.lsp.server import run  # noqa: PLC0415 - see above

    return run(tcp)
