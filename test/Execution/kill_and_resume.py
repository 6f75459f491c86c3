#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kills training runs at random moments and lets them go on.

    kill_and_resume.py --bin=build/bin [--kills=4] [--seed=N]

A run of examples/gpt2-tiny on four ranks writes a checkpoint after every step.
It is killed (SIGKILL) after a random time, which may fall into loading, a step or
the writing of a checkpoint, and started again with the same command. It must end
with the loss of a run that nobody disturbed, and with the same weights, bit by
bit. GALVATRON_LONG=1 kills 50 times.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

STEPS = 24


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    kills = arguments.kills or (50 if os.environ.get("GALVATRON_LONG") else 4)
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # In memory where possible: every checkpoint waits for the disk.
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="kill-and-resume-", dir=shared)
    try:
        run(arguments.bin, source, folder, kills, arguments.seed)
    finally:
        shutil.rmtree(folder)


def run(tools, source, folder, kills, seed):
    program = os.path.join(folder, "model.gvx")
    subprocess.run(
        [os.path.join(tools, "galvatron-compile"),
         os.path.join(source, "examples/gpt2-tiny/config.json"),
         "--cluster=4xcpu", "--memory=2MiB", "--batch=8", "-o", program],
        check=True, stdout=subprocess.DEVNULL)

    def command(name):
        return [os.path.join(tools, "galvatron-run"), program,
                "--data=" + os.path.join(source, "LICENSE"), "--data-format=text",
                f"--steps={STEPS}", "--lr=3e-3", "--min-lr=1e-4", "--warmup-steps=5",
                f"--checkpoint={folder}/{name}", "--checkpoint-every=1", "--resume",
                f"--summary={folder}/{name}.json", f"--save={folder}/{name}-saved"]

    def result(name):
        with open(f"{folder}/{name}.json", encoding="utf-8") as file:
            loss = json.load(file)["final-loss"]
        with open(f"{folder}/{name}-saved/model.safetensors", "rb") as file:
            return loss, file.read()

    def finish(name):
        subprocess.run(command(name), check=True, stdout=subprocess.DEVNULL)

    begin = time.monotonic()
    finish("whole")
    duration = time.monotonic() - begin
    expected = result("whole")
    generator = random.Random(seed)
    killed, reached = 0, []
    while killed < kills:
        name = f"run{killed}"
        process = subprocess.Popen(command(name), stdout=subprocess.DEVNULL)
        time.sleep(generator.uniform(0, duration))
        process.kill()
        if process.wait() != -9:
            # It was done before; that moment does not count.
            shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
            continue
        steps = [entry for entry in os.listdir(f"{folder}/{name}")
                 if entry.startswith("step-") and not entry.endswith(".partial")
                 ] if os.path.isdir(f"{folder}/{name}") else []
        reached.append(max((int(step[5:]) for step in steps), default=0))
        if reached[-1] == STEPS:
            shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
            reached.pop()
            continue
        finish(name)
        if result(name) != expected:
            sys.exit(f"kill {killed} (seed {seed}) after step {reached[-1]}: loss "
                     f"{result(name)[0]}, expected {expected[0]}, or other weights")
        shutil.rmtree(f"{folder}/{name}")
        killed += 1
    print(f"{killed} runs killed (seed {seed}) with checkpoints of steps {reached}, "
          f"all ended with loss {expected[0]}")


if __name__ == "__main__":
    main()
