# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowers an exported program, operation by operation, to a graph of nn operations.

What has no counterpart is noted, and lowering goes on with a broken value in its
place: the error at the end names all such operations, and none that only takes the
result of another."""

from __future__ import annotations

import math
import pathlib
import re
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch

from ..errors import Unsupported, UnsupportedOperation
from ..graph import Graph, Parameter, ShapeConflict, Tensor, Where
from . import attention
from .layout import Layout, LayoutError, normal
from .parts import Parts
from .reasons import NoCounterpart
from .values import (PATTERNS, Bias, Broken, Centered, Function, Grid, InverseRoot, Joined,
                     Kept, KeyMask, MeanSquare, Normed, OffsetWeight, PaddedImages,
                     RestMean, Rotated, RowMean, Scaled, Scores, Several, Turned, View, Weight)

Handler = Callable[..., Any]

# Lines of this package are no lines of the user's.
_PACKAGE = str(pathlib.Path(__file__).resolve().parents[1])

HANDLERS: Dict[str, Handler] = {}
# Operations that change no value of a float or an index.
_SAME = ("alias", "clone", "contiguous", "_to_copy", "to", "lift_fresh_copy",
         "float", "double", "type_as")
# Checks that the exporter adds.
_CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "_assert_async",
           "sym_constrain_range_for_size", "sym_constrain_range")
# What gives other numbers at every step, and would be a constant.
_RANDOM = ("rand", "randn", "randint", "rand_like", "randn_like", "bernoulli",
           "randperm", "normal", "multinomial", "uniform", "randint_like")
_RANDOM_REASON = ("random numbers; nn has dropout of elements and of whole samples, "
                  "as in Swin's DropPath")
# Functions of an element, and arithmetic with numbers.
_ELEMENT_WISE = ("add", "sub", "rsub", "mul", "div", "neg", "pow", "tanh", "sigmoid",
                 "erf", "exp", "log", "sqrt", "rsqrt", "square", "reciprocal", "abs",
                 "relu", "gelu", "silu", "mish", "elu", "leaky_relu", "hardtanh",
                 "hardswish", "hardsigmoid", "softplus", "clamp", "clamp_min", "sin",
                 "cos", "log1p", "expm1", "celu", "selu", "relu6", "threshold",
                 "log_sigmoid", "sign", "clamp_max", "eq", "ne", "gt", "lt", "ge", "le",
                 "logical_not", "bitwise_not", "floor", "round")


def handles(*names: str) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler
    return add


def operation_name(target: Any) -> str:
    """'aten.mul' for `aten.mul.Tensor`; of other callables their name."""
    text = str(target)
    if isinstance(target, torch._ops.OpOverload):
        return text.rsplit(".", 1)[0]
    return getattr(target, "__name__", text)


def _base(name: str) -> str:
    """Without the namespace."""
    return name.rsplit(".", 1)[-1]


def _is_known(name: str) -> bool:
    """Whether some operation of that name has a counterpart."""
    return any(_base(name) in names
               for names in (HANDLERS, _ELEMENT_WISE, _SAME, _CHECKS))


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

    def __init__(self, graph: Graph, samples: int, names: Set[str],
                 prefix: str = ""):
        self.graph = graph
        self.parts = Parts(graph, names)
        self.samples = samples
        self.prefix = prefix
        self.values: Dict[torch.fx.Node, Any] = {}
        self.problems: List[UnsupportedOperation] = []
        self._scaled: List[Tuple[View, float, View]] = []
        self.transposes: Dict[int, Tensor] = {}
        # Biases of all distances, by their table, positions and buckets.
        self.relative_biases: Dict[Any, Tensor] = {}
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
        if isinstance(value, Turned):
            if value.done is None:
                once, repeats = attention.without_repeats(value.of)
                value.done = attention.with_repeats(
                    attention.rotary(self.graph, self.gathered(once), value.cosines,
                                     value.sines, value.interleaved), repeats)
            return value.done
        if isinstance(value, Joined):
            if value.done is None:
                value.done = self._join(value)
            return value.done
        if isinstance(value, RowMean):
            return value.otherwise()
        if isinstance(value, Normed):
            size = value.of.layout.shape[-1]
            weight = self.constant(torch.ones(size), "weight")
            return self.layer_norm(value.of, weight, None, value.eps) \
                if value.centered else self.rms_norm(value.of, weight, value.eps)
        if isinstance(value, Weight):
            raise NoCounterpart(f"a value made of parameter "
                                f"'{value.parameter.name}' alone")
        if isinstance(value, PATTERNS):
            raise NoCounterpart(UNFINISHED[type(value)])
        if isinstance(value, torch.Tensor):
            raise NoCounterpart("a constant tensor: nn has no constants")
        raise NoCounterpart(f"a value of type '{type(value).__name__}'")

    def gathered(self, value: Any) -> View:
        """The same; of a tensor all of whose elements are there, in any order."""
        view = self.view(value)
        if view.layout.covers(self.elements(view.tensor)):
            return view
        taken = self.parts.take(view)
        if taken is not None and (taken.layout.covers(self.elements(taken.tensor))
                                  or _repeats(taken.layout)):
            return taken
        if _repeats(view.layout):
            return view
        raise NoCounterpart("takes a part of a tensor: nn has no slice")

    @staticmethod
    def swapped(view: View) -> Optional[Layout]:
        """How a view lies in the transpose of its tensor; None where it cannot."""
        shape = view.tensor.shape
        if len(shape) < 2 or view.tensor.element != "float":
            return None
        try:
            return view.layout.swapped(*shape[-2:])
        except LayoutError:
            return None

    def transposed(self, view: View, layout: Layout) -> View:
        """The same elements of the transpose, where they lie as `swapped` says."""
        tensor = view.tensor
        if id(tensor) not in self.transposes:
            self.transposes[id(tensor)] = self.graph.transpose(tensor)
        return View(self.transposes[id(tensor)], layout)

    def whole(self, value: Any) -> View:
        """The same; the elements must be in the order of the tensor, or of its
        transpose."""
        view = self.gathered(value)
        elements = self.elements(view.tensor)
        if view.layout.is_contiguous(elements):
            return view
        turned = self.swapped(view)
        if turned is not None and turned.is_contiguous(elements):
            return self.transposed(view, turned)
        raise NoCounterpart("takes its input in an order that is neither its tensor's "
                            "nor that of the transpose")

    def rows(self, value: Any) -> View:
        """The same; the last dimension must be the innermost of the tensor: what is
        done row by row does not mind the order of rows."""
        view = self.gathered(value)
        if _has_rows(view.layout):
            return view
        turned = self.swapped(view)
        if turned is not None and _has_rows(turned):
            return self.transposed(view, turned)
        return self.whole(view)

    def constant(self, value: torch.Tensor, wish: str) -> Parameter:
        """A parameter that is not trained, for the current operation."""
        path = self.graph.where.path
        return self.parts.constant(value, f"{path}.{wish}" if path else wish)

    @staticmethod
    def shape_of(value: Any) -> Tuple[int, ...]:
        """The shape of a view, or of what was made of one element by element."""
        return (value if isinstance(value, View) else value.of).layout.shape

    def _normed_rows(self, x: Any, size: int) -> View:
        """A view whose tensor has rows of so many elements."""
        view = self.rows(x)
        shape = view.tensor.shape
        if shape[-1] != size:
            self.graph.split(view.tensor, shape[:-1] + (shape[-1] // size, size))
        return view

    def layer_norm(self, x: Any, gamma: Parameter, beta: Optional[Parameter],
                   eps: float) -> View:
        """Adds the layer norm of rows to the graph."""
        view = self._normed_rows(x, gamma.shape[0])
        return View(self.graph.layer_norm(view.tensor, gamma, beta, eps), view.layout)

    def norm_of_heads(self, x: View, weight: Parameter, eps: float) -> View:
        """Adds the layer norm of every head, with a weight for each, to the graph."""
        view = self._normed_rows(x, weight.shape[1])
        if view.tensor.shape[-2:] != weight.shape:
            raise NoCounterpart("a norm with a weight of another shape than heads")
        normed = self.graph.standardize(view.tensor, eps)
        return View(self.graph.column_scale(normed, weight, whole=True), view.layout)

    def rms_norm(self, x: View, weight: Parameter, eps: float,
                 unit_offset: bool = False) -> View:
        """Adds the norm of rows to the graph, scaled by the weight or by one more."""
        view = self._normed_rows(x, weight.shape[0])
        return View(self.graph.rms_norm(view.tensor, weight, eps, unit_offset),
                    view.layout)

    def _apply_function(self, value: Function) -> View:
        if value.leaf.tensor.element == "integer":
            raise NoCounterpart("a function of integers among the data")
        factor, tanh = value.factor(), value.gelu()
        if factor == 1.0:
            return value.leaf
        capped = None if factor else value.soft_cap()
        if not factor and not value.is_operation():
            raise NoCounterpart("a function of every element that nn lacks; it has "
                                "GELU, ReLU, c tanh(x / c), products with numbers, "
                                "and SiLU where it gates another value", value.name, value.where)
        # Its place is where it was written, not where it is first needed.
        here, self.graph.where = self.graph.where, value.where or self.graph.where
        if factor:
            scaled = self.scaled(value.leaf, factor)
            self.graph.where = here
            return scaled
        view = self.gathered(self.scaled(value.leaf, capped[1]) if capped
                             else value.leaf)
        if capped:
            result = self.graph.soft_cap(view.tensor, capped[0])
        elif tanh is None:
            result = self.graph.relu(view.tensor)
        else:
            result = self.graph.gelu(view.tensor, tanh)
        self.graph.where = here
        return View(result, view.layout)

    def scaled(self, leaf: View, factor: float) -> View:
        """A view times a number; one operation however often it is asked for."""
        if factor == 1.0:
            return leaf
        for of, number, result in self._scaled:
            if math.isclose(number, factor, rel_tol=1e-12) and of.same(leaf):
                return result
        view = self.gathered(leaf)
        result = View(self.graph.scale(view.tensor, factor), view.layout)
        self._scaled.append((leaf, factor, result))
        return result

    def _join(self, value: Joined) -> View:
        """Adds the windows' way back into their grid."""
        tensor, side = self.whole(value.of).tensor, value.window
        if -(-value.rows // side) * -(-value.columns // side) != tensor.shape[0]:
            raise NoCounterpart("some of the windows of a grid, put back")
        result = self.graph.join_windows(tensor, value.rows, value.columns,
                                         value.window, value.shift)
        return View(result, Layout.contiguous((self.samples, value.rows, value.columns,
                                               tensor.shape[-1])))

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
                result = self._random(node) if _base(name) in _RANDOM else \
                    self._constant(node, arguments, keywords)
            else:
                result = self._lower(node, name, arguments, keywords)
        except NoCounterpart as error:
            if error.where is not None:
                self.graph.where = error.where
            result = self.broken(error.name or name, str(error))
        except (LayoutError, ShapeConflict) as error:
            result = self.broken(name, str(error))
        self.values[node] = result

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

    def _random(self, node: torch.fx.Node) -> Kept:
        """Random numbers: one a sample, between 0 and 1, for paths that are dropped."""
        shape = tuple(node.meta["val"].shape)
        if _base(operation_name(node.target)) != "rand" or \
                math.prod(shape) != self.samples or shape[:1] != (self.samples,):
            raise NoCounterpart(_RANDOM_REASON)
        return Kept(shape)

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
        if base in HANDLERS:
            result = HANDLERS[base](self, *arguments, **keywords)
            if result is not NotImplemented:
                return result
        if base in _ELEMENT_WISE:
            return self._function(node, arguments, keywords)
        raise NoCounterpart(_RANDOM_REASON if base in _RANDOM else
                            "nn has no such operation")

    def _same(self, node: torch.fx.Node, value: Any) -> Any:
        wanted = node.meta["val"].dtype
        have = node.args[0].meta["val"].dtype  # type: ignore[union-attr]
        if wanted in (torch.float16, torch.bfloat16):
            raise NoCounterpart(f"a conversion to {wanted}: 'dtype' is an option of "
                                "'compile'")
        if have.is_floating_point == wanted.is_floating_point and \
                torch.bool not in (have, wanted):
            return value
        if isinstance(value, View) and value.tensor.element == "integer":
            value = Function(value, _identity, operation_name(node.target))
        if isinstance(value, KeyMask):
            return value
        if isinstance(value, Function) and value.leaf.tensor.element == "integer":
            before = value.call
            return Function(value.leaf, (lambda x: before(x) != 0)
                            if wanted == torch.bool else
                            (lambda x: before(x).double()), value.name)
        if have == wanted:
            return value
        raise NoCounterpart(f"a conversion from {have} to {wanted}")

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
        target: Any = node.target

        def call_all(x: torch.Tensor) -> torch.Tensor:
            result = target(*[call(x) for call in calls], **keywords)
            assert isinstance(result, torch.Tensor)
            return result

        return Function(leaf, call_all, operation_name(node.target), self.graph.where)

    @staticmethod
    def _leaf_of(value: Any) -> Optional[View]:
        if isinstance(value, Function):
            return value.leaf
        return value if isinstance(value, View) else None


UNFINISHED = {
    Bias: "rows of a parameter by constant numbers that are no biases of attention",
    Kept: "random numbers that no paths are dropped by",
    PaddedImages: "padded images that are not cut into patches",
    Grid: "padded or rolled positions that are not cut into windows as in Swin",
    KeyMask: "a mask that is no part of attention",
    RestMean: "a mean over all positions but the first that does not stand behind it",
    Centered: "rows without their mean that are no part of a layer norm",
    MeanSquare: "a mean of squares that is no part of an RMS norm",
    InverseRoot: "a root of a mean of squares that is no part of an RMS norm",
    OffsetWeight: "one more than a parameter that is not the weight of an RMS norm",
    Rotated: "halves or neighbours exchanged, not in a rotary embedding",
    Scaled: "a product with a constant that is no part of a rotary embedding",
    Scores: "a product of two activations that is no part of attention",
}


def _repeats(layout: Layout) -> bool:
    """Whether elements are there more than once."""
    return any(stride == 0 for dim in layout.dims for _, stride in dim)


def _has_rows(layout: Layout) -> bool:
    """Whether the last dimension is the innermost of the tensor."""
    return bool(layout.dims) and not _repeats(layout) and \
        layout.dims[-1] == normal([(layout.shape[-1], 1)])


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x


def _flatten(value: Any) -> List[Any]:
    if isinstance(value, (list, tuple)):
        return [part for entry in value for part in _flatten(entry)]
    return [value]
