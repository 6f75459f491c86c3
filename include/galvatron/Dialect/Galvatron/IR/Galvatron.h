//===- Galvatron.h - The galvatron dialect ----------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The dialect that holds a model as a sequence of layers, and its plan as
// attributes. See GalvatronOps.td for the operations and their constraints.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_IR_GALVATRON_H
#define GALVATRON_DIALECT_GALVATRON_IR_GALVATRON_H

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Optimizer.h"
#include "galvatron/Strategy/Strategy.h"
#include "galvatron/Strategy/SumTiming.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/Support/Error.h"

namespace galvatron {
class Cluster;
} // namespace galvatron

#include "galvatron/Dialect/Galvatron/IR/GalvatronEnums.h.inc"

namespace mlir::galvatron {

/// One level of a strategy: `degree` devices (or groups of inner levels) used
/// by one paradigm.
using StrategyLevel = ::galvatron::Level;

/// An optimizer in the text of an attribute: its name, as a string.
FailureOr<::galvatron::Optimizer> parseOptimizer(AsmParser &parser);
void printOptimizer(AsmPrinter &printer, ::galvatron::Optimizer optimizer);

class LayerOp;
class OutputOp;
class StageOp;

} // namespace mlir::galvatron

#include "galvatron/Dialect/Galvatron/IR/GalvatronDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "galvatron/Dialect/Galvatron/IR/GalvatronAttrs.h.inc"

#define GET_OP_CLASSES
#include "galvatron/Dialect/Galvatron/IR/GalvatronOps.h.inc"

namespace mlir::galvatron {

/// Whether `op` can be a layer function: `func.func`, or `grt.func` once bodies
/// are bufferized.
bool isLayerFunction(Operation *op);

/// The only `galvatron.model` of a module; null, with a diagnostic, if there is
/// none or more than one.
ModelOp getModel(ModuleOp module);

/// Typed access to the module attributes; null if the attribute is not there.
ClusterAttr getCluster(ModuleOp module);
TrainingAttr getTraining(ModuleOp module);
PlanAttr getPlan(ModuleOp module);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_IR_GALVATRON_H
