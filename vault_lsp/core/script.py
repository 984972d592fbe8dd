"""The script that a text is mainly written in.

Multilingual models put texts of one language close together, whatever they say. Vectors are therefore compared with
what is usual among texts of the same script (see `store.vectors`); a script is a good enough guess at the language.
"""

from __future__ import annotations

import re
from enum import IntEnum


class Script(IntEnum):
    """Stored in the index: numbers are never reused. `LATIN` stands for every script that isn't named."""

    LATIN = 0
    HAN = 1
    KANA = 2
    HANGUL = 3
    CYRILLIC = 4
    GREEK = 5
    ARABIC = 6
    HEBREW = 7
    INDIC = 8
    THAI = 9


_LATIN = re.compile("[A-Za-z\u00c0-\u024f]+")
_OTHERS = {
    Script.HAN: re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"),
    Script.KANA: re.compile("[\u3041-\u30ff\uff66-\uff9f]+"),
    Script.HANGUL: re.compile("[\u1100-\u11ff\uac00-\ud7fb]+"),
    Script.CYRILLIC: re.compile("[\u0400-\u052f]+"),
    Script.GREEK: re.compile("[\u0370-\u03ff\u1f00-\u1fff]+"),
    Script.ARABIC: re.compile("[\u0600-\u06ff\u0750-\u077f]+"),
    Script.HEBREW: re.compile("[\u0590-\u05ff]+"),
    Script.INDIC: re.compile("[\u0900-\u0dff]+"),
    Script.THAI: re.compile("[\u0e00-\u0eff]+"),
}

#: A character of these scripts says as much as so many letters.
_DENSE = {Script.HAN: 3, Script.KANA: 2, Script.HANGUL: 3}

#: Japanese mixes kana into Han; Chinese knows none.
_KANA_SHARE = 0.05


def script(text: str) -> Script:
    """The script that says most of a text; Latin for one without letters."""
    if text.isascii():
        return Script.LATIN
    said = {each: _DENSE.get(each, 1) * _length(pattern, text) for each, pattern in _OTHERS.items()}
    if said[Script.KANA] > _KANA_SHARE * said[Script.HAN]:
        said[Script.KANA] += said.pop(Script.HAN)
    main = max(said, key=lambda each: said[each])
    return main if said[main] > _length(_LATIN, text) else Script.LATIN


def _length(pattern: re.Pattern[str], text: str) -> int:
    return sum(match.end() - match.start() for match in pattern.finditer(text))
