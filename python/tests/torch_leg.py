# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the tests that need PyTorch; exits with 77, which ctest takes for a skip,
where it or torch.export is missing, and says so."""

import sys
import unittest

try:
    from torch.export import export  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

if __name__ == "__main__":
    unittest.main(module=None, argv=[
        "torch_leg", "tests.test_torch", "tests.test_torch_errors",
        "tests.test_torch_examples", "tests.test_estimates",
        "tests.test_chat_peers", "tests.test_adapter_peers", "tests.test_fields",
        *sys.argv[1:]])
