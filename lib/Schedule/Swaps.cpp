//===- Swaps.cpp - Chunks that come and go --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// If the home of all states is the host, a device has the parameters of the
// chunks that run, and the gradients that they add up. One walk over a role's
// tasks finds what is not there when it is needed. All that happens once a step
// (sums over ranks, norm, update, ties) is done at home: at the end of the
// step, or for chunks that are updated just in time as soon as their gradients
// are there. Nothing reads their parameters after that until the next step. A
// chunk that is updated on the device keeps its gradients there: its optimizer
// state comes for that, and goes home with the new parameters.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
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
        places(static_cast<size_t>(program.residentChunks)),
        keepsSlots(program.slotsAtHome && !program.hasPacks &&
                   part == SchedulePart::Steady) {
    for (size_t i = 0; i < tasks.size(); ++i)
      if (addsGradients(tasks[i]))
        lastBackward[tasks[i].chunk] = i;
  }

  std::vector<Task> run() {
    for (size_t i = 0; i < tasks.size(); ++i) {
      const Task &task = tasks[i];
      if (task.computes()) {
        bring(task);
        if (program.bringsAhead)
          bringNext(i);
      }
      if (addsGradients(task) && away.erase({task.chunk, task.microBatch}))
        swapSlot(task, /*out=*/false);
      result.push_back(task);
      if (task.kind == TaskKind::Forward && keepsSlots && !isUsedNext(i)) {
        away.insert({task.chunk, task.microBatch});
        swapSlot(task, /*out=*/true);
      }
      if (addsGradients(task) && lastBackward[task.chunk] == i) {
        Place &place = placeOf(task.chunk);
        if (program.updatesOnDevice(task.chunk))
          place.hasSum = false;
        sendHome(place);
        if (program.updatesBehind(task.chunk))
          complete.insert(task.chunk);
      }
      updateComplete(i + 1);
    }
    return std::move(result);
  }

private:
  /// Updates chunks whose gradients are complete, at home or on the device.
  /// Others do not wait for it: the gradient of the chunk's input is sent
  /// before.
  void updateComplete(size_t next) {
    if (next < tasks.size() && tasks[next].kind == TaskKind::Transfer)
      return;
    for (uint16_t chunk : std::exchange(complete, {})) {
      bool here = program.updatesOnDevice(chunk);
      ofChunk(TaskKind::SyncGradients, chunk);
      if (here)
        swap(chunk, SwapOptimizer, /*out=*/false);
      ofChunk(TaskKind::Update, chunk);
      if (here)
        swap(chunk, SwapParameters | SwapOptimizer, /*out=*/true);
    }
  }

  void ofChunk(TaskKind kind, uint16_t chunk) {
    Task task;
    task.kind = kind;
    task.chunk = chunk;
    result.push_back(std::move(task));
  }

  /// True for backward passes, and for both parts of one that is split.
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

  /// Swaps what a forward pass keeps, or its backward pass needs.
  void swapSlot(const Task &pass, bool out) {
    swap(pass.chunk, SwapActivations, out);
    result.back().slot = pass.slot;
    result.back().microBatch = pass.microBatch;
  }

  /// True if the next use of a slot is the backward pass of this forward task.
  bool isUsedNext(size_t forward) const {
    for (const Task &task : drop_begin(tasks, forward + 1)) {
      if (task.computes())
        return addsGradients(task) && task.chunk == tasks[forward].chunk &&
               task.microBatch == tasks[forward].microBatch;
      if (task.part(TransferDirection::Receive, TransferValue::Activation))
        return false;
    }
    return true;
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

  /// The first task that runs another chunk than this one: what it needs comes
  /// beside this one, if there is a place for it.
  void bringNext(size_t now) {
    for (const Task &task : drop_begin(tasks, now + 1)) {
      if (!task.computes() || task.chunk == tasks[now].chunk)
        continue;
      if (&placeOf(task.chunk) != &placeOf(tasks[now].chunk))
        bring(task);
      return;
    }
  }

  const TaskProgram &program;
  const std::vector<Task> &tasks;
  std::vector<Place> places;
  bool keepsSlots; ///< forward passes keep what goes home
  /// Chunks and micro-batches that are on the host.
  std::set<std::pair<uint16_t, uint32_t>> away;
  std::map<uint16_t, size_t> lastBackward;
  std::set<uint16_t> begunSums;
  std::set<uint16_t> complete; ///< gradients, of chunks to be updated
  std::vector<Task> result;
};

} // namespace

static constexpr StringLiteral kJustInTime = "just-in-time",
                               kActivations = "activations",
                               kPrefetch = "prefetch",
                               kUpdateOnDevice = "update-on-device";

std::string offloadName(Offload offload) {
  std::string name;
  switch (offload.states) {
  case Offload::States::None:
    return "off";
  case Offload::States::Optimizer:
    name = "optimizer";
    break;
  case Offload::States::All:
    name = "all";
    break;
  case Offload::States::Layers:
    name = "layers";
    break;
  }
  if (offload.activations)
    name += "," + kActivations.str();
  if (offload.justInTime)
    name += "," + kJustInTime.str();
  if (offload.prefetch)
    name += "," + kPrefetch.str();
  if (offload.updateOnDevice)
    name += "," + kUpdateOnDevice.str();
  return name;
}

Expected<Offload> parseOffload(StringRef text) {
  static constexpr StringLiteral expected =
      "expected 'off', 'layers', 'optimizer' or 'all', and with one of the "
      "latter three 'activations', with one of the latter two 'just-in-time', "
      "with 'all' also 'prefetch', and with 'all,just-in-time' also "
      "'update-on-device', as in 'all,activations'";
  SmallVector<StringRef> words;
  text.split(words, ',');
  Offload offload;
  static constexpr std::pair<StringLiteral, Offload::States> homes[] = {
      {"off", Offload::States::None},
      {"optimizer", Offload::States::Optimizer},
      {"all", Offload::States::All},
      {"layers", Offload::States::Layers}};
  bool given = false; // where states have their home
  for (StringRef word : words) {
    word = word.trim();
    bool *flag = word == kJustInTime       ? &offload.justInTime
                 : word == kActivations    ? &offload.activations
                 : word == kPrefetch       ? &offload.prefetch
                 : word == kUpdateOnDevice ? &offload.updateOnDevice
                                           : nullptr;
    if (flag && !*flag) {
      *flag = true;
      continue;
    }
    const auto *home =
        find_if(homes, [&](const auto &one) { return one.first == word; });
    bool known = home != std::end(homes);
    if (!known || given)
      return makeError(
          (known || flag ? "two of a kind in offload '" : "unknown offload '") +
          text + "', " + expected);
    given = true;
    offload.states = home->second;
  }
  if ((offload.justInTime || offload.activations || offload.prefetch ||
       offload.updateOnDevice) &&
      offload.states == Offload::States::None)
    return makeError("offload '" + text +
                     "' is for states with their home on the host, and there "
                     "are none: " +
                     expected);
  if (offload.justInTime && offload.byLayer())
    return makeError("offload '" + text +
                     "': chunks are updated just in time where all of their "
                     "layers have the same home, " +
                     expected);
  if (offload.prefetch && offload.states != Offload::States::All)
    return makeError("offload '" + text +
                     "': parameters are brought ahead where they come chunk by "
                     "chunk, " +
                     expected);
  if (offload.updateOnDevice &&
      (offload.states != Offload::States::All || !offload.justInTime))
    return makeError("offload '" + text +
                     "': states come to the devices for an update chunk by "
                     "chunk, just in time, " +
                     expected);
  return offload;
}

std::vector<Offload> comparedOffloads() {
  std::vector<Offload> list{Offload::Off};
  for (Offload states : {Offload::Layers, Offload::Optimizer, Offload::All})
    for (bool activations : {false, true}) {
      list.push_back(states);
      list.back().activations = activations;
    }
  return list;
}

int64_t Offload::residentChunks(int64_t chunks) const {
  switch (states) {
  case States::None:
    return 0;
  case States::Optimizer:
  case States::Layers:
    return chunks;
  case States::All:
    return prefetch ? std::min<int64_t>(2, chunks) : 1;
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
