//===- session_figures.cpp - What a session says of itself ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "session/session_implementation.h"

namespace grt {

TraceReport Session::Implementation::report() {
  if (local->recorders.empty())
    invalid("the session was made without a trace");
  runAll([](Rank &rank) { rank.finishRecording(); });
  std::vector<RankRecording> recordings;
  for (size_t i = 0; i < local->ranks.size(); ++i)
    recordings.push_back({local->recorders[i].get(),
                          local->ranks[i]->roleIndex(),
                          local->ranks[i]->role().arenaBytes});
  return TraceReport(*program, std::move(recordings));
}

Status Session::record(bool on) {
  return guarded([&] {
    if (impl->local->recorders.empty())
      invalid("the session was made without a trace");
    impl->set.recorded = on;
  });
}

void Session::measureWaits(bool on) { impl->set.measuresWaits = on; }

void Session::forgetRecorded() {
  for (const std::unique_ptr<Recorder> &recorder : impl->local->recorders)
    recorder->clear();
}

Status Session::timeShares(TimeShares &measured, TimeShares &predicted) const {
  return guarded([&] {
    TraceReport report = impl->report();
    measured = report.measured();
    if (!report.predicted(predicted))
      predicted = TimeShares();
  });
}

Status Session::layerSeconds(std::vector<LayerSeconds> &result) const {
  return guarded([&] { result = impl->report().layerSeconds(); });
}

Status Session::stepPicture(size_t mostRanks, StepPicture &picture) const {
  return guarded([&] { picture = impl->report().picture(mostRanks); });
}

Status Session::writeTrace(const std::string &path) const {
  return guarded([&] { impl->report().write(path); });
}

std::string Session::kernelChoices() const {
  const char *choices =
      impl->backend->choices ? impl->backend->choices() : nullptr;
  return choices ? choices : "";
}

int Session::graphsPerStep() const {
  return impl->local->ranks[0]->graphsPerStep();
}

std::string Session::whyNotOneGraph() const {
  return impl->local->ranks[0]->whyNotOneGraph();
}

const std::vector<std::string> &Session::notes() const { return impl->notes; }

std::string Session::collectivesLibrary() const {
  return impl->local->ranks[0]->collectivesLibrary();
}

std::string Session::flightNote() const { return impl->flight->note(); }

std::vector<RankWork> Session::takeWork(const DeviceClock &clock) {
  return impl->gatherFigures<RankWork>(MessageKind::RankWork, [&](Rank &rank) {
    return RankWork{rank.globalRank(), rank.role().stage, rank.takeWaits(),
                    clock};
  });
}

std::vector<RankMemory> Session::memory(bool everywhere) {
  if (everywhere && !impl->isAlone())
    if (std::vector<RankMemory> all = impl->gatherFigures<RankMemory>(
            MessageKind::RankMemory,
            [](Rank &rank) { return rank.memoryUse(); });
        !all.empty())
      return all;
  // Ranks may be at work: what they had behind their last command. Of a run of
  // several processes that failed, this one's are all that can be known.
  return impl->threads->memories();
}

std::vector<RankSwaps> Session::swaps() {
  std::vector<RankSwaps> all(impl->local->ranks.size());
  if (!guarded([&] {
        impl->runAll([&](Rank &rank) {
          all[size_t(rank.globalRank() - impl->world.firstLocal())] =
              rank.swapped();
        });
      }))
    all.clear();
  return all;
}

} // namespace grt
