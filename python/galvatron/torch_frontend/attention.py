# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention and rotary embedding, as they lie in an exported program."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, List, Optional, Tuple

import torch

from ..graph import Graph, ShapeConflict, Tensor
from . import biases
from .layout import Layout, LayoutError, normal
from .reasons import NoCounterpart
from .values import MOST_NEGATIVE, Bias, Function, KeyMask, View

if TYPE_CHECKING:
    from .lower import Lowering

# How far cosines and sines of a table may be from those of their frequencies: they
# are computed in f32, from angles with two roundings that grow with the position.
_ANGLE_TOLERANCE = 1e-4
_ANGLE_TOLERANCE_PER_POSITION = 2.0 ** -22


def allowed_pairs(mask: torch.Tensor) -> torch.Tensor:
    """Which pairs of query and key count, [.., queries, keys], from a mask as
    PyTorch takes it: true where they count, or what is added to the scores."""
    if mask.dtype == torch.bool:
        return mask
    if not bool(torch.all((mask == 0) | (mask <= MOST_NEGATIVE))):
        raise NoCounterpart("scores with a bias")
    return mask == 0


def mask_kind(allowed: Optional[torch.Tensor], queries: int, keys: int
              ) -> Tuple[bool, int]:
    """Whether a mask is causal, and its window (0 for none), which reaches to both sides
    where it is not."""
    if allowed is None:
        return False, 0
    try:
        table = allowed.expand(*allowed.shape[:-2], queries, keys)
    except RuntimeError as error:
        raise NoCounterpart(f"a mask of shape {list(allowed.shape)}") from error
    table = table.reshape(-1, queries, keys)
    if not bool((table == table[:1]).all()):
        raise NoCounterpart("a mask that is not the same for all samples and heads")
    table = table[0]
    if bool(table.all()):
        return False, 0
    behind = torch.arange(queries)[:, None] + (keys - queries) \
        - torch.arange(keys)[None, :]
    causal = behind >= 0
    if torch.equal(table, causal):
        return True, 0
    window = int(table[-1].sum())
    if torch.equal(table, causal & (behind < window)):
        return True, window
    reach = int(table[0].sum())
    if torch.equal(table, behind.abs() < reach):
        return False, reach
    raise NoCounterpart("a mask that is neither causal nor a window")


def slope(head: int, heads: int) -> float:
    """Of a head in ALiBi (Press et al., arXiv 2108.12409), also where heads are no power
    of two, as nn has it."""
    power = 2 ** math.floor(math.log2(heads))
    return float(2.0 ** (-8 / power * (head + 1)) if head < power
                 else 2.0 ** (-4 / power * (2 * (head - power) + 1)))


def distance_factor(added: torch.Tensor, heads: int) -> Optional[float]:
    """How often constants [.., heads, queries or 1, keys] that are added to scores are
    the slopes of heads times the place of the key, which a softmax cannot tell from
    distances; None if they are something else."""
    if added.dim() < 3 or added.shape[-3] != heads or added.shape[-1] < 2:
        return None
    steps = added.double().diff(dim=-1)
    slopes = torch.tensor([slope(head, heads) for head in range(heads)],
                          dtype=torch.float64)[:, None, None]
    factor = float((steps / slopes).mean())
    # The constants may be rounded to f32, as large as the places are.
    allowed = 1e-6 * max(1.0, float(added.double().abs().max()))
    return factor if factor and torch.allclose(steps, factor * slopes.expand(steps.shape),
                                               rtol=0, atol=allowed) else None


def split_mask(value: Any, samples: int
               ) -> Tuple[Optional[torch.Tensor], Optional[Tensor]]:
    """The pairs that count and the mask of keys, of what is given as a mask."""
    if value is None:
        return None, None
    if isinstance(value, torch.Tensor):
        return allowed_pairs(value), None
    if isinstance(value, Function):
        value = KeyMask(value)
    if not isinstance(value, KeyMask):
        raise NoCounterpart("a mask that depends on activations")
    if value.of.allows() is None:
        raise NoCounterpart("a mask that is neither true nor 0 where keys count")
    if not value.of.allows():
        raise NoCounterpart("a mask that is 1 where keys do not count: expected one "
                            "that is 1 where they do")
    tensor, layout = value.of.leaf.tensor, value.of.leaf.layout
    dims = [normal(dim) for dim in layout.dims]
    keys = tensor.shape[-1]
    others = [atom for dim in dims[1:-1] for atom in dim]
    if len(tensor.shape) != 1 or layout.offset or len(dims) < 2 or \
            dims[0] != normal([(samples, keys)]) or dims[-1] != normal([(keys, 1)]) or \
            any(stride for _, stride in others):
        raise NoCounterpart("a mask that is not [samples, keys]")
    assert tensor.datum is not None
    tensor.datum.kind, tensor.datum.below = "mask", 2
    return value.also, tensor


def _heads_of(view: View) -> Tuple[Layout, int]:
    """A view [samples, heads, positions, size] without its repeated heads, and how
    often they are repeated."""
    dims = view.layout.dims
    if len(dims) != 4:
        raise NoCounterpart(f"attention of {len(dims)} dimensions, expected 4: "
                            "samples, heads, positions, head size")
    heads = list(normal(dims[1]))
    repeats = 1
    if heads and heads[-1][1] == 0:
        repeats = heads.pop()[0]
    layout = Layout((dims[0], tuple(heads), dims[2], dims[3]), view.layout.offset)
    return layout, repeats


def without_repeats(view: View) -> Tuple[View, int]:
    """A view of heads [samples, heads, positions, size] that stand next to their
    copies, as one of each, and how many there are of each."""
    if len(view.layout.dims) != 4:
        return view, 1
    layout, repeats = _heads_of(view)
    return View(view.tensor, layout), repeats


def with_repeats(view: View, repeats: int) -> View:
    """The way back."""
    first, heads, *rest = view.layout.dims
    return view if repeats == 1 else View(view.tensor, Layout(
        (first, (*heads, (repeats, 0)), *rest), view.layout.offset))


def attend(low: Lowering, q: View, k: View, v: View, scale: float,
           allowed: Optional[torch.Tensor], mask: Optional[Tensor],
           dropout: float, bias: Optional[Bias] = None, cap: float = 0.0,
           distance: float = 0.0) -> View:
    """Adds attention of [samples, heads, positions, size] to the graph. `allowed`
    says which pairs count, `mask` which keys; `bias` is added to the scores, or they
    are capped."""
    if cap and bias is not None:
        raise NoCounterpart("scores with a cap and a bias")
    _heads_of(q)
    graph = low.graph
    several, _, positions, _ = q.layout.shape
    if len(q.tensor.shape) == 3 and q.layout.shape == k.layout.shape == \
            v.layout.shape and allowed is None and mask is None and not cap and \
            not distance and \
            q.tensor.shape[:2] == (several // low.samples, positions):
        return biases.in_windows(low, q, k, v, scale, bias, dropout)
    samples, heads, queries, size = q.layout.shape
    shapes = [_heads_of(view) for view in (q, k, v)]
    layouts = [layout for layout, _ in shapes]
    key_heads = layouts[1].shape[1]
    if layouts[2].shape != layouts[1].shape or layouts[1].shape[3] != size \
            or heads % key_heads or shapes[0][1] != 1:
        raise NoCounterpart(f"attention of queries {list(q.layout.shape)}, keys "
                            f"{list(k.layout.shape)} and values "
                            f"{list(v.layout.shape)}")
    keys = layouts[1].shape[2]
    # Samples, positions, heads, size: as nn has them.
    layouts = [layout.transpose(1, 2) for layout in layouts]
    packed = _packed(q, k, v, layouts, heads, size)
    causal, window = mask_kind(allowed, queries, keys)
    if distance and (not causal or bias is not None):
        raise NoCounterpart("distances that are added to scores (ALiBi) without a causal "
                            "mask, or beside a bias")
    if packed and queries == keys and not window and mask is None and bias is None \
            and not cap and not distance:
        graph.split(q.tensor, (queries, 3, heads * size))
        result = graph.attention(q.tensor, heads, scale, causal, dropout)
    else:
        tensors = []
        for view in map(low.gathered, (q, k, v)):
            layout = _heads_of(view)[0].transpose(1, 2)
            elements = samples * math.prod(view.tensor.shape)
            if not layout.is_contiguous(elements):
                raise NoCounterpart("attention of queries, keys or values that are a "
                                    "part of a tensor, or in another order than "
                                    "positions, heads, size")
            graph.split(view.tensor, layout.shape[1:])
            tensors.append(view.tensor)
        added = None if bias is None else biases.relative(low, bias, queries, keys)
        if added is not None and added.shape[0] != heads:
            raise NoCounterpart(f"biases of {added.shape[0]} heads for {heads}")
        result = graph.grouped_attention(tensors[0], tensors[1], tensors[2], scale,
                                         causal, window, dropout, mask, added, cap,
                                         distance)
    layout = Layout.contiguous((samples, queries, heads, size)).transpose(1, 2)
    return View(result, layout)


def _packed(q: View, k: View, v: View, layouts: List[Layout], heads: int,
            size: int) -> bool:
    """Whether queries, keys and values are the thirds of every row of one tensor."""
    if not q.tensor is k.tensor is v.tensor or len(q.tensor.shape) != 2:
        return False
    positions, width = q.tensor.shape
    third = heads * size
    if width != 3 * third:
        return False
    samples = q.layout.shape[0]
    for number, layout in enumerate(layouts):
        try:
            part = Layout.contiguous((samples, positions, width)) \
                .slice(2, number * third, (number + 1) * third) \
                .reshape((samples, positions, heads, size))
        except LayoutError:
            return False
        if not part.same(layout):
            return False
    return True


def rotary(graph: Graph, view: View, cosines: torch.Tensor,
           sines: torch.Tensor, interleaved: bool = False) -> View:
    """Adds the rotary embedding `x * cosines + rotated(x) * sines` of
    [samples, heads, positions, size], or with positions in front of heads, to the
    graph. What stands in a head behind the tables stays as it is."""
    if len(view.layout.shape) != 4:
        raise NoCounterpart("rotary embedding of something else than heads")
    # As it lies in memory positions stand in front.
    layout = view.layout
    elements = layout.shape[0] * math.prod(view.tensor.shape)
    if layout.is_contiguous(elements) and not layout.transpose(1, 2).is_contiguous(elements):
        cosines, sines = (_heads_first(table) for table in (cosines, sines))
    else:
        layout = layout.transpose(1, 2)
    samples, positions, heads, size = layout.shape
    turned = cosines.shape[-1]
    frequencies, factor = _frequencies(
        cosines, sines, (samples, heads, positions, turned), interleaved)
    if turned < size and factor != 1.0:
        raise NoCounterpart("rotary embedding of a part of a head, with a factor")
    if not layout.is_contiguous(elements):
        raise NoCounterpart("rotary embedding of a part of a tensor")
    try:
        graph.split(view.tensor, (positions, heads, size))
    except ShapeConflict as error:
        raise NoCounterpart(str(error)) from error
    result = graph.rotary(view.tensor, frequencies, factor, interleaved)
    return View(result, view.layout)


def _heads_first(table: torch.Tensor) -> torch.Tensor:
    """A table of [.., positions, heads, size] as one of [.., heads, positions, size]."""
    return table.transpose(-3, -2) if table.dim() > 2 else table[:, None, :]


def _frequencies(cosines: torch.Tensor, sines: torch.Tensor, shape: Tuple[int, ...],
                 interleaved: bool = False) -> Tuple[List[float], float]:
    """The angles by position that two tables have, and what they are multiplied
    by."""
    _, _, positions, size = shape
    tables = []
    for table in (cosines, sines):
        full = table.double().expand(*table.shape[:-2], positions, size)
        full = full.reshape(-1, positions, size)
        if not bool((full == full[:1]).all()):
            raise NoCounterpart("rotary embedding that differs between samples")
        tables.append(full[0])
    half = size // 2
    first, second = ((slice(0, None, 2), slice(1, None, 2)) if interleaved
                     else (slice(half), slice(half, None)))
    if any(not torch.equal(table[:, first], table[:, second]) for table in tables):
        raise NoCounterpart("rotary embedding of pairs that are not "
                            + ("neighbours" if interleaved else "i and i + size / 2"))
    cos, sin = tables[0][:, first], tables[1][:, first]
    factor = float(torch.hypot(cos, sin).mean())
    if positions < 2:
        raise NoCounterpart("rotary embedding of one position: its frequencies "
                            "cannot be seen")
    # From the last position at which the angle, which the first ones tell, has not
    # lost what f32 keeps of it.
    frequencies = torch.atan2(sin[1], cos[1])
    place = torch.arange(positions, dtype=torch.float64)
    for step in (2 ** n for n in range(1, 64) if 2 ** n < positions):
        turns = torch.round((frequencies * step
                             - torch.atan2(sin[step], cos[step])) / (2 * math.pi))
        frequencies = (torch.atan2(sin[step], cos[step]) + 2 * math.pi * turns) / step
    angles = place[:, None] * frequencies[None, :]
    allowed = _ANGLE_TOLERANCE + positions * _ANGLE_TOLERANCE_PER_POSITION
    if not torch.allclose(factor * torch.cos(angles), cos, atol=allowed) or \
            not torch.allclose(factor * torch.sin(angles), sin, atol=allowed):
        raise NoCounterpart("tables that are no cosines and sines of a position times "
                            "a frequency")
    return [float(f) for f in frequencies], 1.0 if abs(factor - 1) < 1e-6 else factor
