# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a field of a configuration says, here and in `transformers`.

For every type that is executed: a small model of the library, and the same with
each field of its configuration changed. A change that is passed over here must not
change the library's loss, and one that changes nothing there must not be refused.
The import is compared as text, so nothing is run here; losses are the library's, in
f64 and in training, with weights that are functions of their names. With
GALVATRON_LONG alone: 1,900 small models are made, in two minutes.
"""

import copy
import json
import os
import pathlib
import re
import subprocess
import unittest
import warnings
import zlib

import torch
import transformers
from transformers.models.auto import configuration_auto, modeling_auto

from .support import SOURCE, FolderTest

BIN = pathlib.Path(os.environ.get("GALVATRON_BIN", SOURCE / "build" / "bin"))
TOKENS = 24
SIZES = {
    "vocab_size": 61, "hidden_size": 32, "n_embd": 32, "d_model": 32, "dim": 32,
    "embedding_size": 32, "intermediate_size": 48, "n_inner": 48, "d_ff": 48,
    "ffn_dim": 48, "hidden_dim": 48, "ffn_hidden_size": 48, "num_hidden_layers": 2,
    "n_layer": 2, "n_layers": 2, "num_layers": 2, "num_decoder_layers": 2,
    "encoder_layers": 2, "decoder_layers": 2, "num_attention_heads": 4, "n_head": 4,
    "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8,
    "max_position_embeddings": 32, "n_positions": 32, "n_ctx": 32, "max_seq_len": 32,
    "seq_length": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "rotary_dim": 4,
    "sliding_window": 8, "image_size": 32, "patch_size": 16, "word_embed_proj_dim": 32,
    "query_pre_attn_scalar": 8, "original_max_position_embeddings": 32,
    "local_attention": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "cls_token_id": 1, "sep_token_id": 2, "decoder_start_token_id": 0,
}
# Fields that some types need besides.
OF_TYPE = {
    "swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 2,
             "patch_size": 4, "drop_path_rate": 0.0},
    "phi3": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                 "partial_rotary_factor": 1.0}},
    "gemma3_text": {"num_hidden_layers": 2, "layer_types": ["sliding_attention",
                                                            "full_attention"]},
    "mpt": {"attn_config": {"attn_type": "multihead_attention", "alibi": True}},
    "dinov2": {"drop_path_rate": 0.0},
}
ACTIVATIONS = ("relu", "gelu", "silu", "gelu_new")
# Fields that name the file, its tasks and its types, or decide how it is read.
LEFT_OUT = {"model_type", "architectures", "transformers_version", "dtype",
            "torch_dtype", "id2label", "label2id", "auto_map", "quantization_config"}
IMAGES = {"vit", "deit", "dinov2", "swin"}
# Refused although the library's loss here is the same, with the reason.
KNOWN = {
    "*": {"num_labels": "names of classes say how many there are",
          "problem_type": "another loss, which is the trainer's",
          "is_encoder_decoder": "the file contradicts its own type",
          "is_decoder": "the file contradicts its own type",
          "rope_parameters": "a part of heads, or a kind that the library does not "
                             "have: some kinds of rotation read it, others do not"},
    "swin": {"num_layers": "the file contradicts its depths",
             "hidden_size": "the file contradicts `embed_dim` and its depths"},
    "gemma": {"use_bidirectional_attention": "not read in training"},
    "gemma2": {"use_bidirectional_attention": "not read in training"},
    # The model's own code reads these, the library does not.
    "mpt": dict.fromkeys(("attn_config", "emb_pdrop", "embedding_fraction", "no_bias",
                          "expansion_ratio", "logit_scale", "resid_pdrop"), "not read"),
}
# Passed over although the library begins with other weights; the loss is the same.
INITIAL = {"modernbert": {"initializer_cutoff_factor"}} # normals are cut off there


def kinds_executed():
    done = subprocess.run([BIN / "galvatron-import", "-"], input='{"model_type": "?"}',
                          capture_output=True, text=True, check=False)
    return re.findall(r"'([\w-]+)'", done.stderr.split("expected one of")[1])


def class_of(kind):
    tables = [modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES] \
        if kind in IMAGES else [
            modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
            modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
            modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES]
    for table in tables:
        if kind in table:
            name = table[kind]
            return getattr(transformers, name if isinstance(name, str) else name[0])
    raise LookupError(kind)


def base_fields(kind):
    """A small configuration, as a file has it."""
    usual = configuration_auto.CONFIG_MAPPING[kind]().to_dict()
    chosen = {key: value for key, value in SIZES.items() if key in usual}
    for key, value in usual.items():
        if isinstance(value, float) and re.search("drop(out|_rate)?|pdrop", key):
            chosen[key] = 0.0
    for key in ("layer_types", "rope_parameters", "rope_scaling"):
        usual.pop(key, None)
    config = configuration_auto.CONFIG_MAPPING[kind](
        **{**{key: value for key, value in chosen.items()}, **OF_TYPE.get(kind, {})})
    fields = json.loads(config.to_json_string(use_diff=False))
    fields["architectures"] = [class_of(kind).__name__]
    return fields


def loss_of(kind, fields):
    """The library's loss with these fields, its number of parameters, and a
    digest of the weights that it begins with."""
    fields = copy.deepcopy(fields)
    config = configuration_auto.CONFIG_MAPPING[kind].from_dict(fields)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = class_of(kind)(config).double().train()
    begun = 0.0
    with torch.no_grad():
        for name, value in model.named_parameters():
            begun += value.abs().sum().item()
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            value.copy_(torch.randn(value.shape, generator=generator,
                                    dtype=torch.float64) * 0.2 + 0.05)
    generator = torch.Generator().manual_seed(7)
    vocabulary = min(fields.get("vocab_size", 61), 61)
    ids = torch.randint(3, vocabulary, (2, TOKENS), generator=generator)
    if kind in IMAGES:
        data = {"pixel_values": torch.randn(
            (2, 3, 32, 32), generator=generator, dtype=torch.float64)}
    elif getattr(config, "is_encoder_decoder", False):
        data = {"input_ids": ids, "decoder_input_ids": ids.flip(1)}
    else:
        data = {"input_ids": ids}
    torch.manual_seed(1)
    with torch.no_grad():
        out = model(**data, return_dict=True)
    logits = out.logits.reshape(-1, out.logits.shape[-1])
    labels = torch.arange(len(logits)) % logits.shape[-1]
    return (torch.nn.functional.cross_entropy(logits, labels).item(),
            sum(value.numel() for value in model.parameters()), begun)


def changes(key, value):
    """Other values of a field."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        if "token_id" in key or key == "pad_token_id":
            return [value + 3]
        return [value * 2, value + 1] if value else [1, 2]
    if isinstance(value, float):
        if re.search("drop|layerdrop", key):
            return [0.3]
        return [value * 0.5 + 0.0625]
    if isinstance(value, str):
        if value in (*ACTIVATIONS, "gelu_pytorch_tanh", "gelu_fast", "swish"):
            return [name for name in ACTIVATIONS if name != value]
        return [value + "_other"]
    if value is None:
        for pattern, other in (("window|size|dim|inner", 8), ("drop", 0.3),
                               ("clip|cap|multiplier|scale|scaling", 0.5),
                               ("token_id", 3)):
            if re.search(pattern, key):
                return [other]
        return [True, 2]
    if key == "layer_types":
        return [["full_attention"] * len(value), ["sliding_attention"] * len(value)]
    if key == "rope_parameters" and "rope_theta" in value:
        return [value | {"rope_theta": value["rope_theta"] * 0.5},
                value | {"rope_type": "linear", "factor": 2.0},
                value | {"partial_rotary_factor": 0.5}]
    if isinstance(value, dict):
        return [value | {name: other} for name, inner in value.items()
                for other in changes(name, inner)]
    return []


class FieldsTest(FolderTest):
    def setUp(self):
        super().setUp()
        warnings.filterwarnings("ignore")
        torch.set_num_threads(1)  # of models this small more are slower
        transformers.logging.set_verbosity_error()

    def imported(self, fields):
        """The text of the model without its configuration; or None and why it is
        refused."""
        path = self.write("config.json", json.dumps(fields))
        length = [] if fields["model_type"] in IMAGES else [f"--seq-len={TOKENS}"]
        done = subprocess.run([BIN / "galvatron-import", path, *length],
                              capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (0, 1, 2), done.stderr)
        if done.returncode:
            self.assertIn("error: ", done.stderr)
            return None, done.stderr.strip().splitlines()[0].split("error: ", 1)[1]
        return re.sub(r'config = "(?:[^"\\]|\\.)*"', "", done.stdout), done.stderr

    def faults_of(self, kind, counts):
        """What is wrong with a type; counts how its changes were taken."""
        fields = base_fields(kind)
        text, why = self.imported(fields)
        if text is None:
            return [f"{kind}: refused as it is: {why}"]
        faults = []
        loss, *rest = loss_of(kind, fields)
        known = KNOWN["*"] | KNOWN.get(kind, {})
        for key, other in ((key, other) for key, value in fields.items()
                           if key not in LEFT_OUT for other in changes(key, value)):
            changed = fields | {key: other}
            try:
                now, *now_rest = loss_of(kind, changed)
            except Exception:  # pylint: disable=broad-except
                continue  # The library makes no such model.
            same = abs(now - loss) < 1e-9 * abs(loss) and now_rest == rest
            found, why = self.imported(changed)
            if key in INITIAL.get(kind, ()):
                same = abs(now - loss) < 1e-9 * abs(loss)
            verdict = ("refused" if found is None else
                       "passed" if found == text else "read")
            counts[verdict] += 1
            if verdict == "passed" and not same:
                faults.append(f"{kind}: {key} = {other!r} is passed over and changes the "
                              f"loss, {loss} to {now}, or {rest} to {now_rest}")
            if verdict == "refused" and same and key not in known:
                faults.append(f"{kind}: {key} = {other!r} changes nothing and is "
                              f"refused: {why}")
        return faults

    @unittest.skipUnless(os.environ.get("GALVATRON_LONG"), "long")
    def test_every_field(self):
        kinds = kinds_executed()
        counts = {"read": 0, "passed": 0, "refused": 0}
        faults = [fault for kind in kinds for fault in self.faults_of(kind, counts)]
        print(f"transformers {transformers.__version__}: changed fields of "
              f"{len(kinds)} types: {counts}")
        self.assertEqual(faults, [], "\n".join(faults))


if __name__ == "__main__":
    unittest.main()
