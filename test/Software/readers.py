#!/usr/bin/env python3
#===- readers.py - Written files, read by the software itself ------------===//
#
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===----------------------------------------------------------------------===//
"""Reads files of galvatron-plan --for=fsdp with accelerate and transformers, and
of --for=deepspeed and --for=torchtitan with DeepSpeed and torchtitan where these
are installed.

  readers.py BIN MODEL

accelerate's launcher makes its environment of the YAML, from which its own
classes say what they would shard; the Trainer's arguments are parsed by
transformers. Both are compared with the plan. Exit code 77 where accelerate or
transformers is missing.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    from accelerate.commands.launch import (_validate_launch_command,
                                            launch_command_parser)
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env
    from transformers import HfArgumentParser, TrainingArguments
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

try:
    from unittest import mock

    from deepspeed.runtime.config import DeepSpeedConfig
except ImportError:
    DeepSpeedConfig = None


def strategy_of(wanted):
    """The name of a configuration's strategy in FSDP1."""
    if wanted["shard-group"]:
        return {"parameters": "HYBRID_SHARD",
                "gradients": "HYBRID_SHARD_ZERO2"}[wanted["sharding"]]
    return {"parameters": "FULL_SHARD", "gradients": "SHARD_GRAD_OP",
            "none": "NO_SHARD"}[wanted["sharding"]]


def plan(binaries, model, folder, cluster, options, read_back):
    """Writes a plan's files; the configuration that they say, by this project."""
    software = options.pop("software", "fsdp")
    request = software + "".join(f",{key}={value}" for key, value in options.items())
    run = lambda *words: subprocess.run(words, check=True, capture_output=True)
    run(f"{binaries}/galvatron-plan", model, f"--cluster={cluster}", "--batch=32",
        "--seq-len=4096", f"--for={request}", f"--launch={folder}")
    name = ("deepspeed.json" if software == "deepspeed" else
            "galvatron_plan.py" if software == "torchtitan" else
            "trainer.json" if options.get("files") == "trainer" else "fsdp.yaml")
    run(f"{binaries}/galvatron-import", f"--from={request}{read_back}",
        f"{folder}/{name}", "-o", f"{folder}/back.json",
        *(() if software == "torchtitan" else (model, "--seq-len=4096")))
    configuration = json.loads((folder / "back.json").read_text())["configuration"]
    return folder / name, configuration


def check(name, found, expected):
    if found != expected:
        raise SystemExit(f"{name}: expected {expected}, found {found}")


def check_accelerate(path, version, wanted):
    arguments = launch_command_parser().parse_args(
        ["--config_file", str(path), "script.py"])
    arguments, _, _ = _validate_launch_command(arguments)
    before = dict(os.environ)
    os.environ.update(prepare_multi_gpu_env(arguments))
    # Both want a GPU as soon as they are read.
    os.environ.update(FSDP_SYNC_MODULE_STATES="false",
                      FSDP_CPU_RAM_EFFICIENT_LOADING="false")
    try:
        plugin = FullyShardedDataParallelPlugin()
        mesh = ParallelismConfig()
    finally:
        os.environ.clear()
        os.environ.update(before)
    check("version", plugin.fsdp_version, version)
    check("recomputed", plugin.activation_checkpointing,
          wanted["recompute"] == "full")
    check("processes", arguments.num_processes,
          wanted["data"] * wanted["tensor"] * wanted["context"])
    if version == 1:
        check("strategy", plugin.sharding_strategy.name.lstrip("_"),
              strategy_of(wanted))
        return
    check("reshards", plugin.reshard_after_forward,
          wanted["sharding"] == "parameters")
    if mesh.total_size > 1:
        shards = wanted["shard-group"] or wanted["data"]
        check("mesh", (mesh.dp_replicate_size, mesh.dp_shard_size, mesh.tp_size,
                       mesh.cp_size),
              (wanted["data"] // shards, shards, wanted["tensor"],
               wanted["context"]))
    else:
        check("mesh", (wanted["shard-group"], wanted["tensor"], wanted["context"]),
              (0, 1, 1))


def check_trainer(path, version, wanted):
    arguments = json.loads(path.read_text())
    arguments.update(output_dir=str(path.parent), use_cpu=True)
    read, = HfArgumentParser(TrainingArguments).parse_dict(arguments)
    plugin = read.fsdp_plugin_args
    check("version", plugin["fsdp_version"], version)
    check("reshards", plugin["reshard_after_forward"],
          wanted["sharding"] == "parameters" if version == 2 else
          strategy_of(wanted).lower())
    check("recomputed", plugin["activation_checkpointing"],
          wanted["recompute"] == "full")
    check("micro-batch", read.per_device_train_batch_size, wanted["micro-batch"])
    check("batch", read.per_device_train_batch_size *
          read.gradient_accumulation_steps * wanted["data"], wanted["batch"])


def check_deepspeed(path, wanted):
    """What DeepSpeed asserts of the batch it asserts of the ranks that it has."""
    ranks = mock.Mock(get_data_parallel_world_size=lambda: wanted["data"])
    with mock.patch("deepspeed.comm.get_rank", return_value=0):
        read = DeepSpeedConfig(str(path), mpu=ranks)
    check("batch", (read.train_batch_size, read.train_micro_batch_size_per_gpu),
          (wanted["batch"], wanted["micro-batch"]))
    check("stage", int(read.zero_config.stage),
          ["none", "optimizer", "gradients", "parameters"].index(wanted["sharding"]))
    check("overlap", read.zero_config.overlap_comm, True)
    check("bucket", read.zero_config.reduce_bucket_size, 500000000)


def check_ulysses(binaries, folder):
    """Samples of 131,072 tokens fit by cut positions alone. DeepSpeed divides the
    batch by the ranks of a sample; accelerate's mesh is in the environment."""
    model = folder / "long.json"
    model.write_text(json.dumps({"version": 1, "shape": {
        "layers": 32, "hidden": 4096, "heads": 32, "key-heads": 8, "ffn": 14336,
        "vocabulary": 128256, "tokens": 131072, "gated": True}}))
    subprocess.run(
        [f"{binaries}/galvatron-plan", str(model), "--cluster=2x8xh100",
         "--batch=4", "--for=deepspeed", f"--launch={folder}"],
        check=True, capture_output=True)
    written = json.loads((folder / "deepspeed.json").read_text())
    ranks = written["sequence_parallel_size"]
    with mock.patch("deepspeed.comm.get_rank", return_value=0), \
            mock.patch("deepspeed.comm.get_world_size", return_value=16):
        read = DeepSpeedConfig(written)
    check("Ulysses, batch", (read.train_batch_size,
                             read.train_micro_batch_size_per_gpu *
                             read.gradient_accumulation_steps * 16 // ranks), (4, 4))
    check("Ulysses, sums", str(read.seq_parallel_communication_data_type),
          "torch.bfloat16")
    before = dict(os.environ)
    os.environ.update(line.split("=", 1) for line in
                      (folder / "ulysses.env").read_text().splitlines())
    try:
        mesh = ParallelismConfig()
    finally:
        os.environ.clear()
        os.environ.update(before)
    check("Ulysses, mesh", (mesh.sp_size, mesh.sp_backend, mesh.data_parallel_size),
          (ranks, "deepspeed", 16 // ranks))
    check("Ulysses, attention", mesh.sp_handler.sp_attn_implementation, "sdpa")


def check_torchtitan(path, wanted):
    """The function that the launcher would call."""
    spec = importlib.util.spec_from_file_location(f"plan_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    os.environ.update(HF_ASSETS="assets", DATASET="c4")
    spec.loader.exec_module(module)
    config = module.plan()
    sizes = config.parallelism
    check("degrees", (sizes.data_parallel_replicate_degree *
                      sizes.data_parallel_shard_degree,
                      sizes.tensor_parallel_degree, sizes.pipeline_parallel_degree,
                      sizes.context_parallel_degree),
          (wanted["data"], wanted["tensor"], wanted["pipeline"],
           wanted["context"]))
    check("batch", config.training.global_batch_size, wanted["batch"])
    check("tokens", config.training.seq_len, 4096)
    if wanted["sharding"] != "none":
        check("reshards", sizes.fsdp_reshard_after_forward,
              "never" if wanted["sharding"] == "gradients" else "always")
    check("recomputed", config.activation_checkpoint is not None,
          wanted["recompute"] == "full")


def main():
    binaries, model = sys.argv[1:]
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        for cluster, devices in (("8xh100", 8), ("2x8xh100", 16), ("2x4xv100-16gb", 8)):
            for version in (1, 2):
                for files in ("accelerate", "trainer"):
                    place = pathlib.Path(folder) / f"{done}"
                    of_trainer = files == "trainer"
                    path, wanted = plan(
                        binaries, model, place, cluster,
                        {"files": files, "version": version},
                        f",devices={devices},nodes={2 if cluster[0] == '2' else 1}"
                        if of_trainer else ",micro-batch=1,accumulation=1")
                    (check_trainer if of_trainer else check_accelerate)(
                        path, version, wanted)
                    done += 1
            for software, reader, installed in (
                    ("deepspeed", check_deepspeed, DeepSpeedConfig),
                    ("torchtitan", check_torchtitan,
                     importlib.util.find_spec("torchtitan"))):
                if not installed:
                    print(f"{software} is not installed: its files are not read")
                    continue
                if software == "torchtitan" and "v100" in cluster:
                    continue  # it trains in bf16 alone
                reader(*plan(binaries, model, pathlib.Path(folder) / f"{done}",
                             cluster, {"software": software}, ""))
                done += 1
        if DeepSpeedConfig:
            place = pathlib.Path(folder) / "ulysses"
            place.mkdir()
            check_ulysses(binaries, place)
            done += 1
    print(f"{done} files read as they were written")


main()
