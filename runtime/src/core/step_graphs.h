//===- step_graphs.h - Steps as graphs of the device ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a step puts on streams is the same in every step: addresses are the
// plan's, and what changes (step number, learning rate, clip factor, the batch)
// stands in the arena, where the host puts it before the step. So a step is put
// on streams once, as a graph, and then only started. In the middle of it the
// device decides whether the update is done and how it clips, from the results
// that all ranks gather; the host gets the results there, decides the same, and
// prepares the next step while the update runs.
//
// Where the device cannot decide there are two graphs: 0 up to the copy of the
// results to the host, which decides with them; 1, the update and what follows.
//
// The first step is an ordinary one: libraries take what they need the first
// time.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_STEP_GRAPHS_H
#define GRT_CORE_STEP_GRAPHS_H

#include "core/interpreter.h"

#include <string>
#include <vector>

namespace grt {

class StepGraphs {
public:
  StepGraphs(const RankMemories &memories, Observer &observer,
             const BatchInFlight &batch, RankStreams &streams,
             Interpreter &interpreter, StepEnd &stepEnd)
      : facts(memories.facts), memories(memories), observer(observer),
        batch(batch), streams(streams), interpreter(interpreter),
        stepEnd(stepEnd) {}

  /// Whether the step that the batch is of is to be graphs.
  bool holdStep() const;
  void train();
  /// Work that is put on streams one by one follows.
  void leave();
  /// How many a step is, once it is warm; 0: it is always put on streams call
  /// by call.
  int perStep() const { return !wanted ? 0 : isOne ? 1 : 2; }

  bool warm = false; ///< a step was done
  // Set when the rank is loaded.
  bool wanted = false; ///< steps can be graphs, and are to be
  bool isOne = false;  ///< the device decides of the update
  /// Why it is not one; empty if it is, or where there is no device.
  std::string whyNotOne;
  Group *everyone = nullptr; ///< where one graph is of several ranks

private:
  template <typename Body> void run(uint32_t number, Body body);
  template <typename Body> void capture(uint32_t number, Body body);
  /// Puts the decision of decideUpdate on COMPUTE.
  void decideOnDevice();

  const RankFacts &facts;
  const RankMemories &memories;
  Observer &observer;
  const BatchInFlight &batch;
  RankStreams &streams;
  Interpreter &interpreter;
  StepEnd &stepEnd;
  bool ran = false; ///< since work was last put on streams
  std::vector<bool> made;
  /// Where results arrive; null if this rank has none.
  StepEnd::Fetched fetched;
};

} // namespace grt

#endif // GRT_CORE_STEP_GRAPHS_H
