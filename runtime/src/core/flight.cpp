//===- flight.cpp - What ranks did last -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/flight.h"
#include "base/error.h"
#include "base/files.h"
#include "core/program_text.h"
#include "core/trace_report.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace grt {
namespace {

using Json = nlohmann::ordered_json;

/// What a file may have; ranks keep fewer operations where there are many.
constexpr size_t mostFlightBytes = size_t(16) << 20;
constexpr size_t operationBytes = 320; ///< about, as text
constexpr size_t leastOperations = 8;

Json describe(const RankCollectives &rank) {
  Json all = Json::array();
  for (const CommunicatorState &state : rank.communicators) {
    Json open = Json::array();
    for (const CollectiveCall &call : state.calls)
      if (call.number > state.done)
        open.push_back({{"number", call.number},
                        {"collective", collectiveName(call.kind)},
                        {"bytes", call.bytes},
                        {"stream", streamName(call.stream)},
                        {"in-graph", call.inGraph}});
    all.push_back({{"name", state.name},
                   {"of", rankNames(state.members.ranks())},
                   {"enqueued", state.enqueued},
                   {"started", state.started},
                   {"done", state.done},
                   {"not-done", open}});
  }
  return all;
}

Json describe(const RankFlight &rank, size_t mostOperations) {
  const Activity &activity = *rank.activity;
  Json operations = Json::array();
  std::vector<Activity::Operation> last = activity.lastOperations();
  if (last.size() > mostOperations)
    last.erase(last.begin(), last.end() - ptrdiff_t(mostOperations));
  for (const Activity::Operation &operation : last) {
    bool known = activity.deviceDid(operation.stream, operation.number);
    operations.push_back(
        {{"number", operation.number},
         {"step", operation.step},
         {"task", operation.task
                      ? Json(taskText(*operation.task, rank.transfers))
                      : Json()},
         {"layer", operation.layer ? Json(operation.layer) : Json()},
         {"operation", operation.what ? operation.what : ""},
         {"name", operation.name ? Json(operation.name) : Json()},
         {"stream", streamName(operation.stream)},
         {"state", !operation.left ? "running"
                   : known         ? "done"
                                   : "enqueued"}});
  }
  return {{"rank", activity.rank},
          {"stands-at", activity.describe()},
          {"communicators", describe(activity.calledCollectives())},
          {"operations", operations}};
}

} // namespace

std::vector<CollectiveFinding> compared(std::span<const RankFlight> ranks,
                                        Absent absent) {
  std::vector<RankCollectives> called;
  for (const RankFlight &rank : ranks)
    called.push_back(rank.activity->calledCollectives());
  return compareCollectives(called, absent);
}

std::string flightText(const std::string &reason,
                       std::span<const RankFlight> ranks, Absent absent) {
  Json all = Json::array(), findings = Json::array();
  size_t each =
      mostFlightBytes / operationBytes / std::max<size_t>(1, ranks.size());
  for (const RankFlight &rank : ranks)
    all.push_back(describe(rank, std::max(leastOperations, each)));
  for (const CollectiveFinding &finding : compared(ranks, absent))
    findings.push_back(finding.text);
  return Json({{"reason", reason}, {"collectives", findings}, {"ranks", all}})
             .dump(1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

struct FlightFile::State {
  std::string path;
  std::mutex mutex; ///< of what follows
  std::condition_variable changed;
  bool done = false;
  std::string note;
};

void FlightFile::write(std::string path, std::string text) {
  state = std::make_shared<State>();
  state->path = std::move(path);
  auto body = [state = state, text = std::move(text)] {
    // The failure itself is what has to be told, whatever comes of this.
    Status written = guarded([&] {
      AtomicFile file(state->path);
      file.write(text);
      file.commit();
    });
    std::lock_guard<std::mutex> lock(state->mutex);
    state->note =
        written
            ? "the last operations of the ranks are in '" + state->path + "'"
            : "the last operations of the ranks are lost: " + written.message();
    state->done = true;
    state->changed.notify_all();
  };
  try {
    std::thread(body).detach();
  } catch (const std::system_error &) {
    body();
  }
}

bool FlightFile::await(std::chrono::milliseconds longest) const {
  if (!state)
    return true;
  std::unique_lock<std::mutex> lock(state->mutex);
  return state->changed.wait_for(lock, longest, [&] { return state->done; });
}

std::string FlightFile::note() const {
  if (!state)
    return "";
  std::lock_guard<std::mutex> lock(state->mutex);
  return state->done ? state->note
                     : "the last operations of the ranks are still being "
                       "written to '" +
                           state->path + "'";
}

} // namespace grt
