//===- GRTEnums.td - Enumerations of the grt dialect -------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every number here, but for the last enumeration, is the number of the same
// name in grt/abi.h; lib/Dialect/GRT/IR/GRTAbi.cpp asserts it.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_IR_GRTENUMS_TD
#define GALVATRON_DIALECT_GRT_IR_GRTENUMS_TD

include "mlir/IR/EnumAttr.td"

class GRT_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::mlir::grt";
}

class GRT_Case<string symbol, int value, string keyword>
    : I32EnumAttrCase<symbol, value, keyword>;

def GRT_RegionAttr : GRT_Enum<"MemoryRegion", "what a buffer offset is relative to", [
  GRT_Case<"Parameter", 0, "parameter">,
  GRT_Case<"Gradient", 1, "gradient">,
  GRT_Case<"Optimizer", 2, "optimizer">,
  GRT_Case<"Stash", 3, "stash">,
  GRT_Case<"Transient", 4, "transient">,
  GRT_Case<"Input", 5, "input">,
  GRT_Case<"Output", 6, "output">,
  GRT_Case<"GradIn", 7, "grad_in">,
  GRT_Case<"GradOut", 8, "grad_out">,
  GRT_Case<"Data", 9, "data">,
  GRT_Case<"Loss", 10, "loss">,
  GRT_Case<"Gathered", 11, "gathered">
]>;

// GRT_KernelAttr, made from runtime/include/grt/kernels.def by CMakeLists.txt.
include "galvatron/Dialect/GRT/IR/GRTKernels.td"

def GRT_AxisAttr : GRT_Enum<"Axis", "an axis of a layer's strategy", [
  GRT_Case<"DP", 0, "dp">,
  GRT_Case<"SDP", 1, "sdp">,
  GRT_Case<"TP", 2, "tp">,
  GRT_Case<"CP", 3, "cp">
]>;

def GRT_StreamAttr : GRT_Enum<"Stream", "a queue of a device", [
  GRT_Case<"Compute", 0, "compute">,
  GRT_Case<"Gradient", 1, "gradient">,
  GRT_Case<"Gather", 2, "gather">,
  GRT_Case<"Transfer", 3, "transfer">,
  GRT_Case<"In", 4, "in">,
  GRT_Case<"Out", 5, "out">
]>;

def GRT_TaskKindAttr : GRT_Enum<"TaskKind", "what a role does in one task", [
  GRT_Case<"Forward", 0, "forward">,
  GRT_Case<"Backward", 1, "backward">,
  GRT_Case<"Transfer", 2, "transfer">,
  GRT_Case<"SyncGradients", 3, "sync_gradients">,
  GRT_Case<"TieReduce", 4, "tie_reduce">,
  GRT_Case<"Norm", 5, "norm">,
  GRT_Case<"Update", 6, "update">,
  GRT_Case<"TieBroadcast", 7, "tie_broadcast">,
  GRT_Case<"BackwardInput", 8, "backward_input">,
  GRT_Case<"BackwardWeight", 9, "backward_weight">,
  GRT_Case<"Swap", 10, "swap">
]>;

def GRT_PartAttr : GRT_Enum<"Part", "a part of a schedule", [
  GRT_Case<"Prologue", 0, "prologue">,
  GRT_Case<"Steady", 1, "steady">,
  GRT_Case<"StepEnd", 2, "step_end">,
  GRT_Case<"Drain", 3, "drain">,
  GRT_Case<"Evaluate", 4, "evaluate">
]>;

// The C ABI has no number of this one: a program carries its names.
def GRT_OutputPlace : I32Enum<"OutputPlace", "where a layer's results go", [
  I32EnumCase<"Slot", 0, "slot">,
  I32EnumCase<"Boundary", 1, "boundary">,
  I32EnumCase<"Loss", 2, "loss">
]> {
  let cppNamespace = "::mlir::grt";
}

#endif // GALVATRON_DIALECT_GRT_IR_GRTENUMS_TD
