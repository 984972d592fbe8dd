"""Path patterns as in `.gitignore`, without negation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache


def matches_any(patterns: Iterable[str], path: str) -> bool:
    """Whether a vault-relative path, or a folder above it, matches one of the patterns.

    A pattern without an inner slash matches at any depth, one with a slash from the root; `*` and `?` stop at a slash,
    `**` doesn't; a final slash asks for a folder.
    """
    composed = unicodedata.normalize("NFC", path)
    return any(_compiled(pattern).match(composed) for pattern in patterns)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    text = unicodedata.normalize("NFC", pattern.strip())
    folder = text.endswith("/")
    text = text.rstrip("/")
    start = "" if "/" in text else "(?:.*/)?"
    # Each piece is a wildcard, a character class or one character.
    pieces = re.findall(r"\*\*/|/\*\*$|\*+|\?|\[!?\]?[^\]]*\]|.", text.removeprefix("/"), re.DOTALL)
    end = "/" if folder else "(?:/|$)"
    try:
        return re.compile(start + "".join(map(_translated, pieces)) + end, re.DOTALL)
    except re.error:
        # A class that is none, such as `[z-a]`: every character stands for itself.
        return re.compile(start + re.escape(text.removeprefix("/")) + end, re.DOTALL)


def _translated(piece: str) -> str:
    if len(piece) > 2 and piece[0] == "[":
        # Set operators of the `re` module are plain characters here.
        inner = re.sub(r"[\\\[&~|]|--", lambda match: re.escape(match[0]), piece[1:-1])
        return "[^/" + inner[1:] + "]" if inner[0] == "!" else f"(?!/)[{inner}]"
    fixed = {"**/": "(?:.*/)?", "/**": "/.+", "?": "[^/]"}.get(piece)
    if fixed is not None:
        return fixed
    return "[^/]*" if piece[0] == "*" else re.escape(piece)
