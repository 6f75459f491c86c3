//===- MegatronFlags.h - Flags of pretrain_gpt.py ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Flags of megatron/training/arguments.py and of torchrun that present scripts
// have, by what they do to a plan.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SOFTWARE_MEGATRONFLAGS_H
#define GALVATRON_LIB_SOFTWARE_MEGATRONFLAGS_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <utility>

namespace galvatron::megatron {

/// The effect of a flag on a plan. Flags that are in no row are refused.
enum class Effect : uint8_t {
  Read,   ///< it says a size, a degree, or how is executed
  Passed, ///< neither time nor memory of a step depends on it
  Refused ///< it changes time or memory, in a way that is not priced
};

struct Flag {
  llvm::StringLiteral name;
  Effect effect;
  bool takesValue;
  /// A refused one's value that changes nothing, if it has one.
  llvm::StringLiteral neutral = "";
};

inline constexpr Flag kFlags[] = {
    {"num-layers", Effect::Read, true},
    {"hidden-size", Effect::Read, true},
    {"ffn-hidden-size", Effect::Read, true},
    {"num-attention-heads", Effect::Read, true},
    {"group-query-attention", Effect::Read, false},
    {"num-query-groups", Effect::Read, true},
    {"kv-channels", Effect::Read, true},
    {"seq-length", Effect::Read, true},
    {"max-position-embeddings", Effect::Read, true},
    {"vocab-size", Effect::Read, true},
    {"padded-vocab-size", Effect::Refused, true},
    {"make-vocab-size-divisible-by", Effect::Read, true},
    {"swiglu", Effect::Read, false},
    {"normalization", Effect::Read, true},
    {"untie-embeddings-and-output-weights", Effect::Read, false},
    {"disable-bias-linear", Effect::Read, false},
    {"position-embedding-type", Effect::Read, true},
    {"use-rotary-position-embeddings", Effect::Read, false},
    {"rotary-base", Effect::Read, true},
    {"rotary-percent", Effect::Passed, true},
    {"tensor-model-parallel-size", Effect::Read, true},
    {"pipeline-model-parallel-size", Effect::Read, true},
    {"context-parallel-size", Effect::Read, true},
    {"cp-comm-type", Effect::Read, true},
    {"hierarchical-context-parallel-sizes", Effect::Refused, true},
    {"expert-model-parallel-size", Effect::Read, true},
    {"sequence-parallel", Effect::Read, false},
    {"use-distributed-optimizer", Effect::Read, false},
    {"overlap-grad-reduce", Effect::Read, false},
    {"overlap-param-gather", Effect::Read, false},
    {"micro-batch-size", Effect::Read, true},
    {"global-batch-size", Effect::Read, true},
    {"num-virtual-stages-per-pipeline-rank", Effect::Read, true},
    {"num-layers-per-virtual-pipeline-stage", Effect::Read, true},
    {"account-for-embedding-in-pipeline-split", Effect::Read, false},
    {"account-for-loss-in-pipeline-split", Effect::Read, false},
    {"recompute-granularity", Effect::Read, true},
    {"recompute-method", Effect::Read, true},
    {"recompute-num-layers", Effect::Read, true},
    {"bf16", Effect::Read, false},
    {"fp16", Effect::Read, false},
    {"use-flash-attn", Effect::Read, false},
    {"attention-backend", Effect::Read, true},
    {"attention-dropout", Effect::Passed, true},
    {"hidden-dropout", Effect::Passed, true},
    {"use-mcore-models", Effect::Passed, false},
    {"transformer-impl", Effect::Passed, true},
    {"distributed-backend", Effect::Passed, true},
    {"distributed-timeout-minutes", Effect::Passed, true},
    {"seed", Effect::Passed, true},
    {"lr", Effect::Passed, true},
    {"min-lr", Effect::Passed, true},
    {"lr-decay-style", Effect::Passed, true},
    {"lr-decay-iters", Effect::Passed, true},
    {"lr-warmup-iters", Effect::Passed, true},
    {"lr-warmup-fraction", Effect::Passed, true},
    {"weight-decay", Effect::Passed, true},
    {"adam-beta1", Effect::Passed, true},
    {"adam-beta2", Effect::Passed, true},
    {"adam-eps", Effect::Passed, true},
    {"clip-grad", Effect::Passed, true},
    {"init-method-std", Effect::Passed, true},
    {"train-iters", Effect::Passed, true},
    {"train-samples", Effect::Passed, true},
    {"norm-epsilon", Effect::Passed, true},
    {"data-path", Effect::Passed, true},
    {"split", Effect::Passed, true},
    {"mock-data", Effect::Passed, false},
    {"tokenizer-type", Effect::Passed, true},
    {"tokenizer-model", Effect::Passed, true},
    {"vocab-file", Effect::Passed, true},
    {"merge-file", Effect::Passed, true},
    {"save", Effect::Passed, true},
    {"load", Effect::Passed, true},
    {"save-interval", Effect::Passed, true},
    {"eval-interval", Effect::Passed, true},
    {"eval-iters", Effect::Passed, true},
    {"log-interval", Effect::Passed, true},
    {"log-throughput", Effect::Passed, false},
    {"tensorboard-dir", Effect::Passed, true},
    {"num-workers", Effect::Passed, true},
    {"no-masked-softmax-fusion", Effect::Passed, false},
    {"attention-softmax-in-fp32", Effect::Passed, false},
    {"exit-duration-in-mins", Effect::Passed, true},
    {"exit-interval", Effect::Passed, true},
    {"timing-log-level", Effect::Passed, true},
    {"timing-log-option", Effect::Passed, true},
    {"tensorboard-log-interval", Effect::Passed, true},
    {"tensorboard-queue-size", Effect::Passed, true},
    {"wandb-project", Effect::Passed, true},
    {"wandb-exp-name", Effect::Passed, true},
    {"wandb-save-dir", Effect::Passed, true},
    {"wandb-entity", Effect::Passed, true},
    {"ckpt-format", Effect::Passed, true},
    {"pretrained-checkpoint", Effect::Passed, true},
    {"lr-warmup-samples", Effect::Passed, true},
    {"lr-warmup-init", Effect::Passed, true},
    {"lr-decay-samples", Effect::Passed, true},
    {"lr-wsd-decay-style", Effect::Passed, true},
    {"lr-wsd-decay-iters", Effect::Passed, true},
    {"decoupled-lr", Effect::Passed, true},
    {"decoupled-min-lr", Effect::Passed, true},
    {"start-weight-decay", Effect::Passed, true},
    {"end-weight-decay", Effect::Passed, true},
    {"weight-decay-incr-style", Effect::Passed, true},
    {"dataloader-type", Effect::Passed, true},
    {"data-cache-path", Effect::Passed, true},
    {"save-retain-interval", Effect::Passed, true},
    {"initial-loss-scale", Effect::Passed, true},
    {"loss-scale", Effect::Passed, true},
    {"min-loss-scale", Effect::Passed, true},
    {"loss-scale-window", Effect::Passed, true},
    {"hysteresis", Effect::Passed, true},
    {"tiktoken-pattern", Effect::Passed, true},
    {"manual-gc-interval", Effect::Passed, true},
    {"exit-signal-handler", Effect::Passed, false},
    {"no-load-optim", Effect::Passed, false},
    {"no-load-rng", Effect::Passed, false},
    {"no-save-optim", Effect::Passed, false},
    {"no-save-rng", Effect::Passed, false},
    {"log-params-norm", Effect::Passed, false},
    {"log-num-zeros-in-grad", Effect::Passed, false},
    {"log-timers-to-tensorboard", Effect::Passed, false},
    {"log-memory-to-tensorboard", Effect::Passed, false},
    {"log-validation-ppl-to-tensorboard", Effect::Passed, false},
    {"log-world-size-to-tensorboard", Effect::Passed, false},
    {"log-progress", Effect::Passed, false},
    {"async-save", Effect::Passed, false},
    {"use-dist-ckpt", Effect::Passed, false},
    {"auto-detect-ckpt-format", Effect::Passed, false},
    {"finetune", Effect::Passed, false},
    {"override-opt-param-scheduler", Effect::Passed, false},
    {"use-checkpoint-opt-param-scheduler", Effect::Passed, false},
    {"eod-mask-loss", Effect::Passed, false},
    {"no-create-attention-mask-in-dataloader", Effect::Passed, false},
    {"no-mmap-bin-files", Effect::Passed, false},
    {"manual-gc", Effect::Passed, false},
    {"init-method-xavier-uniform", Effect::Passed, false},
    {"apply-layernorm-1p", Effect::Passed, false},
    {"ckpt-fully-parallel-load", Effect::Passed, false},
    {"no-ckpt-fully-parallel-save", Effect::Passed, false},
    {"ckpt-assume-constant-structure", Effect::Passed, false},
    {"calculate-per-token-loss", Effect::Passed, false},
    {"no-position-embedding", Effect::Passed, false},
    {"expert-tensor-parallel-size", Effect::Refused, true, "1"},
    {"num-experts", Effect::Refused, true},
    {"moe-router-topk", Effect::Refused, true},
    {"pipeline-model-parallel-layout", Effect::Read, true},
    {"decoder-first-pipeline-num-layers", Effect::Read, true},
    {"decoder-last-pipeline-num-layers", Effect::Read, true},
    {"microbatch-group-size-per-virtual-pipeline-stage", Effect::Refused, true},
    {"no-overlap-p2p-communication", Effect::Refused, false},
    {"recompute-modules", Effect::Read, true},
    {"recompute-activations", Effect::Read, false},
    {"mtp-num-layers", Effect::Refused, true},
    {"hybrid-layer-pattern", Effect::Refused, true},
    {"use-megatron-fsdp", Effect::Refused, false},
    {"use-torch-fsdp2", Effect::Refused, false},
    {"data-parallel-sharding-strategy", Effect::Refused, true, "no_shard"},
    {"num-distributed-optimizer-instances", Effect::Refused, true, "1"},
    {"fp8-format", Effect::Refused, true},
    {"fp8-recipe", Effect::Refused, true},
    {"main-grads-dtype", Effect::Refused, true, "fp32"},
    {"main-params-dtype", Effect::Refused, true, "fp32"},
    {"exp-avg-dtype", Effect::Refused, true, "fp32"},
    {"exp-avg-sq-dtype", Effect::Refused, true, "fp32"},
    {"use-precision-aware-optimizer", Effect::Refused, false},
    {"grad-reduce-in-bf16", Effect::Refused, false},
    {"accumulate-allreduce-grads-in-fp32", Effect::Read, false},
    {"optimizer-cpu-offload", Effect::Refused, false},
    {"optimizer-offload-fraction", Effect::Refused, true},
    {"cpu-offloading-num-layers", Effect::Refused, true, "0"},
    {"fine-grained-activation-offloading", Effect::Refused, false},
    {"tp-comm-overlap", Effect::Read, false},
    {"cuda-graph-impl", Effect::Refused, true, "none"},
    {"gtp-weight-remat-size", Effect::Refused, true},
    {"tensor-parallel-num-weight-shards", Effect::Refused, true},
    {"optimizer", Effect::Read, true},
    {"nproc-per-node", Effect::Read, true},
    {"nnodes", Effect::Read, true},
    {"rdzv-backend", Effect::Passed, true},
    {"rdzv-endpoint", Effect::Passed, true},
    {"node-rank", Effect::Passed, true},
    {"master-addr", Effect::Passed, true},
    {"master-port", Effect::Passed, true},
};

/// Beginnings of flags that belong together, and what they are of.
inline constexpr std::pair<llvm::StringLiteral, llvm::StringLiteral>
    kRefusedFamilies[] = {{"--moe-", "experts"},
                          {"--fp8", "products in 8 bits"},
                          {"--fp4", "products in 4 bits"},
                          {"--optimizer-cpu", "optimizers on the host"},
                          {"--cpu-offloading", "activations on the host"}};

} // namespace galvatron::megatron

#endif // GALVATRON_LIB_SOFTWARE_MEGATRONFLAGS_H
