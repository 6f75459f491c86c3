//===- TaskPrograms.cpp - Reading roles and schedules from the IR ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Dialect/GRT/Transforms/Roles.h"
#include "galvatron/Schedule/Schedule.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::grt;
using ::galvatron::kTransferMessages;
using ::galvatron::RoleProgram;
using ::galvatron::SchedulePart;
using ::galvatron::Task;
using ::galvatron::TaskProgram;
using ::galvatron::TransferDirection;
using ::galvatron::TransferPart;
using ::galvatron::TransferValue;

namespace {

// The library without MLIR has enumerations of its own; the numbers are those
// of the C ABI in both.
static_assert(uint32_t(TaskKind::BackwardWeight) ==
              uint32_t(::galvatron::TaskKind::BackwardWeight));
static_assert(uint32_t(TaskKind::Swap) ==
              uint32_t(::galvatron::TaskKind::Swap));
static_assert(uint32_t(Part::Evaluate) == uint32_t(SchedulePart::Evaluate));

/// The one received message of a transfer that the slot is of; null if none.
const TransferPart *filledBy(ArrayRef<TransferPart> parts) {
  for (TransferValue value : {TransferValue::Stash, TransferValue::Activation,
                              TransferValue::Gradient})
    for (const TransferPart &part : parts)
      if (!part.sends() && part.value == value)
        return &part;
  return nullptr;
}

TaskOp buildTask(OpBuilder &builder, Location loc, const Task &task,
                 const TaskProgram &program) {
  bool several = program.hasSeveralChunks();
  auto kind = static_cast<TaskKind>(task.kind);
  auto number = [&](bool there, int64_t value) {
    return there ? builder.getI64IntegerAttr(value) : IntegerAttr();
  };
  bool swapsSlot = task.classes & ::galvatron::SwapActivations;
  bool runs = task.computes() || swapsSlot;
  auto batchOf = [&](TransferDirection direction, TransferValue value) {
    const TransferPart *part = task.part(direction, value);
    return number(part, part ? part->microBatch : 0);
  };
  SmallVector<int64_t> chunks, peers, generations;
  for (auto [direction, value] : kTransferMessages)
    if (const TransferPart *part = task.part(direction, value)) {
      chunks.push_back(part->chunk);
      peers.push_back(part->peerChunk);
      generations.push_back(part->generation);
    }
  bool goesOn = llvm::any_of(generations,
                             [](int64_t generation) { return generation > 0; });
  const TransferPart *filled = filledBy(task.parts);
  if (filled && filled->isGradient() && !program.hasPacks)
    filled = nullptr; // has no place of its own
  bool behind = task.endsGradients() && (task.flags & ::galvatron::SyncBehind);
  return TaskOp::create(
      builder, loc, TaskKindAttr::get(builder.getContext(), kind),
      number(several && task.isOfChunk(), task.chunk),
      number(runs, task.microBatch),
      batchOf(TransferDirection::Send, TransferValue::Activation),
      batchOf(TransferDirection::Receive, TransferValue::Activation),
      batchOf(TransferDirection::Send, TransferValue::Gradient),
      batchOf(TransferDirection::Receive, TransferValue::Gradient),
      number(runs || filled, filled ? filled->slot : task.slot),
      several && !chunks.empty() ? builder.getDenseI64ArrayAttr(chunks)
                                 : DenseI64ArrayAttr(),
      number(task.generation > 0, task.generation),
      goesOn ? builder.getDenseI64ArrayAttr(generations) : DenseI64ArrayAttr(),
      behind ? builder.getUnitAttr() : UnitAttr(),
      task.out ? builder.getUnitAttr() : UnitAttr(),
      task.classes & ::galvatron::SwapParameters ? builder.getUnitAttr()
                                                 : UnitAttr(),
      task.classes & ::galvatron::SwapGradients ? builder.getUnitAttr()
                                                : UnitAttr(),
      swapsSlot ? builder.getUnitAttr() : UnitAttr(),
      task.classes & ::galvatron::SwapOptimizer ? builder.getUnitAttr()
                                                : UnitAttr(),
      batchOf(TransferDirection::Send, TransferValue::Stash),
      batchOf(TransferDirection::Receive, TransferValue::Stash),
      program.hasPacks && !peers.empty() ? builder.getDenseI64ArrayAttr(peers)
                                         : DenseI64ArrayAttr(),
      /*stream=*/StreamAttr(), /*after=*/DenseI64ArrayAttr(),
      /*records=*/IntegerAttr());
}

/// Highest micro-batch that any task of the program runs, plus one.
int64_t countMicroBatches(const TaskProgram &program) {
  int64_t count = 1;
  for (const RoleProgram &role : program.roles)
    for (const std::vector<Task> &part : role.parts)
      for (const Task &task : part)
        count = std::max<int64_t>(count, int64_t(task.microBatch) + 1);
  return count;
}

} // namespace

SmallVector<mlir::galvatron::DataAttr>
mlir::grt::getModelData(ModuleOp module) {
  auto model = module->getAttrOfType<ModelAttr>(kModelAttr);
  if (!model)
    return {};
  return llvm::to_vector(
      model.getData().getAsRange<mlir::galvatron::DataAttr>());
}

FailureOr<SmallVector<int64_t>>
mlir::grt::getLayerData(LayerOp layer,
                        ArrayRef<mlir::galvatron::DataAttr> data) {
  SmallVector<int64_t> positions;
  if (!layer.getData())
    return positions;
  for (StringRef name : layer.getData()->getAsValueRange<StringAttr>()) {
    const auto *found =
        llvm::find_if(data, [&](mlir::galvatron::DataAttr datum) {
          return datum.getName() == name;
        });
    if (found == data.end())
      return layer.emitOpError() << "reads '" << name << "', expected data of '"
                                 << kModelAttr << "'";
    positions.push_back(found - data.begin());
  }
  return positions;
}

FailureOr<SmallVector<RoleOp>> mlir::grt::getRoles(ModuleOp module) {
  SmallVector<RoleOp> roles(module.getOps<RoleOp>());
  llvm::stable_sort(
      roles, [](RoleOp a, RoleOp b) { return a.getStage() < b.getStage(); });
  llvm::SmallDenseMap<int64_t, RoleOp> owners;
  for (auto [number, role] : llvm::enumerate(roles)) {
    if (role.getStage() != int64_t(number))
      return role.emitOpError() << "expected stages 0 to " << roles.size() - 1
                                << ", each once, found " << role.getStage();
    for (int64_t device : role.getDevices()) {
      auto [it, inserted] = owners.try_emplace(device, role);
      if (inserted)
        continue;
      InFlightDiagnostic diagnostic =
          role.emitOpError()
          << "expected devices of its own, found device " << device
          << " of role '" << it->second.getSymName() << "'";
      diagnostic.attachNote(it->second.getLoc()) << "which stands here";
      return diagnostic;
    }
  }
  return roles;
}

Task mlir::grt::readTask(TaskOp op, int64_t only) {
  Task task;
  task.kind = static_cast<::galvatron::TaskKind>(op.getKind());
  task.microBatch = op.getMicroBatch().value_or(0);
  task.generation = op.getGeneration().value_or(0);
  if (op.getSyncBehind())
    task.flags |= ::galvatron::SyncBehind;
  task.out = op.getOut();
  if (op.getParameters())
    task.classes |= ::galvatron::SwapParameters;
  if (op.getGradients())
    task.classes |= ::galvatron::SwapGradients;
  if (op.getActivations())
    task.classes |= ::galvatron::SwapActivations;
  if (op.getOptimizer())
    task.classes |= ::galvatron::SwapOptimizer;
  if (op.getStream())
    task.stream = static_cast<::galvatron::TaskStream>(*op.getStream());
  task.records = static_cast<uint8_t>(op.getRecords().value_or(0));
  llvm::copy(op.getAfter().value_or(ArrayRef<int64_t>()), task.waits.begin());
  if (task.isOfChunk()) {
    task.chunk = op.getChunk().value_or(only);
    task.slot = op.getSlot().value_or(0);
  }
  const std::optional<int64_t> batches[] = {
      op.getSendActivation(), op.getSendGradient(), op.getRecvActivation(),
      op.getRecvGradient(),   op.getSendStash(),    op.getRecvStash()};
  std::optional<ArrayRef<int64_t>> peers = op.getPeers();
  std::optional<ArrayRef<int64_t>> chunks = op.getChunks();
  std::optional<ArrayRef<int64_t>> generations = op.getGenerations();
  for (auto [message, batch] : llvm::zip_equal(kTransferMessages, batches)) {
    if (!batch)
      continue;
    TransferPart part;
    std::tie(part.direction, part.value) = message;
    part.chunk = chunks ? (*chunks)[task.parts.size()] : only;
    part.peerChunk = peers ? (*peers)[task.parts.size()]
                     : part.sends() != part.isGradient() ? part.chunk + 1
                                                         : part.chunk - 1;
    part.microBatch = *batch;
    if (generations)
      part.generation = (*generations)[task.parts.size()];
    task.parts.push_back(part);
  }
  if (const TransferPart *filled = filledBy(task.parts))
    task.parts[filled - task.parts.data()].slot = op.getSlot().value_or(0);
  return task;
}

SmallVector<RoleChunk> mlir::grt::getChunks(RoleOp role) {
  SmallVector<RoleChunk> chunks;
  auto begin = [&](auto op, int64_t number, size_t firstLayer) {
    chunks.push_back({op, number, op.getSlots(), op.getSendActivationAttr(),
                      op.getRecvActivationAttr(), op.getSendGradientAttr(),
                      op.getRecvGradientAttr(), firstLayer});
  };
  if (role.getLayers().getOps<ChunkOp>().empty())
    begin(role, role.getStage(), 0);
  size_t layers = 0;
  for (Operation &op : role.getLayers().front()) {
    if (auto chunk = dyn_cast<ChunkOp>(op)) {
      begin(chunk, chunk.getNumber(), layers);
      RoleChunk &made = chunks.back();
      made.forwardOnly = chunk.getForwardOnly();
      made.stashFrom = chunk.getStashFrom().value_or(-1);
      made.recvStash = chunk.getRecvStashAttr();
      continue;
    }
    chunks.back().layers.push_back(cast<LayerOp>(op));
    ++layers;
  }
  return chunks;
}

int64_t mlir::grt::getLayerWithStates(RoleOp role, LayerOp layer) {
  int64_t found = -1;
  for (const RoleChunk &chunk : getChunks(role))
    for (auto [i, other] : llvm::enumerate(chunk.layers)) {
      LayerOp op = other;
      if (op == layer && !chunk.forwardOnly)
        return -1;
      if (op != layer && op.getIndex() == layer.getIndex() &&
          !chunk.forwardOnly)
        found = int64_t(chunk.firstLayer + i);
    }
  return found;
}

FailureOr<SmallVector<PlacedChunk>>
mlir::grt::getChunks(ArrayRef<RoleOp> roles) {
  SmallVector<PlacedChunk> chunks;
  for (auto [number, role] : llvm::enumerate(roles))
    for (RoleChunk &chunk : getChunks(role))
      chunks.push_back({std::move(chunk), number});
  llvm::stable_sort(chunks, [](const PlacedChunk &a, const PlacedChunk &b) {
    return a.chunk.number < b.chunk.number;
  });
  for (auto [number, placed] : llvm::enumerate(chunks))
    if (placed.chunk.number != int64_t(number))
      return placed.chunk.op->emitOpError()
             << "expected chunks 0 to " << chunks.size() - 1
             << ", each once, found " << placed.chunk.number;
  return chunks;
}

std::vector<::galvatron::Strategy>
mlir::grt::getStrategies(ArrayRef<LayerOp> layers) {
  std::vector<::galvatron::Strategy> strategies;
  for (LayerOp layer : layers)
    strategies.push_back(layer.getStrategy().toStrategy());
  return strategies;
}

std::vector<::galvatron::Strategy> mlir::grt::getStrategies(RoleOp role) {
  return getStrategies(
      SmallVector<LayerOp>(role.getLayers().getOps<LayerOp>()));
}

FailureOr<SmallVector<TiedTensor>> mlir::grt::getTies(ArrayRef<RoleOp> roles) {
  llvm::DenseMap<StringAttr, TensorPlace> owners;
  SmallVector<std::tuple<StringAttr, TensorPlace, LayerOp>> borrowers;
  for (auto [r, role] : llvm::enumerate(roles)) {
    RoleOp roleOp = role;
    for (auto [l, layer] :
         llvm::enumerate(roleOp.getLayers().getOps<LayerOp>()))
      for (auto [t, tensor] : llvm::enumerate(
               layer.getTensors()
                   .getAsRange<mlir::galvatron::FlatTensorAttr>())) {
        StringAttr name = tensor.getParameter().getAttr();
        TensorPlace place{int64_t(r), int64_t(l), int64_t(t)};
        // What runs forward only where its states are has no copy of them.
        if (tensor.getGroup() != 0 && getLayerWithStates(roleOp, layer) >= 0)
          continue;
        if (tensor.getGroup() % mlir::galvatron::kTrainedGroups != 0) {
          // What is not trained has the same values in both from the beginning.
          if (tensor.getGroup() < mlir::galvatron::kTrainedGroups)
            borrowers.push_back({name, place, layer});
          continue;
        }
        if (!owners.try_emplace(name, place).second)
          return layer.emitOpError() << "expected one owner of parameter '"
                                     << name.getValue() << "', found a second";
      }
  }
  SmallVector<TiedTensor> ties;
  for (auto &[name, place, layer] : borrowers) {
    auto owner = owners.find(name);
    if (owner == owners.end())
      return layer.emitOpError()
             << "expected an owner of the parameter '" << name.getValue()
             << "' that is borrowed, found none";
    ties.push_back({name, owner->second, place});
  }
  llvm::stable_sort(ties, [](const TiedTensor &a, const TiedTensor &b) {
    return std::tie(a.borrower.role, a.borrower.layer, a.borrower.tensor) <
           std::tie(b.borrower.role, b.borrower.layer, b.borrower.tensor);
  });
  return ties;
}

void mlir::grt::buildSchedules(OpBuilder &builder, ArrayRef<RoleOp> roles,
                               const TaskProgram &program) {
  for (auto [role, tasks] : llvm::zip_equal(roles, program.roles)) {
    RoleOp roleOp = role;
    Location loc = roleOp.getLoc();
    OpBuilder::InsertionGuard guard(builder);
    auto schedule = ScheduleOp::create(
        builder, loc, (roleOp.getSymName() + ".schedule").str(),
        roleOp.getSymName());
    builder.createBlock(&schedule.getParts());
    for (auto [number, list] : llvm::enumerate(tasks.parts)) {
      if (list.empty())
        continue;
      auto part = PartOp::create(builder, loc, static_cast<Part>(number));
      OpBuilder::InsertionGuard partGuard(builder);
      builder.createBlock(&part.getTasks());
      for (const Task &task : list)
        buildTask(builder, loc, task, program);
    }
  }
}

::galvatron::TieRoles mlir::grt::getTieRoles(ArrayRef<RoleOp> roles,
                                             const TiedTensor &tie) {
  auto chunkOf = [&](const TensorPlace &place) {
    SmallVector<RoleChunk> chunks = getChunks(roles[place.role]);
    size_t at = 0;
    while (size_t(place.layer) >=
           chunks[at].firstLayer + chunks[at].layers.size())
      ++at;
    return chunks[at];
  };
  RoleChunk borrower = chunkOf(tie.borrower);
  return {tie.owner.role, tie.borrower.role, chunkOf(tie.owner).number,
          borrower.number, borrower.forwardOnly};
}

FailureOr<ReadProgram> mlir::grt::readTaskProgram(ModuleOp module) {
  FailureOr<SmallVector<RoleOp>> roles = getRoles(module);
  if (failed(roles))
    return failure();
  FailureOr<SmallVector<TiedTensor>> ties = getTies(*roles);
  if (failed(ties))
    return failure();
  ReadProgram result;
  result.roles = *roles;
  result.schedules.resize(roles->size());
  result.tasks.resize(roles->size());
  result.program.roles.resize(roles->size());
  FailureOr<SmallVector<PlacedChunk>> chunks = getChunks(result.roles);
  if (failed(chunks))
    return failure();
  for (const PlacedChunk &placed : *chunks)
    result.program.chunks.push_back({int64_t(placed.role), placed.chunk.slots,
                                     placed.chunk.forwardOnly,
                                     placed.chunk.stashFrom});
  for (const TiedTensor &tie : *ties)
    result.program.ties.push_back(getTieRoles(result.roles, tie));

  llvm::SmallDenseMap<StringRef, size_t> numbers;
  for (auto [number, role] : llvm::enumerate(*roles)) {
    numbers[role.getSymName()] = number;
    result.program.roles[number].waitingPlaces =
        role.getWaitingPlaces().value_or(0);
  }
  for (auto schedule : module.getOps<ScheduleOp>()) {
    size_t number = numbers.lookup(schedule.getRole());
    if (result.schedules[number])
      return schedule.emitOpError()
             << "expected one schedule of role '" << schedule.getRole()
             << "', found a second";
    result.schedules[number] = schedule;
    RoleProgram &role = result.program.roles[number];
    for (auto part : schedule.getParts().getOps<PartOp>()) {
      auto which = static_cast<size_t>(part.getPart());
      for (auto task : part.getTasks().getOps<TaskOp>()) {
        role.parts[which].push_back(readTask(task, number));
        result.tasks[number][which].push_back(task);
      }
    }
  }
  for (auto [schedule, role] : llvm::zip(result.schedules, result.roles))
    if (!schedule)
      return role.emitOpError() << "expected a schedule of role '"
                                << role.getSymName() << "', found none";

  result.program.microBatches = countMicroBatches(result.program);
  if (auto plan = mlir::galvatron::getPlan(module)) {
    result.program.microBatches = plan.getMicroBatches();
    // The attribute's verifier has parsed it.
    result.program.schedule =
        llvm::cantFail(::galvatron::parseSchedule(plan.getSchedule()));
    auto degree = int64_t(result.roles.size());
    int64_t chunks = int64_t(result.program.chunks.size()) / degree;
    ::galvatron::ScheduleShape shape = plan.getShape(chunks);
    result.program.hasPacks = shape.hasPacks();
    result.program.forwardMicroBatches =
        shape.regroups() ? shape.forwardMicroBatches : 0;
    result.program.residentChunks = shape.residentChunks;
    result.program.justInTime = shape.justInTime;
    result.program.updateOnDevice = shape.updateOnDevice;
    result.program.slotsAtHome = shape.slotsAtHome;
    result.program.homesByLayer = shape.homesByLayer;
    result.program.swapsOnStreams =
        shape.residentChunks > 0 && !shape.hasPacks() &&
        ::galvatron::backendTraits(getBackend(module)).streams;
    result.program.weightVersions =
        result.program.schedule->weightVersions(shape);
    result.program.delay = result.program.schedule->delay(shape);
    result.program.separatesMessages =
        result.program.schedule->separatesMessages(shape);
  }
  return result;
}

void mlir::grt::setSwapStreams(ReadProgram &read) {
  for (auto [number, role] : llvm::enumerate(read.program.roles))
    for (auto [which, list] : llvm::enumerate(role.parts))
      for (auto [task, op] : llvm::zip_equal(list, read.tasks[number][which])) {
        TaskOp written = op;
        SmallVector<int64_t> after;
        for (uint8_t event : task.waits)
          if (event > 0)
            after.push_back(event);
        if (task.kind == ::galvatron::TaskKind::Swap)
          written.setStream(static_cast<Stream>(task.stream));
        if (!after.empty())
          written.setAfter(after);
        if (task.records > 0)
          written.setRecords(task.records);
      }
}
