# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoders of the LLaMA kind for generate.py, written out in float64.

    test/Execution/oracle/decoders.py      # compares with transformers

Run on its own, the file compares losses and every gradient with the classes of
the `transformers` library, in float32 as those compute their norms, for all cases.
Needs a version that has them all (5.0 or later).
"""

import math
import sys

import torch


def windows(config):
    """Keys that a query sees, by layer; None: all."""
    layers, window = config["num_hidden_layers"], config.get("sliding_window")
    if config["model_type"] == "mistral":
        return [window] * layers
    if "layer_types" in config:
        return [window if kind == "sliding_attention" else None
                for kind in config["layer_types"]]
    return [None] * layers


def biases(config):
    """Of the projections to heads, of the one back, of the feed-forward's."""
    attention = config.get("attention_bias", False)
    return (attention or config["model_type"] == "qwen2", attention,
            config.get("mlp_bias", False))


def parameter_shapes(config):
    width, inner = config["hidden_size"], config["intermediate_size"]
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim", width // heads)
    projection, output, feed = biases(config)
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes[layer + "input_layernorm.weight"] = (width,)
        for name, rows in ("q", heads), ("k", groups), ("v", groups):
            shapes[layer + f"self_attn.{name}_proj.weight"] = (rows * size, width)
            if projection:
                shapes[layer + f"self_attn.{name}_proj.bias"] = (rows * size,)
        if config["model_type"] == "qwen3":
            shapes[layer + "self_attn.q_norm.weight"] = (size,)
            shapes[layer + "self_attn.k_norm.weight"] = (size,)
        shapes[layer + "self_attn.o_proj.weight"] = (width, heads * size)
        if output:
            shapes[layer + "self_attn.o_proj.bias"] = (width,)
        shapes[layer + "post_attention_layernorm.weight"] = (width,)
        for name, shape in (("gate", (inner, width)), ("up", (inner, width)),
                            ("down", (width, inner))):
            shapes[layer + f"mlp.{name}_proj.weight"] = shape
            if feed:
                shapes[layer + f"mlp.{name}_proj.bias"] = shape[:1]
    shapes["model.norm.weight"] = (width,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], width)
    return shapes


def frequencies(config, size):
    """Radians a position of each pair, and the factor of cosine and sine."""
    rope = config["rope_parameters"]
    theta, kind = rope["rope_theta"], rope["rope_type"]
    plain = [theta ** (-2 * i / size) for i in range(size // 2)]
    if kind in ("default", "dynamic"):
        return plain, 1.0
    factor = rope["factor"]
    if kind == "linear":
        return [w / factor for w in plain], 1.0
    reach = rope["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        result = []
        for w in plain:
            length = 2 * math.pi / w
            if length < reach / high:
                result.append(w)
            elif length > reach / low:
                result.append(w / factor)
            else:
                smooth = (reach / length - low) / (high - low)
                result.append((1 - smooth) * w / factor + smooth * w)
        return result, 1.0
    assert kind == "yarn"

    def dimension(turns):
        return (size * math.log(reach / (turns * 2 * math.pi))
                / (2 * math.log(theta)))

    low = max(math.floor(dimension(rope.get("beta_fast", 32))), 0)
    high = min(math.ceil(dimension(rope.get("beta_slow", 1))), size - 1)
    high += 0.001 if low == high else 0
    result = []
    for i, w in enumerate(plain):
        ramp = min(max((i - low) / (high - low), 0), 1)
        result.append(w / factor * ramp + w * (1 - ramp))
    return result, 0.1 * math.log(factor) + 1


def loss_of(config, p, tokens, labels):
    width, heads = config["hidden_size"], config["num_attention_heads"]
    groups = config["num_key_value_heads"]
    size = config.get("head_dim", width // heads)
    samples, length = tokens.shape
    kind = p["model.norm.weight"].dtype

    def norm(x, name):
        scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + config["rms_norm_eps"])
        return x * scale * p[name + ".weight"]

    def linear(x, name):
        y = x @ p[name + ".weight"].T
        return y + p[name + ".bias"] if name + ".bias" in p else y

    speeds, factor = frequencies(config, size)
    angle = torch.outer(torch.arange(length, dtype=torch.float64),
                        torch.tensor(speeds, dtype=torch.float64))
    turn = torch.polar(torch.full_like(angle, factor), angle)

    def rotate(x):
        """Pairs (i, i + size / 2) as complex numbers."""
        low, high = x.double().chunk(2, dim=-1)
        turned = torch.complex(low, high) * turn
        return torch.cat((turned.real, turned.imag), dim=-1).to(kind)

    def split(x, count):
        return x.view(samples, length, count, size).transpose(1, 2)

    distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    x = p["model.embed_tokens.weight"][tokens]
    for i, window in enumerate(windows(config)):
        layer = f"model.layers.{i}."
        h = norm(x, layer + "input_layernorm")
        q = split(linear(h, layer + "self_attn.q_proj"), heads)
        k = split(linear(h, layer + "self_attn.k_proj"), groups)
        v = split(linear(h, layer + "self_attn.v_proj"), groups)
        if config["model_type"] == "qwen3":
            q = norm(q, layer + "self_attn.q_norm")
            k = norm(k, layer + "self_attn.k_norm")
        q, k = rotate(q), rotate(k)
        hidden = distance < 0
        if window:
            hidden = hidden | (distance >= window)
        outputs = []
        for head in range(heads):
            group = head // (heads // groups)
            scores = q[:, head] @ k[:, group].transpose(1, 2) / math.sqrt(size)
            scores = scores.masked_fill(hidden, -math.inf)
            outputs.append(torch.softmax(scores, dim=2) @ v[:, group])
        x = x + linear(torch.cat(outputs, dim=2), layer + "self_attn.o_proj")
        h = norm(x, layer + "post_attention_layernorm")
        gate = linear(h, layer + "mlp.gate_proj")
        h = gate * torch.sigmoid(gate) * linear(h, layer + "mlp.up_proj")
        x = x + linear(h, layer + "mlp.down_proj")
    head = p.get("lm_head.weight", p["model.embed_tokens.weight"])
    logits = norm(x, "model.norm") @ head.T
    return torch.nn.functional.cross_entropy(
        logits.reshape(samples * length, -1), labels.reshape(-1), ignore_index=-1)


def config(model_type, **changes):
    fields = {
        "model_type": model_type, "vocab_size": 37, "hidden_size": 20,
        "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 28,
        "max_position_embeddings": 16, "rms_norm_eps": 1e-6,
        "hidden_act": "silu", "initializer_range": 0.02,
        "attention_dropout": 0.0, "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    return fields | changes


CASES = {
    "llama-grouped": config("llama", hidden_size=24, num_attention_heads=6,
                            rms_norm_eps=1e-3),
    "llama-biases": config(
        "llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        num_key_value_heads=4, head_dim=5 * 2, rope_parameters={
            "rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 12}),
    "mistral-window": config(
        "mistral", sliding_window=5, num_key_value_heads=1, rope_parameters={
            "rope_type": "linear", "rope_theta": 500.0, "factor": 2.5}),
    "qwen2-yarn": config(
        "qwen2", use_sliding_window=True, sliding_window=3, max_window_layers=1,
        layer_types=["full_attention", "sliding_attention"], head_dim=8,
        rope_parameters={
            "rope_type": "yarn", "rope_theta": 50.0, "factor": 4.0,
            "beta_fast": 2.0, "beta_slow": 0.5,
            "original_max_position_embeddings": 16}),
    "qwen3-tied": config(
        "qwen3", head_dim=14, tie_word_embeddings=True, attention_bias=True,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 300.0,
                         "factor": 2.0}),
}


def compare(name, fields):
    """The library's class with our weights, in float32: largest differences."""
    import transformers
    from generate import batch, initial

    kinds = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2",
             "qwen3": "Qwen3"}
    kind = kinds[fields["model_type"]]
    settings = {key: value for key, value in fields.items() if key != "model_type"}
    model = getattr(transformers, kind + "ForCausalLM")(
        getattr(transformers, kind + "Config")(
            **settings, attn_implementation="eager"))
    weights = {key: torch.tensor(initial(key, shape), dtype=torch.float32,
                                 requires_grad=True)
               for key, shape in parameter_shapes(fields).items()}
    theirs = dict(model.named_parameters())
    assert set(theirs) == set(weights), set(theirs) ^ set(weights)
    with torch.no_grad():
        for key, value in weights.items():
            theirs[key].copy_(value)
    tokens, labels = batch(fields, 16, 4, 2)
    ours = loss_of(fields, weights, tokens, labels)
    ours.backward()
    logits = model(tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(
        logits.reshape(-1, fields["vocab_size"]), labels.reshape(-1),
        ignore_index=-1)
    loss.backward()
    worst = abs(ours.item() / loss.item() - 1)
    for key, value in weights.items():
        norm = theirs[key].grad.norm().item()
        worst = max(worst, (value.grad - theirs[key].grad).norm().item() / norm)
    print(f"{name}: loss {loss.item():.6f}, largest difference {worst:.1e}")
    return worst < 2e-5


if __name__ == "__main__":
    if not all([compare(name, fields) for name, fields in CASES.items()]):
        sys.exit("the library disagrees")
