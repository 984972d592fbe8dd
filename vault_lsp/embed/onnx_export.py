"""Writes the bundled weights as an ordinary ONNX model: matrices in 8 bits, the table of words in 4.

The operators are those that onnxruntime's optimiser would make of the textbook's graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from vault_lsp.embed.weights import BLOCK, Weights

#: The domain of onnxruntime's own operators.
_FUSED = "com.microsoft"


def write_model(weights: Weights, file: Path) -> None:
    """Write the model: `input_ids` and `attention_mask` in, `last_hidden_state` out."""
    graph = _Graph(weights)
    states = graph.words()
    for layer in range(weights.shape.layers):
        states = graph.layer(f"l{layer}.", states)
    onnx.save(graph.model(states), str(file))


class _Graph:
    """A graph as it grows; the methods return the name of what they add."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._shape = weights.shape
        self._nodes: list[onnx.NodeProto] = []
        self._tensors: list[onnx.TensorProto] = []
        self._mask = self._node("Cast", ["attention_mask"], to=TensorProto.INT32)

    def words(self) -> str:
        """Vectors of words and of their places."""
        scales, values = self._weights.packed("emb.word", self._shape.hidden)
        table = self._nibbles("emb.word", values)
        middle = self._nibbles("emb.word.middle", np.full_like(scales, 8, np.uint8))
        rows = self._node(
            "GatherBlockQuantized",
            [table, "input_ids", self._tensor("emb.word.scales", scales), middle],
            domain=_FUSED,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )
        hidden = self._shape.hidden
        # All tokens are of the first type.
        places = self._weights.plain("emb.pos").reshape(-1, hidden) + self._weights.plain("emb.type")[:hidden]
        length = self._node("Shape", ["input_ids"], start=1, end=2)
        zero = self._tensor("zero", np.zeros(1, np.int64))
        used = self._node("Slice", [self._tensor("emb.pos", places), zero, length, zero])
        return self._normalised_sum("emb.ln", rows, used)

    def layer(self, name: str, states: str) -> str:
        """One layer of the transformer: attention, then the two wide matrices."""
        hidden, inner = self._shape.hidden, self._shape.inner
        # Queries, keys and values are of the same states, which are brought to 8 bits once.
        narrow = self._narrow(states)
        query, key, value = (self._linear(f"{name}{each}", narrow, hidden) for each in "qkv")
        mixed = self._node(
            "MultiHeadAttention",
            [query, key, value, "", self._mask],
            domain=_FUSED,
            num_heads=self._shape.heads,
        )
        told = self._linear(f"{name}ao", self._narrow(mixed), hidden)
        states = self._normalised_sum(f"{name}aln", told, states)
        wide = self._node("Gelu", [self._linear(f"{name}fi", self._narrow(states), hidden)], domain=_FUSED)
        return self._normalised_sum(f"{name}oln", self._linear(f"{name}fo", self._narrow(wide), inner), states)

    def model(self, result: str) -> onnx.ModelProto:
        """The whole model; `result` is what it gives."""
        self._nodes.append(helper.make_node("Identity", [result], ["last_hidden_state"]))
        shape: Sequence[str | int] = ["batch", "sequence"]
        graph = helper.make_graph(
            self._nodes,
            "encoder",
            [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("input_ids", "attention_mask")],
            [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*shape, self._shape.hidden])],
            self._tensors,
        )
        domains = [helper.make_opsetid("", 21), helper.make_opsetid(_FUSED, 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=10)

    def _narrow(self, states: str) -> tuple[str, str, str]:
        """States in 8 bits, with their scale and the number that stands for zero."""
        name = f"narrow{len(self._nodes)}"
        outputs = (name, f"{name}.scale", f"{name}.zero")
        self._nodes.append(helper.make_node("DynamicQuantizeLinear", [states], outputs))
        return outputs

    def _linear(self, name: str, narrow: tuple[str, str, str], width: int) -> str:
        """A matrix, `width` values in, and its bias. Each column of it has a scale."""
        matrix = self._weights.unpacked(f"{name}.w", width).T
        scales = np.abs(matrix).max(axis=0) / np.float32(127)
        scales[scales == 0] = 1
        rounded = np.rint(matrix / scales).astype(np.int8)
        states, scale, zero = narrow
        columns = self._tensor(f"{name}.scales", scales)
        return self._node(
            "MatMulIntegerToFloat",
            [states, self._tensor(f"{name}.w", rounded), scale, columns, zero, "", self._plain(f"{name}.b")],
            domain=_FUSED,
        )

    def _normalised_sum(self, name: str, first: str, second: str) -> str:
        # onnxruntime's operator for both at once takes seven times as long as the two.
        both = self._node("Add", [first, second])
        scale, shift = self._plain(f"{name}.w"), self._plain(f"{name}.b")
        return self._node("LayerNormalization", [both, scale, shift], axis=-1, epsilon=self._shape.epsilon)

    def _node(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"{kind}{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _plain(self, name: str) -> str:
        return self._tensor(name, self._weights.plain(name))

    def _tensor(self, name: str, values: NDArray[Any]) -> str:
        self._tensors.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _nibbles(self, name: str, values: NDArray[np.uint8]) -> str:
        """A tensor of 4-bit values, two to a byte, the first of them in the low half."""
        pairs = values.reshape(-1, 2)
        packed = pairs[:, 0] | (pairs[:, 1] << 4)
        tensor = TensorProto(name=name, data_type=TensorProto.UINT4, dims=values.shape, raw_data=packed.tobytes())
        self._tensors.append(tensor)
        return name
