//===- Partition.h - Layer functions under a strategy -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// The work of the passes galvatron-partition-layers and
// galvatron-insert-collectives on one function, for them and for the planner's
// footprints.
//
// Partition clones a layer function for a strategy: `?` becomes the number of
// local samples, and the tensor-parallel factors of the parameters are
// propagated over the body. What the propagation finds is written down as
// discardable attributes:
//
//   galvatron.sharding    on operations (#galvatron.sharding)
//   galvatron.slice       on arguments (#galvatron.slice)
//   galvatron.partition   on functions (#galvatron.partition)
//
// Insertion of collectives then makes types local and consumes the first.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PARTITION_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PARTITION_H

#include "galvatron/Strategy/Strategy.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::galvatron {

/// The functions of one layer; recompute only under checkpointing.
struct LayerFunctions {
  func::FuncOp forward, recompute, backward;
};

/// Returns why the body cannot be split as `strategy` asks, naming factor,
/// units and degree; nullopt if it can.
std::optional<std::string>
whyNotPartitionable(func::FuncOp forward,
                    const ::galvatron::Strategy &strategy);

/// The numbers of the axes whose ranks have blocks of rows, in the order in
/// which they cut them, wherever they stand among the levels: ranks that divide
/// positions have blocks of all rows, and those beside them blocks of these.
SmallVector<size_t, 2> getRowAxes(ArrayRef<::galvatron::Level> axes);

/// A cut of rows: values of so many positions, and the levels whose ranks have
/// a block of their rows each, in the order in which they cut them.
struct RowCut {
  int64_t length;
  SmallVector<::galvatron::Level, 2> levels;
  bool balanced = false;

  bool operator==(const RowCut &other) const = default;
  /// Returns why the rows of so many samples are no whole blocks, with both
  /// numbers; nullopt if they are.
  std::optional<std::string> whyNot(int64_t samples) const;
};

/// The cuts of rows in partitioned functions whose types are not local yet,
/// without repetition.
SmallVector<RowCut> getRowCuts(const LayerFunctions &functions);

/// The name that all layers of this body, strategy and sample count share:
/// `gpt2.block.tp2.sdp2.b4`. The order of levels and the DP degree do not
/// change the local functions and are not part of it.
std::string partitionedName(llvm::StringRef body,
                            const ::galvatron::Strategy &strategy,
                            int64_t samples, ArrayRef<int64_t> borrowed);

/// Clones `whole` behind its last function for `strategy`, for any number of
/// local samples: `?` stays. `borrowed` lists parameter indices whose owner is
/// another layer. Fails with a diagnostic if the propagation meets a dimension
/// it cannot split.
FailureOr<LayerFunctions>
partitionForAnySamples(const LayerFunctions &whole,
                       const ::galvatron::Strategy &strategy,
                       llvm::StringRef name, ArrayRef<int64_t> borrowed);

/// Makes the partitioned copy of a forward function alone, behind it.
FailureOr<func::FuncOp> partitionForward(func::FuncOp forward,
                                         const ::galvatron::Strategy &strategy,
                                         llvm::StringRef name);

/// Replaces `?` by the number of local samples in a whole function.
void specializeSamples(func::FuncOp function, int64_t samples);

/// Partitions a layer for a number of local samples; fails, with a diagnostic,
/// if a size overflows or rows are no whole blocks.
FailureOr<LayerFunctions> partitionLayer(const LayerFunctions &whole,
                                         const ::galvatron::Strategy &strategy,
                                         int64_t samples, llvm::StringRef name,
                                         ArrayRef<int64_t> borrowed);

/// Inserts the collectives into one partitioned function and makes its types
/// local.
LogicalResult insertCollectives(func::FuncOp function);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PARTITION_H
