"""Show the part of a text that a query is about."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from vault_lsp.core.fold import bare
from vault_lsp.core.tokens import QueryTerms, is_stop_word


class _Hit(NamedTuple):
    start: int
    end: int
    token: str


def snippet(text: str, terms: QueryTerms, width: int = 120) -> str:
    """Cut the window with the most of the query out of a text, as one line of at most `width` characters.

    White space and control characters become single spaces, an ellipsis stands where text was left out, and no
    character is torn from its marks. Without a match it is the text's beginning.
    """
    line = " ".join(_CONTROL.sub(" ", text[:_LONGEST]).split())
    if len(line) <= width:
        return line
    start, end = _window(line, list(_hits(line, terms)), width - 2)
    start, end = _word_start(line, start, end), _whole(line, end, start)
    return ("…" if start else "") + line[start:end].strip() + ("…" if end < len(line) else "")


# A chunk is far shorter; what a caller passes instead is looked at so far.
_LONGEST = 200_000
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")
_CLUSTER = re.compile("[^\u0300-\u036f\u3099\u309a\uff9e\uff9f][\u0300-\u036f\u3099\u309a\uff9e\uff9f]*|.", re.DOTALL)


def _hits(line: str, terms: QueryTerms) -> Iterator[_Hit]:
    """Every place where a token of the query stands, in order."""
    tokens = _tokens(terms)
    if not tokens:
        return
    folded, offsets = _folded(line)
    # The engine looks for the first letters of all tokens at once, as long as the pattern begins with them.
    pattern = re.compile("|".join(map(re.escape, tokens)))
    place = 0
    while match := pattern.search(folded, place):
        start, end = match.span()
        if match[0].isascii() and start and (folded[start - 1].isalnum()):
            place = start + 1  # inside another word
            continue
        yield _Hit(offsets[start], offsets[end], match[0])
        place = end


def _tokens(terms: QueryTerms) -> list[str]:
    """Tokens worth showing, the longest first, so that a whole run goes before its words."""
    tokens: dict[str, None] = {}
    for unit in terms.units:
        if unit.bigrams:
            tokens[bare(unit.text)] = None
        for word in unit.words:
            if not is_stop_word(word) or unit.weak:
                tokens[bare(word)] = None
    strong = [token for token in tokens if not is_stop_word(token)] or list(tokens)
    return sorted(filter(None, strong), key=len, reverse=True)


def _folded(line: str) -> tuple[str, list[int] | range]:
    """Give the text as it is compared, and for each of its offsets the offset in the original."""
    if line.isascii():
        return line.lower(), range(len(line) + 1)
    parts: list[str] = []
    offsets: list[int] = []
    for cluster in _CLUSTER.finditer(line):
        part = bare(cluster[0]).strip() or " "
        parts.append(part)
        offsets += [cluster.start()] * len(part)
    offsets.append(len(line))
    return "".join(parts), offsets


def _window(line: str, hits: list[_Hit], width: int) -> tuple[int, int]:
    """Find the stretch of `width` characters that shows most tokens; different ones count most, then longer ones."""
    if not hits:
        return 0, width
    best, best_value = (hits[0].start, hits[0].end), -1.0
    last = 0
    for first, hit in enumerate(hits):
        last = max(last, first)
        while last + 1 < len(hits) and hits[last + 1].end <= hit.start + width:
            last += 1
        shown = hits[first : last + 1]
        value = sum(1 + len(token) for token in {hit.token for hit in shown}) + 0.1 * len(shown)
        if value > best_value:
            best, best_value = (hit.start, shown[-1].end), value
    spare = max(0, width - (best[1] - best[0]))
    start = max(0, min(best[0] - min(spare // 2, width // 3), len(line) - width))
    return start, min(len(line), start + width)


def _word_start(line: str, start: int, end: int) -> int:
    """Move a start that lies inside a word to the next word, unless that is far away."""
    if start == 0:
        return 0
    space = line.find(" ", start - 1, min(start + 15, end))
    if space >= 0:
        return space + 1
    return _whole(line, start, end)


def _whole(line: str, cut: int, other: int) -> int:
    """Move a cut out of the middle of a character, towards the window's inside."""
    step = 1 if other > cut else -1
    for _ in range(32):
        if cut <= 0 or cut >= len(line) or cut == other or not _joined(line, cut):
            break
        cut += step
    return cut


def _joined(line: str, cut: int) -> bool:
    after = line[cut]
    return (
        unicodedata.category(after) in ("Mn", "Mc", "Me")
        or after in "\u200d\uff9e\uff9f"
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or line[cut - 1] == "\u200d"
        or ("\U0001f1e6" <= after <= "\U0001f1ff" and _flag_half(line, cut))
    )


def _flag_half(line: str, cut: int) -> bool:
    start = cut
    while start > 0 and "\U0001f1e6" <= line[start - 1] <= "\U0001f1ff":
        start -= 1
    return (cut - start) % 2 == 1
