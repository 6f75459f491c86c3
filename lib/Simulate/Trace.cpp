//===- Trace.cpp - A simulation as a Chrome trace -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Simulate/Simulate.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {
namespace {

/// Thread of a process: the tasks first, then the streams.
constexpr int kTaskThread = 0;
int threadOf(Stream stream) { return 1 + static_cast<int>(stream); }

class TraceWriter {
public:
  TraceWriter(raw_ostream &os, const SimulationInput &input,
              const Simulation &simulation)
      : os(os), input(input), simulation(simulation) {}

  void write(size_t mostEvents) {
    size_t slices = 0;
    for (const SimulatedActor &actor : simulation.actors)
      slices +=
          actor.spans.size() *
          (actor.localRank >= 0 ? 1 : input.roles[actor.role].devices.size());
    bool fold = slices > mostEvents;
    os << "{\"displayTimeUnit\":\"ms\",\"otherData\":{";
    os << format("\"simulated-iteration-ms\":%.6f,"
                 "\"predicted-iteration-ms\":%.6f},\n",
                 simulation.seconds * 1e3, simulation.predictedSeconds * 1e3);
    os << "\"traceEvents\":[";
    for (const SimulatedActor &actor : simulation.actors) {
      const SimulatedRole &role = input.roles[actor.role];
      if (actor.localRank >= 0) {
        process(actor, role.devices[actor.localRank], false);
        continue;
      }
      if (fold) {
        process(actor, role.devices.front(), true);
        continue;
      }
      for (int64_t device : role.devices)
        process(actor, device, false);
    }
    os << "\n]}\n";
  }

private:
  raw_ostream &item() {
    os << (first ? "\n" : ",\n");
    first = false;
    return os;
  }

  /// JSON text of a string.
  static std::string quoted(const Twine &text) {
    std::string out;
    raw_string_ostream(out) << json::Value(text.str());
    return out;
  }

  void name(int64_t process, int thread, StringRef kind, const Twine &text) {
    item() << "{\"ph\":\"M\",\"pid\":" << process << ",\"tid\":" << thread
           << ",\"name\":\"" << kind << "\",\"args\":{\"name\":" << quoted(text)
           << "}}";
  }

  void slice(int64_t process, int thread, const std::string &quotedName,
             StringRef category, double start, double finish) {
    item() << "{\"ph\":\"X\",\"pid\":" << process << ",\"tid\":" << thread
           << ",\"name\":" << quotedName << ",\"cat\":\"" << category << "\""
           << format(",\"ts\":%.6f,\"dur\":%.6f}", start * 1e6,
                     (finish - start) * 1e6);
  }

  /// What a span does: an exchange inside functions has the layer's own name.
  static std::string nameOf(const SimulatedSpan &span,
                            const SimulatedRole &role) {
    const bool isForward = span.activity == Activity::ExchangeForward;
    if (span.layer < 0 ||
        (!isForward && span.activity != Activity::ExchangeBackward))
      return activityName(span.activity).str();
    const SimulatedLayer &layer = role.layers[span.layer];
    const std::string &own =
        isForward ? layer.forwardExchange : layer.backwardExchange;
    return own.empty() ? activityName(span.activity).str() : own;
  }

  /// A process of one rank, or of all ranks of the role if `folded`.
  void process(const SimulatedActor &actor, int64_t id, bool folded) {
    const SimulatedRole &role = input.roles[actor.role];
    if (folded)
      name(id, 0, "process_name",
           "stage " + Twine(actor.role) + ", ranks " +
               Twine(role.devices.front()) + " to " +
               Twine(role.devices.back()));
    else
      name(id, 0, "process_name",
           "rank " + Twine(id) + " (stage " + Twine(actor.role) + ")");
    name(id, kTaskThread, "thread_name", "tasks");
    // Posted operations have no spans; nor have copies, but beside devices with
    // memory of their own.
    Stream end = input.program.swapsOnStreams ? Stream::Posted : Stream::CopyIn;
    for (size_t s = 0; s < static_cast<size_t>(end); ++s)
      name(id, threadOf(static_cast<Stream>(s)), "thread_name",
           streamName(static_cast<Stream>(s)));

    for (const SimulatedTask &task :
         simulatedTasks(input, actor, /*withCollectives=*/false))
      if (task.finish > task.start)
        slice(id, kTaskThread, quoted(task.task.str()), "task", task.start,
              task.finish);

    for (const SimulatedSpan &span : actor.spans) {
      if (span.finish <= span.start)
        continue;
      std::string text = nameOf(span, role);
      if (span.layer >= 0)
        text += " " + role.layers[span.layer].name;
      if (span.microBatch >= 0)
        text += " mb " + std::to_string(span.microBatch);
      slice(id, threadOf(span.stream), quoted(text), streamName(span.stream),
            span.start, span.finish);
    }
    int64_t states =
        role.ledger.total() - role.ledger.activations - role.ledger.backward;
    auto counter = [&](double time, int64_t activations, int64_t temporaries) {
      item() << "{\"ph\":\"C\",\"pid\":" << id << ",\"name\":\"memory\""
             << format(",\"ts\":%.6f", time * 1e6)
             << ",\"args\":{\"states\":" << states
             << ",\"activations\":" << activations
             << ",\"temporaries\":" << temporaries << "}}";
    };
    counter(0, 0, 0);
    for (const MemoryPoint &point : actor.memory)
      counter(point.time, point.activations, point.temporaries);
  }

  raw_ostream &os;
  const SimulationInput &input;
  const Simulation &simulation;
  bool first = true;
};

} // namespace

void writeTrace(raw_ostream &os, const SimulationInput &input,
                const Simulation &simulation, size_t mostEvents) {
  TraceWriter(os, input, simulation).write(mostEvents);
}

} // namespace galvatron
