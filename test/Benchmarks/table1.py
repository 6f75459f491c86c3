"""The generated models have the sizes of Table I of arXiv 2307.02031."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(
    0,
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                 "benchmarks", "models"))
import generate  # noqa: E402

# Transformer layers, millions of parameters, MiB of activations a sample.
TABLE = {
    "bert-huge-32": (32, 672, 3149.39),
    "bert-huge-48": (48, 987, 4657.51),
    "bert-xhuge": (128, 10200, 24210.05),
    "vit-huge-32": (32, 632, 646.5),
    "vit-huge-48": (48, 947, 968.59),
    "vit-xhuge": (128, 10100, 5313.9),
    "t5-large-32": (32, 502, 4119.66),
    "t5-large-48": (48, 737, 6107.75),
    "t5-512/4-32": (32, 502, 1777.06),
    "t5-512/4-48": (48, 737, 2473.10),
    "swin-huge-32": (32, 701, 726.59),
    "swin-huge-48": (48, 1016, 1016.8),
    "gpt3-15b": (48, 15400, 32889.04),
    "gpt3-39b": (48, 39100, 58645.34),
    "gpt3-65b": (80, 64900, 97557.98),
}

parser = argparse.ArgumentParser()
parser.add_argument("--bin", required=True)
arguments = parser.parse_args()
failures = []
if set(TABLE) != set(generate.MODELS):
    failures.append("expected the 15 models of Table I")
with tempfile.TemporaryDirectory() as folder:
    for model, (layers, parameters, activations) in TABLE.items():
        for separate in (False, True):
            profile = generate.profile(model, separate)
            count = sum(layer["count"] for layer in profile["layers"])
            if count != layers + 2 * separate:
                failures.append("%s: %d layers" % (model, count))
            own_parameters, own_activations = generate.totals(profile["layers"])
            if abs(own_parameters / 1e6 / parameters - 1) > 0.01:
                failures.append("%s: %.1f M parameters, expected %d" %
                                (model, own_parameters / 1e6, parameters))
            if abs(own_activations / activations - 1) > 0.10:
                failures.append("%s: %.2f MiB of activations, expected %.2f" %
                                (model, own_activations, activations))
            for layer in profile["layers"]:
                if not (0 <= layer["tp-replicated-bytes"] <=
                        layer["intermediate-bytes"]):
                    failures.append("%s: layer '%s' replicates %d of %d bytes" %
                                    (model, layer["name"],
                                     layer["tp-replicated-bytes"],
                                     layer["intermediate-bytes"]))
            # The planner takes it: DP on devices whose memory does not end.
            path = os.path.join(folder, "model.json")
            with open(path, "w", encoding="utf-8") as out:
                json.dump(profile, out)
            planned = subprocess.run([
                os.path.join(arguments.bin, "galvatron-plan"), path,
                "--cluster=8xrtx-titan", "--memory=4TiB", "--space=dp",
                "--batch=8", "--micro-batches=1"
            ], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                     check=False)
            if planned.returncode != 0:
                failures.append(planned.stderr)
print("\n".join(failures) or "%d models as in Table I" % len(TABLE))
sys.exit(bool(failures))
