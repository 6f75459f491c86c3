//===- GRTRoleOps.cpp - Roles, exchanges and schedules --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/IR/KernelCalls.h"
#include "galvatron/Dialect/Galvatron/IR/Views.h"
#include "galvatron/Schedule/SwapOrder.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace mlir::grt;

/// Checks that `symbol`, if there, names a `T`.
template <typename T>
static LogicalResult verifySymbol(Operation *op, FlatSymbolRefAttr symbol,
                                  StringRef what,
                                  SymbolTableCollection &tables) {
  if (!symbol || tables.lookupNearestSymbolFrom<T>(op, symbol))
    return success();
  return op->emitOpError() << "expected " << what << " to name a '"
                           << T::getOperationName() << "', found '"
                           << symbol.getValue() << "'";
}

//===----------------------------------------------------------------------===//
// ExchangeOp
//===----------------------------------------------------------------------===//

LogicalResult ExchangeOp::verify() {
  ArrayRef<int64_t> numbers = getTransfers();
  if (numbers.size() % 5 != 0)
    return emitOpError() << "expected transfers of 5 numbers, found "
                         << numbers.size() << " numbers in all";
  if (std::optional<ArrayRef<int64_t>> tensors = getTensors()) {
    int64_t bytes = 0;
    for (size_t i = 0; i < tensors->size(); i += 3)
      bytes += (*tensors)[i];
    if (tensors->empty() || tensors->size() % 3 != 0 ||
        llvm::any_of(*tensors, [](int64_t n) { return n < 0; }) ||
        bytes != getBytesPerUnit())
      return emitOpError() << "expected tensors of 3 numbers, none negative, "
                              "whose bytes add up to "
                           << getBytesPerUnit() << ", found " << tensors->size()
                           << " numbers and " << bytes << " bytes";
  }
  llvm::DenseMap<int64_t, SmallVector<std::pair<int64_t, int64_t>>> written;
  for (size_t i = 0; i < numbers.size(); i += 5) {
    ArrayRef<int64_t> transfer = numbers.slice(i, 5);
    if (llvm::any_of(transfer, [](int64_t n) { return n < 0; }))
      return emitOpError() << "expected no negative number, found one in "
                              "transfer "
                           << i / 5;
    if (transfer[4] < 1)
      return emitOpError() << "expected at least 1 unit, found none in "
                              "transfer "
                           << i / 5;
    written[transfer[1]].push_back({transfer[3], transfer[3] + transfer[4]});
  }
  for (auto &[rank, ranges] : written) {
    llvm::sort(ranges);
    for (size_t i = 1; i < ranges.size(); ++i)
      if (ranges[i].first < ranges[i - 1].second)
        return emitOpError()
               << "expected every unit to be written once, found "
                  "unit "
               << ranges[i].first << " of rank " << rank << " written twice";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// RoleOp, LayerOp
//===----------------------------------------------------------------------===//

LogicalResult RoleOp::verify() {
  if (getDevices().empty())
    return emitOpError("expected at least one device, found none");
  llvm::SmallDenseSet<int64_t> seen;
  for (int64_t device : getDevices()) {
    if (device < 0)
      return emitOpError() << "expected device numbers that are not negative, "
                              "found "
                           << device;
    if (!seen.insert(device).second)
      return emitOpError() << "expected distinct devices, found " << device
                           << " twice";
  }
  if (getSlots() < (getWaitingPlaces() ? 0 : 1))
    return emitOpError() << "expected at least one slot, found " << getSlots();
  if (getWaitingPlaces().value_or(0) < 0)
    return emitOpError() << "expected no negative number of waiting places, "
                            "found "
                         << *getWaitingPlaces();
  return success();
}

/// Checks where a layer, the role's layer `number`, finds tensors.
static LogicalResult verifyRows(LayerOp layer, int64_t number) {
  auto verify = [&](ArrayRef<int64_t> rows, size_t length,
                    StringRef what) -> LogicalResult {
    if (rows.size() % length != 0 ||
        llvm::any_of(rows, [](int64_t n) { return n < 0; }))
      return layer.emitOpError()
             << "expected rows of " << length << " numbers in '" << what
             << "', none negative, found " << rows.size() << " numbers";
    for (size_t i = 0; i < rows.size(); i += length) {
      ArrayRef<int64_t> row = rows.slice(i, length);
      bool passes = length == LayerOp::kPassRow;
      int64_t bytes = row[passes ? 4 : 3];
      if (row[0] > number)
        return layer.emitOpError()
               << "expected a holder in front of layer " << number
               << " of the role in '" << what << "', found " << row[0];
      if (row[2] + bytes > layer.getFront() ||
          (passes && row[3] + bytes > layer.getBehind()))
        return layer.emitOpError()
               << "expected a tensor within the " << layer.getFront()
               << " bytes in front and the " << layer.getBehind()
               << " behind in '" << what << "', found row " << i / length;
    }
    return success();
  };
  return success(
      succeeded(verify(layer.getInputRows(), LayerOp::kInputRow, "inputs")) &&
      succeeded(verify(layer.getPassRows(), LayerOp::kPassRow, "passes")));
}

/// Where a role has `grt.chunk`s: that they make sense of all its layers.
static LogicalResult verifyChunks(RoleOp role) {
  SmallVector<ChunkOp> chunks(role.getLayers().getOps<ChunkOp>());
  if (chunks.empty())
    return success();
  if (!isa<ChunkOp>(role.getLayers().front().front()))
    return role.emitOpError("expected a 'grt.chunk' in front of all layers, "
                            "found one behind a layer");
  for (FlatSymbolRefAttr exchange :
       {role.getSendActivationAttr(), role.getRecvActivationAttr(),
        role.getSendGradientAttr(), role.getRecvGradientAttr()})
    if (exchange)
      return role.emitOpError()
             << "expected exchanges of its chunks, found its own '"
             << exchange.getValue() << "'";
  int64_t slots = 0, last = -1;
  for (ChunkOp chunk : chunks) {
    if (chunk.getNumber() <= last)
      return chunk.emitOpError() << "expected chunk numbers to ascend, found "
                                 << chunk.getNumber() << " after " << last;
    last = chunk.getNumber();
    slots += chunk.getSlots();
    Operation *next = chunk->getNextNode();
    if (!next || isa<ChunkOp>(next))
      return chunk.emitOpError(
          "expected at least one layer behind it, found none");
  }
  if (slots != role.getSlots())
    return role.emitOpError()
           << "expected " << slots << " slots as its chunks have, found "
           << role.getSlots();
  return success();
}

LogicalResult ChunkOp::verify() {
  if (getNumber() < 0 || getNumber() > UINT16_MAX)
    return emitOpError() << "expected a number below 65536, found "
                         << getNumber();
  bool ofPacks = bool((*this)->getParentOfType<RoleOp>().getWaitingPlaces());
  if (getSlots() < (ofPacks ? 0 : 1))
    return emitOpError() << "expected at least one slot, found " << getSlots();
  if (bool(getStashFrom()) != bool(getRecvStash()) ||
      (getForwardOnly() && getRecvStash()))
    return emitOpError("expected 'stash_from' and 'recv_stash' together, on a "
                       "chunk that runs backward, found ")
           << (getForwardOnly() ? "a chunk that runs forward" : "one alone");
  return success();
}

/// That the exchanges of a role or of a chunk are there.
template <typename Op>
static LogicalResult verifyExchanges(Op op, SymbolTableCollection &tables) {
  return success(
      succeeded(verifySymbol<ExchangeOp>(op, op.getSendActivationAttr(),
                                         "send_activation", tables)) &&
      succeeded(verifySymbol<ExchangeOp>(op, op.getRecvActivationAttr(),
                                         "recv_activation", tables)) &&
      succeeded(verifySymbol<ExchangeOp>(op, op.getSendGradientAttr(),
                                         "send_gradient", tables)) &&
      succeeded(verifySymbol<ExchangeOp>(op, op.getRecvGradientAttr(),
                                         "recv_gradient", tables)));
}

LogicalResult ChunkOp::verifySymbolUses(SymbolTableCollection &tables) {
  return success(succeeded(verifyExchanges(*this, tables)) &&
                 succeeded(verifySymbol<ExchangeOp>(*this, getRecvStashAttr(),
                                                    "recv_stash", tables)));
}

LogicalResult RoleOp::verifyRegions() {
  int64_t last = -1, number = 0;
  if (failed(verifyChunks(*this)))
    return failure();
  bool forwardOnly = false;
  for (Operation &op : getLayers().front()) {
    if (auto chunk = dyn_cast<ChunkOp>(op)) {
      if (std::exchange(forwardOnly, chunk.getForwardOnly()) != forwardOnly)
        last = -1;
      continue;
    }
    auto layer = dyn_cast<LayerOp>(op);
    if (!layer)
      return op.emitOpError("expected only 'grt.layer' in a role, found this");
    if (layer.getIndex() <= last)
      return layer.emitOpError() << "expected layer indices to ascend, found "
                                 << layer.getIndex() << " after " << last;
    last = layer.getIndex();
    if (failed(verifyRows(layer, number++)))
      return failure();
  }
  if (number == 0)
    return emitOpError("expected at least one layer, found none");
  return success();
}

LogicalResult RoleOp::verifySymbolUses(SymbolTableCollection &tables) {
  return verifyExchanges(*this, tables);
}

LogicalResult LayerOp::verify() {
  if (getSamples() < 1)
    return emitOpError() << "expected at least one sample, found "
                         << getSamples();
  // A layer whose backward pass needs nothing but its input, like an embedding,
  // has nothing to recompute.
  if (getRecomputeAttr() && !getStrategy().getCheckpoint())
    return emitOpError()
           << "expected a recompute function only if the strategy "
              "checkpoints, found strategy '"
           << getStrategy().getNotation() << "'";
  if (getWeightAttr() && getRecomputeAttr())
    return emitOpError("expected a weight part only of a layer that is not "
                       "recomputed, found both");
  return mlir::galvatron::LayoutAttr::verifyParameters(
      [&] { return emitOpError(); }, getTensors(), getGroups());
}

/// (C10) Checks the segments of the calls in a layer's update or norm function.
static LogicalResult verifySegments(LayerOp layer, FlatSymbolRefAttr symbol,
                                    SymbolTableCollection &tables) {
  auto func =
      symbol ? tables.lookupNearestSymbolFrom<FuncOp>(layer, symbol) : FuncOp();
  if (!func)
    return success();
  for (KernelOp call : func.getBody().getOps<KernelOp>())
    for (auto [begin, length] : getSegments(call))
      if (llvm::none_of(
              layer.getTensors().getAsRange<mlir::galvatron::FlatTensorAttr>(),
              [&](auto tensor) {
                return tensor.getGroup() == 0 && tensor.getOffset() == begin &&
                       ShapedType::getNumElements(
                           tensor.getLocalShape().asArrayRef()) == length;
              }))
        return (layer.emitOpError()
                << "expected segments that are tensors of the layer, found "
                << length << " elements at " << begin)
                   .attachNote(call.getLoc())
               << "in this call";
  return success();
}

LogicalResult LayerOp::verifySymbolUses(SymbolTableCollection &tables) {
  size_t devices =
      getOperation()->getParentOfType<RoleOp>().getDevices().size();
  if (getStrategy().getDevices() != static_cast<int64_t>(devices))
    return emitOpError() << "expected a strategy for the role's " << devices
                         << " devices, found '" << getStrategy().getNotation()
                         << "' for " << getStrategy().getDevices();
  // (C9)
  auto module = getOperation()->getParentOfType<ModuleOp>();
  for (auto tensor :
       getTensors().getAsRange<mlir::galvatron::FlatTensorAttr>()) {
    Operation *found = tables.lookupSymbolIn(module, tensor.getParameter());
    if (!isa_and_nonnull<mlir::galvatron::ParameterOp>(found))
      return emitOpError() << "expected tensor " << tensor.getParameter()
                           << " to name a 'galvatron.parameter', found "
                           << (found ? "another operation" : "no such symbol");
    RankedTensorType declared =
        cast<mlir::galvatron::ParameterOp>(found).getTensorType();
    ArrayRef<int64_t> view = tensor.getView().asArrayRef();
    if (int64_t elements = ShapedType::getNumElements(view);
        elements != declared.getNumElements())
      return emitOpError() << "expected tensor " << tensor.getParameter()
                           << " to have a view of the "
                           << declared.getNumElements() << " elements of "
                           << declared << ", found " << elements;
    if (!mlir::galvatron::areViews(view, declared.getShape()))
      return emitOpError() << "expected tensor " << tensor.getParameter()
                           << " to have a view whose rows end where those of "
                           << declared << " do, found " << tensor.getView();
  }
  // (C2)
  auto model = module->getAttrOfType<ModelAttr>(kModelAttr);
  if (model && getData())
    for (StringRef name : getData()->getAsValueRange<StringAttr>())
      if (llvm::none_of(model.getData().getAsRange<mlir::galvatron::DataAttr>(),
                        [&](auto datum) { return datum.getName() == name; }))
        return emitOpError()
               << "expected data of 'grt.model', found '" << name << "'";
  return success(
      succeeded(
          verifySymbol<FuncOp>(*this, getForwardAttr(), "forward", tables)) &&
      succeeded(verifySymbol<FuncOp>(*this, getRecomputeAttr(), "recompute",
                                     tables)) &&
      succeeded(
          verifySymbol<FuncOp>(*this, getBackwardAttr(), "backward", tables)) &&
      succeeded(
          verifySymbol<FuncOp>(*this, getWeightAttr(), "weight", tables)) &&
      succeeded(
          verifySymbol<FuncOp>(*this, getUpdateAttr(), "update", tables)) &&
      succeeded(verifySymbol<FuncOp>(*this, getNormAttr(), "norm", tables)) &&
      succeeded(verifySegments(*this, getUpdateAttr(), tables)) &&
      succeeded(verifySegments(*this, getNormAttr(), tables)) &&
      succeeded(verifySymbol<ExchangeOp>(*this, getForwardReshardAttr(),
                                         "forward_reshard", tables)) &&
      succeeded(verifySymbol<ExchangeOp>(*this, getBackwardReshardAttr(),
                                         "backward_reshard", tables)));
}

//===----------------------------------------------------------------------===//
// ScheduleOp, PartOp, TaskOp
//===----------------------------------------------------------------------===//

/// Whether it runs layers of a micro-batch.
static bool computes(TaskKind kind) {
  return kind == TaskKind::Forward || kind == TaskKind::Backward ||
         kind == TaskKind::BackwardInput || kind == TaskKind::BackwardWeight;
}

LogicalResult ScheduleOp::verifyRegions() {
  int64_t last = -1;
  for (Operation &op : getParts().front()) {
    auto part = dyn_cast<PartOp>(op);
    if (!part)
      return op.emitOpError(
          "expected only 'grt.part' in a schedule, found this");
    auto number = static_cast<int64_t>(part.getPart());
    if (number <= last)
      return part.emitOpError()
             << "expected parts in order and each once, found '"
             << stringifyPart(part.getPart()) << "' after '"
             << stringifyPart(static_cast<Part>(last)) << "'";
    last = number;
  }
  return success();
}

LogicalResult ScheduleOp::verifySymbolUses(SymbolTableCollection &tables) {
  auto role = tables.lookupNearestSymbolFrom<RoleOp>(*this, getRoleAttr());
  if (!role)
    return emitOpError() << "expected role to name a 'grt.role', found '"
                         << getRole() << "'";
  llvm::SmallDenseSet<int64_t> numbers;
  for (auto chunk : role.getLayers().getOps<ChunkOp>())
    numbers.insert(chunk.getNumber());
  if (numbers.empty())
    numbers.insert(role.getStage());
  for (auto part : getParts().getOps<PartOp>())
    for (auto task : part.getTasks().getOps<TaskOp>()) {
      // What takes a place of packs and does not name one has 0.
      int64_t slots = role.getSlots();
      if (auto places = role.getWaitingPlaces())
        slots = std::max({slots, int64_t(*places), int64_t(1)});
      if (task.getSlot() && *task.getSlot() >= slots)
        return task.emitOpError()
               << "expected one of the " << slots << " slots of '" << getRole()
               << "', found " << *task.getSlot();
      SmallVector<int64_t> named(
          task.getChunks().value_or(ArrayRef<int64_t>()));
      if (task.getChunk())
        named.push_back(*task.getChunk());
      for (int64_t number : named)
        if (!numbers.contains(number))
          return task.emitOpError() << "expected a chunk of '" << getRole()
                                    << "', found " << number;
      bool ofChunk = computes(task.getKind()) ||
                     task.getKind() == TaskKind::Transfer ||
                     task.getKind() == TaskKind::SyncGradients ||
                     task.getKind() == TaskKind::Update ||
                     task.getKind() == TaskKind::Swap;
      if (ofChunk && named.empty() && numbers.size() > 1)
        return task.emitOpError() << "expected the chunk of '" << getRole()
                                  << "' that it is of, found none";
    }
  return success();
}

LogicalResult PartOp::verifyRegions() {
  for (Operation &op : getTasks().front())
    if (!isa<TaskOp>(op))
      return op.emitOpError("expected only 'grt.task' in a part, found this");
  return success();
}

LogicalResult TaskOp::verify() {
  for (std::optional<int64_t> number :
       {getMicroBatch(), getSendActivation(), getRecvActivation(),
        getSendGradient(), getRecvGradient(), getSendStash(), getRecvStash(),
        getSlot()})
    if (number && (*number < 0 || *number > UINT32_MAX))
      return emitOpError() << "expected numbers of 0 to " << UINT32_MAX
                           << ", found " << *number;
  if (getSlot() && *getSlot() > UINT16_MAX)
    return emitOpError() << "expected a slot below 65536, found " << *getSlot();

  if (getSyncBehind() && getKind() != TaskKind::Backward &&
      getKind() != TaskKind::BackwardWeight)
    return emitOpError() << "expected 'sync_behind' on a backward task or its "
                            "weight part only, found it on '"
                         << stringifyTaskKind(getKind()) << "'";

  if (getGeneration() && getKind() != TaskKind::Forward)
    return emitOpError() << "expected a generation of a forward task only, "
                            "found it on '"
                         << stringifyTaskKind(getKind()) << "'";
  if (getGenerations() && getKind() != TaskKind::Transfer)
    return emitOpError() << "expected generations of messages in a transfer "
                            "only, found them in '"
                         << stringifyTaskKind(getKind()) << "'";
  SmallVector<int64_t> generations(
      getGenerations().value_or(ArrayRef<int64_t>()));
  generations.push_back(getGeneration().value_or(0));
  for (int64_t generation : generations)
    if (generation < 0 || generation > UINT8_MAX)
      return emitOpError() << "expected generations of 0 to " << UINT8_MAX
                           << ", found " << generation;

  // (C9)
  bool states = getParameters() || getGradients();
  bool moves = states || getActivations() || getOptimizer();
  if ((moves || getOut()) && getKind() != TaskKind::Swap)
    return emitOpError() << "expected 'out', 'parameters', 'gradients', "
                            "'activations' and 'optimizer' on a swap only, "
                            "found one on '"
                         << stringifyTaskKind(getKind()) << "'";
  // New parameters go home with the optimizer state that made them.
  bool alone = int(states) + int(getActivations()) + int(getOptimizer()) == 1;
  bool updated = getOut() && getParameters() && getOptimizer() &&
                 !getGradients() && !getActivations();
  if (getKind() == TaskKind::Swap && !updated &&
      (!alone || (getOut() && (getParameters() || getOptimizer()))))
    return emitOpError(
        "expected a swap to bring 'parameters', 'gradients' or both, "
        "'activations' or 'optimizer', or to take 'gradients', 'activations' "
        "or 'parameters optimizer' out");
  if (getActivations() && (!getMicroBatch() || !getSlot()))
    return emitOpError(
        "expected a micro-batch and a slot for 'activations', found none");

  // (C10)
  Stream wanted = getOut() ? Stream::Out : Stream::In;
  if (getStream() && (getKind() != TaskKind::Swap || *getStream() != wanted))
    return emitOpError() << "expected a swap on '" << stringifyStream(wanted)
                         << "' or no stream, found '"
                         << stringifyTaskKind(getKind()) << "' on '"
                         << stringifyStream(*getStream()) << "'";
  SmallVector<int64_t> events(getAfter().value_or(ArrayRef<int64_t>()));
  const size_t most = ::galvatron::Task().waits.size();
  if (events.size() > most)
    return emitOpError() << "expected to wait for at most " << most
                         << " events, found " << events.size();
  if (getRecords())
    events.push_back(*getRecords());
  for (int64_t event : events)
    if (event < 1 || event > ::galvatron::kScheduleEvents)
      return emitOpError() << "expected events of 1 to "
                           << int(::galvatron::kScheduleEvents) << ", found "
                           << event;

  bool sends = getSendActivation() || getSendGradient() || getSendStash();
  bool receives = getRecvActivation() || getRecvGradient() || getRecvStash();
  if (computes(getKind())) {
    if (!getMicroBatch() || !getSlot())
      return emitOpError() << "expected a micro-batch and a slot for '"
                           << stringifyTaskKind(getKind()) << "', found none";
  }
  if (getChunk() &&
      (getKind() == TaskKind::Transfer || getKind() == TaskKind::Norm ||
       getKind() == TaskKind::TieReduce || getKind() == TaskKind::TieBroadcast))
    return emitOpError() << "expected no chunk for '"
                         << stringifyTaskKind(getKind()) << "', found one";
  if ((getChunks() || getPeers()) && getKind() != TaskKind::Transfer)
    return emitOpError() << "expected chunks of messages in a transfer only, "
                            "found them in '"
                         << stringifyTaskKind(getKind()) << "'";
  if (getKind() != TaskKind::Transfer) {
    if (sends || receives)
      return emitOpError() << "expected sends and receives in a transfer only, "
                              "found one in '"
                           << stringifyTaskKind(getKind()) << "'";
    return success();
  }
  if (!sends && !receives)
    return emitOpError(
        "expected a transfer to send or to receive, found neither");
  size_t messages = llvm::count_if(
      SmallVector<std::optional<int64_t>>{
          getSendActivation(), getSendGradient(), getRecvActivation(),
          getRecvGradient(), getSendStash(), getRecvStash()},
      [](std::optional<int64_t> batch) { return batch.has_value(); });
  if (getGenerations() && getGenerations()->size() != messages)
    return emitOpError() << "expected a generation for each of " << messages
                         << " messages, found " << getGenerations()->size();
  if (getChunks() && getChunks()->size() != messages)
    return emitOpError() << "expected a chunk for each of " << messages
                         << " messages, found " << getChunks()->size();
  if (getPeers() && getPeers()->size() != messages)
    return emitOpError() << "expected a peer for each of " << messages
                         << " messages, found " << getPeers()->size();
  if (getRecvActivation() && !getSlot())
    return emitOpError(
        "expected a slot for the received activation, found none");
  if (getRecvStash() && !getSlot())
    return emitOpError("expected a slot for the received stash, found none");
  return success();
}
