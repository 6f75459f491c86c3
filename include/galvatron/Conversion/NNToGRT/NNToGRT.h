//===- NNToGRT.h - Bodies to functions on buffers ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_CONVERSION_NNTOGRT_NNTOGRT_H
#define GALVATRON_CONVERSION_NNTOGRT_NNTOGRT_H

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "galvatron/Conversion/NNToGRT/Passes.h.inc"
} // namespace mlir

namespace mlir::grt {

/// One parameter tensor in a layer's flat storage.
struct FlatTensor {
  size_t bucket;              ///< number of its bucket
  int64_t offset;             ///< elements from the start of the bucket
  SmallVector<int64_t> view;  ///< whole shape, as the body sees it
  SmallVector<int64_t> local; ///< shape on one rank of the TP group
  int64_t tpDim;              ///< split dimension of the view, or -1
  int64_t elements() const;
};

/// A bucket of a layer's flat storage: parameters of one owner, whose gradients
/// are reduced over the same ranks and whose states are sharded alike, so that
/// one collective moves them all. Sizes are in elements.
struct FlatBucket {
  bool borrowed = false; ///< belongs to another layer, which updates it
  bool frozen = false;   ///< is not trained: no gradients, no states
  /// Ranks that hold the same and update a part of it each.
  int64_t optimizerShards = 1;
  int64_t elements = 0;
  int64_t shardElements = 0; ///< held by a rank
};

/// The flat storage of a layer's parameters on one rank of its TP group: bucket
/// by bucket, each tensor at a multiple of 64 bytes, each bucket padded so that
/// it divides into `shards` shards of a multiple of 64 bytes (semantics: an SDP
/// rank holds one shard). Programs have two buckets, of what the layer owns and
/// of what it borrows, and behind these two of what is not trained, likewise;
/// each may be empty.
struct FlatLayout {
  SmallVector<FlatTensor> tensors; ///< in the order of the body's parameters
  SmallVector<FlatBucket, 2> buckets;
  Type element;                 ///< compute type; null without parameters
  int64_t elementBytes = 4;     ///< of the compute type
  int64_t accumulatorBytes = 4; ///< gradients and optimizer state
  int64_t shards = 1;

  /// Elements of all buckets in front of one.
  int64_t elementsBefore(size_t bucket) const;
  int64_t elements() const { return elementsBefore(buckets.size()); }
  /// Elements that a rank holds of all buckets, of those that are trained, and
  /// of these of what is borrowed.
  int64_t shardElements() const;
  int64_t trainedShardElements() const;
  int64_t borrowedShardElements() const;

  /// States held by one rank.
  int64_t parameterBytes() const;
  int64_t gradientBytes() const;
  int64_t optimizerBytes(::galvatron::Optimizer optimizer) const;
  /// Bytes of whole buckets side by side, as they are gathered.
  int64_t gatheredBytes() const;
  /// Elements that one rank updates.
  int64_t updatedElements() const;
};

/// Checks that every value of a function has elements that buffers can have.
LogicalResult verifyElementTypes(func::FuncOp function);

/// Reads the layout off a partitioned function with local types. Emits an error
/// if a parameter has another element type than f32, f64 and bf16, or than the
/// parameters in front of it.
FailureOr<FlatLayout> getFlatLayout(func::FuncOp function);

/// Sums over one axis that stand one behind the other and are gradients of
/// parameters and nothing else: one call makes them all, on buffers side by
/// side.
struct JoinedSums {
  SmallVector<mlir::galvatron::AllReduceOp> sums;

  /// The run that an operation of a partitioned function begins; no sum if it
  /// begins none. Sums that stand alone are no run.
  static JoinedSums from(Operation *op);
  bool empty() const { return sums.empty(); }
  /// Bytes of all buffers, each at a multiple of 64.
  int64_t bytes() const;
};

/// Sizes of the regions of one converted function.
struct FunctionRegions {
  int64_t inputBytes = 0, outputBytes = 0, stashBytes = 0;
};

/// Bytes of a value in the stash; `wide`: in the type that gradients are summed
/// in.
int64_t getStashBytes(Type type, bool wide);

/// Decides where the input part of a backward function keeps what its weight
/// part reads: in the place of what nobody reads any more, or behind the stash
/// of the forward function. Operations of both are in their last order. Fails
/// with verifyElementTypes().
LogicalResult placeKeptValues(func::FuncOp input, func::FuncOp weight);

/// Replaces one partitioned function, with collectives inserted, by a
/// `grt.func` of the same name: values become buffers (in place where the
/// operation allows it and the operand dies), operations become kernels.
/// Transient buffers have lifetimes but no offsets yet. `target` decides what
/// kernels get as scratch.
FailureOr<FuncOp> convertFunction(func::FuncOp function,
                                  const KernelTarget &target,
                                  FunctionRegions *regions = nullptr);

} // namespace mlir::grt

#endif // GALVATRON_CONVERSION_NNTOGRT_NNTOGRT_H
