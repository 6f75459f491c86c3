# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ModernBERT for generate.py, written out in float64.

    test/Execution/oracle/modernbert.py      # compares with transformers

Run on its own, the file compares losses and every gradient with the class of the
`transformers` library, in float64 but for the norms of its rotations, for all cases.
"""

import math
import sys

import torch
from encoders import batch  # noqa: F401 (the data are RoBERTa's)


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def full(config, layer):
    """Whether a layer sees all positions."""
    kinds = config.get("layer_types")
    if kinds:
        return kinds[layer] == "full_attention"
    return layer % config.get("global_attn_every_n_layers", 3) == 0


def parameter_shapes(config):
    """As the program has them: three products to heads, two into the feed-forward."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes = {}

    def dense(name, out, ins, bias):
        shapes[name + ".weight"] = (out, ins)
        if bias:
            shapes[name + ".bias"] = (out,)

    def norm(name):
        shapes[name + ".weight"] = (width,)
        if config["norm_bias"]:
            shapes[name + ".bias"] = (width,)

    shapes["model.embeddings.tok_embeddings.weight"] = (config["vocab_size"], width)
    norm("model.embeddings.norm")
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        if i:
            norm(layer + "attn_norm")
        for name in "qkv":
            dense(f"{layer}attn.{name}_proj", width, width, config["attention_bias"])
        dense(layer + "attn.Wo", width, width, config["attention_bias"])
        norm(layer + "mlp_norm")
        for name in ("gate", "up"):
            dense(f"{layer}mlp.{name}_proj", inner, width, config["mlp_bias"])
        dense(layer + "mlp.Wo", width, inner, config["mlp_bias"])
    norm("model.final_norm")
    dense("head.dense", width, width, config["classifier_bias"])
    norm("head.norm")
    if not config["tie_word_embeddings"]:
        shapes["decoder.weight"] = (config["vocab_size"], width)
    if config["decoder_bias"]:
        shapes["decoder.bias"] = (config["vocab_size"],)
    return shapes


def stored(config, tensors):
    """Tensors as files have them, of those that the program has."""
    result = dict(tensors)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for fused, parts in (("attn.Wqkv", [f"attn.{n}_proj" for n in "qkv"]),
                             ("mlp.Wi", ["mlp.gate_proj", "mlp.up_proj"])):
            for kind in ("weight", "bias"):
                if f"{layer}{parts[0]}.{kind}" in result:
                    result[f"{layer}{fused}.{kind}"] = torch.cat(
                        [result.pop(f"{layer}{part}.{kind}") for part in parts])
    return result


def loss_of(config, p, data):
    width, heads = config["hidden_size"], config["num_attention_heads"]
    size = width // heads
    length = data["tokens"].shape[1]

    def norm(x, name):
        return torch.nn.functional.layer_norm(
            x, (width,), p[name + ".weight"], p.get(name + ".bias"), config["norm_eps"])

    def dense(x, name):
        y = x @ p[name + ".weight"].T
        return y + p[name + ".bias"] if name + ".bias" in p else y

    def split(x):
        return x.view(*x.shape[:2], heads, size).transpose(1, 2)

    place = torch.arange(length)
    away = (place[:, None] - place[None, :]).abs()
    padding = (data["mask"] == 0)[:, None, None, :]

    def attention(x, layer):
        theta = config["global_rope_theta" if full(config, layer) else "local_rope_theta"]
        speeds = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angle = torch.outer(place.double(), speeds)
        turn = torch.polar(torch.ones_like(angle), angle)

        def rotate(y):
            low, high = y.chunk(2, dim=-1)
            turned = torch.complex(low, high) * turn
            return torch.cat((turned.real, turned.imag), dim=-1)

        name = f"model.layers.{layer}.attn."
        q, k, v = (split(dense(x, f"{name}{part}_proj")) for part in "qkv")
        scores = rotate(q) @ rotate(k).transpose(2, 3) / math.sqrt(size)
        hidden = padding
        if not full(config, layer):
            hidden = hidden | (away > config["local_attention"] // 2)
        # Queries that see nothing are padding, whose results nothing reads.
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        o = torch.softmax(scores, dim=3) @ v
        return dense(o.transpose(1, 2).reshape(x.shape), name + "Wo")

    words = p["model.embeddings.tok_embeddings.weight"]
    x = torch.nn.functional.embedding(data["tokens"], words,
                                      padding_idx=config["pad_token_id"])
    x = norm(x, "model.embeddings.norm")
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        x = x + attention(norm(x, layer + "attn_norm") if i else x, i)
        h = norm(x, layer + "mlp_norm")
        h = gelu(dense(h, layer + "mlp.gate_proj")) * dense(h, layer + "mlp.up_proj")
        x = x + dense(h, layer + "mlp.Wo")
    x = norm(x, "model.final_norm")
    x = norm(gelu(dense(x, "head.dense")), "head.norm")
    logits = x @ p.get("decoder.weight", words).T
    if config["decoder_bias"]:
        logits = logits + p["decoder.bias"]
    labels = data["labels"]
    return torch.nn.functional.cross_entropy(
        logits.reshape(labels.numel(), -1), labels.reshape(-1), ignore_index=-1)


def config(**changes):
    fields = {
        "model_type": "modernbert", "vocab_size": 37, "hidden_size": 24,
        "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 20,
        "max_position_embeddings": 16, "hidden_activation": "gelu", "norm_eps": 1e-5,
        "norm_bias": False, "attention_bias": False, "mlp_bias": False,
        "decoder_bias": True, "classifier_bias": False, "tie_word_embeddings": True,
        "attention_dropout": 0.0, "initializer_range": 0.02, "pad_token_id": 3,
        "local_attention": 6, "global_attn_every_n_layers": 3,
        "global_rope_theta": 160.0, "local_rope_theta": 10.0,
    }
    return fields | changes


CASES = {
    "modernbert": config(),
    "modernbert-biases": config(
        num_hidden_layers=2, norm_bias=True, attention_bias=True, mlp_bias=True,
        decoder_bias=False, classifier_bias=True, tie_word_embeddings=False, norm_eps=1e-3,
        layer_types=["sliding_attention", "full_attention"], local_attention=5),
}


def compare(name, fields):
    """The library's class with our weights: the largest difference."""
    import transformers
    from generate import batch as make, initial
    from library import largest_difference

    settings = {key: value for key, value in fields.items() if key != "model_type"}
    model = transformers.ModernBertForMaskedLM(
        transformers.ModernBertConfig(**settings, attn_implementation="eager")).double()
    weights = {key: torch.tensor(initial(key, shape), requires_grad=True)
               for key, shape in parameter_shapes(fields).items()}
    theirs = dict(model.named_parameters())
    files = {key: value.detach().requires_grad_()
             for key, value in stored(fields, weights).items()}
    data = make(fields, 16, 4, 2)
    # The library makes NaN of queries whose window is padding alone: less of it.
    data["mask"] = torch.ones_like(data["mask"])
    data["mask"][1:, 14:] = 0
    data["labels"][1:, 14:] = -1

    def ours():
        loss = loss_of(fields, weights, data)
        grads = torch.autograd.grad(loss, list(weights.values()))
        for key, value in stored(fields, dict(zip(weights, grads))).items():
            files[key].grad = value
        return loss.detach().requires_grad_()

    def answer():
        return model(data["tokens"], attention_mask=data["mask"]).logits, data["labels"]

    # The library turns heads in float32.
    worst = largest_difference(name, theirs, files, ours, answer, floor=1e-3)
    return worst < 1e-5


if __name__ == "__main__":
    if not all([compare(name, fields) for name, fields in CASES.items()]):
        sys.exit("the library disagrees")
