//===- test_program.h - Programs made by hand, for tests ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model of three layers under any strategies, written without the compiler:
// token embedding, y = x + (x W + b), and a head (own or tied to the embedding)
// with cross entropy.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_TEST_PROGRAM_H
#define GRT_TESTS_TEST_PROGRAM_H

#include "grt/program_file.h"
#include "grt/session.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace grt::test {

struct LayerPlan {
  /// Levels, outermost first: {"tp", 2}, {"sdp", 2}.
  std::vector<std::pair<std::string, int64_t>> levels;
  bool ckpt = false; ///< of the head only
  gvx::LayerOrder order = {};
};

struct StagePlan {
  /// Ascending numbers out of 0, 1, 2; what follows one another is a chunk.
  std::vector<int> layers;
  std::vector<int> devices;
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
  /// They are also where layers of a stage have unlike levels, and something
  /// has to wait for them.
  bool alwaysSumsBehind = false;
  /// True if the embedding's output goes once around the ranks of a cut
  /// vocabulary, is compared, and goes forth and back in blocks: it comes out
  /// as it was. Blocks of as many units as tokens say go to and fro beside it.
  bool movesBlocks = false;
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
  std::function<void(gvx::Tables &)> changeTables;
  /// Changes the tables when the commands of all tasks are there.
  std::function<void(gvx::Tables &)> changeCommands;
};

/// A program for the plan.
class TestProgram {
public:
  explicit TestProgram(const ModelPlan &plan);

  /// Its file, as the compiler would write it.
  const std::string &file() const { return bytes; }
  const gvx::Tables &tables() const { return contents; }
  const std::string &manifest() const { return contents.manifest; }

private:
  gvx::Tables contents;
  std::string bytes;
};

} // namespace grt::test

#endif // GRT_TESTS_TEST_PROGRAM_H
