"""GitHub's anchors for headings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_ASCII_DROPPED = re.compile(r"[^0-9A-Za-z_\- ]")


def slug(text: str) -> str:
    """The anchor of one heading text: lower case, punctuation dropped except `-` and `_`, each space a `-`."""
    lowered = text.lower()
    if lowered.isascii():
        kept = _ASCII_DROPPED.sub("", lowered)
    else:
        kept = "".join(character for character in lowered if _kept(character))
    return kept.replace(" ", "-")


def slugs(texts: Iterable[str]) -> list[str]:
    """The anchors of a note's headings in order; a repeated one gets `-1`, `-2` … like on GitHub."""
    used: dict[str, int] = {}
    result = []
    for text in texts:
        wanted = anchor = slug(text)
        while anchor in used:
            used[wanted] += 1
            anchor = f"{wanted}-{used[wanted]}"
        used[anchor] = 0
        result.append(anchor)
    return result


def _kept(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "LM" or category in {"Nd", "Nl", "Pc"} or character in "- "
