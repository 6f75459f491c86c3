//===- Swaps.cpp - Chunks that come and go --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where the home of all states is the host, a device has the parameters of the
// chunks that run, and the gradients that they add up. One walk over a role's
// tasks finds what is not there when it is needed. All that happens once a step
// (sums over ranks, norm, update, ties) is done at home.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Units.h"

#include "llvm/Support/ErrorHandling.h"

#include <cassert>
#include <map>
#include <set>

using namespace llvm;

namespace galvatron {
namespace {

class SwapInserter {
public:
  SwapInserter(const TaskProgram &program, int64_t role, SchedulePart part)
      : program(program), tasks(program.roles[role].part(part)),
        places(static_cast<size_t>(program.residentChunks)) {
    for (size_t i = 0; i < tasks.size(); ++i)
      if (addsGradients(tasks[i]))
        lastBackward[tasks[i].chunk] = i;
  }

  std::vector<Task> run() {
    for (size_t i = 0; i < tasks.size(); ++i) {
      const Task &task = tasks[i];
      if (task.computes())
        bring(task);
      result.push_back(task);
      if (addsGradients(task) && lastBackward[task.chunk] == i)
        sendHome(placeOf(task.chunk));
    }
    return std::move(result);
  }

private:
  /// Both parts of a backward pass that is split do.
  static bool addsGradients(const Task &task) {
    return task.computes() && task.kind != TaskKind::Forward;
  }

  struct Place {
    int64_t chunk = -1;
    bool hasSum = false; ///< of gradients, that home does not have
  };

  Place &placeOf(uint16_t chunk) {
    return places[static_cast<size_t>(program.residencyOf(chunk))];
  }

  void swap(uint16_t chunk, unsigned classes, bool out) {
    Task task;
    task.kind = TaskKind::Swap;
    task.chunk = chunk;
    task.classes = static_cast<uint8_t>(classes);
    task.out = out;
    result.push_back(std::move(task));
  }

  void sendHome(Place &place) {
    if (std::exchange(place.hasSum, false))
      swap(static_cast<uint16_t>(place.chunk), SwapGradients, /*out=*/true);
  }

  void bring(const Task &task) {
    Place &place = placeOf(task.chunk);
    unsigned classes = 0;
    if (place.chunk != task.chunk) {
      sendHome(place);
      place.chunk = task.chunk;
      classes |= SwapParameters;
    }
    if (addsGradients(task)) {
      // The first one writes the sum, others add to it.
      bool begun = !begunSums.insert(task.chunk).second;
      if (begun && !place.hasSum)
        classes |= SwapGradients;
      place.hasSum = true;
    }
    if (classes)
      swap(task.chunk, classes, /*out=*/false);
  }

  const TaskProgram &program;
  const std::vector<Task> &tasks;
  std::vector<Place> places;
  std::map<uint16_t, size_t> lastBackward;
  std::set<uint16_t> begunSums;
  std::vector<Task> result;
};

} // namespace

static constexpr std::pair<Offload, StringLiteral> kOffloads[] = {
    {Offload::Off, "off"},
    {Offload::Optimizer, "optimizer"},
    {Offload::All, "all"}};

StringRef offloadName(Offload offload) {
  return kOffloads[static_cast<size_t>(offload)].second;
}

Expected<Offload> parseOffload(StringRef text) {
  if (text == "activations")
    return makeError("offload 'activations' is not compiled yet, expected "
                     "'off', 'optimizer' or 'all'");
  for (auto [offload, name] : kOffloads)
    if (text == name)
      return offload;
  return makeError("unknown offload '" + text +
                   "', expected 'off', 'optimizer' or 'all'");
}

int64_t residentChunks(Offload offload, int64_t chunks) {
  switch (offload) {
  case Offload::Off:
    return 0;
  case Offload::Optimizer:
    return chunks;
  case Offload::All:
    return 1;
  }
  llvm_unreachable("all kinds are handled");
}

void insertSwaps(TaskProgram &program, int64_t residentChunks) {
  assert(residentChunks > 0 && !program.goesOn());
  program.residentChunks = residentChunks;
  for (size_t role = 0; role < program.roles.size(); ++role)
    for (SchedulePart part : {SchedulePart::Steady, SchedulePart::Evaluate}) {
      auto number = static_cast<int64_t>(role);
      program.roles[role].part(part) =
          SwapInserter(program, number, part).run();
    }
}

} // namespace galvatron
