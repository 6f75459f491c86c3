//===- call_runner.h - Running functions of layers ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Binds the regions of a layer to addresses, for a phase, a micro-batch and a
// slot, and runs the calls of its function.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_CALL_RUNNER_H
#define GRT_CORE_CALL_RUNNER_H

#include "core/batch_in_flight.h"
#include "core/bound_layer.h"
#include "core/inspector.h"
#include "core/memory_in_use.h"
#include "core/pair_counts.h"
#include "core/update_calls.h"

namespace grt {

class CallRunner {
public:
  CallRunner(const RankFacts &facts, RankMemories &memories, Observer &observer,
             const BatchInFlight &batch, MemoryInUse &inUse,
             Inspector &inspector);

  /// Runs the function of a layer for a phase. Throws Error or Aborted.
  void call(size_t layer, LayerPhase phase, uint32_t microBatch, uint32_t slot);
  void reshard(int exchange, const Extent &to, const Extent &from);
  /// Adds a gradient to one of as many bytes.
  void addGradient(const Extent &to, const Extent &from);

  // For the loader too, which looks at calls and does not run them.
  void bind(size_t layer, LayerPhase phase, uint32_t microBatch, uint32_t slot);
  void unbind();
  /// Where a buffer of the bound function lies.
  char *resolve(const grt_buffer &buffer, const char *name, size_t position);
  /// Calls use(call, rule) for the calls that a call is under the rules of the
  /// run's parameter groups; no rule: the call as it is.
  template <class Use> void expand(const grt_kernel_op &op, const Use &use) {
    grt_kernel_op patched = op;
    if (const auto *calls = updateCalls.of(op, observer.layer())) {
      for (const PartialCall &call : *calls) {
        patched.ints = call.ints.data();
        patched.int_count = uint32_t(call.ints.size());
        use(patched, &call.rule);
      }
      return;
    }
    if (const auto ints = updateCalls.decayingInts(op); !ints.empty())
      patched.ints = ints.data();
    use(patched, static_cast<const ParameterRule *>(nullptr));
  }

  BoundLayer bound;
  const LayerState *running = nullptr;
  const Side *side; ///< of the running function
  PairCounts pairCounts;
  bool accumulates = false; ///< functions add to gradients

private:
  void run(const gvx::Call &call);
  void launch(const grt_kernel_op &op);
  /// The call itself, with a step block that may be its own.
  void start(const grt_kernel_op &op, grt_step *block);
  void communicate(const grt_collective_op &op);
  /// Runs the collective of a call over a group; without one the rank is alone.
  void runCollective(const grt_collective_op &op, Group *group, const char *in,
                     char *out);
  /// An all-to-all or a shift.
  void moveBlocks(const grt_collective_op &op, Group *group, const char *in,
                  char *out);
  void order(const grt_event_op &op);

  const RankFacts &facts;
  RankMemories &memories;
  Observer &observer;
  const BatchInFlight &batch;
  MemoryInUse &inUse;
  Inspector &inspector;
  UpdateCalls updateCalls;
};

} // namespace grt

#endif // GRT_CORE_CALL_RUNNER_H
