# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""T5, mT5 and UMT5 for generate.py, written out in float64.

    test/Execution/oracle/encoder_decoders.py      # compares with transformers

Run on its own, the file compares losses and every gradient with the class of the
`transformers` library, for all cases.
"""

import math
import sys

import torch

# Positions that the decoder reads, beside those of the encoder.
DECODER_LENGTH = 6


def is_gated(config):
    return config["feed_forward_proj"].startswith("gated-")


def tables(config, stack, count):
    """Blocks whose table of relative positions the blocks of a stack read."""
    own = config["model_type"] == "umt5"
    return [f"{stack}.block.{i if own else 0}.layer.0.SelfAttention."
            "relative_attention_bias.weight" for i in range(count)]


def parameter_shapes(config):
    width, inner = config["d_model"], config["d_ff"]
    every = config["num_heads"] * config["d_kv"]
    shapes = {"shared.weight": (config["vocab_size"], width)}
    for stack, count in (("encoder", config["num_layers"]),
                         ("decoder", config["num_decoder_layers"])):
        parts = ["SelfAttention"] + ["EncDecAttention"] * (stack == "decoder")
        for table in tables(config, stack, count):
            shapes[table] = (config["relative_attention_num_buckets"],
                             config["num_heads"])
        for i in range(count):
            block = f"{stack}.block.{i}.layer."
            for j, part in enumerate(parts):
                for name in "qkv":
                    shapes[f"{block}{j}.{part}.{name}.weight"] = (every, width)
                shapes[f"{block}{j}.{part}.o.weight"] = (width, every)
            last = f"{block}{len(parts)}.DenseReluDense."
            for name in ("wi_0", "wi_1") if is_gated(config) else ("wi",):
                shapes[f"{last}{name}.weight"] = (inner, width)
            shapes[last + "wo.weight"] = (width, inner)
            for j in range(len(parts) + 1):
                shapes[f"{block}{j}.layer_norm.weight"] = (width,)
        shapes[f"{stack}.final_layer_norm.weight"] = (width,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], width)
    return shapes


def batch(config, seq_len, samples, step, hashes, _uniform):
    """What the model takes, by name; labels of -1 do not count."""
    def draw(name, shape, below):
        numbers = hashes(f"{name}.{step}", math.prod(shape)) % below
        return torch.from_numpy(numbers.astype("int64")).reshape(shape)

    words = config["vocab_size"]
    # The first sample has no padding, others what is left of their length.
    length = draw("length", (samples, 1), seq_len) + 1
    length[0] = seq_len
    mask = (torch.arange(seq_len)[None, :] < length).long()
    tokens = draw("tokens", (samples, seq_len), words)
    tokens[mask == 0] = config["pad_token_id"]
    labels = draw("labels", (samples, DECODER_LENGTH), words)
    begin = torch.full((samples, 1), config["decoder_start_token_id"])
    decoder_tokens = torch.cat((begin, labels[:, :-1]), dim=1)
    if step > 1:
        labels[draw("skip", tuple(labels.shape), 5) == 0] = -1
    return {"tokens": tokens, "mask": mask, "decoder_tokens": decoder_tokens,
            "labels": labels}


def bucket(config, distance, bidirectional):
    """Of a key that stands `distance` behind its query."""
    buckets, first = config["relative_attention_num_buckets"], 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        size = abs(distance)
    else:
        size = max(-distance, 0)
    near = buckets // 2
    if size < near:
        return first + size
    far = (math.log(size / near)
           / math.log(config["relative_attention_max_distance"] / near)
           * (buckets - near))
    return first + min(near + int(far), buckets - 1)


def loss_of(config, p, data):
    heads, each = config["num_heads"], config["d_kv"]

    def norm(x, name):
        mean = (x * x).mean(dim=-1, keepdim=True)
        return p[name + ".weight"] * x / torch.sqrt(mean + config["layer_norm_epsilon"])

    def dense(x, name):
        return x @ p[name + ".weight"].T

    def split(x):
        return x.view(*x.shape[:2], heads, each).transpose(1, 2)

    def attention(x, memory, name, bias):
        q, k, v = (split(dense(y, name + part))
                   for y, part in ((x, "q"), (memory, "k"), (memory, "v")))
        o = torch.softmax(q @ k.transpose(2, 3) + bias, dim=3) @ v
        return dense(o.transpose(1, 2).reshape(*x.shape[:2], -1), name + "o")

    def feed_forward(x, name):
        if not is_gated(config):
            return dense(torch.relu(dense(x, name + "wi")), name + "wo")
        gate, up = dense(x, name + "wi_0"), dense(x, name + "wi_1")
        if config["feed_forward_proj"] == "gated-silu":
            gate = gate * torch.sigmoid(gate)
        else:
            inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
            gate = 0.5 * gate * (1 + torch.tanh(inner))
        return dense(gate * up, name + "wo")

    def positions(stack, count, length):
        """Of every block."""
        places = [[bucket(config, key - query, stack == "encoder")
                   for key in range(length)] for query in range(length)]
        return [p[table][torch.tensor(places)].permute(2, 0, 1)[None]
                for table in tables(config, stack, count)]

    hidden = (data["mask"] == 0)[:, None, None, :]
    padding = torch.zeros(hidden.shape).masked_fill(hidden, -math.inf)
    x = p["shared.weight"][data["tokens"]]
    bias = positions("encoder", config["num_layers"], x.shape[1])
    for i in range(config["num_layers"]):
        block = f"encoder.block.{i}.layer."
        y = norm(x, block + "0.layer_norm")
        x = x + attention(y, y, block + "0.SelfAttention.", bias[i] + padding)
        x = x + feed_forward(norm(x, block + "1.layer_norm"),
                             block + "1.DenseReluDense.")
    memory = norm(x, "encoder.final_layer_norm")
    x = p["shared.weight"][data["decoder_tokens"]]
    ahead = torch.full((x.shape[1], x.shape[1]), -math.inf).triu(1)
    bias = positions("decoder", config["num_decoder_layers"], x.shape[1])
    for i in range(config["num_decoder_layers"]):
        block = f"decoder.block.{i}.layer."
        y = norm(x, block + "0.layer_norm")
        x = x + attention(y, y, block + "0.SelfAttention.", bias[i] + ahead)
        y = norm(x, block + "1.layer_norm")
        x = x + attention(y, memory, block + "1.EncDecAttention.", padding)
        x = x + feed_forward(norm(x, block + "2.layer_norm"),
                             block + "2.DenseReluDense.")
    x = norm(x, "decoder.final_layer_norm")
    if config["tie_word_embeddings"] and config["model_type"] != "mt5":
        x = x * config["d_model"] ** -0.5
    logits = x @ p.get("lm_head.weight", p["shared.weight"]).T
    labels = data["labels"]
    return torch.nn.functional.cross_entropy(
        logits.reshape(labels.numel(), -1), labels.reshape(-1), ignore_index=-1)


def config(**changes):
    fields = {
        "model_type": "t5", "vocab_size": 37, "d_model": 24, "d_kv": 6, "d_ff": 36,
        "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4,
        "feed_forward_proj": "relu", "relative_attention_num_buckets": 12,
        "relative_attention_max_distance": 14, "layer_norm_epsilon": 1e-6,
        "dropout_rate": 0.0, "initializer_factor": 1.0, "pad_token_id": 0,
        "decoder_start_token_id": 0, "tie_word_embeddings": True,
    }
    return fields | changes


CASES = {
    "t5": config(),
    "t5-gated": config(vocab_size=41, d_model=20, d_kv=5, num_heads=2,
                       num_layers=2, num_decoder_layers=1,
                       feed_forward_proj="gated-gelu", tie_word_embeddings=False,
                       relative_attention_num_buckets=7,
                       relative_attention_max_distance=9,
                       layer_norm_epsilon=1e-3, pad_token_id=3,
                       decoder_start_token_id=5),
    "t5-silu": config(num_heads=3, d_kv=10, num_layers=1, num_decoder_layers=1,
                      feed_forward_proj="gated-silu",
                      relative_attention_num_buckets=32,
                      relative_attention_max_distance=128),
    "mt5": config(model_type="mt5", feed_forward_proj="gated-gelu"),
    "umt5": config(model_type="umt5", feed_forward_proj="gated-gelu"),
}


def compare(name, fields):
    """The library's class with our weights: the largest difference."""
    import transformers
    from generate import batch as make, initial
    from library import largest_difference

    settings = {key: value for key, value in fields.items() if key != "model_type"}
    tied = settings["tie_word_embeddings"]
    kind = {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}[fields["model_type"]]
    if kind == "T5":
        settings["scale_decoder_outputs"] = tied
    model = getattr(transformers, kind + "ForConditionalGeneration")(
        getattr(transformers, kind + "Config")(**settings)).double()
    if not tied:
        # The library ties what no file says to be apart.
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    weights = {key: torch.tensor(initial(key, shape), requires_grad=True)
               for key, shape in parameter_shapes(fields).items()}
    theirs = dict(model.named_parameters())
    data = make(fields, 16, 4, 2)

    def answer():
        return model(data["tokens"], attention_mask=data["mask"],
                     decoder_input_ids=data["decoder_tokens"],
                     use_cache=False).logits, data["labels"]

    worst = largest_difference(name, theirs, weights,
                               lambda: loss_of(fields, weights, data), answer)
    # The library takes variances and softmax in float32 whatever the type.
    return worst < 2e-6


if __name__ == "__main__":
    if not all([compare(name, fields) for name, fields in CASES.items()]):
        sys.exit("the library disagrees")
