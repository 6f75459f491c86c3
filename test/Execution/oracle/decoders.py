# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoders with rotary embedding for generate.py, written out in float64.

    test/Execution/oracle/decoders.py      # compares with transformers

Run on its own, the file compares losses and every gradient with the classes of
the `transformers` library, in float32 as those compute their norms, for all cases.
Needs a version that has them all (5.0 or later).
"""

import math
import sys

import torch


# Where families differ from LLaMA. `norms`: where those of a block stand, before
# each half, before both halves at once, before each of both halves that are added
# together, behind each half, or around each half. `offset` is added to the weights
# of norms. `fused`: the tensor of files that has the rows of q, k and v, and whether
# they stand there key head by key head; `fused_inner`: that of gate and up.
PLAIN = {
    "norm": "rms", "eps": "rms_norm_eps", "norms": "before",
    "attention_norm": "input_layernorm", "inner_norm": "post_attention_layernorm",
    "output": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj",
    "down": "mlp.down_proj", "final": "model.norm", "query_norm": None,
    "blocks": "model.layers.", "words": "model.embed_tokens", "head": "lm_head",
    "heads": "self_attn.{}_proj", "fused": None, "fused_inner": None,
    "activation": "silu", "head_bias": False, "part": None, "offset": 0.0,
    "padding": None, "positions": None, "interleaved": False,
    "embedding_norm": None, "slopes": False,
}
# Rows of OPT's table of positions in front of the first position's.
ROWS_BEFORE = 2
GEMMA = {"activation": "gelu", "offset": 1.0, "padding": 0}
AROUND = GEMMA | {
    "norms": "around", "behind_attention": "post_attention_layernorm",
    "inner_norm": "pre_feedforward_layernorm",
    "behind_inner": "post_feedforward_layernorm"}
FUSED = {"norm": "layer", "gate": None, "up": "mlp.dense_h_to_4h",
         "down": "mlp.dense_4h_to_h", "activation": "gelu"}
OLMO = {"norms": "behind", "attention_norm": "post_attention_layernorm",
        "inner_norm": "post_feedforward_layernorm", "query_norm": "whole",
        "padding": 1}
GLM = {"fused_inner": "mlp.gate_up_proj", "part": 0.5, "interleaved": True,
       "padding": 7}
COHERE = {"norm": "scale", "eps": "layer_norm_eps", "norms": "both",
          "interleaved": True, "padding": 0}
FAMILIES = {
    "cohere": COHERE, "cohere2": COHERE,
    "bloom": FUSED | {
        "eps": "layer_norm_epsilon", "final": "transformer.ln_f",
        "blocks": "transformer.h.", "words": "transformer.word_embeddings",
        "heads": "self_attention.{}", "output": "self_attention.dense",
        "fused": ("self_attention.query_key_value", True), "slopes": True,
        "embedding_norm": "transformer.word_embeddings_layernorm"},
    "mpt": {
        "norm": "scale", "eps": "layer_norm_epsilon", "final": "transformer.norm_f",
        "attention_norm": "norm_1", "inner_norm": "norm_2", "gate": None,
        "up": "ffn.up_proj", "down": "ffn.down_proj", "activation": "gelu",
        "blocks": "transformer.blocks.", "words": "transformer.wte",
        "heads": "attn.{}", "output": "attn.out_proj", "fused": ("attn.Wqkv", False),
        "slopes": True},
    "gptj": {
        "norm": "layer", "eps": "layer_norm_epsilon", "norms": "both",
        "attention_norm": "ln_1", "gate": None, "up": "mlp.fc_in",
        "down": "mlp.fc_out", "final": "transformer.ln_f", "blocks": "transformer.h.",
        "words": "transformer.wte", "heads": "attn.{}_proj",
        "output": "attn.out_proj", "activation": "gelu", "head_bias": True,
        "interleaved": True},
    "glm": GLM,
    "glm4": GLM | {"norms": "around", "behind_attention": "post_self_attn_layernorm",
                   "behind_inner": "post_mlp_layernorm"},
    "llama": {}, "mistral": {}, "qwen2": {}, "qwen3": {"query_norm": "head"},
    "granite": {}, "smollm3": {},
    "olmo": {"norm": "plain", "eps": None, "padding": 1},
    "olmo2": OLMO, "olmo3": OLMO, "gemma": GEMMA,
    "opt": {"norm": "layer", "eps": None, "attention_norm": "self_attn_layer_norm",
            "inner_norm": "final_layer_norm", "output": "self_attn.out_proj",
            "gate": None, "up": "fc1", "down": "fc2", "activation": "relu",
            "final": "model.decoder.final_layer_norm", "blocks": "model.decoder.layers.",
            "words": "model.decoder.embed_tokens", "padding": 1,
            "positions": "model.decoder.embed_positions"},
    "phi3": {"fused": ("self_attn.qkv_proj", False), "padding": 7,
             "fused_inner": "mlp.gate_up_proj", "part": 1.0},
    "gpt_neox": FUSED | {
        "eps": "layer_norm_eps", "norms": "apart", "final": "gpt_neox.final_layer_norm",
        "blocks": "gpt_neox.layers.", "words": "gpt_neox.embed_in", "head": "embed_out",
        "heads": "attention.{}", "output": "attention.dense", "part": 0.25,
        "fused": ("attention.query_key_value", True)},
    "falcon": FUSED | {
        "eps": "layer_norm_epsilon", "norms": "both", "final": "transformer.ln_f",
        "blocks": "transformer.h.", "words": "transformer.word_embeddings",
        "heads": "self_attention.{}", "output": "self_attention.dense",
        "fused": ("self_attention.query_key_value", True)},
    "gemma2": AROUND, "gemma3_text": AROUND | {"query_norm": "head"},
    "phi": {"norm": "layer", "eps": "layer_norm_eps", "norms": "both",
            "output": "self_attn.dense", "gate": None, "up": "mlp.fc1",
            "down": "mlp.fc2", "final": "model.final_layernorm",
            "activation": "gelu", "head_bias": True, "part": 0.5},
    "stablelm": {"norm": "layer", "eps": "layer_norm_eps", "part": 0.25},
    "starcoder2": {"norm": "layer", "eps": "norm_epsilon", "gate": None,
                   "up": "mlp.c_fc", "down": "mlp.c_proj", "activation": "gelu"},
}


def family(config):
    result = PLAIN | FAMILIES[config["model_type"]]
    kind = config["model_type"]
    if config.get("use_qk_norm"):
        result["query_norm"] = "each"
    if kind == "stablelm" and config.get("use_parallel_residual"):
        result["norms"] = "both"
    if kind == "gpt_neox" and not config.get("use_parallel_residual", True):
        result["norms"] = "before"
    if kind == "falcon":
        if config.get("new_decoder_architecture"):
            if config.get("num_ln_in_parallel_attn", 2) == 2:
                result |= {"norms": "apart", "attention_norm": "ln_attn",
                           "inner_norm": "ln_mlp"}
        elif not config.get("parallel_attn", True):
            result["norms"] = "before"
    return result


# What families call their sizes.
SPELLINGS = {
    "hidden_size": ("n_embd", "n_embed", "d_model"),
    "num_hidden_layers": ("n_layer", "n_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length"),
    "intermediate_size": ("ffn_hidden_size", "ffn_dim", "n_inner"),
}


def spelt(config):
    """The configuration with the sizes by their usual names as well."""
    result = dict(config)
    for name, others in SPELLINGS.items():
        for other in others:
            if other in config:
                result[name] = config[other]
    if config["model_type"] in ("bloom", "mpt"):
        result["intermediate_size"] = 4 * result["hidden_size"]
    if config["model_type"] == "gptj":
        width = result["hidden_size"] // result["num_attention_heads"]
        result["rope_parameters"] = {
            "rope_type": "default", "rope_theta": 10000.0,
            "partial_rotary_factor": config["rotary_dim"] / width}
    return result


def head_names(config):
    """Names of the products to queries, keys and values behind a layer's."""
    words = "query key value" if "proj" not in family(config)["heads"] else "q k v"
    return [family(config)["heads"].format(word) for word in words.split()]


def key_heads(config):
    heads = config["num_attention_heads"]
    if config["model_type"] == "falcon":
        if config.get("new_decoder_architecture"):
            return config.get("num_kv_heads", heads)
        return 1 if config.get("multi_query", True) else heads
    return config.get("num_key_value_heads", heads)


def stored(config, tensors):
    """Tensors as files have them, of those that the program has."""
    config = spelt(config)
    style = family(config)
    fused, by_head = style["fused"] or (None, False)
    result = dict(tensors)
    groups = key_heads(config) if by_head else 1
    for layer in [f"{style['blocks']}{i}." for i in range(config["num_hidden_layers"])]:
        for kind in ("weight", "bias") if fused else ():
            names = [f"{layer}{name}.{kind}" for name in head_names(config)]
            if names[0] not in result:
                continue
            parts = [result.pop(name) for name in names]
            rest = parts[0].shape[1:]
            parts = [part.reshape(groups, -1, *rest) for part in parts]
            result[f"{layer}{fused}.{kind}"] = torch.cat(parts, dim=1).reshape(-1, *rest)
        if style["fused_inner"]:
            result[f"{layer}{style['fused_inner']}.weight"] = torch.cat(
                [result.pop(f"{layer}{style[name]}.weight") for name in ("gate", "up")])
    return result


def windows(config):
    """Keys that a query sees, by layer; None: all."""
    layers, window = config["num_hidden_layers"], config.get("sliding_window")
    if config["model_type"] in ("mistral", "starcoder2", "phi3"):
        return [window] * layers
    if config["model_type"] in ("cohere2", "gemma2", "gemma3_text", "olmo3"):
        usual = {"gemma2": 2, "gemma3_text": 6}.get(config["model_type"], 4)
        every = config.get("sliding_window_pattern", usual)
        kinds = config.get("layer_types") or [
            "sliding_attention" if (i + 1) % every else "full_attention"
            for i in range(layers)]
        return [window if kind == "sliding_attention" else None for kind in kinds]
    if "layer_types" in config:
        return [window if kind == "sliding_attention" else None
                for kind in config["layer_types"]]
    if config["model_type"] == "smollm3" and config.get("use_sliding_window"):
        return [None if turns else window for turns in rotates(config)]
    return [None] * layers


def rotates(config):
    """Whether queries and keys are rotated, by layer."""
    layers = config["num_hidden_layers"]
    if config["model_type"] == "cohere2":
        return [window is not None for window in windows(config)]
    if config["model_type"] != "smollm3":
        return [config["model_type"] not in ("bloom", "mpt", "opt")] * layers
    listed = config.get("no_rope_layers")
    interval = config.get("no_rope_layer_interval", 4)
    return ([bool(turns) for turns in listed] if listed
            else [(i + 1) % interval != 0 for i in range(layers)])


def biases(config):
    """Of the projections to heads, of the one back, of the feed-forward's."""
    kind = config["model_type"]
    if kind in ("bloom", "mpt"):
        return (kind == "bloom",) * 3
    if kind == "gptj":
        return False, False, True
    if kind in ("phi", "starcoder2"):
        return (config.get("use_bias", True),) * 3
    if kind == "falcon":
        return (config.get("bias", False),) * 3
    if kind == "opt":
        return (config.get("enable_bias", True),) * 3
    if kind == "gpt_neox":
        attention = config.get("attention_bias", True)
        return attention, attention, True
    if kind == "stablelm":
        return config.get("use_qkv_bias", False), False, False
    if kind in ("glm", "glm4"):
        return config.get("attention_bias", True), False, False
    attention = config.get("attention_bias", False)
    return (attention or kind == "qwen2", attention,
            config.get("mlp_bias", False))


def parameter_shapes(config):
    config = spelt(config)
    width = config["hidden_size"]
    inner = config["intermediate_size"]
    heads, groups = config["num_attention_heads"], key_heads(config)
    size = config.get("head_dim", width // heads)
    projection, output, feed = biases(config)
    style = family(config)
    shapes = {style["words"] + ".weight": (config["vocab_size"], width)}
    if style["positions"]:
        shapes[style["positions"] + ".weight"] = (
            config["max_position_embeddings"] + ROWS_BEFORE, width)

    def norm(name):
        if style["norm"] != "plain":
            shapes[name + ".weight"] = (width,)
        if style["norm"] == "layer":
            shapes[name + ".bias"] = (width,)

    if style["embedding_norm"]:
        norm(style["embedding_norm"])
    for i in range(config["num_hidden_layers"]):
        layer = f"{style['blocks']}{i}."
        norm(layer + style["attention_norm"])
        for name, rows in zip(head_names(config), (heads, groups, groups)):
            shapes[f"{layer}{name}.weight"] = (rows * size, width)
            if projection:
                shapes[f"{layer}{name}.bias"] = (rows * size,)
        for name, rows in ("q", heads), ("k", groups):
            if style["query_norm"]:
                shapes[layer + f"self_attn.{name}_norm.weight"] = {
                    "whole": (rows * size,), "head": (size,), "each": (rows, size),
                }[style["query_norm"]]
        shapes[layer + style["output"] + ".weight"] = (width, heads * size)
        if output:
            shapes[layer + style["output"] + ".bias"] = (width,)
        if style["norms"] != "both":
            norm(layer + style["inner_norm"])
        if style["norms"] == "around":
            norm(layer + style["behind_attention"])
            norm(layer + style["behind_inner"])
        for name, shape in ((style["gate"], (inner, width)),
                            (style["up"], (inner, width)),
                            (style["down"], (width, inner))):
            if name:
                shapes[layer + name + ".weight"] = shape
            if name and feed:
                shapes[layer + name + ".bias"] = shape[:1]
    norm(style["final"])
    if not config["tie_word_embeddings"]:
        shapes[style["head"] + ".weight"] = (config["vocab_size"], width)
    if style["head_bias"]:
        shapes["lm_head.bias"] = (config["vocab_size"],)
    return shapes


def rope_of(config, window):
    """What says how a layer is rotated."""
    kinds = config["rope_parameters"]
    if "full_attention" in kinds:
        return kinds["sliding_attention" if window else "full_attention"]
    return kinds


def rotated(config, size):
    """How many elements of a head are rotated."""
    part = config.get("rope_parameters", {}).get("partial_rotary_factor",
                                         family(config)["part"] or 1.0)
    return int(size * part)


def frequencies(rope, size, length):
    """Radians a position of each pair, and the factor of cosine and sine."""
    theta, kind = rope["rope_theta"], rope["rope_type"]
    plain = [theta ** (-2 * i / size) for i in range(size // 2)]
    if kind in ("default", "dynamic"):
        return plain, 1.0
    factor = rope["factor"]
    if kind == "linear":
        return [w / factor for w in plain], 1.0
    reach = rope["original_max_position_embeddings"]
    if kind == "longrope":
        # Sequences here are longer than the original ones, or not.
        factors = rope["long_factor" if length > reach else "short_factor"]
        return ([w / f for w, f in zip(plain, factors, strict=True)],
                math.sqrt(1 + math.log(factor) / math.log(reach)))
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


def slope(head, heads):
    """Of ALiBi (arXiv 2108.12409), with what its authors' code does where heads are
    no power of two."""
    power = 2 ** math.floor(math.log2(heads))
    if head < power:
        return 2.0 ** (-8 / power * (head + 1))
    return 2.0 ** (-8 / (2 * power) * (2 * (head - power) + 1))


def loss_of(config, p, tokens, labels):
    config = spelt(config)
    width, heads = config["hidden_size"], config["num_attention_heads"]
    groups = key_heads(config)
    size = config.get("head_dim", width // heads)
    samples, length = tokens.shape
    style = family(config)
    kind = p[style["words"] + ".weight"].dtype
    eps = config[style["eps"]] if style["eps"] else 1e-5

    def rms(x, name):
        scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
        return x * scale * (style["offset"] + p[name + ".weight"])

    def norm(x, name):
        if style["norm"] == "rms":
            return rms(x, name)
        return torch.nn.functional.layer_norm(
            x, (width,), p.get(name + ".weight"), p.get(name + ".bias"), eps)

    def linear(x, name):
        y = x @ p[name + ".weight"].T
        return y + p[name + ".bias"] if name + ".bias" in p else y

    def activate(x):
        if style["activation"] == "silu":
            return x * torch.sigmoid(x)
        if config.get("activation_function") == "relu":
            return torch.relu(x)
        if (config.get("activation_function", config.get("hidden_act", "gelu"))
                == "gelu" and not style["gate"] and config["model_type"] != "bloom"):
            return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return 0.5 * x * (1 + torch.tanh(inner))

    part = rotated(config, size)

    def turn_of(window):
        speeds, factor = frequencies(rope_of(config, window), part, length)
        angle = torch.outer(torch.arange(length, dtype=torch.float64),
                            torch.tensor(speeds, dtype=torch.float64))
        return torch.polar(torch.full_like(angle, factor), angle)

    def rotate(x, turn):
        """Pairs (i, i + part / 2), or neighbours, as complex numbers; what is behind
        them stays."""
        low, high = x[..., :part].double().chunk(2, dim=-1)
        if style["interleaved"]:
            pairs = x[..., :part].double().unflatten(-1, (-1, 2))
            turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
            return torch.cat((turned.flatten(-2).to(kind), x[..., part:]), dim=-1)
        turned = torch.complex(low, high) * turn
        return torch.cat((turned.real.to(kind), turned.imag.to(kind), x[..., part:]),
                         dim=-1)

    def split(x, count):
        return x.view(samples, length, count, size).transpose(1, 2)

    distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    scale = 1 / math.sqrt(config.get("query_pre_attn_scalar", size))
    if config["model_type"] == "granite":
        scale = config.get("attention_multiplier", 1.0)
    if config["model_type"] == "mpt":
        scale = config["attn_config"].get("softmax_scale") or scale
    cap = config.get("attn_logit_softcapping")
    limit = config.get("attn_config", config).get("clip_qkv") or math.inf

    def attend(x, layer, window, turns):
        q, k, v = (linear(x, layer + name).clamp(-limit, limit)
                   for name in head_names(config))
        if style["query_norm"] == "whole":
            q = rms(q, layer + "self_attn.q_norm")
            k = rms(k, layer + "self_attn.k_norm")
        q, k = split(q, heads), split(k, groups)
        v = split(v, groups)
        if style["query_norm"] == "head":
            q = rms(q, layer + "self_attn.q_norm")
            k = rms(k, layer + "self_attn.k_norm")
        if style["query_norm"] == "each":
            q, k = (torch.nn.functional.layer_norm(part, (size,), eps=eps)
                    * p[f"{layer}self_attn.{name}_norm.weight"][:, None]
                    for part, name in ((q, "q"), (k, "k")))
        if turns:
            q, k = rotate(q, turn_of(window)), rotate(k, turn_of(window))
        hidden = distance < 0
        if window:
            hidden = hidden | (distance >= window)
        outputs = []
        for head in range(heads):
            group = head // (heads // groups)
            scores = q[:, head] @ k[:, group].transpose(1, 2) * scale
            if cap:
                scores = cap * torch.tanh(scores / cap)
            if style["slopes"]:
                scores = scores - slope(head, heads) * distance
            scores = scores.masked_fill(hidden, -math.inf)
            outputs.append(torch.softmax(scores, dim=2) @ v[:, group])
        return linear(torch.cat(outputs, dim=2), layer + style["output"])

    def feed(x, layer):
        h = activate(linear(x, layer + (style["gate"] or style["up"])))
        if style["gate"]:
            h = h * linear(x, layer + style["up"])
        return linear(h, layer + style["down"])

    residual = config.get("residual_multiplier", 1.0)
    padding = config.get("pad_token_id", style["padding"])
    x = torch.nn.functional.embedding(tokens, p[style["words"] + ".weight"], padding)
    x = x * config.get("embedding_multiplier",
                       math.sqrt(width) if style["offset"] else 1.0)
    if style["positions"]:
        x = x + p[style["positions"] + ".weight"][ROWS_BEFORE:][:length]
    if style["embedding_norm"]:
        x = norm(x, style["embedding_norm"])
    for i, (window, turns) in enumerate(zip(windows(config), rotates(config))):
        layer = f"{style['blocks']}{i}."
        first, second = layer + style["attention_norm"], layer + style["inner_norm"]
        if style["norms"] == "behind":
            x = x + norm(attend(x, layer, window, turns), first)
            x = x + norm(feed(x, layer), second)
        elif style["norms"] == "around":
            x = x + norm(attend(norm(x, first), layer, window, turns),
                         layer + style["behind_attention"])
            x = x + norm(feed(norm(x, second), layer), layer + style["behind_inner"])
        elif style["norms"] == "both":
            h = norm(x, first)
            x = x + attend(h, layer, window, turns) + feed(h, layer)
        elif style["norms"] == "apart":
            x = (x + attend(norm(x, first), layer, window, turns)
                 + feed(norm(x, second), layer))
        else:
            x = x + attend(norm(x, first), layer, window, turns) * residual
            x = x + feed(norm(x, second), layer) * residual
    logits = norm(x, style["final"]) @ p.get(
        style["head"] + ".weight", p[style["words"] + ".weight"]).T
    if style["head_bias"]:
        logits = logits + p["lm_head.bias"]
    logits = logits / config.get("logits_scaling", 1.0)
    if config["model_type"] in ("cohere", "cohere2"):
        logits = logits * config.get("logit_scale", 0.0625)
    if config.get("final_logit_softcapping"):
        logits = (config["final_logit_softcapping"]
                  * torch.tanh(logits / config["final_logit_softcapping"]))
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
    style = PLAIN | FAMILIES[model_type]
    if model_type in ("gemma2", "gemma3_text"):
        fields["hidden_activation"] = "gelu_pytorch_tanh"
        del fields["hidden_act"]
    eps = fields.pop("rms_norm_eps")
    if style["eps"]:
        fields[style["eps"]] = eps
    if model_type == "opt":
        for name in ("num_key_value_heads", "head_dim", "hidden_act",
                     "initializer_range", "rope_parameters"):
            del fields[name]
        fields |= {"hidden_size": 24, "ffn_dim": fields.pop("intermediate_size"),
                   "activation_function": "relu", "dropout": 0.0, "init_std": 0.02}
    if model_type == "gpt_neox":
        del fields["num_key_value_heads"], fields["head_dim"]
        fields["hidden_size"] = 32
        fields["hidden_act"] = "gelu"
    if model_type in ("bloom", "gptj", "mpt"):
        short = {"bloom": "n_embed n_layer n_head seq_length",
                 "gptj": "n_embd n_layer n_head n_positions n_inner",
                 "mpt": "d_model n_layers n_heads max_seq_len"}[model_type].split()
        kept = [24, 2, 4, 16, 28][:len(short)]
        fields = {"model_type": model_type, "vocab_size": 37,
                  "initializer_range": 0.02, "tie_word_embeddings": True,
                  style["eps"]: eps, **dict(zip(short, kept, strict=True))}
        if model_type == "gptj":
            fields |= {"rotary_dim": 4, "activation_function": "gelu_new",
                       "tie_word_embeddings": False}
    if model_type == "cohere":
        del fields["head_dim"]
        fields["hidden_size"] = 24
    if model_type == "falcon":
        del fields["num_key_value_heads"], fields["head_dim"], fields["hidden_act"]
        fields["hidden_size"] = 24
        fields["ffn_hidden_size"] = fields.pop("intermediate_size")
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
    "gemma-wide": config("gemma", hidden_act="gelu", tie_word_embeddings=True,
                         head_dim=12, attention_bias=True),
    "gemma3-windows": config(
        "gemma3_text", num_hidden_layers=3, sliding_window=5, sliding_window_pattern=3,
        tie_word_embeddings=True, query_pre_attn_scalar=9, head_dim=8,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 3000.0,
                               "factor": 3.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 70.0}}),
    "olmo3-windows": config(
        "olmo3", hidden_size=24, num_hidden_layers=4, sliding_window=4,
        rope_parameters={
            "full_attention": {"rope_type": "yarn", "rope_theta": 50.0, "factor": 4.0,
                               "original_max_position_embeddings": 16},
            "sliding_attention": {"rope_type": "default", "rope_theta": 60.0}}),
    "granite-scales": config(
        "granite", attention_bias=True, mlp_bias=True, embedding_multiplier=1.75,
        attention_multiplier=0.3, residual_multiplier=0.625, logits_scaling=3.0),
    "olmo2-grouped": config("olmo2", hidden_size=24, rms_norm_eps=1e-3,
                            attention_bias=True),
    "phi-part": config("phi", hidden_act="gelu_new", head_dim=10,
                       num_key_value_heads=4, rope_parameters={
                           "rope_type": "default", "rope_theta": 200.0,
                           "partial_rotary_factor": 0.4}),
    "smollm3-window": config(
        "smollm3", num_hidden_layers=3, no_rope_layer_interval=2,
        use_sliding_window=True, sliding_window=5, tie_word_embeddings=True,
        mlp_bias=True, pad_token_id=7),
    "smollm3-listed": config(
        "smollm3", no_rope_layers=[0, 1], layer_types=[
            "full_attention", "sliding_attention"], use_sliding_window=True,
        sliding_window=4, pad_token_id=None),
    "stablelm-parallel": config(
        "stablelm", hidden_size=32, use_parallel_residual=True, use_qkv_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 90.0,
                         "partial_rotary_factor": 0.5}),
    "stablelm-plain": config("stablelm", hidden_size=32),
    "starcoder2-window": config(
        "starcoder2", hidden_act="gelu_pytorch_tanh", sliding_window=6,
        tie_word_embeddings=True),
    "opt-tied": config("opt", tie_word_embeddings=True, pad_token_id=1),
    "opt-no-biases": config("opt", enable_bias=False, activation_function="gelu",
                            pad_token_id=3),
    "phi3-window": config(
        "phi3", head_dim=8, sliding_window=5, pad_token_id=7, rope_parameters={
            "rope_type": "default", "rope_theta": 80.0,
            "partial_rotary_factor": 0.75}),
    "phi3-long": config(
        "phi3", hidden_size=32, head_dim=8, num_key_value_heads=4,
        tie_word_embeddings=True, pad_token_id=7, rope_parameters={
            "rope_type": "longrope", "rope_theta": 60.0, "factor": 4.0,
            "original_max_position_embeddings": 8,
            "partial_rotary_factor": 1.0,
            "short_factor": [1.0, 1.1, 1.2, 1.3],
            "long_factor": [1.0, 1.5, 2.5, 4.0]}),
    "glm-biases": config(
        "glm", head_dim=8, pad_token_id=7, rope_parameters={
            "rope_type": "default", "rope_theta": 80.0,
            "partial_rotary_factor": 0.5}),
    "glm4-around": config(
        "glm4", head_dim=8, attention_bias=False, tie_word_embeddings=True,
        num_key_value_heads=1, pad_token_id=7, rope_parameters={
            "rope_type": "linear", "rope_theta": 60.0, "factor": 2.0,
            "partial_rotary_factor": 0.75}),
    "gpt-neox-parallel": config(
        "gpt_neox", rope_parameters={
            "rope_type": "default", "rope_theta": 70.0,
            "partial_rotary_factor": 0.5}),
    "gpt-neox-behind": config(
        "gpt_neox", use_parallel_residual=False, attention_bias=False,
        tie_word_embeddings=True, hidden_act="gelu_new", rope_parameters={
            "rope_type": "default", "rope_theta": 70.0,
            "partial_rotary_factor": 0.25}),
    "falcon-one-key-head": config("falcon", tie_word_embeddings=True, bias=True),
    "falcon-new": config(
        "falcon", new_decoder_architecture=True, num_kv_heads=2),
    "falcon-following": config(
        "falcon", multi_query=False, parallel_attn=False, bias=True),
    "gptj-part": config("gptj"),
    "gemma2-caps": config(
        "gemma2", num_hidden_layers=3, head_dim=8, sliding_window=5,
        tie_word_embeddings=True, query_pre_attn_scalar=9,
        attn_logit_softcapping=0.75, final_logit_softcapping=1.5),
    "cohere-grouped": config("cohere", attention_bias=True, logit_scale=0.25,
                             tie_word_embeddings=True, pad_token_id=5),
    "cohere-norms": config("cohere", use_qk_norm=True, layer_norm_eps=1e-3),
    "cohere2-windows": config(
        "cohere2", num_hidden_layers=3, head_dim=8, sliding_window=5,
        sliding_window_pattern=3, logit_scale=0.5, rope_parameters={
            "rope_type": "default", "rope_theta": 80.0}),
    "bloom-six-heads": config("bloom", n_head=6),
    "mpt-three-heads": config("mpt", n_heads=3, attn_config={
        "alibi": True, "softmax_scale": 0.4, "clip_qkv": 0.6}),
    "olmo-clipped": config("olmo", hidden_size=24, clip_qkv=0.5),
    "olmo-biases": config("olmo", hidden_size=24, num_key_value_heads=4,
                          attention_bias=True, tie_word_embeddings=True),
    "starcoder2-no-biases": config("starcoder2", hidden_act="gelu", use_bias=False),
}
# Heads of these have the width divided by their number.
for fields in CASES.values():
    if fields["model_type"] == "stablelm":
        del fields["head_dim"]


def compare(name, fields):
    """The library's class with our weights, in float32: largest differences."""
    import transformers
    from generate import batch, initial

    kinds = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2",
             "qwen3": "Qwen3", "granite": "Granite", "olmo": "Olmo", "olmo2": "Olmo2", "phi": "Phi",
             "smollm3": "SmolLM3", "stablelm": "StableLm",
             "starcoder2": "Starcoder2", "gemma": "Gemma",
             "gemma3_text": "Gemma3Text", "olmo3": "Olmo3", "phi3": "Phi3",
             "gpt_neox": "GPTNeoX", "falcon": "Falcon", "opt": "OPT",
             "glm": "Glm", "glm4": "Glm4", "gptj": "GPTJ", "gemma2": "Gemma2",
             "cohere": "Cohere", "cohere2": "Cohere2", "bloom": "Bloom",
             "mpt": "Mpt"}
    kind = kinds[fields["model_type"]]
    settings = {key: value for key, value in fields.items() if key != "model_type"}
    model = getattr(transformers, kind.removesuffix("Text") + "ForCausalLM")(
        getattr(transformers, kind + "Config")(
            **settings, attn_implementation="eager"))
    weights = {key: torch.tensor(initial(key, shape), dtype=torch.float32,
                                 requires_grad=True)
               for key, shape in parameter_shapes(fields).items()}
    # Files have the names of version 4.
    theirs = {key if key != "lm_head.weight" else family(fields)["head"] + ".weight":
              value for key, value in model.named_parameters()}
    files = stored(fields, weights)
    assert set(theirs) == set(files), set(theirs) ^ set(files)
    with torch.no_grad():
        for key, value in files.items():
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
    grads = stored(fields, {key: value.grad for key, value in weights.items()})
    total = math.sqrt(sum(float((p.grad**2).sum()) for p in theirs.values()))
    for key, value in grads.items():
        # Softmax does not see biases of keys that are not rotated.
        norm = max(theirs[key].grad.norm().item(), 1e-3 * total)
        worst = max(worst, (value - theirs[key].grad).norm().item() / norm)
    print(f"{name}: loss {loss.item():.6f}, largest difference {worst:.1e}")
    return worst < 2e-5


if __name__ == "__main__":
    if not all([compare(name, fields) for name, fields in CASES.items()]):
        sys.exit("the library disagrees")
