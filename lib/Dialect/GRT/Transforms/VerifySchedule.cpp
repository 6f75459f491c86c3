//===- VerifySchedule.cpp - galvatron-verify-schedule ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/Transforms/Passes.h"
#include "galvatron/Dialect/GRT/Transforms/Roles.h"
#include "galvatron/Schedule/Verify.h"
#include "galvatron/Strategy/Concurrency.h"

#include "llvm/ADT/DenseSet.h"

namespace mlir::grt {
#define GEN_PASS_DEF_VERIFYSCHEDULE
#include "galvatron/Dialect/GRT/Transforms/Passes.h.inc"
} // namespace mlir::grt

using namespace mlir;
using namespace mlir::grt;

namespace {

/// Checks that `exchange` goes from ranks of `from` to ranks of `to`, and that
/// every rank of `to` gets all its units (`units` of them).
LogicalResult verifyExchange(Operation *user, ExchangeOp exchange, RoleOp from,
                             RoleOp to, int64_t fromUnits, int64_t toUnits) {
  auto fail = [&]() {
    InFlightDiagnostic diagnostic = user->emitOpError();
    diagnostic.attachNote(exchange.getLoc())
        << "exchange '" << exchange.getSymName() << "' stands here";
    return diagnostic;
  };
  llvm::SmallDenseMap<int64_t, int64_t> received;
  for (int64_t device : to.getDevices())
    received[device] = 0;
  ArrayRef<int64_t> numbers = exchange.getTransfers();
  for (size_t i = 0; i < numbers.size(); i += 5) {
    ArrayRef<int64_t> transfer = numbers.slice(i, 5);
    if (!llvm::is_contained(from.getDevices(), transfer[0]))
      return fail() << "expected exchange '" << exchange.getSymName()
                    << "' to send from ranks of role '" << from.getSymName()
                    << "', found rank " << transfer[0];
    auto it = received.find(transfer[1]);
    if (it == received.end())
      return fail() << "expected exchange '" << exchange.getSymName()
                    << "' to send to ranks of role '" << to.getSymName()
                    << "', found rank " << transfer[1];
    if (transfer[2] + transfer[4] > fromUnits ||
        transfer[3] + transfer[4] > toUnits)
      return fail() << "expected exchange '" << exchange.getSymName()
                    << "' to stay inside " << fromUnits << " samples of rank "
                    << transfer[0] << " and " << toUnits << " of rank "
                    << transfer[1];
    it->second += transfer[4];
  }
  for (int64_t device : to.getDevices())
    if (received[device] != toUnits)
      return fail() << "expected rank " << device << " to receive " << toUnits
                    << " samples in exchange '" << exchange.getSymName()
                    << "', found " << received[device];
  return success();
}

class VerifySchedulePass
    : public mlir::grt::impl::VerifyScheduleBase<VerifySchedulePass> {
  void runOnOperation() override {
    FailureOr<ReadProgram> read = readTaskProgram(getOperation());
    if (failed(read))
      return signalPassFailure();
    markAllAnalysesPreserved();
    if (read->roles.empty()) {
      getOperation().emitError()
          << "expected roles with schedules: run 'galvatron-schedule-tasks' "
             "first";
      return signalPassFailure();
    }
    if (failed(verifyTasks(*read)) || failed(verifyOverlap(*read)) ||
        failed(verifyGathers(read->roles)) ||
        failed(verifyExchanges(read->roles)))
      signalPassFailure();
  }

  LogicalResult verifyTasks(ReadProgram &read) {
    std::vector<std::vector<int64_t>> devices;
    for (RoleOp role : read.roles)
      devices.emplace_back(role.getDevices().begin(), role.getDevices().end());
    std::vector<::galvatron::ScheduleFault> faults =
        ::galvatron::verifySchedule(read.program, devices);
    for (const ::galvatron::ScheduleFault &fault : faults) {
      Operation *op = read.schedules[fault.role];
      auto &tasks = read.tasks[fault.role][static_cast<size_t>(fault.part)];
      if (fault.task >= 0 && fault.task < int64_t(tasks.size()))
        op = tasks[fault.task];
      op->emitError() << fault.message;
    }
    return success(faults.empty());
  }

  /// What may run beside each other must not need one order.
  LogicalResult verifyOverlap(ReadProgram &read) {
    for (auto [number, role] : llvm::enumerate(read.roles)) {
      TaskOp behind;
      for (const std::vector<TaskOp> &tasks : read.tasks[number])
        for (TaskOp task : tasks)
          if (task.getSyncBehind() && !behind)
            behind = task;
      if (!behind)
        continue;
      std::vector<::galvatron::AwaitedSums> awaited =
          ::galvatron::awaitedSums(getStrategies(role));
      auto sums = awaited.begin();
      for (LayerOp layer : role.getLayers().getOps<LayerOp>()) {
        // Chunks take turns: nothing of theirs waits.
        bool waits = !read.program.hasSeveralChunks();
        for (auto [reason, marked, name] :
             {std::tuple(sums->gather, layer.getGatherAwaitsSums(),
                         "gather_awaits_sums"),
              {sums->pass, layer.getBackwardAwaitsSums(),
               "backward_awaits_sums"},
              {sums->reshard, layer.getReshardAwaitsSums(),
               "reshard_awaits_sums"}})
          if (!reason.empty() && !(marked && waits)) {
            InFlightDiagnostic error =
                waits ? layer.emitOpError()
                      : InFlightDiagnostic(behind.emitOpError());
            error << (waits ? "expected '" + std::string(name) + "': "
                            : std::string("expected gradients that can be "
                                          "reduced behind backward passes: "))
                  << reason;
            if (waits)
              error.attachNote(behind.getLoc())
                  << "gradients are reduced behind backward passes";
            return error;
          }
        ++sums;
      }
    }
    return success();
  }

  LogicalResult verifyGathers(ArrayRef<RoleOp> roles) {
    FailureOr<SmallVector<PlacedChunk>> chunks = getChunks(roles);
    if (failed(chunks))
      return failure();
    for (const PlacedChunk &placed : *chunks) {
      SmallVector<LayerOp> layers = placed.chunk.layers;
      for (size_t i = 0; i < layers.size(); ++i)
        if (failed(verifyGather(layers[i], layers[i].getForwardAhead(),
                                i > 0 ? layers[i - 1] : LayerOp(), "forward",
                                "in front")) ||
            failed(
                verifyGather(layers[i], layers[i].getBackwardAhead(),
                             i + 1 < layers.size() ? layers[i + 1] : LayerOp(),
                             "backward", "behind")))
          return failure();
    }
    return success();
  }

  /// A gather that runs beside the neighbour's functions.
  LogicalResult verifyGather(LayerOp layer, bool ahead, LayerOp beside,
                             StringRef direction, StringRef where) {
    if (!ahead)
      return success();
    if (!beside)
      return layer.emitOpError()
             << "expected a layer " << where << " to gather ahead in "
             << direction << ", found none";
    std::string reason = ::galvatron::whyNotGatherAhead(
        beside.getStrategy().toStrategy(), layer.getStrategy().toStrategy());
    if (reason.empty())
      return success();
    InFlightDiagnostic diagnostic =
        layer.emitOpError() << "expected parameters that can be gathered ahead "
                               "in "
                            << direction << ": " << reason;
    diagnostic.attachNote(beside.getLoc()) << "beside this layer";
    return diagnostic;
  }

  ExchangeOp lookup(FlatSymbolRefAttr symbol) {
    return getOperation().lookupSymbol<ExchangeOp>(symbol.getAttr());
  }

  LogicalResult verifyReshards(RoleOp role, SmallVector<LayerOp> layers) {
    for (size_t i = 0; i < layers.size(); ++i) {
      LayerOp layer = layers[i];
      bool hasNext = i + 1 < layers.size();
      if (FlatSymbolRefAttr reshard = layer.getForwardReshardAttr()) {
        if (!hasNext)
          return layer.emitOpError("expected no forward reshard on the last "
                                   "layer of a chunk, found one");
        if (failed(verifyExchange(layer, lookup(reshard), role, role,
                                  layer.getSamples(),
                                  layers[i + 1].getSamples())))
          return failure();
      } else if (hasNext && layer.getSamples() != layers[i + 1].getSamples()) {
        return layer.emitOpError()
               << "expected a forward reshard from " << layer.getSamples()
               << " to " << layers[i + 1].getSamples()
               << " samples, found none";
      }
      if (FlatSymbolRefAttr reshard = layer.getBackwardReshardAttr()) {
        if (i == 0)
          return layer.emitOpError("expected no backward reshard on the first "
                                   "layer of a chunk, found one");
        if (failed(verifyExchange(layer, lookup(reshard), role, role,
                                  layer.getSamples(),
                                  layers[i - 1].getSamples())))
          return failure();
      } else if (i > 0 && layer.getSamples() != layers[i - 1].getSamples()) {
        return layer.emitOpError()
               << "expected a backward reshard from " << layer.getSamples()
               << " to " << layers[i - 1].getSamples()
               << " samples, found none";
      }
    }
    return success();
  }

  /// One end of a cut: a chunk, and what it names for a direction.
  struct CutEnd {
    RoleOp role;
    Operation *op;
    FlatSymbolRefAttr exchange;
    StringRef name; ///< of the attribute
    int64_t units;  ///< samples
  };

  /// One direction of a cut: both chunks must name one exchange.
  LogicalResult verifyCut(CutEnd from, CutEnd to) {
    if (!from.exchange)
      return from.op->emitOpError() << "expected '" << from.name
                                    << "' to name the exchange with role '"
                                    << to.role.getSymName() << "', found none";
    if (from.exchange != to.exchange) {
      InFlightDiagnostic diagnostic = to.op->emitOpError();
      diagnostic << "expected '" << to.name << "' to name '"
                 << from.exchange.getValue() << "' as '" << from.name
                 << "' of role '" << from.role.getSymName() << "' does";
      if (to.exchange)
        diagnostic << ", found '" << to.exchange.getValue() << "'";
      diagnostic.attachNote(from.op->getLoc()) << "which stands here";
      return diagnostic;
    }
    return verifyExchange(from.op, lookup(from.exchange), from.role, to.role,
                          from.units, to.units);
  }

  LogicalResult verifyActivations(ArrayRef<RoleOp> roles,
                                  const PlacedChunk &from,
                                  const PlacedChunk &to) {
    return verifyCut(
        {roles[from.role], from.chunk.op, from.chunk.sendActivation,
         "send_activation", LayerOp(from.chunk.layers.back()).getSamples()},
        {roles[to.role], to.chunk.op, to.chunk.recvActivation,
         "recv_activation", LayerOp(to.chunk.layers.front()).getSamples()});
  }

  /// Of what goes into the later chunk.
  LogicalResult verifyGradients(ArrayRef<RoleOp> roles,
                                const PlacedChunk &before,
                                const PlacedChunk &later) {
    return verifyCut(
        {roles[later.role], later.chunk.op, later.chunk.sendGradient,
         "send_gradient", LayerOp(later.chunk.layers.front()).getSamples()},
        {roles[before.role], before.chunk.op, before.chunk.recvGradient,
         "recv_gradient", LayerOp(before.chunk.layers.back()).getSamples()});
  }

  /// What a pack recomputes from comes from a layer of the pack that it names,
  /// in micro-batches of that pack. What the last chunk takes from home is what
  /// the last pack that runs forward only makes.
  LogicalResult verifyStash(ArrayRef<RoleOp> roles,
                            ArrayRef<PlacedChunk> chunks,
                            const PlacedChunk &placed) {
    const RoleChunk &chunk = placed.chunk;
    if (chunk.stashFrom < 0)
      return success();
    LayerOp first = chunk.layers.front();
    bool isLast = chunk.number + 1 == int64_t(chunks.size());
    if (chunk.stashFrom < int64_t(chunks.size()) &&
        chunks[chunk.stashFrom].chunk.forwardOnly) {
      const PlacedChunk &from = chunks[chunk.stashFrom];
      for (LayerOp layer : from.chunk.layers)
        if (layer.getIndex() + (isLast ? 1 : 0) == first.getIndex())
          return verifyExchange(chunk.op, lookup(chunk.recvStash),
                                roles[from.role], roles[placed.role],
                                layer.getSamples(), layer.getSamples());
    }
    if (isLast)
      return chunk.op->emitOpError()
             << "expected layer " << first.getIndex() - 1
             << " in the chunk of 'stash_from', the last that runs forward "
                "only, found it in none";
    return chunk.op->emitOpError() << "expected layer " << first.getIndex()
                                   << " in the chunk of 'stash_from', which "
                                      "runs forward only, found it "
                                      "in none";
  }

  LogicalResult verifyExchanges(ArrayRef<RoleOp> roles) {
    FailureOr<SmallVector<PlacedChunk>> chunks = getChunks(roles);
    if (failed(chunks))
      return failure();
    for (const PlacedChunk &placed : *chunks)
      if (failed(verifyReshards(roles[placed.role], placed.chunk.layers)))
        return failure();
    // Activations of packs go along those that run forward only, and from the
    // last of them to the last chunk; gradients along the others.
    size_t forward = llvm::count_if(*chunks, [](const PlacedChunk &placed) {
      return placed.chunk.forwardOnly;
    });
    bool regroups = chunks->back().chunk.stashFrom >= 0;
    for (size_t i = 0; i + 1 < chunks->size(); ++i) {
      if (regroups && i + 1 == forward)
        continue; // goes home
      size_t next = i + 1 == forward ? chunks->size() - 1 : i + 1;
      if ((forward == 0 || i < forward) &&
          failed(verifyActivations(roles, (*chunks)[i], (*chunks)[next])))
        return failure();
      if (i >= forward &&
          failed(verifyGradients(roles, (*chunks)[i], (*chunks)[i + 1])))
        return failure();
    }
    for (const PlacedChunk &placed : *chunks)
      if (failed(verifyStash(roles, *chunks, placed)))
        return failure();
    return success();
  }
};

} // namespace
