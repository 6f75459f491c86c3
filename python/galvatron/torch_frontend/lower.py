# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowers an exported program, operation by operation, to a graph of nn operations.

What has no counterpart is noted, and lowering goes on with a broken value in its
place: the error at the end names all such operations, and none that only takes the
result of another."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import pathlib
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from ..errors import Unsupported, UnsupportedOperation
from ..graph import Graph, Parameter, ShapeConflict, Tensor, Where
from . import attention
from .attention import NoCounterpart
from .layout import Layout, LayoutError, normal
from .values import (PATTERNS, Broken, Function, InverseRoot, MeanSquare, Normed,
                     Rotated, Scaled, Scores, Several, View, Weight)

Handler = Callable[..., Any]

# Lines of this package are no lines of the user's.
_PACKAGE = str(pathlib.Path(__file__).resolve().parents[1])

_HANDLERS: Dict[str, Handler] = {}
# Operations that change no value of a float or an index.
_SAME = ("alias", "clone", "contiguous", "detach", "_to_copy", "to", "lift_fresh_copy",
         "float", "double", "type_as", "requires_grad_")
# Checks that the exporter adds.
_CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "_assert_async",
           "sym_constrain_range_for_size", "sym_constrain_range")
# Functions of an element, and arithmetic with numbers.
_ELEMENT_WISE = ("add", "sub", "rsub", "mul", "div", "neg", "pow", "tanh", "sigmoid",
                 "erf", "exp", "log", "sqrt", "rsqrt", "square", "reciprocal", "abs",
                 "relu", "gelu", "silu", "mish", "elu", "leaky_relu", "hardtanh",
                 "hardswish", "hardsigmoid", "softplus", "clamp", "clamp_min", "sin",
                 "cos", "log1p", "expm1", "celu", "selu", "relu6", "threshold",
                 "log_sigmoid", "sign", "clamp_max")


def _handles(*names: str) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        for name in names:
            _HANDLERS[name] = handler
        return handler
    return add


def operation_name(target: Any) -> str:
    """'aten.mul' for `aten.mul.Tensor`; of other callables their name."""
    text = str(target)
    if isinstance(target, torch._ops.OpOverload):
        return text.rsplit(".", 1)[0]
    return getattr(target, "__name__", text)


def _base(name: str) -> str:
    """Without the namespace, and without the mark of an operation in place."""
    short = name.rsplit(".", 1)[-1]
    return short if short in _HANDLERS or short.startswith("_") else short.rstrip("_")


def _is_known(name: str) -> bool:
    """Whether some operation of that name has a counterpart."""
    return any(_base(name) in names
               for names in (_HANDLERS, _ELEMENT_WISE, _SAME, _CHECKS))


def where_of(node: torch.fx.Node, prefix: str = "") -> Where:
    """The modules and the line of a node."""
    stack = node.meta.get("nn_module_stack") or {}
    modules = []
    for path, kind in stack.values():
        path = re.sub(r"@\d+$", "", path)
        if prefix and (path == prefix or path.startswith(prefix + ".")):
            path = path[len(prefix) + 1:]
        if path:
            name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
            modules.append((path, name))
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [line for line in lines
           if "/torch/" not in line[0] and not line[0].startswith(_PACKAGE)]
    return Where(tuple(modules), f"{own[-1][0]}:{own[-1][1]}" if own else "")


class Lowering:
    """One walk over a program."""

    def __init__(self, graph: Graph, samples: int, prefix: str = ""):
        self.graph = graph
        self.samples = samples
        self.prefix = prefix
        self.values: Dict[torch.fx.Node, Any] = {}
        self.problems: List[UnsupportedOperation] = []
        self.node: Optional[torch.fx.Node] = None

    # Values.

    def get(self, argument: Any) -> Any:
        """The value of an argument, also inside of lists."""
        if isinstance(argument, torch.fx.Node):
            return self.values[argument]
        if isinstance(argument, (list, tuple)):
            return type(argument)(self.get(part) for part in argument)
        return argument

    def data_view(self, tensor: Tensor) -> View:
        """A whole datum."""
        return View(tensor, Layout.contiguous((self.samples,) + tensor.shape))

    def elements(self, tensor: Tensor) -> int:
        """Of all samples."""
        return self.samples * math.prod(tensor.shape)

    def view(self, value: Any) -> View:
        """A value as elements of a tensor; functions become operations."""
        if isinstance(value, Function):
            if value.done is None:
                value.done = self._apply_function(value)
            return value.done
        if isinstance(value, View):
            return value
        if isinstance(value, Weight):
            raise NoCounterpart(f"a value made of parameter "
                                f"'{value.parameter.name}' alone")
        if isinstance(value, PATTERNS):
            raise NoCounterpart(_UNFINISHED[type(value)])
        if isinstance(value, torch.Tensor):
            raise NoCounterpart("a constant tensor: nn has no constants")
        raise NoCounterpart(f"a value of type '{type(value).__name__}'")

    def whole(self, value: Any) -> View:
        """The same; all elements of a tensor must be there, in order."""
        view = self.view(value)
        if view.layout.is_contiguous(self.elements(view.tensor)):
            return view
        if view.layout.covers(self.elements(view.tensor)):
            raise NoCounterpart("takes its input transposed: nn has no transpose")
        raise NoCounterpart("takes a part of a tensor: nn has no slice")

    def rows(self, value: Any) -> View:
        """The same; all elements must be there, and the last dimension be the
        innermost of the tensor: what is done row by row does not mind the order."""
        view = self.view(value)
        inner = view.layout.dims[-1] if view.layout.dims else ()
        if view.layout.covers(self.elements(view.tensor)) and \
                inner == normal([(view.layout.shape[-1], 1)]):
            return view
        return self.whole(view)

    def _apply_function(self, value: Function) -> View:
        if value.factor() == 1.0:
            return value.leaf
        tanh = None
        if value.equals(torch.nn.functional.gelu):
            tanh = False
        elif value.equals(lambda x: torch.nn.functional.gelu(x, approximate="tanh")):
            tanh = True
        if tanh is None:
            raise NoCounterpart("a function of every element that nn lacks; it has "
                                "GELU, and SiLU where it gates another value")
        view = self._covered(value.leaf)
        return View(self.graph.gelu(view.tensor, tanh), view.layout)

    def _covered(self, view: View) -> View:
        if not view.layout.covers(self.elements(view.tensor)):
            raise NoCounterpart("takes a part of a tensor: nn has no slice")
        return view

    # The walk.

    def run(self, node: torch.fx.Node) -> None:
        """Lowers one call."""
        self.node = node
        self.graph.where = where_of(node, self.prefix)
        arguments, keywords = self.get(node.args), self.get(dict(node.kwargs))
        flat = _flatten([arguments, list(keywords.values())])
        name = operation_name(node.target)
        try:
            if any(isinstance(value, Broken) for value in flat):
                if not _is_known(name):
                    raise NoCounterpart("nn has no such operation")
                result: Any = Broken()
            elif not any(isinstance(value, (View, Weight, Function, Several) + PATTERNS)
                         for value in flat):
                result = self._constant(node, arguments, keywords)
            else:
                result = self._lower(node, name, arguments, keywords)
        except (NoCounterpart, LayoutError, ShapeConflict) as error:
            result = self.broken(name, str(error))
        self.values[node] = result
        # An operation in place: who reads its argument from now on, reads this.
        if name.endswith("_") and node.args and isinstance(node.args[0], torch.fx.Node):
            self.values[node.args[0]] = result

    def broken(self, name: str, reason: str) -> Broken:
        """Notes that the current operation has no counterpart."""
        where = self.graph.where
        problem = UnsupportedOperation(name, reason, where.path, where.source)
        if str(problem) not in map(str, self.problems):
            self.problems.append(problem)
        return Broken()

    def finish(self) -> None:
        """Raises if something had no counterpart."""
        if self.problems:
            raise Unsupported(self.problems)

    def _constant(self, node: torch.fx.Node, arguments: Any, keywords: Any) -> Any:
        with torch.no_grad():
            value = node.target(*arguments, **{
                key: torch.device("cpu") if key == "device" else part
                for key, part in keywords.items()})  # type: ignore[operator]
        return Several(tuple(value)) if isinstance(value, (tuple, list)) else value

    def _lower(self, node: torch.fx.Node, name: str, arguments: Any,
               keywords: Any) -> Any:
        base = _base(name)
        if base in _CHECKS:
            return None
        if base in _SAME:
            return self._same(node, arguments[0])
        if base in _HANDLERS:
            result = _HANDLERS[base](self, *arguments, **keywords)
            if result is not NotImplemented:
                return result
        if base in _ELEMENT_WISE:
            return self._function(node, arguments, keywords)
        raise NoCounterpart("nn has no such operation")

    def _same(self, node: torch.fx.Node, value: Any) -> Any:
        wanted = node.meta["val"].dtype
        have = node.args[0].meta["val"].dtype  # type: ignore[union-attr]
        if wanted != have and (have.is_floating_point != wanted.is_floating_point):
            raise NoCounterpart(f"a conversion from {have} to {wanted}")
        return value

    def _function(self, node: torch.fx.Node, arguments: Any, keywords: Any) -> Any:
        """An operation on elements of one view, and numbers."""
        leaf: Optional[View] = None
        calls: List[Any] = []
        for value in arguments:
            if isinstance(value, Function):
                leaf, call = value.leaf, value.call
            elif isinstance(value, View):
                leaf, call = value, _identity
            elif isinstance(value, torch.Tensor) and value.numel() == 1:
                number = float(value)
                calls.append(lambda x, number=number: number)
                continue
            elif isinstance(value, (int, float)):
                calls.append(lambda x, number=value: number)
                continue
            else:
                self.view(value)
                raise NoCounterpart("nn has no such operation")
            if calls and any(other is not None and not other.same(leaf)
                             for other in [self._leaf_of(v) for v in arguments]):
                raise NoCounterpart("nn has no such operation on two values")
            calls.append(call)
        assert leaf is not None
        target = getattr(torch.ops.aten, operation_name(node.target)
                         .rsplit(".", 1)[-1].rstrip("_"))

        def call_all(x: torch.Tensor) -> torch.Tensor:
            result = target(*[call(x) for call in calls], **keywords)
            assert isinstance(result, torch.Tensor)
            return result

        return Function(leaf, call_all, operation_name(node.target))

    @staticmethod
    def _leaf_of(value: Any) -> Optional[View]:
        if isinstance(value, Function):
            return value.leaf
        return value if isinstance(value, View) else None


_UNFINISHED = {
    MeanSquare: "a mean of squares that is no part of an RMS norm",
    InverseRoot: "a root of a mean of squares that is no part of an RMS norm",
    Normed: "an RMS norm without a weight",
    Rotated: "halves exchanged, not in a rotary embedding",
    Scaled: "a product with a constant that is no part of a rotary embedding",
    Scores: "a product of two activations that is no part of attention",
}


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x


def _flatten(value: Any) -> List[Any]:
    if isinstance(value, (list, tuple)):
        return [part for entry in value for part in _flatten(entry)]
    return [value]


# Views.


def _relaid(value: Any, change: Callable[[Layout], Layout]) -> Any:
    """The same elements in another layout."""
    if isinstance(value, Function):
        return Function(View(value.leaf.tensor, change(value.leaf.layout)), value.call,
                        value.name)
    if isinstance(value, (View, Weight)):
        return dataclasses.replace(value, layout=change(value.layout))
    if isinstance(value, PATTERNS):
        raise NoCounterpart(_UNFINISHED[type(value)])
    raise NoCounterpart("nn has no such operation")


@_handles("view", "reshape", "_unsafe_view")
def _view(low: Lowering, x: Any, shape: Sequence[int]) -> Any:
    return _relaid(x, lambda layout: layout.reshape(shape))


@_handles("flatten")
def _flatten_dims(low: Lowering, x: Any, start: int = 0, end: int = -1) -> Any:
    def change(layout: Layout) -> Layout:
        shape = layout.shape
        first, last = start % len(shape), end % len(shape)
        return layout.reshape(shape[:first] + (math.prod(shape[first:last + 1]),)
                              + shape[last + 1:])
    return _relaid(x, change)


@_handles("unflatten")
def _unflatten(low: Lowering, x: Any, dim: int, sizes: Sequence[int]) -> Any:
    def change(layout: Layout) -> Layout:
        at = dim % len(layout.shape)
        known = math.prod(size for size in sizes if size != -1)
        filled = [layout.shape[at] // known if size == -1 else size for size in sizes]
        return layout.reshape((*layout.shape[:at], *filled, *layout.shape[at + 1:]))
    return _relaid(x, change)


@_handles("transpose", "swapaxes")
def _transpose(low: Lowering, x: Any, a: int, b: int) -> Any:
    return _relaid(x, lambda layout: layout.transpose(a, b))


@_handles("t", "numpy_T", "mT")
def _t(low: Lowering, x: Any) -> Any:
    return _relaid(x, lambda layout: layout.transpose(-2, -1)
                   if len(layout.dims) > 1 else layout)


@_handles("permute")
def _permute(low: Lowering, x: Any, order: Sequence[int]) -> Any:
    return _relaid(x, lambda layout: layout.permute(order))


@_handles("movedim")
def _movedim(low: Lowering, x: Any, source: Any, target: Any) -> Any:
    def change(layout: Layout) -> Layout:
        rank = len(layout.dims)
        moved = [s % rank for s in ([source] if isinstance(source, int) else source)]
        places = [t % rank for t in ([target] if isinstance(target, int) else target)]
        order = [dim for dim in range(rank) if dim not in moved]
        for place, dim in sorted(zip(places, moved)):
            order.insert(place, dim)
        return layout.permute(order)
    return _relaid(x, change)


@_handles("unsqueeze")
def _unsqueeze(low: Lowering, x: Any, dim: int) -> Any:
    return _relaid(x, lambda layout: layout.unsqueeze(dim))


@_handles("squeeze")
def _squeeze(low: Lowering, x: Any, dims: Any = None) -> Any:
    def change(layout: Layout) -> Layout:
        if dims is None:
            return layout.squeeze(range(len(layout.dims)))
        return layout.squeeze([dims] if isinstance(dims, int) else dims)
    return _relaid(x, change)


@_handles("expand", "expand_as", "broadcast_to")
def _expand(low: Lowering, x: Any, shape: Any, implicit: bool = False) -> Any:
    del implicit
    wanted = low.node.meta["val"].shape  # type: ignore[union-attr]
    del shape
    return _relaid(x, lambda layout: layout.expand(wanted))


@_handles("repeat_interleave")
def _repeat_interleave(low: Lowering, x: Any, times: Any, dim: Optional[int] = None,
                       **_: Any) -> Any:
    if not isinstance(times, int) or dim is None:
        return NotImplemented

    def change(layout: Layout) -> Layout:
        shape = layout.shape
        at = dim % len(shape)
        wide = shape[:at + 1] + (times,) + shape[at + 1:]
        return layout.unsqueeze(at + 1).expand(wide).reshape(
            shape[:at] + (shape[at] * times,) + shape[at + 1:])
    return _relaid(x, change)


@_handles("slice")
def _slice(low: Lowering, x: Any, dim: int = 0, start: Optional[int] = None,
           stop: Optional[int] = None, step: int = 1) -> Any:
    return _relaid(x, lambda layout: layout.slice(
        dim, 0 if start is None else start, 2 ** 62 if stop is None else stop, step))


@_handles("narrow")
def _narrow(low: Lowering, x: Any, dim: int, start: int, length: int) -> Any:
    return _relaid(x, lambda layout: layout.slice(dim, start, start + length))


@_handles("select")
def _select(low: Lowering, x: Any, dim: int, index: int) -> Any:
    if isinstance(x, View) and len(x.tensor.shape) == 2 and \
            x.layout.is_contiguous(low.elements(x.tensor)) and \
            x.layout.shape == (low.samples,) + x.tensor.shape and \
            dim % len(x.layout.dims) == 1:
        taken = low.graph.take(x.tensor, index % x.tensor.shape[0])
        return low.data_view(taken)
    return _relaid(x, lambda layout: layout.select(dim, index))


@_handles("split", "chunk", "split_with_sizes", "tensor_split", "unbind")
def _split(low: Lowering, x: Any, *rest: Any, **more: Any) -> Any:
    del rest
    values = low.node.meta["val"]  # type: ignore[union-attr]
    name = operation_name(low.node.target).rsplit(".", 1)[-1]  # type: ignore
    arguments = list(low.node.args)  # type: ignore[union-attr]
    if name == "unbind":
        dim = more.get("dim", arguments[1] if len(arguments) > 1 else 0)
        return Several(tuple(_relaid(x, functools.partial(_one, dim, index))
                             for index in range(len(values))))
    dim = more.get("dim", arguments[2] if len(arguments) > 2 else 0)
    ends = list(itertools.accumulate(value.shape[dim] for value in values))
    return Several(tuple(_relaid(x, functools.partial(_part, dim, start, end))
                         for start, end in zip([0] + ends, ends)))


def _one(dim: int, index: int, layout: Layout) -> Layout:
    return layout.select(dim, index)


def _part(dim: int, start: int, end: int, layout: Layout) -> Layout:
    return layout.slice(dim, start, end)


@_handles("getitem")
def _getitem(low: Lowering, x: Any, index: int) -> Any:
    return x.parts[index] if isinstance(x, Several) else NotImplemented


# Products and lookups.


@_handles("embedding")
def _embedding(low: Lowering, table: Any, index: Any, padding: int = -1,
               *_: Any) -> Any:
    if not isinstance(table, Weight):
        return NotImplemented
    if isinstance(index, torch.Tensor):
        return _rows(table, index)
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


def _rows(table: Weight, index: torch.Tensor) -> Weight:
    """Rows of a parameter by constant numbers: a row after the other."""
    rows = index.reshape(-1, index.shape[-1]) if index.dim() else index.reshape(1, 1)
    first, count = int(rows[0, 0]), rows.shape[1]
    if not bool((rows == torch.arange(first, first + count)).all()):
        raise NoCounterpart("a lookup by constant numbers that do not rise by one")
    layout = table.layout.slice(0, first, first + count)
    for size in reversed(index.shape[:-1]):
        layout = layout.unsqueeze(0)
        layout = layout.expand((size,) + layout.shape[1:])
    return Weight(table.parameter, layout)


def _product(low: Lowering, x: Any, weight: Weight, inner: int) -> View:
    """x times a parameter, of whose dimensions `inner` (0 or 1) is contracted."""
    view = low.rows(x)
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


def _biased(low: Lowering, x: View, bias: Any) -> View:
    if bias is None:
        return x
    if not isinstance(bias, Weight) or \
            not bias.layout.is_contiguous(math.prod(bias.parameter.shape)):
        raise NoCounterpart("a bias that is no whole parameter")
    if math.prod(bias.parameter.shape) != x.layout.shape[-1]:
        raise NoCounterpart("a bias of another size than rows")
    return View(low.graph.bias_add(x.tensor, bias.parameter), x.layout)


@_handles("linear")
def _linear(low: Lowering, x: Any, weight: Any, bias: Any = None) -> Any:
    if not isinstance(weight, Weight):
        raise NoCounterpart("a product whose weight is no parameter")
    return _biased(low, _product(low, x, weight, 1), bias)


@_handles("addmm")
def _addmm(low: Lowering, bias: Any, x: Any, weight: Any, beta: float = 1,
           alpha: float = 1) -> Any:
    if not isinstance(weight, Weight) or beta != 1 or alpha != 1:
        return NotImplemented
    return _biased(low, _product(low, x, weight, 0), bias)


@_handles("matmul", "mm", "bmm")
def _matmul(low: Lowering, a: Any, b: Any) -> Any:
    if isinstance(b, Weight):
        return _product(low, a, b, 0)
    if isinstance(a, Scores) and a.probabilities:
        value = low.view(b)
        queries, keys = a.q.layout.shape[-2], a.k.layout.shape[-2]
        causal, window = attention.mask_kind(a.allowed, queries, keys)
        return attention.attend(low.graph, a.q, a.k, value, a.scale, causal, window,
                                a.dropout)
    scale = 1.0
    for value in (a, b):
        if isinstance(value, Function):
            factor = value.factor()
            if factor is None:
                low.view(value)
            else:
                scale *= factor
    a = a.leaf if isinstance(a, Function) and a.factor() else a
    b = b.leaf if isinstance(b, Function) and b.factor() else b
    q, k = low.view(a), low.view(b)
    if len(q.layout.dims) != 4 or len(k.layout.dims) != 4:
        raise NoCounterpart("a product of two activations that is no part of attention")
    return Scores(q, View(k.tensor, k.layout.transpose(-2, -1)), scale)


# Norms and what is done to elements.


@_handles("layer_norm", "native_layer_norm")
def _layer_norm(low: Lowering, x: Any, shape: Sequence[int], weight: Any = None,
                bias: Any = None, eps: float = 1e-5, *_: Any) -> Any:
    if len(shape) != 1:
        raise NoCounterpart("a norm over more than the last dimension")
    if not isinstance(weight, Weight) or not isinstance(bias, Weight):
        raise NoCounterpart("a layer norm without weight or without bias")
    view = _rows_of(low, x, shape[0])
    return View(low.graph.layer_norm(view.tensor, weight.parameter, bias.parameter,
                                     eps), view.layout)


def _rows_of(low: Lowering, x: Any, size: int) -> View:
    """A whole value whose last dimension is that of its tensor."""
    view = low.rows(x)
    shape = view.tensor.shape
    if shape[-1] != size:
        low.graph.split(view.tensor, shape[:-1] + (shape[-1] // size, size))
    return view


@_handles("rms_norm")
def _rms_norm(low: Lowering, x: Any, shape: Sequence[int], weight: Any = None,
              eps: Optional[float] = None) -> Any:
    if len(shape) != 1 or not isinstance(weight, Weight):
        raise NoCounterpart("an RMS norm without weight, or over several dimensions")
    view = _rows_of(low, x, shape[0])
    least = torch.finfo(low.node.meta["val"].dtype).eps  # type: ignore[union-attr]
    return View(low.graph.rms_norm(view.tensor, weight.parameter,
                                   least if eps is None else eps), view.layout)


@_handles("mean")
def _mean(low: Lowering, x: Any, dims: Any = None, keep: bool = False, **_: Any) -> Any:
    if isinstance(x, Function) and keep and dims is not None and \
            [dim % len(x.leaf.layout.dims) for dim in dims] == \
            [len(x.leaf.layout.dims) - 1] and x.equals(torch.square):
        return MeanSquare(x.leaf)
    return NotImplemented


@_handles("rsqrt", "sqrt")
def _root(low: Lowering, x: Any) -> Any:
    if not isinstance(x, MeanSquare):
        return NotImplemented
    name = operation_name(low.node.target)  # type: ignore[union-attr]
    return InverseRoot(x.of, x.eps, "rsqrt" in name)


@_handles("pow")
def _pow(low: Lowering, x: Any, exponent: Any) -> Any:
    if isinstance(x, MeanSquare) and exponent in (0.5, -0.5):
        return InverseRoot(x.of, x.eps, exponent < 0)
    return NotImplemented


@_handles("dropout", "native_dropout")
def _dropout(low: Lowering, x: Any, p: float, train: bool) -> Any:
    if not train or p == 0:
        return x
    if p >= 1:
        raise NoCounterpart("dropout of everything")
    if isinstance(x, Scores) and x.probabilities:
        return dataclasses.replace(x, dropout=p)
    view = low._covered(low.view(x))
    return View(low.graph.dropout(view.tensor, p), view.layout)


def _number_of(value: Any) -> Optional[float]:
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return float(value)
    return None


@_handles("add")
def _add(low: Lowering, a: Any, b: Any, alpha: float = 1) -> Any:
    if alpha != 1:
        return NotImplemented
    if isinstance(a, MeanSquare) and _number_of(b) is not None:
        return MeanSquare(a.of, a.eps + float(_number_of(b) or 0.0))
    if isinstance(a, Scores) and isinstance(b, torch.Tensor):
        return _masked(a, attention.allowed_pairs(b))
    if isinstance(a, Scaled) and isinstance(b, Scaled) and a.of.same(b.of) and \
            a.rotated != b.rotated:
        plain, turned = (b, a) if a.rotated else (a, b)
        return attention.rotary(low.graph, plain.of, plain.by, turned.by)
    if _number_of(a) is not None or _number_of(b) is not None:
        return NotImplemented
    if isinstance(a, Weight):
        a, b = b, a
    if isinstance(b, Weight):
        return _add_weight(low, low.view(a), b)
    # Functions of one value are one function.
    leaves = [value.leaf if isinstance(value, Function) else value for value in (a, b)]
    if isinstance(leaves[0], View) and leaves[0].same(leaves[1]):
        return NotImplemented
    first, second = low._covered(low.view(a)), low._covered(low.view(b))
    shape = max(first.tensor.shape, second.tensor.shape, key=len)
    low.graph.split(first.tensor, shape)
    low.graph.split(second.tensor, shape)
    if not first.layout.same(second.layout):
        raise NoCounterpart("a sum of values that lie in different orders, or of "
                            "different shapes")
    return View(low.graph.add(first.tensor, second.tensor), first.layout)


def _add_weight(low: Lowering, x: View, weight: Weight) -> View:
    """A bias, or a table of positions."""
    view = low.whole(x)
    parameter, layout = weight.parameter, weight.layout
    while layout.dims and (not normal(layout.dims[0])
                           or all(stride == 0 for _, stride in layout.dims[0])):
        layout = Layout(layout.dims[1:], layout.offset)
    width = view.tensor.shape[-1]
    elements = math.prod(parameter.shape)
    if elements == width and layout.is_contiguous(elements):
        return View(low.graph.bias_add(view.tensor, parameter), view.layout)
    if len(view.tensor.shape) == 2 and parameter.shape[-1] == width and \
            layout.is_contiguous(math.prod(view.tensor.shape)):
        return View(low.graph.position_add(view.tensor, parameter), view.layout)
    raise NoCounterpart(f"a sum with parameter '{parameter.name}' that is neither a "
                        "bias nor one of positions from the first on")


@_handles("mul")
def _mul(low: Lowering, a: Any, b: Any) -> Any:
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Scores) and not x.probabilities and _number_of(y) is not None:
            return dataclasses.replace(x, scale=x.scale * float(_number_of(y) or 0.0))
        if isinstance(y, InverseRoot) and y.inverse and isinstance(x, View) and \
                x.same(y.of):
            return Normed(x, y.eps)
        if isinstance(x, Normed) and isinstance(y, Weight):
            return _weighted(low, x, y)
        if isinstance(y, torch.Tensor) and y.numel() > 1:
            if isinstance(x, Rotated):
                return Scaled(x.of, True, y)
            if isinstance(x, View):
                return Scaled(x, False, y)
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Function) and isinstance(y, (View, Function)) and \
                x.equals(torch.nn.functional.silu) and \
                not (isinstance(y, Function) and y.leaf.same(x.leaf)) and \
                not (isinstance(y, View) and y.same(x.leaf)):
            gate, up = low.whole(x.leaf), low.whole(y)
            if gate.tensor.shape != up.tensor.shape:
                raise NoCounterpart("a gate of another shape than what it gates")
            return View(low.graph.gated_silu(gate.tensor, up.tensor), gate.layout)
    return NotImplemented


@_handles("div")
def _div(low: Lowering, a: Any, b: Any, **more: Any) -> Any:
    if more.get("rounding_mode") is None:
        number = _number_of(b)
        if isinstance(a, Scores) and not a.probabilities and number:
            return dataclasses.replace(a, scale=a.scale / number)
        if isinstance(b, InverseRoot) and not b.inverse and isinstance(a, View) and \
                a.same(b.of):
            return Normed(a, b.eps)
    return NotImplemented


def _weighted(low: Lowering, x: Normed, weight: Weight) -> View:
    parameter = weight.parameter
    if len(parameter.shape) != 1 or x.of.layout.shape[-1] != parameter.shape[0]:
        raise NoCounterpart("an RMS norm with a weight of another shape than its rows")
    view = _rows_of(low, x.of, parameter.shape[0])
    return View(low.graph.rms_norm(view.tensor, parameter, x.eps), view.layout)


# Attention.


@_handles("cat", "concat")
def _cat(low: Lowering, parts: Sequence[Any], dim: int = 0) -> Any:
    if len(parts) == 2 and isinstance(parts[1], View):
        first, second = parts
        rank = len(second.layout.dims)
        if isinstance(first, Function) and dim % rank == rank - 1 and \
                first.factor() == -1.0 and first.leaf.tensor is second.tensor:
            half = second.layout.shape[-1]
            whole = Layout(second.layout.dims[:-1] + (normal([(2 * half, 1)]),),
                           second.layout.offset)
            if whole.slice(-1, half, 2 * half).same(first.leaf.layout) and \
                    whole.slice(-1, 0, half).same(second.layout):
                return Rotated(View(second.tensor, whole))
        if isinstance(first, Weight) and dim % rank == 1:
            view = low.whole(second)
            parameter = first.parameter
            width = view.tensor.shape[-1]
            layout = first.layout.select(0, 0) if len(first.layout.dims) == 3 \
                else first.layout
            if len(view.tensor.shape) == 2 and \
                    view.layout.shape == (low.samples,) + view.tensor.shape and \
                    math.prod(parameter.shape) == width and \
                    layout.shape == (1, width) and layout.is_contiguous(width):
                return low.data_view(low.graph.prepend(view.tensor, parameter))
    return NotImplemented


def _masked(scores: Scores, allowed: torch.Tensor) -> Scores:
    if scores.probabilities:
        raise NoCounterpart("a mask behind a softmax")
    if scores.allowed is not None:
        allowed = scores.allowed & allowed
    return dataclasses.replace(scores, allowed=allowed)


@_handles("masked_fill")
def _masked_fill(low: Lowering, x: Any, mask: Any, value: Any) -> Any:
    number = _number_of(value)
    if not isinstance(x, Scores) or not isinstance(mask, torch.Tensor) or \
            number is None or number > attention._MOST_NEGATIVE:
        return NotImplemented
    return _masked(x, ~mask)


@_handles("where")
def _where(low: Lowering, mask: Any, x: Any, other: Any) -> Any:
    number = _number_of(other)
    if not isinstance(x, Scores) or not isinstance(mask, torch.Tensor) or \
            number is None or number > attention._MOST_NEGATIVE:
        return NotImplemented
    return _masked(x, mask)


@_handles("softmax", "_softmax")
def _softmax(low: Lowering, x: Any, dim: int, *_: Any, **more: Any) -> Any:
    if not isinstance(x, Scores) or x.probabilities or dim not in (-1, 3):
        return NotImplemented
    return dataclasses.replace(x, probabilities=True)


@_handles("scaled_dot_product_attention")
def _sdpa(low: Lowering, q: Any, k: Any, v: Any, mask: Any = None,
          dropout: float = 0.0, causal: bool = False, scale: Optional[float] = None,
          enable_gqa: bool = False, **more: Any) -> Any:
    mask = more.get("attn_mask", mask)
    dropout = more.get("dropout_p", dropout)
    causal = more.get("is_causal", causal)
    query, key, value = low.view(q), low.view(k), low.view(v)
    queries, keys = query.layout.shape[-2], key.layout.shape[-2]
    window = 0
    if mask is not None:
        if not isinstance(mask, torch.Tensor):
            raise NoCounterpart("a mask that depends on the data")
        causal, window = attention.mask_kind(attention.allowed_pairs(mask), queries,
                                             keys)
    elif causal and queries != keys:
        raise NoCounterpart("causal attention of fewer queries than keys")
    del enable_gqa
    return attention.attend(low.graph, query, key, value,
                            scale or 1 / math.sqrt(query.layout.shape[-1]), causal,
                            window, dropout)


# The loss, and images.


@_handles("cross_entropy_loss")
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


@_handles("conv2d")
def _conv2d(low: Lowering, x: Any, weight: Any, bias: Any = None,
            stride: Any = (1, 1), padding: Any = (0, 0), dilation: Any = (1, 1),
            groups: int = 1) -> Any:
    view = low.whole(x)
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
    patches = low.graph.patches(view.tensor, rows, columns)
    result = low.graph.linear(patches, weight.parameter, (out,), True)
    high, wide = height // rows, width // columns
    flat = _biased(low, low.data_view(result), bias)
    # Channels stand in front in PyTorch, behind in nn.
    layout = flat.layout.reshape((low.samples, high, wide, out)).permute((0, 3, 1, 2))
    return View(flat.tensor, layout)
