//===- lowering.cpp - Tasks as commands -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/commands.h"

#include <algorithm>
#include <utility>

namespace grt {
namespace {

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
                std::span<const LayerState> layers)
      : manifest(manifest), role(role), chunk(chunk), layers(layers),
        behind(chunk.endLayer()) {}

  Procedure forward();
  /// `isWhole`: there is no weight part behind it.
  Procedure backward(bool isWhole);
  Procedure weight();
  Procedure sums();
  Procedure update();
  Procedure swap(const grt_task &task);
  /// The chunk's end of a part of a transfer.
  MessageEnd message(const grt_transfer_part &part) const;

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

  Command &add(CommandKind kind, int32_t layer = -1, int32_t number = -1) {
    Command command;
    command.kind = kind;
    command.layer = layer;
    command.number = number;
    list.push_back(command);
    return list.back();
  }
  void begin(const MovingPlace &place, When when = When::Always) {
    if (!place.bytes)
      return;
    Command &command = add(CommandKind::Begin);
    command.when = when;
    command.to = place;
  }
  void end(const MovingPlace &place) {
    if (place.bytes)
      add(CommandKind::End).to = place;
  }
  void copy(const MovingPlace &to, const MovingPlace &from) {
    Command &command = add(CommandKind::Copy);
    command.to = to;
    command.from = from;
  }
  void useBuffer(int buffer, const MovingPlace &place) {
    if (buffer >= 0)
      add(CommandKind::UseBuffer, -1, buffer).to = place;
  }
  void call(size_t layer, int function, LayerPhase phase) {
    if (function >= 0)
      add(CommandKind::Call, int32_t(layer), function).phase = phase;
  }
  void awaitSums(bool waits) {
    if (waits)
      add(CommandKind::AwaitSum);
  }
  void reshard(int exchange, const MovingPlace &to, const MovingPlace &from) {
    Command &command = add(CommandKind::Reshard, -1, exchange);
    command.to = to;
    command.from = from;
  }
  void startGather(size_t number, LayerPhase phase) {
    if (gatheredOf(number, phase).bytes)
      add(CommandKind::Gather, int32_t(number)).phase = phase;
  }
  void gatherAround(size_t number, LayerPhase phase);
  void takeWaiting(const MovingPlace &to);
  void passGradients(size_t number);
  void backwardReshard(size_t number);
  void sumBehind(size_t number) {
    add(CommandKind::Sum, int32_t(number)).when = When::SumsBehind;
  }
  void swapStates(const Layer &layer, const StepPlaces &places,
                  const grt_task &task);
  MessageEnd stash(const grt_transfer_part &part) const;
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
  std::span<const LayerState> layers;
  const size_t behind; ///< the chunk's last layer
  Procedure list;
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
  if (!full.ahead && !isFirst)
    startGather(number, phase);
  if (full.bytes)
    add(CommandKind::Order, -1, GRT_STREAM_GATHER);
  const size_t next = ascends ? number + 1 : number - 1;
  if (!isLast && gatheredOf(next, phase).ahead)
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

Procedure ChunkLowering::forward() {
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
      list.back().kind = CommandKind::Add;
  }
}

void ChunkLowering::backwardReshard(size_t number) {
  const Layer &layer = at(number);
  if (layer.backwardReshard < 0)
    return;
  const MovingPlace to = gradientBehind(number - 1);
  useBuffer(at(number - 1).gradIn, to);
  begin(to);
  awaitSums(layer.awaitsSums.reshard);
  reshard(layer.backwardReshard, to, gradientInFront(number));
  end(gradientInFront(number));
}

Procedure ChunkLowering::backward(bool isWhole) {
  if (manifest.hasPacks && chunk.recvGradient >= 0)
    takeWaiting(gradientBehind(behind - 1));
  if (manifest.hasPacks)
    for (size_t i = chunk.firstLayer; i < behind; ++i)
      begin(layers[i].places.residentGradients, When::First);
  startGather(behind - 1, LayerPhase::Backward);
  add(CommandKind::UseSlot);
  for (size_t i = behind; i-- > chunk.firstLayer;) {
    const Layer &layer = at(i);
    gatherAround(i, LayerPhase::Backward);
    awaitSums(layer.awaitsSums.backward);
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
    sumBehind(i);
  }
  add(CommandKind::Used);
  return std::move(list);
}

Procedure ChunkLowering::weight() {
  add(CommandKind::UseSlot);
  for (size_t i = behind; i-- > chunk.firstLayer;) {
    awaitSums(at(i).awaitsSums.backward);
    call(i, at(i).weight, LayerPhase::Weight);
    sumBehind(i);
  }
  for (size_t i = chunk.firstLayer; i < behind; ++i)
    end(inputOf(i));
  add(CommandKind::Used);
  return std::move(list);
}

Procedure ChunkLowering::sums() {
  awaitHome();
  for (size_t i = behind; i-- > chunk.firstLayer;)
    add(CommandKind::Sum, int32_t(i));
  return std::move(list);
}

/// Appends the call that adds a layer's squares. Of what several ranks hold
/// alike one of them adds them.
void addSquares(const Role &role, const LayerState &state, size_t number,
                Procedure &list) {
  const Layer &layer = role.layers[number];
  if (layer.norm < 0 || (layer.replicated && !state.isFirst))
    return;
  Command command;
  command.kind = CommandKind::Call;
  command.phase = LayerPhase::Norm;
  command.layer = int32_t(number);
  command.number = layer.norm;
  list.push_back(command);
}

/// Appends the copy of a layer's newest parameters over those a version older,
/// if there are such.
void keepParameters(const Manifest &manifest, const Role &role, size_t number,
                    const StepPlaces &places, Procedure &list) {
  if (!manifest.delay)
    return;
  Command command;
  command.kind = CommandKind::Copy;
  command.from = Extent{role.layers[number].parameter, places.parameterBytes};
  command.to = command.from;
  command.to.offset += manifest.versionStride(role);
  list.push_back(command);
}

Procedure ChunkLowering::update() {
  awaitHome();
  for (size_t i = chunk.firstLayer; i < behind; ++i) {
    const Layer &layer = at(i);
    const StepPlaces &places = layers[i].places;
    keepParameters(manifest, role, i, places, list);
    if (layer.updatesOnDevice)
      addSquares(role, layers[i], i, list);
    call(i, layer.update, LayerPhase::Update);
    if (layer.update >= 0 && !places.gathers.empty())
      add(CommandKind::Collect, int32_t(i));
  }
  for (size_t i = chunk.firstLayer; i < behind; ++i)
    if (at(i).updatesOnDevice)
      end(layers[i].places.residentGradients);
  return std::move(list);
}

/// Brings the input that a chunk recomputes from out of its slot at home.
void ChunkLowering::bringStash() {
  const MovingPlace to = inputOf(chunk.firstLayer);
  const uint64_t each =
      uint64_t(at(chunk.firstLayer).samples) *
      manifest.exchanges[size_t(chunk.recvStash)].bytesPerUnit;
  begin(to);
  Command &command =
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
  Command &command = add(CommandKind::SwapSlot, -1, task.tiers);
  command.stream = task.stream;
  command.to = kept;
  command.from = Extent{
      role.homeSlots.offset + chunk.firstSlot * role.homeSlotBytes, kept.bytes};
  command.from.perPlace = int64_t(role.homeSlotBytes);
}

void ChunkLowering::swapStates(const Layer &layer, const StepPlaces &places,
                               const grt_task &task) {
  const bool out = task.tiers == GRT_TO_HOST;
  const struct {
    grt_swap_class of;
    uint64_t home;
    Extent resident;
  } states[] = {
      {GRT_SWAP_PARAMETERS, layer.parameter, places.residentParameters},
      {GRT_SWAP_GRADIENTS, layer.gradient, places.residentGradients},
      {GRT_SWAP_OPTIMIZER, layer.optimizer, places.residentOptimizer}};
  for (const auto &[of, home, resident] : states) {
    if (!(task.classes & of))
      continue;
    const Extent there{home, resident.bytes};
    Command &command = add(out ? CommandKind::SwapOut : CommandKind::SwapIn,
                           int32_t(&layer - role.layers.data()), of);
    command.stream = task.stream;
    command.to = out ? there : resident;
    command.from = out ? resident : there;
  }
}

Procedure ChunkLowering::swap(const grt_task &task) {
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
      begin(layers[i].places.residentOptimizer);
  for (size_t i = chunk.firstLayer; i < behind; ++i)
    if (at(i).isAway)
      swapStates(at(i), layers[i].places, task);
  if (manifest.hasPacks && out && (task.classes & GRT_SWAP_GRADIENTS))
    for (size_t i = chunk.firstLayer; i < behind; ++i)
      end(layers[i].places.residentGradients);
  if (out && (task.classes & GRT_SWAP_OPTIMIZER))
    for (size_t i = chunk.firstLayer; i < behind; ++i)
      end(layers[i].places.residentOptimizer);
  return std::move(list);
}

/// The end of a message with the input that a chunk recomputes from: on its way
/// to another chunk's home, or to this one's.
MessageEnd ChunkLowering::stash(const grt_transfer_part &part) const {
  MessageEnd message;
  if (part.direction == GRT_RECEIVE) {
    // The sender's, whose layers cut a micro-batch as these do.
    const int64_t samples = manifest.samplesPerMicroBatch(true) /
                            at(chunk.firstLayer).sampleBlocks();
    message.exchange = chunk.recvStash;
    message.isHome = true;
    message.place =
        Extent{role.homeSlots.offset + chunk.firstSlot * role.homeSlotBytes, 0};
    message.place.perPlace = int64_t(role.homeSlotBytes);
    message.place.perPart =
        samples *
        int64_t(manifest.exchanges[size_t(chunk.recvStash)].bytesPerUnit);
    return message;
  }
  const Chunk &receiver = *manifest.chunk(part.peer_chunk);
  message.exchange = receiver.recvStash;
  message.goesHome = true;
  message.place =
      receiver.number + 1 == manifest.chunkCount
          ? outputOf(behind - 1)
          : inputOf(size_t(Manifest::stashLayer(role, chunk, receiver)));
  return message;
}

MessageEnd ChunkLowering::message(const grt_transfer_part &part) const {
  if (part.value == GRT_STASH)
    return stash(part);
  const bool sends = part.direction == GRT_SEND;
  const bool isGradient = part.value == GRT_GRADIENT;
  const Layer &first = at(chunk.firstLayer), &last = at(behind - 1);
  MessageEnd message;
  message.exchange = isGradient
                         ? sends ? chunk.sendGradient : chunk.recvGradient
                     : sends ? chunk.sendActivation
                             : chunk.recvActivation;
  message.place = isGradient ? sends ? gradientInFront(chunk.firstLayer)
                                     : gradientBehind(behind - 1)
                  : sends    ? outputOf(behind - 1)
                             : inputOf(chunk.firstLayer);
  if (!manifest.hasPacks) {
    const bool inSlot = !isGradient && !sends;
    message.shared =
        inSlot ? MessageEnd::Shared::WithSlot : MessageEnd::Shared::WithBuffer;
    message.buffer = !isGradient ? last.outputBuffer
                     : sends     ? first.gradOut
                                 : last.gradIn;
  } else if (!sends) {
    // It waits until its pass takes it.
    message.place = role.waitingExtent(chunk, 0, message.place.bytes);
    message.place.perPlace = -int64_t(chunk.waitingBytes);
  }
  return message;
}

} // namespace

Procedures::Procedures(const Manifest &manifest, const Role &role,
                       std::span<const LayerState> layers,
                       const grt_schedule &schedule) {
  for (const Chunk &chunk : role.chunks) {
    auto lowering = [&] {
      return ChunkLowering(manifest, role, chunk, layers);
    };
    OfChunk &of = chunks.emplace_back();
    of.passes[GRT_TASK_FORWARD] = lowering().forward();
    of.passes[GRT_TASK_SYNC_GRADIENTS] = lowering().sums();
    of.passes[GRT_TASK_UPDATE] = lowering().update();
    of.passes[GRT_TASK_BACKWARD] = lowering().backward(/*isWhole=*/true);
    of.passes[GRT_TASK_BACKWARD_INPUT] = lowering().backward(false);
    of.passes[GRT_TASK_BACKWARD_WEIGHT] = lowering().weight();
    for (const grt_task_list &list : schedule.parts)
      for (const grt_task &task : std::span(list.tasks, list.count))
        if (task.kind == GRT_TASK_SWAP && task.chunk == chunk.number)
          if (auto [at, isNew] = of.swaps.try_emplace(swapKey(task)); isNew)
            at->second = lowering().swap(task);
  }
  for (const grt_transfer_part &part :
       std::span(schedule.transfers, schedule.transfer_count))
    messages.push_back(
        ChunkLowering(manifest, role, *role.chunk(part.chunk), layers)
            .message(part));
  for (size_t i = 0; i < layers.size(); ++i) {
    keepParameters(manifest, role, i, layers[i].places, copies);
    if (!role.layers[i].updatesOnDevice)
      addSquares(role, layers[i], i, squares);
  }
}

} // namespace grt
