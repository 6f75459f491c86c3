# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every causal type of `transformers`: executed, planned from an estimate, or
refused.

Whatever is not refused has as many parameters as the library's class to 0.5%, on
the meta device, and as many FLOPs in a forward pass as PyTorch counts to 5%; so
have variants with every flag turned round that the file carries. The table in
docs/estimates.md is what was found; GALVATRON_WRITE=1 writes it anew.
"""

import json
import os
import pathlib
import re
import subprocess
import unittest
import warnings

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
from transformers.models.auto import configuration_auto, modeling_auto

from .support import SOURCE, FolderTest

BIN = pathlib.Path(os.environ.get("GALVATRON_BIN", SOURCE / "build" / "bin"))
PAGE = SOURCE / "docs" / "estimates.md"
TOKENS = 64
# Where the library's own default makes no model.
DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
NEEDED = {
    "cohere_compass_text": {"rope_parameters": {"full_attention": DEFAULT,
                                                "sliding_attention": DEFAULT}},
    "hunyuan_v1_dense": {"head_dim": 128},
    "ministral": {"head_dim": 128},
    "nemotron": {"head_dim": 128, "num_key_value_heads": 8},
}
FLAGS = ("tie_word_embeddings", "attention_bias", "attention_out_bias", "mlp_bias",
         "use_bias", "bias", "use_qkv_bias", "qk_layernorm", "multi_query",
         "new_decoder_architecture", "enable_bias", "use_parallel_residual",
         "do_layer_norm_before")


def make_config(name, **changes):
    return configuration_auto.CONFIG_MAPPING[name](**NEEDED.get(name, {}), **changes)


def make_model(config):
    # Types that have an encoder are imported with it.
    kind = AutoModelForSeq2SeqLM if getattr(config, "is_encoder_decoder", False) \
        else AutoModelForCausalLM
    with torch.device("meta"):
        return kind.from_config(config, attn_implementation="eager")


def language_parameters(model):
    """Those of the language model, which is taken alone."""
    return [p for name, p in model.named_parameters()
            if "vision_tower" not in name and "multi_modal_projector" not in name]


def count_flops(model):
    """FLOPs of a forward pass over one sample; none where nothing runs on meta."""
    ids = torch.zeros((1, TOKENS), dtype=torch.long, device="meta")
    # A mask that is whole already, for what would look at its values.
    masks = [torch.zeros((1, 1, TOKENS, TOKENS), device="meta"), None,
             torch.ones((1, TOKENS), dtype=torch.long, device="meta")]
    for mask in masks:
        try:
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                model.eval()(input_ids=ids, attention_mask=mask, use_cache=False)
            return counter.get_total_flops()
        except Exception:  # pylint: disable=broad-except
            continue
    return None


class EstimatesTest(FolderTest):
    def setUp(self):
        super().setUp()
        warnings.filterwarnings("ignore")
        transformers.logging.set_verbosity_error()

    def save(self, name, config):
        return str(self.write(name + ".json", config.to_json_string(use_diff=False)))

    def check(self, paths):
        """A line for each file."""
        done = subprocess.run([BIN / "galvatron-import", "--check",
                               f"--seq-len={TOKENS}", *paths],
                              capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), len(paths), done.stderr[-500:])
        return [line.replace(path, "").split(": ", 1) for line, path in
                zip(lines, paths)]

    def plan(self, path):
        """FLOPs of a forward pass over one sample."""
        out = str(self.folder / "plan.json")
        subprocess.run(
            [BIN / "galvatron-plan", path, f"--seq-len={TOKENS}", "--cluster=64xh100",
             "--dtype=bf16", "--batch=64", "--strategy=sdp64", "--pipeline-degree=1",
             "--micro-batches=1", "--memory=4096GiB", "--json=" + out],
            check=True, capture_output=True)
        return json.loads(pathlib.Path(out).read_text())["flops-per-sample"] / 3

    @staticmethod
    def parameters(text):
        return int(re.search(r"(\d+) parameters", text).group(1))

    def test_every_causal_type(self):
        names, paths = [], []
        for name in sorted(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
            names.append(name)
            try:
                paths.append(self.save(name, make_config(name)))
            except Exception:  # pylint: disable=broad-except
                # The library makes none by default.
                paths.append(str(self.write(name + ".json",
                                            json.dumps({"model_type": name}))))
        rows = []
        for name, path, (verdict, text) in zip(names, paths, self.check(paths)):
            with self.subTest(name):
                verdict = verdict.strip()
                if verdict == "refused":
                    field = re.match(r"field '([^']+)': ", text)
                    self.assertTrue(field, text)
                    why = text.split(": ")[-1] if field.group(1) == "model_type" \
                        else f"by `{field.group(1)}`"
                    rows.append((name, "refused", why, ""))
                    continue
                model = make_model(make_config(name))
                count = sum(p.numel() for p in language_parameters(model))
                off = self.parameters(text) / count - 1
                self.assertLess(abs(off), 0.005, text)
                flops = count_flops(model)
                times = self.plan(path) / flops - 1 if flops else None
                if flops:
                    self.assertLess(abs(times), 0.05, text)
                rows.append((name, verdict, f"{off:+.2%}",
                             f"{times:+.1%}" if flops else "not counted"))
        self.compare_page(rows)

    def compare_page(self, rows):
        table = ["| type | | parameters | FLOPs |", "|---|---|---|---|"]
        order = {"executed": 0, "planned": 1, "refused": 2}
        table += [f"| `{name}` | {verdict} | {what} | {flops} |"
                  for name, verdict, what, flops in
                  sorted(rows, key=lambda row: (order[row[1]], row[0]))]
        text = PAGE.read_text(encoding="utf-8")
        begin = text.index("| type | |")
        new = text[:begin] + "\n".join(table) + "\n"
        if os.environ.get("GALVATRON_WRITE"):
            PAGE.write_text(new, encoding="utf-8")
        elif f"transformers {transformers.__version__}" in text:
            self.assertEqual(text, new, "GALVATRON_WRITE=1 writes the table")

    def test_flags(self):
        draws, paths = [], []
        for name in sorted(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
            try:
                config = make_config(name).to_dict()
            except Exception:  # pylint: disable=broad-except
                continue
            for flag in FLAGS:
                if not isinstance(config.get(flag), bool):
                    continue
                try:
                    changed = make_config(name, **{flag: not config[flag]})
                    paths.append(self.save(f"{name}-{flag}", changed))
                    draws.append((name, flag, changed))
                except Exception:  # pylint: disable=broad-except
                    continue
        compared = 0
        for (name, flag, config), (verdict, text) in zip(draws, self.check(paths)):
            if verdict.strip() == "refused":
                continue
            with self.subTest(name=name, flag=flag):
                count = sum(p.numel() for p in
                            language_parameters(make_model(config)))
                self.assertLess(abs(self.parameters(text) / count - 1), 0.005, text)
                compared += 1
        self.assertGreater(compared, 80)


if __name__ == "__main__":
    unittest.main()
