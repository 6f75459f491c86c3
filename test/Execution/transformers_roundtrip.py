#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights from and to Hugging Face transformers.

    transformers_roundtrip.py --bin=build/bin

Random models made by transformers, a GPT-2 and one of each decoder family of the
LLaMA kind that the installed version has, encoders, models of images, three T5 and a
PEGASUS, are trained for a few steps on four ranks from their model.safetensors. What `--save` and a checkpoint leave
must load in transformers, with the same validation loss and, of decoders, those of
T5 too, the same greedy continuation, which every logit takes part in. Exits with 77, which ctest takes for a skip, where torch
or transformers is missing: `scripts/test --pypi` installs them.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

VOCAB, LENGTH, BATCH, SAMPLES = 96, 32, 8, 64


def decoder(**changes):
    return {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2,
            "max_position_embeddings": LENGTH} | changes


CONFIGS = {
    "GPT2": {"n_positions": LENGTH, "n_embd": 48, "n_layer": 3, "n_head": 4,
             "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "Llama": decoder(attention_bias=True),
    "Mistral": decoder(sliding_window=9),
    "Qwen2": decoder(use_sliding_window=True, sliding_window=7,
                     max_window_layers=1, tie_word_embeddings=True),
    "Qwen3": decoder(head_dim=12),
    "Olmo": decoder(clip_qkv=0.1),
}


ENCODER = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
           "num_attention_heads": 6, "hidden_dropout_prob": 0.0,
           "attention_probs_dropout_prob": 0.0}
TARGET = 7
T5 = {"vocab_size": VOCAB, "d_model": 48, "d_kv": 10, "d_ff": 80, "num_layers": 3,
      "num_decoder_layers": 2, "num_heads": 4, "dropout_rate": 0.0,
      "relative_attention_num_buckets": 9, "relative_attention_max_distance": 20,
      "n_positions": LENGTH, "decoder_start_token_id": 0}
ENCODERS = [
    ("Bert", "BertForMaskedLM", ENCODER | {"vocab_size": VOCAB,
                                           "max_position_embeddings": LENGTH}),
    ("ViT", "ViTForImageClassification", ENCODER | {
        "image_size": 12, "patch_size": 4, "num_labels": 5, "qkv_bias": False}),
    ("Swin", "SwinForImageClassification", {
        "image_size": 17, "patch_size": 2, "embed_dim": 12, "depths": [1, 2],
        "num_heads": [2, 4], "window_size": 2, "mlp_ratio": 1.5, "num_labels": 5,
        "drop_path_rate": 0.0}),
    ("T5", "T5ForConditionalGeneration", T5),
    ("T5", "T5ForConditionalGeneration", T5 | {
        "feed_forward_proj": "gated-gelu", "scale_decoder_outputs": False}),
    ("T5", "T5ForConditionalGeneration", T5 | {
        "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    ("Pegasus", "PegasusForConditionalGeneration", {
        "vocab_size": VOCAB, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 80, "decoder_ffn_dim": 56, "max_position_embeddings": LENGTH,
        "dropout": 0.0, "scale_embedding": True}),
    # No query's window is padding alone, of which the library makes NaN.
    ("ModernBert", "ModernBertForMaskedLM", {
        "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 80,
        "num_hidden_layers": 4, "num_attention_heads": 4, "local_attention": LENGTH + 2,
        "max_position_embeddings": LENGTH, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}),
    ("Dinov2", "Dinov2ForImageClassification", {
        "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": 12, "patch_size": 4, "num_labels": 5, "use_swiglu_ffn": True}),
]
TWO_STACKS = ("T5", "Pegasus")
IMAGES = ("Swin", "ViT", "Dinov2")


def check(what, good):
    print(("ok      " if good else "FAILED  ") + what)
    if not good:
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    tools = os.path.abspath(parser.parse_args().bin)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    for kind, config in CONFIGS.items():
        if hasattr(transformers, kind + "Config"):
            print(kind)
            check_family(tools, kind, config)
    for kind, class_name, config in ENCODERS:
        print(kind)
        check_encoder(tools, kind, class_name, config)


def is_tied(model):
    return model.lm_head.weight is model.get_input_embeddings().weight


def hand_over(tools, model, *lengths):
    """Gives a model to us and takes it back, in the current folder: functions that
    run the program made of it, and that load what a run leaves."""
    with torch.no_grad():
        for parameter in model.parameters():  # biases, too, are not zero
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained("given", safe_serialization=True)
    if isinstance(model, transformers.T5ForConditionalGeneration) and not is_tied(model):
        # The library writes true, and goes by what is in the file.
        with open("given/config.json", encoding="utf-8") as file:
            config = json.load(file)
        with open("given/config.json", "w", encoding="utf-8") as file:
            json.dump(config | {"tie_word_embeddings": False}, file)
    subprocess.run(
        [f"{tools}/galvatron-compile", "given/config.json", "--cluster=4xcpu",
         f"--batch={BATCH}", "--pipeline-degree=2", "--strategy=tp2", *lengths, "-o",
         "model.gvx"], check=True, stdout=subprocess.DEVNULL)

    def run(*options):
        subprocess.run([f"{tools}/galvatron-run", "model.gvx", *options],
                       check=True, stdout=subprocess.DEVNULL)

    def load(path):
        loaded, report = type(model).from_pretrained(path, output_loading_info=True)
        check(f"{path}: every tensor is known and none is missing",
              not any(report.values()))
        return loaded.eval()

    # Through our hands and back: the same bits.
    run("--steps=0", "--init=given", "--save=back")
    back = load("back").state_dict()
    check("weights come back as they were given",
          all(torch.equal(value, back[name])
              for name, value in model.state_dict().items()))
    return run, load


def check_family(tools, kind, fields):
    torch.manual_seed(5)
    config = getattr(transformers, kind + "Config")(
        vocab_size=VOCAB, bos_token_id=0, eos_token_id=0, **fields)
    suffix = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    model_class = getattr(transformers, kind + suffix)
    model = model_class(config)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run, load = hand_over(tools, model)
        generator = random.Random(3)
        tokens = [32]
        while len(tokens) < SAMPLES * LENGTH + 1:
            tokens.append((tokens[-1] * 5 + generator.randrange(7)) % VOCAB)
        with open("data.txt", "wb") as file:
            file.write(bytes(tokens))
        prompt = "HELLO 42"  # bytes below VOCAB
        run("--steps=6", "--data=data.txt", "--lr=1e-3", "--init=given",
            "--validation-fraction=0.25", "--validate-every=6", "--save=trained",
            "--checkpoint=checkpoints", f"--generate={prompt}", "--tokens=16",
            "--summary=summary.json")
        with open("summary.json", encoding="utf-8") as file:
            summary = json.load(file)
        row = torch.tensor(tokens)
        first = SAMPLES - SAMPLES // 4
        inputs = torch.stack([row[i * LENGTH:(i + 1) * LENGTH]
                              for i in range(first, SAMPLES)])
        labels = torch.stack([row[i * LENGTH + 1:(i + 1) * LENGTH + 1]
                              for i in range(first, SAMPLES)])
        for path in ("trained", "checkpoints/step-00000006"):
            loaded = load(path)
            with torch.no_grad():
                logits = loaded(inputs).logits
                loss = torch.nn.functional.cross_entropy(
                    logits.reshape(-1, VOCAB), labels.reshape(-1)).item()
                check(f"{path}: validation loss {loss:.6f}, ours "
                      f"{summary['validation-loss']:.6f}",
                      abs(loss / summary["validation-loss"] - 1) < 1e-5)
                text = [byte for byte in prompt.encode()]
                for _ in range(16):
                    window = torch.tensor([text[-LENGTH:]])
                    text.append(int(loaded(window).logits[0, -1].argmax()))
            continuation = bytes(text[len(prompt):]).decode(errors="replace")
            check(f"{path}: the same continuation",
                  continuation == summary["generated"])


def encoder_data(kind, config):
    """What the program reads, by name, and how the library's class takes it."""
    if kind in IMAGES:
        data = {"images": torch.randn(SAMPLES, 3, config.image_size, config.image_size),
                "classes": torch.randint(config.num_labels, (SAMPLES,))}
        return data, {"pixel_values": data["images"]}, data["classes"]
    shape, target = (SAMPLES, LENGTH), (SAMPLES, TARGET)
    length = torch.randint(LENGTH // 2, LENGTH + 1, (SAMPLES, 1))
    mask = (torch.arange(LENGTH)[None, :] < length).long()
    if kind in TWO_STACKS:
        data = {"tokens": torch.randint(VOCAB, shape), "mask": mask,
                "decoder_tokens": torch.randint(VOCAB, target),
                "labels": torch.randint(-1, VOCAB, target)}
        return data, {"input_ids": data["tokens"], "attention_mask": mask,
                      "decoder_input_ids": data["decoder_tokens"]}, data["labels"]
    data = {"tokens": torch.randint(VOCAB, shape) * mask, "mask": mask,
            "token_types": torch.randint(2, shape) * mask,
            "labels": torch.where((torch.rand(shape) < 0.3) & (mask == 1),
                                  torch.randint(VOCAB, shape), torch.tensor(-1))}
    if kind == "ModernBert":
        del data["token_types"]
        return data, {"input_ids": data["tokens"], "attention_mask": mask}, data["labels"]
    return data, {"input_ids": data["tokens"], "attention_mask": mask,
                  "token_type_ids": data["token_types"]}, data["labels"]


def check_encoder(tools, kind, class_name, fields):
    torch.manual_seed(5)
    config = getattr(transformers, kind + "Config")(**fields)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        lengths = [f"--decoder-seq-len={TARGET}"] if kind in TWO_STACKS else []
        model = getattr(transformers, class_name)(config)
        if not fields.get("tie_word_embeddings", True):
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
        run, load = hand_over(tools, model, *lengths)
        data, arguments, labels = encoder_data(kind, config)
        for name, values in data.items():
            numpy.save(name + ".npy", values.numpy())
        prompt = "HELLO 42"  # bytes below VOCAB
        run("--steps=6", *(f"--data={name}={name}.npy" for name in data), "--lr=1e-3",
            "--init=given", "--validation-fraction=0.25", "--validate-every=6",
            "--save=trained", "--checkpoint=checkpoints", "--summary=summary.json",
            *([f"--generate={prompt}"] if kind == "T5" else []))
        with open("summary.json", encoding="utf-8") as file:
            summary = json.load(file)
        ours = summary["validation-loss"]
        first = SAMPLES - SAMPLES // 4
        # A checkpoint has the program's tensors, of which a file of the library fuses some.
        checkpoints = ["checkpoints/step-00000006"] if kind != "ModernBert" else []
        for path in ["trained", *checkpoints]:
            loaded = load(path)
            with torch.no_grad():
                logits = loaded(**{key: value[first:]
                                   for key, value in arguments.items()}).logits
            loss = torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), labels[first:].reshape(-1),
                ignore_index=-1).item()
            check(f"{path}: validation loss {loss:.6f}, ours {ours:.6f}",
                  abs(loss / ours - 1) < 1e-5)
            if kind == "T5":
                asked = torch.tensor([[*prompt.encode(), config.eos_token_id]])
                written = loaded.generate(asked, max_new_tokens=TARGET, do_sample=False,
                                          num_beams=1)[0].tolist()[1:]
                if config.eos_token_id in written:
                    written = written[:written.index(config.eos_token_id)]
                check(f"{path}: the decoder writes the same, {written}",
                      bytes(written).decode() == summary["generated"])


if __name__ == "__main__":
    main()
