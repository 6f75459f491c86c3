//===- Roles.h - Reading roles and schedules from the IR --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_TRANSFORMS_ROLES_H
#define GALVATRON_DIALECT_GRT_TRANSFORMS_ROLES_H

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "galvatron/Schedule/TaskProgram.h"
#include "galvatron/Strategy/Strategy.h"

#include <vector>

namespace mlir::grt {

/// The model's data; empty without the attribute.
SmallVector<mlir::galvatron::DataAttr> getModelData(ModuleOp module);

/// Positions, among the model's data, of what a layer reads. Fails, with a
/// diagnostic, on a name that is none of them.
FailureOr<SmallVector<int64_t>>
getLayerData(LayerOp layer, ArrayRef<mlir::galvatron::DataAttr> data);

/// Boundary buffers beyond the two ends of the region between layers: a
/// gradient that came, of roles with several chunks, and an output that waits,
/// also of roles that keep it in the transient region. Without them these are
/// buffers 0 and 1.
inline constexpr int64_t kReceivedBuffer = 2, kSentBuffer = 3;
/// Boundary buffers of each chunk that is a pack: it has all four.
inline constexpr int64_t kBuffersOfPack = 4;

/// Returns all roles by stage. Fails, with a diagnostic, unless stages are
/// numbered from 0 without gaps and no device belongs to two.
FailureOr<SmallVector<RoleOp>> getRoles(ModuleOp module);

/// A run of a role's layers with what it exchanges.
struct RoleChunk {
  Operation *op; ///< the `grt.chunk`, or the role that is one chunk
  int64_t number, slots;
  FlatSymbolRefAttr sendActivation, recvActivation, sendGradient, recvGradient;
  size_t firstLayer = 0; ///< among those of the role
  SmallVector<LayerOp> layers = {};
  /// These three are for packs, see ChunkOp.
  bool forwardOnly = false;
  int64_t stashFrom = -1;
  FlatSymbolRefAttr recvStash = {};
};
SmallVector<RoleChunk> getChunks(RoleOp role);

/// The layer of a role that has the states of one that runs forward only, by
/// its position there; -1: another role has them, or the layer its own.
int64_t getLayerWithStates(RoleOp role, LayerOp layer);

/// The chunks of all roles by number, and which role has them. Fails, with a
/// diagnostic, unless they are numbered from 0 without gaps.
struct PlacedChunk {
  RoleChunk chunk;
  size_t role;
};
FailureOr<SmallVector<PlacedChunk>> getChunks(ArrayRef<RoleOp> roles);

/// A task as plain data; `only` is the chunk of roles that are one.
::galvatron::Task readTask(TaskOp op, int64_t only);

/// The strategies of a chunk's layers, in order.
std::vector<::galvatron::Strategy> getStrategies(ArrayRef<LayerOp> layers);
/// The strategies of all layers of a role, in order.
std::vector<::galvatron::Strategy> getStrategies(RoleOp role);

/// The place of one tensor of one layer: positions among the roles, the role's
/// layers and the layer's tensors.
struct TensorPlace {
  int64_t role;
  int64_t layer;
  int64_t tensor;
};

/// A parameter that two layers hold: the owner in group 0, the borrower in
/// group 1.
struct TiedTensor {
  StringAttr parameter;
  TensorPlace owner;
  TensorPlace borrower;
};

/// Returns all ties, by borrower. Fails, with a diagnostic, on a parameter with
/// several owners, or with borrowers only.
FailureOr<SmallVector<TiedTensor>> getTies(ArrayRef<RoleOp> roles);
/// Returns a tie in the form that a schedule is told of it.
::galvatron::TieRoles getTieRoles(ArrayRef<RoleOp> roles,
                                  const TiedTensor &tie);

/// Appends a `grt.schedule` for every role to the builder's block. Empty parts
/// are left out.
void buildSchedules(OpBuilder &builder, ArrayRef<RoleOp> roles,
                    const ::galvatron::TaskProgram &program);

/// The schedules of a module as plain tasks, and where they stand.
struct ReadProgram {
  ::galvatron::TaskProgram program;
  SmallVector<RoleOp> roles;
  SmallVector<ScheduleOp> schedules;
  /// tasks[role][part][i] is program.roles[role].parts[part][i].
  std::vector<std::array<std::vector<TaskOp>, ::galvatron::kSchedulePartCount>>
      tasks;
};

/// Reads the schedules back; the inverse of buildSchedules. The kind of
/// schedule and the number of micro-batches come from `#galvatron.plan` if the
/// module has it, or else from the tasks. Fails, with a diagnostic, unless
/// every role has one schedule.
FailureOr<ReadProgram> readTaskProgram(ModuleOp module);

/// Writes streams and events of the program's tasks to where they stand.
void setSwapStreams(ReadProgram &read);

} // namespace mlir::grt

#endif // GALVATRON_DIALECT_GRT_TRANSFORMS_ROLES_H
