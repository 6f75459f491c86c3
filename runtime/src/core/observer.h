//===- observer.h - What others see of a rank -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Says where a rank is: in the messages of its errors, to a backend that
// checks, and in marks behind what its device was given, for the flight
// recorder.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_OBSERVER_H
#define GRT_CORE_OBSERVER_H

#include "core/flight.h"
#include "core/rank_memories.h"

#include <string>

namespace grt {

class Observer {
public:
  Observer(const RankFacts &facts, const RankMemories &memories)
      : facts(facts), memories(memories) {}

  /// The layer at hand; null: none.
  void at(const Layer *layer) {
    running = layer;
    facts.activity.setLayer(layer ? layer->name.c_str() : nullptr);
  }
  /// The same of what is done beside functions, which a trace has too.
  void besideFunctions(size_t layer) {
    at(&memories.layer(layer));
    if (facts.recorder)
      facts.recorder->layer = int32_t(layer);
  }
  const Layer &layer() const { return *running; }
  /// Tells a checking backend what comes.
  void notePlace(const char *what) const;
  [[noreturn]] void failHere(const std::string &what) const;
  [[noreturn]] void failCall(const grt_kernel_op &op,
                             const char *message) const;

  /// An event behind what stands on the stream, for the flight recorder.
  void leaveMark(uint32_t stream) { leaveMark(stream, facts.activity.begun()); }
  /// Behind what was put there up to an operation (Activity::mark).
  void leaveMark(uint32_t stream, uint64_t operation);
  RankFlight flight() const {
    return {&facts.activity, facts.schedule().transfers};
  }
  /// Lets the activity know what the device has done. From any thread.
  void lookAtMarks() const;

  uint64_t step = 0; ///< of the running or last pass
  /// A graph is being made: what is put on streams does not run yet.
  bool capturing = false;
  /// Events behind operations; they take turns.
  struct Marks {
    uint32_t first = 0, kept = 0, left = 0;
  };
  Marks marks;

private:
  const RankFacts &facts;
  const RankMemories &memories;
  const Layer *running = nullptr;
};

} // namespace grt

#endif // GRT_CORE_OBSERVER_H
