//===- Program.cpp - From a module to a program ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Target/Program.h"
#include "galvatron/Dialect/GRT/IR/KernelCalls.h"
#include "galvatron/Dialect/GRT/Transforms/Roles.h"
#include "galvatron/Support/OutputFile.h"
#include "galvatron/Target/Passes.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONVERIFYPROGRAM
#include "galvatron/Target/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::grt;

namespace gvx = ::grt::gvx;

// Numbers of the schedules' vocabulary are those of the rows.
static_assert(int(::galvatron::TransferDirection::Receive) == GRT_RECEIVE &&
              int(::galvatron::TransferValue::Gradient) == GRT_GRADIENT &&
              int(::galvatron::TransferValue::Stash) == GRT_STASH &&
              int(::galvatron::TaskKind::TieBroadcast) ==
                  GRT_TASK_TIE_BROADCAST &&
              int(::galvatron::TaskKind::Swap) == GRT_TASK_SWAP &&
              int(::galvatron::SwapParameters) == GRT_SWAP_PARAMETERS &&
              int(::galvatron::SwapGradients) == GRT_SWAP_GRADIENTS &&
              int(::galvatron::SwapActivations) == GRT_SWAP_ACTIVATIONS &&
              int(::galvatron::SwapOptimizer) == GRT_SWAP_OPTIMIZER &&
              int(::galvatron::SyncBehind) == GRT_SYNC_BEHIND);

namespace {

/// Adds the functions and schedules of a module to a program.
class ModuleReader {
public:
  ModuleReader(ModuleOp module, gvx::ProgramBuilder &program)
      : module(module), program(program) {}

  LogicalResult run() {
    FailureOr<SmallVector<RoleOp>> roles = getRoles(module);
    if (failed(roles) || failed(checkLeftovers()))
      return failure();
    for (auto func : module.getOps<FuncOp>()) {
      program.beginFunction();
      for (Operation &op : func.getBody().front())
        if (failed(addCall(&op)))
          return failure();
    }
    return addSchedules(*roles);
  }

private:
  /// Nothing may be left out of the program silently.
  LogicalResult checkLeftovers() {
    for (Operation &op : *module.getBody()) {
      if (isa<FuncOp, RoleOp, ScheduleOp, ExchangeOp,
              mlir::galvatron::ParameterOp>(op))
        continue;
      // Bodies that other passes copied from are not part of the program.
      auto symbol = dyn_cast<SymbolOpInterface>(op);
      if (symbol && symbol.isPrivate() &&
          symbol.symbolKnownUseEmpty(module.getOperation()))
        continue;
      return op.emitOpError("expected to have been converted before a program "
                            "is emitted");
    }
    return success();
  }

  //===--------------------------------------------------------------------===//
  // Layer functions
  //===--------------------------------------------------------------------===//

  /// The buffer of a value, of at least `needed` bytes.
  FailureOr<grt_buffer> getBuffer(Operation *user, Value value,
                                  int64_t needed = 0) {
    BufferRef ref = resolveBuffer(value);
    std::optional<int64_t> offset = ref.buffer.getOffset();
    if (!offset)
      return user->emitOpError("expected buffers with offsets: run "
                               "'galvatron-allocate-arena' first");
    auto type = cast<MemRefType>(value.getType());
    if (failed(verifyElementType(type, [&] { return user->emitOpError(); })))
      return failure();
    return grt_buffer{uint32_t(ref.buffer.getRegion()),
                      *getAbiDType(type.getElementType()),
                      uint64_t(*offset + ref.offset),
                      uint64_t(std::max(getByteSize(type), needed))};
  }

  LogicalResult addKernel(KernelOp op) {
    ::grt::KernelBuffers known = getKernelBuffers(op);
    SmallVector<grt_buffer> buffers;
    for (auto [i, value] : llvm::enumerate(op.getBuffers())) {
      // Rows reach past their view; the runtime is told how far.
      int64_t needed = 0;
      if (known[i].hasRows)
        needed = getReachBytes(known[i], cast<MemRefType>(value.getType()));
      FailureOr<grt_buffer> buffer = getBuffer(op, value, needed);
      if (failed(buffer))
        return failure();
      buffers.push_back(*buffer);
    }
    StringRef name = op.getLabel().value_or(stringifyKernel(op.getKernel()));
    program.launch(uint32_t(op.getKernel()), buffers, op.getInts(),
                   op.getReals(), name);
    return success();
  }

  LogicalResult addCollective(Operation *op, grt_collective collective,
                              Value in, Value out, Axis axis, int64_t acc,
                              Stream stream, std::optional<StringRef> label,
                              int32_t argument = 0, Value counts = {}) {
    FailureOr<grt_buffer> input = getBuffer(op, in);
    FailureOr<grt_buffer> output = getBuffer(op, out);
    if (failed(input) || failed(output))
      return failure();
    std::optional<grt_buffer> counted;
    if (counts) {
      FailureOr<grt_buffer> buffer = getBuffer(op, counts);
      if (failed(buffer))
        return failure();
      counted = *buffer;
    }
    program.communicate({uint32_t(collective), uint32_t(axis), uint32_t(acc),
                         uint32_t(stream), /*name=*/0, argument, *input,
                         *output},
                        label.value_or(op->getName().stripDialect()),
                        counted ? &*counted : nullptr);
    return success();
  }

  LogicalResult addLife(Operation *op) {
    FailureOr<grt_buffer> buffer = getBuffer(op, op->getOperand(0));
    if (failed(buffer))
      return failure();
    if (isa<BeginOp>(op))
      program.beginLife(*buffer);
    else
      program.endLife(*buffer);
    return success();
  }

  LogicalResult addCall(Operation *operation) {
    if (failed(addCallOf(operation)))
      return failure();
    if (operation->hasAttr(kTextsBeginAttr))
      program.runsWhen(::grt::gvx::CallWhen::TextsBegin);
    return success();
  }

  LogicalResult addCallOf(Operation *operation) {
    auto order = [&](auto op, bool waits) {
      program.order(uint32_t(op.getEvent()), uint32_t(op.getStream()), waits,
                    waits ? "wait" : "record");
      return success();
    };
    return llvm::TypeSwitch<Operation *, LogicalResult>(operation)
        .Case<BufferOp, ViewOp, ReturnOp>([](auto) { return success(); })
        .Case([&](KernelOp op) { return addKernel(op); })
        .Case<BeginOp, EndOp>([&](auto op) { return addLife(op); })
        .Case([&](AllReduceOp op) {
          return addCollective(op, GRT_ALL_REDUCE, op.getBuffer(),
                               op.getBuffer(), op.getAxis(), 0, op.getStream(),
                               op.getLabel());
        })
        .Case([&](AllReduceMaxOp op) {
          return addCollective(op, GRT_ALL_REDUCE_MAX, op.getBuffer(),
                               op.getBuffer(), op.getAxis(), 0, op.getStream(),
                               op.getLabel());
        })
        .Case([&](AllToAllCountsOp op) {
          return addCollective(op, GRT_ALL_TO_ALL_COUNTS, op.getSource(),
                               op.getDestination(), op.getAxis(), 0,
                               op.getStream(), op.getLabel(),
                               int32_t(op.getUnit()), op.getCounts());
        })
        .Case([&](AllGatherOp op) {
          return addCollective(op, GRT_ALL_GATHER, op.getSource(),
                               op.getDestination(), op.getAxis(), 0,
                               op.getStream(), op.getLabel());
        })
        .Case([&](ReduceScatterOp op) {
          return addCollective(op, GRT_REDUCE_SCATTER, op.getSource(),
                               op.getDestination(), op.getAxis(), op.getAcc(),
                               op.getStream(), op.getLabel());
        })
        .Case([&](AllToAllOp op) {
          return addCollective(op, GRT_ALL_TO_ALL, op.getSource(),
                               op.getDestination(), op.getAxis(), 0,
                               op.getStream(), op.getLabel());
        })
        .Case([&](ShiftOp op) {
          return addCollective(
              op, GRT_SHIFT, op.getSource(), op.getDestination(), op.getAxis(),
              0, op.getStream(), op.getLabel(), int32_t(op.getDistance()));
        })
        .Case([&](RecordOp op) { return order(op, false); })
        .Case([&](WaitOp op) { return order(op, true); })
        .Default([](Operation *op) {
          return op->emitOpError("expected an operation that is a call of a "
                                 "program");
        });
  }

  //===--------------------------------------------------------------------===//
  // Schedules
  //===--------------------------------------------------------------------===//

  static uint8_t tiersOf(const ::galvatron::Task &task) {
    if (task.kind != ::galvatron::TaskKind::Swap)
      return 0;
    return task.out ? GRT_TO_HOST : GRT_TO_DEVICE;
  }

  void addTask(grt_part part, const ::galvatron::Task &task) {
    SmallVector<grt_transfer_part> transfers;
    for (const ::galvatron::TransferPart &one : task.parts)
      transfers.push_back({uint8_t(one.direction),
                           uint8_t(one.value),
                           one.chunk,
                           one.peerChunk,
                           one.slot,
                           one.microBatch,
                           one.generation,
                           {}});
    grt_task row{};
    row.kind = uint8_t(task.kind);
    row.flags = task.flags;
    row.chunk = task.chunk;
    row.slot = task.slot;
    row.generation = task.generation;
    row.classes = task.classes;
    row.micro_batch = task.microBatch;
    row.stream = uint8_t(task.stream);
    row.tiers = tiersOf(task);
    row.records = task.records;
    static_assert(std::tuple_size_v<decltype(task.waits)> == GRT_TASK_WAITS);
    llvm::copy(task.waits, row.waits);
    program.addTask(part, row, transfers);
  }

  /// What is done beside others on streams.
  void addOrders(RoleOp role) {
    std::vector<gvx::LayerOrder> &orders = program.tables.orders.emplace_back();
    for (auto layer : role.getLayers().getOps<LayerOp>())
      orders.push_back({layer.getForwardAhead(), layer.getBackwardAhead(),
                        layer.getGatherAwaitsSums(),
                        layer.getBackwardAwaitsSums(),
                        layer.getReshardAwaitsSums()});
  }

  LogicalResult addSchedules(ArrayRef<RoleOp> roles) {
    llvm::StringMap<ScheduleOp> schedules;
    for (auto schedule : module.getOps<ScheduleOp>())
      if (!schedules.try_emplace(schedule.getRole(), schedule).second)
        return schedule.emitOpError()
               << "expected one schedule of role '" << schedule.getRole()
               << "', found a second";
    for (auto [number, role] : llvm::enumerate(roles)) {
      RoleOp roleOp = role;
      auto it = schedules.find(roleOp.getSymName());
      if (it == schedules.end())
        return roleOp.emitOpError()
               << "expected a schedule of role '" << roleOp.getSymName()
               << "': run 'galvatron-schedule-tasks' first";
      // Parts may stand in any order in the module.
      std::array<PartOp, GRT_PART_COUNT> parts;
      for (auto part : it->second.getParts().getOps<PartOp>())
        parts[static_cast<size_t>(part.getPart())] = part;
      program.beginRole();
      addOrders(roleOp);
      for (auto [part, op] : llvm::enumerate(parts))
        if (op)
          for (auto task : op.getTasks().getOps<TaskOp>())
            addTask(grt_part(part), readTask(task, /*only=*/number));
    }
    return success();
  }

  ModuleOp module;
  gvx::ProgramBuilder &program;
};

} // namespace

LogicalResult mlir::galvatron::addTables(ModuleOp module,
                                         ::grt::gvx::ProgramBuilder &program) {
  return ModuleReader(module, program).run();
}

FailureOr<std::string>
mlir::galvatron::buildProgram(ModuleOp module, const ManifestOptions &options) {
  gvx::ProgramBuilder program;
  return buildProgram(module, options, program);
}

FailureOr<std::string>
mlir::galvatron::buildProgram(ModuleOp module, const ManifestOptions &options,
                              gvx::ProgramBuilder &program) {
  FailureOr<std::string> manifest = writeManifest(module, options);
  if (failed(manifest) || failed(addTables(module, program)))
    return failure();
  std::string problem;
  std::string file = program.finish(*manifest, problem);
  if (!problem.empty())
    return module.emitError()
           << "the runtime would not load this program: " << problem;
  return file;
}

/// The operation that a problem of the runtime's is about, which begins with a
/// place in the manifest, as `roles[0].layers[1]`, or with a function's name;
/// the module if it is about none.
static Operation *operationOf(ModuleOp module, StringRef problem) {
  auto take = [&](StringRef before, size_t &index) {
    return problem.consume_front(before) && !problem.consumeInteger(10, index);
  };
  size_t role = 0, layer = 0;
  if (problem.consume_front("function '"))
    if (auto func = module.lookupSymbol<FuncOp>(problem.split('\'').first))
      return func;
  problem.consume_front("manifest: ");
  FailureOr<SmallVector<RoleOp>> roles = getRoles(module);
  if (failed(roles) || !take("roles[", role) || role >= roles->size())
    return module;
  RoleOp found = (*roles)[role];
  auto layers = found.getLayers().getOps<LayerOp>();
  if (take("].layers[", layer) &&
      layer < size_t(std::distance(layers.begin(), layers.end())))
    return *std::next(layers.begin(), ptrdiff_t(layer));
  return found;
}

LogicalResult mlir::galvatron::verifyProgram(ModuleOp module, StringRef program,
                                             const gvx::Tables *made) {
  std::string problem =
      gvx::loadRefusal(program, "it", gvx::Digest::Known, made);
  if (problem.empty())
    return success();
  StringRef text = problem;
  text.consume_front("program 'it': ");
  return operationOf(module, text)->emitError()
         << "(P1) the runtime would refuse this program: " << text;
}

namespace {

struct VerifyProgramPass
    : mlir::galvatron::impl::GalvatronVerifyProgramBase<VerifyProgramPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    gvx::ProgramBuilder builder;
    FailureOr<std::string> program =
        mlir::galvatron::buildProgram(getOperation(), {}, builder);
    if (failed(program) || failed(mlir::galvatron::verifyProgram(
                               getOperation(), *program, &builder.tables)))
      signalPassFailure();
  }
};

} // namespace

LogicalResult mlir::galvatron::emitProgram(ModuleOp module,
                                           StringRef outputPath,
                                           const ManifestOptions &options) {
  gvx::ProgramBuilder builder;
  FailureOr<std::string> file = buildProgram(module, options, builder);
  if (failed(file) || failed(verifyProgram(module, *file, &builder.tables)))
    return failure();
  if (std::error_code error = ::galvatron::writeWhole(outputPath, *file))
    return module.emitError()
           << "cannot write '" << outputPath << "': " << error.message();
  return success();
}
