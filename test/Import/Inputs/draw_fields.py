# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws configurations with fields that their families do not read.

The property: a configuration is executed, and every such field stands in its
line, if each of them is false, null, empty, 0 under the name of a dropout or a
coefficient, a known note, or says in another family's words what is in effect
anyway; it is refused by the name of a field that says anything else; and a
misspelt name is answered by the right one.
"""

import json
import os
import random
import subprocess
import tempfile

COUNT = 200
SMALL = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 4, "intermediate_size": 56}
DECODER = {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 24,
           "rms_norm_eps": 1e-5, "attention_dropout": 0.25}
FAMILIES = {
    "bert": {**SMALL, "max_position_embeddings": 16, "hidden_dropout_prob": 0.1},
    "roberta": {**SMALL, "max_position_embeddings": 16, "hidden_dropout_prob": 0.1},
    "albert": {**SMALL, "max_position_embeddings": 16, "embedding_size": 16},
    "electra": {**SMALL, "max_position_embeddings": 16, "embedding_size": 16},
    "distilbert": {"vocab_size": 97, "dim": 32, "n_layers": 2, "n_heads": 4,
                   "hidden_dim": 56, "max_position_embeddings": 16},
    "opt": {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "ffn_dim": 56, "max_position_embeddings": 24},
    "gpt2": {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4,
             "n_positions": 24, "attn_pdrop": 0.25, "tie_word_embeddings": True},
    "llama": {**DECODER, "tie_word_embeddings": True},
    "mistral": {**DECODER, "tie_word_embeddings": False, "sliding_window": 8},
    "gemma": {**DECODER, "head_dim": 16},
    "gemma3_text": {**DECODER, "head_dim": 16},
    "olmo3": {**DECODER, "sliding_window": 8},
    "glm": {**DECODER, "head_dim": 8, "pad_token_id": 3},
    "glm4": {**DECODER, "head_dim": 8, "pad_token_id": 3},
    "bloom": {"vocab_size": 97, "n_embed": 32, "n_layer": 2, "n_head": 4,
              "seq_length": 24, "hidden_dropout": 0.1},
    "cohere": {**SMALL, "max_position_embeddings": 24, "logit_scale": 0.5},
    "cohere2": {**SMALL, "max_position_embeddings": 24, "sliding_window": 8},
    "gemma2": {**DECODER, "head_dim": 16, "sliding_window": 8},
    "gptj": {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4,
             "n_positions": 24, "rotary_dim": 4, "resid_pdrop": 0.1},
    "mpt": {"vocab_size": 97, "d_model": 32, "n_layers": 2, "n_heads": 4,
            "max_seq_len": 24},
    "granite": {**DECODER, "tie_word_embeddings": True, "embedding_multiplier": 12.0},
    "olmo": {**SMALL, "max_position_embeddings": 24, "num_key_value_heads": 2,
             "clip_qkv": 8.0},
    "modernbert": {**SMALL, "max_position_embeddings": 24, "local_attention": 8,
                   "pad_token_id": 3},
    "olmo2": {**DECODER, "tie_word_embeddings": False},
    "phi": {**SMALL, "max_position_embeddings": 24, "resid_pdrop": 0.1},
    "phi3": {**DECODER, "pad_token_id": 3, "resid_pdrop": 0.1},
    "gpt_neox": {**SMALL, "max_position_embeddings": 24},
    "falcon": {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2,
               "num_attention_heads": 4, "ffn_hidden_size": 56},
    "smollm3": {**DECODER, "tie_word_embeddings": True, "pad_token_id": 3},
    "stablelm": {**SMALL, "max_position_embeddings": 24, "num_key_value_heads": 4},
    "starcoder2": {**SMALL, "max_position_embeddings": 24, "num_key_value_heads": 2},
    "qwen2": {**DECODER, "tie_word_embeddings": True},
    "qwen3": {**DECODER, "tie_word_embeddings": True, "head_dim": 16},
    "swin": {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 4],
             "window_size": 2, "image_size": 16, "patch_size": 4},
    "t5": {"vocab_size": 97, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2,
           "num_heads": 4, "n_positions": 16, "dropout_rate": 0.2},
    "mt5": {"vocab_size": 97, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2,
           "num_heads": 4, "n_positions": 16, "dropout_rate": 0.2},
    "umt5": {"vocab_size": 97, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2,
           "num_heads": 4, "n_positions": 16, "dropout_rate": 0.2},
    "bart": {"vocab_size": 97, "d_model": 32, "encoder_layers": 2, "decoder_layers": 1,
             "encoder_attention_heads": 4, "decoder_attention_heads": 4,
             "encoder_ffn_dim": 56, "decoder_ffn_dim": 56,
             "max_position_embeddings": 16, "dropout": 0.2},
    "mbart": {"vocab_size": 97, "d_model": 32, "encoder_layers": 2, "decoder_layers": 1,
              "encoder_attention_heads": 4, "decoder_attention_heads": 4,
              "encoder_ffn_dim": 56, "decoder_ffn_dim": 56,
              "max_position_embeddings": 16, "dropout": 0.2},
    "pegasus": {"vocab_size": 97, "d_model": 32, "encoder_layers": 2, "decoder_layers": 1,
                "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                "encoder_ffn_dim": 56, "decoder_ffn_dim": 56,
                "max_position_embeddings": 16, "dropout": 0.2},
    "dinov2": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
               "mlp_ratio": 2, "image_size": 16, "patch_size": 8},
    "deit": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
             "intermediate_size": 64, "image_size": 16, "patch_size": 8},
    "vit": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 64, "image_size": 16, "patch_size": 8},
}
# What is in effect, in words of other families, beside a value that is not.
ROTARY = {
    "n_embd": (32, 48), "n_layer": (2, 3), "n_head": (4, 8), "ffn_dim": (56, 57),
    "n_positions": (24, 25), "layer_norm_epsilon": (1e-5, 1e-6),
    "attn_pdrop": (0.25, 0.1), "resid_pdrop": (0, 0.1), "embd_pdrop": (0.0, 0.1),
    "do_layer_norm_before": (True, False), "is_causal": (True, False),
    "is_gated_act": (True, False), "hidden_activation": ("swish", "gelu"),
    "use_parallel_residual": (False, True), "rotary_pct": (1.0, 0.5),
    "position_embedding_type": ("rope", "absolute"), "alibi": (False, True),
    "_remove_final_layer_norm": (False, True), "is_encoder_decoder": (False, True),
    "embedding_multiplier": (1.0, 12.0), "logit_scale": (1, 0.5),
    "norm_type": ("rms_norm", "layer_norm"), "multi_query": (False, True),
    "num_experts": (0, 8), "post_norm": (False, True)}
POST_NORM = {
    "n_embd": (32, 48), "n_layers": (2, 3), "d_kv": (8, 16), "ffn_dim": (56, 57),
    "resid_pdrop": (0.1, 0.0), "normalize_before": (False, True),
    "do_layer_norm_before": (False, True), "bidirectional": (True, False),
    "qkv_bias": (True, False), "no_bias": (False, True), "use_rope": (False, True),
    "num_key_value_heads": (4, 2), "qk_layernorm": (False, True)}
EFFECTS = {
    "bert": POST_NORM, "roberta": POST_NORM,
    "albert": {key: value for key, value in POST_NORM.items() if key != "resid_pdrop"},
    "electra": {key: value for key, value in POST_NORM.items() if key != "resid_pdrop"},
    "distilbert": {"n_embd": (32, 48), "d_kv": (8, 16), "ffn_dim": (56, 57),
                   "normalize_before": (False, True), "bidirectional": (True, False),
                   "qkv_bias": (True, False), "use_rope": (False, True),
                   "num_key_value_heads": (4, 2), "qk_layernorm": (False, True)},
    "opt": {"n_embd": (32, 48), "alibi": (False, True), "use_rope": (False, True),
            "no_bias": (False, True), "is_gated_act": (False, True)},
    "gpt2": {"attention_dropout": (0.25, 0.0), "num_key_value_heads": (4, 1),
             "head_dim": (8, 16), "intermediate_size": (128, 64),
             "alibi": (False, True), "qkv_bias": (True, False),
             "learned_pos_emb": (True, False), "multi_query": (False, True),
             "is_gated_act": (False, True), "hidden_act": ("gelu_new", "silu"),
             "normalize_before": (True, False), "tie_embeddings": (True, False)},
    "llama": {**ROTARY, "qkv_bias": (False, True), "tie_embeddings": (True, False),
              "layer_types": (["full_attention"] * 2, ["sliding_attention"] * 2)},
    "mistral": {**ROTARY, "no_bias": (True, False), "tie_weights": (False, True),
                "use_sliding_window": (True, False)},
    "qwen2": {**ROTARY, "qkv_bias": (True, False), "qk_layernorm": (False, True)},
    "qwen3": {**ROTARY, "kv_channels": (16, 8), "qk_norm": (True, False)},
    "gemma": {"n_embd": (32, 48), "mlp_hidden_act": ("gelu_new", "silu"),
              "kv_channels": (16, 8), "final_logit_softcapping": (None, 30.0)},
    "gemma3_text": {"n_embd": (32, 48), "use_sandwich_norm": (True, False),
                    "hidden_act": ("gelu_tanh", "gelu")},
    "olmo3": {"n_embd": (32, 48), "use_qk_norm": (True, False)},
    "glm": {"n_embd": (32, 48), "rotary_pct": (0.5, 1.0), "o_bias": (False, True),
            "alibi": (False, True)},
    "glm4": {"n_embd": (32, 48), "use_sandwich_norm": (True, False),
             "rope_pct": (0.5, 1.0)},
    "bloom": {"d_model": (32, 48), "alibi": (True, False), "use_rope": (False, True),
              "n_inner": (128, 56), "no_bias": (False, True)},
    "cohere": {"n_embd": (32, 48), "use_parallel_block": (True, False),
               "rope_interleaved": (True, False), "no_bias": (True, False)},
    "cohere2": {"n_embd": (32, 48), "parallel_attn": (True, False),
                "rotary_pct": (1.0, 0.5)},
    "gemma2": {"n_embd": (32, 48), "use_sandwich_norm": (True, False),
               "qk_norm": (False, True)},
    "gptj": {"d_model": (32, 48), "parallel_attn": (True, False),
             "rotary": (True, False), "qkv_bias": (False, True),
             "num_key_value_heads": (4, 2), "intermediate_size": (128, 56)},
    "mpt": {"n_embd": (32, 48), "use_rope": (False, True), "n_inner": (128, 56),
            "use_alibi": (True, False)},
    "granite": {"n_embd": (32, 48), "scale_emb": (12.0, 1.0), "qkv_bias": (False, True),
                "logit_scale": (1, 8), "use_parallel_residual": (False, True)},
    "olmo": {"n_embd": (32, 48), "o_bias": (False, True), "alibi": (False, True),
             "elementwise_affine": (False, True), "do_layer_norm_before": (True, False)},
    "modernbert": {"n_embd": (32, 48), "is_causal": (False, True), "use_rope": (True, False),
                   "is_gated_act": (True, False), "o_bias": (False, True)},
    "olmo2": {"n_embd": (32, 48), "use_qk_norm": (True, False),
              "do_layer_norm_before": (False, True), "post_norm": (True, False),
              "o_bias": (False, True)},
    "phi": {"n_embd": (32, 48), "resid_dropout": (0.1, 0.0), "no_bias": (False, True),
            "parallel_attn": (True, False), "use_lm_head_bias": (True, False),
            "rotary_pct": (0.5, 1.0), "is_gated_act": (False, True)},
    "phi3": {"n_embd": (32, 48), "mlp_bias": (False, True), "rotary_pct": (1.0, 0.5),
             "alibi": (False, True), "o_bias": (False, True)},
    "gpt_neox": {"n_embd": (32, 48), "mlp_bias": (True, False),
                 "is_gated_act": (False, True), "norm_type": ("layer_norm", "rms_norm")},
    "falcon": {"n_embd": (32, 48), "no_bias": (True, False), "mlp_bias": (False, True),
               "is_gated_act": (False, True)},
    "smollm3": {"n_embd": (32, 48), "bias": (False, True), "rope_pct": (1.0, 0.5),
                "alibi": (False, True)},
    "stablelm": {"n_embd": (32, 48), "resid_pdrop": (0.0, 0.1), "mlp_bias": (False, True),
                 "rotary_pct": (0.25, 1.0), "norm_type": ("layer_norm", "rms_norm")},
    "starcoder2": {"n_embd": (32, 48), "emb_pdrop": (0.0, 0.1), "no_bias": (False, True),
                   "use_sliding_window": (False, True), "gated_mlp": (False, True)},
    "swin": {"pre_norm": (True, False), "causal": (False, True)},
    "t5": {"attention_dropout": (0.2, 0.1), "bias": (False, True),
           "num_key_value_heads": (4, 1), "is_causal": (None, True)},
    "mt5": {"attention_dropout": (0.2, 0.1), "bias": (False, True),
           "num_key_value_heads": (4, 1), "is_causal": (None, True)},
    "umt5": {"attention_dropout": (0.2, 0.1), "bias": (False, True),
           "num_key_value_heads": (4, 1), "is_causal": (None, True)},
    "bart": {"n_embd": (32, 48), "use_rope": (False, True), "is_causal": (None, True),
             "embedding_dropout": (0.2, 0.1), "bias": (True, False),
             "gated": (False, True)},
    "mbart": {"n_embd": (32, 48), "use_rope": (False, True), "is_causal": (None, True),
              "embedding_dropout": (0.2, 0.1), "bias": (True, False),
              "gated": (False, True)},
    "pegasus": {"n_embd": (32, 48), "use_rope": (False, True), "is_causal": (None, True),
                "embedding_dropout": (0.2, 0.1), "bias": (True, False),
                "gated": (False, True)},
    "dinov2": {"n_embd": (32, 48), "use_rope": (False, True), "causal": (False, True),
               "intermediate_size": (64, 56), "is_gated_act": (False, True)},
    "deit": {"n_embd": (32, 48), "use_rope": (False, True), "causal": (False, True)},
    "vit": {"n_embd": (32, 48), "use_rope": (False, True), "causal": (False, True)},
}
NOTES = {"_name_or_path": "here/there", "unsloth_version": "2024.9",
         "transformers.js_config": {"kv_cache": 1}, "pooler_fc_size": 768,
         "vision_start_token_id": 7, "cache_implementation": "hybrid",
         "base_model": "some/model", "use_flash_attn": True, "_flag": 3,
         "summary_activation": "tanh", "model_max_length": 4096}
# What the tools do not tell of.
SILENT = {"_name_or_path", "summary_activation", "is_encoder_decoder"}
WORDS = ["quark", "zephyr", "onyx", "violet", "juniper", "maple", "cobalt"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def word(rng):
    return "_".join(rng.sample(WORDS, 3)) + str(rng.randrange(1000))


def nothing(rng, family):
    """A field that says nothing."""
    kind = rng.randrange(5)
    if kind == 0:
        return word(rng), rng.choice([False, None, [], {}, ""])
    if kind == 1:
        return word(rng) + rng.choice(["_dropout", "_pdrop", "_loss_coef"]), \
            rng.choice([0, 0.0])
    if kind == 2:
        return rng.choice(list(NOTES.items()))
    name, (effect, _) = rng.choice(list(EFFECTS[family].items()))
    return name, effect


def something(rng, family):
    """A field that could mean another model."""
    kind = rng.randrange(3)
    if kind == 0:
        return word(rng), rng.choice([True, 0, 1, 0.5, "on", [1], {"a": 1}])
    if kind == 1:
        return word(rng) + rng.choice(["_dropout", "_loss_coef"]), 0.1
    name, (_, other) = rng.choice(list(EFFECTS[family].items()))
    return name, other


def misspell(rng, name):
    at = rng.randrange(1, len(name) - 1)
    letter = rng.choice([c for c in LETTERS if c not in name[at - 1:at + 1]])
    return rng.choice([name[:at] + name[at + 1:], name[:at] + letter + name[at:],
                       name[:at] + letter + name[at + 1:]])


def check(folder, configs):
    """The verdict on each configuration, and its line of passed fields."""
    paths = []
    for number, config in enumerate(configs):
        paths.append(os.path.join(folder, f"{number}.json"))
        with open(paths[-1], "w", encoding="utf-8") as file:
            json.dump(config, file)
    done = subprocess.run(["galvatron-import", "--check", *paths],
                          capture_output=True, text=True, check=False)
    lines = dict(line.split(": passed over", 1) for line in done.stderr.splitlines()
                 if ": passed over" in line)
    notes = {key.removeprefix("galvatron-import: note: "): line
             for key, line in lines.items()}
    return [(verdict, notes.get(path, ""))
            for verdict, path in zip(done.stdout.splitlines(), paths)]


def main():
    rng = random.Random(46)
    with tempfile.TemporaryDirectory() as folder:
        draws = []
        for _ in range(COUNT):
            family = rng.choice(list(FAMILIES))
            fields = dict(nothing(rng, family) for _ in range(rng.randrange(1, 4)))
            draws.append((fields, {"model_type": family, **FAMILIES[family], **fields}))
        right = 0
        for (fields, config), (verdict, note) in zip(
                draws, check(folder, [config for _, config in draws])):
            told = all(f"'{name}': " in note for name in fields
                       if name not in SILENT)
            if verdict.startswith("executed") and told:
                right += 1
            else:
                print("WRONG", config, verdict, note)
        print(right, "files whose fields say nothing are executed")

        draws = []
        for _ in range(COUNT):
            family = rng.choice(list(FAMILIES))
            name, value = something(rng, family)
            draws.append((name, {"model_type": family, **FAMILIES[family],
                                 name: value}))
        right = 0
        for (name, config), (verdict, _) in zip(
                draws, check(folder, [config for _, config in draws])):
            if verdict.startswith("refused") and f"field '{name}': " in verdict:
                right += 1
            else:
                print("WRONG", name, config, verdict)
        print(right, "files with a field that could mean another model are refused "
              "by it")

        draws = []
        for _ in range(COUNT):
            family = rng.choice(list(FAMILIES))
            config = {"model_type": family, **FAMILIES[family]}
            # Without a padding token some families' own is beyond these words.
            name = rng.choice([name for name in FAMILIES[family]
                               if len(name) > 5 and name != "pad_token_id"])
            wrong = misspell(rng, name)
            while any(wrong in fields for fields in FAMILIES.values()):
                wrong = misspell(rng, name)  # another family's field
            config[wrong] = config.pop(name)
            draws.append((wrong, name, config))
        right = 0
        for (wrong, name, config), (verdict, _) in zip(
                draws, check(folder, [config for _, _, config in draws])):
            if f"field '{wrong}': " in verdict and \
                    f"did you mean '{name}'?" in verdict:
                right += 1
            else:
                print("WRONG", wrong, name, config, verdict)
        print(right, "files with a misspelt field are refused with the right name")


if __name__ == "__main__":
    main()
