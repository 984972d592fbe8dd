"""`python -m vault_lsp` and the `vault-lsp` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from vault_lsp.cli import run  # noqa: PLC0415 - worker processes import this module's package, not the commands

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
