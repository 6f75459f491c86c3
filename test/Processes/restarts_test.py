#!/usr/bin/env python3
"""Runs of several processes that start themselves again: under mpirun, where
processes of an attempt are joined by TCP, and with fewer processes.
  restarts_test.py BIN
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]


def attempt_of(process):
    """What a run that starts itself again waits for."""
    path = pathlib.Path(f"/proc/{process}/task/{process}/children")
    children = path.read_text().split() if path.exists() else []
    return int(children[0]) if children else None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Restarts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.work = pathlib.Path(cls.temporary.name)
        (cls.work / "few").mkdir()
        for ranks, name in ((3, "p3.gvx"), (2, "few/p2.gvx")):
            subprocess.run(
                [BIN / "galvatron-compile",
                 ROOT / "examples/gpt2-tiny/config.json",
                 f"--cluster={ranks}xcpu", "--batch=6", "-o", cls.work / name],
                check=True, stdout=subprocess.DEVNULL)
        cls.expected = cls.losses("undisturbed", subprocess.run(
            cls.command("p3.gvx", "undisturbed"), cwd=cls.work, check=True,
            stdout=subprocess.DEVNULL))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def command(cls, program, name, *more):
        return [str(BIN / "galvatron-run"), program,
                f"--data={ROOT / 'LICENSE'}", "--data-format=text",
                "--steps=150", "--threads-per-rank=1", f"--log={name}.jsonl",
                "--flight-recorder=none", *more]

    @classmethod
    def losses(cls, name, _=None):
        found = {}
        for line in (cls.work / f"{name}.jsonl").read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # its process was killed while it wrote
                continue
            found[record["step"]] = record["loss"]
        return found

    def await_checkpoint(self, name, step=1):
        for _ in range(600):
            steps = sorted((self.work / name).glob("step-????????"))
            if steps and int(steps[-1].name[5:]) >= step:
                return
            time.sleep(0.05)
        self.fail("no checkpoint")

    def outputs_of(self, *runs):
        """What runs say until they end. Those that do not end are ended, and
        fail by their exit codes, beside what they said."""
        late = threading.Timer(60, lambda: [run.kill() for run in runs])
        late.start()
        outputs = [run.communicate()[0] for run in runs]
        late.cancel()
        return outputs

    def test_mpirun(self):
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        run = subprocess.Popen(
            ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "3",
             *self.command("p3.gvx", "mpirun", "--checkpoint=mpirun",
                           "--checkpoint-every=10", "--restarts=3")],
            cwd=self.work, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        self.await_checkpoint("mpirun")
        children = pathlib.Path(
            f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        os.kill(attempt_of(children[1]), signal.SIGKILL)
        output, = self.outputs_of(run)
        self.assertEqual(run.returncode, 0, output)
        self.assertIn("3 processes over TCP", output)
        self.assertIn("note: restart 1 of 3 after ", output)
        self.assertEqual(self.losses("mpirun"), self.expected)

    def test_lost_at_the_end(self):
        """Who comes back when the others are done has nothing to wait for."""
        command = self.command("p3.gvx", "late", "--checkpoint=late")
        subprocess.run(command, cwd=self.work, check=True,
                       stdout=subprocess.DEVNULL)
        environment = dict(os.environ, WORLD_SIZE="3", RANK="1", LOCAL_RANK="1",
                           MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(free_port()),
                           GRT_RENDEZVOUS_SECONDS="1")
        run = subprocess.run(command + ["--resume", "--restarts=9"],
                             cwd=self.work, env=environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertEqual(run.stdout.count("did not meet process 0"), 2)
        self.assertIn("note: the run has done all its steps, and nobody waits "
                      "for this process", run.stdout)

    def test_fewer(self):
        environment = dict(os.environ, WORLD_SIZE="3", MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(free_port()),
                           GRT_ELASTIC_SECONDS="1")
        runs = []
        for rank in range(3):
            environment.update(RANK=str(rank), LOCAL_RANK=str(rank))
            runs.append(subprocess.Popen(
                self.command("p3.gvx", "fewer", "--checkpoint=fewer",
                             "--checkpoint-every=10", "--restarts=3",
                             "--elastic=few"), cwd=self.work,
                env=environment, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True))
        self.await_checkpoint("fewer")
        # The machine of process 1 is gone, for good.
        attempt = attempt_of(runs[1].pid)
        runs[1].kill()
        os.kill(attempt, signal.SIGKILL)
        outputs = self.outputs_of(*runs)
        self.assertEqual([runs[0].returncode, runs[2].returncode], [0, 0],
                         outputs)
        self.assertIn("note: going on with 2 ranks", outputs[0])
        self.assertIn("resumed from 'fewer/step-", outputs[0])
        found = self.losses("fewer")
        self.assertEqual(sorted(found), list(range(1, 151)))
        # Another plan: the same mathematics, not the same bits.
        for step, loss in found.items():
            self.assertAlmostEqual(loss, self.expected[step], delta=1e-3 * loss)


if __name__ == "__main__":
    unittest.main()
