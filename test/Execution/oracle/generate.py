#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Golden losses, gradients and updates of small models, from PyTorch.

    scripts/bootstrap --oracle
    test/Execution/oracle/generate.py [CASE ..]   # writes .json files beside it

GPT-2 is written out below in float64, in the layout of Hugging Face's
checkpoints (`Conv1D` weights are [in, out]; query, key and value are one
projection), other decoders in decoders.py, encoders in encoders.py, what has both in
encoder_decoders.py and bart.py, ModernBERT in modernbert.py, Swin in windows.py, so that nothing but PyTorch is needed. Weights
and data come from an integer hash that any language reproduces exactly; no weight file
is needed.
unittests/Execution/OracleTest.cpp compiles the same models, runs them and
compares.

Contents of a file: `config` (the model as a Hugging Face config.json), `seq-len`,
`decoder-seq-len` of models with a decoder beside their encoder, `batch`, `gradients` (of step 1, every parameter, little-endian float64 in
base64), and `runs`: optimizer, hyperparameters, `lr` per step, and what came out:
`losses`, `gradient-norms` (before clipping), `parameters` after the last step as a
digest: Euclidean norm, eight entries, four sums with signs from the hash, all with
the biases of attention keys set to zero.
"""

import base64
import json
import math
import os
import sys

import bart
import decoders
import encoder_decoders
import encoders
import modernbert
import numpy as np
import torch
import windows

MASK = (1 << 64) - 1
STEPS = 5


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def hashes(name, count):
    """splitmix64 of fnv1a(name) + i for i < count, as uint64."""
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a(name)) + np.arange(count, dtype=np.uint64)
        z = (z + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(name, count):
    """Numbers in [-1, 1), multiples of 2^-23: exact in float32 as well."""
    return (hashes(name, count) >> np.uint64(40)).astype(np.float64) / 2**23 - 1


def initial(name, shape):
    """1 + u/4 for layer norm gains, u/8 for other vectors, u/4 for matrices."""
    u = uniform(name, math.prod(shape)).reshape(shape)
    if len(shape) > 1:
        return u / 4
    return 1 + u / 4 if name.endswith(".weight") else u / 8


def is_key_bias(config, name):
    """Whether it is a bias of keys that are not rotated."""
    rotated = config["model_type"] in ("gpt_neox", "falcon")
    return (name.endswith(".key.bias") and not rotated
            or name.endswith(".k_lin.bias")
            or name.endswith(".k_proj.bias") and name.startswith(
                ("model.decoder.", "model.encoder.")))


def written_elsewhere(config):
    """The module for a family whose data are more than tokens and labels."""
    return {"bert": encoders, "swin": windows, "t5": encoder_decoders,
            "mt5": encoder_decoders, "umt5": encoder_decoders,
            "electra": encoders, "albert": encoders, "distilbert": encoders,
            "roberta": encoders, "vit": encoders, "deit": encoders,
            "dinov2": encoders,
            "bart": bart, "mbart": bart, "pegasus": bart,
            "modernbert": modernbert}.get(config["model_type"])


def batch(config, seq_len, samples, step):
    """What the model takes: tokens and labels; from step 2 on some labels are -1,
    which do not count. Encoders take a dictionary."""
    family = written_elsewhere(config)
    if family:
        return family.batch(config, seq_len, samples, step, hashes, uniform)
    draws = hashes(f"tokens.{step}", samples * (seq_len + 1))
    row = (draws % np.uint64(config["vocab_size"])).astype(np.int64)
    row = row.reshape(samples, seq_len + 1)
    tokens, labels = row[:, :-1].copy(), row[:, 1:].copy()
    if step > 1:
        skip = hashes(f"skip.{step}", samples * seq_len).reshape(labels.shape)
        labels[skip % np.uint64(5) == 0] = -1
    return torch.from_numpy(tokens), torch.from_numpy(labels)


def parameter_shapes(config):
    family = written_elsewhere(config)
    if family:
        return family.parameter_shapes(config)
    if config["model_type"] != "gpt2":
        return decoders.parameter_shapes(config)
    width, inner = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
    shapes = {
        "transformer.wte.weight": (config["vocab_size"], width),
        "transformer.wpe.weight": (config["n_positions"], width),
    }
    for i in range(config["n_layer"]):
        block = f"transformer.h.{i}."
        shapes |= {
            block + "ln_1.weight": (width,),
            block + "ln_1.bias": (width,),
            block + "attn.c_attn.weight": (width, 3 * width),
            block + "attn.c_attn.bias": (3 * width,),
            block + "attn.c_proj.weight": (width, width),
            block + "attn.c_proj.bias": (width,),
            block + "ln_2.weight": (width,),
            block + "ln_2.bias": (width,),
            block + "mlp.c_fc.weight": (width, inner),
            block + "mlp.c_fc.bias": (inner,),
            block + "mlp.c_proj.weight": (inner, width),
            block + "mlp.c_proj.bias": (width,),
        }
    shapes |= {"transformer.ln_f.weight": (width,), "transformer.ln_f.bias": (width,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], width)
    return shapes


def gelu(config, x):
    if config["activation_function"] == "gelu":
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))


def loss_of(config, p, tokens, labels, run):
    """The loss, and the z-loss, which is no part of it."""
    if config["model_type"] != "gpt2":
        return decoders.loss_of(config, p, tokens, labels), 0
    width, heads = config["n_embd"], config["n_head"]
    samples, length = tokens.shape

    def norm(x, name):
        return torch.nn.functional.layer_norm(
            x, (width,), p[name + ".weight"], p[name + ".bias"],
            config["layer_norm_epsilon"])

    def linear(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    def split(x):
        return x.view(samples, length, heads, width // heads).transpose(1, 2)

    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][:length]
    for i in range(config["n_layer"]):
        block = f"transformer.h.{i}."
        qkv = linear(norm(x, block + "ln_1"), block + "attn.c_attn")
        q, k, v = (split(part) for part in qkv.split(width, dim=2))
        scores = q @ k.transpose(2, 3)
        if config["scale_attn_weights"]:
            scores = scores / math.sqrt(width // heads)
        scores = scores.masked_fill(hidden, -math.inf)
        o = torch.softmax(scores, dim=3) @ v
        o = o.transpose(1, 2).reshape(samples, length, width)
        x = x + linear(o, block + "attn.c_proj")
        h = gelu(config, linear(norm(x, block + "ln_2"), block + "mlp.c_fc"))
        x = x + linear(h, block + "mlp.c_proj")
    head = p.get("lm_head.weight", p["transformer.wte.weight"])
    logits = norm(x, "transformer.ln_f") @ head.T
    logits, labels = logits.reshape(samples * length, -1), labels.reshape(-1)
    loss = torch.nn.functional.cross_entropy(
        logits, labels, ignore_index=-1,
        label_smoothing=run.get("label-smoothing", 0.0))
    squares = torch.logsumexp(logits[labels >= 0], dim=1) ** 2
    return loss, run.get("z-loss", 0.0) * squares.mean()


def digest(config, name, tensor):
    flat = tensor.detach().numpy().reshape(-1).copy()
    if name.endswith("attn.c_attn.bias"):
        # Biases of keys: softmax does not see them, so their true gradient is
        # zero, and AdamW makes updates of what rounding leaves of it.
        flat[flat.size // 3 : 2 * flat.size // 3] = 0
    if is_key_bias(config, name):
        flat[:] = 0
    places = (hashes(name + ".entries", 8) % np.uint64(flat.size)).astype(np.int64)
    sums = []
    for i in range(4):
        odd = hashes(f"{name}.signs.{i}", flat.size) % np.uint64(2)
        sums.append(float(np.where(odd == 1, flat, -flat).sum()))
    return {
        "norm": float(np.linalg.norm(flat)),
        "entries": [[int(at), float(flat[at])] for at in places],
        "sums": sums,
    }


def train(config, seq_len, samples, run):
    frozen = getattr(written_elsewhere(config), "frozen", lambda config: ())(config)
    p = {
        name: torch.tensor(initial(name, shape), requires_grad=name not in frozen)
        for name, shape in parameter_shapes(config).items()
    }
    trained = [t for t in p.values() if t.requires_grad]
    decayed = [t for t in trained if t.dim() > 1]
    plain = [t for t in trained if t.dim() == 1]
    groups = [
        {"params": decayed, "weight_decay": run["weight-decay"]},
        {"params": plain, "weight_decay": 0.0},
    ]
    if run["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(groups, lr=1.0, momentum=run["momentum"])
    else:
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[run["optimizer"]]
        optimizer = kind(groups, lr=1.0, betas=tuple(run["betas"]), eps=run["eps"])
    losses, z_losses, norms, gradients = [], [], [], None
    for step in range(1, STEPS + 1):
        data = batch(config, seq_len, samples, step)
        optimizer.zero_grad()
        family = written_elsewhere(config)
        loss, z_loss = ((family.loss_of(config, p, data), 0) if family
                        else loss_of(config, p, *data, run))
        (loss + z_loss).backward()
        if gradients is None:
            gradients = {name: t.grad.clone().numpy() for name, t in p.items()
                         if t.requires_grad}
        limit = run["clip-norm"] or math.inf
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, limit)))
        losses.append(float(loss))
        z_losses.append(float(z_loss))
        for group in optimizer.param_groups:
            group["lr"] = run["lr"][step - 1]
        optimizer.step()
    result = dict(run)
    result["losses"] = losses
    if "z-loss" in run:
        result["z-losses"] = z_losses
    result["gradient-norms"] = norms
    result["parameters"] = {name: digest(config, name, t) for name, t in p.items()}
    return result, gradients


def schedule(top, low, warmup):
    """Linear warm-up to `top`, then a cosine to `low` at the last step."""
    rates = []
    for step in range(1, STEPS + 1):
        if step <= warmup:
            rates.append(top * step / warmup)
        else:
            done = (step - warmup) / (STEPS - warmup)
            rates.append(low + (top - low) * (1 + math.cos(math.pi * done)) / 2)
    return rates


def config(**changes):
    fields = {
        "model_type": "gpt2", "vocab_size": 61, "n_positions": 20, "n_embd": 24,
        "n_layer": 3, "n_head": 4, "n_inner": None,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
        "attn_pdrop": 0.0, "scale_attn_weights": True, "tie_word_embeddings": True,
    }
    return fields | changes


ADAMW = {"optimizer": "adamw", "betas": [0.9, 0.95], "eps": 1e-8,
         "weight-decay": 0.1, "clip-norm": 1.0, "lr": schedule(1e-2, 1e-3, 2)}
ADAM = {"optimizer": "adam", "betas": [0.9, 0.999], "eps": 1e-6,
        "weight-decay": 0.02, "clip-norm": None, "lr": [3e-3] * STEPS}
SGD = {"optimizer": "sgd", "momentum": 0.9, "weight-decay": 0.01,
       "clip-norm": 0.5, "lr": schedule(0.5, 0.05, 1)}

# Both far from 0, so that each shows.
TERMS = {**SGD, "label-smoothing": 0.1, "z-loss": 0.02}

CASES = {
    "gpt2-tied": (config(), [ADAMW, ADAM, SGD]),
    "gpt2-untied": (
        config(vocab_size=37, n_embd=20, n_layer=2, n_head=2, n_inner=28,
               activation_function="gelu", layer_norm_epsilon=1e-3,
               scale_attn_weights=False, tie_word_embeddings=False),
        [ADAMW]),
    "gpt2-terms": (config(vocab_size=37, n_embd=20, n_layer=2, n_head=2), [TERMS]),
    **{name: (model, [ADAMW]) for name, model in decoders.CASES.items()},
    **{name: (model, [ADAMW]) for name, model in encoders.CASES.items()},
    **{name: (model, [ADAMW]) for name, model in encoder_decoders.CASES.items()},
    **{name: (model, [ADAMW]) for name, model in bart.CASES.items()},
    **{name: (model, [ADAMW]) for name, model in modernbert.CASES.items()},
    **{name: (model, [ADAMW]) for name, model in windows.CASES.items()},
}


def main():
    torch.set_num_threads(1)
    folder = os.path.dirname(os.path.abspath(__file__))
    seq_len, samples = 16, 8
    for name in sys.argv[1:] or CASES:
        model, runs = CASES[name]
        results = [train(model, seq_len, samples, run) for run in runs]
        golden = {
            "generator": "test/Execution/oracle/generate.py",
            "torch": torch.__version__.split("+")[0],
            "config": model,
            # Images make the length of their sequences.
            "seq-len": 0 if model["model_type"] in ("swin", *encoders.IMAGES) else seq_len,
            **({"decoder-seq-len": encoder_decoders.DECODER_LENGTH}
               if model["model_type"] in (
                   "t5", "mt5", "umt5", "bart", "mbart", "pegasus") else {}),
            "batch": samples,
            "runs": [run for run, _ in results],
            "gradients": {
                key: base64.b64encode(value.astype("<f8").tobytes()).decode()
                for key, value in results[0][1].items()
            },
        }
        path = os.path.join(folder, name + ".json")
        with open(path, "w", encoding="ascii") as file:
            json.dump(golden, file, indent=1)
            file.write("\n")
        for run in golden["runs"]:
            print(name, run["optimizer"], "losses",
                  " ".join(f"{loss:.6f}" for loss in run["losses"]), "norms",
                  " ".join(f"{norm:.4f}" for norm in run["gradient-norms"]))


if __name__ == "__main__":
    main()
