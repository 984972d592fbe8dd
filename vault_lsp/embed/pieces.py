"""Tokens of one short text, without the second that it takes to build a tokenizer of a large vocabulary.

How a unigram tokenizer cuts a text depends on the pieces that occur in the text and on the least likely piece of all.
So a table on disk keeps all pieces in order; the few that a text contains are looked up, and a tokenizer of only those
gives the same tokens.
"""

from __future__ import annotations

import json
import mmap
import re
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

_MAGIC = b"pieces 1"
_HEADER = struct.Struct("<8sQQQ")


def write_table(tokenizer_json: Path, table: Path) -> bool:
    """Make the table of a tokenizer; False where it is of another kind and a table would not do."""
    rules: dict[str, Any] = json.loads(tokenizer_json.read_bytes())
    model = rules["model"]
    if model.get("type") != "Unigram" or model.get("byte_fallback"):
        return False
    vocabulary: list[list[Any]] = model.pop("vocab")
    ranked = sorted((piece.encode(), number) for number, (piece, _) in enumerate(vocabulary))
    tokenizer = Tokenizer.from_file(str(tokenizer_json))
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    whole = tokenizer.encode("a").ids
    before = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
    rules |= {
        "truncation": None,
        "padding": None,
        "post_processor": None,
        "before": whole[:before],
        "after": whole[before + len(bare) :],
        "least": min(range(len(vocabulary)), key=lambda number: vocabulary[number][1]),
        "added_tokens": [token | {"id": tokenizer.token_to_id(token["content"])} for token in rules["added_tokens"]],
    }
    head = json.dumps(rules).encode()
    bounds = array("Q", [0])
    for piece, _ in ranked:
        bounds.append(bounds[-1] + len(piece))
    parts = [
        bounds.tobytes(),
        array("Q", [number for _, number in ranked]).tobytes(),
        array("d", [vocabulary[number][1] for _, number in ranked]).tobytes(),
        head,
        b"".join(piece for piece, _ in ranked),
    ]
    table.write_bytes(b"".join([_HEADER.pack(_MAGIC, len(ranked), len(head), bounds[-1]), *parts]))
    return True


class QueryTokenizer:
    """Cuts short texts as the tokenizer does that a table was made from. Time grows with the length of the text."""

    def __init__(self, table: Path) -> None:
        """Open a table; ValueError where the file is none."""
        with table.open("rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        magic, count, head, blob = _HEADER.unpack_from(view)
        if magic != _MAGIC or len(view) != _HEADER.size + 8 * (3 * count + 1) + head + blob:
            raise ValueError(f"{table} is damaged")
        ends = [_HEADER.size]
        for length in (8 * (count + 1), 8 * count, 8 * count, head, blob):
            ends.append(ends[-1] + length)
        self._bounds = view[ends[0] : ends[1]].cast("Q")
        self._numbers = view[ends[1] : ends[2]].cast("Q")
        self._scores = view[ends[2] : ends[3]].cast("d")
        self._rules: dict[str, Any] = json.loads(bytes(view[ends[3] : ends[4]]))
        self._text = view[ends[4] : ends[5]]
        self._before: list[int] = self._rules.pop("before")
        self._after: list[int] = self._rules.pop("after")
        self._always = self._named(self._rules.pop("least"), (t["content"] for t in self._rules["added_tokens"]))

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, place: int) -> bytes:
        """A piece by its place in the order."""
        return bytes(self._text[self._bounds[place] : self._bounds[place + 1]])

    def encode(self, text: str, max_tokens: int) -> list[int]:
        """Numbers of the tokens of a text with the special ones around it, `max_tokens` at most."""
        few = self._tokenizer(self._always)
        special = [re.escape(token["content"]) for token in self._rules["added_tokens"]]
        parts = re.split("|".join(special), text) if special else [text]
        found = dict(self._always)
        for word in {word for part in parts for word in _words(few, part)}:
            for start in range(len(word)):
                found.update(self._starting(word[start:]))
        numbers = list(found)
        inner = self._tokenizer(found).encode(text, add_special_tokens=False).ids
        room = max(0, max_tokens - len(self._before) - len(self._after))
        return [*self._before, *(numbers[token] for token in inner[:room]), *self._after]

    def _starting(self, text: str) -> Iterator[tuple[int, tuple[str, float]]]:
        """The pieces that a text begins with."""
        first, last = 0, len(self)
        for end in range(1, len(text) + 1):
            start = text[:end].encode()
            first = bisect_left(self, start, first, last)
            if first < last and self[first] == start:
                yield self._numbers[first], (text[:end], self._scores[first])
            # No byte of UTF-8 is 0xff: behind this lies nothing that begins so.
            last = bisect_left(self, start + b"\xff", first, last)
            if first == last:
                return

    def _named(self, least: int, special: Iterable[str]) -> dict[int, tuple[str, float]]:
        """The pieces that belong to every small vocabulary."""
        found: dict[int, tuple[str, float]] = {}
        wanted = {least, self._rules["model"]["unk_id"]} - {None}
        for place, number in enumerate(self._numbers):
            if number in wanted:
                found[number] = (self[place].decode(), self._scores[place])
        for name in special:
            found.update((n, piece) for n, piece in self._starting(name) if piece[0] == name)
        return found

    def _tokenizer(self, pieces: dict[int, tuple[str, float]]) -> Tokenizer:
        """The tokenizer with these pieces alone; it numbers them in their order."""
        places = {number: place for place, number in enumerate(pieces)}
        model = self._rules["model"]
        unknown = None if model["unk_id"] is None else places[model["unk_id"]]
        added = [token | {"id": places[token["id"]]} for token in self._rules["added_tokens"]]
        rules = self._rules | {
            "model": model | {"unk_id": unknown, "vocab": list(pieces.values())},
            "added_tokens": sorted(added, key=lambda token: token["id"]),
        }
        return Tokenizer.from_str(json.dumps(rules))


def _words(tokenizer: Tokenizer, text: str) -> list[str]:
    """What the model sees of a text: its folded words."""
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    if tokenizer.pre_tokenizer is None:
        return [text]
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
