//===- Passes.td - Passes of the galvatron dialect ---------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PASSES_TD
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// import, annotate
//===----------------------------------------------------------------------===//

def GalvatronApplyTraining
    : Pass<"galvatron-apply-training", "::mlir::ModuleOp"> {
  let summary = "Sets the training options and gives bodies their types";
  let description = [{
    Sets `galvatron.training`. Changes the element type of parameters, bodies and
    boundaries to `dtype`; row statistics keep the accumulator type and losses
    stay f64. With `dropout=false` no dropout is left in any body. Losses get label
    smoothing and a z-loss, and then are two numbers: the loss, and the sum of the
    squared log-sum-exps that the z-loss is a mean of.
  }];
  let options = [
    Option<"optimizer", "optimizer", "std::string", /*default=*/"\"adamw\"",
           "adamw, adam or sgd">,
    Option<"dtype", "dtype", "std::string", /*default=*/"\"f32\"",
           "f32, bf16 or f64">,
    Option<"clip", "clip", "bool", /*default=*/"true",
           "whether gradients may be clipped by their global norm">,
    Option<"clipDelayed", "clip-delayed", "bool", /*default=*/"false",
           "by the norm of the batch before">,
    Option<"dropout", "dropout", "bool", /*default=*/"true",
           "whether dropout stays as the model has it">,
    Option<"decayAll", "decay-all", "bool", /*default=*/"false",
           "weight decay on every parameter, also on vectors">,
    Option<"labelSmoothing", "label-smoothing", "double", /*default=*/"0",
           "the part of a label's weight that all classes share">,
    Option<"zLoss", "z-loss", "double", /*default=*/"0",
           "factor of the mean squared log-sum-exp of the logits">
  ];
  let dependentDialects = ["::mlir::nn::NNDialect"];
}

def GalvatronSplitBlocks : Pass<"galvatron-split-blocks", "::mlir::ModuleOp"> {
  let summary = "Makes layers of the parts of blocks";
  let description = [{
    Cuts every body that hands on what it takes where one value is all that the
    rest needs, and both sides have a matrix among their parameters: a
    transformer's block into attention and feed-forward layer, which may then
    have strategies of their own. Layers are called after the layer and the
    piece of their parameters' names that tells them apart, `h.3.attn` and
    `h.3.mlp`, or by number. `dropout_key` keeps the masks of the whole layer;
    parameters keep their names. Operations are not fused over a cut, and it is
    one more boundary to keep. Not of models that are planned already.
  }];
  let dependentDialects = ["::mlir::func::FuncDialect", "::mlir::nn::NNDialect"];
}

def GalvatronSeparateDocuments
    : Pass<"galvatron-separate-documents", "::mlir::ModuleOp"> {
  let summary = "Keeps the documents of a sample apart";
  let description = [{
    Gives the model a datum `document_starts`: for every token the position of
    the first token of its document. Bodies with operations that depend on it
    (`TrainingOpInterface::separateDocuments`) take it as their last input:
    attention sees no key before it, and learnt positions count from it. Models
    whose bodies mix positions otherwise, or read no single row of tokens, are
    refused by name. `length` is what costs go by.
  }];
  let options = [
    Option<"length", "length", "int64_t", /*default=*/"0",
           "mean length of documents, each token counting once; 0: a sample's">
  ];
  let dependentDialects = ["::mlir::nn::NNDialect"];
}

def GalvatronKeepKeys : Pass<"galvatron-keep-keys", "::mlir::ModuleOp"> {
  let summary = "Makes a model generate with kept keys and values";
  let description = [{
    Gives samples one position each. Two more data, `cache_rows` and `positions`,
    say for every sample which of `rows` texts it belongs to (-1: none) and where
    it stands there, below `length`. Operations become what computes a position
    from the keys and values of those before it
    (`TrainingOpInterface::keepKeys`); those without such a form are refused by
    name. Keys and values are parameters of their layer with `init = "cache"`,
    which the layer writes, so that their bytes are the plan's. All parameters are
    frozen and dropout is left out. Not of models that are planned already.

    Where an encoder stands in front of the decoder, what it reads stays as long as
    it is, and so do its layers. Attention to what it makes becomes attention to
    keys that are kept from when a text begins: two data more, `source_rows` and
    `source_lengths`, say for every sample of which text it brings the source, or of
    none (-1), and how many tokens the source of its own text has. Inputs of bodies
    that an encoder has made are `nn.made_of = "source"`; what is computed of them
    alone runs in passes in which texts begin.
  }];
  let options = [
    Option<"rows", "rows", "int64_t", /*default=*/"1", "texts at a time">,
    Option<"length", "length", "int64_t", /*default=*/"0",
           "positions that a text has at most, of prompt and continuation">
  ];
  let dependentDialects = ["::mlir::nn::NNDialect"];
}

def GalvatronAddAdapters : Pass<"galvatron-add-adapters", "::mlir::ModuleOp"> {
  let summary = "Adds low-rank adapters and freezes all other parameters";
  let description = [{
    Freezes all parameters. Beside every product whose weight's module `layers`
    names, and that is the weight of nothing else, stand two with matrices that
    are trained (LoRA): `y = x W + alpha / rank (x A) B`. A, `[rank, in]`, begins
    as random numbers and B, `[out, rank]`, as zero; they are called as in PEFT's
    files. Weights that checkpoints have as one tensor (`qkv_proj`) share A, and
    the parts of B are stored as those of the weight. Layers of one body share one
    with adapters, if these are the same. Tied weights are refused by name. Inputs
    that nothing trained has made are `nn.frozen`: backward passes end at the
    lowest adapter. Not of models that are planned already.
  }];
  let options = [
    Option<"rank", "rank", "int64_t", /*default=*/"8",
           "columns of A and rows of B">,
    Option<"alpha", "alpha", "double", /*default=*/"16",
           "what adapters add is scaled by alpha / rank">,
    Option<"layers", "layers", "std::string", /*default=*/"",
           "names of modules with '*', or their last pieces, separated by ';'; "
           "a rank and an alpha of their own stand behind: NAME:RANK:ALPHA">
  ];
  let dependentDialects = ["::mlir::nn::NNDialect"];
}

def GalvatronAnnotateCosts
    : Pass<"galvatron-annotate-costs", "::mlir::ModuleOp"> {
  let summary = "Writes work and bytes of every layer into the IR";
  let description = [{
    Sets `costs` on every layer with a body, from the interfaces of its
    operations; bytes and FLOPs of one sample on one device:
    `parameters` (their number, tied ones counted by every user),
    `parameter_bytes`, `boundary_bytes` (what the layer hands on),
    `intermediate_bytes` (what the backward pass needs besides the input),
    `backward_bytes` (largest live temporaries of the backward pass),
    `forward_flops`, `backward_flops`, `forward_moved_bytes`,
    `backward_moved_bytes`.
  }];
  let dependentDialects = ["::mlir::func::FuncDialect", "::mlir::nn::NNDialect"];
}

//===----------------------------------------------------------------------===//
// plan
//===----------------------------------------------------------------------===//

def GalvatronSelectPlan : Pass<"galvatron-select-plan", "::mlir::ModuleOp"> {
  let summary = "Searches the fastest plan that fits, and writes it down";
  let description = [{
    Asks the planner (Planner/Planner.h) for the plan of the module's cluster and
    training options: `galvatron.plan`, `galvatron.plan_report` and, on every
    layer, `strategy` and `stage`. With `keep-plan` the plan that the module has
    is checked and priced instead. What was chosen and rejected goes out as
    analysis remarks. A model that does not fit is an error with the stage, the
    bytes by purpose and the cheapest relaxations.
  }];
  // Footprints come from layers that are compiled on the side.
  let dependentDialects = ["::mlir::func::FuncDialect", "::mlir::nn::NNDialect"];
  let options = [
    Option<"cluster", "cluster", "std::string", /*default=*/"\"\"",
           "built-in name or file; the module's cluster if not given">,
    Option<"space", "space", "std::string", /*default=*/"\"\"",
           "search space; the planner's default if not given">,
    Option<"memory", "memory", "std::string", /*default=*/"\"\"",
           "memory of every device, e.g. 16GiB">,
    Option<"batch", "batch", "int64_t", /*default=*/"0",
           "samples of a step; 0 searches it">,
    Option<"maxBatch", "max-batch", "int64_t", /*default=*/"2048",
           "largest batch searched">,
    Option<"batchStep", "batch-step", "int64_t", /*default=*/"8",
           "step of the batches searched">,
    Option<"pipelineDegree", "pipeline-degree", "int64_t", /*default=*/"0",
           "forced number of stages">,
    Option<"microBatches", "micro-batches", "int64_t", /*default=*/"0",
           "forced number of micro-batches">,
    Option<"schedule", "schedule", "std::string", /*default=*/"\"\"",
           "1f1b, gpipe, interleaved, 2bw, zb-h1, zb-h2 or zb-v">,
    Option<"strategy", "strategy", "std::string", /*default=*/"\"\"",
           "forced strategy of all layers, e.g. sdp4.ckpt">,
    Option<"keepPlan", "keep-plan", "bool", /*default=*/"false",
           "price the plan of the module instead of searching one">
  ];
}

def GalvatronBalancePipeline
    : Pass<"galvatron-balance-pipeline", "::mlir::ModuleOp"> {
  let summary = "Cuts the layers into stages of the least largest time";
  let description = [{
    Exact: no other cut of the sequence into `stages` contiguous, non-empty parts
    has a smaller largest time. A layer's time is that of its strategy on the
    cluster if both are there, or else its share of the FLOPs in `costs`.
  }];
  // Footprints come from layers that are compiled on the side.
  let dependentDialects = ["::mlir::func::FuncDialect", "::mlir::nn::NNDialect"];
  let options = [
    Option<"stages", "stages", "int64_t", /*default=*/"0",
           "number of stages; that of the plan if not given">
  ];
}

def GalvatronAssignStrategies
    : Pass<"galvatron-assign-strategies", "::mlir::ModuleOp"> {
  let summary = "Writes a plan that a person chose";
  let description = [{
    `layers=h.0-h.5:sdp4.ckpt;head:tp4` gives strategies to single layers, to
    ranges in the order of the model, or to all (`*`); later entries win. `stages`
    counts the layers of each stage; without it the layers are cut evenly into
    `pipeline-degree` stages. Options that are not given stay as the module has
    them. The result is checked like any other plan by galvatron-verify-phase and
    priced by `galvatron-select-plan{keep-plan}`.
  }];
  let options = [
    Option<"layers", "layers", "std::string", /*default=*/"\"\"",
           "strategies of layers">,
    Option<"batch", "batch", "int64_t", /*default=*/"0", "samples of a step">,
    Option<"microBatches", "micro-batches", "int64_t", /*default=*/"0",
           "number of micro-batches">,
    Option<"schedule", "schedule", "std::string", /*default=*/"\"\"",
           "1f1b, gpipe, interleaved, 2bw, zb-h1, zb-h2 or zb-v">,
    Option<"pipelineDegree", "pipeline-degree", "int64_t", /*default=*/"0",
           "number of stages">,
    ListOption<"stages", "stages", "int64_t", "layers of each stage">,
    Option<"cluster", "cluster", "std::string", /*default=*/"\"\"",
           "built-in name or file; the module's cluster if not given">
  ];
}

//===----------------------------------------------------------------------===//
// split
//===----------------------------------------------------------------------===//

def GalvatronSplitStages : Pass<"galvatron-split-stages", "::mlir::ModuleOp"> {
  let summary = "Moves the layers of each device group into a stage";
  let description = [{
    Every stage of the plan becomes a `galvatron.stage` on the devices that the
    plan names, or on its group of consecutive ones. Values that a later stage uses leave their stage as
    results and go from stage to stage through `galvatron.transfer`.
  }];
}

def GalvatronVerifyPhase : Pass<"galvatron-verify-phase", "::mlir::ModuleOp"> {
  let summary = "Checks what may and may not be left after a phase";
  let options = [
    Option<"phase", "phase", "std::string", /*default=*/"\"import\"",
           "the phase that has just run">,
    Option<"read", "read", "bool", "true",
           "of IR that was read: check also what the phases before have made, and compare what functions compute with their numbers">
  ];
}

//===----------------------------------------------------------------------===//
// differentiate, partition
//===----------------------------------------------------------------------===//

def GalvatronDifferentiateLayers
    : Pass<"galvatron-differentiate-layers", "::mlir::ModuleOp"> {
  let summary = "Makes forward, backward and update functions of every body";
}

def GalvatronInsertRecompute
    : Pass<"galvatron-insert-recompute", "::mlir::ModuleOp"> {
  let summary = "Makes functions for the layers that do not keep everything";
  let description = [{
    A layer with `ckpt` gets a forward function that keeps nothing and a
    recompute function. A layer at a point gets forward and backward functions
    for the set of values that it has as `kept`: backward computes the others
    again.
  }];
}

def GalvatronPartitionLayers
    : Pass<"galvatron-partition-layers", "::mlir::ModuleOp"> {
  let summary = "Clones the layer functions per strategy, with local shapes";
}

def GalvatronInsertCollectives
    : Pass<"galvatron-insert-collectives", "::mlir::ModuleOp"> {
  let summary = "Inserts the collectives of layers and the reshards between them";
}

def GalvatronNumberValues
    : Pass<"galvatron-number-values", "::mlir::ModuleOp"> {
  let summary = "Numbers what the functions of layers compute";
  let description = [{
    Sets `galvatron.values` on the functions of layers: the number of the values
    that they return (Transforms/FunctionValues.h). Pipelines
    do so behind their last phase, and `galvatron-verify-phase` compares, so that a
    function that was changed is refused; somebody who means the change runs
    this pass on the changed IR.
  }];
}

//===----------------------------------------------------------------------===//
// bufferize
//===----------------------------------------------------------------------===//

def GalvatronSplitBackward
    : Pass<"galvatron-split-backward", "::mlir::ModuleOp"> {
  let summary = "Splits backward functions into an input and a weight part";
  let description = [{
    Under a schedule that splits backward passes, what the gradients of a
    layer's inputs do not depend on moves from its backward function into a
    function of its own, the layer's `weight`. What that one reads of the other
    becomes part of the stash. Collectives stay in their order in either.

    Layers that are recomputed stay whole, and so do those without inputs that
    have a gradient and those in which nothing is left for a weight part.
  }];
}

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PASSES_TD
