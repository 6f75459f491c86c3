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
    {"expert-tensor-parallel-size", Effect::Refused, true},
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
    {"data-parallel-sharding-strategy", Effect::Refused, true},
    {"num-distributed-optimizer-instances", Effect::Refused, true},
    {"fp8-format", Effect::Refused, true},
    {"fp8-recipe", Effect::Refused, true},
    {"main-grads-dtype", Effect::Refused, true},
    {"main-params-dtype", Effect::Refused, true},
    {"exp-avg-dtype", Effect::Refused, true},
    {"exp-avg-sq-dtype", Effect::Refused, true},
    {"use-precision-aware-optimizer", Effect::Refused, false},
    {"grad-reduce-in-bf16", Effect::Refused, false},
    {"accumulate-allreduce-grads-in-fp32", Effect::Read, false},
    {"optimizer-cpu-offload", Effect::Refused, false},
    {"optimizer-offload-fraction", Effect::Refused, true},
    {"cpu-offloading-num-layers", Effect::Refused, true},
    {"fine-grained-activation-offloading", Effect::Refused, false},
    {"tp-comm-overlap", Effect::Read, false},
    {"cuda-graph-impl", Effect::Refused, true},
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
