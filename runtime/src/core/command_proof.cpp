//===- command_proof.cpp - The proof of a program's commands --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The procedures of a chunk are followed as a micro-batch goes through it:
// what arrives, forward, what leaves, what arrives, backward, what leaves, and
// then what is done once a step. Known at each command are the bytes that live
// and those that something has written, of slot 0: one micro-batch stands for
// all, since a place that is in slots moves with the slot, and no other.
//
//===----------------------------------------------------------------------===//

#include "core/command_proof.h"
#include "base/error.h"
#include "core/byte_set.h"
#include "core/commands.h"
#include "core/layout.h"
#include "core/program_text.h"
#include "core/sums_proof.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace grt {
namespace {

using gvx::CommandKind;
using gvx::When;

std::string textOf(const Extent &extent) {
  return "[" + str(extent.offset) + ", " + str(extent.offset + extent.bytes) +
         ")";
}

/// Follows the procedures of a chunk.
class ChunkProof {
public:
  ChunkProof(const Manifest &manifest, const ProgramFile &program,
             size_t number, const Chunk &chunk)
      : manifest(manifest), program(program), role(manifest.roles[number]),
        rows(program.ofRole(number)), chunk(chunk), done(chunk.layerCount) {}

  /// What is wrong, with the command that it is about.
  std::string run() {
    if (const auto *stash = swapOf(GRT_SWAP_ACTIVATIONS, GRT_TO_DEVICE))
      follow(*stash);
    receive(GRT_ACTIVATION);
    pass({GRT_TASK_FORWARD});
    send(GRT_ACTIVATION);
    send(GRT_STASH);
    if (!chunk.forwardOnly) {
      receive(GRT_GRADIENT);
      if (has(GRT_TASK_BACKWARD))
        pass({GRT_TASK_BACKWARD});
      else
        pass({GRT_TASK_BACKWARD_INPUT, GRT_TASK_BACKWARD_WEIGHT});
      send(GRT_GRADIENT);
    }
    endStep();
    for (const gvx::Procedure &row : rows.procedures)
      if (row.chunk == chunk.number && gvx::isProcedure(row.task) &&
          std::ranges::find(followed, &row) == followed.end())
        follow(row);
    where = "chunk " + str(chunk.number);
    if (!live.isEmpty())
      refuse("expected everything to have ended, found byte " +
             str(live.first()) + " of the arena live");
    return wrong;
  }

private:
  void refuse(const std::string &what) {
    if (wrong.empty())
      wrong = (command ? commandName() : where) + ": " + what;
  }
  /// Made where something is wrong: programs have many commands.
  std::string commandName() const {
    return procedureName(*running) + ", command " +
           str(command - program.commands(*running).data()) + " (" +
           grt::textOf(*command, rows.places) + ")";
  }

  //===--------------------------------------------------------------------===//
  // Procedures
  //===--------------------------------------------------------------------===//

  const gvx::Procedure *find(uint8_t task) const {
    for (const gvx::Procedure &row : rows.procedures)
      if (row.chunk == chunk.number && row.task == task)
        return &row;
    return nullptr;
  }
  bool has(uint8_t task) const { return find(task); }
  const gvx::Procedure *swapOf(uint8_t classes, uint8_t tiers) const {
    for (const gvx::Procedure &row : rows.procedures)
      if (row.chunk == chunk.number && row.task == GRT_TASK_SWAP &&
          (row.classes & classes) && row.tiers == tiers)
        return &row;
    return nullptr;
  }

  /// The procedures of tasks that make one pass.
  void pass(std::initializer_list<uint8_t> tasks) {
    const bool isForward = *tasks.begin() == GRT_TASK_FORWARD;
    for (uint8_t task : tasks)
      if (const gvx::Procedure *row = find(task))
        follow(*row);
    where = isForward ? "forward" : "backward";
    where += " of chunk " + str(chunk.number);
    for (size_t i = 0; i < done.size(); ++i)
      checkPass(role.layers[chunk.firstLayer + i], done[i], isForward,
                tasks.size() > 1);
  }

  /// What is done once a step: sums, updates, and what moves for them.
  void endStep() {
    // Sums behind passes are for steps that do not run these.
    for (Done &each : done)
      each.sums = 0;
    auto swaps = [&](uint8_t classes, uint8_t tiers) {
      for (const gvx::Procedure &row : rows.procedures)
        if (row.chunk == chunk.number && row.task == GRT_TASK_SWAP &&
            row.tiers == tiers && (row.classes & classes))
          follow(row);
    };
    const bool updates = has(GRT_TASK_UPDATE);
    if (updates)
      swaps(GRT_SWAP_OPTIMIZER, GRT_TO_DEVICE);
    if (const gvx::Procedure *row = find(GRT_TASK_SYNC_GRADIENTS)) {
      follow(*row);
      for (size_t i = 0; i < done.size(); ++i)
        if (done[i].sums != 1)
          refuse("expected one sum of the gradients of layer '" +
                 role.layers[chunk.firstLayer + i].name + "', found " +
                 str(done[i].sums));
    }
    swaps(GRT_SWAP_GRADIENTS, GRT_TO_HOST);
    if (updates) {
      follow(*find(GRT_TASK_UPDATE));
      for (size_t i = 0; i < done.size(); ++i)
        checkUpdate(chunk.firstLayer + i, done[i]);
      for (const gvx::Procedure &row : rows.procedures)
        if (row.chunk == chunk.number && row.task == GRT_TASK_SWAP &&
            row.tiers == GRT_TO_HOST && (row.classes & GRT_SWAP_OPTIMIZER))
          follow(row);
    }
  }

  void follow(const gvx::Procedure &procedure) {
    followed.push_back(&procedure);
    running = &procedure;
    slotsSwapped = 0;
    for (Done &each : done)
      each.swapped = 0;
    task = procedure.task;
    usedSlot = usedEnd = awaitedHome = false;
    calls = 0;
    lastCalled.reset();
    buffers.clear();
    for (Done &each : done)
      each.gathering = each.gathered = false;
    const std::span<const gvx::Command> commands = program.commands(procedure);
    for (const gvx::Command &row : commands) {
      if (!wrong.empty())
        break;
      command = &row;
      follow(row);
    }
    command = nullptr;
    where = procedureName(procedure);
    if (isPass() && calls && !usedEnd)
      refuse("expected 'used' behind its functions");
    if (task == GRT_TASK_SWAP)
      checkSwaps();
  }
  bool isPass() const {
    return task == GRT_TASK_FORWARD || task == GRT_TASK_BACKWARD ||
           task == GRT_TASK_BACKWARD_INPUT || task == GRT_TASK_BACKWARD_WEIGHT;
  }

  //===--------------------------------------------------------------------===//
  // Commands
  //===--------------------------------------------------------------------===//

  /// Where something in slot 0 is, which moves with the slot; what does not is
  /// apart from it, wherever it is (checkArena).
  uint64_t inSlot(uint64_t offset) const {
    constexpr uint64_t slots = uint64_t(1) << 62;
    return offset + (role.slotsInArena() > 1 ? slots : 0);
  }
  uint64_t keptAt(const Layer &layer) const {
    const uint64_t offset = role.keptOffset(layer, 0);
    return layer.keptAway ? offset : inSlot(offset);
  }
  Extent at(uint32_t number) {
    if (number == 0)
      return {};
    const gvx::Place &place = rows.places[number - 1];
    // Messages of packs wait in places, which every chunk counts in its own
    // size from the end of the region on.
    const int64_t waiting =
        manifest.hasPacks ? -int64_t(chunk.waitingBytes) : 0;
    if (place.perPart || (place.perPlace && place.perPlace != waiting))
      refuse("expected a place that moves with no part, and by " +
             str(waiting) + " from place to place of messages, found " +
             str(place.perPart) + " and " + str(place.perPlace));
    if (role.slotsInArena() == 1 || place.perSlot == 0)
      return {place.offset, place.bytes};
    if (place.perSlot != int64_t(role.slotStride))
      refuse("expected a place that moves by " + str(role.slotStride) +
             " from slot to slot, found " + str(place.perSlot));
    return {inSlot(place.offset), place.bytes};
  }

  void follow(const gvx::Command &row) {
    if (row.when != When::Always && !mayDepend(row))
      return refuse("expected it for all tasks and ranks");
    switch (row.kind) {
    case CommandKind::Call:
      return call(row);
    case CommandKind::Gather:
      return gather(row);
    case CommandKind::Order:
      if (row.stream == GRT_STREAM_COMPUTE && row.number == GRT_STREAM_GATHER)
        for (Done &each : done)
          each.gathered |= each.gathering;
      return;
    case CommandKind::Collect:
      ++layer(row).collects;
      if (!layer(row).updates)
        refuse("expected the layer's update before it");
      return;
    case CommandKind::Sum:
      return sum(row);
    case CommandKind::AwaitHome:
      awaitedHome = true;
      return;
    case CommandKind::Begin:
      if (!isTensor(at(row.to)))
        return refuse("begins " + textOf(at(row.to)) +
                      ", which is none of the chunk's tensors");
      return begin(at(row.to));
    case CommandKind::End:
      return end(at(row.to));
    case CommandKind::Copy:
    case CommandKind::Add:
      return copy(row);
    case CommandKind::Reshard:
      useBuffersOf(row);
      read(at(row.from));
      return write(at(row.to));
    case CommandKind::UseSlot:
      usedSlot = true;
      return;
    case CommandKind::UseBuffer:
      buffers.push_back({row.number, at(row.to)});
      return;
    case CommandKind::Used:
      usedEnd = true;
      return;
    case CommandKind::Mark:
      return begun.clear();
    case CommandKind::Rewind:
      return rewind();
    case CommandKind::SwapIn:
    case CommandKind::SwapOut:
      return swap(row);
    case CommandKind::SwapSlot:
      return swapSlot(row);
    default:
      return;
    }
  }

  /// Whether a command may be for some tasks or some ranks only.
  bool mayDepend(const gvx::Command &row) const {
    switch (row.when) {
    case When::First:
      return row.kind == CommandKind::Begin &&
             isGradients(rows.places[row.to - 1]);
    case When::SumsBehind:
      return row.kind == CommandKind::Sum;
    case When::OnHost:
      return row.kind == CommandKind::AwaitTied;
    case When::LeftOut:
    case When::LastLoss:
      return gvx::isOfEnd(row.kind); // they are what they must be
    default:
      return row.when == When::OncePerGroup && row.kind == CommandKind::Call &&
             row.phase == LayerPhase::Norm &&
             role.layers[size_t(row.layer)].replicated;
    }
  }

  /// True if bytes are those of values between two layers, or of states that
  /// live on the device for a task. Others would reach into what lies beside
  /// these.
  bool isTensor(const Extent &extent) const {
    for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i) {
      const Layer &layer = role.layers[i];
      const uint64_t output = outputBytes(manifest, role, i);
      const ResidentStates states = residentStates(manifest, layer);
      for (const Extent &own :
           {Extent{keptAt(layer), layer.inputBytes},
            boundaryExtent(role, layer.outputBuffer, output),
            boundaryExtent(role, layer.gradIn, output),
            boundaryExtent(role, layer.gradOut, layer.frontBytes),
            states.parameters, states.gradients, states.optimizer})
        if (own.offset == extent.offset && own.bytes == extent.bytes)
          return true;
    }
    return extent.bytes == 0;
  }

  /// True if a place is that of a layer's gradients, which live from the first
  /// micro-batch on.
  bool isGradients(const gvx::Place &place) const {
    for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i) {
      const Extent own = residentStates(manifest, role.layers[i]).gradients;
      if (own.offset == place.offset && own.bytes == place.bytes)
        return true;
    }
    return false;
  }

  void begin(const Extent &extent) {
    if (live.meets(extent.offset, extent.offset + extent.bytes))
      refuse("begins " + textOf(extent) + ", a part of which lives");
    live.add(extent.offset, extent.offset + extent.bytes);
    begun.push_back(extent);
    written.remove(extent.offset, extent.offset + extent.bytes);
  }
  void end(const Extent &extent) {
    if (!live.has(extent.offset, extent.offset + extent.bytes))
      refuse("ends " + textOf(extent) + ", which does not live");
    live.remove(extent.offset, extent.offset + extent.bytes);
    written.remove(extent.offset, extent.offset + extent.bytes);
  }
  void read(const Extent &extent) {
    if (!written.has(extent.offset, extent.offset + extent.bytes))
      refuse("reads " + textOf(extent) + ", which nothing has written");
  }
  void write(const Extent &extent) {
    if (!live.has(extent.offset, extent.offset + extent.bytes))
      refuse("writes " + textOf(extent) + ", which does not live");
    written.add(extent.offset, extent.offset + extent.bytes);
  }
  /// Ends what was begun since the mark.
  void rewind() {
    for (const Extent &extent : begun) {
      live.remove(extent.offset, extent.offset + extent.bytes);
      written.remove(extent.offset, extent.offset + extent.bytes);
    }
    begun.clear();
  }

  void copy(const gvx::Command &row) {
    if (task == GRT_TASK_UPDATE)
      return keep(row);
    const Extent from = at(row.from), to = at(row.to);
    read(from);
    if (row.kind == CommandKind::Add)
      read(to);
    write(to);
    // What waits is taken before anything is run.
    if (calls == 0 && manifest.hasPacks)
      return;
    if (!lastCalled || !passes(*lastCalled, row.kind, from, to))
      return refuse("expected a tensor that passes the layer before it");
    ++done[*lastCalled - chunk.firstLayer].passed;
  }
  /// Copies of parameters are no values of a micro-batch.
  void keep(const gvx::Command &row) {
    const Extent from = at(row.from), to = at(row.to);
    for (size_t i = 0; i < done.size(); ++i) {
      const Extent newest{role.layers[chunk.firstLayer + i].parameter,
                          residentBytes(chunk.firstLayer + i)};
      if (row.kind == CommandKind::Copy && newest.offset == from.offset &&
          newest.bytes == from.bytes &&
          to.offset == from.offset + manifest.versionStride(role) &&
          !done[i].updates)
        ++done[i].kept;
    }
  }
  /// Whether bytes are those of a tensor that passes a layer: forward from the
  /// slot to what is behind the layer, backward from there to its front.
  bool passes(size_t number, CommandKind kind, const Extent &from,
              const Extent &to) const {
    const Layer &layer = role.layers[number];
    const uint64_t bytes = outputBytes(manifest, role, number);
    const bool isForward = task == GRT_TASK_FORWARD;
    const Extent behind = boundaryExtent(
        role, isForward ? layer.outputBuffer : layer.gradIn, bytes);
    const Extent front = boundaryExtent(role, layer.gradOut, layer.frontBytes);
    return std::ranges::any_of(layer.passes, [&](const PassingTensor &each) {
      const bool adds = kind == CommandKind::Add;
      const uint64_t source = isForward ? inSlot(role.slots.offset + each.slot)
                                        : behind.offset + each.behind;
      const uint64_t destination =
          isForward ? behind.offset + each.behind : front.offset + each.front;
      return adds == (!isForward && each.used) && from.offset == source &&
             to.offset == destination && to.bytes == each.bytes;
    });
  }
  uint64_t residentBytes(size_t number) const {
    return residentStates(manifest, role.layers[number]).parameters.bytes;
  }

  //===--------------------------------------------------------------------===//
  // Swaps
  //===--------------------------------------------------------------------===//

  /// A place at home that moves so with the slots there, and with their parts.
  void expectHome(uint32_t number, uint64_t offset, uint64_t perPlace,
                  uint64_t perPart) {
    const gvx::Place &place = rows.places[number - 1];
    if (place.offset != offset || place.perSlot ||
        place.perPlace != int64_t(perPlace) ||
        place.perPart != int64_t(perPart))
      refuse("expected a place at home at " + str(offset) + ", " +
             str(perPlace) + " from slot to slot and " + str(perPart) +
             " from part to part, found it at " + str(place.offset) + ", " +
             str(place.perPlace) + " and " + str(place.perPart));
  }
  uint64_t homeSlot() const {
    return role.homeSlots.offset + chunk.firstSlot * role.homeSlotBytes;
  }

  void swap(const gvx::Command &row) {
    const Layer &of = role.layers[size_t(row.layer)];
    const bool out = row.kind == CommandKind::SwapOut;
    if (task != GRT_TASK_SWAP || out != (running->tiers == GRT_TO_HOST) ||
        row.stream != running->stream || !(running->classes & row.number))
      return refuse("expected a swap of the task's class, way and stream");
    if (row.number == GRT_SWAP_ACTIVATIONS) {
      ++slotsSwapped;
      if (chunk.recvStash < 0)
        return refuse("expected a chunk that recomputes from a stash");
      expectHome(row.from, homeSlot(), role.homeSlotBytes,
                 uint64_t(role.layers[chunk.firstLayer].samples) *
                     manifest.exchanges[size_t(chunk.recvStash)].bytesPerUnit);
      return write(at(row.to));
    }
    const ResidentStates states = residentStates(manifest, of);
    const auto [home, resident] =
        row.number == GRT_SWAP_PARAMETERS
            ? std::pair(of.parameter, states.parameters)
        : row.number == GRT_SWAP_GRADIENTS
            ? std::pair(of.gradient, states.gradients)
            : std::pair(of.optimizer, states.optimizer);
    expectHome(out ? row.to : row.from, home, 0, 0);
    const Extent here = at(out ? row.from : row.to);
    if (here.offset != resident.offset || here.bytes != resident.bytes)
      refuse("expected the layer's states at " + textOf(resident) + ", found " +
             textOf(here));
    int &swapped = layer(row).swapped;
    if (!of.isAway || (swapped & row.number))
      refuse("expected states once, which have their home on the host");
    swapped |= row.number;
  }

  Extent keptOfSlot() const {
    return role.hasOneSlot()
               ? Extent{role.slots.offset,
                        std::min(role.layers[chunk.endLayer() - 1].transient,
                                 role.slotBytes)}
               : role.awaySlot;
  }
  void swapSlot(const gvx::Command &row) {
    ++slotsSwapped;
    if (task != GRT_TASK_SWAP || running->classes != GRT_SWAP_ACTIVATIONS ||
        row.number != running->tiers || row.stream != running->stream)
      return refuse("expected the way and the stream of the task");
    expectHome(row.from, homeSlot(), role.homeSlotBytes, 0);
    const Extent here = at(row.to), kept = keptOfSlot();
    if (here.offset != kept.offset || here.bytes != kept.bytes)
      refuse("expected what a slot keeps at " + textOf(kept) + ", found " +
             textOf(here));
  }

  /// All that a swap is of has moved.
  void checkSwaps() {
    if (running->classes & GRT_SWAP_ACTIVATIONS) {
      const bool moves =
          manifest.hasPacks || (role.slotsAtHome && keptOfSlot().bytes);
      if (slotsSwapped != int(moves))
        refuse("expected " + str(int(moves)) + " swaps of a slot, found " +
               str(slotsSwapped));
      return;
    }
    for (size_t i = 0; i < done.size(); ++i) {
      const Layer &layer = role.layers[chunk.firstLayer + i];
      const ResidentStates states = residentStates(manifest, layer);
      int expected = 0;
      for (auto [of, extent] :
           {std::pair(GRT_SWAP_PARAMETERS, states.parameters),
            {GRT_SWAP_GRADIENTS, states.gradients},
            {GRT_SWAP_OPTIMIZER, states.optimizer}})
        if (layer.isAway && (running->classes & of) && extent.bytes)
          expected |= of;
      if (done[i].swapped != expected)
        refuse("expected swaps of classes " + str(expected) + " of layer '" +
               layer.name + "', found " + str(done[i].swapped));
    }
  }

  //===--------------------------------------------------------------------===//
  // Layers
  //===--------------------------------------------------------------------===//

  /// How often something was done with a layer.
  struct Done {
    std::array<int, layerPhaseCount> phases{};
    int sums = 0, collects = 0, kept = 0, updates = 0;
    int swapped = 0; ///< classes, by the running procedure
    int passed = 0;  ///< tensors that pass the layer, in forward or backward
    /// Its parameters are on their way; and COMPUTE has waited for them.
    bool gathering = false, gathered = false;
  };
  Done &layer(const gvx::Command &row) {
    return done[size_t(row.layer) - chunk.firstLayer];
  }
  int &count(const gvx::Command &row) {
    return layer(row).phases[size_t(row.phase)];
  }

  void checkPass(const Layer &layer, Done &of, bool isForward, bool inParts) {
    auto expect = [&](int function, LayerPhase phase) {
      const int times = function >= 0;
      if (of.phases[size_t(phase)] != times)
        refuse("expected function '" +
               (times ? manifest.functions[size_t(function)] : "none") +
               "' of layer '" + layer.name + "' " + str(times) +
               " times, found " + str(of.phases[size_t(phase)]));
    };
    const int passes = !isForward || layer.output == OutputKind::Boundary
                           ? int(layer.passes.size())
                           : 0;
    if (std::exchange(of.passed, 0) != passes)
      refuse("expected " + str(passes) + " tensors that pass layer '" +
             layer.name + "' to be copied or added once");
    if (isForward)
      return expect(layer.forward, LayerPhase::Forward);
    expect(layer.recompute, LayerPhase::Recompute);
    expect(layer.backward, LayerPhase::Backward);
    expect(inParts ? layer.weight : -1, LayerPhase::Weight);
    if (of.sums != 1)
      refuse("expected one sum of the gradients of layer '" + layer.name +
             "' behind its backward pass, found " + str(of.sums));
  }

  void checkUpdate(size_t number, const Done &of) {
    const Layer &layer = role.layers[number];
    const int gathers = layer.update >= 0 && layer.cutsStateOnly &&
                        layer.degree(GRT_AXIS_SDP) > 1 &&
                        layer.ownedElements() > 0;
    const int keeps = manifest.delay > 0 && residentBytes(number) > 0;
    const int squares = layer.updatesOnDevice && layer.norm >= 0;
    const struct {
      int expected, found;
      const char *what;
    } counts[] = {{layer.update >= 0, of.updates, "updates"},
                  {gathers, of.collects, "gathers of what its update makes"},
                  {keeps, of.kept, "copies of its older parameters"},
                  {squares, of.phases[size_t(LayerPhase::Norm)], "norms"}};
    for (const auto &[expected, found, what] : counts)
      if (expected != found)
        refuse("expected " + str(expected) + " " + what + " of layer '" +
               layer.name + "', found " + str(found));
  }

  const Gathered &gatheredOf(const gvx::Command &row) const {
    const Layer &layer = role.layers[size_t(row.layer)];
    return row.phase == LayerPhase::Forward ? layer.forwardGathered
                                            : layer.backwardGathered;
  }
  void gather(const gvx::Command &row) {
    const Gathered &full = gatheredOf(row);
    const Extent extent{inSlot(role.slots.offset + full.offset), full.bytes};
    begin(extent);
    write(extent);
    layer(row).gathering = true;
    layer(row).gathered = false;
  }

  void sum(const gvx::Command &row) {
    Done &of = layer(row);
    ++of.sums;
    const LayerPhase last = task == GRT_TASK_BACKWARD_WEIGHT
                                ? LayerPhase::Weight
                                : LayerPhase::Backward;
    if (isPass() != (row.when == When::SumsBehind))
      return refuse("expected sums of passes where they run behind these, and "
                    "only there");
    if (isPass() && !of.phases[size_t(last)] &&
        functionOf(role.layers[size_t(row.layer)], last) >= 0)
      refuse("expected the layer's backward pass before it");
    if (!isPass() && !awaitedHome &&
        !role.layers[chunk.firstLayer].updatesOnDevice)
      refuse("expected 'await home' before it");
  }

  void call(const gvx::Command &row) {
    ++calls;
    const size_t number = size_t(row.layer);
    const std::optional<size_t> before = std::exchange(lastCalled, number);
    const Layer &at = role.layers[number];
    Done &of = layer(row);
    if (count(row)++)
      return refuse("expected it once");
    if (isPass() && (!usedSlot || usedEnd))
      return refuse("expected it between 'use slot' and 'used'");
    const Gathered &full = gatheredOf(row);
    if (isPass() && row.phase != LayerPhase::Weight && full.bytes) {
      if (!of.gathered)
        return refuse("expected the gather of the layer's parameters before "
                      "it, and that it is waited for");
      read({inSlot(role.slots.offset + full.offset), full.bytes});
    }
    if (isPass())
      checkTemporaries(at, row.phase);
    switch (row.phase) {
    case LayerPhase::Forward:
      return callForward(number);
    case LayerPhase::Recompute:
      if (of.phases[size_t(LayerPhase::Backward)])
        refuse("expected it before the layer's backward function");
      return readInputs(number);
    case LayerPhase::Backward:
      if (at.recompute >= 0 &&
          (!of.phases[size_t(LayerPhase::Recompute)] || before != number))
        refuse("expected the layer's values to be made again before it");
      return callBackward(number);
    case LayerPhase::Weight:
      if (!of.phases[size_t(LayerPhase::Backward)])
        refuse("expected the layer's backward function before it");
      return readInputs(number);
    case LayerPhase::Norm:
      if (of.updates)
        refuse("expected it before the layer's update");
      return;
    case LayerPhase::Update:
      ++of.updates;
      if (!awaitedHome && !role.layers[chunk.firstLayer].updatesOnDevice)
        refuse("expected 'await home' before it");
    }
  }

  /// What a function uses while it runs, and what its layer keeps besides its
  /// input, is apart from all that lives: besides values, parameters that are
  /// gathered for it or for the layer that runs next.
  void checkTemporaries(const Layer &layer, LayerPhase phase) {
    Extent used{layer.transient,
                alignUp(layer.recomputeStashBytes) + layer.transientBytes};
    if (phase == LayerPhase::Forward)
      used = {layer.forwardTransient,
              (layer.forwardOnly ? alignUp(layer.stashBytes) : 0) +
                  layer.forwardTransientBytes};
    used.offset = inSlot(role.slots.offset + used.offset);
    expectFree("temporaries", used);
    if (!layer.forwardOnly)
      expectFree("kept values",
                 {keptAt(layer) + alignUp(layer.inputBytes), layer.stashBytes});
  }
  void expectFree(const char *what, const Extent &extent) {
    if (live.meets(extent.offset, extent.offset + extent.bytes))
      refuse(std::string("expected the layer's ") + what + ' ' +
             textOf(extent) +
             " apart from what lives, found a part of them "
             "live");
  }

  void readInputs(size_t number) {
    const Layer &layer = role.layers[number];
    if (layer.inputs.empty())
      return read({keptAt(layer), layer.inputBytes});
    for (const InputTensor &input : layer.inputs)
      read({inSlot(role.slots.offset + input.slot), input.bytes});
  }

  void expectBuffer(int buffer, const Extent &extent) {
    if (extent.bytes == 0)
      return;
    for (const auto &[number, used] : buffers)
      if (number == buffer && used.offset <= extent.offset &&
          extent.offset + extent.bytes <= used.offset + used.bytes)
        return;
    refuse("expected 'use buffer " + str(buffer) + " " + textOf(extent) +
           "' before it");
  }
  /// Of an exchange of gradients, whose result is in a buffer.
  void useBuffersOf(const gvx::Command &row) {
    if (task == GRT_TASK_FORWARD)
      return;
    for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i)
      if (role.layers[i].backwardReshard == row.number)
        for (const auto &[number, used] : buffers)
          if (used.offset == at(row.to).offset)
            return;
    refuse("expected 'use buffer' of what it writes before it");
  }

  void callForward(size_t number) {
    const Layer &layer = role.layers[number];
    readInputs(number);
    if (layer.output == OutputKind::Loss)
      return;
    if (layer.output == OutputKind::Slot) {
      const Layer &next = role.layers[number + 1];
      return write({keptAt(next), next.inputBytes});
    }
    const Extent whole = boundaryExtent(role, layer.outputBuffer,
                                        outputBytes(manifest, role, number));
    expectBuffer(layer.outputBuffer, whole);
    write(whole);
    // What passes the layer is not its own.
    for (const PassingTensor &tensor : layer.passes)
      written.remove(whole.offset + tensor.behind,
                     whole.offset + tensor.behind + tensor.bytes);
  }

  void callBackward(size_t number) {
    const Layer &layer = role.layers[number];
    readInputs(number);
    const Extent in =
        boundaryExtent(role, layer.gradIn, outputBytes(manifest, role, number));
    const Extent out = boundaryExtent(role, layer.gradOut, layer.frontBytes);
    expectBuffer(layer.gradIn, in);
    expectBuffer(layer.gradOut, out);
    read(in);
    if (layer.gradOut < 0)
      return;
    write(out);
    for (const PassingTensor &tensor : layer.passes)
      if (!tensor.used)
        written.remove(out.offset + tensor.front,
                       out.offset + tensor.front + tensor.bytes);
  }

  //===--------------------------------------------------------------------===//
  // Messages
  //===--------------------------------------------------------------------===//

  template <typename Use>
  void messages(grt_direction direction, grt_value value, Use use) {
    for (const gvx::Message &row : rows.messages)
      if (row.chunk == chunk.number && row.direction == direction &&
          row.value == value && row.home != 1) {
        where = grt::textOf(row, rows.places);
        use(row);
      }
  }
  /// Bytes of a micro-batch's message at this end.
  uint64_t messageBytes(const gvx::Message &row) const {
    const size_t last = chunk.endLayer() - 1;
    const Layer &first = role.layers[chunk.firstLayer];
    if (row.value == GRT_GRADIENT)
      return row.direction == GRT_SEND ? first.frontBytes
                                       : outputBytes(manifest, role, last);
    if (row.value == GRT_ACTIVATION)
      return row.direction == GRT_SEND ? outputBytes(manifest, role, last)
                                       : first.inputBytes;
    const Chunk &receiver = *manifest.chunk(row.peer);
    return receiver.number + 1 == manifest.chunkCount
               ? outputBytes(manifest, role, last)
               : role.layers[size_t(
                                 Manifest::stashLayer(role, chunk, receiver))]
                     .inputBytes;
  }
  void expectBytes(const gvx::Message &row) {
    const uint64_t found = rows.places[row.place - 1].bytes;
    if (const uint64_t expected = messageBytes(row); found != expected)
      refuse("expected a place of " + str(expected) + " bytes, found " +
             str(found));
  }
  void receive(grt_value value) {
    messages(GRT_RECEIVE, value, [&](const gvx::Message &row) {
      expectBytes(row);
      if (manifest.hasPacks &&
          rows.places[row.place - 1].perPlace != -int64_t(chunk.waitingBytes))
        refuse("expected a place that moves with those of messages");
      begin(at(row.place));
      write(at(row.place));
    });
  }
  void send(grt_value value) {
    messages(GRT_SEND, value, [&](const gvx::Message &row) {
      expectBytes(row);
      read(at(row.place));
      end(at(row.place));
    });
  }

  const Manifest &manifest;
  const ProgramFile &program;
  const Role &role;
  const ProgramFile::RoleCommands &rows;
  const Chunk &chunk;
  std::vector<Done> done; ///< by layer of the chunk
  ByteSet live, written;
  std::vector<Extent> begun; ///< since the last mark
  std::vector<const gvx::Procedure *> followed;
  /// The running procedure and its progress.
  const gvx::Procedure *running = nullptr;
  const gvx::Command *command = nullptr; ///< of it; null between commands
  int slotsSwapped = 0;
  uint8_t task = 0;
  bool usedSlot = false, usedEnd = false, awaitedHome = false;
  int calls = 0;
  std::optional<size_t> lastCalled; ///< layer
  std::vector<std::pair<int, Extent>> buffers;
  std::string where; ///< what is followed, where it is no command
  std::string wrong;
};

/// What is wrong with the procedures of a role: squares of the gradients that
/// are not updated on the device, and copies of older parameters.
std::string wrongOfRole(const Manifest &manifest, const ProgramFile &program,
                        size_t number) {
  const Role &role = manifest.roles[number];
  const ProgramFile::RoleCommands &rows = program.ofRole(number);
  for (const gvx::Procedure &procedure : rows.procedures) {
    // Others of the role, and ends of steps, are what they must be
    // (checkCommands).
    const bool isNorm = procedure.task == GRT_TASK_NORM;
    if (!isNorm && procedure.task != gvx::ofVersions)
      continue;
    std::span<const gvx::Command> rest = program.commands(procedure);
    const EndCommands ends = endCommands(manifest, procedure.task, false);
    rest = rest.subspan(ends.before.size(),
                        rest.size() - ends.before.size() - ends.behind.size());
    std::vector<int> found(role.layers.size());
    for (const gvx::Command &row : rest) {
      size_t layer = role.layers.size();
      if (isNorm && row.kind == CommandKind::Call) {
        const Layer &of = role.layers[size_t(row.layer)];
        if (row.when == (of.replicated ? When::OncePerGroup : When::Always))
          layer = size_t(row.layer);
      } else if (!isNorm && row.kind == CommandKind::Copy &&
                 row.when == When::Always) {
        const gvx::Place &from = rows.places[row.from - 1];
        const gvx::Place &to = rows.places[row.to - 1];
        for (layer = 0; layer < role.layers.size(); ++layer) {
          const Extent newest =
              residentStates(manifest, role.layers[layer]).parameters;
          if (from.offset == role.layers[layer].parameter &&
              from.bytes == newest.bytes &&
              to.offset == from.offset + manifest.versionStride(role))
            break;
        }
      }
      if (layer == role.layers.size())
        return procedureName(procedure) + ": unexpected command '" +
               grt::textOf(row, rows.places) + "'";
      ++found[layer];
    }
    for (size_t i = 0; i < found.size(); ++i) {
      const Layer &layer = role.layers[i];
      const int expected =
          isNorm
              ? needsNorm(manifest) && layer.norm >= 0 && !layer.updatesOnDevice
              : residentStates(manifest, layer).parameters.bytes > 0;
      if (found[i] != expected)
        return procedureName(procedure) + ": expected " + str(expected) +
               " commands of layer '" + layer.name + "', found " +
               str(found[i]);
    }
  }
  return "";
}

} // namespace

std::string wrongCommands(const Manifest &manifest,
                          const ProgramFile &program) {
  for (size_t r = 0; r < manifest.roles.size(); ++r) {
    if (std::string wrong = wrongOfRole(manifest, program, r); !wrong.empty())
      return "commands of role " + str(r) + ": " + wrong;
    for (const Chunk &chunk : manifest.roles[r].chunks)
      if (std::string wrong = ChunkProof(manifest, program, r, chunk).run();
          !wrong.empty())
        return "commands of role " + str(r) + ": " + wrong;
    if (std::string wrong = wrongSums(manifest, program, r); !wrong.empty())
      return "commands of role " + str(r) + ": " + wrong;
  }
  return "";
}

} // namespace grt
