//===- GalvatronDialect.cpp - The galvatron dialect -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/FunctionValuesAttr.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/IR/Software.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/JSON.h"

#include <mutex>

using namespace mlir;
using namespace mlir::galvatron;

#include "galvatron/Dialect/Galvatron/IR/GalvatronDialect.cpp.inc"

namespace {

/// Strings that were found to be JSON. MLIR verifies behind every pass, and the
/// report of a plan is long: each is parsed once. A context keeps its
/// attributes as long as it lives.
class JsonTexts : public DialectInterface::Base<JsonTexts> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(JsonTexts)
  explicit JsonTexts(Dialect *dialect) : Base(dialect) {}

  /// Why a text is none; success if it is.
  llvm::Error verify(StringAttr text) {
    std::lock_guard<std::mutex> lock(mutex);
    if (known.contains(text))
      return llvm::Error::success();
    auto json = llvm::json::parse(text.getValue());
    if (json)
      known.insert(text);
    return json.takeError();
  }

private:
  std::mutex mutex;
  DenseSet<Attribute> known;
};

} // namespace

void GalvatronDialect::initialize() {
  registerAttributes();
  addInterfaces<JsonTexts>();
  registerDataKinds();
  addOperations<
#define GET_OP_LIST
#include "galvatron/Dialect/Galvatron/IR/GalvatronOps.cpp.inc"
      >();
}

/// Checks that an attribute speaks of as many axes as its function has.
static LogicalResult verifyAxes(Operation *op, Operation *function,
                                StringRef name, size_t axes) {
  PartitionAttr partition = function ? PartitionAttr::of(function) : nullptr;
  if (!partition || partition.getAxes().size() == axes)
    return success();
  return op->emitError() << "expected '" << name << "' to speak of "
                         << partition.getAxes().size() << " axes, found "
                         << axes;
}

/// The module attributes of the dialect.
/// (C1) they stand on a module; (C2) each has the attribute kind of its name;
/// (C3) no other name of the dialect is used; (C4) a plan report is JSON.
LogicalResult
GalvatronDialect::verifyOperationAttribute(Operation *op,
                                           NamedAttribute attribute) {
  StringRef name = attribute.getName().getValue();
  Attribute value = attribute.getValue();
  auto expect = [&](bool holds, StringRef kind) -> LogicalResult {
    if (holds)
      return success();
    return op->emitError() << "expected attribute '" << name << "' to be "
                           << kind << ", found " << value;
  };
  if (name == PartitionAttr::attrName) {
    if (!isLayerFunction(op))
      return op->emitError()
             << "expected attribute '" << name
             << "' on a function, found it on '" << op->getName() << "'";
    return expect(isa<PartitionAttr>(value), "a #galvatron.partition");
  }
  if (name == kValuesAttr) {
    if (!isa<SymbolOpInterface>(op))
      return op->emitError()
             << "expected attribute '" << name
             << "' on a function, found it on '" << op->getName() << "'";
    return expect(isa<StringAttr>(value), "a string");
  }
  if (name == ShardingAttr::attrName) {
    auto sharding = dyn_cast<ShardingAttr>(value);
    if (failed(expect(bool(sharding), "a #galvatron.sharding")))
      return failure();
    ArrayRef<StateAttr> results = sharding.getResults();
    if (results.size() != op->getNumResults())
      return op->emitError()
             << "expected attribute '" << name << "' to speak of "
             << op->getNumResults() << " results, found " << results.size();
    for (const OperandState &use : sharding.getOperands())
      if (use.operand >= op->getNumOperands())
        return op->emitError() << "expected attribute '" << name
                               << "' to speak of " << op->getNumOperands()
                               << " operands, found number " << use.operand;
    size_t axes =
        !results.empty() ? results.front().getAxes().size()
        : !sharding.getOperands().empty()
            ? sharding.getOperands().front().getState().getAxes().size()
            : sharding.getFactors().size();
    return verifyAxes(op, op->getParentOp(), name, axes);
  }
  bool known = name == kClusterAttr || name == kTrainingAttr ||
               name == kPlanAttr || name == kPlanReportAttr ||
               name == kNotesAttr || name == kAdaptersAttr ||
               name == ::galvatron::kSoftwareAttr;
  if (!known)
    return op->emitError() << "expected an attribute of the galvatron dialect, "
                              "found '"
                           << name << "', which is none";
  if (!isa<ModuleOp>(op))
    return op->emitError() << "expected attribute '" << name
                           << "' on a module, found it on '" << op->getName()
                           << "'";
  if (name == kClusterAttr)
    return expect(isa<ClusterAttr>(value), "a #galvatron.cluster");
  if (name == kTrainingAttr)
    return expect(isa<TrainingAttr>(value), "a #galvatron.training");
  if (name == kAdaptersAttr)
    return expect(isa<AdaptersAttr>(value), "a #galvatron.adapters");
  if (name == kPlanAttr)
    return expect(isa<PlanAttr>(value), "a #galvatron.plan");
  if (name == kNotesAttr) {
    auto notes = dyn_cast<ArrayAttr>(value);
    return expect(notes && llvm::all_of(notes, llvm::IsaPred<StringAttr>),
                  "a list of strings");
  }

  auto text = dyn_cast<StringAttr>(value);
  if (failed(expect(static_cast<bool>(text), "a string")))
    return failure();
  if (llvm::Error error = getRegisteredInterface<JsonTexts>()->verify(text))
    return op->emitError() << "expected attribute '" << name
                           << "' to hold JSON: "
                           << llvm::toString(std::move(error));
  return success();
}

LogicalResult GalvatronDialect::verifyRegionArgAttribute(
    Operation *op, unsigned, unsigned argument, NamedAttribute attribute) {
  StringRef name = attribute.getName().getValue();
  bool isSlice = name == SliceAttr::attrName;
  if (!isSlice && name != PartValueAttr::attrName)
    return op->emitError() << "expected an attribute of the galvatron dialect, "
                              "found '"
                           << name << "', which is none";
  if (isSlice ? !isa<SliceAttr>(attribute.getValue())
              : !isa<PartValueAttr>(attribute.getValue()))
    return op->emitError() << "expected '" << name << "' of argument "
                           << argument << " to be a #" << name << ", found "
                           << attribute.getValue();
  auto slice = dyn_cast<SliceAttr>(attribute.getValue());
  if (!slice || !slice.getState())
    return success();
  return verifyAxes(op, op, name, slice.getState().getAxes().size());
}

ModelOp mlir::galvatron::getModel(ModuleOp module) {
  ModelOp found;
  for (auto model : module.getOps<ModelOp>()) {
    if (found) {
      auto diagnostic =
          model.emitOpError("is the second model of the module, expected one");
      diagnostic.attachNote(found.getLoc()) << "the first model is here";
      return {};
    }
    found = model;
  }
  if (!found)
    module.emitError("expected a 'galvatron.model' in the module, found none");
  return found;
}

ClusterAttr mlir::galvatron::getCluster(ModuleOp module) {
  return module->getAttrOfType<ClusterAttr>(GalvatronDialect::kClusterAttr);
}

TrainingAttr mlir::galvatron::getTraining(ModuleOp module) {
  return module->getAttrOfType<TrainingAttr>(GalvatronDialect::kTrainingAttr);
}

AdaptersAttr mlir::galvatron::getAdapters(ModuleOp module) {
  return module->getAttrOfType<AdaptersAttr>(GalvatronDialect::kAdaptersAttr);
}

PlanAttr mlir::galvatron::getPlan(ModuleOp module) {
  return module->getAttrOfType<PlanAttr>(GalvatronDialect::kPlanAttr);
}
