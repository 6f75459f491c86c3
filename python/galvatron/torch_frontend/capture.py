# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports a module, lowers it, and keeps its weights beside it."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple, Union

import torch

from .. import tools
from ..errors import InvalidInput, Unsupported, UnsupportedOperation
from ..graph import Datum, Graph, Layered, Parameter, build, write
from ..model import Model
from ..weights import Weights, save
from . import scores, views, windows  # noqa: F401, register what they handle
from .reasons import NoCounterpart
from .layout import Layout
from .lower import Lowering, operation_name, where_of
from .operations import loss_of
from .parts import Parts
from .values import Broken, Several, View, Weight

Loss = Union[str, Callable[[Any, torch.Tensor], torch.Tensor], None]

# What stands in for the number of samples: it must differ from 1, which PyTorch
# takes for a size that is repeated.
_SAMPLES = 2
_ELEMENTS = {torch.float32: "f32", torch.float64: "f64"}
# A parameter whose elements are all alike has no deviation to start with.
_LEAST_STD = 1e-8


class _WithLoss(torch.nn.Module):
    """A module and a function of its output and labels."""

    def __init__(self, module: torch.nn.Module, loss: Callable[..., Any]):
        super().__init__()
        self.module = module
        self.loss = loss

    def forward(self, labels: torch.Tensor, args: Tuple[Any, ...],
                kwargs: Dict[str, Any]) -> Any:
        """The loss."""
        return self.loss(self.module(*args, **kwargs), labels)


class TorchModel(Model):
    """A model that came from a module. Its weights are the module's."""

    def __init__(self, path: pathlib.Path, weights: pathlib.Path, layered: Layered,
                 parts: Parts, module: torch.nn.Module, folder: str):
        super().__init__(path, weights=weights)
        self.layered = layered
        self.parts = parts
        self._module = module
        # The files lie where the exporter put them, and go with this object.
        self._folder = folder
        fixed = {name for name, value in module.named_parameters()
                 if not value.requires_grad}
        self.frozen = tuple(
            parameter.name for parameter in layered.parameters
            if parameter.name in fixed or parameter.name in parts.constants
            or parameter.name in parts.pieces
            and parts.pieces[parameter.name].whole in fixed)

    @property
    def layers(self) -> List[Tuple[str, str]]:
        """The layers that were found, with the body of each."""
        return [(layer.name, body) for layer, body
                in zip(self.layered.layers, self.layered.bodies)]

    def named(self, tensors: Weights, gradients: bool = False
              ) -> Dict[str, torch.Tensor]:
        """Tensors of the model under the names of the module, where they differ:
        packed weights are whole, constants left out. What the model does not use of
        a weight is that of the module; of gradients it is zero."""
        wholes = {name: torch.zeros_like(value) if gradients else value.detach()
                  for name, value in self._module.named_parameters()}
        return self.parts.merge(tensors.torch(), wholes)

    def state_dict(self) -> Weights:
        """The weights under the names of the module."""
        weights = super().state_dict()
        if not self.parts.pieces and not self.parts.constants:
            return weights
        path = pathlib.Path(self._folder) / "named.safetensors"
        save({name: value.numpy() for name, value in self.named(weights).items()}, path)
        return Weights(path)

    def copy_to(self, module: Optional[torch.nn.Module] = None) -> torch.nn.Module:
        """Copies the weights into a module, by default the one that the model came
        from."""
        module = self._module if module is None else module
        parameters = dict(module.named_parameters())
        with torch.no_grad():
            for name, tensor in self.named(super().state_dict()).items():
                parameters[name].copy_(tensor)
        return module


def from_torch(module: torch.nn.Module,
               example_inputs: Union[Tuple[Any, ...], Mapping[str, Any]],
               loss: Loss = "cross_entropy", *, name: Optional[str] = None
               ) -> TorchModel:
    """A model from a PyTorch module.

    `example_inputs` are arguments of `forward`: a tuple, or a dictionary by name;
    the first dimension of every tensor counts samples, and the others are those of
    the model. `loss` is 'cross_entropy', for a module that returns logits (or an
    object with `logits`): of the next token, or of the class of a sample; a
    function of what the module returns and of labels; or None for a module that
    returns its loss. Dropout is that of `module.train()` or `module.eval()`.

    Raises Unsupported with all operations that have no counterpart."""
    _check(module, example_inputs, loss)
    args, kwargs = _inputs(example_inputs)
    element = _element(module)
    graph = Graph(name or type(module).__name__)
    prefix = ""
    captured: torch.nn.Module = module
    if callable(loss):
        prefix, captured = "module", _WithLoss(module, loss)
        captured.train(module.training)
        labels = _labels_like(args, kwargs)
        program = _export(captured, (labels, args, kwargs), {})
    else:
        program = _export(module, args, kwargs)
    names = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    low = Lowering(graph, _SAMPLES, names, prefix)
    used = _lower(low, program, module, prefix)
    _end(low, program, loss)
    low.finish()
    _order_data(graph)
    layered = build(graph)
    _check_parts(layered, low.parts)
    return _store(layered, low.parts, used, module, element)


def _check(module: Any, example_inputs: Any, loss: Any) -> None:
    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(f"expected a torch.nn.Module, found "
                           f"'{type(module).__name__}'")
    if isinstance(example_inputs, torch.Tensor) or \
            not isinstance(example_inputs, (tuple, list, Mapping)):
        raise InvalidInput("expected the example inputs in a tuple or a dictionary, "
                           f"found '{type(example_inputs).__name__}'")
    if isinstance(loss, str) and loss != "cross_entropy":
        raise InvalidInput(f"expected the loss 'cross_entropy', a function or None, "
                           f"found '{loss}'")
    if not isinstance(loss, str) and loss is not None and not callable(loss):
        raise InvalidInput("expected the loss 'cross_entropy', a function or None, "
                           f"found '{type(loss).__name__}'")


def _inputs(example: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """The inputs with as many samples as the walk counts on."""
    values = list(example.values()) if isinstance(example, Mapping) else list(example)
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if not tensors:
        raise InvalidInput("expected a tensor among the example inputs, found none")
    for tensor in tensors:
        if tensor.dim() == 0 or tensor.shape[0] != tensors[0].shape[0] or \
                tensor.numel() == 0:
            raise InvalidInput(
                "expected example inputs with as many samples each in their first "
                f"dimension, found the shapes "
                f"{[list(t.shape) for t in tensors]}")

    def resize(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value[:1].detach().expand((_SAMPLES,) + value.shape[1:]).clone()

    if isinstance(example, Mapping):
        return (), {key: resize(value) for key, value in example.items()}
    return tuple(resize(value) for value in example), {}


def _labels_like(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> torch.Tensor:
    """Labels of the shape of the tokens; of samples, where there are none."""
    for value in [*args, *kwargs.values()]:
        if isinstance(value, torch.Tensor) and not value.is_floating_point():
            return torch.zeros_like(value, dtype=torch.long)
    return torch.zeros(_SAMPLES, dtype=torch.long)


def _element(module: torch.nn.Module) -> str:
    types = {parameter.dtype for parameter in module.parameters()}
    if not types:
        raise InvalidInput("expected a module with parameters, found none")
    if len(types) > 1 or not types <= set(_ELEMENTS):
        names = ", ".join(sorted(str(kind) for kind in types))
        raise InvalidInput("expected parameters of torch.float32 or all of "
                           f"torch.float64, found {names}; 'dtype' is an option of "
                           "'compile'")
    return _ELEMENTS[types.pop()]


def _export(module: torch.nn.Module, args: Tuple[Any, ...],
            kwargs: Dict[str, Any]) -> Any:
    try:
        program = torch.export.export(module, args, kwargs, strict=False)
        # Without operations in place: who reads what they change would not know.
        return program.run_decompositions({}) if _in_place(program) else program
    except Exception as error:
        hint = "; with 'use_cache' False among the inputs it hands out no cache" \
            if "Cache" in str(error) else ""
        raise InvalidInput(f"torch.export of '{type(module).__name__}' failed: "
                           f"{error}{hint}") from error


def _in_place(program: Any) -> bool:
    """Whether an operation writes into what others may read; statistics of batches
    are buffers, and nothing reads them."""
    return any(node.op == "call_function" and operation_name(node.target).endswith("_")
               and not operation_name(node.target).endswith("__")
               and getattr(node.args[0], "op", "") != "placeholder"
               for node in program.graph.nodes)


def _lower(low: Lowering, program: Any, module: torch.nn.Module,
           prefix: str) -> Dict[str, Parameter]:
    """Walks the program; returns the parameters by their names in the module."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    by_path = dict(module.named_parameters(remove_duplicate=False))
    constants = {**program.constants, **program.state_dict}
    parameters: Dict[str, Parameter] = {}
    kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        spec = kinds[node.name]
        path = spec.target or ""
        if prefix and path.startswith(prefix + "."):
            path = path[len(prefix) + 1:]
        if spec.kind == torch.export.graph_signature.InputKind.PARAMETER:
            name = names[id(by_path[path])]
            if name not in parameters:
                parameters[name] = _parameter(name, by_path[path])
            shape = parameters[name].shape
            low.values[node] = Weight(parameters[name], Layout.contiguous(shape))
        elif spec.target is not None:
            # A copy: what runs while importing must not change the module.
            low.values[node] = constants[spec.target].detach().cpu().clone()
        else:
            low.values[node] = _datum(low, node)
    trained = {names[id(value)] for value in module.parameters() if value.requires_grad}
    _walk(low, program.graph_module, trained)
    return parameters


def _walk(low: Lowering, graph: torch.fx.GraphModule, trained: Set[str]) -> None:
    """Lowers what a graph does, whose arguments have their values."""
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            low.values[node] = _attribute(graph, node.target)
        elif node.op == "call_function" and \
                operation_name(node.target) == "wrap_with_set_grad_enabled":
            low.values[node] = _without_gradients(low, node, trained)
        elif node.op == "call_function":
            low.run(node)


def _without_gradients(low: Lowering, node: torch.fx.Node, trained: Set[str]) -> Any:
    """What a part of a module gives that is written under torch.no_grad(), of what is
    not trained; or under torch.enable_grad()."""
    enabled, graph, *arguments = (low.get(argument) for argument in node.args)
    low.graph.where = where_of(node, low.prefix)
    for value in arguments:
        if not enabled and (isinstance(value, Weight) and value.parameter.name in trained
                            or isinstance(value, View) and value.tensor.element == "float"):
            return low.broken("torch.no_grad", "no gradient through what is trained")
    inner = iter(arguments)
    for part in graph.graph.nodes:
        if part.op == "placeholder":
            low.values[part] = next(inner)
    _walk(low, graph, trained)
    end = next(part for part in graph.graph.nodes if part.op == "output")
    result = low.get(end.args[0])
    return Several(tuple(result)) if isinstance(result, (tuple, list)) else result


def _attribute(module: Any, target: str) -> Any:
    for part in target.split("."):
        module = getattr(module, part)
    return module


def _parameter(name: str, value: torch.Tensor) -> Parameter:
    shape = tuple(value.shape) or (1,)
    with torch.no_grad():
        if bool((value == 0).all()):
            return Parameter(name, shape, "zeros")
        if bool((value == 1).all()):
            return Parameter(name, shape, "ones")
        std = float(value.double().std(unbiased=False))
    return Parameter(name, shape, "normal", max(std, _LEAST_STD))


def _datum(low: Lowering, node: torch.fx.Node) -> Any:
    """An input of the module: integers are tokens until they turn out to be labels,
    other numbers are images."""
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_floating_point():
        return low.data_view(low.graph.datum("images", tuple(value.shape[1:])))
    return low.data_view(low.graph.datum("tokens", tuple(value.shape[1:])))


def _end(low: Lowering, program: Any, loss: Loss) -> None:
    """The loss at the end of the program."""
    output = next(node for node in program.graph.nodes if node.op == "output")
    low.graph.where = type(low.graph.where)()
    if any(isinstance(low.values.get(node), Broken) for node in output.args[0]):
        return
    returned = torch.utils._pytree.tree_unflatten(
        list(output.args[0]), program.call_spec.out_spec)
    if loss == "cross_entropy":
        found = _logits(returned)
        try:
            logits = low.whole(low.values[found])
            labels = low.graph.datum("labels", logits.tensor.shape[:-1])
            loss_of(low, logits, low.data_view(labels))
        except NoCounterpart as error:
            low.broken("cross_entropy", str(error))
        return
    node = getattr(returned, "loss", None) if not isinstance(returned, tuple) else None
    if node is None:
        candidates = returned if isinstance(returned, (tuple, list)) else [returned]
        node = next((part for part in candidates if _is_loss(low, part)), None)
    if not _is_loss(low, node):
        raise InvalidInput("expected a module that returns a cross entropy of labels "
                           "that are one of its inputs; with 'loss' another one of "
                           "what it returns is made")


def _is_loss(low: Lowering, node: Any) -> bool:
    value = low.values.get(node) if isinstance(node, torch.fx.Node) else None
    return isinstance(value, View) and value.tensor is low.graph.loss


def _logits(returned: Any) -> torch.fx.Node:
    found = getattr(returned, "logits", None)
    if found is None and isinstance(returned, Mapping):
        found = returned.get("logits")
    if found is None and isinstance(returned, (tuple, list)) and returned:
        found = returned[0]
    if found is None:
        found = returned
    if not isinstance(found, torch.fx.Node):
        raise InvalidInput("expected a module that returns logits, or an object with "
                           f"'logits', found '{type(returned).__name__}'")
    return found


def _order_data(graph: Graph) -> None:
    """Tokens or images first, labels last; inputs that nothing reads are dropped. Of
    several that are looked up the first are tokens."""
    read = {id(tensor) for op in graph.live() for tensor in op.tensors}
    graph.data = [tensor for tensor in graph.data if id(tensor) in read]
    tokens = [tensor.datum for tensor in graph.data
              if tensor.datum and tensor.datum.kind == "tokens"]
    tables = {datum: _tables(graph, datum) for datum in tokens}
    for datum in tokens[1:]:
        # Words of the same vocabulary, or of another length, are those of a decoder.
        if tables[datum] & tables[tokens[0]] or datum.shape != tokens[0].shape:
            datum.given = "decoder_tokens"
        else:
            datum.kind = "token_types"
    order = {"tokens": 0, "images": 0, "labels": 2, "classes": 2}
    graph.data.sort(key=lambda tensor: order.get(tensor.datum.kind, 1)
                    if tensor.datum else 1)
    kinds = [tensor.datum.name for tensor in graph.data if tensor.datum]
    if len(set(kinds)) != len(kinds):
        raise Unsupported([UnsupportedOperation(
            "input", f"expected one input of each kind, found {', '.join(kinds)}")])


def _tables(graph: Graph, datum: Datum) -> Set[int]:
    """The parameters that a datum is looked up in."""
    return {id(use.parameter) for op in graph.live() if op.name == "nn.embedding"
            and op.tensors[0].datum is datum for use in op.uses}


def _check_parts(layered: Layered, parts: Parts) -> None:
    """A parameter is used whole or in pieces: both would be trained apart."""
    both = parts.divided() & {parameter.name for parameter in layered.parameters}
    used = {use.parameter.name for layer in layered.layers for use in layer.uses}
    overlapping = []
    for whole in parts.divided():
        seen: List[int] = [at for piece in parts.pieces.values()
                           if piece.whole == whole and piece.name in used
                           for at in piece.index]
        if len(set(seen)) < len(seen):
            overlapping.append(whole)
    if both or overlapping:
        raise Unsupported([UnsupportedOperation(
            "aten.slice", f"parameter '{name}' is used whole and in parts, or in parts "
            "that overlap") for name in sorted(both) + overlapping])


def _store(layered: Layered, parts: Parts, parameters: Dict[str, Parameter],
           module: torch.nn.Module, element: str) -> TorchModel:
    """Writes the model and its weights."""
    folder = tempfile.mkdtemp(prefix="galvatron-")
    path = pathlib.Path(folder) / "model.mlir"
    path.write_text(write(layered, element), encoding="utf-8")
    values = {name: value.detach().cpu() for name, value in module.named_parameters()
              if name in parameters}
    values.update(parts.split(values))
    weights = pathlib.Path(folder) / "initial"
    weights.mkdir()
    save({parameter.name: values[parameter.name].numpy()
          for parameter in layered.parameters}, weights / "model.safetensors")
    model = TorchModel(path, weights, layered, parts, module, folder)
    tools.remove_with(model, folder)
    return model
