"""Heading anchors as GitHub makes them."""

from __future__ import annotations

import unicodedata


def slug(text: str) -> str:
    """Lower case, only letters, marks, digits, `-` and `_`, and one `-` for each space; nothing is collapsed."""
    return "".join(
        "-" if character == " " else character
        for character in text.lower()
        if character in " -_" or unicodedata.category(character)[0] in "LMN"
    )


class Slugger:
    """Slugs of one note's headings in order: a repeated one gets `-1`, `-2` and so on."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def next(self, text: str) -> str:
        """The slug of the next heading."""
        base = slug(text)
        if base not in self._seen:
            self._seen[base] = 0
            return base
        while True:
            self._seen[base] += 1
            numbered = f"{base}-{self._seen[base]}"
            if numbered not in self._seen:
                self._seen[numbered] = 0
                return numbered
