"""Writes the bundled vocabulary as a tokenizer in the form that fastembed loads, and as a table for single queries."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from vault_lsp.embed.weights import Vocabulary

#: Stands for a character that the general folding would change and this vocabulary keeps. No text has it.
_KEPT = "\ue000"


def write_tokenizer(vocabulary: Vocabulary, folder: Path, max_tokens: int) -> None:
    """Write `tokenizer.json` and the three small files beside it."""
    names = [piece for piece, _ in vocabulary.pieces]
    begin, end, pad, unknown = (
        names[number] for number in (vocabulary.begin, vocabulary.end, vocabulary.pad, vocabulary.unknown)
    )
    tokenizer = Tokenizer(models.Unigram(list(vocabulary.pieces), vocabulary.unknown, byte_fallback=False))
    tokenizer.normalizer = _folding()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} {end} $B {end}",
        special_tokens=[(begin, vocabulary.begin), (end, vocabulary.end)],
    )
    special = (begin, pad, end, unknown)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.enable_padding(pad_id=vocabulary.pad, pad_token=pad)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    roles = {"bos_token": begin, "eos_token": end, "pad_token": pad, "unk_token": unknown}
    _write_json(folder / "tokenizer_config.json", {"model_max_length": max_tokens, **roles})
    _write_json(folder / "special_tokens_map.json", {**roles, "cls_token": begin, "sep_token": end})
    _write_json(folder / "config.json", {"model_type": "bert", "pad_token_id": vocabulary.pad})


def _folding() -> normalizers.Normalizer:
    """The folding that the vocabulary was made with: compatible forms united, controls out, white space a blank."""
    return normalizers.Sequence(
        [
            normalizers.Replace(Regex(r"[\u0000-\u0008\u000b\u000e-\u001f\u007f\u008f\u009f]"), ""),
            normalizers.Replace(Regex(r"[\u200b-\u200f\u2581\ufeff\ufffd]"), " "),
            # The full-width tilde is a letter of its own in this vocabulary.
            normalizers.Replace("～", _KEPT),
            normalizers.NFKC(),
            normalizers.Replace(_KEPT, "～"),
            normalizers.Replace(Regex(r"\s+"), " "),
        ]
    )


def _write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
