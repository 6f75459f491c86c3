#!/usr/bin/env python3
"""Writes the models of Table I of arXiv 2307.02031 as layer profiles.

Every number comes from the model's shape: parameters, matrix products, what a
layer keeps for backward, f32, without fused attention. Bytes kept per sample:

  layer    66 * tokens * width + 9 * heads * tokens^2; without dropout 64 and 8.
           Inputs of the products, the normalisations and the activation (4
           bytes), scores after the softmax and after dropout (8), dropout masks
           (1 byte an element)
  decoder  one more attention over the encoder's output
  head     seven copies of the logits are alive at the peak

Three things are not from shapes: BERT keeps 10.6 bytes a score, from the
differences of Table I's rows with 48 and 32 layers; the copies of the logits
are what Table II's out-of-memory cells ask for; T5 is scaled to the table.

  generate.py [--separate-ends] [--list] [-o FOLDER] [MODEL ..]

Attention's products, of a head with the scores, stand apart from the others: they
are small.

The paper counts transformer layers, and so do these profiles: the embedding is
part of the first layer, the head of the last, unless --separate-ends is given.
"""

import argparse
import json
import os
import sys

F32 = 4


class Block:
    """One kind of layer, sizes per sample."""

    def __init__(self, name, count, parameters, flops, boundary, kept,
                 replicated=0, all_reduce=0, moved=0, kernels=0, products=None,
                 attention=0, attention_bytes=0):
        self.name = name
        self.count = count
        self.parameters = parameters  # elements
        self.flops = flops  # of forward
        self.boundary = boundary  # bytes of the input
        self.kept = kept  # bytes for backward besides the input
        self.replicated = replicated  # the part of it that TP does not split
        self.all_reduce = all_reduce  # bytes TP reduces in forward
        self.moved = moved  # bytes of kernels limited by memory bandwidth
        self.kernels = kernels
        self.products = products if products is not None else kept + boundary
        # Of a head's products with scores, which are small; not among `flops`.
        self.attention = attention
        self.attention_bytes = attention_bytes

    def merged(self, other, name, count=1):
        """One layer that does the work of both; `other` comes second."""
        layer = Block(name, count, self.parameters + other.parameters,
                      self.flops + other.flops, self.boundary,
                      self.kept + other.kept, self.replicated +
                      other.replicated, self.all_reduce + other.all_reduce,
                      self.moved + other.moved, self.kernels + other.kernels,
                      self.products + other.products,
                      self.attention + other.attention,
                      self.attention_bytes + other.attention_bytes)
        return layer

    def json(self):
        attention = {
            "forward-attention-flops": round(self.attention),
            "forward-attention-bytes": round(self.attention_bytes),
        }
        return {
            "name": self.name,
            "count": self.count,
            "forward-flops": round(self.flops),
            "forward-moved-bytes": round(self.moved),
            "forward-product-bytes": round(self.products),
            "forward-kernels": self.kernels,
            **(attention if self.attention else {}),
            "parameter-bytes": F32 * round(self.parameters),
            "boundary-bytes": round(self.boundary),
            "intermediate-bytes": round(self.kept),
            "tp-allreduce-bytes": round(self.all_reduce),
            "tp-replicated-bytes": round(self.replicated),
        }


def transformer(name, count, tokens, width, heads, masks=True, window=None,
                cross=None, score_bytes=None):
    """A layer of attention and a feed-forward part of four times the width.

    `window`: tokens that attend to each other (all, if None). `cross`: tokens
    of an encoder that a second attention looks at.
    """
    hidden = 4
    window = window or tokens
    parameters = (4 + 2 * hidden) * width**2 + (9 + hidden) * width
    flops = 2 * tokens * width**2 * (4 + 2 * hidden)
    attention = 4 * tokens * window * width
    # Queries, keys, values and the result; scores are written and read.
    attention_bytes = F32 * (4 * tokens * width + 2 * heads * tokens * window)
    # Of every element of width: input of the first normalisation is the
    # boundary. Kept besides it: q, k, v, the attention's result, inputs of the
    # products, the input of the second normalisation, the feed-forward part
    # before and after its activation, two masks of a byte.
    linear = 66 if masks else 64
    square = score_bytes or (9 if masks else 8)
    boundary = F32 * tokens * width
    kept = linear * tokens * width + square * heads * tokens * window - boundary
    # Inputs of the two normalisations and of the two column-split products, and
    # the masks, are whole on every rank.
    replicated = (12 + (2 if masks else 0)) * tokens * width
    products = F32 * tokens * width * (8 + 2 * (1 + hidden))
    # Elementwise work: two normalisations, two residual sums with dropout, the
    # activation (read and written), and the softmax over the scores.
    moved = F32 * tokens * width * (2 * 2 + 2 * 3 + 2 * hidden) \
        + F32 * heads * tokens * window * (6 if masks else 4)
    kernels = 16
    if cross is not None:
        parameters += 4 * width**2 + 6 * width
        flops += 2 * width**2 * (2 * tokens + 2 * cross)
        attention += 4 * tokens * cross * width
        attention_bytes += F32 * (2 * (tokens + cross) * width
                                  + 2 * heads * tokens * cross)
        kept += (21 if masks else 20) * tokens * width + 8 * cross * width \
            + square * heads * tokens * cross
        replicated += (9 if masks else 8) * tokens * width
        products += F32 * width * (4 * tokens + 4 * cross)
        moved += F32 * tokens * width * 5 + 5 * F32 * heads * tokens * cross
        kernels += 8
    reduces = 2 if cross is None else 3
    return Block(name, count, parameters, flops, boundary, kept, replicated,
                 reduces * boundary, moved, kernels, products, attention,
                 attention_bytes)


def embedding(name, parameters, boundary):
    # A lookup; what is kept is the sum's dropout mask.
    return Block(name, 1, parameters, 0, 0, boundary / 4, boundary / 4,
                 boundary, 3 * boundary, 3, 0)


def head(name, parameters, tokens, width, vocabulary, dense=False):
    """Product with the (tied) vocabulary and cross entropy."""
    logits = F32 * tokens * vocabulary
    boundary = F32 * tokens * width
    flops = 2 * tokens * width * vocabulary
    kept = 7 * logits
    if dense:  # BERT: a dense layer, its activation, a normalisation
        flops += 2 * tokens * width**2
        kept += 3 * boundary
    return Block(name, 1, parameters, flops, boundary, kept,
                 3 * boundary if dense else 0, boundary, 5 * logits, 6,
                 boundary + logits)


def join(first, layers, last, separate):
    """Embedding, layers and head in a row, or the ends merged into layers."""
    if separate:
        return [first] + layers + [last]
    layers = list(layers)
    lone = [block for block in layers if block.count == 1]
    assert not lone or len(layers) > 1

    def split(block, at_end):
        one = Block(**{**vars_of(block), "count": 1})
        rest = Block(**{**vars_of(block), "count": block.count - 1})
        one.name += ".last" if at_end else ".first"
        return one, rest

    one, rest = split(layers[0], at_end=False)
    merged = first.merged(one, one.name)
    layers[:1] = [merged] + ([rest] if rest.count else [])
    one, rest = split(layers[-1], at_end=True)
    merged = one.merged(last, one.name)
    layers[-1:] = ([rest] if rest.count else []) + [merged]
    return layers


def vars_of(block):
    return {
        key: getattr(block, key)
        for key in ("name", "count", "parameters", "flops", "boundary", "kept",
                    "replicated", "all_reduce", "moved", "kernels", "products",
                    "attention", "attention_bytes")
    }


def bert(count, width, heads, separate):
    tokens, vocabulary = 512, 30522
    first = embedding("embedding", (vocabulary + tokens + 2 + 2) * width,
                      F32 * tokens * width)
    # The vocabulary is tied: its parameters are the embedding's.
    last = head("head", 2 * width**2 + 4 * width + vocabulary, tokens, width,
                vocabulary, dense=True)
    layer = transformer("layer", count, tokens, width, heads, score_bytes=10.6)
    return join(first, [layer], last, separate)


def vit(count, width, heads, separate):
    tokens, classes, patch = 197, 1000, 3 * 16 * 16
    first = embedding("patches", patch * width + (tokens + 2) * width,
                      F32 * tokens * width)
    first.flops = 2 * (tokens - 1) * patch * width
    first.products = F32 * (tokens - 1) * (patch + width)
    last = head("head", width * classes + classes + 2 * width, 1, width,
                classes)
    last.boundary = F32 * tokens * width
    return join(first,
                [transformer("layer", count, tokens, width, heads,
                             masks=False)], last, separate)


def gpt3(count, width, heads, separate):
    tokens, vocabulary = 1024, 50257
    first = embedding("embedding", (vocabulary + tokens) * width,
                      F32 * tokens * width)
    last = head("head", 2 * width, tokens, width, vocabulary)
    return join(first, [transformer("layer", count, tokens, width, heads)],
                last, separate)


# Table I: MiB of activations with 32 and with 48 layers, by decoder tokens.
T5_ACTIVATIONS = {512: (4119.66, 6107.75), 4: (1777.06, 2473.10)}
T5_ENCODER = 82.0


def t5(count, width, heads, decoder_tokens, separate):
    tokens, vocabulary, mib = 512, 32128, 2.0**20
    encoder = transformer("encoder", count // 2, tokens, width, heads)
    decoder = transformer("decoder", count // 2, decoder_tokens, width, heads,
                          cross=tokens)
    small, large = T5_ACTIVATIONS[decoder_tokens]
    pair = (large - small) / 8
    for layer, activation in ((encoder, T5_ENCODER),
                              (decoder, pair - T5_ENCODER)):
        kept = activation * mib - layer.boundary
        layer.replicated *= kept / layer.kept
        layer.kept = kept
    # A decoder layer hands on the encoder's output beside its own; it is kept
    # once for all of them, so it is taken off the other bytes.
    relayed = F32 * tokens * width
    decoder.boundary += relayed
    decoder.kept = max(0, decoder.kept - relayed)
    first = embedding("embedding", vocabulary * width, F32 * tokens * width)
    last = head("head", 0, decoder_tokens, width, vocabulary)
    last.boundary = decoder.boundary
    # What the table has beyond the layers.
    last.kept = (small - 16 * pair) * mib - first.kept
    if separate:
        last.kept = max(0, last.kept - last.boundary)
    return join(first, [encoder, decoder], last, separate)


def swin(depth, separate):
    """Four stages; 7 x 7 windows on 224 x 224 images, heads of 40."""
    layers = []
    side, width = 56, 320
    for stage, count in enumerate((2, 2, depth, 2)):
        tokens = side * side
        block = transformer("stage%d" % (stage + 1), count, tokens, width,
                            width // 40, masks=False, window=49)
        layers.append(block)
        if stage < 3:
            # Merging: four neighbours become one of twice the width; it is
            # part of the stage's last layer.
            merge = Block("merge", 1, 8 * width**2 + 8 * width,
                          2 * tokens / 4 * 8 * width**2, 0,
                          F32 * tokens * width * 2, F32 * tokens * width * 2,
                          0, F32 * tokens * width * 4, 2,
                          F32 * tokens * width * 1.5)
            last = Block(**{**vars_of(block), "count": 1})
            block.count -= 1
            layers.append(last.merged(merge, block.name + ".merge"))
            side, width = side // 2, width * 2
    first = embedding("patches", 3 * 16 * 320 + 3 * 320, F32 * 56 * 56 * 320)
    first.flops = 2 * 56 * 56 * 48 * 320
    first.products = F32 * 56 * 56 * (48 + 320)
    last = head("head", 2560 * 1000 + 1000 + 2 * 2560, 1, 2560, 1000)
    last.boundary = F32 * 49 * 2560
    return join(first, layers, last, separate)


MODELS = {
    "bert-huge-32": lambda s: bert(32, 1280, 20, s),
    "bert-huge-48": lambda s: bert(48, 1280, 20, s),
    "bert-xhuge": lambda s: bert(128, 2560, 40, s),
    "vit-huge-32": lambda s: vit(32, 1280, 16, s),
    "vit-huge-48": lambda s: vit(48, 1280, 16, s),
    "vit-xhuge": lambda s: vit(128, 2560, 32, s),
    "t5-large-32": lambda s: t5(32, 1024, 16, 512, s),
    "t5-large-48": lambda s: t5(48, 1024, 16, 512, s),
    "t5-512/4-32": lambda s: t5(32, 1024, 16, 4, s),
    "t5-512/4-48": lambda s: t5(48, 1024, 16, 4, s),
    "swin-huge-32": lambda s: swin(26, s),
    "swin-huge-48": lambda s: swin(42, s),
    "gpt3-15b": lambda s: gpt3(48, 5120, 40, s),
    "gpt3-39b": lambda s: gpt3(48, 8192, 64, s),
    "gpt3-65b": lambda s: gpt3(80, 8192, 64, s),
}


def file_name(model):
    return model.replace("/", "-") + ".json"


def profile(model, separate=False):
    layers = MODELS[model](separate)
    return {"version": 1, "dtype": "f32",
            "layers": [layer.json() for layer in layers]}


def totals(layers):
    """Parameters, and MiB of activations a sample with everything kept."""
    parameters = sum(layer["count"] * layer["parameter-bytes"]
                     for layer in layers) / F32
    kept = sum(layer["count"] * (layer["intermediate-bytes"] +
                                 layer["boundary-bytes"])
               for layer in layers)
    return parameters, kept / 2.0**20


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL",
                        help="all of them if none is named")
    parser.add_argument("--separate-ends", action="store_true",
                        help="embedding and head as layers of their own")
    parser.add_argument("--list", action="store_true",
                        help="print parameters and activations, write nothing")
    parser.add_argument("-o", "--output", default=".", metavar="FOLDER")
    arguments = parser.parse_args()
    for model in arguments.models:
        if model not in MODELS:
            sys.exit("unknown model '%s', expected one of %s" %
                     (model, ", ".join(MODELS)))
    if not arguments.list:
        os.makedirs(arguments.output, exist_ok=True)
    for model in arguments.models or MODELS:
        made = profile(model, arguments.separate_ends)
        if arguments.list:
            parameters, kept = totals(made["layers"])
            print("%-14s %8.1f M parameters  %9.2f MiB a sample" %
                  (model, parameters / 1e6, kept))
            continue
        path = os.path.join(arguments.output, file_name(model))
        with open(path, "w", encoding="utf-8") as out:
            json.dump(made, out, indent=1)
            out.write("\n")


if __name__ == "__main__":
    main()
