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
