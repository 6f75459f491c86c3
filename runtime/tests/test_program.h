//===- test_program.h - Programs made by hand, for tests ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model of three layers under any strategies, written against the ABI without
// the compiler: token embedding, y = x + (x W + b), and a head (own or tied to
// the embedding) with cross entropy. The program's functions replay lists of
// calls, so that one process can hold any number of programs.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_TEST_PROGRAM_H
#define GRT_TESTS_TEST_PROGRAM_H

#include "grt/session.h"

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace grt::test {

struct LayerPlan {
  /// Levels, outermost first: {"tp", 2}, {"sdp", 2}.
  std::vector<std::pair<std::string, int64_t>> levels;
  bool ckpt = false; ///< of the head only
};

struct StagePlan {
  /// Ascending numbers out of 0, 1, 2; what follows one another is a chunk.
  std::vector<int> layers;
  std::vector<int> devices;
};

/// All calls of a program's functions, in the order in which they were written.
struct ProgramCalls {
  std::deque<grt_kernel_op> &kernels;
  std::deque<grt_collective_op> &collectives;
  std::deque<grt_event_op> &orders;
};

struct ModelPlan {
  int64_t vocab = 11, width = 8, seqLen = 4, batch = 8, microBatches = 2;
  bool tied = false;
  bool f64 = true;
  bool clip = true;
  /// Two stages of one chunk only. Else GPipe: where stages have several chunks
  /// micro-batches pass through them in waves.
  bool oneForwardOneBackward = false;
  /// Gathers and reductions of parameters and gradients on streams of their
  /// own, ordered by events; gradients are summed behind the backward pass.
  bool streams = false;
  /// Bytes of it in the arena.
  uint64_t workspace = 0;
  std::string optimizer = "adamw";
  std::string planJson;             ///< of the manifest; empty: none
  std::string nodesJson;            ///< of the manifest; empty: none
  std::string readsKind = "tokens"; ///< of what the first layer reads
  LayerPlan layers[3];
  std::vector<StagePlan> stages{{{0, 1, 2}, {0}}};
  /// Faults for the tests of errors.
  bool overrunStash = false, wrongRegion = false;
  std::function<void(ProgramCalls)> changeCalls;
};

/// A program for the plan; `table` is valid as long as the object.
class TestProgram {
public:
  explicit TestProgram(const ModelPlan &plan);
  TestProgram(const TestProgram &) = delete;
  TestProgram &operator=(const TestProgram &) = delete;

  const grt_program &table() const { return holder.program; }
  const std::string &manifest() const { return manifestText; }

  struct Call {
    enum Kind { Launch, Communicate, Order, Begin, End } kind;
    size_t index; ///< into the deque of its kind
  };
  int32_t run(size_t function, grt_context *context) const;

  /// The table together with the way back to its program.
  struct Holder {
    grt_program program;
    const TestProgram *owner;
  };

private:
  friend class Builder;
  Holder holder{};
  std::string manifestText;
  std::vector<std::vector<Call>> functions;
  std::deque<grt_kernel_op> kernels;
  std::deque<grt_collective_op> collectives;
  std::deque<grt_event_op> orders;
  std::deque<grt_buffer> lives;
  std::deque<std::vector<grt_buffer>> buffers;
  std::deque<std::vector<int64_t>> integers;
  std::deque<std::vector<grt_task>> tasks;
  std::deque<std::vector<grt_transfer_part>> transfers;
  std::vector<grt_schedule> schedules;
};

} // namespace grt::test

#endif // GRT_TESTS_TEST_PROGRAM_H
