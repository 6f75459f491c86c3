"""What the benchmarks of CPU ranks share: a model, and a call of a tool."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: A GPT-2 of 6.4 million parameters without dropout.
MODEL = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "vocab_size": 256,
    "n_positions": 128,
    "n_embd": 256,
    "n_layer": 8,
    "n_head": 8,
}


def tool(build, *command):
    """What a tool of the build folder prints; ends the script if it fails."""
    done = subprocess.run([str(build / "bin" / command[0]), *command[1:]],
                          capture_output=True, text=True)
    if done.returncode != 0:
        name = pathlib.Path(sys.argv[0]).name
        sys.exit(f"{name}: {' '.join(command)}:\n{done.stderr}")
    return done.stdout
