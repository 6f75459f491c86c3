# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""BART, mBART and PEGASUS for generate.py, written out in float64.

    test/Execution/oracle/bart.py      # compares with transformers

Run on its own, the file compares losses and every gradient with the classes of
the `transformers` library, in float64, for all cases.
"""

import math
import sys

import torch
from encoder_decoders import batch  # noqa: F401 (the same as T5's)

def learns_positions(config):
    return config["model_type"] != "pegasus"


def rows_before(config):
    """Rows of a table of positions in front of that of the first."""
    return 2 if learns_positions(config) else 0


def norms_before(config):
    return config["model_type"] != "bart"


def frozen(config):
    """Names of parameters that are not trained."""
    return () if learns_positions(config) else (
        "model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def parameter_shapes(config):
    width = config["d_model"]
    shapes = {"model.shared.weight": (config["vocab_size"], width)}

    def dense(name, out, ins):
        shapes[name + ".weight"] = (out, ins)
        shapes[name + ".bias"] = (out,)

    def norm(name):
        shapes[name + ".weight"] = shapes[name + ".bias"] = (width,)

    for stack in ("encoder", "decoder"):
        name = f"model.{stack}."
        shapes[name + "embed_positions.weight"] = (
            config["max_position_embeddings"] + rows_before(config), width)
        if learns_positions(config):
            norm(name + "layernorm_embedding")
        for i in range(config[stack + "_layers"]):
            block = f"{name}layers.{i}."
            for part in ["self_attn"] + ["encoder_attn"] * (stack == "decoder"):
                for product in "qkv":
                    dense(f"{block}{part}.{product}_proj", width, width)
                dense(f"{block}{part}.out_proj", width, width)
                norm(f"{block}{part}_layer_norm")
            dense(block + "fc1", config[stack + "_ffn_dim"], width)
            dense(block + "fc2", width, config[stack + "_ffn_dim"])
            norm(block + "final_layer_norm")
        if norms_before(config):
            norm(name + "layer_norm")
    return shapes


def activation(config, x):
    kind = config["activation_function"]
    if kind == "relu":
        return torch.relu(x)
    if kind == "gelu":
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))


def loss_of(config, p, data):
    width = config["d_model"]
    words = p["model.shared.weight"]

    def norm(x, name):
        away = x - x.mean(dim=-1, keepdim=True)
        variance = (away * away).mean(dim=-1, keepdim=True)
        return away / torch.sqrt(variance + 1e-5) * p[name + ".weight"] + p[name + ".bias"]

    def dense(x, name):
        return x @ p[name + ".weight"].T + p[name + ".bias"]

    def half(x, name, write):
        if norms_before(config):
            return x + write(norm(x, name))
        return norm(x + write(x), name)

    def attention(x, memory, name, heads, hidden):
        def split(y):
            return y.view(*y.shape[:2], heads, width // heads).transpose(1, 2)

        q, k, v = (split(dense(y, f"{name}.{part}_proj"))
                   for y, part in ((x, "q"), (memory, "k"), (memory, "v")))
        scores = q @ k.transpose(2, 3) / math.sqrt(width // heads)
        o = torch.softmax(scores.masked_fill(hidden, -math.inf), dim=3) @ v
        return dense(o.transpose(1, 2).reshape(x.shape), name + ".out_proj")

    def feed_forward(x, block):
        return half(x, block + "final_layer_norm", lambda y: dense(
            activation(config, dense(y, block + "fc1")), block + "fc2"))

    def embed(tokens, name):
        x = torch.nn.functional.embedding(tokens, words,
                                          padding_idx=config["pad_token_id"])
        if config["scale_embedding"]:
            x = x * math.sqrt(width)
        first = rows_before(config)
        x = x + p[name + "embed_positions.weight"][first:first + x.shape[1]]
        return norm(x, name + "layernorm_embedding") if learns_positions(config) else x

    padding = (data["mask"] == 0)[:, None, None, :]
    memory = embed(data["tokens"], "model.encoder.")
    heads = config["encoder_attention_heads"]
    for i in range(config["encoder_layers"]):
        block = f"model.encoder.layers.{i}."
        memory = half(memory, block + "self_attn_layer_norm", lambda y: attention(
            y, y, block + "self_attn", heads, padding))
        memory = feed_forward(memory, block)
    if norms_before(config):
        memory = norm(memory, "model.encoder.layer_norm")
    x = embed(data["decoder_tokens"], "model.decoder.")
    ahead = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    heads = config["decoder_attention_heads"]
    for i in range(config["decoder_layers"]):
        block = f"model.decoder.layers.{i}."
        x = half(x, block + "self_attn_layer_norm", lambda y: attention(
            y, y, block + "self_attn", heads, ahead))
        x = half(x, block + "encoder_attn_layer_norm", lambda y: attention(
            y, memory, block + "encoder_attn", heads, padding))
        x = feed_forward(x, block)
    if norms_before(config):
        x = norm(x, "model.decoder.layer_norm")
    labels = data["labels"]
    return torch.nn.functional.cross_entropy(
        (x @ words.T).reshape(labels.numel(), -1), labels.reshape(-1), ignore_index=-1)


def config(model_type, **changes):
    fields = {
        "model_type": model_type, "vocab_size": 37, "max_position_embeddings": 18,
        "d_model": 24, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 36, "decoder_ffn_dim": 36, "activation_function": "gelu",
        "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0,
        "init_std": 0.02, "scale_embedding": False, "pad_token_id": 1,
        "decoder_start_token_id": 2,
    }
    return fields | changes


# What differs between the stacks does in one case of each family.
CASES = {
    "bart": config("bart"),
    "bart-tanh": config("bart", encoder_layers=1, decoder_layers=2, d_model=20,
                        encoder_attention_heads=2, decoder_attention_heads=4,
                        encoder_ffn_dim=24, decoder_ffn_dim=36, scale_embedding=True,
                        activation_function="gelu_new", pad_token_id=4),
    "mbart": config("mbart", scale_embedding=True, activation_function="relu",
                    encoder_ffn_dim=28),
    "pegasus": config("pegasus", encoder_layers=1, decoder_layers=2, scale_embedding=True,
                      activation_function="relu", decoder_ffn_dim=28, pad_token_id=0,
                      decoder_start_token_id=0),
}


def sinusoids(rows, columns):
    """PEGASUS's positions: sines in the first half of a row, cosines in the second."""
    half = (columns + 1) // 2
    angles = [[row / 10000 ** (2 * (c if c < half else c - half) / columns)
               for c in range(columns)] for row in range(rows)]
    angles = torch.tensor(angles, dtype=torch.float64)
    return torch.cat((angles[:, :half].sin(), angles[:, half:].cos()), dim=1).float()


def compare(name, fields):
    """The library's class with our weights: the largest difference."""
    import transformers
    from generate import batch as make, initial
    from library import largest_difference

    settings = {key: value for key, value in fields.items() if key != "model_type"}
    kind = {"bart": "Bart", "mbart": "MBart", "pegasus": "Pegasus"}[fields["model_type"]]
    model = getattr(transformers, kind + "ForConditionalGeneration")(
        getattr(transformers, kind + "Config")(**settings)).double()
    weights = {key: torch.tensor(initial(key, shape), requires_grad=key not in frozen(fields))
               for key, shape in parameter_shapes(fields).items()}
    theirs = dict(model.named_parameters())
    for key in frozen(fields):
        assert not theirs[key].requires_grad
        assert theirs[key].equal(sinusoids(*theirs[key].shape).double())
    data = make(fields, 16, 4, 2)

    def answer():
        return model(data["tokens"], attention_mask=data["mask"],
                     decoder_input_ids=data["decoder_tokens"],
                     use_cache=False).logits, data["labels"]

    # Softmax does not see the biases of keys: rounding is all they get.
    worst = largest_difference(name, theirs, weights,
                               lambda: loss_of(fields, weights, data), answer,
                               floor=1e-3)
    return worst < 1e-10


if __name__ == "__main__":
    if not all([compare(name, fields) for name, fields in CASES.items()]):
        sys.exit("the library disagrees")
