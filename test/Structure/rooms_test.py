#!/usr/bin/env python3
#===- rooms_test.py - The check of arrows sees what is wrong -------------===//
#
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===----------------------------------------------------------------------===//
"""A small tree that is as its table says, and one fault a test."""

import pathlib
import tempfile
import unittest

import rooms

PAGE = """
| room | MLIR | uses |
|---|---|---|
| `Support` | no | |
| `Planner` | no | `Support` |
| `Dialect/NN` | yes | `Planner` |

| room of `runtime/src` | uses |
|---|---|
| `base` | |
| `core` | `base` |
"""

FILES = {
    "docs/architecture.md": PAGE,
    "lib/Support/Units.cpp": '#include "galvatron/Support/Units.h"\n',
    "lib/Planner/Planner.cpp": '#include "galvatron/Support/Units.h"\n',
    "lib/Planner/CMakeLists.txt":
        "galvatron_add_library(GalvatronPlanner\n  Planner.cpp)\n",
    "include/galvatron/Dialect/NN/IR/NN.h": '#include "mlir/IR/Dialect.h"\n',
    "lib/Dialect/NN/Transforms/CMakeLists.txt":
        "# A comment with a (bracket.\ngalvatron_add_mlir_library(GalvatronNN\n"
        "  A.cpp\n  LINK_LIBS GalvatronPlanner)\n",
    "lib/InitAll.cpp": '#include "galvatron/Dialect/NN/IR/NN.h"\n',
    "runtime/src/a.cpp": '#include "grt/abi.h"\n',
    "runtime/src/base/error.h": "int a;\n",
    "runtime/src/core/executor.cpp": '#include "base/error.h"\n',
}


class RoomsTest(unittest.TestCase):
    def faults(self, **changes):
        """Of the tree with files added or replaced; `__` stands for a slash and
        `DOT` for a dot in a name."""
        files = dict(FILES)
        for name, text in changes.items():
            files[name.replace("__", "/").replace("DOT", ".")] = text
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder)
            for name, text in files.items():
                path = source / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return rooms.check(source)

    def test_a_tree_as_its_table_says(self):
        self.assertEqual(self.faults(), [])

    def test_an_include_that_the_table_does_not_say(self):
        self.assertEqual(
            self.faults(lib__Planner__PlannerDOTcpp='#include "galvatron/Dialect/NN/IR/NN.h"\n'
                        '#include "galvatron/Support/Units.h"\n'),
            ["lib/Planner/Planner.cpp: 'Planner' uses 'Dialect/NN', which the table of "
             "docs/architecture.md does not say"])

    def test_a_link_that_the_table_does_not_say(self):
        self.assertEqual(
            self.faults(lib__Support__CMakeListsDOTtxt="galvatron_add_library(GalvatronSupport\n"
                        "  Units.cpp LINK_LIBS GalvatronPlanner)\n"),
            ["lib/Support/CMakeLists.txt: 'Support' uses 'Planner', which the table of "
             "docs/architecture.md does not say"])

    def test_an_arrow_that_is_only_in_the_table(self):
        self.assertEqual(
            self.faults(lib__Planner__PlannerDOTcpp="int a;\n"),
            ["the table says that 'Planner' uses 'Support', which no include or link line does"])

    def test_mlir_in_a_plain_room(self):
        self.assertEqual(
            self.faults(lib__Support__UnitsDOTcpp='#include "mlir/IR/Value.h"\n'),
            ["lib/Support/Units.cpp: 'Support' holds no MLIR, but includes 'mlir/IR/Value.h'"])

    def test_a_plain_room_above_one_that_is_not(self):
        page = PAGE.replace("`Support` | no", "`Support` | yes")
        self.assertEqual(self.faults(docs__architectureDOTmd=page),
                         ["'Planner' holds no MLIR, but uses 'Support', which does"])

    def test_a_circle(self):
        page = PAGE.replace("| `Support` | no | |", "| `Support` | no | `Planner` |")
        self.assertIn("rooms use each other in a circle: Planner -> Support -> Planner",
                      self.faults(docs__architectureDOTmd=page,
                                  lib__Support__UnitsDOTcpp='#include "galvatron/Planner/P.h"\n'))

    def test_a_room_that_the_table_lacks(self):
        self.assertEqual(self.faults(lib__Extra__ADOTcpp="int a;\n"),
                         ["expected 'Extra' in the table of docs/architecture.md"])

    def test_rooms_of_the_runtime(self):
        self.assertEqual(
            self.faults(runtime__src__base__errorDOTh='#include "core/executor.h"\n'),
            ["runtime/src/base/error.h: 'base' uses 'core', which the table of "
             "docs/architecture.md does not say"])
        self.assertEqual(
            self.faults(runtime__src__core__executorDOTcpp="int a;\n"),
            ["the table says that 'core' uses 'base', which no include line does"])
        self.assertEqual(self.faults(runtime__src__comm__aDOTcpp="int a;\n"),
                         ["expected 'comm' in the table of the runtime's rooms"])
        page = PAGE.replace("| `base` | |", "| `base` | `core` |")
        self.assertEqual(
            self.faults(docs__architectureDOTmd=page,
                        runtime__src__base__errorDOTh='#include "core/executor.h"\n'),
            ["rooms of the runtime use each other in a circle: base -> core -> base"])

    def test_llvm_in_the_runtime(self):
        self.assertEqual(
            self.faults(runtime__src__aDOTcpp='#include "llvm/Support/JSON.h"\n'),
            ["runtime/src/a.cpp: the runtime includes 'llvm/Support/JSON.h'"])


if __name__ == "__main__":
    unittest.main()
