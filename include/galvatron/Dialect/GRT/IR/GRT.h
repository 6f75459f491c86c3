//===- GRT.h - The grt dialect --------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_IR_GRT_H
#define GALVATRON_DIALECT_GRT_IR_GRT_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

#include "galvatron/Dialect/GRT/IR/GRTDialect.h.inc"
#include "galvatron/Dialect/GRT/IR/GRTEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "galvatron/Dialect/GRT/IR/GRTAttrs.h.inc"

namespace mlir::grt {

/// Attribute of a module with roles: what later phases need to know of the
/// model (ModelAttr).
inline constexpr llvm::StringLiteral kModelAttr = "grt.model";
/// Attribute of a kernel or a collective that runs in passes in which texts
/// begin and in no other: it computes what an encoder makes of them.
inline constexpr llvm::StringLiteral kTextsBeginAttr = "grt.texts_begin";

/// Every buffer and region starts at a multiple of this many bytes; the same
/// number as GRT_ALIGNMENT.
constexpr int64_t kAlignment = 64;

/// `bytes` rounded up to kAlignment.
constexpr int64_t alignBytes(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// True for memrefs of known shape, identity layout, default memory space and
/// an element type that the C ABI has.
bool isBufferType(Type type);

/// Number of the element type in the C ABI (grt_dtype); none of types that the
/// C ABI does not have.
std::optional<uint32_t> getAbiDType(Type elementType);

/// Checks that the C ABI has the element type of `type`; the error names
/// `type`.
LogicalResult
verifyElementType(Type type,
                  llvm::function_ref<InFlightDiagnostic()> emitError);

/// Bytes of one element, of a type that the C ABI has.
int64_t getElementBytes(Type elementType);

/// Values of the accumulator type that an optimizer keeps for each parameter
/// element: "adam" and "adamw" two moments, "sgd" the momentum, and the master
/// weight where parameters are narrower than the accumulator type.
int64_t getOptimizerValues(::galvatron::Optimizer optimizer,
                           int64_t elementBytes, int64_t accumulatorBytes);

/// Bytes of a buffer's or tensor's type, not rounded up.
int64_t getByteSize(ShapedType type);

/// The backend of the module's cluster; "cpu" without a cluster.
StringRef getBackend(ModuleOp module);

/// The target that decides how much scratch kernels get: the backend (of the
/// empty name, the most that any wants), and the threads that a rank of the
/// CPU's has.
struct KernelTarget {
  StringRef backend = "cpu";
  int64_t threads = ::galvatron::NodeGroup().threadsPerDevice();
};

/// The target of the module's cluster; the default without a cluster.
KernelTarget getKernelTarget(ModuleOp module);

/// The place of the scratch among the buffers of a kernel of attention; none
/// for other kernels.
std::optional<unsigned> getAttentionScratchPlace(Kernel kernel);

/// Bytes of `scratch` for a call of a kernel of attention with these integers
/// (the order of grt/kernels.def).
int64_t getAttentionScratchBytes(const KernelTarget &target, Kernel kernel,
                                 ArrayRef<int64_t> ints, int64_t elementBytes);

/// Bytes of scratch for a product whose operands and result have elements of so
/// many bytes; 0 if it takes none.
int64_t getGemmScratchBytes(const KernelTarget &target, ArrayRef<int64_t> ints,
                            int64_t elementBytes, int64_t resultBytes);

} // namespace mlir::grt

#define GET_OP_CLASSES
#include "galvatron/Dialect/GRT/IR/GRTOps.h.inc"

namespace mlir::grt {

/// A buffer as the C ABI names it: views resolved to their `grt.buffer`.
struct BufferRef {
  BufferOp buffer;
  /// Bytes from the start of `buffer`.
  int64_t offset = 0;
};

/// Follows `grt.view` ops to the buffer they look into.
BufferRef resolveBuffer(Value value);

/// True for collectives inside a layer function.
inline bool isCollective(Operation *op) {
  return isa<AllReduceOp, AllReduceMaxOp, AllGatherOp, ReduceScatterOp,
             AllToAllOp, AllToAllCountsOp, ShiftOp>(op);
}

/// True for operations that may have kTextsBeginAttr.
inline bool mayWaitForTexts(Operation *op) {
  return isa<KernelOp>(op) || isCollective(op);
}

} // namespace mlir::grt

#endif // GALVATRON_DIALECT_GRT_IR_GRT_H
