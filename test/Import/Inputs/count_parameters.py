# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Imports published models and counts their parameters.

The counts are those of the `transformers` library's classes, tied tensors once.
Where GALVATRON_ORACLES names a folder with families/counts.json and
families/*/names.json, its configurations are compared as well, the latter by the
name and the shape of every tensor.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile


def model(model_type, count, vocabulary, width, inner, layers, heads, groups,
          **rest):
    return {"parameters": count, "config": {
        "model_type": model_type, "vocab_size": vocabulary, "hidden_size": width,
        "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": groups, **rest}}


def gpt2(count, width, layers, heads):
    return {"parameters": count, "config": {
        "model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024,
        "n_embd": width, "n_layer": layers, "n_head": heads}}


def encoder(model_type, count, width, inner, layers, heads, **rest):
    return {"parameters": count, "config": {
        "model_type": model_type, "hidden_size": width,
        "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, **rest}}


def t5(count, width, inner, layers, heads, **rest):
    return {"parameters": count, "config": {
        "model_type": "t5", "vocab_size": 32128, "d_model": width, "d_ff": inner,
        "num_layers": layers, "num_heads": heads, **rest}}


def swin(count, width, depths, heads, **rest):
    return {"parameters": count, "config": {
        "model_type": "swin", "embed_dim": width, "depths": depths, "num_heads": heads,
        "num_labels": 1000, **rest}}


# The 1.1 models have heads of their own.
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
MODELS = [
    gpt2(124439808, 768, 12, 12),
    gpt2(354823168, 1024, 24, 16),
    gpt2(774030080, 1280, 36, 20),
    gpt2(1557611200, 1600, 48, 25),
    model("llama", 6738415616, 32000, 4096, 11008, 32, 32, 32),
    model("llama", 13015864320, 32000, 5120, 13824, 40, 40, 40),
    model("llama", 68976648192, 32000, 8192, 28672, 80, 64, 8),
    model("llama", 8030261248, 128256, 4096, 14336, 32, 32, 8),
    model("llama", 70553706496, 128256, 8192, 28672, 80, 64, 8,
          rope_scaling=LLAMA3, rope_theta=500000.0),
    model("llama", 1235814400, 128256, 2048, 8192, 16, 32, 8, head_dim=64,
          tie_word_embeddings=True),
    model("mistral", 7241732096, 32000, 4096, 14336, 32, 32, 8),
    model("qwen2", 494032768, 151936, 896, 4864, 24, 14, 2,
          tie_word_embeddings=True),
    model("qwen2", 7615616512, 152064, 3584, 18944, 28, 28, 4),
    model("qwen3", 596049920, 151936, 1024, 3072, 28, 16, 8,
          tie_word_embeddings=True),
    model("qwen3", 8190735360, 151936, 4096, 12288, 36, 32, 8),
    model("granite", 2533531648, 49155, 2048, 8192, 40, 32, 8,
          tie_word_embeddings=True),
    model("gemma", 2506172416, 256000, 2048, 16384, 18, 8, 1),
    {"parameters": 6050882784, "config": {"model_type": "gptj"}},
    model("gemma2", 9241705984, 256000, 3584, 14336, 42, 16, 8),
    model("cohere2", 8028033024, 256000, 4096, 14336, 32, 32, 8),
    {"parameters": 559214592, "config": {
        "model_type": "bloom", "n_embed": 1024, "n_layer": 24, "n_head": 16}},
    {"parameters": 176247271424, "config": {
        "model_type": "bloom", "hidden_size": 14336, "n_layer": 70, "n_head": 112}},
    {"parameters": 6649286656, "config": {
        "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32,
        "vocab_size": 50432}},
    model("gemma3_text", 999885952, 262144, 1152, 6912, 26, 4, 1),
    model("glm", 1472141312, 59264, 2048, 6144, 28, 16, 4, tie_word_embeddings=True,
          pad_token_id=0),
    model("glm4", 32566081536, 151552, 6144, 23040, 61, 48, 2, attention_bias=False),
    model("olmo", 1176764416, 50304, 2048, 8192, 16, 16, 16, tie_word_embeddings=True),
    encoder("modernbert", 395881664, 1024, 2624, 28, 16),
    model("olmo3", 32233522176, 100278, 5120, 27648, 64, 40, 8),
    model("olmo2", 7298617344, 100352, 4096, 11008, 32, 32, 32),
    model("olmo2", 32234279936, 100352, 5120, 27648, 64, 40, 8),
    model("phi", 2779683840, 51200, 2560, 10240, 32, 32, 32),
    model("phi3", 3821079552, 32064, 3072, 8192, 32, 32, 32),
    model("phi3", 14659507200, 100352, 5120, 17920, 40, 40, 10, pad_token_id=100349),
    {"parameters": 162322944, "config": {
        "model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 768,
        "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}},
    {"parameters": 41303293952, "config": {
        "model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60,
        "num_attention_heads": 128, "num_kv_heads": 8, "new_decoder_architecture": True}},
    model("stablelm", 1644515328, 100352, 2048, 5632, 24, 32, 32, use_qkv_bias=True),
    model("stablelm", 12142929920, 100352, 5120, 13824, 40, 32, 8,
          use_parallel_residual=True),
    model("starcoder2", 7173923840, 49152, 4608, 18432, 32, 36, 4),
    {"parameters": 125239296, "config": {"model_type": "opt"}},
    {"parameters": 6658473984, "config": {
        "model_type": "opt", "hidden_size": 4096, "ffn_dim": 16384,
        "num_hidden_layers": 32, "num_attention_heads": 32}},
    encoder("roberta", 124697433, 768, 3072, 12, 12, vocab_size=50265,
            max_position_embeddings=514, type_vocab_size=1),
    encoder("xlm-roberta", 278295186, 768, 3072, 12, 12, vocab_size=250002,
            max_position_embeddings=514, type_vocab_size=1),
    encoder("camembert", 110655493, 768, 3072, 12, 12, vocab_size=32005,
            max_position_embeddings=514, type_vocab_size=1),
    encoder("albert", 11221680, 768, 3072, 12, 12, vocab_size=30000, embedding_size=128),
    encoder("electra", 33740602, 256, 1024, 12, 4, embedding_size=768),
    {"parameters": 135445755, "config": {"model_type": "distilbert", "vocab_size": 119547}},
    encoder("bert", 108340804, 768, 3072, 12, 12, vocab_size=28996),
    encoder("bert", 335174458, 1024, 4096, 24, 16),
    encoder("vit", 86567656, 768, 3072, 12, 12, num_labels=1000),
    encoder("vit", 304326632, 1024, 4096, 24, 16, num_labels=1000),
    encoder("vit", 632045800, 1280, 5120, 32, 16, num_labels=1000,
            patch_size=[14, 14]),
    {"parameters": 22825576, "config": {
        "model_type": "dinov2", "hidden_size": 384, "num_attention_heads": 6,
        "num_labels": 1000, "image_size": 518}},
    {"parameters": 1139553768, "config": {
        "model_type": "dinov2", "hidden_size": 1536, "num_hidden_layers": 40,
        "num_attention_heads": 24, "num_labels": 1000, "image_size": 518,
        "use_swiglu_ffn": True}},
    encoder("deit", 5717800, 192, 768, 12, 3, num_labels=1000),
    encoder("deit", 86569192, 768, 3072, 12, 12, num_labels=1000),
    {"parameters": 139420416, "config": {
        "model_type": "bart", "d_model": 768, "encoder_layers": 6, "decoder_layers": 6,
        "encoder_attention_heads": 12, "decoder_attention_heads": 12,
        "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}},
    {"parameters": 305510400, "config": {
        "model_type": "bart", "vocab_size": 50264, "decoder_layers": 6}},
    {"parameters": 610879488, "config": {
        "model_type": "mbart", "vocab_size": 250054, "scale_embedding": True}},
    {"parameters": 569748480, "config": {
        "model_type": "pegasus", "vocab_size": 96103, "encoder_layers": 16,
        "decoder_layers": 16, "max_position_embeddings": 512}},
    t5(60506624, 512, 2048, 6, 8),
    t5(222903552, 768, 3072, 12, 12),
    t5(737668096, 1024, 4096, 24, 16),
    t5(2851598336, 1024, 16384, 24, 32, d_kv=128),
    t5(11307321344, 1024, 65536, 24, 128, d_kv=128),
    t5(502746112, 1024, 4096, 16, 16),
    t5(76961152, 512, 1024, 8, 6, **GATED),
    t5(247577856, 768, 2048, 12, 12, **GATED),
    t5(783150080, 1024, 2816, 24, 16, **GATED),
    swin(28288354, 96, [2, 2, 6, 2], [3, 6, 12, 24]),
    swin(49606258, 96, [2, 2, 18, 2], [3, 6, 12, 24]),
    swin(87768224, 128, [2, 2, 18, 2], [4, 8, 16, 32]),
    swin(87903584, 128, [2, 2, 18, 2], [4, 8, 16, 32], window_size=12,
         image_size=384),
    swin(196532476, 192, [2, 2, 18, 2], [6, 12, 24, 48]),
    swin(701253272, 320, [2, 2, 26, 2], [8, 16, 32, 64]),
    swin(1016178840, 320, [2, 2, 42, 2], [8, 16, 32, 64]),
    # What is not said is what the library takes for it.
    {"parameters": 109514298, "config": {"model_type": "bert"}},
    {"parameters": 13546682, "config": {"model_type": "electra"}},
    {"parameters": 206368944, "config": {"model_type": "albert"}},
    {"parameters": 103810674688, "config": {
        "model_type": "cohere", "hidden_size": 12288, "intermediate_size": 33792,
        "num_hidden_layers": 64, "num_attention_heads": 96, "num_key_value_heads": 8,
        "use_qk_norm": True}},
    {"parameters": 66985530, "config": {"model_type": "distilbert"}},
    {"parameters": 6921720704, "config": {"model_type": "falcon"}},
    {"parameters": 20554567680, "config": {"model_type": "gpt_neox"}},
    {"parameters": 2614341888, "config": {"model_type": "gemma2"}},
    {"parameters": 34980831232, "config": {"model_type": "cohere"}},
    {"parameters": 34980831232, "config": {"model_type": "cohere2"}},
    {"parameters": 16156544, "config": {"model_type": "bloom"}},
    {"parameters": 1311213568, "config": {"model_type": "mpt"}},
    {"parameters": 3821079552, "config": {"model_type": "phi3"}},
    {"parameters": 8537680896, "config": {"model_type": "gemma"}},
    {"parameters": 2628658432, "config": {"model_type": "gemma3_text"}},
    {"parameters": 9399951360, "config": {"model_type": "glm"}},
    {"parameters": 9400279040, "config": {"model_type": "glm4"}},
    {"parameters": 6738415616, "config": {"model_type": "granite"}},
    {"parameters": 6888624128, "config": {"model_type": "olmo2"}},
    {"parameters": 1418270720, "config": {"model_type": "phi"}},
    {"parameters": 3075098624, "config": {"model_type": "smollm3"}},
    {"parameters": 2795443200, "config": {"model_type": "stablelm"}},
    {"parameters": 3030371328, "config": {"model_type": "starcoder2"}},
    {"parameters": 27520892, "config": {"model_type": "swin"}},
    {"parameters": 85800194, "config": {"model_type": "vit"}},
    {"parameters": 85801730, "config": {"model_type": "deit"}},
    {"parameters": 406291456, "config": {"model_type": "bart"}},
    {"parameters": 406295552, "config": {"model_type": "mbart"}},
    {"parameters": 406287360, "config": {"model_type": "pegasus"}},
    {"parameters": 6888095744, "config": {"model_type": "olmo"}},
    {"parameters": 85728770, "config": {"model_type": "dinov2"}},
    {"parameters": 149655232, "config": {"model_type": "modernbert"}},
    {"parameters": 6738415616, "config": {"model_type": "llama"}},
    {"parameters": 7241732096, "config": {"model_type": "mistral"}},
    {"parameters": 60506624, "config": {"model_type": "t5"}},
    {"parameters": 172119424, "config": {"model_type": "mt5"}},
    {"parameters": 300176768, "config": {"model_type": "mt5", "tie_word_embeddings": False}},
    {"parameters": 172122112, "config": {"model_type": "umt5"}},
    {"parameters": 592043520, "config": {
        "model_type": "umt5", "vocab_size": 256384, "d_model": 768, "d_ff": 2048,
        "num_layers": 12, "num_heads": 12, "tie_word_embeddings": False}},
]
FAMILIES = {"bert", "gemma2", "gemma3_text", "llama", "mistral", "qwen2", "qwen3", "swin", "t5", "vit"}
# Classes of a family that are other models.
OTHERS = {"BertForPreTraining", "BertModel", "SwinModel", "ViTModel"}


def imported(config):
    """Shapes of the parameters by name."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        length = [] if config["model_type"] in ("swin", "vit", "deit", "dinov2") else ["--seq-len=16"]
        text = subprocess.run(["galvatron-import", file.name, *length],
                              check=True, capture_output=True, text=True).stdout
    shapes = {}
    for name, dims in re.findall(
            r"^  galvatron\.parameter @(\S+) : tensor<([0-9x]+)xf32>", text, re.M):
        shapes[name] = [int(dim) for dim in dims.split("x")]
    return shapes


def main():
    models, failures = list(MODELS), 0
    oracles = os.environ.get("GALVATRON_ORACLES")
    folder = os.path.join(oracles, "families") if oracles else ""
    if os.path.exists(os.path.join(folder, "counts.json")):
        with open(os.path.join(folder, "counts.json"), encoding="utf-8") as file:
            for entry in json.load(file)["public"]:
                if (entry["model_type"] in FAMILIES | {"gpt2"}
                        and entry["class"] not in OTHERS):
                    entry["config"]["model_type"] = entry["model_type"]
                    # Counted as the library makes it without a file, and as
                    # files have it.
                    own = "parameters_with_own_lm_head"
                    entry["parameters"] = entry.get(own, entry["parameters"])
                    models.append(entry)
        for name in sorted(FAMILIES | {"t5-v1_1"}):
            with open(os.path.join(folder, name, "config.json"),
                      encoding="utf-8") as file:
                config = json.load(file)
            with open(os.path.join(folder, name, "names.json"),
                      encoding="utf-8") as file:
                expected = json.load(file)
            models.append({"parameters": expected["parameters"],
                           "config": config, "stored": expected["stored"]})
    for entry in models:
        shapes = imported(entry["config"])
        count = sum(math.prod(shape) for shape in shapes.values())
        good = count == entry["parameters"]
        good &= shapes == entry.get("stored", shapes)
        failures += not good
        print("ok " if good else "BAD", entry["config"]["model_type"], count,
              "of", entry["parameters"])
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
