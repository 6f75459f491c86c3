# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models from PyTorch modules."""

from .capture import TorchModel, from_torch

__all__ = ["TorchModel", "from_torch"]
