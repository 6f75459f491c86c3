//===- GRTAttrs.td - Attributes of the grt dialect ---------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attributes that `galvatron-schedule-tasks` and `galvatron-allocate-arena` set
// for the phases behind them. Offsets and sizes are bytes.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_IR_GRTATTRS_TD
#define GALVATRON_DIALECT_GRT_IR_GRTATTRS_TD

include "galvatron/Dialect/GRT/IR/GRTDialect.td"
include "galvatron/Dialect/GRT/IR/GRTEnums.td"
include "mlir/IR/AttrTypeBase.td"

class GRT_Attr<string name, string attrMnemonic>
    : AttrDef<GRT_Dialect, name> {
  let mnemonic = attrMnemonic;
}

def GRT_ExtentAttr : GRT_Attr<"Extent", "extent"> {
  let summary = "a piece of an arena";
  let description = [{
    Where it begins and how long it is. Syntax: `#grt.extent<0, 640>`.

    Constraints:
    - (C1) neither is negative.
  }];
  let parameters = (ins "int64_t":$offset, "int64_t":$bytes);
  let assemblyFormat = "`<` $offset `,` $bytes `>`";
  let genVerifyDecl = 1;
}

def GRT_ArenaAttr : GRT_Attr<"Arena", "arena"> {
  let summary = "the regions of a role's arena";
  let description = [{
    Regions that all ranks of a role lay out alike. `copies` are rows of a datum,
    an offset and a number of bytes. Where states have their home on the host,
    `home_bytes` is what that takes, `parameters`, `gradients` and `optimizer`
    lie there, and the arena has the resident ones; with `home_slots` the slots
    too, and the arena has one. If only some layers' are there, the arena has
    `resident_optimizer` and slots of the others, and `away_slot` for what these
    keep. Roles with several chunks
    have boundary buffers of their own for what comes and what goes (`received`,
    `sent`); of others what goes may have a place in the transient region.
    `window` is where slots may reach into the transient region: its
    offset, its bytes, and bytes from one slot to the next. `workspace` is what
    libraries ask for. Roles of packs have slots at home of `home_slot_bytes`
    each, and one region that packs and messages take in turns (`packs`). Where a
    pack has its buffers then `frames` say, a row a chunk: offset and bytes of
    `boundary`, `received` and `sent`, and of each place in which a message into
    it waits, from the end of the region down.

    Constraints:
    - (C1) rows of `copies` and `window` have three numbers;
    - (C2) resident regions are there exactly with `home_bytes`, `home_slots` and
      `resident_optimizer` only with it, and `away_slot` only with the former;
    - (C3) `received` is there only with `sent`;
    - (C4) `home_slot_bytes` are not negative;
    - (C5) `frames` are there exactly with `packs`, and have rows of seven numbers
      that are not negative.
  }];
  let parameters = (ins "ExtentAttr":$parameters, "ExtentAttr":$gradients,
                        "ExtentAttr":$optimizer, "ExtentAttr":$slots,
                        "ExtentAttr":$transient, "ExtentAttr":$boundary,
                        "ExtentAttr":$data, "ExtentAttr":$loss,
                        "ExtentAttr":$step,
                        OptionalParameter<"::mlir::ArrayAttr">:$copies,
                        DefaultValuedParameter<"int64_t", "0">:$home_bytes,
                        OptionalParameter<"ExtentAttr">:$resident_parameters,
                        OptionalParameter<"ExtentAttr">:$resident_gradients,
                        OptionalParameter<"ExtentAttr">:$resident_optimizer,
                        OptionalParameter<"ExtentAttr">:$received,
                        OptionalParameter<"ExtentAttr">:$sent,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$window,
                        OptionalParameter<"ExtentAttr">:$workspace,
                        OptionalParameter<"ExtentAttr">:$home_slots,
                        OptionalParameter<"ExtentAttr">:$away_slot,
                        OptionalParameter<"ExtentAttr">:$packs,
                        DefaultValuedParameter<"int64_t", "0">:$home_slot_bytes,
                        OptionalParameter<"::mlir::ArrayAttr">:$frames);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def GRT_LedgerAttr : GRT_Attr<"Ledger", "ledger"> {
  let summary = "what the bytes of a role's arena are for";
  let description = [{
    The summands of the memory formula ([cost-model.md](cost-model.md)).

    Constraints:
    - (C1) none is negative.
  }];
  let parameters = (ins "int64_t":$parameters, "int64_t":$gradients,
                        "int64_t":$optimizer, "int64_t":$activations,
                        "int64_t":$backward, "int64_t":$communication,
                        "int64_t":$workspace, "int64_t":$runtime);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def GRT_PlacementAttr : GRT_Attr<"Placement", "placement"> {
  let summary = "where a layer finds everything";
  let description = [{
    Offsets into the regions of the role's arena; of what is resident where
    states have their home on the host, of optimizer state only of a pack that
    is updated on the device, which has no gradients at home; of gathered parameters, if the layer
    gathers any. `data` are the numbers of its data among the role's copies.
    Gradients come in boundary buffer `grad_in` and go to `grad_out`. Numbers
    that a layer does not have are -1.
  }];
  let parameters = (ins "int64_t":$parameter, "int64_t":$gradient,
                        "int64_t":$optimizer, "int64_t":$stash,
                        "int64_t":$forward_transient,
                        "int64_t":$backward_transient,
                        DefaultValuedParameter<"int64_t", "-1">:$resident_parameter,
                        DefaultValuedParameter<"int64_t", "-1">:$resident_gradient,
                        DefaultValuedParameter<"int64_t", "-1">:$resident_optimizer,
                        DefaultValuedParameter<"int64_t", "-1">:$forward_gathered,
                        DefaultValuedParameter<"int64_t", "-1">:$backward_gathered,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$data,
                        DefaultValuedParameter<"int64_t", "-1">:$grad_in,
                        DefaultValuedParameter<"int64_t", "-1">:$grad_out,
                        EnumParameter<GRT_OutputPlace>:$output);
  let assemblyFormat = "`<` struct(params) `>`";
}

def GRT_ModelAttr : GRT_Attr<"Model", "model"> {
  let summary = "what later phases need to know of the model";
  let description = [{
    Its name, its data (`#galvatron.data`), and the text of its configuration if
    there was one.

    Constraints:
    - (C1) `data` are `#galvatron.data`.
  }];
  let parameters = (ins "::mlir::StringAttr":$name, "::mlir::ArrayAttr":$data,
                        OptionalParameter<"::mlir::StringAttr">:$config);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

#endif // GALVATRON_DIALECT_GRT_IR_GRTATTRS_TD
