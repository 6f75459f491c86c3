#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kills training runs at random moments and lets them go on.

    kill_and_resume.py --bin=build/bin [--kills=4] [--seed=N]

A run of examples/gpt2-tiny on four ranks writes a checkpoint after every step.
It is killed (SIGKILL) after a random time, which may fall into loading, a step or
the writing of a checkpoint, and started again with the same command. It must end
with the loss of a run that nobody disturbed, and with the same weights, bit by
bit. Then another run is killed a few times and goes on in turn as a program whose
states are on the host and come to two small arenas pack by pack (docs/harmony.md)
and as the first one: it ends with the same loss, up to rounding.
GALVATRON_LONG=1 kills 50 times.
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

    packs = os.path.join(folder, "packs.gvx")
    subprocess.run(
        [os.path.join(tools, "galvatron-compile"),
         os.path.join(source, "examples/gpt2-tiny/config.json"),
         "--cluster=2xcpu", "--memory=2500KiB", "--batch=8", "--space=harmony-pp",
         "-o", packs],
        check=True, stdout=subprocess.DEVNULL)

    def command(name, compiled=program):
        return [os.path.join(tools, "galvatron-run"), compiled,
                "--data=" + os.path.join(source, "LICENSE"), "--data-format=text",
                f"--steps={STEPS}", "--lr=3e-3", "--min-lr=1e-4", "--warmup-steps=5",
                f"--checkpoint={folder}/{name}", "--checkpoint-every=1", "--resume",
                f"--summary={folder}/{name}.json", f"--save={folder}/{name}-saved"]

    def result(name):
        with open(f"{folder}/{name}.json", encoding="utf-8") as file:
            loss = json.load(file)["final-loss"]
        with open(f"{folder}/{name}-saved/model.safetensors", "rb") as file:
            return loss, file.read()

    def finish(name, compiled=program):
        subprocess.run(command(name, compiled), check=True,
                       stdout=subprocess.DEVNULL)

    def steps_of(name):
        """The last step of which there is a whole checkpoint."""
        if not os.path.isdir(f"{folder}/{name}"):
            return 0
        return max((int(entry[5:]) for entry in os.listdir(f"{folder}/{name}")
                    if entry.startswith("step-")
                    and not entry.endswith(".partial")), default=0)

    def alternate(kills, duration):
        """Killed under either program in turn, ended under the other one."""
        name, reached, attempt = "mixed", [], 0
        while len(reached) < kills and attempt < 10 * kills:
            compiled = (packs, program)[len(reached) % 2]
            before = steps_of(name)
            process = subprocess.Popen(command(name, compiled),
                                       stdout=subprocess.DEVNULL)
            time.sleep(generator.uniform(0.2, 0.6) * duration)
            process.kill()
            died, attempt = process.wait() == -9, attempt + 1
            if not died or steps_of(name) == STEPS:
                shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
                reached = []
            elif steps_of(name) > before:
                reached.append(steps_of(name))
        if len(reached) < kills:
            sys.exit(f"no {kills} kills between the first step and the last "
                     f"(seed {seed})")
        finish(name, (packs, program)[len(reached) % 2])
        loss = result(name)[0]
        if abs(loss - expected[0]) > 1e-4 * expected[0]:
            sys.exit(f"packs and the other program in turn (seed {seed}), killed "
                     f"after steps {reached}: loss {loss}, expected {expected[0]}")
        print(f"packs and the other program in turn, killed after steps {reached}: "
              f"loss {loss}, {expected[0]} undisturbed")

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
        reached.append(steps_of(name))
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
    alternate(2 if kills <= 4 else 6, duration)


if __name__ == "__main__":
    main()
