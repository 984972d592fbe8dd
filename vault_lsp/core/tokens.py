"""Search terms of a text and of a query, the same for both.

The index holds two kinds of terms. *Words*: everything the FTS5 tokenizer `unicode61` makes of the text itself, Han
runs cut by a dictionary. *Bigrams*: every pair of neighbouring characters of a script that puts no spaces between
words, so that any substring of two or more characters is found as a phrase, and the last character of every run, so
that a single character is found as a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import islice
from operator import add
from typing import TYPE_CHECKING, Literal, NamedTuple

from vault_lsp.core.fold import fold, is_term_character

if TYPE_CHECKING:
    from collections.abc import Callable

#: Changes whenever the terms of some text change: the index is then rebuilt.
SEGMENTER_VERSION = 1

Mode = Literal["any", "all", "phrase", "prefix"]


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
    units: list[Unit] = []
    for match in _PIECE.finditer(fold(text[:_LONGEST_QUERY])):
        piece = match[0]
        unit = _run_unit(piece) if match.lastgroup == "run" else _word_unit(piece)
        if unit is not None:
            units.append(unit)
    return QueryTerms(text, tuple(units))


def match_expression(terms: QueryTerms, mode: Mode = "any") -> str | None:
    """Write an FTS5 expression, every token quoted; None where the query holds nothing that could match.

    `any`: one of the tokens is enough, stop words only where there is nothing else. `all`: every unit, in any order.
    `phrase`: the units side by side as typed, runs as exact substrings. `prefix`: as `any`, and words may go on.
    """
    if not terms.units:
        return None
    if mode == "all":
        return " AND ".join(dict.fromkeys(_required(unit) for unit in _strong(terms.units)[:_MOST_TOKENS]))
    if mode == "phrase":
        return _phrase(terms.units[:_MOST_TOKENS])
    tokens: dict[str, None] = {}
    for unit in _strong(terms.units):
        tokens.update(dict.fromkeys(_alternatives(unit)))
        if mode == "prefix":
            tokens.update(dict.fromkeys(f"{quoted(word)}*" for word in unit.words if len(word) >= _PREFIX_LENGTH))
    return " OR ".join(islice(tokens, _MOST_TOKENS))


def asked_for(terms: QueryTerms) -> list[str]:
    """Write one FTS5 expression for each thing that a query asks for: a chunk with all of them says all of it.

    Stop words count only where there is nothing else. A word of a run counts wherever its characters stand, and a run
    that no dictionary cuts counts by its pairs.
    """
    asked: dict[str, None] = {}
    for unit in _strong(terms.units):
        if unit.bigrams and unit.words == (unit.text,) and not _HAN_RUN.match(unit.text):
            asked.update(dict.fromkeys(map(quoted, unit.bigrams)))
            continue
        for word in unit.words:
            pairs = " ".join(map(add, word, word[1:])) if unit.bigrams else ""
            asked[f"{quoted(word)} OR {quoted(pairs)}" if pairs else quoted(word)] = None
    return list(islice(asked, _MOST_TOKENS))


def quoted(token: str) -> str:
    """Write a token, or several with spaces between them, as an FTS5 string.

    No token can hold a quotation mark; doubling it all the same keeps the promise locally.
    """
    return '"' + token.replace('"', '""') + '"'


def is_stop_word(word: str) -> bool:
    """Whether a folded word is too common in English or Chinese to choose notes by."""
    return word.lower() in _STOP_WORDS


#: Words shorter than this are not taken as the beginning of longer ones.
_PREFIX_LENGTH = 3
# A pasted page is a query too; its beginning tells enough.
_LONGEST_QUERY = 4096
_MOST_TOKENS = 256

# Scripts by blocks, after NFKC. The fewer ranges beyond the BMP, the faster.
_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_SPACELESS = (
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u312f\u31a0-\u31bf\u31f0-\u31ff"  # kana
    "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7fb"  # hangul
    "\u0e01-\u0e5b\u0e80-\u0edf"  # Thai, Lao
    "\u1000-\u1049\u1050-\u109f\u1780-\u17e9"  # Burmese, Khmer
    "\ua000-\ua48c\U00100000-\U0010ffff"  # Yi, and the marks of Thai to Khmer as `fold` spells them
)
_RUN = re.compile(f"([{_HAN}{_SPACELESS}]+)")
_HAN_RUN = re.compile(f"([{_HAN}]+)")
_NOT_HAN = re.compile(f"[{_SPACELESS}]")
_KATAKANA = re.compile("[\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff]{3,}")
_PIECE = re.compile(f"(?P<run>[{_HAN}{_SPACELESS}]+)|(?P<word>[^\\s{_HAN}{_SPACELESS}]+)")

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
    words = tuple("".join(c if is_term_character(c) else " " for c in piece).split())
    if not words:
        return None
    extra = tuple(_extra(piece))
    return Unit(
        piece, words, extra=extra, near=len(words) > 1, weak=len(words) == 1 and not extra and is_stop_word(words[0])
    )


def _strong(units: Iterable[Unit]) -> tuple[Unit, ...]:
    units = tuple(units)
    return tuple(unit for unit in units if not unit.weak) or units


def _alternatives(unit: Unit) -> Iterable[str]:
    """Expressions any of which makes the unit count."""
    if unit.bigrams:
        # A katakana word is spelled by ear and shares its pairs with many others: it counts as a whole only.
        katakana = _KATAKANA.findall(unit.text)
        within = {pair for word in katakana for pair in map(add, word, word[1:])}
        yield from (quoted(" ".join(map(add, word, word[1:]))) for word in katakana)
        yield from map(quoted, [word for word in unit.words if not is_stop_word(word)] or unit.words)
        yield from (
            quoted(pair) for pair in unit.bigrams if pair not in within and (unit.weak or not is_stop_word(pair))
        )
        if len(unit.bigrams) > 1:
            yield quoted(" ".join(unit.bigrams))
    elif unit.near:
        yield quoted(" ".join(unit.words))
        if "'" not in unit.text and "\u2019" not in unit.text:
            yield from (
                quoted(word) for word in unit.words if word.isalpha() and len(word) > 1 and not is_stop_word(word)
            )
        yield from map(quoted, unit.extra)
    elif unit.extra:
        yield from map(quoted, _signed(unit) or (*unit.words, *unit.extra))
    else:
        yield _required(unit)


def _required(unit: Unit) -> str:
    if unit.bigrams:
        return quoted(" ".join(unit.bigrams))
    if len(unit.text) == 1 and _RUN.match(unit.text):
        return quoted(unit.text) + "*"
    if not unit.near and (signed := _signed(unit)):
        return " AND ".join(map(quoted, (*unit.words, *signed)))
    return quoted(" ".join(unit.words))


def _signed(unit: Unit) -> list[str]:
    """Tokens that spell the name with its sign; parts of a name are shorter than the name."""
    return [token for token in unit.extra if len(token) > len(unit.words[0])]


def _phrase(units: tuple[Unit, ...]) -> str:
    """Neighbouring word units become one phrase; a run is a phrase of its own, since it lies in other columns."""
    parts: list[str] = []
    words: list[str] = []
    for unit in units:
        if unit.bigrams or (len(unit.text) == 1 and _RUN.match(unit.text)):
            if words:
                parts.append(quoted(" ".join(words)))
                words = []
            parts.append(_required(unit))
        else:
            words += unit.words
    if words:
        parts.append(quoted(" ".join(words)))
    return " AND ".join(parts)
