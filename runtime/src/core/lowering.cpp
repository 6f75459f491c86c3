//===- lowering.cpp - Tasks as commands -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The compiler makes the commands of a program here, from what its manifest
// says of roles, when all else is there. No rank and no device is asked: the
// ranks of a role have one list.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/capture.h"
#include "core/commands.h"
#include "core/layout.h"
#include "core/program_check.h"
#include "grt/program_file.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace grt {
namespace {

using gvx::CommandKind;
using gvx::When;

/// A place that is not numbered yet.
struct MovingPlace : gvx::Place {
  MovingPlace() : gvx::Place{} {}
  MovingPlace(const Extent &extent)
      : gvx::Place{extent.offset, extent.bytes, 0, 0, 0} {}
};

/// A command with its places.
struct Draft {
  gvx::Command row{};
  MovingPlace to, from;
};
using Drafts = std::vector<Draft>;

void append(const std::vector<gvx::Command> &commands, Drafts &list) {
  for (const gvx::Command &row : commands)
    list.emplace_back().row = row;
}

/// An end of a message with its place.
struct MessageDraft {
  gvx::Message row{};
  MovingPlace place;
};

/// What commands ask of a layer.
struct LayerFacts {
  uint64_t outputBytes = 0;
  ResidentStates states;
  bool gathersUpdated = false; ///< its update makes a part of what a rank holds
  gvx::LayerOrder order;
};

std::vector<LayerFacts> factsOf(const Manifest &manifest, const Role &role,
                                std::span<const gvx::LayerOrder> orders) {
  std::vector<LayerFacts> facts(role.layers.size());
  for (size_t i = 0; i < facts.size(); ++i) {
    const Layer &layer = role.layers[i];
    facts[i] = {outputBytes(manifest, role, i), residentStates(manifest, layer),
                layer.cutsStateOnly && layer.degree(GRT_AXIS_SDP) > 1 &&
                    layer.ownedElements() > 0,
                i < orders.size() ? orders[i] : gvx::LayerOrder()};
  }
  return facts;
}

bool isStash(const Manifest &manifest, const Role &role, const Chunk &sender,
             size_t layer) {
  for (const Role &other : manifest.roles)
    for (const Chunk &receiver : other.chunks)
      if (Manifest::stashLayer(role, sender, receiver) == int(layer))
        return true;
  return false;
}

/// Writes the procedures of a chunk.
class ChunkLowering {
public:
  ChunkLowering(const Manifest &manifest, const Role &role, const Chunk &chunk,
                std::span<const LayerFacts> layers)
      : manifest(manifest), role(role), chunk(chunk), layers(layers),
        behind(chunk.endLayer()) {}

  Drafts forward();
  /// `isWhole`: there is no weight part behind it.
  Drafts backward(bool isWhole);
  Drafts weight();
  Drafts sums();
  Drafts update();
  Drafts swap(const grt_task &task);
  /// The chunk's end of a part of a transfer.
  MessageDraft message(const grt_transfer_part &part) const;

private:
  //===--------------------------------------------------------------------===//
  // Places
  //===--------------------------------------------------------------------===//

  const Layer &at(size_t number) const { return role.layers[number]; }
  MovingPlace inSlot(uint64_t offset, uint64_t bytes) const {
    MovingPlace place = Extent{role.slots.offset + offset, bytes};
    place.perSlot = int64_t(role.slotStride);
    return place;
  }
  MovingPlace inputOf(size_t number) const {
    const Layer &layer = at(number);
    MovingPlace place = Extent{role.keptOffset(layer, 0), layer.inputBytes};
    place.perSlot = layer.keptAway ? 0 : int64_t(role.slotStride);
    return place;
  }
  MovingPlace gathered(size_t number, LayerPhase phase) const {
    const Gathered &full = gatheredOf(number, phase);
    return inSlot(full.offset, full.bytes);
  }
  bool isAhead(size_t number, LayerPhase phase) const {
    return phase == LayerPhase::Forward ? layers[number].order.forwardAhead
                                        : layers[number].order.backwardAhead;
  }
  const Gathered &gatheredOf(size_t number, LayerPhase phase) const {
    return phase == LayerPhase::Forward ? at(number).forwardGathered
                                        : at(number).backwardGathered;
  }
  MovingPlace boundary(int buffer, uint64_t bytes) const {
    return boundaryExtent(role, buffer, bytes);
  }
  MovingPlace gradientBehind(size_t number) const {
    return boundary(at(number).gradIn, layers[number].outputBytes);
  }
  MovingPlace gradientInFront(size_t number) const {
    return boundary(at(number).gradOut, at(number).frontBytes);
  }
  /// Where a layer writes its output; no bytes of a loss.
  MovingPlace outputOf(size_t number) const {
    const Layer &layer = at(number);
    if (layer.output == OutputKind::Boundary)
      return boundary(layer.outputBuffer, layers[number].outputBytes);
    return layer.output == OutputKind::Slot ? inputOf(number + 1)
                                            : MovingPlace();
  }
  static MovingPlace part(const MovingPlace &whole, uint64_t offset,
                          uint64_t bytes) {
    MovingPlace result = whole;
    result.offset += offset;
    result.bytes = bytes;
    return result;
  }

  //===--------------------------------------------------------------------===//
  // Commands
  //===--------------------------------------------------------------------===//

  Draft &add(CommandKind kind, int32_t layer = -1, int32_t number = 0) {
    Draft &command = list.emplace_back();
    command.row.kind = kind;
    command.row.layer = layer;
    command.row.number = number;
    return command;
  }
  void begin(const MovingPlace &place, When when = When::Always) {
    if (!place.bytes)
      return;
    Draft &command = add(CommandKind::Begin);
    command.row.when = when;
    command.to = place;
  }
  void end(const MovingPlace &place) {
    if (place.bytes)
      add(CommandKind::End).to = place;
  }
  void copy(const MovingPlace &to, const MovingPlace &from) {
    Draft &command = add(CommandKind::Copy);
    command.to = to;
    command.from = from;
  }
  void useBuffer(int buffer, const MovingPlace &place) {
    if (buffer >= 0)
      add(CommandKind::UseBuffer, -1, buffer).to = place;
  }
  void call(size_t layer, int function, LayerPhase phase) {
    if (function >= 0)
      add(CommandKind::Call, int32_t(layer)).row.phase = phase;
  }
  void awaitSums(bool waits) {
    if (waits)
      add(CommandKind::AwaitSum);
  }
  void reshard(int exchange, const MovingPlace &to, const MovingPlace &from) {
    Draft &command = add(CommandKind::Reshard, -1, exchange);
    command.to = to;
    command.from = from;
  }
  void startGather(size_t number, LayerPhase phase) {
    const bool awaits =
        phase != LayerPhase::Forward && layers[number].order.gatherAwaitsSums;
    if (gatheredOf(number, phase).bytes)
      add(CommandKind::Gather, int32_t(number), awaits).row.phase = phase;
  }
  void gatherAround(size_t number, LayerPhase phase);
  void takeWaiting(const MovingPlace &to);
  void passGradients(size_t number);
  void backwardReshard(size_t number);
  void sumBehind(size_t number) {
    add(CommandKind::Sum, int32_t(number)).row.when = When::SumsBehind;
  }
  void swapStates(const Layer &layer, const ResidentStates &states,
                  const grt_task &task);
  MessageDraft stash(const grt_transfer_part &part) const;
  void bringStash();
  void swapSlot(const grt_task &task);
  /// Makes the host wait until all that it works on is there.
  void awaitHome() {
    if (!at(chunk.firstLayer).updatesOnDevice)
      add(CommandKind::AwaitHome);
  }

  const Manifest &manifest;
  const Role &role;
  const Chunk &chunk;
  std::span<const LayerFacts> layers;
  const size_t behind; ///< the chunk's last layer
  Drafts list;
};

/// The gather of a layer's parameters is under way, or is put on its stream
/// now; the functions wait for it, and beside them that of the layer which runs
/// next may be done. The gather of a task's first layer has been started.
void ChunkLowering::gatherAround(size_t number, LayerPhase phase) {
  const bool ascends = phase == LayerPhase::Forward;
  const size_t last = behind - 1;
  const bool isFirst = number == (ascends ? chunk.firstLayer : last);
  const bool isLast = number == (ascends ? last : chunk.firstLayer);
  const Gathered &full = gatheredOf(number, phase);
  if (!isFirst && !isAhead(number, phase))
    startGather(number, phase);
  if (full.bytes)
    add(CommandKind::Order, -1, GRT_STREAM_GATHER);
  const size_t next = ascends ? number + 1 : number - 1;
  if (!isLast && isAhead(next, phase))
    startGather(next, phase);
}

/// Brings a message out of the place where it waits to where it is used.
void ChunkLowering::takeWaiting(const MovingPlace &to) {
  MovingPlace from = role.waitingExtent(chunk, 0, to.bytes);
  from.perPlace = -int64_t(chunk.waitingBytes);
  begin(to);
  copy(to, from);
  end(from);
}

Drafts ChunkLowering::forward() {
  if (manifest.hasPacks && chunk.recvActivation >= 0)
    takeWaiting(inputOf(chunk.firstLayer));
  startGather(chunk.firstLayer, LayerPhase::Forward);
  add(CommandKind::UseSlot);
  for (size_t i = chunk.firstLayer; i < behind; ++i) {
    const Layer &layer = at(i);
    gatherAround(i, LayerPhase::Forward);
    const MovingPlace output = outputOf(i);
    const bool isBoundary = layer.output == OutputKind::Boundary;
    if (isBoundary)
      useBuffer(layer.outputBuffer, output);
    begin(output);
    if (layer.forwardOnly)
      add(CommandKind::Mark);
    call(i, layer.forward, LayerPhase::Forward);
    end(gathered(i, LayerPhase::Forward));
    if (layer.forwardOnly)
      add(CommandKind::Rewind);
    // What passes the layer leaves with its output.
    if (isBoundary)
      for (const PassingTensor &tensor : layer.passes)
        copy(part(output, tensor.behind, tensor.bytes),
             inSlot(tensor.slot, tensor.bytes));
    if (layer.forwardReshard >= 0) {
      const MovingPlace next = inputOf(i + 1);
      begin(next);
      reshard(layer.forwardReshard, next, output);
      end(output);
    }
    // Nobody waits for the output of a pack that recomputes.
    if (manifest.hasPacks && isBoundary && chunk.sendActivation < 0 &&
        !manifest.sendsHome(chunk))
      end(output);
  }
  // Inputs of a layer may be what one in front of it holds.
  for (size_t i = chunk.firstLayer; i < behind; ++i)
    if (at(i).forwardOnly && !isStash(manifest, role, chunk, i))
      end(inputOf(i));
  add(CommandKind::Used);
  append(endCommands(manifest, GRT_TASK_FORWARD, hasLoss(role, chunk)).behind,
         list);
  return std::move(list);
}

/// Gradients of what passes a layer, from behind it to what it has written in
/// front of it.
void ChunkLowering::passGradients(size_t number) {
  for (const PassingTensor &tensor : at(number).passes) {
    const MovingPlace from =
        part(gradientBehind(number), tensor.behind, tensor.bytes);
    const MovingPlace to =
        part(gradientInFront(number), tensor.front, tensor.bytes);
    copy(to, from);
    // The layer's own part is there already.
    if (tensor.used)
      list.back().row.kind = CommandKind::Add;
  }
}

void ChunkLowering::backwardReshard(size_t number) {
  const Layer &layer = at(number);
  if (layer.backwardReshard < 0)
    return;
  const MovingPlace to = gradientBehind(number - 1);
  useBuffer(at(number - 1).gradIn, to);
  begin(to);
  awaitSums(layers[number].order.reshardAwaitsSums);
  reshard(layer.backwardReshard, to, gradientInFront(number));
  end(gradientInFront(number));
}

Drafts ChunkLowering::backward(bool isWhole) {
  if (manifest.hasPacks && chunk.recvGradient >= 0)
    takeWaiting(gradientBehind(behind - 1));
  if (manifest.hasPacks)
    for (size_t i = chunk.firstLayer; i < behind; ++i)
      begin(layers[i].states.gradients, When::First);
  startGather(behind - 1, LayerPhase::Backward);
  add(CommandKind::UseSlot);
  for (size_t i = behind; i-- > chunk.firstLayer;) {
    const Layer &layer = at(i);
    gatherAround(i, LayerPhase::Backward);
    awaitSums(layers[i].order.backwardAwaitsSums);
    call(i, layer.recompute, LayerPhase::Recompute);
    useBuffer(layer.gradIn, gradientBehind(i));
    useBuffer(layer.gradOut, gradientInFront(i));
    begin(gradientInFront(i));
    call(i, layer.backward, LayerPhase::Backward);
    passGradients(i);
    end(gathered(i, LayerPhase::Backward));
    end(gradientBehind(i));
    // Weight parts read inputs, their own layer's or one that it holds.
    if (isWhole)
      end(inputOf(i));
    backwardReshard(i);
    // Behind the reshard, which it need not run beside then.
    if (isWhole)
      sumBehind(i);
  }
  add(CommandKind::Used);
  return std::move(list);
}

Drafts ChunkLowering::weight() {
  add(CommandKind::UseSlot);
  for (size_t i = behind; i-- > chunk.firstLayer;) {
    awaitSums(layers[i].order.backwardAwaitsSums);
    call(i, at(i).weight, LayerPhase::Weight);
    sumBehind(i);
  }
  for (size_t i = chunk.firstLayer; i < behind; ++i)
    end(inputOf(i));
  add(CommandKind::Used);
  return std::move(list);
}

Drafts ChunkLowering::sums() {
  awaitHome();
  for (size_t i = behind; i-- > chunk.firstLayer;)
    add(CommandKind::Sum, int32_t(i));
  return std::move(list);
}

/// Appends the call that adds a layer's squares. Of what several ranks hold
/// alike one of them adds them.
void addSquares(const Role &role, size_t number, Drafts &list) {
  const Layer &layer = role.layers[number];
  if (layer.norm < 0)
    return;
  gvx::Command &command = list.emplace_back().row;
  command.kind = CommandKind::Call;
  command.phase = LayerPhase::Norm;
  command.layer = int32_t(number);
  if (layer.replicated)
    command.when = When::OncePerGroup;
}

/// Appends the copy of a layer's newest parameters over those a version older,
/// if there are such.
void keepParameters(const Manifest &manifest, const Role &role, size_t number,
                    const ResidentStates &states, Drafts &list) {
  if (!manifest.delay || !states.parameters.bytes)
    return;
  Draft &command = list.emplace_back();
  command.row.kind = CommandKind::Copy;
  command.row.layer = -1;
  command.from = Extent{role.layers[number].parameter, states.parameters.bytes};
  command.to = command.from;
  command.to.offset += manifest.versionStride(role);
}

Drafts ChunkLowering::update() {
  append(endCommands(manifest, GRT_TASK_UPDATE, false).before, list);
  append(tieCommands(manifest, size_t(&role - manifest.roles.data()),
                     GRT_TASK_UPDATE),
         list);
  awaitHome();
  for (size_t i = chunk.firstLayer; i < behind; ++i) {
    const Layer &layer = at(i);
    keepParameters(manifest, role, i, layers[i].states, list);
    if (layer.updatesOnDevice)
      addSquares(role, i, list);
    call(i, layer.update, LayerPhase::Update);
    if (layer.update >= 0 && layers[i].gathersUpdated)
      add(CommandKind::Collect, int32_t(i));
  }
  for (size_t i = chunk.firstLayer; i < behind; ++i)
    if (at(i).updatesOnDevice)
      end(layers[i].states.gradients);
  return std::move(list);
}

/// Brings the input that a chunk recomputes from out of its slot at home.
void ChunkLowering::bringStash() {
  const MovingPlace to = inputOf(chunk.firstLayer);
  const uint64_t each =
      uint64_t(at(chunk.firstLayer).samples) *
      manifest.exchanges[size_t(chunk.recvStash)].bytesPerUnit;
  begin(to);
  Draft &command =
      add(CommandKind::SwapIn, int32_t(chunk.firstLayer), GRT_SWAP_ACTIVATIONS);
  command.to = to;
  command.from = Extent{
      role.homeSlots.offset + chunk.firstSlot * role.homeSlotBytes, to.bytes};
  command.from.perPlace = int64_t(role.homeSlotBytes);
  command.from.perPart = int64_t(each);
}

void ChunkLowering::swapSlot(const grt_task &task) {
  // Temporaries of backward passes lie behind what is kept.
  const Extent kept =
      role.hasOneSlot()
          ? Extent{role.slots.offset,
                   std::min(at(behind - 1).transient, role.slotBytes)}
          : role.awaySlot;
  if (!kept.bytes)
    return;
  Draft &command = add(CommandKind::SwapSlot, -1, task.tiers);
  command.row.stream = task.stream;
  command.to = kept;
  command.from = Extent{
      role.homeSlots.offset + chunk.firstSlot * role.homeSlotBytes, kept.bytes};
  command.from.perPlace = int64_t(role.homeSlotBytes);
}

void ChunkLowering::swapStates(const Layer &layer, const ResidentStates &states,
                               const grt_task &task) {
  const bool out = task.tiers == GRT_TO_HOST;
  const struct {
    grt_swap_class of;
    uint64_t home;
    Extent resident;
  } moved[] = {{GRT_SWAP_PARAMETERS, layer.parameter, states.parameters},
               {GRT_SWAP_GRADIENTS, layer.gradient, states.gradients},
               {GRT_SWAP_OPTIMIZER, layer.optimizer, states.optimizer}};
  for (const auto &[of, home, resident] : moved) {
    if (!(task.classes & of) || !resident.bytes)
      continue;
    const Extent there{home, resident.bytes};
    Draft &command = add(out ? CommandKind::SwapOut : CommandKind::SwapIn,
                         int32_t(&layer - role.layers.data()), of);
    command.row.stream = task.stream;
    command.to = out ? there : resident;
    command.from = out ? resident : there;
  }
}

Drafts ChunkLowering::swap(const grt_task &task) {
  if (task.classes == GRT_SWAP_ACTIVATIONS) {
    if (manifest.hasPacks)
      bringStash();
    else if (role.slotsAtHome)
      swapSlot(task);
    return std::move(list);
  }
  const bool out = task.tiers == GRT_TO_HOST;
  if (manifest.hasPacks && !out && (task.classes & GRT_SWAP_PARAMETERS))
    add(CommandKind::TakeTurn, -1, int32_t(&chunk - role.chunks.data()));
  if (!out && (task.classes & GRT_SWAP_OPTIMIZER))
    for (size_t i = chunk.firstLayer; i < behind; ++i)
      begin(layers[i].states.optimizer);
  for (size_t i = chunk.firstLayer; i < behind; ++i)
    if (at(i).isAway)
      swapStates(at(i), layers[i].states, task);
  if (manifest.hasPacks && out && (task.classes & GRT_SWAP_GRADIENTS))
    for (size_t i = chunk.firstLayer; i < behind; ++i)
      end(layers[i].states.gradients);
  if (out && (task.classes & GRT_SWAP_OPTIMIZER))
    for (size_t i = chunk.firstLayer; i < behind; ++i)
      end(layers[i].states.optimizer);
  return std::move(list);
}

/// The end of a message with the input that a chunk recomputes from: on its way
/// to another chunk's home, or to this one's.
MessageDraft ChunkLowering::stash(const grt_transfer_part &part) const {
  MessageDraft message;
  message.row.buffer = -1;
  if (part.direction == GRT_RECEIVE) {
    // The sender's, whose layers cut a micro-batch as these do.
    const int64_t samples = manifest.samplesPerMicroBatch(true) /
                            at(chunk.firstLayer).sampleBlocks();
    message.row.exchange = chunk.recvStash;
    message.row.home = 1;
    message.place =
        Extent{role.homeSlots.offset + chunk.firstSlot * role.homeSlotBytes, 0};
    message.place.perPlace = int64_t(role.homeSlotBytes);
    message.place.perPart =
        samples *
        int64_t(manifest.exchanges[size_t(chunk.recvStash)].bytesPerUnit);
    return message;
  }
  const Chunk &receiver = *manifest.chunk(part.peer_chunk);
  message.row.exchange = receiver.recvStash;
  message.row.home = 2;
  message.place =
      receiver.number + 1 == manifest.chunkCount
          ? outputOf(behind - 1)
          : inputOf(size_t(Manifest::stashLayer(role, chunk, receiver)));
  return message;
}

MessageDraft ChunkLowering::message(const grt_transfer_part &part) const {
  if (part.value == GRT_STASH)
    return stash(part);
  const bool sends = part.direction == GRT_SEND;
  const bool isGradient = part.value == GRT_GRADIENT;
  const Layer &first = at(chunk.firstLayer), &last = at(behind - 1);
  MessageDraft message;
  message.row.buffer = -1;
  message.row.exchange = isGradient
                             ? sends ? chunk.sendGradient : chunk.recvGradient
                         : sends ? chunk.sendActivation
                                 : chunk.recvActivation;
  message.place = isGradient ? sends ? gradientInFront(chunk.firstLayer)
                                     : gradientBehind(behind - 1)
                  : sends    ? outputOf(behind - 1)
                             : inputOf(chunk.firstLayer);
  if (!manifest.hasPacks) {
    const bool inSlot = !isGradient && !sends;
    message.row.shared =
        inSlot ? gvx::Shared::WithSlot : gvx::Shared::WithBuffer;
    if (!inSlot)
      message.row.buffer = !isGradient ? last.outputBuffer
                           : sends     ? first.gradOut
                                       : last.gradIn;
  } else if (!sends) {
    // It waits until its pass takes it.
    message.place = role.waitingExtent(chunk, 0, message.place.bytes);
    message.place.perPlace = -int64_t(chunk.waitingBytes);
  }
  return message;
}

/// Gives places their numbers and writes the rows of a role.
class RoleWriter {
public:
  explicit RoleWriter(gvx::Tables &tables, gvx::Role &role)
      : tables(tables), role(role) {
    role.procedures = {uint32_t(tables.procedures.size()), 0};
    role.places = {uint32_t(tables.places.size()), 0};
    role.messages = {uint32_t(tables.messages.size()), 0};
  }

  void add(gvx::Procedure procedure, const Drafts &list, const Role &of) {
    procedure.needsHost = std::ranges::any_of(list, [&](const Draft &draft) {
      return hostPartOf(draft.row, of, readsCounts(of, draft.row));
    });
    procedure.commands = {uint32_t(tables.commands.size()),
                          uint32_t(list.size())};
    tables.procedures.push_back(procedure);
    ++role.procedures.count;
    for (const Draft &draft : list) {
      gvx::Command row = draft.row;
      row.to = numberOf(draft.to);
      row.from = numberOf(draft.from);
      tables.commands.push_back(row);
    }
  }
  void add(const MessageDraft &draft) {
    gvx::Message row = draft.row;
    row.place = numberOf(draft.place);
    tables.messages.push_back(row);
    ++role.messages.count;
  }

private:
  /// Whether a command calls a function with counts that the host reads.
  bool readsCounts(const Role &of, const gvx::Command &command) const {
    if (command.kind != CommandKind::Call)
      return false;
    const int function =
        functionOf(of.layers[size_t(command.layer)], command.phase);
    const gvx::Range range = tables.functions[size_t(function)].calls;
    return std::any_of(tables.calls.begin() + range.first,
                       tables.calls.begin() + range.first + range.count,
                       [&](const gvx::Call &call) {
                         return call.kind == gvx::CallKind::Communicate &&
                                tables.collectives[call.index].collective ==
                                    GRT_ALL_TO_ALL_COUNTS;
                       });
  }
  /// Without bytes and a place it is none.
  uint32_t numberOf(const gvx::Place &place) {
    const auto key = std::tuple(place.offset, place.bytes, place.perSlot,
                                place.perPlace, place.perPart);
    if (key == std::tuple(0u, 0u, 0, 0, 0))
      return 0;
    const auto [it, isNew] = numbers.try_emplace(key, role.places.count + 1);
    if (isNew) {
      tables.places.push_back(place);
      ++role.places.count;
    }
    return it->second;
  }

  gvx::Tables &tables;
  gvx::Role &role;
  std::map<std::tuple<uint64_t, uint64_t, int64_t, int64_t, int64_t>, uint32_t>
      numbers;
};

/// Writes what the tasks of a role are.
class RoleLowering {
public:
  RoleLowering(const Manifest &manifest, const Role &role,
               const grt_schedule &schedule,
               std::span<const gvx::LayerOrder> orders, RoleWriter writer)
      : manifest(manifest), role(role), schedule(schedule),
        facts(factsOf(manifest, role, orders)), writer(std::move(writer)) {}

  void run() {
    for (const grt_task_list &list : schedule.parts)
      for (const grt_task &task : std::span(list.tasks, list.count))
        addTask(task);
    addOfRole();
    std::set<std::tuple<uint16_t, uint16_t, uint8_t, uint8_t>> messages;
    for (const grt_transfer_part &part :
         std::span(schedule.transfers, schedule.transfer_count))
      if (messages
              .insert({part.chunk, part.peer_chunk, part.direction, part.value})
              .second) {
        MessageDraft message = of(*role.chunk(part.chunk)).message(part);
        message.row.chunk = part.chunk;
        message.row.peer = part.peer_chunk;
        message.row.direction = part.direction;
        message.row.value = part.value;
        writer.add(message);
      }
  }

private:
  ChunkLowering of(const Chunk &chunk) const {
    return {manifest, role, chunk, facts};
  }

  /// Adds the procedure of a task, if it has one and it is the first of them.
  void addTask(const grt_task &task) {
    gvx::Procedure row{};
    row.chunk = task.chunk;
    row.task = task.kind;
    if (task.kind == GRT_TASK_SWAP) {
      row.classes = task.classes;
      row.tiers = task.tiers;
      row.stream = task.stream;
    }
    const Chunk *chunk = role.chunk(task.chunk);
    if (!gvx::isProcedure(task.kind) ||
        !seen.insert({row.chunk, row.task, row.classes, row.tiers, row.stream})
             .second)
      return;
    writer.add(row, draftsOf(task, *chunk), role);
  }

  Drafts draftsOf(const grt_task &task, const Chunk &chunk) const {
    switch (task.kind) {
    case GRT_TASK_FORWARD:
      return of(chunk).forward();
    case GRT_TASK_BACKWARD:
    case GRT_TASK_BACKWARD_INPUT:
      return of(chunk).backward(/*isWhole=*/task.kind == GRT_TASK_BACKWARD);
    case GRT_TASK_BACKWARD_WEIGHT:
      return of(chunk).weight();
    case GRT_TASK_SYNC_GRADIENTS:
      return of(chunk).sums();
    case GRT_TASK_UPDATE:
      return of(chunk).update();
    default:
      return of(chunk).swap(task);
    }
  }

  /// Adds the procedures of the role, of those kinds that have commands.
  void addOfRole() {
    auto write = [&](uint8_t task, const Drafts &list) {
      gvx::Procedure row{};
      row.task = task;
      if (!list.empty())
        writer.add(row, list, role);
    };
    const EndCommands norm = endCommands(manifest, GRT_TASK_NORM, false);
    Drafts squares, versions;
    append(norm.before, squares);
    for (size_t i = 0; i < facts.size(); ++i) {
      keepParameters(manifest, role, i, facts[i].states, versions);
      if (needsNorm(manifest) && !role.layers[i].updatesOnDevice)
        addSquares(role, i, squares);
    }
    append(norm.behind, squares);
    write(GRT_TASK_NORM, squares);
    write(gvx::ofVersions, versions);
    for (uint8_t task : {uint8_t(GRT_TASK_TIE_REDUCE),
                         uint8_t(GRT_TASK_TIE_BROADCAST), gvx::ofTaken}) {
      Drafts list;
      append(tieCommands(manifest, size_t(&role - manifest.roles.data()), task),
             list);
      write(task, list);
    }
    for (uint8_t task : {gvx::ofStepEnd, gvx::ofEvaluation}) {
      Drafts list;
      append(endCommands(manifest, task, false).behind, list);
      write(task, list);
    }
  }

  const Manifest &manifest;
  const Role &role;
  const grt_schedule &schedule;
  const std::vector<LayerFacts> facts;
  RoleWriter writer;
  std::set<std::tuple<uint16_t, uint8_t, uint8_t, uint8_t, uint8_t>> seen;
};

std::vector<grt_schedule> schedulesOf(const gvx::Tables &tables) {
  std::vector<grt_schedule> schedules;
  for (const gvx::Role &role : tables.roles) {
    grt_schedule &schedule = schedules.emplace_back();
    for (size_t part = 0; part < GRT_PART_COUNT; ++part)
      schedule.parts[part] = {tables.tasks.data() + role.parts[part].first,
                              role.parts[part].count};
    schedule.transfers = tables.transfers.data() + role.transfers.first;
    schedule.transfer_count = role.transfers.count;
  }
  return schedules;
}

} // namespace

bool gvx::lowerTasks(Tables &tables) {
  auto clear = [&] {
    tables.procedures.clear();
    tables.commands.clear();
    tables.places.clear();
    tables.messages.clear();
    tables.read.reset();
    for (gvx::Role &role : tables.roles)
      role.procedures = role.places = role.messages = {};
  };
  clear();
  const std::vector<grt_schedule> schedules = schedulesOf(tables);
  const Status status = guarded([&] {
    tables.read = std::make_shared<const Manifest>(
        checkedManifest(tables.manifest, tables.functions.size(), schedules));
    const Manifest &manifest = *tables.read;
    for (size_t r = 0; r < schedules.size(); ++r)
      RoleLowering(manifest, manifest.roles[r], schedules[r],
                   r < tables.orders.size() ? tables.orders[r]
                                            : std::vector<gvx::LayerOrder>(),
                   RoleWriter(tables, tables.roles[r]))
          .run();
  });
  if (!status)
    clear();
  return bool(status);
}

} // namespace grt
