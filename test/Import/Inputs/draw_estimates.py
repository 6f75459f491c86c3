# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws configurations of families that are only planned.

The property: an estimate counts as many parameters as its family's tensors have,
written out here one by one, a tied table once; with the shapes of a
`model.safetensors` beside it an unknown family is counted exactly, too; and a
field that could mean another model is refused by its name.
"""

import json
import math
import os
import random
import re
import subprocess
import struct
import tempfile

COUNT = 200


def sizes(rng):
    head = rng.choice([4, 8, 16])
    keys = rng.choice([1, 2, 4])
    heads = keys * rng.choice([1, 2, 3])
    return {"h": heads * head, "heads": heads, "keys": keys, "head": head,
            "f": rng.randrange(8, 200), "layers": rng.randrange(1, 5),
            "v": rng.randrange(50, 900), "p": rng.randrange(8, 64)}


def common(s):
    return {"hidden_size": s["h"], "num_attention_heads": s["heads"],
            "num_hidden_layers": s["layers"], "intermediate_size": s["f"],
            "vocab_size": s["v"], "max_position_embeddings": s["p"]}


def attention(s, keys, bias, out_bias):
    q, k = s["heads"] * s["head"], keys * s["head"]
    names = {"q": [q, s["h"]], "k": [k, s["h"]], "v": [k, s["h"]], "o": [s["h"], q]}
    if bias:
        names |= {"qb": [q], "kb": [k], "vb": [k]}
    return names | ({"ob": [s["h"]]} if out_bias else {})


def feed_forward(s, gated, bias):
    names = {"up": [s["f"], s["h"]], "down": [s["h"], s["f"]]}
    if gated:
        names["gate"] = [s["f"], s["h"]]
    if bias:
        names |= {"upb": [s["f"]], "downb": [s["h"]]}
        if gated:
            names["gateb"] = [s["f"]]
    return names


def norms(s, count, bias):
    names = {f"n{i}": [s["h"]] for i in range(count)}
    return names | ({f"n{i}b": [s["h"]] for i in range(count)} if bias else {})


def outside(s, tied, final=1, **more):
    names = {"embed": [s["v"], s["h"]], **more}
    names |= {f"final{i}": [s["h"]] for i in range(final)}
    return names if tied else names | {"head": [s["v"], s["h"]]}


# Each gives the configuration, the tensors of a block and those outside.
def vaultgemma(rng, s):
    tied = rng.choice([True, True, None])
    config = {**common(s), "model_type": "vaultgemma", "head_dim": s["head"] * 2,
              "num_key_value_heads": s["keys"], "hidden_act": "gelu",
              "rms_norm_eps": 1e-6}
    if tied:
        config["tie_word_embeddings"] = True
    s = {**s, "head": s["head"] * 2}
    return config, {**attention(s, s["keys"], False, False),
                    **feed_forward(s, True, False), **norms(s, 2, False)}, \
        outside(s, True)


def seed_oss(rng, s):
    tied, bias = rng.random() < 0.5, rng.random() < 0.5
    config = {**common(s), "model_type": "seed_oss", "attention_bias": bias,
              "attention_out_bias": not bias, "head_dim": s["head"],
              "num_key_value_heads": s["keys"], "tie_word_embeddings": tied,
              "hidden_act": "silu"}
    return config, {**attention(s, s["keys"], bias, not bias),
                    **feed_forward(s, True, False), **norms(s, 2, False)}, \
        outside(s, tied)


def iquestcoder(rng, s):
    tied, bias = rng.random() < 0.5, rng.random() < 0.5
    config = {**common(s), "model_type": "iquestcoder", "head_dim": s["head"],
              "num_key_value_heads": s["keys"], "tie_word_embeddings": tied,
              "mlp_bias": bias, "hidden_act": "silu"}
    return config, {**attention(s, s["keys"], False, False),
                    **feed_forward(s, True, bias), **norms(s, 2, False)}, \
        outside(s, tied)


def jais2(rng, s):
    tied, bias = rng.random() < 0.5, rng.random() < 0.5
    config = {**common(s), "model_type": "jais2", "attention_bias": bias,
              "mlp_bias": bias, "num_key_value_heads": s["keys"],
              "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": tied,
              "layer_norm_eps": 1e-5}
    return config, {**attention(s, s["keys"], bias, bias),
                    **feed_forward(s, False, bias), **norms(s, 2, True)}, \
        outside(s, tied, final=2)


FAMILIES = [vaultgemma, seed_oss, iquestcoder, jais2]
OTHERS = {"num_local_experts": 8, "n_routed_experts": 64, "moe_num_experts": 4,
          "kv_lora_rank": 16, "num_hidden_groups": 1, "state_size": 16,
          "mamba_d_state": 64, "is_encoder_decoder": True, "vision_config": {"a": 1},
          "decoder_layers": 2, "attn_layer_period": 8, "num_kv_shared_layers": 4,
          "linear_num_value_heads": 8, "layer_types": ["linear_attention"],
          "layers_block_type": ["mamba", "attention"], "relation_size": 12,
          "ffn_config": {"ffn_hidden_size": 64}, "cross_attention_every": 4}


def total(shapes):
    return sum(math.prod(shape) for shape in shapes.values())


def write_weights(path, layers, block, rest):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    tensors = {f"model.layers.{i}.{name}": shape for i in range(layers)
               for name, shape in block.items()}
    for name, shape in {**tensors, **{f"x.{n}": s for n, s in rest.items()}}.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape,
                        "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def check(folder, draws):
    """The line on each (configuration, weights or None)."""
    paths = []
    for number, (config, weights) in enumerate(draws):
        place = os.path.join(folder, f"{len(os.listdir(folder))}-{number}")
        os.mkdir(place)
        paths.append(place)
        with open(os.path.join(place, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        if weights:
            write_weights(os.path.join(place, "model.safetensors"), *weights)
    done = subprocess.run(["galvatron-import", "--check", *paths],
                          capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def counted(line):
    found = re.search(r" (\d+) parameters", line)
    return int(found.group(1)) if line.startswith("planned") and found else line


def tell(right, what):
    print(right, what)


def main():
    rng = random.Random(2)
    with tempfile.TemporaryDirectory() as folder:
        draws = []
        for _ in range(COUNT):
            s = sizes(rng)
            config, block, rest = rng.choice(FAMILIES)(rng, s)
            draws.append((config, s["layers"] * total(block) + total(rest)))
        right = 0
        for (config, count), line in zip(draws, check(folder, [(c, None)
                                                              for c, _ in draws])):
            right += counted(line) == count
            if counted(line) != count:
                print("WRONG", config, count, line)
        tell(right, "estimates count their family's tensors")

        draws = []
        for _ in range(COUNT):
            s = sizes(rng)
            config, block, rest = rng.choice(FAMILIES)(rng, s)
            config["model_type"] = "unheard_of"
            config["tie_word_embeddings"] = "head" not in rest
            if config.pop("multi_query", False):
                config["num_key_value_heads"] = 1
            config.pop("mlp_type", None)
            draws.append((config, s["layers"] * total(block) + total(rest),
                          (s["layers"], block, rest)))
        right = 0
        lines = check(folder, [(c, weights) for c, _, weights in draws])
        for (config, count, _), line in zip(draws, lines):
            gate = config.get("hidden_act") == "silu" or "head_dim" in config
            good = counted(line) == count and ("gated" in line) == bool(gate)
            right += good
            if not good:
                print("WRONG", config, count, line)
        tell(right, "estimates count the shapes of the weights beside them")

        draws = []
        for _ in range(COUNT):
            config, _, _ = rng.choice(FAMILIES)(rng, sizes(rng))
            name = rng.choice(list(OTHERS))
            draws.append((name, {**config, name: OTHERS[name]}))
        right = 0
        for (name, config), line in zip(draws, check(folder, [(c, None)
                                                             for _, c in draws])):
            good = line.startswith("refused") and f"field '{name}': " in line
            right += good
            if not good:
                print("WRONG", name, config, line)
        tell(right, "files with a field of another kind of model are refused by it")


if __name__ == "__main__":
    main()
