//===- NN.h - The nn dialect ------------------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The mathematics inside a layer, forward and backward, on tensors whose
// leading `?` dimension counts samples.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_IR_NN_H
#define GALVATRON_DIALECT_NN_IR_NN_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/TensorEncoding.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <optional>
#include <utility>

namespace mlir::nn {

/// Names of discardable attributes that the passes on bodies share.
inline constexpr llvm::StringLiteral kFactorsAttr = "nn.factors";
inline constexpr llvm::StringLiteral kFactorUnitsAttr = "nn.factor_units";
inline constexpr llvm::StringLiteral kUnevenAttr = "nn.uneven";
inline constexpr llvm::StringLiteral kSharedAttr = "nn.shared";
inline constexpr llvm::StringLiteral kRoleAttr = "nn.role";
/// The attribute of a parameter that is not trained: it has no gradient and no
/// state.
inline constexpr llvm::StringLiteral kFrozenAttr = "nn.frozen";
/// The attribute of an input of a body that generates which is not made of the
/// positions that are computed: "source" of what an encoder reads of a text,
/// which is there in passes in which texts begin, "parameters" of nothing else.
inline constexpr llvm::StringLiteral kMadeOfAttr = "nn.made_of";
inline constexpr llvm::StringLiteral kSource = "source";
inline constexpr llvm::StringLiteral kParameters = "parameters";

/// The role of an argument or result of a layer function: the value of
/// `nn.role`. Transforms/Bodies.h tells their order.
enum class ValueRole {
  Input,
  Data,
  Parameter,
  Output,
  Loss,
  Stash,
  Gradient,
  InputGradient,
  ParameterGradient
};
StringRef stringifyRole(ValueRole role);
std::optional<ValueRole> symbolizeRole(StringRef text);

/// Checks that every argument and result of a layer function has a role; the
/// diagnostic names the first that has none.
LogicalResult verifyHasRoles(FunctionOpInterface function);

/// The role of the elements of a result, see `TrainingOpInterface`.
enum class ElementRole {
  Compute,     ///< the body's element type
  Accumulator, ///< its accumulator type
  Fixed        ///< the same for every element type
};

/// Elements of a ranked tensor with so many samples: the number of them stands
/// for every `?` dimension, or in a block of rows that of its rows.
int64_t countElements(Type type, int64_t samples);
/// Bytes of a ranked tensor, likewise.
int64_t countBytes(Type type, int64_t samples);
/// The type with the number of samples, or of rows, for `?`.
RankedTensorType withSamples(RankedTensorType type, int64_t samples);

/// The type of a rank's block if `degree` ranks divide the rows of `whole`,
/// whose first dimension is samples and dimension `positions` is positions; a
/// block has its rows in front of all others. The degree divides the rows, for
/// balanced blocks twice the degree, where their number is known. A block of
/// all rows, balanced as the blocks that it is cut into, is cut again.
RankedTensorType cutRows(RankedTensorType whole, int64_t degree,
                         int64_t positions = 1, bool balanced = false);
/// The type that a block of rows is cut from, positions behind samples: of a
/// block that was cut again the block.
RankedTensorType joinRows(RankedTensorType block);

/// The type of row statistics and of parameter gradients beside values of
/// `element`: f64 for f64, f32 for all others.
Type accumulatorElement(Type element);

/// Frequencies of `nn.rotary`, at most (ABI: GRT_ROTARY_PAIRS).
inline constexpr int64_t kMostRotaryPairs = 256;
/// Elements of a head of `nn.cached_attention`, at most (ABI: GRT_CACHED_HEAD).
inline constexpr int64_t kMostCachedHead = 1024;
/// Rows of the table of `relative_bias`, at most (ABI: GRT_RELATIVE_BUCKETS).
inline constexpr int64_t kMostRelativeBuckets = 256;

/// Factors of one operation: for each operand and result one factor number a
/// dimension, or kNoFactor for a dimension that may not be split.
inline constexpr int kNoFactor = -1;
struct FactorRule {
  SmallVector<SmallVector<int>> operands;
  SmallVector<SmallVector<int>> results;
};

/// The heads of an attention's operands: their factor and, each once, how many
/// there are, of queries first. `ofBlocks` says that the operation numbers them
/// over the ranks that have blocks of rows elsewhere (`heads_of_blocks`).
struct HeadCounts {
  int factor = kNoFactor;
  SmallVector<int64_t, 2> counts;
  bool ofBlocks = false;
};

class FactorOpInterface;
/// The factors of an operation's rows, of samples and of positions, by its
/// rule: wherever one of the two stands, both stand as the first dimensions.
/// Operations that mix positions may have values without that of positions,
/// which blocks are then no part of. Integers, tokens and labels, stay whole.
/// Nothing if the operation cannot take blocks of rows.
std::optional<std::pair<int, int>> getRowFactors(FactorOpInterface op,
                                                 const FactorRule &rule);

/// Whether a function names `factor` in `attribute`, kUnevenAttr or
/// kSharedAttr.
bool listsFactor(Operation *function, StringRef attribute, StringRef factor);

/// The ranks of one axis, as `FactorOpInterface` may ask of the pass.
class ShardContext {
public:
  virtual ~ShardContext() = default;
  /// Number of ranks of the axis.
  virtual int64_t size() const = 0;
  /// True if kernels are told the rank on this axis, which some take for the
  /// number of a part: attention of whole samples numbers its heads by it.
  virtual bool numbersParts() const = 0;
  /// Concatenates `value` of all ranks along a new leading dimension.
  virtual Value allGather(OpBuilder &builder, Location loc,
                          Value value) const = 0;
  /// Passes `value`, a block of rows, on to the next rank, around the axis, and
  /// gives that of the rank in front.
  virtual Value shift(OpBuilder &builder, Location loc, Value value) const = 0;
};

/// The services for operations that come to keep keys and values
/// (`TrainingOpInterface::keepKeys`).
class KeptKeys {
public:
  virtual ~KeptKeys() = default;
  /// The row that every sample belongs to and its position there, both
  /// `[samples, 1]`.
  Value rows, positions;
  /// The row whose source every sample brings, or -1, and how many keys the
  /// source of its own row has, both `[samples, 1]`.
  Value sourceRows, sourceLengths;
  /// Positions that a row can have.
  int64_t length = 0;
  /// True if a value is made of what an encoder reads.
  virtual bool isOfSource(Value value) const = 0;
  /// A tensor of `[rows, heads, places, head size]` that is kept, with elements
  /// like those of `like`. `factor` is what its heads carry, empty for nothing.
  virtual Value add(Value like, int64_t heads, int64_t places, int64_t headSize,
                    StringRef factor) = 0;
};

/// The services of the conversion for `KernelOpInterface::emitKernels`. Kernel
/// names are those of `grt_kernel`, lower case; operand order is the ABI's.
class KernelEmitter {
public:
  virtual ~KernelEmitter() = default;
  /// Appends a kernel call.
  virtual void kernel(StringRef name, ArrayRef<Value> buffers,
                      ArrayRef<int64_t> ints, ArrayRef<double> reals = {}) = 0;
  /// A buffer that lives only during this operation.
  virtual Value temporary(RankedTensorType type) = 0;
  /// A temporary of as many bytes as the backend wants for `scratch` of this
  /// call; null if it wants none. `element` is the type that the kernel
  /// computes in, `result` that of what it writes, where that may differ.
  virtual Value scratch(StringRef kernel, ArrayRef<int64_t> ints, Type element,
                        Type result = {}) = 0;
  /// The part of `buffer` that starts `byteOffset` bytes in.
  virtual Value view(Value buffer, int64_t byteOffset,
                     RankedTensorType type) = 0;
  /// The mode of writing to what result `index` already holds (ABI: `acc`): 0
  /// if it is a fresh value, 2 if it is a gradient accumulator.
  virtual int64_t accumulateMode(unsigned index) const = 0;
};

} // namespace mlir::nn

#include "galvatron/Dialect/NN/IR/NNDialect.h.inc"
#include "galvatron/Dialect/NN/IR/NNInterfaces.h.inc"

#define GET_ATTRDEF_CLASSES
#include "galvatron/Dialect/NN/IR/NNAttrs.h.inc"

#define GET_OP_CLASSES
#include "galvatron/Dialect/NN/IR/NNOps.h.inc"

#endif // GALVATRON_DIALECT_NN_IR_NN_H
