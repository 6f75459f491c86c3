//===- Passes.td - Passes on the grt dialect ---------------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_TRANSFORMS_PASSES_TD
#define GALVATRON_DIALECT_GRT_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def ScheduleTasks : Pass<"galvatron-schedule-tasks", "::mlir::ModuleOp"> {
  let summary = "Turns stages into roles, exchanges and task schedules";
  let description = [{
    Every `galvatron.stage` becomes a `grt.role` with one `grt.layer` per layer
    and a `grt.schedule`, the tasks of `#galvatron.plan`'s schedule. Neighbouring
    layers that hold different samples get a `grt.exchange` in both directions,
    as do neighbouring stages. On devices with streams layers are marked whose
    parameters may be gathered while their neighbour runs. What later phases
    need to know of the model stays in the module attribute `grt.model`; the
    `galvatron.model` itself is gone.
  }];
  let dependentDialects = ["::mlir::grt::GRTDialect"];
}

def AssignStreams : Pass<"galvatron-assign-streams", "::mlir::ModuleOp"> {
  let summary = "Spreads layer functions over the streams of a device";
  let description = [{
    For backends whose devices have streams; others are left as they are.
    Collectives that gather parameters go on `gather`, those that reduce
    gradients into the layer's accumulators on `gradient`. Shifts go on `gather`
    if a kernel stands between them and the first use of what they bring, the
    first 48 of a function; what the next kernel waits for anyway (tensor
    parallelism) stays on `compute`. Where an operation
    must not start before one on another stream has ended, a `grt.record` is put
    behind the latter and a `grt.wait` in front of the former, unless other
    events order the two already: no wait is there that nothing needs.

    Lifetimes are not moved. The marks count as standing on `compute`, so that
    memory may be placed by them as without streams.

    In schedules swaps go on `in` and `out`, with the events that they and other
    tasks need by what these access (Schedule/SwapOrder.h).

    Fails on a function that has events already, or would need more than 64.
  }];
  let options = [
    Option<"backend", "backend", "std::string", "\"\"",
           "\"cpu\" or \"cuda\"; the cluster's if not given">
  ];
}

def VerifySchedule : Pass<"galvatron-verify-schedule", "::mlir::ModuleOp"> {
  let summary = "Proves that the schedules of all roles cannot deadlock";
  let description = [{
    Reads the schedules back from the IR and runs the proof of
    Schedule/Verify.h on them: sends are rendezvous, a rank works on one task at
    a time, collectives block until every member has come. Where gradients are
    reduced behind a backward task, what runs beside that must share at most one
    rank with it: more, and it would need one order. So must what runs beside
    the gather of a layer that is marked as gathered ahead. Exchanges are checked
    too: both sides of a cut name the same one, its ranks are those of the two
    roles, and every sample that a rank needs arrives. Errors stand at the tasks
    and name ranks.
  }];
}

def NumberBuffers : Pass<"galvatron-number-buffers", "::mlir::ModuleOp"> {
  let summary = "Numbers what functions on buffers compute and roles are";
  let description = [{
    Sets `galvatron.values` on every `grt.func`, the number of what it leaves in
    the regions that others see (Transforms/BufferValues.h), and on every
    `grt.role`. Pipelines do so behind their last phase, and
    `galvatron-verify-roles` compares; somebody who means a change runs this
    pass on the changed IR.
  }];
}

def VerifyRoles : Pass<"galvatron-verify-roles", "::mlir::ModuleOp"> {
  let summary = "Checks functions, roles and schedules against each other";
  let description = [{
    The invariants of the phases `bufferize` to `allocate` by their numbers
    (docs/invariants.md): what functions compute, what layers say of them and of
    parameters, exchanges, and which tasks a schedule has.
  }];
  let options = [
    Option<"placed", "placed", "bool", "false",
           "compare what galvatron-allocate-arena has placed instead">,
    Option<"values", "values", "bool", "true",
           "compare what functions compute and roles are with their numbers">
  ];
}

def AllocateArena : Pass<"galvatron-allocate-arena", "::mlir::ModuleOp"> {
  let summary = "Gives every buffer its place in the arena";
  let description = [{
    First inside functions: transient buffers of every `grt.func` get offsets by
    their lifetimes. Then for every role: the regions of the arena by the one
    memory formula (Cost/StageMemory.h), with the ledger of bytes by purpose. A
    role that needs more than its devices have is refused with the ledger. Where
    only gathers ahead are too much, the role goes without, with a remark.
  }];
  let options = [
    Option<"functionsOnly", "functions-only", "bool", "false",
           "place the buffers of functions, leave roles alone">
  ];
}

#endif // GALVATRON_DIALECT_GRT_TRANSFORMS_PASSES_TD
