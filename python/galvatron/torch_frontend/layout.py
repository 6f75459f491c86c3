# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How a value of PyTorch lies in a tensor of the model.

A layout gives every dimension as a list of atoms (size, stride), outermost first.
With several atoms a dimension, views never need a copy: what `reshape` would copy
stays a dimension of two atoms. Strides count elements of the whole tensor, the
dimension of samples included."""

from __future__ import annotations

import dataclasses
import math
from typing import List, Sequence, Tuple

Atom = Tuple[int, int]
Dim = Tuple[Atom, ...]


class LayoutError(ValueError):
    """A view that is none of a layout's."""


def normal(atoms: Sequence[Atom]) -> Dim:
    """The same elements in the fewest atoms."""
    result: List[Atom] = []
    for size, stride in atoms:
        if size == 1:
            continue
        if result and result[-1][1] == size * stride:
            result[-1] = (result[-1][0] * size, stride)
        else:
            result.append((size, stride))
    return tuple(result)


def _size(dim: Sequence[Atom]) -> int:
    return math.prod(size for size, _ in dim)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Dimensions, and the place of the first element."""

    dims: Tuple[Dim, ...]
    offset: int = 0

    @classmethod
    def contiguous(cls, shape: Sequence[int]) -> "Layout":
        """Elements in the order of the shape."""
        dims, stride = [], 1
        for size in reversed(shape):
            dims.append(normal([(size, stride)]))
            stride *= size
        return cls(tuple(reversed(dims)))

    @property
    def shape(self) -> Tuple[int, ...]:
        """The sizes of the dimensions."""
        return tuple(_size(dim) for dim in self.dims)

    @property
    def atoms(self) -> Dim:
        """All dimensions as one."""
        return normal([atom for dim in self.dims for atom in dim])

    def is_contiguous(self, elements: int) -> bool:
        """Whether all elements of a tensor are here, in their order."""
        return self.offset == 0 and self.atoms == normal([(elements, 1)])

    def covers(self, elements: int) -> bool:
        """Whether all elements of a tensor are here once, in any order."""
        atoms = sorted(self.atoms, key=lambda atom: -atom[1])
        return self.offset == 0 and normal(atoms) == normal([(elements, 1)])

    def scaled(self, new: int, old: int) -> "Layout":
        """Strides where the innermost `old` elements became `new`."""
        return Layout(tuple(tuple((size, stride * new // old) for size, stride in dim)
                            for dim in self.dims), self.offset * new // old)

    def same(self, other: "Layout") -> bool:
        """Whether both have the same elements in the same places."""
        return self.offset == other.offset and \
            [normal(dim) for dim in self.dims] == [normal(dim) for dim in other.dims]

    def reshape(self, shape: Sequence[int]) -> "Layout":
        """The elements in another shape; one size may be -1."""
        elements = math.prod(self.shape)
        if -1 in shape:
            known = -math.prod(shape)
            shape = [elements // known if size == -1 else size for size in shape]
        atoms = list(reversed([atom for dim in self.dims for atom in dim]))
        dims = []
        for need in shape:
            group: List[Atom] = []
            while need > 1:
                if not atoms:
                    raise LayoutError(f"no shape {list(shape)}")
                size, stride = atoms.pop()
                if need % size == 0:
                    group.append((size, stride))
                    need //= size
                elif size % need == 0:
                    group.append((need, stride * (size // need)))
                    atoms.append((size // need, stride))
                    need = 1
                else:
                    raise LayoutError(f"{list(self.shape)} as {list(shape)} cuts "
                                      "across dimensions")
            dims.append(normal(group))
        return Layout(tuple(dims), self.offset)

    def permute(self, order: Sequence[int]) -> "Layout":
        """The dimensions in another order."""
        return Layout(tuple(self.dims[dim] for dim in order), self.offset)

    def transpose(self, a: int, b: int) -> "Layout":
        """Two dimensions exchanged."""
        order = list(range(len(self.dims)))
        order[a], order[b] = order[b], order[a]
        return self.permute(order)

    def unsqueeze(self, dim: int) -> "Layout":
        """A dimension of size 1 more."""
        at = dim % (len(self.dims) + 1)
        return Layout(self.dims[:at] + ((),) + self.dims[at:], self.offset)

    def squeeze(self, dims: Sequence[int]) -> "Layout":
        """Without those of the dimensions whose size is 1."""
        gone = {dim % len(self.dims) for dim in dims}
        return Layout(tuple(dim for number, dim in enumerate(self.dims)
                            if number not in gone or _size(dim) != 1), self.offset)

    def swapped(self, rows: int, columns: int) -> "Layout":
        """The same elements where the tensor's last two dimensions, of these sizes,
        have changed places."""
        def atoms(size: int, stride: int) -> List[Atom]:
            # Cut where a dimension of the tensor ends, the innermost piece first.
            found: List[Atom] = []
            for inner, outer, new in ((1, columns, rows), (columns, rows * columns, 1),
                                      (rows * columns, 0, rows * columns)):
                if size == 1 or outer and stride >= outer:
                    continue
                if stride % inner or outer and outer % stride:
                    raise LayoutError("a stride that is none of the tensor's")
                count = min(size, outer // stride) if outer else size
                if size % count:
                    raise LayoutError("a dimension that ends inside of the tensor's")
                found.append((count, stride // inner * new))
                size, stride = size // count, stride * count
            return found[::-1]

        if self.offset or any(stride == 0 for dim in self.dims for _, stride in dim):
            raise LayoutError("a part of a tensor")
        return Layout(tuple(normal([atom for size, stride in dim
                                    for atom in atoms(size, stride)])
                            for dim in self.dims))

    def slice(self, dim: int, start: int, stop: int, step: int = 1) -> "Layout":
        """Some indices of a dimension."""
        dim %= len(self.dims)
        size = _size(self.dims[dim])
        start, stop, step = slice(start, stop, step).indices(size)
        count = len(range(start, stop, step))
        if (start, count) == (0, size):
            return self
        atoms = normal(self.dims[dim]) or ((1, 1),)
        inner = _size(atoms[1:])
        if step != 1 and inner != 1 or start % inner or count % inner:
            raise LayoutError(f"a slice from {start} to {stop} cuts across dimensions")
        outer = (count // inner, atoms[0][1] * step)
        return Layout(self.dims[:dim] + (normal((outer,) + atoms[1:]),)
                      + self.dims[dim + 1:],
                      self.offset + start // inner * atoms[0][1])

    def select(self, dim: int, index: int) -> "Layout":
        """One index of a dimension, which vanishes."""
        dim %= len(self.dims)
        offset, index = self.offset, index % _size(self.dims[dim])
        for size, stride in reversed(self.dims[dim]):
            offset += index % size * stride
            index //= size
        return Layout(self.dims[:dim] + self.dims[dim + 1:], offset)

    def expand(self, shape: Sequence[int]) -> "Layout":
        """Dimensions of size 1 repeated, and new ones in front."""
        missing = len(shape) - len(self.dims)
        dims: List[Dim] = [()] * missing + list(self.dims)
        for number, want in enumerate(shape):
            have = _size(dims[number])
            if want in (-1, have):
                continue
            if have != 1:
                raise LayoutError(f"{list(self.shape)} does not expand to "
                                  f"{list(shape)}")
            dims[number] = ((want, 0),)
        return Layout(tuple(dims), self.offset)
