# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models through the tools: plans, programs, runs, and what goes wrong."""

import json
import math
import os
import signal
import subprocess
import sys
import unittest

import galvatron
from galvatron import tools

from .support import EXAMPLES, SOURCE, TEXT, FolderTest

TINY = EXAMPLES / "gpt2-tiny" / "config.json"


class PlanTest(FolderTest):
    def test_is_data(self):
        plan = galvatron.from_config(TINY).plan("4xcpu", memory="2560KiB", batch=8)
        self.assertEqual(plan.batch, 8)
        self.assertLessEqual(plan.peak_bytes, 2560 * 1024)
        self.assertEqual([layer.name for layer in plan.layers],
                         ["wte", "h.0", "h.1", "h.2", "h.3", "head"])
        devices = [d for stage in plan.stages for d in stage.devices]
        self.assertEqual(sorted(devices), [0, 1, 2, 3])
        for stage in plan.stages:
            self.assertEqual(sum(stage.ledger.values()), stage.peak_bytes)
        self.assertIn("batch 8", repr(plan))
        self.assertIn(plan.strategy("h.0"), repr(plan))
        self.assertIn("plan for 'gpt2' on '4xcpu'", str(plan))
        with self.assertRaisesRegex(KeyError, "unknown layer 'h.9'"):
            plan.strategy("h.9")

    def test_is_obeyed_after_a_file(self):
        model = galvatron.from_config(TINY)
        plan = model.plan("4xcpu", batch=8, strategy="sdp2.tp2", pipeline_degree=1)
        plan.save(self.folder / "plan.json")
        again = galvatron.Plan.load(self.folder / "plan.json")
        self.assertEqual(again.data, plan.data)
        program = model.compile(plan=again)
        self.assertEqual({layer["strategy"] for layer in program.facts["layers"]},
                         {"sdp2.tp2"})
        self.assertEqual(program.ranks, 4)

    def test_options_that_cost_bytes_follow_the_plan(self):
        model = galvatron.from_config(TINY)
        plan = model.plan("2xcpu", batch=4, dtype="f64", optimizer="sgd")
        program = model.compile(plan=plan)
        self.assertEqual((program.facts["dtype"], program.facts["optimizer"]),
                         ("f64", "sgd"))

    def test_memory_may_be_a_number_of_bytes(self):
        plan = galvatron.from_config(TINY).plan("4xcpu", batch=8, memory=2560 * 1024)
        self.assertEqual(plan.stages[0].available_bytes, 2560 * 1024)

    def test_report_is_a_page(self):
        plan = galvatron.Model(EXAMPLES / "toy" / "toy.mlir").plan("2xcpu", batch=4)
        self.assertIn("<html", plan.report().lower())
        self.assertIn("srcdoc", plan._repr_html_())

    def test_what_does_not_fit_says_what_would_help(self):
        with self.assertRaises(galvatron.Infeasible) as caught:
            galvatron.from_config(TINY).plan("4xcpu", batch=8, memory="1KiB")
        self.assertIn("raise the memory of each device",
                      " ".join(caught.exception.relaxations))
        self.assertGreater(caught.exception.details["needed-bytes"], 1024)
        self.assertIn("no plan of space", str(caught.exception))
        with self.assertRaises(galvatron.Infeasible):
            galvatron.from_config(TINY).compile(cluster="4xcpu", batch=8,
                                                memory="1KiB")


class ProgramTest(FolderTest):
    def test_trains_evaluates_continues_and_keeps_its_weights(self):
        model = galvatron.from_config(TINY)
        model.compile(cluster="2xcpu", batch=4, dropout=False)
        training = model.train(TEXT, 6, lr=3e-3, weight_decay=0.0)
        steps = list(training)
        self.assertEqual([step.step for step in steps], [1, 2, 3, 4, 5, 6])
        self.assertLess(steps[-1].loss, steps[0].loss)
        self.assertAlmostEqual(steps[0].loss, math.log(256), delta=0.5)
        self.assertEqual(training.summary.ended_by, "completed")
        self.assertEqual(training.summary.final_loss, steps[-1].loss)
        evaluation = model.evaluate(TEXT)
        self.assertLess(evaluation.loss, steps[0].loss)
        self.assertAlmostEqual(evaluation.perplexity, math.exp(evaluation.loss))
        self.assertTrue(0 < evaluation.accuracy < 1)
        self.assertEqual(len(model.generate("a small ", 5).encode()), 5)
        weights = model.state_dict()
        self.assertEqual(weights.shape("transformer.wte.weight"), (256, 64))
        # What follows begins with these weights.
        with model.train(TEXT, 1) as more:
            self.assertLess(next(more).loss, steps[0].loss)

    def test_several_data_formats_are_the_same_tokens(self):
        model = galvatron.from_config(TINY)
        model.compile(cluster="1xcpu", batch=2)
        path = self.write("text.txt", TEXT)
        losses = {model.program.train(data, 1, seed=3).wait().final_loss
                  for data in (TEXT, path, [path], list(TEXT), {"tokens": path},
                               {"tokens": list(TEXT)})}
        self.assertEqual(len(losses), 1)

    def test_gradients_are_safetensors(self):
        model = galvatron.Model(EXAMPLES / "toy" / "toy.mlir")
        program = model.compile(self.folder / "toy.gvx", cluster="1xcpu", batch=4)
        self.assertTrue((self.folder / "toy.gvx").exists())
        program.gradients([1, 2, 3, 4, 5] * 20, self.folder / "g.safetensors")
        gradients = galvatron.Weights(self.folder / "g.safetensors")
        self.assertEqual(gradients.shape("embed.table"), (16, 8))

    def test_leaving_a_block_ends_the_run_and_saves(self):
        model = galvatron.from_config(TINY)
        model.compile(cluster="1xcpu", batch=2)
        with model.train(TEXT, 10**6) as training:
            next(training)
        self.assertEqual(training.summary.ended_by, "SIGINT")
        self.assertLess(training.summary.steps, 10**6)
        self.assertEqual(model.state_dict().dtype("transformer.wte.weight"), "F32")
        self.assertIsNone(next(training, None))

    def test_ctrl_c_ends_the_run_and_saves(self):
        script = self.write("script.py", f"""
import galvatron
model = galvatron.from_config({str(TINY)!r})
model.compile(cluster="1xcpu", batch=2)
try:
    for step in model.train({TEXT!r}, 10**6, save="saved"):
        if step.step == 1:
            print("began", flush=True)
except KeyboardInterrupt:
    print("interrupted", model.weights, flush=True)
""")
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        process = subprocess.Popen([sys.executable, str(script)], cwd=self.folder,
                                   env=environment, stdout=subprocess.PIPE,
                                   text=True)
        with process:
            self.assertEqual(process.stdout.readline(), "began\n")
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.stdout.read(), "interrupted saved\n")
        self.assertEqual(process.returncode, 0)
        self.assertTrue((self.folder / "saved" / "model.safetensors").exists())


class WrongInputTest(FolderTest):
    """Every error is an exception with a message that names what is wrong."""

    def refused(self, message, call, kind=galvatron.InvalidInput):
        with self.assertRaisesRegex(kind, message):
            call()

    def test_files(self):
        self.refused("found no file", lambda: galvatron.Model("nowhere.mlir"))
        self.refused("found no file", lambda: galvatron.from_config(self.folder))
        broken = self.write("config.json", "{")
        self.refused("config.json", galvatron.from_config(broken).ir)
        other = self.write("config.json", json.dumps({"model_type": "gpt5"}))
        self.refused("unknown model type 'gpt5'", galvatron.from_config(other).ir)
        self.refused("wrong.mlir", lambda: galvatron.Model(
            self.write("wrong.mlir", "galvatron.model {")).plan("1xcpu", batch=1))

    def test_planning(self):
        model = galvatron.from_config(TINY)
        self.refused("unknown device type 'foo'", lambda: model.plan("5xfoo"))
        self.refused("--batchh", lambda: model.plan("1xcpu", batchh=1))
        self.refused("memory", lambda: model.plan("1xcpu", batch=1, memory="1 potato"))
        self.refused("strategy", lambda: model.plan("1xcpu", batch=1, strategy="tp"))
        self.refused("seq", lambda: galvatron.from_config(
            TINY, seq_len=1000).plan("1xcpu", batch=1))
        self.refused("cluster", lambda: model.compile(batch=1))
        self.refused("decoder", galvatron.from_config(TINY, decoder_seq_len=4).ir)

    def test_plans(self):
        self.refused("the JSON object of a plan", lambda: galvatron.Plan.load(
            self.write("plan.json", "[]")))
        self.refused("plan.json", lambda: galvatron.Plan.load(
            self.write("plan.json", "{")))
        self.refused("a plan with the key 'version'", lambda: galvatron.Plan({}))
        plan = galvatron.from_config(TINY).plan("1xcpu", batch=1)
        self.refused("does not know its model",
                     lambda: galvatron.Plan(plan.data).report())
        toy = galvatron.Model(EXAMPLES / "toy" / "toy.mlir")
        self.refused("layer", lambda: toy.compile(plan=plan))

    def test_runs(self):
        model = galvatron.from_config(TINY)
        self.refused("call 'compile' first", lambda: model.train(TEXT, 1))
        self.refused("call 'compile' first", lambda: model.evaluate(TEXT))
        self.refused("expected weights", model.state_dict)
        program = model.compile(cluster="1xcpu", batch=2)
        self.refused("nowhere.txt", lambda: program.train("nowhere.txt", 1).wait())
        self.refused("--lrr", lambda: program.train(TEXT, 1, lrr=1).wait())
        self.refused("found 'float'", lambda: program.train(0.5, 1))
        self.refused("a path, bytes", lambda: program.train(["a", 1], 1))
        self.refused("found -1", lambda: program.train([1, -1], 1))
        self.refused("ranks", lambda: program.train(TEXT, 1, ranks=3).wait())
        self.refused("less than the vocabulary",
                     lambda: program.train([256] * 100, 1).wait())
        self.refused("a text to continue", lambda: program.generate(""))
        self.refused("safetensors",
                     lambda: program.evaluate(TEXT, init=self.folder))
        self.refused("gvx", lambda: galvatron.Program(
            self.write("not.gvx", "nothing")))
        self.refused("the loss is nan", lambda: program.train(
            TEXT, 50, lr=1e30, clip_norm=1e30).wait(), galvatron.NumericsError)

    def test_tools_that_are_not_there(self):
        before = os.environ.get("GALVATRON_BIN")
        os.environ["GALVATRON_BIN"] = str(self.folder)
        try:
            self.refused("GALVATRON_BIN names", lambda: tools.find("galvatron-plan"),
                         galvatron.ToolNotFound)
        finally:
            os.environ.pop("GALVATRON_BIN")
            if before is not None:
                os.environ["GALVATRON_BIN"] = before


class ImportTest(unittest.TestCase):
    def test_needs_no_torch_and_no_numpy(self):
        code = "import sys, galvatron; " \
               "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
        environment = dict(os.environ, PYTHONPATH=str(SOURCE / "python"))
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)


if __name__ == "__main__":
    unittest.main()
