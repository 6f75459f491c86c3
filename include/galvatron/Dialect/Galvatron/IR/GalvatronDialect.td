//===- GalvatronDialect.td - The galvatron dialect ---------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_IR_GALVATRONDIALECT_TD
#define GALVATRON_DIALECT_GALVATRON_IR_GALVATRONDIALECT_TD

include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def Galvatron_Dialect : Dialect {
  let name = "galvatron";
  let cppNamespace = "::mlir::galvatron";
  let summary = "A model as a sequence of layers, and its plan as attributes";
  let description = [{
    A model is a sequence of layers over boundary tensors. Every layer calls a
    body (a function of `nn` operations over samples) with module-level
    parameters; equal layers share one body. The plan for a cluster lives in
    inherent attributes of the layers and in a few module attributes, so that it
    can be printed, compared, edited by hand and fed back in:

    ```mlir
    module attributes {
      galvatron.cluster = #galvatron.cluster<"4xcpu", ...>,
      galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>,
      galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 2>
    } { ... }
    ```

    A `?` in front of a tensor's shape always stands for the samples of a
    micro-batch; `galvatron-partition-layers` replaces it by the local number.

    Module attributes of the dialect: `galvatron.cluster` (`#galvatron.cluster`),
    `galvatron.training` (`#galvatron.training`), `galvatron.plan`
    (`#galvatron.plan`), `galvatron.plan_report` (a string with the plan JSON
    that the planner wrote), `galvatron.adapters` (`#galvatron.adapters`), and
    `galvatron.notes` (strings: what was decided on
    the way in, such as fields of a configuration that were ignored by name).
    Each is verified, and only a module may carry it.
    Partitioned functions have `galvatron.partition`, their arguments
    `galvatron.slice`, and their operations, for a while, `galvatron.sharding`.
  }];
  let dependentDialects = ["::mlir::func::FuncDialect"];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let extraClassDeclaration = [{
    /// Names of the discardable attributes that a module may carry.
    static constexpr ::llvm::StringLiteral kClusterAttr = "galvatron.cluster";
    static constexpr ::llvm::StringLiteral kTrainingAttr = "galvatron.training";
    static constexpr ::llvm::StringLiteral kPlanAttr = "galvatron.plan";
    static constexpr ::llvm::StringLiteral kPlanReportAttr =
        "galvatron.plan_report";
    static constexpr ::llvm::StringLiteral kNotesAttr = "galvatron.notes";
    static constexpr ::llvm::StringLiteral kAdaptersAttr = "galvatron.adapters";

  private:
    void registerAttributes();
    void registerDataKinds();

  public:
  }];
}

#endif // GALVATRON_DIALECT_GALVATRON_IR_GALVATRONDIALECT_TD
