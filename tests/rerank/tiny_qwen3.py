"""A tiny Qwen3 model as a folder that mlx-lm loads: tokens are bytes, weights are random or made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "vocab_size": 288,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "rope_theta": 1_000_000.0,
}


def write_tokenizer(folder: Path, merges: tuple[tuple[str, str], ...] = (("y", "e"), ("ye", "s"), ("n", "o"))) -> Path:
    """Write a tokenizer with a token for every byte, one for each merge, and Qwen's marks. Returns the folder."""
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in ("<think>", "</think>")])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Qwen2Tokenizer"}), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return folder


def write_model(folder: Path, seed: int = 0, *, praised: str | None = None, tied: bool = True, bits: int = 0) -> Path:
    """Write a whole model. With `praised`, a character of one byte, it says yes to what holds much of it."""
    import mlx.core as mx
    from mlx import nn
    from mlx.utils import tree_flatten
    from mlx_lm.models import qwen3

    write_tokenizer(folder)
    config = {**CONFIG, "tie_word_embeddings": tied}
    mx.random.seed(seed)
    model = qwen3.Model(qwen3.ModelArgs.from_dict(config))
    if praised is not None:
        _praise(model, Tokenizer.from_file(str(folder / "tokenizer.json")), praised)
    if bits:
        nn.quantize(model, group_size=32, bits=bits)
        config["quantization"] = {"group_size": 32, "bits": bits}
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def _praise(model: Any, tokenizer: Tokenizer, praised: str) -> None:
    """Make the answer the mean of what is seen: the praised token speaks for yes, every other says nothing."""
    import mlx.core as mx

    for layer in model.model.layers:
        for part in (layer.self_attn.q_proj, layer.self_attn.o_proj, layer.mlp.down_proj):
            part.weight = mx.zeros_like(part.weight)
    # Without queries all tokens are seen alike. The first feature marks the praised token; its mean becomes the second.
    attention = model.model.layers[0].self_attn
    value, output = mx.zeros_like(attention.v_proj.weight), mx.zeros_like(attention.o_proj.weight)
    value[0, 0] = 1.0
    output[1, 0] = 1.0
    attention.v_proj.weight, attention.o_proj.weight = value, output
    words = 0.1 * mx.random.normal(model.model.embed_tokens.weight.shape)
    words[:, 0:2] = 0.0
    words[tokenizer.token_to_id(praised), 0] = 1.0
    for answer in ("yes", "no"):
        words[tokenizer.token_to_id(answer)] = 0.0
    words[tokenizer.token_to_id("yes"), 1] = 1.0
    words[tokenizer.token_to_id("no"), 1] = -1.0
    model.model.embed_tokens.weight = words
