//===- VerifyRoles.cpp - galvatron-verify-roles ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Invariants by their numbers in docs/invariants.md: V of values, R of roles
// and layers (VerifyLayers.cpp), T of tasks, A of what is placed.
//
//===----------------------------------------------------------------------===//

#include "VerifyLayers.h"

#include "galvatron/Dialect/GRT/Transforms/BufferValues.h"
#include "galvatron/Dialect/GRT/Transforms/Passes.h"
#include "galvatron/Dialect/GRT/Transforms/Roles.h"
#include "galvatron/Dialect/Galvatron/Transforms/FunctionValues.h"
#include "galvatron/Schedule/Schedule.h"

#include "mlir/Pass/PassManager.h"

namespace mlir::grt {
#define GEN_PASS_DEF_VERIFYROLES
#include "galvatron/Dialect/GRT/Transforms/Passes.h.inc"
} // namespace mlir::grt

using namespace mlir;
using namespace mlir::grt;
using ::galvatron::kSchedulePartCount;
using ::galvatron::RoleProgram;
using ::galvatron::SchedulePart;
using ::galvatron::Task;
using ::galvatron::TaskProgram;

namespace {

/// A task, or a message of a transfer, without what the order of tasks decides:
/// slots, streams and events.
using TaskKey = std::array<int64_t, 8>;

/// The keys of a task; one for each message of a transfer.
SmallVector<TaskKey, 2> keysOf(const Task &task) {
  auto kind = int64_t(task.kind);
  if (task.parts.empty())
    return {{kind, task.isOfChunk() ? task.chunk : 0, task.microBatch,
             task.generation, task.classes, task.out, task.flags, 0}};
  SmallVector<TaskKey, 2> keys;
  for (const ::galvatron::TransferPart &part : task.parts)
    keys.push_back({kind, part.chunk, part.microBatch, part.generation,
                    int64_t(part.direction), int64_t(part.value),
                    part.peerChunk, 1});
  return keys;
}

class VerifyRolesPass
    : public mlir::grt::impl::VerifyRolesBase<VerifyRolesPass> {
  using VerifyRolesBase::VerifyRolesBase;

  void runOnOperation() override {
    markAllAnalysesPreserved();
    if (failed(placed ? verifyPlaced() : verify()))
      signalPassFailure();
  }

  LogicalResult verify() {
    ModuleOp module = getOperation();
    if (!module.getOps<RoleOp>().empty()) {
      FailureOr<ReadProgram> read = readTaskProgram(module);
      if (failed(read) || failed(verifyLayers(*read)) ||
          failed(verifyTasks(*read)))
        return failure();
    }
    for (auto model : module.getOps<mlir::galvatron::ModelOp>())
      if (failed(verifyModelData(model)))
        return failure();
    if (!values)
      return success();
    for (auto func : module.getOps<FuncOp>()) {
      FailureOr<mlir::galvatron::NumberedValues> found = numberValues(func);
      if (failed(found) || failed(mlir::galvatron::verifyValues(func, *found)))
        return failure();
    }
    SymbolTable symbols(module);
    for (auto role : module.getOps<RoleOp>())
      if (failed(verifyNumber(role, numberRole(role, symbols))))
        return failure();
    return success();
  }

  /// (M1) of layers that are no roles' yet.
  LogicalResult verifyModelData(mlir::galvatron::ModelOp model) {
    SymbolTable symbols(getOperation());
    SmallVector<mlir::galvatron::DataAttr> declared = model.getDeclaredData();
    for (mlir::galvatron::LayerOp layer : model.getLayers()) {
      if (!layer.getForwardAttr() || !layer.getStrategyAttr())
        continue;
      SmallVector<mlir::galvatron::DataAttr> data;
      for (unsigned i = 0; i < layer.getInputs().size(); ++i)
        if (BlockArgument argument = layer.getDataArgument(i))
          if (argument.getArgNumber() < declared.size())
            data.push_back(declared[argument.getArgNumber()]);
      ::galvatron::Strategy strategy = layer.getStrategyAttr().toStrategy();
      if (failed(verifyDataBounds(
              layer, symbols.lookup<FuncOp>(layer.getForward().value()), data,
              strategy.degree(strategy.on(::galvatron::LayerAxis::Tensor)))))
        return failure();
    }
    return success();
  }

  /// (R9)
  static LogicalResult
  verifyNumber(RoleOp role, const mlir::galvatron::NumberedValues &found) {
    auto expected =
        role->getAttrOfType<StringAttr>(mlir::galvatron::kValuesAttr);
    if (expected && found.isOf(expected))
      return success();
    InFlightDiagnostic error = role.emitOpError()
                               << "(R9) expected '" << role.getSymName()
                               << "' to be what the phase 'schedule' made, "
                               << (expected ? expected.getValue().take_front(16)
                                            : "numbered")
                               << ", found "
                               << StringRef(found.str()).take_front(16);
    if (expected)
      found.addNote(error, expected.getValue());
    error.attachNote() << "the order of tasks can be changed here, what layers "
                          "and roles are in the plan";
    return error;
  }

  /// (T1) A schedule has the tasks that the plan's schedule has for the roles,
  /// in an order that galvatron-verify-schedule proves to be right.
  LogicalResult verifyTasks(ReadProgram &read) {
    auto plan = mlir::galvatron::getPlan(getOperation());
    auto training = mlir::galvatron::getTraining(getOperation());
    if (!plan || !read.program.schedule)
      return success();
    int64_t chunks =
        int64_t(read.program.chunks.size()) / int64_t(read.roles.size());
    ::galvatron::ScheduleShape shape = plan.getShape(chunks);
    const ::galvatron::Schedule &schedule = *read.program.schedule;
    if (shape.roles != int64_t(read.roles.size()))
      return getOperation().emitError()
             << "(T1) expected the " << shape.roles
             << " roles of the plan's stages, found " << read.roles.size();
    if (llvm::Error error = schedule.check(shape))
      return getOperation().emitError()
             << "(T1) " << llvm::toString(std::move(error));
    shape.delayedNorm =
        schedule.delay(shape) > 0 && training && training.getClip();
    TaskProgram expected = schedule.build(shape, read.program.ties);
    if (expected.chunks.size() != read.program.chunks.size())
      return getOperation().emitError()
             << "(T1) expected the " << expected.chunks.size()
             << " chunks of the schedule '" << schedule.name() << "', found "
             << read.program.chunks.size();
    for (size_t number = 0; number < read.roles.size(); ++number) {
      RoleProgram &role = expected.roles[number];
      if (::galvatron::syncsBehind(read.program.roles[number]))
        ::galvatron::setSyncBehind(role);
      for (size_t part = 0; part < kSchedulePartCount; ++part)
        if (failed(
                verifyPart(read, number, SchedulePart(part), role.parts[part])))
          return failure();
    }
    return success();
  }

  LogicalResult verifyPart(ReadProgram &read, size_t role, SchedulePart part,
                           ArrayRef<Task> expected) {
    std::map<TaskKey, std::pair<int64_t, const Task *>> missing;
    for (const Task &task : expected)
      for (const TaskKey &key : keysOf(task)) {
        auto &entry = missing[key];
        ++entry.first;
        entry.second = &task;
      }
    bool several = read.program.hasSeveralChunks();
    std::string where = " in part '" + std::string(schedulePartName(part)) +
                        "' under schedule '" +
                        read.program.schedule->name().str() + "'";
    const auto &found = read.program.roles[role].part(part);
    for (auto [i, task] : llvm::enumerate(found))
      for (const TaskKey &key : keysOf(task)) {
        auto it = missing.find(key);
        if (it != missing.end() && it->second.first-- > 0)
          continue;
        TaskOp op = read.tasks[role][size_t(part)][i];
        return op.emitOpError() << "(T1) expected no '" << task.str(several)
                                << "'" << (it == missing.end() ? "" : " more")
                                << where << ", found this one";
      }
    for (auto &[key, entry] : missing)
      if (entry.first > 0)
        return read.schedules[role].emitOpError()
               << "(T1) expected '" << entry.second->str(several) << "'"
               << where << ", found none";
    return success();
  }

  /// (A1) Everything lies where it is placed: placing it again changes nothing.
  LogicalResult verifyPlaced() {
    OwningOpRef<ModuleOp> again(cast<ModuleOp>(getOperation()->clone()));
    PassManager manager(&getContext());
    manager.enableVerifier(false);
    manager.addPass(createAllocateArena());
    if (failed(manager.run(*again)))
      return failure();
    auto other = again->getBody()->begin(), end = again->getBody()->end();
    for (Operation &op : *getOperation().getBody()) {
      if (other == end || failed(verifySame(&op, &*other)))
        return failure();
      ++other;
    }
    return success();
  }

  static LogicalResult verifySame(Operation *found, Operation *expected) {
    auto refuse = [&](const Twine &what) {
      return found->emitOpError() << "(A1) expected " << what;
    };
    if (found->getName() != expected->getName())
      return refuse("'" + expected->getName().getStringRef() +
                    "' here once everything is placed");
    for (NamedAttribute attribute : expected->getAttrDictionary())
      if (found->getAttr(attribute.getName()) != attribute.getValue()) {
        InFlightDiagnostic error = found->emitOpError();
        error << "(A1) expected '" << attribute.getName().getValue() << "' "
              << attribute.getValue() << " as it is placed, found ";
        if (Attribute there = found->getAttr(attribute.getName()))
          return error << there;
        return error << "none";
      }
    for (auto [region, other] :
         llvm::zip_equal(found->getRegions(), expected->getRegions())) {
      if (region.empty())
        continue;
      auto at = other.front().begin(), end = other.front().end();
      for (Operation &op : region.front()) {
        if (at == end)
          return op.emitOpError("(A1) expected no such operation once "
                                "everything is placed, found this one");
        if (failed(verifySame(&op, &*at++)))
          return failure();
      }
    }
    return success();
  }
};

} // namespace
