#!/usr/bin/env python3
#===- edits.py - IR edited as people edit it -----------------------------===//
#
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===----------------------------------------------------------------------===//
"""Edits printed IR in thirty ways and compiles it on.

  edits.py --bin=build/bin --page=docs/invariants.md [--write]

An edit that is accepted makes a program that runs two steps with the losses of
the unchanged one; one that is refused is refused with a message. Fails where
the table of the page says something else; --write writes the table there.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

CONFIG = ('{"model_type": "gpt2", "vocab_size": 256, "n_positions": 16, '
          '"n_embd": 32, "n_layer": 4, "n_head": 4}')
OPTIONS = ["--cluster=4xcpu", "--batch=8", "--pipeline-degree=2",
           "--micro-batches=2", "--dropout=off"]


def of_layer(name, old, new):
    """Replaces a text in the line of a layer."""
    def edit(text):
        lines = text.split("\n")
        for number, line in enumerate(lines):
            if f'layer "{name}"' in line:
                lines[number] = line.replace(old, new)
        return "\n".join(lines)
    return edit


def once(old, new):
    """Replaces the first text that matches."""
    return lambda text: re.sub(old, new, text, count=1)


def all_of(old, new):
    """Replaces every text that matches."""
    return lambda text: re.sub(old, new, text)


def swap_lines(one, other, behind=""):
    """Exchanges the first lines with two texts behind a third one."""
    def edit(text):
        lines = text.split("\n")
        start = next(i for i, line in enumerate(lines) if behind in line)
        at = [next(i for i in range(start, len(lines)) if each in lines[i])
              for each in (one, other)]
        lines[at[0]], lines[at[1]] = lines[at[1]], lines[at[0]]
        return "\n".join(lines)
    return edit


def edit_evaluation(text):
    """Micro-batch 1 in front of micro-batch 0, on both stages."""
    head, *parts = text.split("grt.part evaluate")
    flip = {"0": "1", "1": "0"}
    parts = [re.sub(r"((?:micro_batch|activation) )([01])",
                    lambda m: m[1] + flip[m[2]], part.split("}", 1)[0]) + "}" +
             part.split("}", 1)[1] for part in parts]
    return "grt.part evaluate".join([head, *parts])


def edit_offset(text):
    """The first offset that is not 0, 64 bytes later."""
    return re.sub(r"(grt.buffer transient at )([1-9]\d*)",
                  lambda m: m[1] + str(int(m[2]) + 64), text, count=1)


DP = "strategy = #galvatron.strategy<[dp = 2]>"


def strategy(text):
    """A strategy's attribute."""
    return f"strategy = #galvatron.strategy<{text}>"


KEPT = '["2", "3", "3:1", "6", "9"]'

# The phase, what somebody means to do, and how.
EDITS = [
    ("plan", "a layer on `tp2`", of_layer("h.0", DP, strategy("[tp = 2]"))),
    ("plan", "a layer on `sdp2`", of_layer("h.3", DP, strategy("[sdp = 2]"))),
    ("plan", "all layers on `zdp2`", all_of(re.escape(DP),
                                            strategy("[zdp = 2]"))),
    ("plan", "a layer that is recomputed",
     of_layer("h.1", DP, strategy("[dp = 2], ckpt"))),
    ("plan", "a layer on twice the devices of its stage",
     of_layer("h.0", DP, strategy("[dp = 4]"))),
    ("plan", "an axis that does not exist",
     of_layer("h.0", DP, strategy("[xp = 2]"))),
    ("plan", "a cut one layer later",
     of_layer("h.2", "stage = 1", "stage = 0")),
    ("plan", "a cut one layer earlier",
     of_layer("h.1", "stage = 0", "stage = 1")),
    ("plan", "a layer back in front of the cut",
     of_layer("h.3", "stage = 1", "stage = 0")),
    ("plan", "a stage more than there are",
     of_layer("head", "stage = 1", "stage = 2")),
    ("plan", "four micro-batches", once("micro_batches = 2",
                                        "micro_batches = 4")),
    ("plan", "three micro-batches", once("micro_batches = 2",
                                         "micro_batches = 3")),
    ("plan", "schedule `gpipe`", once('schedule = "1f1b"',
                                      'schedule = "gpipe"')),
    ("plan", "schedule `zb-h1`", once('schedule = "1f1b"',
                                      'schedule = "zb-h1"')),
    ("plan", "a schedule that does not exist",
     once('schedule = "1f1b"', 'schedule = "1f2b"')),
    ("plan", "four stages, and layers of two",
     once("pipeline_degree = 2", "pipeline_degree = 4")),
    ("kept", "a kept value less", once(re.escape(KEPT),
                                       '["2", "3", "3:1", "6"]')),
    ("kept", "a value that the body does not have",
     once(re.escape(KEPT), '["2", "3", "3:1", "6", "99"]')),
    ("split", "devices in another order", once(r"devices \[2, 3\]",
                                               "devices [3, 2]")),
    ("split", "a device of the other stage", once(r"devices \[2, 3\]",
                                                  "devices [1, 3]")),
    ("partition", "another epsilon", once("eps = 1.000000e-05",
                                          "eps = 1.000000e-06")),
    ("bufferize", "a layout of half the bytes", once("output_bytes = 4096",
                                                     "output_bytes = 2048")),
    ("schedule", "evaluation from the last micro-batch on", edit_evaluation),
    ("schedule", "an update in front of the norm",
     swap_lines("grt.task norm", "grt.task update")),
    ("schedule", "a backward pass in front of its gradient",
     swap_lines("grt.task backward micro_batch 0", "send_activation 1",
                "@stage0.schedule")),
    ("schedule", "the second micro-batch forward at once, and sent later",
     swap_lines("grt.task transfer send_activation 0",
                "grt.task forward micro_batch 1", "@stage0.schedule")),
    ("schedule", "without the norm", once(r"\n *grt.task norm", "")),
    ("schedule", "a transfer to the other rank",
     once(re.escape("[[0, 2, 0, 0, 2], [1, 3, 0, 0, 2]]"),
          "[[0, 3, 0, 0, 2], [1, 2, 0, 0, 2]]")),
    ("schedule", "two slots in place of one", once("slots 1 attributes",
                                                   "slots 2 attributes")),
    ("allocate", "a temporary somewhere else", edit_offset),
]


def outcome_of(options, folder, number, phase, text, losses):
    """What becomes of edited IR, as the page says it."""
    path = os.path.join(folder, f"edit{number}.mlir")
    program = os.path.join(folder, f"edit{number}.gvx")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    compiled = subprocess.run(
        [os.path.join(options.bin, "galvatron-compile"), path,
         f"--compile-from={phase}", "-o", program],
        capture_output=True, text=True, check=False)
    if compiled.returncode:
        if compiled.returncode < 0:
            return f"crashed: signal {-compiled.returncode}"
        line = compiled.stderr.strip().split("\n")[0]
        # Without the place, and numbers of values.
        line = line.split("error: ", 1)[-1].split(": ", 1)[-1]
        return re.sub(r"\b[0-9a-f]{16}\b", "..", line)
    found = run(options, folder, program)
    return "works" if found == losses else f"other losses: {found}"


def run(options, folder, program):
    """The losses of two steps, of five digits."""
    done = subprocess.run(
        [os.path.join(options.bin, "galvatron-run"), program,
         "--data=" + os.path.join(folder, "text"), "--data-format=text",
         "--steps=2"], capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip()
    return re.findall(r"loss +(\d+\.\d{1,4})", done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", required=True, help="folder of the tools")
    parser.add_argument("--page", required=True, help="has the table")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="galvatron-") as folder:
        with open(os.path.join(folder, "text"), "w", encoding="utf-8") as file:
            file.write("the quick brown fox jumps over the lazy dog. " * 40)
        config = os.path.join(folder, "config.json")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG)
        tool = os.path.join(options.bin, "galvatron-compile")
        base, texts = os.path.join(folder, "base.gvx"), {}
        subprocess.run([tool, config, *OPTIONS, "--strategy=dp2", "-o", base],
                       check=True, capture_output=True)
        losses = run(options, folder, base)
        if len(losses) < 2:
            raise SystemExit(f"the unchanged program: {losses}")
        for number, (phase, what, edit) in enumerate(EDITS):
            if phase not in texts:
                texts[phase] = subprocess.run(
                    [tool, config, *OPTIONS,
                     "--strategy=dp2" + (".ckpt2" if phase == "kept" else ""),
                     "--compile-to=" + ("plan" if phase == "kept" else phase),
                     "-o", "-"], check=True, capture_output=True,
                    text=True).stdout
            text = edit(texts[phase])
            if text == texts[phase]:
                raise SystemExit(f"'{what}' changes nothing")
            at = "plan" if phase == "kept" else phase
            outcome = outcome_of(options, folder, number, at, text, losses)
            rows.append(f"| {number + 1} | {at} | {what} | {outcome} |")
    with open(options.page, encoding="utf-8") as file:
        page = file.read()
    head = "| | phase | edit | outcome |\n|---|---|---|---|\n"
    begin = page.index(head) + len(head)
    end = page.index("\n\n", begin)
    table = "\n".join(rows)
    if options.write:
        with open(options.page, "w", encoding="utf-8") as file:
            file.write(page[:begin] + table + page[end:])
        return 0
    expected = page[begin:end].split("\n")
    for row, wanted in zip(rows, expected):
        if row != wanted:
            print(f"expected {wanted}\nfound    {row}")
    print(f"{len(rows)} edits")
    return rows != expected


if __name__ == "__main__":
    sys.exit(main())
