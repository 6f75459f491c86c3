#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans the GPTs of PipeDream-2BW's evaluation (arXiv 2006.09503) on V100s.

    two_buffers.py --bin=build/bin [--batch=512] [-o FOLDER]

Writes them as layer profiles from their shapes (values of two bytes, sequences
of 512, dropout; an embedding, blocks, a head with its copy of the embedding),
plans each with --space=2bw, and beside it with --space=dp+pp under 1F1B and
GPipe, on one and on eight nodes of eight, and prints a table. Bytes that a
block keeps are those of Korthikanti et al. (arXiv 2205.05198, Eq. 2): tokens *
width * (34 + 5 heads * tokens / width), of which the input counts apart.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

TOKENS, VOCABULARY = 512, 50257
MODELS = {"355M": (24, 1024, 16), "1.3B": (24, 2048, 16),
          "2.2B": (32, 2304, 32), "3.8B": (32, 3072, 32)}


def profile(layers, width, heads):
    boundary = 2 * TOKENS * width
    scores = heads * TOKENS * TOKENS
    logits = TOKENS * VOCABULARY
    block = {
        "name": "block", "count": layers,
        "forward-flops": 24 * TOKENS * width**2 + 4 * TOKENS**2 * width,
        # Two normalisations, two residual sums with dropout, the activation
        # (read and written), and the softmax with dropout over the scores.
        "forward-moved-bytes": 2 * (18 * TOKENS * width + 6 * scores),
        "forward-product-bytes": 2 * (20 * TOKENS * width + 2 * scores),
        "forward-kernels": 16,
        "parameter-bytes": 2 * (12 * width**2 + 13 * width),
        "boundary-bytes": boundary,
        "intermediate-bytes": 34 * TOKENS * width + 5 * scores - boundary,
    }
    embedding = {
        "name": "embedding", "count": 1, "forward-flops": 0,
        "forward-moved-bytes": 3 * boundary, "forward-product-bytes": 0,
        "forward-kernels": 3,
        "parameter-bytes": 2 * (VOCABULARY + TOKENS) * width,
        "boundary-bytes": 8 * TOKENS,
        "intermediate-bytes": TOKENS * width,
    }
    head = {
        "name": "head", "count": 1, "forward-flops": 2 * width * logits,
        "forward-moved-bytes": 10 * logits,
        "forward-product-bytes": boundary + 2 * logits, "forward-kernels": 6,
        "parameter-bytes": 2 * VOCABULARY * width,
        "boundary-bytes": boundary,
        # The logits in two bytes, their softmax in four.
        "intermediate-bytes": 6 * logits,
    }
    return {"version": 1, "dtype": "f16", "layers": [embedding, block, head]}


def planned(tool, path, cluster, batch, *options):
    """The plan, and the text beside it; no plan if nothing fits."""
    done = subprocess.run(
        [tool, path, f"--cluster={cluster}", f"--batch={batch}", "--json=-",
         *options], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return json.loads(done.stdout), done.stderr


def best_of(text, which):
    """Samples per second of `best WHICH recomputation: X samples/s, ...`."""
    for line in text.splitlines():
        if line.strip().startswith(f"best {which} recomputation"):
            return float(line.split(":")[1].split()[0])
    return 0.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("-o", dest="folder")
    options = parser.parse_args()
    tool = os.path.join(options.bin, "galvatron-plan")
    print("| model | devices | depth | width | samples a micro-batch and "
          "replica | recomputation | samples/s | recomputation gains | "
          "over 1F1B | over GPipe |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or scratch
        os.makedirs(folder, exist_ok=True)
        for name, shape in MODELS.items():
            path = os.path.join(folder, f"gpt-{name}.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(profile(*shape), file, indent=1)
            for devices, cluster in ((8, "8xv100-16gb"),
                                     (64, "8x8xv100-16gb")):
                plan, text = planned(tool, path, cluster, options.batch,
                                     "--space=2bw")
                if "infeasible" in plan:
                    print(f"| {name} | {devices} | nothing fits |")
                    continue
                speed = plan["samples-per-second"]
                without, with_it = (best_of(text, which)
                                    for which in ("without", "with"))
                gains = f"{100 * (with_it / without - 1):+.1f}%" if without \
                    and with_it else ("only so" if with_it else "does not fit")
                over = []
                for schedule in ("1f1b", "gpipe"):
                    rates = []
                    for degree in (1, 2, 4, 8, 16, 32):
                        for strategy in ("", ".ckpt"):
                            width = devices // degree
                            if width < 1 or degree > shape[0]:
                                continue
                            base = f"dp{width}" if width > 1 else "single"
                            other, _ = planned(
                                tool, path, cluster, options.batch,
                                f"--schedule={schedule}",
                                f"--strategy={base}{strategy}",
                                f"--pipeline-degree={degree}")
                            if "infeasible" not in other:
                                rates.append(other["samples-per-second"])
                    over.append(f"{speed / max(rates):.2f}" if rates
                                else "nothing fits")
                replica = options.batch // plan["micro-batches"] // plan["width"]
                print(f"| {name} | {devices} | {plan['pipeline-degree']} | "
                      f"{plan['width']} | {replica} | "
                      f"{'yes' if plan['recompute'] else 'no'} | {speed:.1f} | "
                      f"{gains} | {' | '.join(over)} |", flush=True)


if __name__ == "__main__":
    main()
