//===- AssignStreams.cpp - galvatron-assign-streams -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Dialect/GRT/IR/StreamOrder.h"
#include "galvatron/Dialect/GRT/Transforms/Passes.h"
#include "galvatron/Dialect/GRT/Transforms/Roles.h"
#include "galvatron/Schedule/SwapOrder.h"

#include "mlir/IR/Builders.h"

namespace mlir::grt {
#define GEN_PASS_DEF_ASSIGNSTREAMS
#include "galvatron/Dialect/GRT/Transforms/Passes.h.inc"
} // namespace mlir::grt

using namespace mlir;
using namespace mlir::grt;

namespace {

MemoryRegion regionOf(Value value) {
  return resolveBuffer(value).buffer.getRegion();
}

/// True if a kernel stands between a shift and the first use of what it
/// brings: a step of attention that has keys already, in front of the one that
/// waits for the next.
bool hasKernelBeside(ShiftOp shift) {
  const BufferOp brought = resolveBuffer(shift.getDestination()).buffer;
  for (Operation *op = shift->getNextNode(); op; op = op->getNextNode()) {
    if (isa<BufferOp, ViewOp>(op))
      continue;
    if (llvm::any_of(op->getOperands(), [&](Value operand) {
          return isa<MemRefType>(operand.getType()) &&
                 resolveBuffer(operand).buffer == brought;
        }))
      return false;
    if (isa<KernelOp>(op))
      return true;
  }
  return false;
}

/// Puts collectives that kernels need not wait for at once on streams of their
/// own.
void assignStreams(FuncOp func) {
  int shiftsAside = 0;
  for (Operation &op : func.getBody().front()) {
    if (auto gather = dyn_cast<AllGatherOp>(op)) {
      if (regionOf(gather.getSource()) == MemoryRegion::Parameter)
        gather.setStream(Stream::Gather);
    } else if (auto scatter = dyn_cast<ReduceScatterOp>(op)) {
      if (regionOf(scatter.getDestination()) == MemoryRegion::Gradient)
        scatter.setStream(Stream::Gradient);
    } else if (auto shift = dyn_cast<ShiftOp>(op)) {
      if (shiftsAside < kMostShiftsAside && hasKernelBeside(shift)) {
        shift.setStream(Stream::Gather);
        ++shiftsAside;
      }
    }
  }
}

/// Puts the events into one function.
class EventInserter {
public:
  explicit EventInserter(FuncOp func)
      : func(func), builder(func.getContext()), list(getStreamOperations(func)),
        ended(list.size()) {}

  LogicalResult run() {
    ended[0] = progress.at(0);
    for (size_t number = 1; number < list.size(); ++number) {
      const StreamOperation &operation = list[number];
      while (std::optional<int> before = chooseWait(operation)) {
        if (failed(insertWait(operation, *before)))
          return failure();
      }
      progress.run(size_t(operation.stream), int(number));
      ended[number] = progress.at(size_t(operation.stream));
    }
    return success();
  }

private:
  /// Of the operations that `operation` has still to wait for, the one that has
  /// waited for most of the others itself; they then need no event.
  std::optional<int> chooseWait(const StreamOperation &operation) const {
    std::optional<int> best;
    int bestCount = -1;
    for (int before : operation.needs) {
      StreamPositions alone;
      alone.fill(-1);
      if (before >= 0)
        alone[static_cast<size_t>(list[before].stream)] = before;
      if (!progress.findMissing(size_t(operation.stream), alone))
        continue;
      int count = 0;
      for (auto [needed, known] : llvm::zip(operation.needs, ended[before]))
        count += needed <= known;
      if (count > bestCount) {
        bestCount = count;
        best = before;
      }
    }
    return best;
  }

  LogicalResult insertWait(const StreamOperation &operation, int before) {
    const StreamOperation &earlier = list[before];
    auto [it, inserted] = events.try_emplace(before, int64_t(events.size()));
    if (inserted) {
      if (events.size() > kFunctionEvents)
        return func.emitOpError() << "expected at most " << kFunctionEvents
                                  << " events to order its streams, found "
                                     "one more";
      if (earlier.op)
        builder.setInsertionPointAfter(earlier.op);
      else
        builder.setInsertionPoint(list[1].op);
      RecordOp::create(builder, operation.op->getLoc(), it->second,
                       earlier.stream);
    }
    builder.setInsertionPoint(operation.op);
    WaitOp::create(builder, operation.op->getLoc(), it->second,
                   operation.stream);
    progress.wait(size_t(operation.stream), ended[before]);
    return success();
  }

  FuncOp func;
  OpBuilder builder;
  std::vector<StreamOperation> list;
  ::galvatron::streams::Progress progress;
  /// What the operation's stream knew when it had put the operation on.
  std::vector<StreamPositions> ended;
  /// Event recorded behind an operation.
  llvm::DenseMap<int, int64_t> events;
};

class AssignStreamsPass
    : public mlir::grt::impl::AssignStreamsBase<AssignStreamsPass> {
  using AssignStreamsBase::AssignStreamsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    StringRef name = backend.empty() ? getBackend(module) : StringRef(backend);
    if (!::galvatron::backendTraits(name).streams)
      return markAllAnalysesPreserved();
    for (auto func : module.getOps<FuncOp>()) {
      for (Operation &op : func.getBody().front())
        if (isa<RecordOp, WaitOp>(op)) {
          op.emitOpError("expected no events before "
                         "'galvatron-assign-streams', found some");
          return signalPassFailure();
        }
      assignStreams(func);
      if (failed(EventInserter(func).run()))
        return signalPassFailure();
    }
    if (failed(orderSwaps(module)))
      signalPassFailure();
  }

  /// Of modules whose states have their home on the host.
  LogicalResult orderSwaps(ModuleOp module) {
    bool any = false;
    WalkResult walked = module.walk([&](TaskOp task) {
      any |= task.getKind() == TaskKind::Swap;
      if (!task.getStream() && !task.getAfter() && !task.getRecords())
        return WalkResult::advance();
      task.emitOpError("expected no streams and events of tasks before "
                       "'galvatron-assign-streams', found some");
      return WalkResult::interrupt();
    });
    if (walked.wasInterrupted() || !any)
      return failure(walked.wasInterrupted());
    FailureOr<ReadProgram> read = readTaskProgram(module);
    if (failed(read))
      return failure();
    if (llvm::Error error = ::galvatron::assignSwapStreams(read->program))
      return module.emitOpError(llvm::toString(std::move(error)));
    if (read->program.swapsOnStreams)
      setSwapStreams(*read);
    return success();
  }
};

} // namespace
