"""The peer of bench-steps for a family of transformers, obeying the same lines.

    torch_family.py CONFIG.json BATCH SEQUENCE THREADS f32|bf16 eager|compiled

Answers `steps N` with one line a step: wall and processor milliseconds and the
loss. The same work as the compiled program: AdamW in f32, clipping by the global
norm, no dropout; with bf16 forward and backward run under autocast, so that
weights and their optimizer states are f32 as ours are.
"""

import json
import sys
import time

import torch
import transformers

CLASSES = {
    "bert": "BertForMaskedLM",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "swin": "SwinForImageClassification",
    "t5": "T5ForConditionalGeneration",
    "vit": "ViTForImageClassification",
}


def batch_of(config, batch, length):
    """Inputs with labels, of a fixed seed."""
    kind = config.model_type
    if kind in ("vit", "swin"):
        size = config.image_size
        return {"pixel_values": torch.randn(batch, config.num_channels, size, size),
                "labels": torch.randint(config.num_labels, (batch,))}
    tokens = torch.randint(config.vocab_size, (batch, length))
    labels = torch.randint(config.vocab_size, (batch, length))
    if kind == "t5":
        return {"input_ids": tokens, "decoder_input_ids": labels,
                "labels": labels.clone(), "use_cache": False}
    if kind == "bert":
        return {"input_ids": tokens, "labels": labels}
    return {"input_ids": tokens, "labels": labels, "use_cache": False}


def main():
    path, batch, length, threads, dtype, mode = sys.argv[1:7]
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    fields = json.load(open(path))
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    config._attn_implementation = "sdpa"
    model = getattr(transformers, CLASSES[config.model_type])(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    inputs = batch_of(config, int(batch), int(length))

    def loss_of():
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            return model(**inputs).loss

    call = torch.compile(loss_of) if mode == "compiled" else loss_of
    for line in sys.stdin:
        command, count = line.split()
        assert command == "steps", f"expected 'steps N', found {line!r}"
        for _ in range(int(count)):
            wall, processor = time.perf_counter(), time.process_time()
            optimizer.zero_grad(set_to_none=True)
            loss = call()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(
                f"{1e3 * (time.perf_counter() - wall):.4f}",
                f"{1e3 * (time.process_time() - processor):.4f}",
                f"{loss.item():.6f}",
                flush=True,
            )


main()
