"""Search terms of a text and of a query, the same for both.

The index holds two kinds of terms. *Words*: everything the FTS5 tokenizer `unicode61` makes of the text itself, Han
runs cut by a dictionary. *Bigrams*: every pair of neighbouring characters of a script that puts no spaces between
words, so that any substring of two or more characters is found as a phrase, and the last character of every run, so
that a single character is found as a prefix.

What `unicode61` would drop or split is spelled with characters that it keeps: an emoji becomes a word such as
`u1f680`, a vowel sign of an Indic or Thai word a private-use letter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from operator import add
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

#: Changes whenever the terms of some text change: the index is then rebuilt.
SEGMENTER_VERSION = 1


class Terms(NamedTuple):
    """What the full-text index stores of one text, ready for the columns `words` and `bigrams`."""

    words: str
    bigrams: str


class Unit(NamedTuple):
    """One thing the user typed: what stands between spaces, cut where the script changes.

    `words` and `bigrams` are tokens as the index has them; `near` tells that the words stand side by side in the
    text (`gen-itgc`, `20.04`). `extra` are tokens the index adds beside the text: `cplusplus`, the parts of a
    camelCase name. `weak` marks a stop word.
    """

    text: str
    words: tuple[str, ...]
    bigrams: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    near: bool = False
    weak: bool = False


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """A query taken apart. Without units there is nothing that could be found."""

    text: str
    units: tuple[Unit, ...]

    def __bool__(self) -> bool:
        return bool(self.units)


def index_terms(text: str) -> Terms:
    """Give the terms of a text. Any string is allowed; the time is linear in its length."""
    if text.isascii():
        return Terms(_with_extra(text), "")
    text = fold(text)
    parts = _RUN.split(text)
    if len(parts) == 1:
        return Terms(_with_extra(text), "")
    runs = parts[1::2]
    parts[1::2] = _segmented(runs)
    bigrams: list[str] = []
    for run in runs:
        bigrams += map(add, run, run[1:])
        bigrams.append(run[-1])
    return Terms(_with_extra(" ".join(parts)), " ".join(bigrams))


def query_terms(text: str) -> QueryTerms:
    """Take a query apart. Nothing in it is syntax: operators, quotes and wildcards are ordinary characters."""
    units: dict[Unit, None] = {}
    for match in _PIECE.finditer(fold(text)):
        piece = match[0]
        unit = _run_unit(piece) if match.lastgroup == "run" else _word_unit(piece)
        if unit is not None:
            units[unit] = None
    return QueryTerms(text, tuple(units))


def match_expression(terms: QueryTerms, mode: Literal["any", "all", "phrase", "prefix"] = "any") -> str | None:
    """Write an FTS5 expression, every token quoted; None where the query holds nothing that could match.

    `any`: one of the tokens is enough, stop words only where there is nothing else. `all`: every unit, in any order.
    `phrase`: the units side by side as typed, runs as exact substrings. `prefix`: as `any`, and words may go on.
    """
    if not terms.units:
        return None
    if mode == "all":
        return " AND ".join(_required(unit) for unit in _strong(terms.units))
    if mode == "phrase":
        return _phrase(terms.units)
    tokens: dict[str, None] = {}
    for unit in _strong(terms.units):
        tokens.update(dict.fromkeys(_alternatives(unit)))
        if mode == "prefix":
            tokens.update(dict.fromkeys(f"{_quoted(word)}*" for word in unit.words if len(word) >= _PREFIX_LENGTH))
    return " OR ".join(tokens)


def fold(text: str) -> str:
    """Bring a text into the form that is compared: NFKC, marks and symbols spelled as letters.

    Case and the accents of Latin letters are left to the tokenizer.
    """
    if text.isascii():
        return text
    text = _ODD.sub(_respelled, unicodedata.normalize("NFKC", text))
    return text.replace("ß", "ss") if "ß" in text else text


def is_stop_word(word: str) -> bool:
    """Whether a folded word is too common in English or Chinese to choose notes by."""
    return word.lower() in _STOP_WORDS


#: Words shorter than this are not taken as the beginning of longer ones.
_PREFIX_LENGTH = 3

# Scripts by blocks, after NFKC. Marks of the spaceless scripts are already spelled as private-use letters.
_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_SPACELESS = (
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u312f\u31a0-\u31bf\u31f0-\u31ff\U000f3099\U000f309a"  # kana
    "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7fb"  # hangul
    "\u0e01-\u0e5b\u0e80-\u0edf\U000f0e00-\U000f0eff"  # Thai, Lao
    "\u1000-\u1049\u1050-\u109f\U000f1000-\U000f109f\u1780-\u17e9\U000f1780-\U000f17ff"  # Burmese, Khmer
    "\ua000-\ua48c\U0001b000-\U0001b16f"  # Yi, archaic kana
)
_RUN = re.compile(f"([{_HAN}{_SPACELESS}]+)")
_HAN_RUN = re.compile(f"([{_HAN}]+)")
_NOT_HAN = re.compile(f"[{_SPACELESS}]")
_PRIVATE = "\ue000-\uf8ff\U000f0000-\U0010ffff"
_WORD = re.compile(f"(?:[^\\W_]|[{_PRIVATE}])+")
_PIECE = re.compile(f"(?P<run>[{_HAN}{_SPACELESS}]+)|(?P<word>[^\\s{_HAN}{_SPACELESS}]+)")

# Characters that unicode61 drops, or at which it would cut a word: marks, format characters, symbols, surrogates.
# Letters of the same blocks pass unchanged.
_SYMBOLS = (
    "\u00a2-\u00a9\u00ac-\u00b1\u00b6\u00d7\u00f7\u20a0-\u20cf\u2100-\u218b\u2190-\u2bff"
    "\u3004\u3012\u3013\u3020\u3036-\u303f\u3190-\u319f\u31c0-\u31e3\u3200-\u32ff\u4dc0-\u4dff\ufdfc-\ufdff\ufffc\ufffd"
    "\U0001d000-\U0001d37f\U0001d6c1-\U0001d7c3\U0001ec00-\U0001efff\U0001f000-\U0001fbff"
)
_ODD = re.compile(
    f"[{_SYMBOLS}\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0600-\u061c\u0640\u064b-\u065f\u0670\u06d6-\u06ed\u0711"
    "\u0730-\u074a\u07a6-\u07b0\u07eb-\u07fd\u0816-\u082d\u0859-\u085b\u0890-\u089f\u08c9-\u109f\u135d-\u135f"
    "\u1712-\u1715\u1732-\u1734\u1752\u1753\u1772\u1773\u1780-\u17ff\u180b-\u180f\u1885\u1886\u18a9\u1920-\u193b"
    "\u19b0-\u19c9\u1a17-\u1a1b\u1a55-\u1aff\u1b00-\u1bff\u1c24-\u1c37\u1cd0-\u1cff\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u20d0-\u20f0\u2cef-\u2cf1\u2d7f\u2de0-\u2dff\u302a-\u302f\u3099\u309a\ua66f-\ua67d\ua69e\ua69f"
    "\ua6f0\ua6f1\ua802-\ua82c\ua880-\uaaff\uabe3-\uabed\ud800-\udfff\ufb1e\ufe00-\ufe0f\ufe20-\ufe2f\ufeff"
    "\ufff9-\ufffb\U000101fd\U000102e0\U00010376-\U0001037a\U00010a01-\U00010a3f\U00010ae5\U00010ae6"
    "\U00010d24-\U00010d27\U00010eab\U00010eac\U00010efd-\U00010eff\U00010f46-\U00010f50\U00010f82-\U00010f85"
    "\U00011000-\U00011fff\U00013430-\U00013455\U00016af0-\U00016af4\U00016b30-\U00016b36\U00016f4f-\U00016f92"
    "\U00016fe4-\U00016ff1\U0001bc9d-\U0001bca3\U0001cf00-\U0001cf46\U0001da00-\U0001daaf\U0001e000-\U0001e02a"
    "\U0001e08f\U0001e130-\U0001e136\U0001e2ae-\U0001e2ef\U0001e4ec-\U0001e4ef\U0001e8d0-\U0001e8d6"
    "\U0001e944-\U0001e94a\U000e0000-\U000e0fff]+"
)
_FLAG_OR_REPEAT = re.compile(f"([\U0001f1e6-\U0001f1ff])([\U0001f1e6-\U0001f1ff])|([{_SYMBOLS}])\\3+")
# Marks that readers add or leave out freely: accents, Hebrew points, Arabic vowels. The rest spell the word.
_OPTIONAL_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed\u0730-\u074a"
    "\u0890-\u08ff\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\u2de0-\u2dff\ua66f-\ua67d\ua69e\ua69f\ufb1e\ufe00-\ufe2f"
    "\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]"
)

# `C++`, `F#`, `.NET`: the sign tells as much as the letters, and unicode61 drops it. Each pattern opens with its sign,
# which the regex engine finds fast.
_SIGNED = re.compile(r"(?:\+\+(?<=[A-Za-z]\+\+)|#(?<=[A-Za-z]#))(?![A-Za-z_+#])")
_DOTTED = re.compile(r"\.(?<![\w.]\.)[A-Za-z]\w{1,30}")
_NAME_BEFORE = re.compile(r"[A-Za-z0-9]{1,30}\Z")
_HUMP = re.compile(r"[a-z][A-Z]")
_CAMEL = re.compile(r"\b[A-Za-z][a-z0-9_]{0,60}+[A-Z]\w{1,60}")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

_COMMON = (
    "a an and are as at be but by can do does for from had has have how i if in into is it its me my no not of on or "
    "our so that the their them then there these they this to was we were what when where which who why will with "
    "would you your "
    "的 了 是 在 和 与 或 及 也 就 都 而 着 过 把 被 对 从 到 为 以 于 之 其 这 那 有 个 我 你 他 她 它 们 吗 呢 吧 啊 "
    "我们 你们 他们 这个 那个 一个 什么 怎么 如何 为什么 哪些 哪个 是否 可以 以及"
)
_STOP_WORDS = frozenset(_COMMON.split())


class _Spelling(dict[str, str]):
    """How one odd character is spelled, worked out once a character."""

    def __missing__(self, character: str) -> str:
        code, category = ord(character), unicodedata.category(character)
        if _OPTIONAL_MARKS.match(character):
            spelled = ""
        elif category[0] == "M":
            # Planes 15 and 16 are private use, which unicode61 takes for letters.
            spelled = chr((0xF0000 if code <= 0xFFFF else 0x100000) + (code & 0xFFFF))
        elif category[0] in "LN" or category == "Cn":
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


def _respelled(match: re.Match[str]) -> str:
    run = match[0]
    if len(run) > 1:
        run = _FLAG_OR_REPEAT.sub(_flag_or_once, run)
    return "".join(map(_SPELLING.__getitem__, run))


def _flag_or_once(match: re.Match[str]) -> str:
    if match[3]:
        return match[3]
    return f" u{ord(match[1]):x}u{ord(match[2]):x} "


@cache
def _segmenter() -> Callable[[str], list[str]]:
    # Loading the dictionary takes a tenth of a second: only those who write Han pay for it.
    import rjieba  # noqa: PLC0415

    rjieba.cut_for_search("")
    return rjieba.cut_for_search


def _segmented(runs: list[str]) -> list[str]:
    """Each run with spaces between its words. One call of the segmenter serves all: it never joins lines."""
    lines = "\n".join(runs)
    if not _NOT_HAN.search(lines):
        return f" {' '.join(_segmenter()(lines))} ".split("\n")
    parts = _HAN_RUN.split(lines)
    if len(parts) > 1:
        parts[1::2] = " ".join(_segmenter()("\n".join(parts[1::2]))).split("\n")
    return f" {' '.join(parts)} ".split("\n")


def _with_extra(text: str) -> str:
    extra = _extra(text)
    return f"{text} {' '.join(extra)}" if extra else text


def _extra(text: str) -> list[str]:
    """Tokens added beside the text, each once."""
    found: dict[str, None] = {}
    for match in _SIGNED.finditer(text):
        name = _NAME_BEFORE.search(text, max(0, match.start() - 30), match.start())
        if name:
            found[name[0] + ("plusplus" if match[0] == "++" else "sharp")] = None
    for dotted in _DOTTED.findall(text):
        found["dot" + dotted[1:]] = None
    if _HUMP.search(text):
        for name_ in dict.fromkeys(_CAMEL.findall(text)):
            parts = _PART.findall(name_)
            if len(parts) > 1:
                found.update(dict.fromkeys(parts))
    return list(found)


def _run_unit(run: str) -> Unit:
    words = tuple(dict.fromkeys(_segmented([run])[0].split()))
    return Unit(run, words, tuple(map(add, run, run[1:])), weak=all(map(is_stop_word, words)))


def _word_unit(piece: str) -> Unit | None:
    words = tuple(_WORD.findall(piece.lower()))
    if not words:
        return None
    extra = tuple(dict.fromkeys(token.lower() for token in _extra(piece)))
    return Unit(
        piece, words, extra=extra, near=len(words) > 1, weak=len(words) == 1 and not extra and is_stop_word(words[0])
    )


def _strong(units: Iterable[Unit]) -> tuple[Unit, ...]:
    units = tuple(units)
    return tuple(unit for unit in units if not unit.weak) or units


def _alternatives(unit: Unit) -> Iterable[str]:
    """Expressions any of which makes the unit count."""
    if unit.bigrams:
        strong = [word for word in unit.words if not is_stop_word(word)] or list(unit.words)
        yield from map(_quoted, strong)
        yield from (_quoted(bigram) for bigram in unit.bigrams if not is_stop_word(bigram) or unit.weak)
        if len(unit.bigrams) > 1:
            yield _quoted(" ".join(unit.bigrams))
    elif unit.near:
        yield _quoted(" ".join(unit.words))
        if "'" not in unit.text and "\u2019" not in unit.text:
            yield from (
                _quoted(word) for word in unit.words if word.isalpha() and len(word) > 1 and not is_stop_word(word)
            )
    else:
        yield _required(unit)
    yield from map(_quoted, unit.extra)


def _required(unit: Unit) -> str:
    if unit.bigrams:
        return _quoted(" ".join(unit.bigrams))
    single_character = len(unit.text) == 1 and _RUN.match(unit.text)
    return _quoted(" ".join(unit.words)) + ("*" if single_character else "")


def _phrase(units: tuple[Unit, ...]) -> str:
    """Neighbouring word units become one phrase; a run is a phrase of its own, since it lies in other columns."""
    parts: list[str] = []
    words: list[str] = []
    for unit in units:
        if unit.bigrams or (len(unit.text) == 1 and _RUN.match(unit.text)):
            if words:
                parts.append(_quoted(" ".join(words)))
                words = []
            parts.append(_required(unit))
        else:
            words += unit.words
    if words:
        parts.append(_quoted(" ".join(words)))
    return " AND ".join(parts)


def _quoted(token: str) -> str:
    # No token can hold a quotation mark; doubling it all the same keeps the promise locally.
    return '"' + token.replace('"', '""') + '"'
