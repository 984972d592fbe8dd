"""Bring text into the form in which it is compared, for index and query alike.

What the FTS5 tokenizer `unicode61` would drop or split is spelled with characters that it keeps: an emoji becomes a
word such as `u1f680`, a vowel sign of an Indic or Thai word a private-use letter.
"""

from __future__ import annotations

import re
import unicodedata


def fold(text: str) -> str:
    """Bring a text into the form that is compared: NFKC, marks and symbols spelled as letters.

    Case and the accents of Latin letters are left to the tokenizer.
    """
    if text.isascii():
        return text
    text = _ODD.sub(_respelled, unicodedata.normalize("NFKC", text))
    return text.replace("ß", "ss") if "ß" in text else text


def bare(text: str) -> str:
    """Fold a text as the tokenizer does as well: without case, without the accents of Latin and Greek letters."""
    if text.isascii():
        return text.lower()
    return fold(text).lower().translate(_UNACCENTED)


def is_term_character(character: str) -> bool:
    """Whether the tokenizer keeps a character of a folded text as part of a word."""
    return _TERM[character]


# Characters that unicode61 drops, or at which it would cut a word: marks, format characters, symbols, surrogates.
# Letters of the same blocks pass unchanged. Beyond the BMP two wide ranges: the regex engine tries those one by one.
_SYMBOLS = (
    "\u00a2-\u00a9\u00ac-\u00b1\u00b6\u00d7\u00f7\u20a0-\u20cf\u2100-\u218b\u2190-\u2bff"
    "\u3004\u3012\u3013\u3020\u3036-\u303f\u3190-\u319f\u31c0-\u31ef\u3200-\u32ff\u4dc0-\u4dff\ufdfc-\ufdff\ufffc\ufffd"
    "\u03f6\u0482\u058d-\u058f\u06fd\u06fe\u07fe\u07ff\u1390-\u1399\u166d\u1940\u19de-\u19ff\u2044\u2052"
    "\u2ce5-\u2cea\u2e50\u2e51\u2e80-\u2fff\ua490-\ua4c6\ua836-\ua839\ufbb2-\ufbc2\ufd40-\ufd4f\ufdcf"
)
_ODD = re.compile(
    f"[{_SYMBOLS}\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0600-\u061c\u0640\u064b-\u065f\u0670\u06d6-\u06ed\u0711"
    "\u0730-\u074a\u07a6-\u07b0\u07eb-\u07fd\u0816-\u082d\u0859-\u085b\u0890-\u089f\u08c9-\u109f\u135d-\u135f"
    "\u1712-\u1715\u1732-\u1734\u1752\u1753\u1772\u1773\u1780-\u17ff\u180b-\u180f\u1885\u1886\u18a9\u1920-\u193b"
    "\u19b0-\u19c9\u1a17-\u1a1b\u1a55-\u1aff\u1b00-\u1bff\u1c24-\u1c37\u1cd0-\u1cff\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u20d0-\u20f0\u2cef-\u2cf1\u2d7f\u2de0-\u2dff\u302a-\u302f\u3099\u309a\ua66f-\ua67d\ua69e\ua69f"
    "\ua6f0\ua6f1\ua802-\ua82c\ua880-\uaaff\uabe3-\uabed\ud800-\udfff\ufb1e\ufe00-\ufe0f\ufe20-\ufe2f\ufeff"
    "\ufff9-\ufffb"
    "\u061d\u070f\u0888\u2e32-\u2e7f\uab5b\uab6a\uab6b\ufffe\uffff\U00010000-\U0001ffff\U000e0000-\U000e0fff]+"
)
_SPACELESS_MARKS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3099\u309a]")
_ASTRAL = "\U0001cf50-\U0001cfc3\U0001d000-\U0001d37f\U0001d800-\U0001d9ff\U0001f000-\U0001fbff"
_FLAG_OR_REPEAT = re.compile(f"([\U0001f1e6-\U0001f1ff])([\U0001f1e6-\U0001f1ff])|([{_SYMBOLS}{_ASTRAL}])\\3+")
# Marks that readers add or leave out freely: accents, Hebrew points, Arabic vowels. The rest spell the word.
_OPTIONAL_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed\u0730-\u074a"
    "\u0890-\u08ff\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\u2de0-\u2dff\ua66f-\ua67d\ua69e\ua69f\ufb1e\ufe00-\ufe2f"
    "\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]"
)


class _Spelling(dict[str, str]):
    """How one odd character is spelled, worked out once a character."""

    def __missing__(self, character: str) -> str:
        code, category = ord(character), unicodedata.category(character)
        if category != "So" and _OPTIONAL_MARKS.match(character):
            spelled = ""
        elif category[0] == "M":
            # Planes 15 and 16 are private use, which unicode61 takes for letters; the latter tells a spaceless script.
            spelled = chr((0x100000 if _SPACELESS_MARKS.match(character) else 0xF0000) + (code & 0xFFFF))
        elif category[0] in "LN" or (category == "Cn" and code & 0xFFFE != 0xFFFE):
            spelled = character
        elif category[0] == "S":
            spelled = f" u{code:x} "
        elif category == "Cf" and code != 0x200B:
            spelled = ""
        else:
            spelled = " "
        self[character] = spelled
        return spelled


_SPELLING = _Spelling()


class _Unaccented(dict[int, int | str]):
    """The letter under an accent, worked out once a character."""

    def __missing__(self, code: int) -> int | str:
        letter: int | str = code
        if 0xC0 <= code < 0x250 or 0x370 <= code < 0x400 or 0x1E00 <= code < 0x2000:
            letter = unicodedata.normalize("NFD", chr(code))[0]
        self[code] = letter
        return letter


_UNACCENTED = _Unaccented()


def _respelled(match: re.Match[str]) -> str:
    run = match[0]
    if len(run) > 1:
        run = _FLAG_OR_REPEAT.sub(_flag_or_once, run)
    return "".join(map(_SPELLING.__getitem__, run))


def _flag_or_once(match: re.Match[str]) -> str:
    if match[3]:
        return match[3]
    return f" u{ord(match[1]):x}u{ord(match[2]):x} "


class _Term(dict[str, bool]):
    """Which characters belong to words, worked out once a character."""

    def __missing__(self, character: str) -> bool:
        category = unicodedata.category(character)
        # Private and unassigned characters count as letters, as they do for the tokenizer.
        self[character] = term = category[0] in "LN" or category in ("Co", "Cn")
        return term


_TERM = _Term()
