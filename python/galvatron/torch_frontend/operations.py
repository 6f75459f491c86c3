# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that become operations of nn, alone or with others."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Optional, Sequence, Union

import torch

from . import attention, biases
from .reasons import NoCounterpart
from .layout import Layout, normal
from .lower import Lowering, handles, operation_name
from .values import (Bias, Centered, Function, InverseRoot, Kept, KeyMask, MeanSquare, Normed,
                     OffsetWeight, PaddedImages, RestMean, Rotated, RowMean, Scaled, Scores,
                     Several, Turned, View, Weight)

# Products and lookups.


@handles("embedding")
def _embedding(low: Lowering, table: Any, index: Any, padding: int = -1,
               by_frequency: bool = False, sparse: bool = False) -> Any:
    del sparse
    if not isinstance(table, Weight):
        return NotImplemented
    if by_frequency:
        raise NoCounterpart("a lookup with gradients scaled by frequency")
    if isinstance(index, torch.Tensor):
        return rows_of(table, index)
    view = low.whole(index)
    datum = view.tensor.datum
    if datum is None:
        raise NoCounterpart("a lookup by computed numbers")
    shape = table.parameter.shape
    datum.below = min(datum.below or shape[0], shape[0])
    result = low.graph.embedding(view.tensor, table.parameter,
                                 padding if padding >= 0 else None)
    inner = normal([(shape[1], 1)])
    return View(result, Layout(view.layout.scaled(shape[1], 1).dims + (inner,)))


def rows_of(table: Weight, index: torch.Tensor) -> Any:
    """Rows of a parameter by constant numbers: a row after the other, or biases of
    attention."""
    rows = index.reshape(-1, index.shape[-1]) if index.dim() else index.reshape(1, 1)
    first, count = int(rows[0, 0]), rows.shape[1]
    if bool((rows == first).all()):
        row = table.layout.select(0, first)
        return Weight(table.parameter, row.expand((*index.shape, *row.shape)))
    if not bool((rows == torch.arange(first, first + count)).all()):
        if len(table.parameter.shape) != 2 or \
                not table.layout.is_contiguous(math.prod(table.parameter.shape)):
            raise NoCounterpart("a lookup by constant numbers that do not rise by one")
        return Bias(table.parameter, index,
                    Layout.contiguous((*index.shape, table.parameter.shape[1])))
    layout = table.layout.slice(0, first, first + count)
    for size in reversed(index.shape[:-1]):
        layout = layout.unsqueeze(0)
        layout = layout.expand((size,) + layout.shape[1:])
    return Weight(table.parameter, layout)


def multiply(low: Lowering, x: Any, weight: Weight, inner: int) -> View:
    """x times a parameter, of whose dimensions `inner` (0 or 1) is contracted."""
    view = _flat_images(low, low.rows(x))
    parameter = weight.parameter
    elements = math.prod(parameter.shape)
    order = weight.layout if inner == 0 else weight.layout.transpose(0, 1)
    if len(order.dims) != 2:
        raise NoCounterpart("a product with a parameter of more than two dimensions")
    size, out = order.shape
    if order.is_contiguous(elements):
        transpose = False
    elif order.transpose(0, 1).is_contiguous(elements):
        transpose = True
    else:
        raise NoCounterpart(f"takes a part of parameter '{parameter.name}'")
    if view.tensor.datum is not None and view.tensor.element != "float":
        raise NoCounterpart("a product of integers")
    shape = view.tensor.shape
    if shape[-1] != size:
        if shape[-1] % size:
            raise NoCounterpart(f"a product over {size} elements of rows of "
                                f"{shape[-1]}")
        low.graph.split(view.tensor, shape[:-1] + (shape[-1] // size, size))
    result = low.graph.linear(view.tensor, parameter, (out,), transpose)
    lead = Layout(view.layout.dims[:-1]).scaled(out, size)
    return View(result, Layout(lead.dims + (normal([(out, 1)]),)))


def _flat_images(low: Lowering, view: View) -> View:
    """Images whose elements are one row each."""
    shape = view.tensor.shape
    if view.tensor.datum is None or view.tensor.element != "float" or \
            len(shape) != 3 or view.layout.shape != (low.samples, math.prod(shape)):
        return view
    patch = low.graph.patches(view.tensor, shape[1], shape[2])
    return low.data_view(low.graph.take(patch, 0))


def _biased(low: Lowering, x: View, bias: Any) -> View:
    if bias is None:
        return x
    if not isinstance(bias, Weight) or \
            not bias.layout.is_contiguous(math.prod(bias.parameter.shape)):
        raise NoCounterpart("a bias that is no whole parameter")
    if math.prod(bias.parameter.shape) != x.layout.shape[-1]:
        raise NoCounterpart("a bias of another size than rows")
    return View(low.graph.bias_add(x.tensor, bias.parameter), x.layout)


@handles("linear")
def _linear(low: Lowering, x: Any, weight: Any, bias: Any = None) -> Any:
    if not isinstance(weight, Weight):
        raise NoCounterpart("a product whose weight is no parameter")
    return _biased(low, multiply(low, x, weight, 1), bias)


@handles("addmm")
def _addmm(low: Lowering, bias: Any, x: Any, weight: Any, beta: float = 1,
           alpha: float = 1) -> Any:
    if not isinstance(weight, Weight) or beta != 1 or alpha != 1:
        return NotImplemented
    return _biased(low, multiply(low, x, weight, 0), bias)


# Norms and what is done to elements.


@handles("layer_norm", "native_layer_norm")
def _layer_norm(low: Lowering, x: Any, shape: Sequence[int], weight: Any = None,
                bias: Any = None, eps: float = 1e-5, *_: Any) -> Any:
    if len(shape) != 1:
        raise NoCounterpart("a norm over more than the last dimension")
    gamma = weight.parameter if isinstance(weight, Weight) else \
        low.constant(torch.ones(shape[0]), "weight")
    beta = bias.parameter if isinstance(bias, Weight) else \
        low.constant(torch.zeros(shape[0]), "bias")
    return low.layer_norm(x, gamma, beta, eps)


@handles("rms_norm")
def _rms_norm(low: Lowering, x: Any, shape: Sequence[int], weight: Any = None,
              eps: Optional[float] = None) -> Any:
    if len(shape) != 1:
        raise NoCounterpart("a norm over more than the last dimension")
    if not isinstance(weight, Weight):
        weight = Weight(low.constant(torch.ones(shape[0]), "weight"), Layout(()))
    least = torch.finfo(low.node.meta["val"].dtype).eps  # type: ignore[union-attr]
    return low.rms_norm(low.view(x), weight.parameter, least if eps is None else eps)


@handles("mean")
def _mean(low: Lowering, x: Any, dims: Any = None, keep: bool = False, **_: Any) -> Any:
    if isinstance(x, Function) and keep and dims is not None and \
            [dim % len(x.leaf.layout.dims) for dim in dims] == \
            [len(x.leaf.layout.dims) - 1]:
        factor = x.root_of_square()
        if factor is not None:
            return MeanSquare(low.scaled(x.leaf, factor))
    rank = len(low.shape_of(x)) if isinstance(x, (Centered, View)) else 0
    if rank and keep and dims is not None and \
            [dim % rank for dim in ([dims] if isinstance(dims, int) else dims)] == [rank - 1]:
        if isinstance(x, Centered) and x.squares:
            return MeanSquare(x.of, centered=True)
        if isinstance(x, View):
            view = x
            return RowMean(x, lambda: _mean_of_positions(low, view, dims, keep))
    if dims is None or not isinstance(x, (View, Function)):
        return NotImplemented
    view = low.view(x)
    if not keep and list([dims] if isinstance(dims, int) else dims) == [1]:
        shape = view.tensor.shape
        if len(shape) == 2 and view.layout.same(
                Layout.contiguous((low.samples, *shape)).slice(1, 1, shape[0])):
            return RestMean(view.tensor)
    return _mean_of_positions(low, view, dims, keep)


def _mean_of_positions(low: Lowering, x: View, dims: Any, keep: bool) -> View:
    """The mean over dimensions that are all of a sample's but the channels."""
    rank = len(x.layout.dims)
    gone = sorted(dim % rank for dim in ([dims] if isinstance(dims, int) else dims))
    left = [dim for dim in range(1, rank) if dim not in gone]
    if len(left) != 1 or 0 in gone:
        raise NoCounterpart("a mean over something else than all positions")
    width = x.layout.shape[left[0]]
    view = low.rows(View(x.tensor, x.layout.permute((0, *gone, *left))))
    positions = math.prod(view.tensor.shape) // width
    if view.tensor.shape != (positions, width):
        raise NoCounterpart("a mean over rows of another width than their tensor's")
    layout = Layout.contiguous((low.samples, width))
    for dim in gone if keep else ():
        layout = layout.unsqueeze(dim)
    return View(low.graph.mean(view.tensor), layout)


@handles("adaptive_avg_pool1d", "adaptive_avg_pool2d")
def _pool(low: Lowering, x: Any, size: Any) -> Any:
    if any(side != 1 for side in size):
        raise NoCounterpart("an average over something else than all positions")
    view = low.view(x)
    rank = len(view.layout.dims)
    return _mean_of_positions(low, view, range(rank - len(size), rank), True)


@handles("rsqrt", "sqrt")
def _root(low: Lowering, x: Any) -> Any:
    if not isinstance(x, MeanSquare):
        return NotImplemented
    name = operation_name(low.node.target)  # type: ignore[union-attr]
    return InverseRoot(x.of, x.eps, "rsqrt" in name, x.centered)


@handles("pow")
def _pow(low: Lowering, x: Any, exponent: Any) -> Any:
    if isinstance(x, MeanSquare) and exponent in (0.5, -0.5):
        return InverseRoot(x.of, x.eps, exponent < 0, x.centered)
    if isinstance(x, Centered) and not x.squares and exponent == 2:
        return Centered(x.of, squares=True)
    return NotImplemented


@handles("sub")
def _sub(low: Lowering, a: Any, b: Any, alpha: float = 1) -> Any:
    del low
    if isinstance(b, RowMean) and isinstance(a, View) and a.same(b.of) and alpha == 1:
        return Centered(a)
    return NotImplemented


@handles("clamp")
def _clamp(low: Lowering, x: Any, least: Any = None, most: Any = None) -> Any:
    limit = number_of(most)
    if not isinstance(x, View) or not limit or limit <= 0 or number_of(least) != -limit:
        return NotImplemented
    view = low.gathered(x)
    return View(low.graph.clip(view.tensor, limit), view.layout)


@handles("cumsum")
def _cumsum(low: Lowering, x: Any, *_: Any) -> Any:
    raise NoCounterpart("positions that are counted over a mask, or over words that are "
                        "no padding, as RoBERTa has them: call it with position_ids")


@handles("detach")
def _detach(low: Lowering, x: Any) -> Any:
    raise NoCounterpart("a value whose gradient is cut off")


@handles("native_dropout")
def _native_dropout(low: Lowering, x: Any, p: float, train: bool) -> Any:
    return Several((_dropout(low, x, p, train), None))


@handles("dropout")
def _dropout(low: Lowering, x: Any, p: float, train: bool) -> Any:
    if not train or p == 0:
        return x
    if p >= 1:
        raise NoCounterpart("dropout of everything")
    if isinstance(x, Scores) and x.probabilities:
        return dataclasses.replace(x, dropout=p)
    view = low.gathered(x)
    return View(low.graph.dropout(view.tensor, p), view.layout)


def number_of(value: Any) -> Optional[float]:
    """A number, or a constant of one element, as a float."""
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return float(value)
    return None


@handles("add")
def _add(low: Lowering, a: Any, b: Any, alpha: float = 1) -> Any:
    if alpha != 1:
        return NotImplemented
    if isinstance(a, MeanSquare) and number_of(b) is not None:
        return MeanSquare(a.of, a.eps + float(number_of(b) or 0.0), a.centered)
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Weight) and number_of(y) == 1.0:
            return OffsetWeight(x.parameter)
        if isinstance(x, Kept) and number_of(y) is not None and not x.whole:
            return dataclasses.replace(x, least=x.least + float(number_of(y) or 0.0))
    if isinstance(b, (Bias, Scores)) and not isinstance(a, Scores):
        a, b = b, a
    if isinstance(a, Scores) and (isinstance(b, (torch.Tensor, KeyMask, Bias))
                                  or isinstance(b, Function) and b.allows()):
        return masked(low, a, b)
    if isinstance(a, Bias):
        if isinstance(b, torch.Tensor):
            return biases.added(a, b)
        if a.mask is None and (isinstance(b, KeyMask)
                               or isinstance(b, Function) and b.allows()):
            return dataclasses.replace(a, mask=b)
    if isinstance(a, Scaled) and isinstance(b, Scaled) and a.of.same(b.of) and \
            a.rotated != b.rotated:
        plain, rotated = (b, a) if a.rotated else (a, b)
        return Turned(plain.of, plain.by, rotated.by, rotated.interleaved)
    if number_of(a) is not None or number_of(b) is not None:
        return NotImplemented
    if isinstance(a, (Weight, torch.Tensor)):
        a, b = b, a
    if isinstance(b, torch.Tensor):
        b = _constant_rows(low, b)
    if isinstance(b, Weight):
        return _add_weight(low, low.view(a), b)
    # Functions of one value are one function, unless each is an operation.
    leaves = [value.leaf if isinstance(value, Function) else value for value in (a, b)]
    apart = [isinstance(value, Function) and value.is_operation() for value in (a, b)]
    if isinstance(leaves[0], View) and leaves[0].same(leaves[1]) and not (
            any(apart) and all(isinstance(value, View) or ready
                               for value, ready in zip((a, b), apart))):
        return NotImplemented
    first, second = low.gathered(a), low.gathered(b)
    # One of them may be of an operation that took its input transposed.
    for kept, other in ((first, second), (second, first)):
        turned = low.swapped(other)
        if not first.layout.same(second.layout) and turned is not None and \
                turned.same(kept.layout):
            other = low.transposed(other, turned)
            return View(low.graph.add(kept.tensor, other.tensor), kept.layout)
    shape = max(first.tensor.shape, second.tensor.shape, key=len)
    low.graph.split(first.tensor, shape)
    low.graph.split(second.tensor, shape)
    if not first.layout.same(second.layout):
        raise NoCounterpart("a sum of values that lie in different orders, or of "
                            "different shapes")
    return View(low.graph.add(first.tensor, second.tensor), first.layout)


def _constant_rows(low: Lowering, value: torch.Tensor) -> Weight:
    """A constant that is added, the same for all samples."""
    if not value.is_floating_point():
        raise NoCounterpart("a sum with constant integers")
    if value.dim() > 2 and bool((value == value[:1]).all()):
        value = value[0]
    return Weight(low.constant(value, "constant"), Layout.contiguous(value.shape))


def _add_weight(low: Lowering, x: View, weight: Weight) -> View:
    """A bias, or a table of positions."""
    view = low.whole(x)
    parameter, layout = weight.parameter, weight.layout
    while layout.dims and (not normal(layout.dims[0])
                           or all(stride == 0 for _, stride in layout.dims[0])):
        layout = Layout(layout.dims[1:], layout.offset)
    width = view.tensor.shape[-1]
    atoms, offset = layout.atoms, layout.offset
    rows = atoms[0][0] // width if len(atoms) == 1 and atoms[0][1] == 1 else 0
    if rows and layout.shape[-1] == width and atoms[0][0] == rows * width and \
            parameter.shape[-1] == width and offset % width == 0:
        whole = math.prod(parameter.shape) // width
        if rows == 1 and whole > 1 or offset:
            if len(parameter.shape) != 2:
                raise NoCounterpart(f"a sum with some rows of '{parameter.name}', "
                                    "which is no matrix")
            # Rows of a table that are always the same ones.
            index = tuple(range(offset // width, offset // width + rows))
            parameter = low.parts.piece(parameter, 0, index)
        if rows == 1:
            return View(low.graph.bias_add(view.tensor, parameter), view.layout)
        if len(view.tensor.shape) == 2 and rows == view.tensor.shape[0]:
            return View(low.graph.position_add(view.tensor, parameter), view.layout)
    raise NoCounterpart(f"a sum with parameter '{parameter.name}' that is neither a "
                        "bias nor a row for each position")


def masked(low: Lowering, scores: Scores, mask: Any) -> Scores:
    """Scores where only what the mask allows counts."""
    if scores.probabilities:
        raise NoCounterpart("a mask behind a softmax")
    if isinstance(mask, torch.Tensor) and mask.is_floating_point() and \
            not scores.distance:
        factor = attention.distance_factor(mask, scores.q.layout.shape[1])
        if factor is not None:
            return dataclasses.replace(scores, distance=factor)
    if isinstance(mask, Bias):
        if scores.bias is not None:
            raise NoCounterpart("two biases of scores")
        scores, mask = dataclasses.replace(scores, bias=mask), mask.mask
    allowed, keys = attention.split_mask(mask, low.samples)
    if keys is not None and scores.mask is not None:
        raise NoCounterpart("two masks of keys")
    if scores.allowed is not None and allowed is not None:
        allowed = scores.allowed & allowed
    return dataclasses.replace(scores, mask=keys if keys is not None else scores.mask,
                               allowed=scores.allowed if allowed is None else allowed)


@handles("mul")
def _mul(low: Lowering, a: Any, b: Any) -> Any:
    for x, y in ((a, b), (b, a)):
        if isinstance(y, Kept):
            return _kept(low, x, y)
        if isinstance(x, Scores) and not x.probabilities and number_of(y) is not None:
            if x.bias is not None:
                raise NoCounterpart("a product with scores that have a bias")
            number = float(number_of(y) or 0.0)
            if x.cap and not (number > 0 and x.allowed is None and x.mask is None):
                raise NoCounterpart("a product with scores behind a cap and a mask")
            return dataclasses.replace(x, scale=x.scale * number, cap=x.cap * number)
        if isinstance(y, InverseRoot) and y.inverse:
            factor = x.factor() if isinstance(x, Function) else None
            view = low.scaled(x.leaf, factor) if factor else x
            if isinstance(view, View) and not y.centered and view.same(y.of):
                return Normed(view, y.eps)
            if isinstance(x, Centered) and not x.squares and y.centered and \
                    x.of.same(y.of):
                return Normed(x.of, y.eps, centered=True)
        if isinstance(x, Normed) and isinstance(y, (Weight, OffsetWeight)):
            return _weighted(low, x, y)
        if isinstance(y, Weight) and isinstance(x, (View, Function)) and \
                len(y.layout.shape) == 1:
            return _scaled_columns(low, x, y)
        if isinstance(y, torch.Tensor) and y.numel() > 1:
            if isinstance(x, Rotated) and not x.apart:
                return Scaled(x.of, True, y, x.interleaved)
            if isinstance(x, View):
                return Scaled(x, False, y)
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Function) and isinstance(y, (View, Function)) and \
                not (isinstance(y, Function) and y.leaf.same(x.leaf)) and \
                not (isinstance(y, View) and y.same(x.leaf)):
            silu = x.equals(torch.nn.functional.silu)
            if silu or x.gelu() is not None:
                return _gated(low, x, y, silu)
    return NotImplemented


@handles("floor")
def _floor(low: Lowering, x: Any) -> Any:
    del low
    return dataclasses.replace(x, whole=True) if isinstance(x, Kept) else NotImplemented


def _kept(low: Lowering, x: Any, kept: Kept) -> View:
    """A branch that whole samples lose, divided by how many keep it."""
    rank = len(kept.shape)
    factor = x.factor() if isinstance(x, Function) else None
    if not kept.whole or not 0 < kept.least < 1 or factor is None or \
            abs(factor * kept.least - 1) > 1e-6 or len(x.leaf.layout.dims) != rank:
        raise NoCounterpart("a product with random numbers that is no dropped path: "
                            "x / keep * floor(keep + rand), a number a sample")
    view = low.gathered(x.leaf)
    return View(low.graph.drop_path(view.tensor, 1 - kept.least), view.layout)


def _gated(low: Lowering, x: Function, y: Any, silu: bool) -> View:
    """A value times a function of its gate."""
    gate, up = low.whole(x.leaf), low.whole(y)
    if gate.tensor.shape != up.tensor.shape:
        raise NoCounterpart("a gate of another shape than what it gates")
    result = low.graph.gated_silu(gate.tensor, up.tensor) if silu else \
        low.graph.gated_gelu(gate.tensor, up.tensor, tanh=bool(x.gelu()))
    return View(result, gate.layout)


def _scaled_columns(low: Lowering, x: Any, vector: Weight) -> View:
    """Rows times a parameter, element by element."""
    view, size = low.whole(x), vector.layout.shape[0]
    if not vector.layout.is_contiguous(math.prod(vector.parameter.shape)) or \
            view.layout.shape[-1] != size or view.tensor.shape[-1] != size:
        raise NoCounterpart("a product with a parameter of another size than rows")
    return View(low.graph.column_scale(view.tensor, vector.parameter), view.layout)


@handles("div")
def _div(low: Lowering, a: Any, b: Any, **more: Any) -> Any:
    if more.get("rounding_mode") is None:
        number = number_of(b)
        if isinstance(a, Scores) and not a.probabilities and number and \
                a.bias is None:
            return dataclasses.replace(a, scale=a.scale / number)
        if isinstance(b, InverseRoot) and not b.inverse and not b.centered and \
                isinstance(a, View) and a.same(b.of):
            return Normed(a, b.eps)
        if isinstance(b, InverseRoot) and not b.inverse and b.centered and \
                isinstance(a, Centered) and not a.squares and a.of.same(b.of):
            return Normed(a.of, b.eps, centered=True)
    return NotImplemented


def _weighted(low: Lowering, x: Normed, weight: Union[Weight, OffsetWeight]) -> View:
    parameter = weight.parameter
    if x.centered and len(parameter.shape) == 2 and isinstance(weight, Weight) and \
            x.of.layout.shape[-2:] == parameter.shape:
        return low.norm_of_heads(x.of, parameter, x.eps)
    if len(parameter.shape) != 1 or x.of.layout.shape[-1] != parameter.shape[0]:
        raise NoCounterpart("an RMS norm with a weight of another shape than its rows")
    if x.centered:
        if isinstance(weight, OffsetWeight):
            raise NoCounterpart("a layer norm scaled by one more than its weight")
        return low.layer_norm(x.of, parameter, None, x.eps)
    return low.rms_norm(x.of, parameter, x.eps, isinstance(weight, OffsetWeight))


# The loss, and images.


@handles("cross_entropy_loss")
def _cross_entropy(low: Lowering, logits: Any, labels: Any, weight: Any = None,
                   reduction: int = 1, ignore: int = -100,
                   smoothing: float = 0.0) -> Any:
    if weight is not None or smoothing or reduction != 1 or ignore >= 0:
        raise NoCounterpart("a cross entropy with weights, smoothing, a sum or a "
                            "label that is left out and not negative")
    return loss_of(low, logits, labels)


def loss_of(low: Lowering, logits: Any, labels: Any) -> View:
    """Adds the cross entropy of whole logits and labels."""
    scores, words = low.view(logits), low.whole(labels)
    rank = len(words.layout.dims)
    if rank > 1 and scores.layout.shape[:1] + scores.layout.shape[2:] == \
            words.layout.shape:
        # Classes stand behind the samples in PyTorch, last in nn.
        order = (0, *range(2, rank + 1), 1)
        scores = View(scores.tensor, scores.layout.permute(order))
    scores = low.whole(scores)
    if words.tensor.datum is None:
        raise NoCounterpart("labels that are computed")
    if scores.tensor.shape[:-1] != words.tensor.shape:
        raise NoCounterpart(f"logits {list(scores.tensor.shape)} of a sample and "
                            f"labels {list(words.tensor.shape)}")
    words.tensor.datum.kind = "labels" if words.tensor.shape else "classes"
    words.tensor.datum.below = scores.tensor.shape[-1]
    return View(low.graph.cross_entropy(scores.tensor, words.tensor), Layout(()))


@handles("conv1d")
def _conv1d(low: Lowering, x: Any, weight: Any, bias: Any = None, stride: Any = (1,),
            padding: Any = (0,), dilation: Any = (1,), groups: int = 1) -> Any:
    """A product over the channels, which stand in front of the positions."""
    del dilation
    plain = padding == "valid" or padding in (0, [0], (0,))
    if not isinstance(weight, Weight) or weight.parameter.shape[-1] != 1 or \
            stride not in (1, [1], (1,)) or not plain or groups != 1:
        raise NoCounterpart("a convolution over more than one position")
    view = low.view(x)
    channels = View(view.tensor, view.layout.permute((0, 2, 1)))
    matrix = Weight(weight.parameter, Layout(weight.layout.dims[:2]))
    y = _biased(low, multiply(low, channels, matrix, 1), bias)
    return View(y.tensor, y.layout.permute((0, 2, 1)))


@handles("conv2d")
def _conv2d(low: Lowering, x: Any, weight: Any, bias: Any = None,
            stride: Any = (1, 1), padding: Any = (0, 0), dilation: Any = (1, 1),
            groups: int = 1) -> Any:
    padded = x if isinstance(x, PaddedImages) else None
    view = low.whole(x if padded is None else padded.of)
    if not isinstance(weight, Weight) or view.tensor.datum is None:
        raise NoCounterpart("a convolution of something else than images")
    out, channels, rows, columns = weight.parameter.shape
    strides = [stride] * 2 if isinstance(stride, int) else \
        list(stride) * (2 // len(stride))
    plain = padding == "valid" or not any(padding if isinstance(padding, (list, tuple))
                                          else [padding])
    if strides != [rows, columns] or not plain or groups != 1 or \
            any(d != 1 for d in dilation) or channels != view.tensor.shape[0]:
        raise NoCounterpart("a convolution that is no cut into patches: its stride "
                            "must be its kernel, without padding or groups")
    _, height, width = view.tensor.shape
    if padded is not None:
        height, width = height + padded.below, width + padded.right
        if padded.below >= rows or padded.right >= columns or height % rows or \
                width % columns:
            raise NoCounterpart("images with more around them than whole patches need")
    patches = low.graph.patches(view.tensor, rows, columns, padded is not None)
    result = low.graph.linear(patches, weight.parameter, (out,), True)
    high, wide = height // rows, width // columns
    flat = _biased(low, low.data_view(result), bias)
    # Channels stand in front in PyTorch, behind in nn.
    layout = flat.layout.reshape((low.samples, high, wide, out)).permute((0, 3, 1, 2))
    return View(flat.tensor, layout)
