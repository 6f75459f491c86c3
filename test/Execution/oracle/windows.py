# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Swin for generate.py, written out in float64.

    test/Execution/oracle/windows.py      # compares with transformers

Run on its own, the file compares losses, every gradient and three steps of AdamW
with the class of the `transformers` library, in float64, for all cases. Windows
are found position by position, not by turning the grid.
"""

import functools
import math
import sys

import encoders
import torch
from encoders import gelu, size
from torch.nn.functional import layer_norm, pad


def ceiling(a, b):
    return -(-a // b)


def stages(config):
    """Width, blocks, heads, rows and columns of every stage."""
    (rows, columns), (high, wide) = size(config["image_size"]), size(config["patch_size"])
    rows, columns, width = ceiling(rows, high), ceiling(columns, wide), config["embed_dim"]
    for blocks, heads in zip(config["depths"], config["num_heads"]):
        yield width, blocks, heads, rows, columns
        rows, columns, width = ceiling(rows, 2), ceiling(columns, 2), 2 * width


def parameter_shapes(config):
    shapes = {}

    def dense(name, out, ins, bias=True):
        shapes[name + ".weight"] = (out, ins)
        if bias:
            shapes[name + ".bias"] = (out,)

    def norm(name, width):
        shapes[name + ".weight"] = shapes[name + ".bias"] = (width,)

    width, (high, wide) = config["embed_dim"], size(config["patch_size"])
    projection = "swin.embeddings.patch_embeddings.projection"
    shapes[projection + ".weight"] = (width, config["num_channels"], high, wide)
    shapes[projection + ".bias"] = (width,)
    norm("swin.embeddings.norm", width)
    all_stages = list(stages(config))
    if config["use_absolute_embeddings"]:
        rows, columns = all_stages[0][3:]
        shapes["swin.embeddings.position_embeddings"] = (1, rows * columns, width)
    for s, (width, blocks, heads, _, _) in enumerate(all_stages):
        inner = int(config["mlp_ratio"] * width)
        for b in range(blocks):
            block = f"swin.encoder.layers.{s}.blocks.{b}."
            shapes[block + "attention.self.relative_position_bias_table"] = (
                (2 * config["window_size"] - 1)**2, heads)
            for name in "query", "key", "value":
                dense(f"{block}attention.self.{name}", width, width, config["qkv_bias"])
            dense(block + "attention.output.dense", width, width)
            dense(block + "intermediate.dense", inner, width)
            dense(block + "output.dense", width, inner)
            norm(block + "layernorm_before", width)
            norm(block + "layernorm_after", width)
        if s + 1 < len(all_stages):
            merge = f"swin.encoder.layers.{s}.downsample."
            norm(merge + "norm", 4 * width)
            dense(merge + "reduction", 2 * width, 4 * width, bias=False)
    norm("swin.layernorm", width)
    dense("classifier", config["num_labels"], width)
    return shapes


@functools.cache
def window_places(rows, columns, window, shift):
    """For every window the positions of the padded grid that it has, and which
    of its pairs may see each other."""
    down, across = ceiling(rows, window) * window, ceiling(columns, window) * window
    places, apart = [], []
    for top in range(0, down, window):
        for left in range(0, across, window):
            turned = [(top + i, left + j) for i in range(window) for j in range(window)]
            places.append([(i + shift) % down * across + (j + shift) % across
                           for i, j in turned])
            # In the turned grid the last `shift` rows are those of the top.
            wrapped = [(i >= down - shift, j >= across - shift) for i, j in turned]
            apart.append([[a != b for b in wrapped] for a in wrapped])
    return (torch.tensor(places), torch.tensor(apart).double() * -100 if shift
            else torch.zeros(1, 1, 1, dtype=torch.float64))


@functools.cache
def table_rows(window):
    """The row of the table of relative positions, by query and key."""
    side = 2 * window - 1
    at = [(i, j) for i in range(window) for j in range(window)]
    return torch.tensor([[(i - m + window - 1) * side + j - n + window - 1
                          for m, n in at] for i, j in at])


def batch(config, seq_len, samples, step, hashes, uniform):
    """What the model takes: that of the other models of images."""
    return encoders.batch({**config, "model_type": "vit"}, seq_len, samples, step,
                          hashes, uniform)


def loss_of(config, p, data):
    def norm(x, name, eps=config["layer_norm_eps"]):
        weight = p[name + ".weight"]
        return layer_norm(x, weight.shape, weight, p[name + ".bias"], eps)

    def dense(x, name):
        y = x @ p[name + ".weight"].T
        return y + p[name + ".bias"] if name + ".bias" in p else y

    def attention(x, block, heads, rows, columns, turns):
        samples, _, width = x.shape
        window = config["window_size"]
        turns = turns and min(rows, columns) > window
        places, apart = window_places(rows, columns, window, window // 2 if turns else 0)
        grid = pad(x.view(samples, rows, columns, width),
                   (0, 0, 0, -columns % window, 0, -rows % window))
        padded = grid.shape[1:3]
        inside = grid.reshape(samples, -1, width)[:, places]
        q, k, v = (dense(inside, f"{block}attention.self.{part}")
                   .unflatten(-1, (heads, -1)).transpose(2, 3)
                   for part in ("query", "key", "value"))
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // heads)
        table = p[block + "attention.self.relative_position_bias_table"]
        scores = scores + table[table_rows(window)].permute(2, 0, 1) + apart[:, None]
        o = torch.softmax(scores, dim=-1) @ v
        o = dense(o.transpose(2, 3).flatten(3), block + "attention.output.dense")
        back = torch.argsort(places.flatten())
        o = o.reshape(samples, -1, width)[:, back].view(samples, *padded, width)
        return o[:, :rows, :columns].reshape(x.shape)

    images = data["images"]
    high, wide = size(config["patch_size"])
    images = pad(images, (0, -images.shape[3] % wide, 0, -images.shape[2] % high))
    samples, channels, height, breadth = images.shape
    weight = p["swin.embeddings.patch_embeddings.projection.weight"]
    cut = images.reshape(samples, channels, height // high, high, breadth // wide, wide)
    cut = cut.permute(0, 2, 4, 1, 3, 5).reshape(samples, -1, channels * high * wide)
    x = (cut.to(weight.dtype) @ weight.flatten(1).T
         + p["swin.embeddings.patch_embeddings.projection.bias"])
    x = norm(x, "swin.embeddings.norm", 1e-5)
    if config["use_absolute_embeddings"]:
        x = x + p["swin.embeddings.position_embeddings"]
    for s, (width, blocks, heads, rows, columns) in enumerate(stages(config)):
        if s:
            merge = f"swin.encoder.layers.{s - 1}.downsample."
            last = pad(x.view(samples, *grid, -1), (0, 0, 0, grid[1] % 2, 0, grid[0] % 2))
            parts = [last[:, i::2, j::2] for i, j in ((0, 0), (1, 0), (0, 1), (1, 1))]
            x = torch.cat(parts, dim=-1).reshape(samples, rows * columns, 2 * width)
            x = dense(norm(x, merge + "norm", 1e-5), merge + "reduction")
        grid = rows, columns
        for b in range(blocks):
            block = f"swin.encoder.layers.{s}.blocks.{b}."
            x = x + attention(norm(x, block + "layernorm_before"), block, heads, rows,
                              columns, b % 2 == 1)
            y = dense(norm(x, block + "layernorm_after"), block + "intermediate.dense")
            x = x + dense(gelu(config, y), block + "output.dense")
    logits = dense(norm(x, "swin.layernorm").mean(dim=1), "classifier")
    return torch.nn.functional.cross_entropy(logits, data["classes"], ignore_index=-1)


def config(**changes):
    fields = {
        "model_type": "swin", "image_size": 16, "patch_size": 2, "num_channels": 3,
        "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4,
        "mlp_ratio": 2.0, "qkv_bias": True, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        "drop_path_rate": 0.0, "use_absolute_embeddings": False,
        "initializer_range": 0.02, "layer_norm_eps": 1e-5, "num_labels": 5,
    }
    return fields | changes


CASES = {
    # Turned windows in the first stage, one window in the second.
    "swin": config(),
    # Images, windows and merges that need padding; three stages of one, two and
    # three blocks; no biases of queries.
    "swin-odd": config(image_size=[21, 26], patch_size=[2, 3], num_channels=2,
                       embed_dim=6, depths=[1, 2, 3], num_heads=[1, 3, 4],
                       window_size=2, mlp_ratio=1.5, qkv_bias=False,
                       hidden_act="gelu_new", layer_norm_eps=1e-3, num_labels=7),
    # Positions of their own; a window of an odd side that has more positions than a
    # tile of attention.
    "swin-wide": config(image_size=[20, 31], patch_size=1, num_channels=1, embed_dim=4,
                        depths=[2, 1], num_heads=[1, 2], window_size=9,
                        use_absolute_embeddings=True, num_labels=3),
}


def compare(name, fields):
    """The library's class with our weights: the largest difference."""
    import transformers
    from generate import batch as make, initial

    settings = {key: value for key, value in fields.items() if key != "model_type"}
    model = transformers.SwinForImageClassification(
        transformers.SwinConfig(**settings)).double()
    weights = {key: torch.tensor(initial(key, shape), requires_grad=True)
               for key, shape in parameter_shapes(fields).items()}
    theirs = stored_names(model)
    assert set(theirs) == set(weights), set(theirs) ^ set(weights)
    with torch.no_grad():
        for key, value in weights.items():
            theirs[key].copy_(value)
    total, worst, losses = None, 0, []
    both = [torch.optim.AdamW(list(values), lr=1e-3, weight_decay=0.1)
            for values in (weights.values(), theirs.values())]
    for step in range(1, 4):
        data = make(fields, 0, 4, step)
        ours = loss_of(fields, weights, data)
        ours.backward()
        logits = model(data["images"]).logits
        loss = torch.nn.functional.cross_entropy(logits, data["classes"], ignore_index=-1)
        loss.backward()
        losses.append(loss.item())
        worst = max(worst, abs(ours.item() / loss.item() - 1))
        total = math.sqrt(sum(float((p.grad**2).sum()) for p in theirs.values()))
        for key, value in weights.items():
            # Softmax does not see the biases of keys: rounding is all they get.
            norm = max(theirs[key].grad.norm().item(), 1e-3 * total)
            worst = max(worst, (value.grad - theirs[key].grad).norm().item() / norm)
            if key.endswith(".key.bias"):
                value.grad.zero_()
                theirs[key].grad.zero_()
        for optimizer in both:
            optimizer.step()
            optimizer.zero_grad()
    for key, value in weights.items():
        moved = (value - theirs[key]).norm().item() / theirs[key].norm().item()
        worst = max(worst, moved)
    print(f"{name}: losses {losses}, largest difference {worst:.1e}")
    return worst < 1e-10


def stored_names(model):
    """The parameters of a model by their names in its checkpoints."""
    import tempfile
    from safetensors.torch import load_file

    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.fill_(number)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        numbers = load_file(folder + "/model.safetensors")
    parameters = list(model.parameters())
    return {name: parameters[int(value.flatten()[0])] for name, value in numbers.items()}


if __name__ == "__main__":
    if not all([compare(name, fields) for name, fields in CASES.items()]):
        sys.exit("the library disagrees")
