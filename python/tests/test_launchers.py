# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs of several processes."""

import os
import shutil
import unittest
from unittest import mock

import galvatron
from galvatron import launchers

from .support import EXAMPLES, SOURCE, TEXT, FolderTest

# mpirun of a test: root in a container, and fewer cores than ranks.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1"}


# Where torchrun is; it may be that of another Python.
TORCHRUN_FOLDER = os.path.dirname(
    shutil.which("torchrun", path=os.pathsep.join(
        [os.path.dirname(os.environ.get("GALVATRON_PYPI_PYTHON", "")),
         os.environ.get("PATH", "")])) or "")


class CommandTest(unittest.TestCase):
    def test_names(self):
        for given, expected in (
                ((None, None, 8), ""),
                (("torchrun", None, 8),
                 "torchrun --standalone --nproc-per-node=8 --no-python --"),
                (("mpirun", 4, 8), "mpirun -n 4"),
                (("mpirun", None, 4, ["a:2", "b:2"]), "mpirun -n 4 --host a:2,b:2"),
                (("mpirun", None, 4, "a:2,b:2"), "mpirun -n 4 --host a:2,b:2"),
                (("srun", None, 16), "srun --mpi=pmix -n 16"),
                ((["ssh", "beta"], None, 2), "ssh beta")):
            self.assertEqual(" ".join(launchers.command(*given)), expected)
        self.assertEqual(launchers.ranks_of_each("mpirun", 4, 8), ["--ranks=2"])
        self.assertEqual(launchers.ranks_of_each("mpirun", 8, 8), [])
        self.assertEqual(launchers.ranks_of_each(None, None, 8), [])

    def test_refusals(self):
        for given, message in (
                ((None, 2, 8), "nproc: expected a launcher, 'torchrun'"),
                ((["x"], 2, 8), "nproc: expected it among the words"),
                ((["x"], None, 8, "a"), "hosts: expected it among the words"),
                (("mpirun", 3, 8), "expected a divisor of the program's 8 ranks, found 3"),
                (("torchrun", None, 8, "a,b"), "expected launcher='mpirun', found 'torchrun'"),
                (("mpiexec", None, 8), "or the words of a command, found 'mpiexec'")):
            with self.assertRaisesRegex(galvatron.errors.InvalidInput, message):
                launchers.command(*given)


# What torchrun prints behind the output of a run with 2 as its exit code.
TORCHRUN = """E1128 18:57:37.240000 11937 torch/distributed/elastic] failed (exitcode: 2)
Traceback (most recent call last):
ChildFailedError:
Failures:
[1]:
  exitcode  : 4 (pid: 11946)
Root Cause (first observed failure):
[0]:
  exitcode  : 2 (pid: 11945)
"""


class LaunchedTest(FolderTest):
    def setUp(self):
        super().setUp()
        self.model = model = galvatron.from_config(EXAMPLES / "gpt2-tiny" / "config.json")
        model.compile(cluster="2xcpu", batch=8, pipeline_degree=1, strategy="dp2")
        self.program = model.program
        self.loss = self.program.train(TEXT, 4).wait().final_loss

    def test_a_command_of_words(self):
        script = SOURCE / "runtime" / "tests" / "start-processes"
        training = self.program.train(TEXT, 4, launcher=[str(script), "2"])
        steps = [step.step for step in training]
        self.assertEqual(steps, [1, 2, 3, 4])
        self.assertIn("in 2 processes over TCP", training.output)
        self.assertEqual(training.summary.final_loss, self.loss)

    def test_what_torchrun_makes_of_a_failure(self):
        script = self.write("launcher", f"""#!/bin/sh
"$@"
cat <<'END'
{TORCHRUN}END
exit 1
""")
        script.chmod(0o755)
        with self.assertRaises(galvatron.errors.InvalidInput) as caught:
            self.program.train(TEXT, 4, launcher=[str(script)], lr="x").wait()
        self.assertEqual(
            str(caught.exception), "galvatron-run: error: option '--lr': expected "
            "a number of at least 0, found 'x'")
        self.assertEqual(launchers.own_exit_code(1, ["exitcode  : 2"]), 1)
        self.assertEqual(launchers.own_exit_code(4, TORCHRUN.splitlines()), 4)

    @unittest.skipUnless(TORCHRUN_FOLDER, "no torchrun")
    def test_torchrun(self):
        path = f"{TORCHRUN_FOLDER}{os.pathsep}{os.environ['PATH']}"
        with mock.patch.dict(os.environ, {"PATH": path}):
            with self.program.train(TEXT, 10**6, launcher="torchrun",
                                    save=self.folder / "saved") as training:
                next(training)
        self.assertIn("in 2 processes over TCP", training.output)
        self.assertIn(training.summary.ended_by, ("SIGINT", "SIGTERM"))
        self.assertTrue((self.folder / "saved" / "model.safetensors").exists())

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
    def test_mpirun(self):
        with mock.patch.dict(os.environ, MPI):
            training = self.program.train(TEXT, 4, launcher="mpirun")
            self.assertEqual(training.wait().final_loss, self.loss)
            self.assertIn("in 2 processes over Open MPI", training.output)
            with self.program.train(TEXT, 10**6, launcher="mpirun",
                                    save=self.folder / "saved") as training:
                next(training)
        self.assertIn(training.summary.ended_by, ("SIGINT", "SIGTERM"))
        self.assertTrue((self.folder / "saved" / "model.safetensors").exists())
