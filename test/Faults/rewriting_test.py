# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Faults in texts: beside, inside and across each other."""

import argparse
import importlib.machinery
import importlib.util
import pathlib
import tempfile
import unittest

from rewriting import on_one_line, rewritten


def fault(text, part, form, number):
    begin = text.index(part)
    return {"begin": begin, "end": begin + len(part), "form": form, "number": number}


class Rewriting(unittest.TestCase):
    def test_one(self):
        text = "x = a + b;"
        out, ranges, refused = rewritten(
            text, [fault(text, "a + b", "(FAULT ? (a - b) : (SPAN))", 7)])
        self.assertEqual(out, "x = (GALVATRON_FAULT(7) ? (a - b) : (a + b));")
        self.assertEqual(out[slice(*ranges[7])], out[4:-1])
        self.assertEqual(refused, [])

    def test_inside_and_beside(self):
        text = "f(a + 1, 2);"
        out, ranges, refused = rewritten(text, [
            fault(text, "1", "(FAULT ? 2 : SPAN)", 0),
            fault(text, "a + 1", "(FAULT ? (a) : (SPAN))", 1),
            fault(text, "2", "(FAULT ? 3 : SPAN)", 2)])
        self.assertEqual(out, "f((GALVATRON_FAULT(1) ? (a) : "
                              "(a + (GALVATRON_FAULT(0) ? 2 : 1))), "
                              "(GALVATRON_FAULT(2) ? 3 : 2));")
        for number, part in ((0, "(GALVATRON_FAULT(0) ? 2 : 1)"),
                             (2, "(GALVATRON_FAULT(2) ? 3 : 2)")):
            self.assertEqual(out[slice(*ranges[number])], part)
        self.assertEqual(refused, [])

    def test_across_is_left_out(self):
        text = "a + b + c"
        across = fault(text, "b + c", "(FAULT ? b : SPAN)", 1)
        out, _, refused = rewritten(text, [
            fault(text, "a + b", "(FAULT ? a : SPAN)", 0), across])
        self.assertEqual(out, "(GALVATRON_FAULT(0) ? a : a + b) + c")
        self.assertEqual(refused, [across])

    def test_exchanged(self):
        text = "f(a, b + 1);"
        exchange = {"begin": 2, "end": 10, "exchange": [[2, 3], [5, 10]], "number": 3}
        inner = fault(text, "1", "(FAULT ? 2 : SPAN)", 4)
        out, _, refused = rewritten(text, [exchange, inner])
        self.assertEqual(
            out, "f((GALVATRON_FAULT(3) ? (b + 1) : (a)), (GALVATRON_FAULT(3) ? "
                 "(a) : (b + (GALVATRON_FAULT(4) ? 2 : 1))));")
        self.assertEqual(refused, [])

    def test_lines_stay(self):
        text = "x = f(a, // the first\n      b);\ny = 1;"
        call = text[4:text.index(";")]
        out, _, _ = rewritten(text, [fault(text, call, f"(FAULT ? 0 * {call} : SPAN)", 0)])
        self.assertEqual(out.count("\n"), text.count("\n"))
        self.assertEqual(on_one_line('"//" // why\nb'), '"//"  b')

    @staticmethod
    def machine(folder):
        root = pathlib.Path(__file__).resolve().parents[2]
        loader = importlib.machinery.SourceFileLoader(
            "faults", str(root / "scripts" / "faults"))
        faults = importlib.util.module_from_spec(
            importlib.util.spec_from_loader("faults", loader))
        loader.exec_module(faults)
        machine = faults.Machine(argparse.Namespace(folder=folder))
        for tree in (machine.source, machine.tree):
            (tree / "lib").mkdir(parents=True)
        return machine

    def test_errors_blame_the_fault_of_their_place(self):
        with tempfile.TemporaryDirectory() as folder:
            machine = self.machine(folder)
            (machine.tree / "lib" / "a.h").write_text("int x;\nint y = z + w;\n")
            errors = "".join(
                f"{machine.tree}/{place}: error: use of undeclared identifier\n"
                for place in ("lib/a.h:2:13", "lib/other.h:1:1"))
            # y is from 7 on, z and w from 15 on.
            blamed = machine.blamed(errors, {"lib/a.h": {4: (7, 14), 5: (15, 20)}})
        self.assertEqual(blamed, {5})

    def test_files_without_faults_are_as_they_were(self):
        text = "x = a + b;"
        with tempfile.TemporaryDirectory() as folder:
            machine = self.machine(folder)
            for tree in (machine.source, machine.tree):
                (tree / "lib" / "a.h").write_text(text)
            drawn = dict(fault(text, "a", "(FAULT ? 0 : SPAN)", 0), file="lib/a.h")
            machine.write_faults([drawn])
            self.assertNotEqual((machine.tree / "lib" / "a.h").read_text(), text)
            machine.write_faults([])
            self.assertEqual((machine.tree / "lib" / "a.h").read_text(), text)


if __name__ == "__main__":
    unittest.main()
