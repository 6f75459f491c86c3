#!/usr/bin/env python3
#===- package_readers.py - Written files and the packages' own rules -----===//
#
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===----------------------------------------------------------------------===//
"""Reads files of galvatron-plan --for=megatron, hetu-galvatron and nanotron with
what the packages of these have.

  package_readers.py BIN HETU

Of Megatron-LM the package has megatron.core alone, without the parser of flags:
its configurations, which check themselves, are made of the flags that the script
starts, and its own function says how many layers every chunk has. Hetu-Galvatron's
runtime reads the file that is written from the profiles HETU, and checks it.
nanotron's package is of 2024 and wants a GPU to be imported: names of keys are
compared with the fields of its source. Packages that are missing are told; exit
code 77 where none is there.
"""

import ast
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import warnings

# What packages say of a machine without a GPU is of no interest here.
warnings.simplefilter("ignore")

LLAMA = {"version": 1, "shape": {
    "layers": 80, "hidden": 8192, "heads": 64, "key-heads": 8, "ffn": 28672,
    "vocabulary": 128256, "tokens": 8192, "gated": True, "positions": 8192}}
GPT = {"version": 1, "shape": {
    "layers": 30, "hidden": 6144, "heads": 48, "ffn": 24576, "vocabulary": 51200,
    "tokens": 2048, "tied": True, "rotary": False, "rms-norm": False,
    "biases": True, "positions": 2048}}
# Model, cluster, batch: stages with chunks and without, positions that are cut,
# blocks that are recomputed, ends that count as blocks.
MEGATRON_PLANS = (
    (LLAMA, "8x8xh100", 128), (LLAMA, "16x8xh100", 64), (LLAMA, "4x8xh200", 64),
    (GPT, "4x8xa100-40gb", 64), (GPT, "8x8xv100-32gb", 64), (GPT, "2x8xh100", 64))
# Stages of 31 layers as users have them, on four ranks.
PRESENT_STAGES = (
    "--decoder-first-pipeline-num-layers 7",
    "--decoder-first-pipeline-num-layers 9 --decoder-last-pipeline-num-layers 4",
    "--decoder-last-pipeline-num-layers 1",
    "--account-for-loss-in-pipeline-split",
    "--account-for-loss-in-pipeline-split --num-virtual-stages-per-pipeline-rank 4",
    "--pipeline-model-parallel-layout 'Et*7|t*8|t*8|t*8L'",
    "--pipeline-model-parallel-layout 'Et*3|(t*4|)*6t*4L'",
    "--pipeline-model-parallel-layout 'Ett,t|(tttt|)*3,(t*4|)*3t,t*3L'",
)
# Keys and sections that nanotron's package of 2024 does not have yet.
NEWER_KEYS = {"recompute_layer", "data_stages", "optimizer_factory", "rope_theta"}


def run(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, **options)


def check(name, found, expected):
    if found != expected:
        raise SystemExit(f"{name}: expected {expected}, found {found}")


def started(script, folder):
    """The flags that a script starts pretrain_gpt.py with, by a torchrun of our
    own: a dictionary, None of a flag without a value."""
    program = folder / "torchrun"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    words = run("bash", str(script), env={
        "PATH": f"{folder}:{os.environ['PATH']}", "TOKENIZER": "t", "DATA": "d",
        "HEAD_NODE": "n:1"}).stdout.split("\n")
    words = words[words.index("pretrain_gpt.py") + 1:]
    flags, last = {}, None
    for word in filter(None, words):
        if word.startswith("--"):
            last = word[2:]
            flags[last] = None
        else:
            flags[last] = word
    return flags


def megatron_configs(flags):
    """megatron.core's configurations, which raise what they do not take."""
    import torch
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.transformer.transformer_config import TransformerConfig

    def count(name, absent=None):
        return int(flags[name]) if name in flags else absent

    dtype = torch.bfloat16 if "bf16" in flags else torch.float16
    model = TransformerConfig(
        num_layers=count("num-layers"), hidden_size=count("hidden-size"),
        ffn_hidden_size=count("ffn-hidden-size"),
        num_attention_heads=count("num-attention-heads"),
        num_query_groups=count("num-query-groups"),
        gated_linear_unit="swiglu" in flags,
        add_bias_linear="disable-bias-linear" not in flags,
        normalization=flags.get("normalization", "LayerNorm"),
        tensor_model_parallel_size=count("tensor-model-parallel-size", 1),
        pipeline_model_parallel_size=count("pipeline-model-parallel-size", 1),
        virtual_pipeline_model_parallel_size=count(
            "num-virtual-stages-per-pipeline-rank"),
        context_parallel_size=count("context-parallel-size", 1),
        cp_comm_type=flags.get("cp-comm-type"),
        sequence_parallel="sequence-parallel" in flags,
        account_for_embedding_in_pipeline_split=
        "account-for-embedding-in-pipeline-split" in flags,
        account_for_loss_in_pipeline_split=
        "account-for-loss-in-pipeline-split" in flags,
        pipeline_model_parallel_layout=flags.get("pipeline-model-parallel-layout"),
        num_layers_in_first_pipeline_stage=count("decoder-first-pipeline-num-layers"),
        num_layers_in_last_pipeline_stage=count("decoder-last-pipeline-num-layers"),
        recompute_granularity=flags.get("recompute-granularity"),
        recompute_method=flags.get("recompute-method"),
        recompute_num_layers=count("recompute-num-layers"),
        bf16="bf16" in flags, fp16="fp16" in flags, params_dtype=dtype,
        pipeline_dtype=dtype)
    replicas = DistributedDataParallelConfig(
        use_distributed_optimizer="use-distributed-optimizer" in flags,
        overlap_grad_reduce="overlap-grad-reduce" in flags,
        overlap_param_gather="overlap-param-gather" in flags)
    return model, replicas


def chunks_of(config):
    """Layers of every chunk, in the order of the model, by megatron.core."""
    from megatron.core import parallel_state
    from megatron.core.transformer.transformer_block import get_num_layers_to_build

    chunks = config.virtual_pipeline_model_parallel_size
    layers = []
    for chunk in range(chunks or 1):
        for stage in range(config.pipeline_model_parallel_size):
            # A layout asks the process for its stage, and whether it has chunks.
            parallel_state.set_pipeline_model_parallel_rank(stage)
            parallel_state.set_virtual_pipeline_model_parallel_world_size(chunks)
            layers.append(get_num_layers_to_build(
                config, vp_stage=chunk if chunks else None, pp_rank=stage))
    return layers


def read_present_stages(binaries, folder):
    """Scripts with uneven stages: our reading beside megatron.core's."""
    for index, stages in enumerate(PRESENT_STAGES):
        place = folder / f"stages{index}"
        place.mkdir()
        script = place / "present.sh"
        script.write_text(
            "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 31 "
            "--hidden-size 2048 --ffn-hidden-size 8192 --num-attention-heads 16 "
            "--seq-length 2048 --vocab-size 50257 --micro-batch-size 1 "
            "--global-batch-size 16 --bf16 --overlap-grad-reduce "
            "--pipeline-model-parallel-size 4 " + stages + "\n")
        run(f"{binaries}/galvatron-import", "--from=megatron", str(script), "-o",
            str(place / "back.json"))
        ours = json.loads((place / "back.json").read_text())["configuration"]
        config, _ = megatron_configs(started(script, place))
        check(f"megatron, {stages}", chunks_of(config), ours["blocks"])
    return len(PRESENT_STAGES)


def read_megatron(binaries, folder):
    seen = set()
    for index, (model, cluster, batch) in enumerate(MEGATRON_PLANS):
        place = folder / f"megatron{index}"
        place.mkdir()
        (place / "model.json").write_text(json.dumps(model))
        # What cards without bf16 do is an option of the way back.
        request = "megatron" + (",attention=unfused" if "v100" in cluster else "")
        run(f"{binaries}/galvatron-plan", str(place / "model.json"),
            f"--cluster={cluster}", f"--batch={batch}", f"--for={request}",
            f"--launch={place}")
        run(f"{binaries}/galvatron-import", f"--from={request}",
            str(place / "megatron.sh"), "-o", str(place / "back.json"))
        wanted = json.loads((place / "back.json").read_text())["configuration"]
        flags = started(place / "megatron.sh", place)
        config, replicas = megatron_configs(flags)
        stages = config.pipeline_model_parallel_size
        chunks = config.virtual_pipeline_model_parallel_size
        name = f"megatron on {cluster}"
        check(name + ", degrees",
              (config.tensor_model_parallel_size, stages, chunks or 1,
               config.context_parallel_size, config.sequence_parallel),
              (wanted["tensor"], wanted["pipeline"], wanted["chunks"],
               wanted["context"], wanted["sequence-parallel"]))
        check(name + ", layers of chunks",
              chunks_of(config), wanted["blocks"])
        check(name + ", optimizer", replicas.use_distributed_optimizer,
              wanted["sharding"] == "optimizer")
        check(name + ", recomputed", config.recompute_granularity,
              "full" if wanted["recompute"] == "full" else None)
        check(name + ", batch", (flags["micro-batch-size"],
                                 flags["global-batch-size"]),
              (str(wanted["micro-batch"]), str(batch)))
        seen |= {("stages", stages > 1), ("chunks", bool(chunks)),
                 ("recomputed", bool(config.recompute_granularity)),
                 ("context", config.context_parallel_size > 1),
                 ("uneven", len(set(wanted["blocks"])) > 1)}
    missing = {(what, True) for what in ("stages", "chunks", "context")} - seen
    check("megatron, what its plans have", missing, set())
    return len(MEGATRON_PLANS) + read_present_stages(binaries, folder)


def hetu_runtime():
    """The runtime's module that reads configurations, without the rest, which
    wants a GPU."""
    root = pathlib.Path(importlib.util.find_spec("galvatron").origin).parent
    for name in ("scipy", "scipy.optimize"):  # of its profilers
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].curve_fit = None
    spec = importlib.util.spec_from_file_location(
        "hybrid_parallel_config", root / "core" / "runtime" / "hybrid_parallel_config.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_hetu(binaries, profiles, folder):
    import torch

    runtime = hetu_runtime()
    numbers = lambda text: [int(part) for part in text.split(",")]
    batches = (8, 16, 32, 64)
    for batch in batches:
        place = folder / f"hetu{batch}"
        run(f"{binaries}/galvatron-plan", profiles, "--for=hetu-galvatron",
            f"--batch={batch}", f"--launch={place}")
        path, = place.glob("galvatron_config_*.json")
        written = json.loads(path.read_text())
        layers = len(numbers(written["tp_sizes_enc"]))
        arguments = types.SimpleNamespace(
            local_rank=1, galvatron_config_path=str(path), chunks=0,
            global_train_batch_size=0, pipeline_type="", default_dp_type="",
            embed_sdp=None, vocab_tp=1, vocab_sp=0, distributed_checkpoint=False)
        model = types.SimpleNamespace(layernums=lambda layers=layers: [layers])
        torch.distributed.get_world_size = lambda: written["world_size"]
        read = runtime.get_hybrid_parallel_configs_api(
            None, arguments, lambda *_: model)
        runtime.check_hp_config(read, [layers])
        check("hetu-galvatron, plan",
              (read["pp_deg"], list(read["tp_sizes_enc"]), list(read["dp_types_enc"]),
               list(read["use_sp"]), list(read["checkpoint_flags_enc"]),
               list(read["pp_division"])),
              (written["pp_deg"], *(numbers(written[key]) for key in (
                  "tp_sizes_enc", "dp_types_enc", "use_sp", "checkpoint",
                  "pp_division"))))
        check("hetu-galvatron, the rest",
              (arguments.global_train_batch_size, arguments.chunks,
               arguments.embed_sdp, arguments.vocab_tp, arguments.vocab_sp,
               arguments.default_dp_type, arguments.pipeline_type),
              (batch, *(written[key] for key in (
                  "chunks", "vocab_sdp", "vtp", "vsp", "default_dp_type",
                  "pipeline_type"))))
    return len(batches)


def fields_of(folder):
    """Fields of all classes of a package's configurations, by class."""
    fields = {}
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                fields[node.name] = {
                    item.target.id for item in node.body
                    if isinstance(item, ast.AnnAssign)}
    return fields


def read_nanotron(binaries, folder):
    import yaml

    package = pathlib.Path(importlib.util.find_spec("nanotron").origin).parent
    fields = fields_of(package / "config")
    (folder / "model.json").write_text(json.dumps(LLAMA))
    run(f"{binaries}/galvatron-plan", str(folder / "model.json"),
        "--cluster=8x8xh100", "--batch=128", "--for=nanotron",
        f"--launch={folder}/nanotron")
    written = yaml.safe_load((folder / "nanotron" / "nanotron.yaml").read_text())
    check("nanotron, sections", set(written) - fields["Config"] - NEWER_KEYS,
          set())
    for section, owner in (("parallelism", "ParallelismArgs"),
                           ("tokens", "TokensArgs"), ("optimizer", "OptimizerArgs"),
                           ("general", "GeneralArgs"), ("model", "ModelArgs"),
                           ("checkpoints", "CheckpointsArgs")):
        check(f"nanotron, keys of {section}",
              set(written[section]) - fields[owner] - NEWER_KEYS, set())
    sizes = dict(written["model"]["model_config"])
    check("nanotron, keys of the model",
          set(sizes) - fields["LlamaConfig"] - {"is_llama_config"} - NEWER_KEYS,
          set())
    return 1


def main():
    binaries, profiles = sys.argv[1:]
    done = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for package, read in (
                ("megatron", lambda: read_megatron(binaries, folder)),
                ("galvatron", lambda: read_hetu(binaries, profiles, folder)),
                ("nanotron", lambda: read_nanotron(binaries, folder))):
            if importlib.util.find_spec(package) is None:
                print(f"{package} is not installed: its files are not read")
                continue
            done += read()
    if not done:
        sys.exit(77)
    print(f"{done} files read as they were written")


main()
