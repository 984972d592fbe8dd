"""Tiny models with random weights, as folders that the real libraries load: a text embedder and a cross-encoder.

Both are one-layer transformers over characters: a few hundred kilobytes, made in a moment, deterministic by seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
LETTERS = (
    *(chr(code) for code in range(0x21, 0x7F)),
    *(chr(code) for code in range(0x4E00, 0xA000)),
)
VOCABULARY = {token: number for number, token in enumerate((*SPECIAL, *LETTERS))}


def tiny_embedder(
    folder: Path,
    *,
    dimensions: int = 8,
    seed: int = 0,
    max_tokens: int = 64,
    file: str = "model.onnx",
    pooled: bool = False,
) -> Path:
    """Write a text embedder: token vectors of `dimensions`, or with `pooled` one vector a text. Returns the folder."""
    graph = _Graph(seed)
    states = graph.encoder(dimensions, max_tokens)
    if pooled:
        states = graph.node("ReduceMean", [states, graph.constant(np.array([1], np.int64))], keepdims=0)
    shape: list[str | int] = ["batch", dimensions] if pooled else ["batch", "sequence", dimensions]
    graph.write(folder / file, states, "sentence_embedding" if pooled else "last_hidden_state", shape)
    _write_tokenizer(folder, max_tokens)
    return folder


def tiny_cross_encoder(folder: Path, seed: int = 0, *, max_tokens: int = 128, file: str = "model.onnx") -> Path:
    """Write a cross-encoder: one number for each pair of texts. Returns the folder."""
    graph = _Graph(seed)
    states = graph.encoder(16, max_tokens)
    first = graph.node("Gather", [states, graph.constant(np.array(0, np.int64))], axis=1)
    logits = graph.node("MatMul", [first, graph.random(16, 1)])
    graph.write(folder / file, logits, "logits", ["batch", 1])
    _write_tokenizer(folder, max_tokens)
    return folder


class _Graph:
    """An ONNX graph as it grows; every method returns the name of what it adds."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._tensors: list[onnx.TensorProto] = []

    def node(self, kind: str, inputs: Iterable[str], **attributes: Any) -> str:
        name = f"{kind}{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, values: NDArray[Any]) -> str:
        name = f"tensor{len(self._tensors)}"
        self._tensors.append(numpy_helper.from_array(values, name))
        return name

    def random(self, *shape: int) -> str:
        return self.constant(self._random.normal(size=shape).astype(np.float32))

    def encoder(self, width: int, positions: int) -> str:
        """Token and position vectors, and one layer of attention that leaves the padding out."""
        narrow = self.node("Gather", [self.random(len(VOCABULARY), 8), "input_ids"])  # wide, it would be a large file
        words = self.node("MatMul", [narrow, self.random(8, width)])
        length = self.node("Shape", ["input_ids"], start=1, end=2)
        zero = self.constant(np.array([0], np.int64))
        places = self.node("Slice", [self.random(positions, width), zero, length, zero])
        states = self.node("Add", [words, places])
        query, key, value = (self.node("MatMul", [states, self.random(width, width)]) for _ in range(3))
        affinity = self.node("MatMul", [query, self.node("Transpose", [key], perm=[0, 2, 1])])
        scaled = self.node("Mul", [affinity, self.constant(np.array(1 / width, np.float32))])
        mask = self.node("Cast", ["attention_mask"], to=TensorProto.FLOAT)
        absent = self.node("Sub", [mask, self.constant(np.array(1, np.float32))])
        penalty = self.node("Mul", [absent, self.constant(np.array(1e9, np.float32))])
        row = self.node("Unsqueeze", [penalty, self.constant(np.array([1], np.int64))])
        weights = self.node("Softmax", [self.node("Add", [scaled, row])], axis=-1)
        mixed = self.node("Add", [states, self.node("MatMul", [weights, value])])
        one, none = np.ones(width, np.float32), np.zeros(width, np.float32)
        return self.node("LayerNormalization", [mixed, self.constant(one), self.constant(none)], axis=-1)

    def write(self, file: Path, result: str, name: str, shape: list[str | int]) -> None:
        self._nodes.append(helper.make_node("Identity", [result], [name]))
        tokens = ("input_ids", "attention_mask")
        graph = helper.make_graph(
            self._nodes,
            "tiny",
            [helper.make_tensor_value_info(each, TensorProto.INT64, ["batch", "sequence"]) for each in tokens],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
            self._tensors,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.checker.check_model(model)
        file.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(model, str(file))


def _write_tokenizer(folder: Path, max_tokens: int) -> None:
    """One token a character; letters are folded to lower case."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, VOCABULARY[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.enable_padding(pad_id=VOCABULARY["[PAD]"], pad_token="[PAD]")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    files = {
        "tokenizer_config.json": {"model_max_length": max_tokens, **named},
        "special_tokens_map.json": named,
        "config.json": {"model_type": "bert", "pad_token_id": VOCABULARY["[PAD]"]},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
