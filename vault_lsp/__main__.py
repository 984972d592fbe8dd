"""`python -m vault_lsp` and the `vault-lsp` command."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    _speak_utf8()
    # Before anything brings in numpy. Its threads meet at the end of each product, and where a core is busy the wait
    # for each other is longer than the work: on two busy cores 8 ms instead of 2 for 50,000 vectors.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from vault_lsp.cli import run  # noqa: PLC0415 - worker processes import this module's package, not the commands

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("vault-lsp: interrupted\n")
        code = 130
    sys.exit(code)


def _speak_utf8() -> None:
    """Start anew in UTF-8 mode where the locale has it that file names are in another encoding, as `LC_ALL=C` does.

    Names of files and words of a query would else arrive in pieces.
    """
    if sys.getfilesystemencoding().lower() != "utf-8" and not sys.flags.utf8_mode:
        os.environ["PYTHONUTF8"] = "1"  # for the processes that we start
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606


if __name__ == "__main__":
    main()
