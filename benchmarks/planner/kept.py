#!/usr/bin/python3
"""Plans with points of what layers keep against plans without.

    benchmarks/planner/kept.py [--only=TEXT] [--memory] [--rounds=N]
                               [--instructions] [--build=DIR]

Each row is a model on a cluster with a memory of every device: the time of the
best plan whose layers keep all or nothing (--no-selective), of the best one,
the difference, and the processor time of both calls and their ratio (the least
of N rounds in turn; start of the process included), and the middle of all
ratios. With --instructions it is millions of instructions of one call each that
count, which no load of the machine changes (valgrind). With --memory also the least memory
with which the plan with points is no slower than the other one with that of the
row, by halving five times.
"""

import argparse
import collections
import json
import pathlib
import re
import resource
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LLAMA = {"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
         "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8,
         "hidden_act": "silu", "max_position_embeddings": 131072,
         "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
         "tie_word_embeddings": False}
GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024,
        "n_embd": 1600, "n_layer": 48, "n_head": 25}
T5 = {"model_type": "t5", "vocab_size": 32128, "d_model": 1024, "d_kv": 128,
      "d_ff": 16384, "num_layers": 24, "num_decoder_layers": 24,
      "num_heads": 32, "relative_attention_num_buckets": 32,
      "dropout_rate": 0.1, "layer_norm_epsilon": 1e-6,
      "feed_forward_proj": "relu", "tie_word_embeddings": True}
#: Name, model, positions, cluster, batch, GiB of a device.
CASES = [("llama-8b", LLAMA, 4096, "8xh100", 64, (80, 60, 40, 24)),
         ("llama-8b", LLAMA, 16384, "8xh100", 16, (80, 60, 40)),
         ("llama-8b", LLAMA, 4096, "8xa100-80gb", 64, (80, 60, 40, 24)),
         ("llama-8b", LLAMA, 4096, "8xa100-40gb", 64, (40, 24)),
         ("gpt2-1.5b", GPT2, 1024, "8xa100-40gb", 128, (40, 24)),
         ("gpt2-1.5b", GPT2, 1024, "8xh100", 128, (80, 60, 40, 24)),
         ("t5-3b", T5, 512, "8xa100-40gb", 64, (40, 24)),
         ("t5-3b", T5, 512, "8xh100", 128, (80, 60, 40, 24))]


class Planner:
    def __init__(self, build, folder, case, counts=False):
        self.counts = counts
        _, model, positions, cluster, batch, _ = case
        self.plan = folder / "plan.json"
        config = folder / "config.json"
        config.write_text(json.dumps(model))
        self.command = [build / "bin" / "galvatron-plan", config,
                        f"--seq-len={positions}", "--dtype=bf16",
                        f"--cluster={cluster}", f"--batch={batch}",
                        f"--json={self.plan}"]

    def call(self, gib, option):
        """Time of a step, ms, or None; layers by point; processor time, ms, or
        millions of instructions."""
        counter = ["valgrind", "--tool=cachegrind", "--cache-sim=no",
                   "--cachegrind-out-file=/dev/null"] if self.counts else []
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run(
            counter + self.command + [f"--memory={int(gib * 1024)}MiB", option],
            capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        taken = (after - before) * 1e3
        if self.counts:
            counted = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr).group(1)
            taken = int(counted.replace(",", "")) / 1e6
        if done.returncode != 0:
            return None, {}, taken
        plan = json.loads(self.plan.read_text())
        points = collections.Counter()
        for layer in plan["layers"]:
            kept = layer["strategy"].rpartition(".ckpt")
            if kept[1]:
                points["ckpt" + kept[2]] += 1
        return plan["iteration-ms"], points, taken

    def least_memory(self, gib, ms):
        low, high = 0.0, 1.0
        for _ in range(5):
            part = (low + high) / 2
            found, _, _ = self.call(gib * part, "--selective")
            if found and found <= ms:
                high = part
            else:
                low = part
        return gib * high


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args()
    unit = "10^6 instructions" if options.instructions else "processor, ms"
    rounds = 1 if options.instructions else options.rounds
    print("| model | cluster, GiB | without, ms | with points, ms | | "
          f"{unit} | ratio |\n|---|---|---|---|---|---|---|")
    ratios = []
    for case in CASES:
        for gib in case[5]:
            name = f"{case[0]}, {case[2]} | {case[3]}, {gib}"
            if options.only not in name:
                continue
            with tempfile.TemporaryDirectory() as folder:
                planner = Planner(options.build, pathlib.Path(folder), case,
                                  options.instructions)
                quick = slow = float("inf")
                for _ in range(rounds):
                    less, _, taken = planner.call(gib, "--no-selective")
                    quick = min(quick, taken)
                    more, points, taken = planner.call(gib, "--selective")
                    slow = min(slow, taken)
                ratios.append(slow / quick)
                told = ", ".join(f"{point} x{count}"
                                 for point, count in sorted(points.items()))
                gain = ""
                if less and more:
                    gain = f"{(more / less - 1) * 100:+.1f}%"
                    if options.memory and more < less * 0.999:
                        least = planner.least_memory(gib, less)
                        gain += f", or {least:.1f} GiB"
                def text(ms):
                    return f"{ms:.1f}" if ms else "does not fit"
                print(f"| {name} | {text(less)} | {text(more)} {told} | {gain} "
                      f"| {quick:.0f}, {slow:.0f} | {slow / quick:.2f} |",
                      flush=True)
    if ratios:
        print(f"\nThe middle ratio is {statistics.median(ratios):.2f}.")


if __name__ == "__main__":
    main()
