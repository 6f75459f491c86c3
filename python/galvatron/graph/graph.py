# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model as a list of nn operations.

Shapes are those of one sample: the dimension of samples, which stands first in
every activation, is left out. A shape may be split further after a tensor was
made (`Graph.split`): a projection becomes [heads, head size] when it turns out
that attention takes it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

Shape = Tuple[int, ...]


class ShapeConflict(ValueError):
    """A tensor is wanted in a shape that it cannot have."""


@dataclasses.dataclass(frozen=True)
class Where:
    """The place of an operation in the program that it came from: the path of its
    module with the class of every module on the way, and the line."""

    modules: Tuple[Tuple[str, str], ...] = ()
    source: str = ""

    @property
    def path(self) -> str:
        """The path of the innermost module."""
        return self.modules[-1][0] if self.modules else ""


@dataclasses.dataclass(eq=False)
class Parameter:
    """A trainable tensor: its name and shape in checkpoints, how it starts."""

    name: str
    shape: Shape
    init: str = "normal"
    std: float = 0.02


@dataclasses.dataclass(eq=False)
class Datum:
    """What a sample has of one kind: `tokens`, `labels`, `classes`, `images`,
    `token_types`, `mask`. Files and messages call it by its name, the kind if there
    is none. Integers are below `below`."""

    kind: str
    shape: Shape
    below: int = 0
    given: str = ""

    @property
    def name(self) -> str:
        """What the data are called."""
        return self.given or self.kind


@dataclasses.dataclass(eq=False)
class Tensor:
    """An activation, a datum, statistics or the loss. `element` is `float`,
    `integer`, `statistics` or `loss`."""

    shape: Shape
    element: str = "float"
    producer: Optional["Op"] = None
    datum: Optional[Datum] = None


@dataclasses.dataclass(eq=False)
class Use:
    """A parameter as an operation sees it: as many elements, in this shape."""

    parameter: Parameter
    shape: Shape


Operand = Union[Tensor, Use]


@dataclasses.dataclass(eq=False)
class Op:
    """One operation. Attributes are integers, floats, True, or lists of floats."""

    name: str
    operands: List[Operand]
    results: List[Tensor]
    attributes: Dict[str, Any]
    where: Where

    @property
    def tensors(self) -> List[Tensor]:
        """The operands that are no parameters."""
        return [operand for operand in self.operands if isinstance(operand, Tensor)]

    @property
    def uses(self) -> List[Use]:
        """The operands that are."""
        return [operand for operand in self.operands if isinstance(operand, Use)]


# The attribute of `drop_path` that differs between layers with one body.
PATHS = "probability"

# Operations whose result has the shape of their first operand, which may be split.
_ELEMENT_WISE = ("nn.dropout", "nn.gelu", "nn.add", "nn.gated_silu", "nn.gated_gelu",
                 "nn.relu", "nn.scale", "nn.drop_path", "nn.soft_cap", "nn.clip")


class Graph:
    """Operations in the order in which they were added, data and the loss."""

    def __init__(self, name: str):
        self.name = name
        self.data: List[Tensor] = []
        self.ops: List[Op] = []
        self.loss: Optional[Tensor] = None
        self.where = Where()

    def datum(self, kind: str, shape: Sequence[int], below: int = 0,
              name: str = "") -> Tensor:
        """A kind of data that the model takes."""
        tensor = Tensor(tuple(shape), "float" if kind == "images" else "integer",
                        None, Datum(kind, tuple(shape), below, name))
        self.data.append(tensor)
        return tensor

    def _op(self, name: str, operands: Sequence[Operand], shape: Sequence[int],
            statistics: Optional[Sequence[int]] = None, element: str = "float",
            **attributes: Any) -> Tensor:
        results = [Tensor(tuple(shape), element)]
        if statistics is not None:
            results.append(Tensor(tuple(statistics), "statistics"))
        op = Op(name, list(operands), results,
                {key: value for key, value in attributes.items()
                 if value is not None and value is not False}, self.where)
        for result in results:
            result.producer = op
        self.ops.append(op)
        return results[0]

    def embedding(self, tokens: Tensor, table: Parameter,
                  padding: Optional[int] = None) -> Tensor:
        """Rows of a table; that of token `padding` gets no gradient."""
        return self._op("nn.embedding", [tokens, Use(table, table.shape)],
                        tokens.shape + table.shape[1:], padding=padding)

    def position_add(self, x: Tensor, table: Parameter) -> Tensor:
        """Adds row `t` to position `t`."""
        width = table.shape[-1]
        view = Use(table, (math.prod(table.shape) // width, width))
        return self._op("nn.position_add", [x, view], x.shape)

    def linear(self, x: Tensor, weight: Parameter, dims: Sequence[int],
               transpose: bool) -> Tensor:
        """A product; `transpose` says that the weight is [dims.., in]."""
        dims = tuple(dims)
        inner = (x.shape[-1],)
        shape = dims + inner if transpose else inner + dims
        return self._op("nn.linear", [x, Use(weight, shape)], x.shape[:-1] + dims,
                        transpose_weight=transpose)

    def bias_add(self, x: Tensor, bias: Parameter) -> Tensor:
        """Adds a vector to every row."""
        return self._op("nn.bias_add", [x, Use(bias, (math.prod(bias.shape),))],
                        x.shape)

    def layer_norm(self, x: Tensor, gamma: Parameter, beta: Optional[Parameter],
                   eps: float) -> Tensor:
        """Over the last dimension; without `beta` nothing is added."""
        uses = [Use(part, part.shape) for part in (gamma, beta) if part is not None]
        return self._op("nn.layer_norm", [x, *uses], x.shape, x.shape[:-1] + (2,), eps=eps)

    def standardize(self, x: Tensor, eps: float) -> Tensor:
        """A layer norm over the last dimension that scales and adds nothing."""
        return self._op("nn.standardize", [x], x.shape, x.shape[:-1] + (2,), eps=eps)

    def column_scale(self, x: Tensor, vector: Parameter, whole: bool = False) -> Tensor:
        """Rows times a vector, element by element; `whole`: times as many of the last
        dimensions as the parameter has."""
        shape = vector.shape if whole else (math.prod(vector.shape),)
        return self._op("nn.column_scale", [x, Use(vector, shape)], x.shape)

    def clip(self, x: Tensor, limit: float) -> Tensor:
        """Elements no further from 0 than `limit`."""
        return self._op("nn.clip", [x], x.shape, limit=limit)

    def rms_norm(self, x: Tensor, gamma: Parameter, eps: float,
                 unit_offset: bool = False) -> Tensor:
        """Over the last dimension; over more where its result is split. With
        `unit_offset` it is scaled by one more than `gamma`."""
        return self._op("nn.rms_norm", [x, Use(gamma, gamma.shape)], x.shape,
                        x.shape[:-1] + (1,), eps=eps, unit_offset=unit_offset)

    def rotary(self, x: Tensor, frequencies: Sequence[float],
               factor: float = 1.0, interleaved: bool = False) -> Tensor:
        """Turns pairs of every head, `interleaved` those of neighbours, by the
        position times a frequency."""
        return self._op("nn.rotary", [x], x.shape, frequencies=list(frequencies),
                        factor=None if factor == 1.0 else factor,
                        interleaved=interleaved)

    def gelu(self, x: Tensor, tanh: bool) -> Tensor:
        """The form with the error function, or the one with tanh."""
        return self._op("nn.gelu", [x], x.shape, approximate=tanh)

    def gated_silu(self, gate: Tensor, up: Tensor) -> Tensor:
        """silu(gate) * up."""
        return self._op("nn.gated_silu", [gate, up], gate.shape)

    def gated_gelu(self, gate: Tensor, up: Tensor, tanh: bool = True) -> Tensor:
        """gelu(gate) * up, GELU in the form with tanh or the other."""
        return self._op("nn.gated_gelu", [gate, up], gate.shape, exact=not tanh)

    def relu(self, x: Tensor) -> Tensor:
        """max(x, 0)."""
        return self._op("nn.relu", [x], x.shape)

    def soft_cap(self, x: Tensor, cap: float) -> Tensor:
        """cap * tanh(x / cap)."""
        return self._op("nn.soft_cap", [x], x.shape, cap=cap)

    def scale(self, x: Tensor, factor: float) -> Tensor:
        """A number times x."""
        return self._op("nn.scale", [x], x.shape, factor=factor)

    def attention(self, qkv: Tensor, heads: int, scale: float, causal: bool,
                  dropout: float = 0.0) -> Tensor:
        """Of packed queries, keys and values, [positions, 3, width]."""
        positions, _, width = qkv.shape
        return self._op("nn.attention", [qkv], (positions, width),
                        (heads, positions), heads=heads, causal=causal, scale=scale,
                        dropout=dropout or None)

    def grouped_attention(self, q: Tensor, k: Tensor, v: Tensor, scale: float,
                          causal: bool, window: int = 0, dropout: float = 0.0,
                          mask: Optional[Tensor] = None,
                          bias: Optional[Tensor] = None, cap: float = 0.0,
                          distance: float = 0.0) -> Tensor:
        """Of queries [positions, heads, size], and keys and values of as many or
        fewer heads; keys whose `mask` is 0 do not count. `bias` is what
        `relative_bias` gives. With a `cap` scaled scores become
        cap * tanh(score / cap). With `distance` slopes of heads times distances are
        added so often (ALiBi)."""
        positions, heads, size = q.shape
        return self._op("nn.grouped_attention",
                        [q, k, v] + [x for x in (mask, bias) if x is not None],
                        (positions, heads * size), (heads, positions), causal=causal,
                        scale=scale, window=window or None, dropout=dropout or None,
                        cap=cap or None, distance=distance or None)

    def relative_bias(self, table: Parameter, positions: int, max_distance: int,
                      bidirectional: bool) -> Tensor:
        """Biases of a table [buckets, heads] for all distances of so many
        positions. It reads no activation, and stands in front of the last lookup:
        all layers that follow share it."""
        op = self._op("nn.relative_bias", [Use(table, table.shape)],
                      (table.shape[1], 2 * positions - 1), max_distance=max_distance,
                      bidirectional=bidirectional)
        lookups = [at for at, other in enumerate(self.ops)
                   if other.name == "nn.embedding"]
        if lookups:
            at = lookups[-1]
            self.ops.insert(at, self.ops.pop())
            self.ops[at].where = self.ops[at + 1].where
        return op

    def windows(self, x: Tensor, rows: int, columns: int, window: int, shift: int = 0,
                merge: bool = False) -> Tensor:
        """Positions of a grid of rows and columns, window by window; with `merge`
        the positions of a window become one."""
        width = x.shape[-1]
        count = -(-rows // window) * -(-columns // window)
        shape = (count, window * window * width) if merge else \
            (count, window * window, width)
        return self._op("nn.windows", [x], shape, rows=rows, columns=columns,
                        window=window, shift=shift or None, merge=merge)

    def join_windows(self, x: Tensor, rows: int, columns: int, window: int,
                     shift: int = 0) -> Tensor:
        """Windows back in their grid."""
        return self._op("nn.join_windows", [x], (rows * columns, x.shape[-1]),
                        rows=rows, columns=columns, window=window,
                        shift=shift or None)

    def window_attention(self, q: Tensor, k: Tensor, v: Tensor, table: Parameter,
                         window: int, across: int, scale: float, shift: int = 0,
                         dropout: float = 0.0) -> Tensor:
        """Of queries, keys and values [windows, positions, heads, size], with biases
        of a table [(2 window - 1)^2, heads]."""
        windows, positions, heads, size = q.shape
        return self._op("nn.window_attention", [q, k, v, Use(table, table.shape)],
                        (windows, positions, heads * size),
                        (windows, heads, positions), window=window, across=across,
                        shift=shift or None, scale=scale, dropout=dropout or None)

    def dropout(self, x: Tensor, p: float) -> Tensor:
        """Inverted dropout."""
        return self._op("nn.dropout", [x], x.shape, p=p) if p else x

    def drop_path(self, x: Tensor, p: float) -> Tensor:
        """Zeros for whole samples, with probability p."""
        if not p:
            return x
        result = self._op("nn.drop_path", [x], x.shape)
        self.ops[-1].attributes[PATHS] = p
        return result

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """The element-wise sum."""
        return self._op("nn.add", [a, b], a.shape)

    def patches(self, images: Tensor, rows: int, columns: int,
                pad: bool = False) -> Tensor:
        """Images [channels, rows, columns] as rows of patches, with zeros below and
        to the right of them if `pad`."""
        channels, height, width = images.shape
        if pad:
            height, width = height + -height % rows, width + -width % columns
        return self._op("nn.patches", [images],
                        (height // rows * (width // columns),
                         channels * rows * columns), rows=rows, columns=columns,
                        pad=pad)

    def prepend(self, x: Tensor, token: Parameter) -> Tensor:
        """Puts a learnt row in front."""
        positions, width = x.shape
        return self._op("nn.prepend", [x, Use(token, (width,))],
                        (positions + 1, width))

    def take(self, x: Tensor, position: int) -> Tensor:
        """One position."""
        return self._op("nn.take", [x], x.shape[1:], position=position)

    def mean(self, x: Tensor, beside_first: bool = False) -> Tensor:
        """Over all positions, or over all but the first, behind that one."""
        if beside_first:
            return self._op("nn.mean", [x], (2 * x.shape[-1],), beside_first=True)
        return self._op("nn.mean", [x], x.shape[1:])

    def transpose(self, x: Tensor) -> Tensor:
        """With the last two dimensions swapped."""
        return self._op("nn.transpose", [x],
                        x.shape[:-2] + (x.shape[-1], x.shape[-2]))

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss: the mean over labels that are not negative."""
        op = self._op("nn.cross_entropy", [logits, labels], (1,), element="loss",
                      classes=logits.shape[-1])
        assert op.producer is not None
        op.producer.results.append(Tensor(logits.shape, "float", op.producer))
        self.loss = op
        return op

    def split(self, tensor: Tensor, shape: Sequence[int]) -> None:
        """Gives a tensor a finer shape of as many elements, and what it was made
        from. Raises ShapeConflict where that cannot be."""
        shape = tuple(shape)
        if tensor.shape == shape:
            return
        op = tensor.producer
        if op is None or math.prod(shape) != math.prod(tensor.shape):
            raise ShapeConflict(f"expected shape {list(shape)}, found "
                                f"{list(tensor.shape)}")
        if op.name == "nn.linear":
            self._split_product(op, tensor, shape)
        elif op.name == "nn.bias_add":
            x, bias = op.operands
            assert isinstance(x, Tensor) and isinstance(bias, Use)
            self.split(x, shape)
            bias.shape = _trailing(shape, math.prod(bias.shape))
        elif op.name == "nn.rms_norm":
            self._split_norm(op, shape)
        elif op.name in _ELEMENT_WISE:
            for operand in op.tensors:
                self.split(operand, shape)
        else:
            raise ShapeConflict(
                f"the result of '{op.name}' is {list(tensor.shape)} and cannot be "
                f"seen as {list(shape)}")
        tensor.shape = shape

    def _split_norm(self, op: Op, shape: Shape) -> None:
        """A norm is over as many dimensions as its weight has."""
        x, gamma = op.operands
        assert isinstance(x, Tensor) and isinstance(gamma, Use)
        self.split(x, shape)
        gamma.shape = _trailing(shape, math.prod(gamma.shape))
        op.results[1].shape = \
            shape[:len(shape) - len(gamma.shape)] + (1,) * len(gamma.shape)

    @staticmethod
    def _split_product(op: Op, tensor: Tensor, shape: Shape) -> None:
        x, weight = op.operands
        assert isinstance(x, Tensor) and isinstance(weight, Use)
        lead = len(x.shape) - 1
        if shape[:lead] != x.shape[:-1]:
            raise ShapeConflict(f"a product gives {list(tensor.shape)}, which cannot "
                                f"be seen as {list(shape)}")
        dims = shape[lead:]
        weight.shape = dims + x.shape[-1:] if op.attributes.get("transpose_weight") \
            else x.shape[-1:] + dims

    def live(self) -> List[Op]:
        """The operations that the loss needs, in order."""
        needed, result = {id(self.loss)}, []
        for op in reversed(self.ops):
            if any(id(tensor) in needed for tensor in op.results):
                needed.update(id(tensor) for tensor in op.tensors)
                result.append(op)
        return result[::-1]


def _trailing(shape: Shape, elements: int) -> Shape:
    """The last dimensions of a shape that have so many elements together."""
    for first in range(len(shape) - 1, -1, -1):
        if math.prod(shape[first:]) == elements:
            return shape[first:]
    raise ShapeConflict(f"a parameter of {elements} elements and rows of "
                        f"{list(shape)}")
