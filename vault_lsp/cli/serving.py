"""`lsp`: the language server."""

from __future__ import annotations

import click


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--stdio", is_flag=True, expose_value=False, help="Speak on stdin and stdout (the default).")
@click.option("--tcp", metavar="HOST:PORT", help="Listen instead, for debugging; loopback addresses only.")
@click.option("--allow-remote", is_flag=True, help="Let --tcp listen on an address that others can reach.")
def lsp(tcp: str | None, allow_remote: bool) -> int:
    """Run the language server."""
    from vault_lsp.lsp import serve

    if tcp is None:
        return serve()
    host, _, port = tcp.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) <= 65535:
        raise click.UsageError("--tcp takes HOST:PORT")
    host = host.strip("[]") or "127.0.0.1"
    if not allow_remote and host not in ("localhost", "::1") and not host.startswith("127."):
        raise click.UsageError("--tcp listens on loopback addresses only; --allow-remote lifts that")
    return serve(tcp=(host, int(port)))
