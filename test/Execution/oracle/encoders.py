# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""BERT, RoBERTa, ELECTRA, ALBERT, DistilBERT, ViT, DeiT and DINOv2 for generate.py, in float64.

    test/Execution/oracle/encoders.py      # compares with transformers

Run on its own, the file compares losses and every gradient with the classes of
the `transformers` library, in float64, for all cases.
"""

import math
import sys

import torch


def size(value):
    """Rows and columns of a field that may be one number."""
    return tuple(value) if isinstance(value, list) else (value, value)


def patches(config):
    rows, columns = size(config["image_size"])
    high, wide = size(config["patch_size"])
    return rows // high, columns // wide


# Names of the stem, of the head's product, of its norm and of its bias.
NAMES = {"bert": ("bert", "cls.predictions.transform.dense",
                  "cls.predictions.transform.LayerNorm", "cls.predictions.bias"),
         "roberta": ("roberta", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
         "electra": ("electra", "generator_predictions.dense",
                     "generator_predictions.LayerNorm", "generator_lm_head.bias"),
         "albert": ("albert", "predictions.dense", "predictions.LayerNorm",
                    "predictions.bias"),
         "distilbert": ("distilbert", "vocab_transform", "vocab_layer_norm",
                        "vocab_projector.bias"),
         "vit": ("vit", "", "", ""), "deit": ("deit", "", "", ""),
         "dinov2": ("dinov2", "", "", "")}
IMAGES = ("vit", "deit", "dinov2")

# Names of a block: query, key, value, what follows them, its norm, the two
# products of the feed-forward and their norm.
BERT_BLOCK = ("attention.self.query", "attention.self.key", "attention.self.value",
              "attention.output.dense", "attention.output.LayerNorm",
              "intermediate.dense", "output.dense", "output.LayerNorm")
VIT_BLOCK = ("attention.attention.query", "attention.attention.key",
             "attention.attention.value", "attention.output.dense",
             "layernorm_before", "intermediate.dense", "output.dense",
             "layernorm_after")
BLOCKS = {"vit": VIT_BLOCK, "deit": VIT_BLOCK,
          "dinov2": (*VIT_BLOCK[:4], "norm1", "mlp.fc1", "mlp.fc2", "norm2"),
          "albert": ("attention.query", "attention.key", "attention.value",
                     "attention.dense", "attention.LayerNorm", "ffn", "ffn_output",
                     "full_layer_layer_norm"),
          "distilbert": ("attention.q_lin", "attention.k_lin", "attention.v_lin",
                         "attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2",
                         "output_layer_norm")}


def unified(config):
    """The fields under BERT's names."""
    if config["model_type"] == "dinov2":
        inner = config["mlp_ratio"] * config["hidden_size"]
        if config["use_swiglu_ffn"]:
            inner = (inner * 2 // 3 + 7) // 8 * 8
        return config | {"intermediate_size": inner}
    if config["model_type"] != "distilbert":
        return config
    names = {"dim": "hidden_size", "n_layers": "num_hidden_layers",
             "n_heads": "num_attention_heads", "hidden_dim": "intermediate_size",
             "activation": "hidden_act"}
    return {names.get(key, key): value for key, value in config.items()} | {
        "layer_norm_eps": 1e-12}


def layers(config):
    """Beginnings of the names of the layers' parameters, one layer after the other."""
    if config["model_type"] == "distilbert":
        return [f"distilbert.transformer.layer.{i}." for i in range(config["num_hidden_layers"])]
    if config["model_type"] == "albert":
        # Layers of a group share their parameters.
        each, inner = config["num_hidden_layers"] / config["num_hidden_groups"], \
            config["inner_group_num"]
        return [f"albert.encoder.albert_layer_groups.{int(i / each)}.albert_layers.{j}."
                for i in range(config["num_hidden_layers"]) for j in range(inner)]
    return [f"{config['model_type']}.encoder.layer.{i}."
            for i in range(config["num_hidden_layers"])]


def frozen(config):
    """Names of parameters that are not trained."""
    return ("dinov2.embeddings.mask_token",) if config.get("use_mask_token") else ()


def tokens(config):
    """What is learnt in front of patches."""
    names = ["cls_token"] + ["distillation_token"] * (config["model_type"] == "deit")
    return [f"{config['model_type']}.embeddings.{name}" for name in names]


def project(config):
    """The product from the width of words; None without one."""
    if config["model_type"] == "albert":
        return "albert.encoder.embedding_hidden_mapping_in"
    narrow = config.get("embedding_size", config["hidden_size"])
    return None if narrow == config["hidden_size"] else (
        config["model_type"] + ".embeddings_project")


def first_position(config):
    """Its row of the table of positions."""
    return config["pad_token_id"] + 1 if config["model_type"] == "roberta" else 0


def parameter_shapes(config):
    config = unified(config)
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes = {}

    def dense(name, out, ins, bias=True):
        shapes[name + ".weight"] = (out, ins)
        if bias:
            shapes[name + ".bias"] = (out,)

    def norm(name, width=width):
        shapes[name + ".weight"] = shapes[name + ".bias"] = (width,)

    bert = config["model_type"] not in IMAGES
    narrow = config.get("embedding_size", width)
    stem, head_dense, head_norm, head_bias = NAMES[config["model_type"]]
    if bert:
        words = (config["vocab_size"], narrow)
        names = stem + ".embeddings."
        shapes[names + "word_embeddings.weight"] = words
        shapes[names + "position_embeddings.weight"] = (
            config["max_position_embeddings"], narrow)
        if "type_vocab_size" in config:
            shapes[names + "token_type_embeddings.weight"] = (
                config["type_vocab_size"], narrow)
        norm(names + "LayerNorm", narrow)
        if project(config):
            dense(project(config), width, narrow)
    else:
        high, wide = size(config["patch_size"])
        down, across = patches(config)
        for token in tokens(config):
            shapes[token] = (1, 1, width)
        for token in frozen(config):
            shapes[token] = (1, width)
        shapes[stem + ".embeddings.position_embeddings"] = (
            1, down * across + len(tokens(config)), width)
        projection = stem + ".embeddings.patch_embeddings.projection"
        shapes[projection + ".weight"] = (width, config["num_channels"], high, wide)
        shapes[projection + ".bias"] = (width,)
    block = BLOCKS.get(config["model_type"], BERT_BLOCK)
    for layer in layers(config):
        for name in block[:3]:
            dense(layer + name, width, width, config.get("qkv_bias", True))
        dense(layer + block[3], width, width)
        if config.get("use_swiglu_ffn"):
            dense(layer + "mlp.gate_proj", inner, width)
            dense(layer + "mlp.up_proj", inner, width)
            dense(layer + "mlp.weights_out", width, inner)
        else:
            dense(layer + block[5], inner, width)
            dense(layer + block[6], width, inner)
        if config["model_type"] == "dinov2":
            shapes[layer + "layer_scale1.lambda1"] = (width,)
            shapes[layer + "layer_scale2.lambda1"] = (width,)
        norm(layer + block[4])
        norm(layer + block[7])
    if bert:
        dense(head_dense, narrow, width)
        norm(head_norm, narrow)
        shapes[head_bias] = words[:1]
    else:
        norm(stem + ".layernorm")
        dense("classifier", config["num_labels"],
              2 * width if config["model_type"] == "dinov2" else width)
    return shapes


def batch(config, seq_len, samples, step, hashes, uniform):
    """What the model takes, by name; labels of -1 do not count."""
    def draw(name, count, below):
        return torch.from_numpy((hashes(f"{name}.{step}", count) % below).astype("int64"))

    if config["model_type"] in IMAGES:
        rows, columns = size(config["image_size"])
        shape = (samples, config["num_channels"], rows, columns)
        images = torch.from_numpy(uniform(f"images.{step}", math.prod(shape)))
        classes = draw("classes", samples, config["num_labels"])
        if step > 1:
            classes[draw("skip", samples, 5) == 0] = -1
        return {"images": images.reshape(shape), "classes": classes}
    count = samples * seq_len
    place = torch.arange(seq_len)[None, :]
    # The first sample has no padding, others what is left of their length.
    length = draw("length", samples, seq_len)[:, None] + 1
    length[0] = seq_len
    second = draw("second", samples, seq_len)[:, None]
    mask = (place < length).long()
    tokens = draw("tokens", count, config["vocab_size"]).reshape(samples, seq_len)
    tokens[mask == 0] = config["pad_token_id"]
    labels = draw("labels", count, config["vocab_size"]).reshape(samples, seq_len)
    labels[draw("masked", count, 3).reshape(samples, seq_len) != 0] = -1
    labels[mask == 0] = -1
    types = (place >= second).long() * (config.get("type_vocab_size", 1) - 1)
    return {"tokens": tokens, "mask": mask, "token_types": types, "labels": labels}


def gelu(config, x):
    if config["hidden_act"] == "gelu":
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))


def loss_of(config, p, data):
    config = unified(config)
    block = BLOCKS.get(config["model_type"], BERT_BLOCK)
    width, heads = config["hidden_size"], config["num_attention_heads"]
    bert = config["model_type"] not in IMAGES
    stem, head_dense, head_norm, head_bias = NAMES[config["model_type"]]

    def norm(x, name):
        return torch.nn.functional.layer_norm(
            x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"],
            config["layer_norm_eps"])

    def dense(x, name):
        y = x @ p[name + ".weight"].T
        return y + p[name + ".bias"] if name + ".bias" in p else y

    def split(x):
        return x.view(*x.shape[:2], heads, width // heads).transpose(1, 2)

    def attention(x, layer):
        q, k, v = (split(dense(x, layer + part)) for part in block[:3])
        scores = q @ k.transpose(2, 3) / math.sqrt(width // heads)
        if bert:
            hidden = data["mask"][:, None, None, :] == 0
            scores = scores.masked_fill(hidden, -math.inf)
        o = torch.softmax(scores, dim=3) @ v
        return dense(o.transpose(1, 2).reshape(x.shape), layer + block[3])

    def scaled(x, layer, half):
        return x * p[f"{layer}layer_scale{half}.lambda1"] if stem == "dinov2" else x

    def feed_forward(x, layer):
        if config.get("use_swiglu_ffn"):
            gate = dense(x, layer + "mlp.gate_proj")
            hidden = gate * torch.sigmoid(gate) * dense(x, layer + "mlp.up_proj")
            return dense(hidden, layer + "mlp.weights_out")
        return dense(gelu(config, dense(x, layer + block[5])), layer + block[6])

    if bert:
        names = stem + ".embeddings."
        words = p[names + "word_embeddings.weight"]
        x = torch.nn.functional.embedding(data["tokens"], words,
                                          padding_idx=config["pad_token_id"])
        if "type_vocab_size" in config:
            x = x + p[names + "token_type_embeddings.weight"][data["token_types"]]
        first = first_position(config)
        x = x + p[names + "position_embeddings.weight"][first:first + x.shape[1]]
        x = norm(x, names + "LayerNorm")
        if project(config):
            x = dense(x, project(config))
    else:
        high, wide = size(config["patch_size"])
        down, across = patches(config)
        images = data["images"][:, :, :down * high, :across * wide]
        samples, channels = images.shape[:2]
        names = stem + ".embeddings."
        weight = p[names + "patch_embeddings.projection.weight"]
        cut = images.reshape(samples, channels, down, high, across, wide)
        cut = cut.permute(0, 2, 4, 1, 3, 5).reshape(samples, down * across, -1)
        x = (cut.to(weight.dtype) @ weight.reshape(width, -1).T
             + p[names + "patch_embeddings.projection.bias"])
        first = [p[name].expand(samples, 1, width) for name in tokens(config)]
        x = torch.cat((*first, x), dim=1)
        x = x + p[names + "position_embeddings"]
    for layer in layers(config):
        if bert:
            x = norm(x + attention(x, layer), layer + block[4])
            x = norm(x + feed_forward(x, layer), layer + block[7])
        else:
            x = x + scaled(attention(norm(x, layer + block[4]), layer), layer, 1)
            x = x + scaled(feed_forward(norm(x, layer + block[7]), layer), layer, 2)
    if bert:
        # These heads have this one whatever the blocks have.
        kind = {"hidden_act": "gelu"} if stem in ("electra", "roberta") else config
        x = norm(gelu(kind, dense(x, head_dense)), head_norm)
        logits = x @ words.T + p[head_bias]
    else:
        x = norm(x, stem + ".layernorm")
        read = x[:, 0]
        if stem == "dinov2":
            read = torch.cat((read, x[:, 1:].mean(dim=1)), dim=1)
        logits = dense(read, "classifier")
    labels = data["labels" if bert else "classes"]
    return torch.nn.functional.cross_entropy(
        logits.reshape(labels.numel(), -1), labels.reshape(-1), ignore_index=-1)


def config(model_type, **changes):
    fields = {
        "model_type": model_type, "hidden_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 36, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02, "layer_norm_eps": 1e-12,
    }
    return fields | changes


def dinov2(**changes):
    fields = config("dinov2", image_size=12, patch_size=4, num_channels=3, num_labels=7,
                    qkv_bias=True, mlp_ratio=3, use_swiglu_ffn=False,
                    use_mask_token=True, layerscale_value=1.0, layer_norm_eps=1e-6)
    del fields["intermediate_size"]
    return fields | changes


CASES = {
    "roberta": config("roberta", vocab_size=37, max_position_embeddings=20,
                      type_vocab_size=1, pad_token_id=1),
    "roberta-tanh": config("roberta", vocab_size=41, max_position_embeddings=21,
                           type_vocab_size=2, pad_token_id=4, hidden_act="gelu_new"),
    "bert": config("bert", vocab_size=37, max_position_embeddings=20,
                   type_vocab_size=2, pad_token_id=0),
    "bert-tanh": config("bert", vocab_size=41, max_position_embeddings=16,
                        type_vocab_size=3, pad_token_id=5, hidden_size=20,
                        num_attention_heads=2, num_hidden_layers=3,
                        hidden_act="gelu_new", layer_norm_eps=1e-3),
    "electra": config("electra", vocab_size=37, max_position_embeddings=20,
                      type_vocab_size=2, pad_token_id=0, embedding_size=12,
                      hidden_act="gelu_new"),
    "albert": config("albert", vocab_size=37, max_position_embeddings=20,
                     type_vocab_size=2, pad_token_id=0, embedding_size=12,
                     num_hidden_layers=4, num_hidden_groups=1, inner_group_num=1,
                     hidden_act="gelu_new"),
    "albert-groups": config("albert", vocab_size=37, max_position_embeddings=20,
                            type_vocab_size=2, pad_token_id=3, embedding_size=24,
                            num_hidden_layers=3, num_hidden_groups=2, inner_group_num=2),
    "distilbert": {
        "model_type": "distilbert", "vocab_size": 37, "max_position_embeddings": 20,
        "dim": 24, "n_layers": 3, "n_heads": 4, "hidden_dim": 36, "activation": "gelu",
        "dropout": 0.0, "attention_dropout": 0.0, "pad_token_id": 0,
        "initializer_range": 0.02},
    "vit": config("vit", image_size=12, patch_size=4, num_channels=3, num_labels=7,
                  qkv_bias=True),
    "deit": config("deit", image_size=[12, 8], patch_size=4, num_channels=3,
                   num_labels=7, qkv_bias=True),
    "dinov2": dinov2(),
    "dinov2-gated": dinov2(use_swiglu_ffn=True, mlp_ratio=2, num_labels=5,
                           use_mask_token=False, qkv_bias=False, layer_norm_eps=1e-3,
                           image_size=14),
    "vit-oblong": config("vit", image_size=[9, 14], patch_size=[4, 3],
                         num_channels=1, num_labels=5, qkv_bias=False,
                         hidden_act="gelu_new", layer_norm_eps=1e-3),
}


def module_name(name):
    """Of a parameter in the library's newer modules, whose files keep the names."""
    for stored, inside in (("attention.attention.query", "attention.q_proj"),
                           ("attention.attention.key", "attention.k_proj"),
                           ("attention.attention.value", "attention.v_proj"),
                           ("attention.output.dense", "attention.o_proj"),
                           ("intermediate.dense", "mlp.fc1"), ("output.dense", "mlp.fc2"),
                           ("mlp.weights_out", "mlp.down_proj"),
                           (".encoder.layer.", ".layers.")):
        if not (name.startswith("dinov2.") and inside == ".layers."):
            name = name.replace(stored, inside)
    return name


def compare(name, fields):
    """The library's class with our weights: the largest difference."""
    import transformers
    from generate import batch as make, initial
    from library import largest_difference

    kinds = {"bert": ("Bert", "BertForMaskedLM"),
             "roberta": ("Roberta", "RobertaForMaskedLM"),
             "electra": ("Electra", "ElectraForMaskedLM"),
             "albert": ("Albert", "AlbertForMaskedLM"),
             "distilbert": ("DistilBert", "DistilBertForMaskedLM"),
             "vit": ("ViT", "ViTForImageClassification"),
             "deit": ("DeiT", "DeiTForImageClassification"),
             "dinov2": ("Dinov2", "Dinov2ForImageClassification")}
    kind, model_class = kinds[fields["model_type"]]
    settings = {key: value for key, value in fields.items() if key != "model_type"}
    model = getattr(transformers, model_class)(
        getattr(transformers, kind + "Config")(**settings)).double()
    weights = {key: torch.tensor(initial(key, shape),
                                 requires_grad=key not in frozen(fields))
               for key, shape in parameter_shapes(fields).items()}
    theirs = dict(model.named_parameters())
    if fields["model_type"] in IMAGES and not set(theirs) == set(weights):
        theirs = {key: theirs.pop(module_name(key)) for key in weights} | theirs
    data = make(fields, 16, 4, 2)

    def answer():
        if fields["model_type"] in IMAGES:
            return model(data["images"]).logits, data["classes"]
        # Words are drawn, that of padding too.
        place = torch.arange(16) + first_position(fields)
        types = ({"token_type_ids": data["token_types"]} if kind != "DistilBert"
                 else {})
        logits = model(data["tokens"], attention_mask=data["mask"],
                       position_ids=place[None, :].expand(4, 16), **types).logits
        return logits, data["labels"]

    # Softmax does not see the biases of keys: rounding is all they get.
    worst = largest_difference(name, theirs, weights,
                               lambda: loss_of(fields, weights, data), answer,
                               floor=1e-3)
    return worst < 1e-10


if __name__ == "__main__":
    if not all([compare(name, fields) for name, fields in CASES.items()]):
        sys.exit("the library disagrees")
