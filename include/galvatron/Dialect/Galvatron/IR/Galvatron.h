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
#include "galvatron/Strategy/KeptValues.h"
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
#include "mlir/Interfaces/FunctionInterfaces.h"
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

/// State of a value over the ranks of one axis.
class AxisState {
public:
  static AxisState replicated() { return AxisState(kReplicated); }
  static AxisState unreduced() { return AxisState(kUnreduced); }
  /// Every rank has a block of rows, which are samples times positions. The
  /// number is that of the dimension of positions; samples are dimension 0.
  /// Balanced blocks are for causal attention (nn::RowsAttr).
  static AxisState rows(int64_t positions = 1, bool balanced = false) {
    assert(positions >= 1 && "samples are in front of positions");
    AxisState state(kRows + 1 - positions);
    state.balanced = balanced;
    return state;
  }
  /// Every rank has a block of a dimension.
  static AxisState split(int64_t dim) { return AxisState(dim); }

  bool isReplicated() const { return code == kReplicated; }
  /// True if every rank has a term of the sum that is the value.
  bool isUnreduced() const { return code == kUnreduced; }
  bool isRows() const { return code <= kRows; }
  bool isSplit() const { return code >= 0; }
  bool isBalanced() const { return balanced; }
  /// The dimension of positions, whose rows are cut into blocks.
  int64_t positions() const {
    assert(isRows() && "there are no blocks of rows");
    return kRows + 1 - code;
  }
  /// The dimension that is split.
  int64_t dim() const {
    assert(isSplit() && "no dimension is split");
    return code;
  }

  bool operator==(const AxisState &other) const = default;
  friend llvm::hash_code hash_value(const AxisState &state) {
    return llvm::hash_combine(state.code, state.balanced);
  }

private:
  static constexpr int64_t kReplicated = -1, kUnreduced = -2, kRows = -3;
  explicit AxisState(int64_t code) : code(code) {}
  /// The dimension that is split, or one of these; less than kRows for
  /// positions in a later dimension.
  int64_t code;
  bool balanced = false; ///< of rows
};

/// `replicated`, `unreduced`, `rows`, `rows 2`, `balanced rows` or `split 2`.
void printState(llvm::raw_ostream &os, AxisState state);

class StateAttr;
/// The state in which an operation takes one of its operands.
struct OperandState {
  int64_t operand;
  Attribute state; ///< a StateAttr, which is not complete here

  StateAttr getState() const;
  bool operator==(const OperandState &other) const = default;
  friend llvm::hash_code hash_value(const OperandState &use) {
    return llvm::hash_combine(use.operand, use.state);
  }
};

/// Levels in the text of an attribute: `[tp = 2, sdp = 4]`.
FailureOr<SmallVector<StrategyLevel>> parseLevels(AsmParser &parser);
void printLevels(AsmPrinter &printer, ArrayRef<StrategyLevel> levels);

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
AdaptersAttr getAdapters(ModuleOp module);

/// The first of a layer's flat groups are trained, those behind them are not.
inline constexpr int64_t kTrainedGroups = 2;

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_IR_GALVATRON_H
