"""Match names as people type them into a quick-open box: parts and initials in order, words in any order."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import NamedTuple


class Match(NamedTuple):
    """A name that matches, by its position in `Folded.names`; 1.0 is an exact match."""

    position: int
    score: float


class Folded:
    """Names made ready for many queries. Build it once and keep it as long as the names stay the same."""

    __slots__ = ("keys", "names")

    def __init__(self, names: Iterable[str]) -> None:
        self.names: Sequence[str] = tuple(names)
        self.keys: Sequence[str] = tuple(map(_key, self.names))

    def __len__(self) -> int:
        return len(self.names)


def score(query: str, name: str) -> float | None:
    """Rate a name from above 0 to 1, None where it doesn't match.

    Every word of the query must be found in the name: as a substring, or letter by letter in order, at least half of
    the letters opening a word or following the one before. Case, accents and width don't matter.
    """
    words = _key(query).split()
    return _score(words, _key(name), name) if words else None


def best(query: str, names: Folded, limit: int) -> list[Match]:
    """Give the names that match best; ties go to the shorter name, then to the earlier one."""
    words = _key(query).split()
    if not words or limit <= 0:
        return []
    keys = names.keys
    found = [index for index, key in enumerate(keys) if words[0] in key]
    for word in words[1:]:
        found = [index for index in found if word in keys[index]]
    if len(found) > _RATED:
        # Far more than anyone looks at: rate those that a prefix or a short name recommends.
        first, inner = words[0], f" {words[0]}"
        found = nsmallest(
            max(_RATED, limit),
            found,
            key=lambda i: (not keys[i].startswith(first), inner not in keys[i], len(keys[i])),
        )
    elif len(found) < limit:
        known = set(found)
        found += [index for index in _subsequences(words, keys, max(_RATED, limit)) if index not in known]
    rated = (Match(index, rating) for index in found if (rating := _score(words, keys[index], names.names[index])))
    return nsmallest(limit, rated, key=lambda match: (-match.score, len(keys[match.position]), match.position))


#: Names rated one by one at most, per query.
_RATED = 2000

_WORD_START = re.compile(r"(?<![^\W_])[^\W_]|[\u2e80-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff]")
_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]|(?<=[A-Z])[A-Z](?=[a-z])|(?<=[A-Za-z])[0-9]")
_MARKS = re.compile("[\u0300-\u036f]")


def _key(text: str) -> str:
    return _plain(text).lower()


def _plain(text: str) -> str:
    """Unify width and compatibility forms and drop accents, keeping case."""
    if text.isascii():
        return text
    # Composed again, since Hangul and voiced kana come apart as well.
    plain = unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFKD", text)))
    return plain if plain.strip() else text


def _subsequences(words: Sequence[str], keys: Sequence[str], limit: int) -> list[int]:
    """Names that hold the letters of every word in order, the shortest first."""
    found: Iterable[int] = range(len(keys))
    for letter in dict.fromkeys("".join(words)):
        found = [index for index in found if letter in keys[index]]
    for word in words:
        # Each letter's first occurrence after the one before: no step is ever taken back.
        matches = re.compile(
            "".join(f"[^{re.escape(letter)}]*+{re.escape(letter)}" for letter in word), re.DOTALL
        ).match
        found = [index for index in found if matches(keys[index])]
    return nsmallest(limit, found, key=lambda index: len(keys[index]))


def _score(words: Sequence[str], key: str, name: str) -> float | None:
    whole = " ".join(words)
    if key == whole:
        return 1.0
    # Between two names that match alike the shorter is the closer one.
    length = 0.05 * min(1.0, len(whole) / (len(key) or 1))
    if key.startswith(whole):
        return 0.9 + length
    starts: set[int] = set()
    total = 0.0
    for word in words:
        rating = _rate_substring(word, key)
        if rating is None:
            starts = starts or _word_starts(key, name)
            rating = _rate_letters(word, key, starts)
            if rating is None:
                return None
        total += rating
    in_order = 0.05 if len(words) > 1 and whole in key else 0.0
    return total / len(words) + in_order + length


def _rate_substring(word: str, key: str) -> float | None:
    at = key.find(word)
    if at < 0:
        return None
    while at >= 0:
        if at == 0 or not key[at - 1].isalnum():
            end = at + len(word)
            return 0.8 if end == len(key) or not key[end].isalnum() else 0.75
        at = key.find(word, at + 1)
    return 0.6


def _rate_letters(word: str, key: str, starts: set[int]) -> float | None:
    """Lay the letters out over the name in the best way: the more of them open a word or adjoin, the better."""
    reached: dict[int, int] = {-2: 0}  # position of the last letter -> letters well placed so far
    for letter in word:
        following: dict[int, int] = {}
        positions = iter(sorted(reached))
        upcoming = next(positions, None)
        most = -1
        at = key.find(letter)
        while at >= 0:
            while upcoming is not None and upcoming < at:
                most = max(most, reached[upcoming])
                upcoming = next(positions, None)
            if most >= 0:
                placed = most + (at in starts)
                if at - 1 in reached:
                    placed = max(placed, reached[at - 1] + 1)
                following[at] = placed
            at = key.find(letter, at + 1)
        if not following:
            return None
        reached = following
    share = max(reached.values()) / len(word)
    return 0.1 + 0.4 * share if share >= 0.5 else None


def _word_starts(key: str, name: str) -> set[int]:
    starts = {match.start() for match in _WORD_START.finditer(key)}
    plain = _plain(name)
    if len(plain) == len(key):
        starts.update(match.start() for match in _HUMP.finditer(plain))
    return starts
