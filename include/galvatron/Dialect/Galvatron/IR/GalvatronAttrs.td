//===- GalvatronAttrs.td - Attributes of the dialect -------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_IR_GALVATRONATTRS_TD
#define GALVATRON_DIALECT_GALVATRON_IR_GALVATRONATTRS_TD

include "galvatron/Dialect/Galvatron/IR/GalvatronDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/CommonAttrConstraints.td"

/// A symbol's name. Upstream's parser takes an empty one, which is printed as
/// something that no parser takes.
def Galvatron_NameAttr : ConfinedAttr<SymbolNameAttr, [AttrConstraint<
    CPred<"!::llvm::cast<::mlir::StringAttr>($_self).empty()">,
    "that is not empty">]>;

/// Levels in the notation of strategies, `[tp = 2, sdp = 4]`; left out where
/// there are none.
def Galvatron_LevelsParameter : ArrayRefParameter<"StrategyLevel"> {
  let parser = "::mlir::galvatron::parseLevels($_parser)";
  let printer = "::mlir::galvatron::printLevels($_printer, $_self)";
  let defaultValue = "::llvm::SmallVector<StrategyLevel>()";
  let comparator = "$_lhs == ::llvm::ArrayRef<StrategyLevel>($_rhs)";
}

class Galvatron_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Galvatron_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

//===----------------------------------------------------------------------===//
// Axes
//===----------------------------------------------------------------------===//

def Galvatron_Axis
    : I32Enum<"Axis", "a kind of group that the executor has for a layer", [
  I32EnumCase<"DP", 0, "dp">,
  I32EnumCase<"SDP", 1, "sdp">,
  I32EnumCase<"TP", 2, "tp">,
  I32EnumCase<"CP", 3, "cp">
]> {
  let cppNamespace = "::mlir::galvatron";
  let description = [{
    `dp`: ranks that hold the same, of different samples. `sdp`: ranks that hold
    shards. `tp`: ranks of the same samples, along the body's factors. `cp`: ranks
    of the same samples, along the positions of a sequence. Which one the ranks of
    a level are, the descriptor of its paradigm says.
  }];
}
def Galvatron_AxisAttr
    : EnumAttr<Galvatron_Dialect, Galvatron_Axis, "axis"> {
  let assemblyFormat = "$value";
}

//===----------------------------------------------------------------------===//
// Strategy
//===----------------------------------------------------------------------===//

def Galvatron_StrategyAttr : Galvatron_Attr<"Strategy", "strategy"> {
  let summary = "how one layer uses the devices of its stage";
  let description = [{
    The levels of a decision tree, outermost first, and whether the layer keeps
    only its input and computes its other activations again in the backward pass
    (`ckpt`), or keeps a part of them and computes the rest again (`ckpt = 2`, a
    point of the layer, whose set the layer has as `kept`).
    The innermost level joins neighbouring devices. Paradigms are registered
    ones (Strategy/Paradigm.h): `dp`, data parallelism, parameters replicated;
    `sdp`, sharded data parallelism (ZeRO-3), parameters, gradients and optimizer
    state sharded; `tp`, tensor parallelism along the body's factors; `zdp`, data
    parallelism with sharded optimizer state (ZeRO-1), parameters and gradients
    replicated. `opt_host` and `act_host` say what of the layer has its home on
    the host (Strategy/Strategy.h, LayerHome).

    Syntax: `#galvatron.strategy<[sdp = 4, tp = 2], ckpt>`; a layer on one device
    is `#galvatron.strategy<[]>`, at a point `#galvatron.strategy<[], ckpt = 2>`,
    with states and activations on the host
    `#galvatron.strategy<[], opt_host, act_host>`.

    Constraints:
    - (C1) no paradigm occurs twice;
    - (C2) every degree is at least 2;
    - (C3) its paradigms may stand beside each other, and the degrees multiply to
      at most 2^31;
    - (C4) a point is from 1 to 9.
  }];
  let parameters = (ins ArrayRefParameter<"StrategyLevel">:$levels,
                        "bool":$checkpoint, "int64_t":$point,
                        "bool":$states_at_home,
                        "bool":$activations_at_home);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Converts from and to the planner's type; both are lossless.
    static StrategyAttr get(::mlir::MLIRContext *context,
                            const ::galvatron::Strategy &strategy);
    ::galvatron::Strategy toStrategy() const;

    /// Number of devices: the product of all degrees.
    int64_t getDevices() const;
    /// Into how many parts the samples of a micro-batch are cut.
    int64_t getSampleShards() const;
    /// The notation of tools and files, e.g. `sdp4.tp2.ckpt`.
    std::string getNotation() const;
  }];
}

def Galvatron_KeptAttr : Galvatron_Attr<"Kept", "kept"> {
  let summary = "values of a layer's body that are kept for backward";
  let description = [{
    What a layer at a point keeps between its passes. A value is named by the
    operation of the body that makes it and, unless that is its first result, by
    the result: `"7"`, `"9:1"`. The body is named by a hash of its text: a set
    that was made for another body is refused. What is not kept backward computes
    again from these values and the layer's inputs.

    Syntax: `#galvatron.kept<"0123456789abcdef", ["3", "9:1"]>`.

    Constraints:
    - (C1) every entry is the number of an operation, with or without a result;
    - (C2) entries ascend.
  }];
  let parameters = (ins StringRefParameter<"">:$body, "ArrayAttr":$values);
  let assemblyFormat = "`<` $body `,` $values `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    static KeptAttr get(::mlir::MLIRContext *context,
                        const ::galvatron::KeptValues &kept);
    ::galvatron::KeptValues toKeptValues() const;
  }];
}

//===----------------------------------------------------------------------===//
// Data
//===----------------------------------------------------------------------===//

def Galvatron_DataAttr
    : Galvatron_Attr<"Data", "data", [TypedAttrInterface]> {
  let summary = "what the data loader delivers as one argument of a model";
  let description = [{
    `kind` says what the values are (DataKinds.h): it decides their element
    types and whether the loss is a mean over them. `name` is what files and
    messages call the argument, the kind if it is not given. Integers are less
    than `below`. The attribute has the type of the argument.

    Syntax: `#galvatron.data<token_types, name = "segments", below = 2> :
    tensor<?x64xi32>`; a model prints it without the type, behind its argument:
    `%segments: tensor<?x64xi32> is <token_types, name = "segments", below = 2>`.

    Constraints:
    - (C1) the kind is one that a dialect knows;
    - (C2) the name is not empty;
    - (C3) the type is a tensor whose first dimension, and no other, is dynamic,
      with elements that the kind has;
    - (C4) `below` is there exactly for integers, and at least 1;
    - (C5) a sample takes at most 2^46 bytes.
  }];
  let parameters = (ins StringRefParameter<"">:$kind,
                        StringRefParameter<"">:$name, "int64_t":$below,
                        AttributeSelfTypeParameter<"">:$type);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType();
    /// Shape of one sample.
    ::llvm::ArrayRef<int64_t> getSampleShape();
    int64_t getElementsPerSample();
    int64_t getBytesPerSample();
    /// Whether the loss is a mean over its values that are not negative.
    bool isCounted();
    /// Whether a sample is a sequence whose length is counted in tokens.
    bool isSequence();
  }];
}

//===----------------------------------------------------------------------===//
// Plan and training options
//===----------------------------------------------------------------------===//

def Galvatron_PlanAttr : Galvatron_Attr<"Plan", "plan"> {
  let summary = "the part of a plan that holds for the whole model";
  let description = [{
    `batch` samples a step are cut into `micro_batches` equal micro-batches that
    pass `pipeline_degree` stages in the order of `schedule` (`1f1b`, `gpipe` or
    `interleaved`).
    `memory`, if given, replaces the memory budget of every device, in bytes.
    `devices` are those of every stage, in the order of its local ranks; without
    it stages are equal groups of consecutive devices.
    `pass_times` are what the order of passes is made for, where the schedule
    makes it for any: of each chunk, in the order of the model, what a forward
    pass, the two parts of a backward pass and a message to the next chunk take.
    `offload` says which states have their home on the host (`optimizer` or
    `all`), and with `,just-in-time` that chunks are updated behind their last
    backward passes, with `,update-on-device` besides, of packs, that the devices
    do it; without it none has.
    `packs`, of `harmony-pp` and `harmony-dp`, are the first layers of the packs
    that run forward only, and of those that run backward; the latter are the
    stages of layers. `forward_micro_batches` are those of packs that run forward
    only, where they have another size; `micro_batches` those of the others.
    `sums` says of every stage when its gradients are summed on devices with
    streams: in `overlap` with backward passes, `at-end` of the step, or
    `by-rule`, as all are without it (`overlapsSums()`).

    Syntax: `#galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b",
    pipeline_degree = 2>`, `#galvatron.plan<batch = 8, micro_batches = 4,
    schedule = "1f1b", pipeline_degree = 2,
    devices = [array<i64: 2, 3>, array<i64: 0, 1>]>`

    Constraints:
    - (C1) every number is at least 1 (`memory`: 0 stands for "the device's");
    - (C2) `micro_batches` divides `batch`;
    - (C3) `schedule` is a registered one: `1f1b`, `gpipe` or `interleaved`;
    - (C4) `devices` has a list for each of `pipeline_degree` stages;
    - (C5) no list is empty, and together they have the numbers from 0 on, each
      once;
    - (C6) `offload` is `optimizer` or `all`, each alone or with
      `,just-in-time`, and of packs with `,update-on-device` behind that;
    - (C7) `pass_times` has four numbers of each chunk, which the schedule
      accepts;
    - (C8) `packs` are two lists, and are what the schedule can have;
    - (C9) `forward_micro_batches` stands beside `packs`, and divides `batch`;
    - (C10) `sums` has a name for each of `pipeline_degree` stages, and not
      `by-rule` for all.
  }];
  let parameters = (ins "int64_t":$batch, "int64_t":$micro_batches,
                        StringRefParameter<"">:$schedule,
                        "int64_t":$pipeline_degree,
                        DefaultValuedParameter<"int64_t", "0">:$memory,
                        OptionalParameter<"::mlir::ArrayAttr">:$devices,
                        OptionalParameter<"::mlir::StringAttr">:$offload,
                         OptionalParameter<"::mlir::DenseI64ArrayAttr">:$pass_times,
                        OptionalParameter<"::mlir::ArrayAttr">:$packs,
                        DefaultValuedParameter<"int64_t", "0">:$forward_micro_batches,
                        OptionalParameter<"::mlir::ArrayAttr">:$sums);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    /// When a stage's gradients are summed.
    ::galvatron::SumTiming getSumsOf(int64_t stage) const;
    /// Returns the times by chunk; empty if there are none.
    std::vector<::galvatron::PassTimes> getChunkTimes() const;
    /// Which states have their home on the host.
    ::galvatron::Offload getOffloaded() const;
    /// The shape its schedule is made for, with so many chunks of a stage, or
    /// its packs.
    ::galvatron::ScheduleShape getShape(int64_t chunks) const;
  }];
  let genVerifyDecl = 1;
}

/// Written as a string: what options and files call it.
def Galvatron_OptimizerParameter
    : AttrParameter<"::galvatron::Optimizer", "an update rule"> {
  let parser = "::mlir::galvatron::parseOptimizer($_parser)";
  let printer = "::mlir::galvatron::printOptimizer($_printer, $_self)";
}

def Galvatron_TrainingAttr : Galvatron_Attr<"Training", "training"> {
  let summary = "training options that change bytes or code";
  let description = [{
    Syntax: `#galvatron.training<optimizer = "adamw", dtype = "f32",
    clip = true, dropout = true>`

    Constraints:
    - (C1) `optimizer` is `adamw`, `adam` or `sgd`;
    - (C2) `dtype` is `f32`, `bf16` or `f64`; or `tf32` or `f16`, for which plans are
      made over values of `f32` and `bf16`, and nothing is compiled;
    - (C3) `clip_delayed`, by the norm of the batch before, is with `clip`;
    - (C4) `label_smoothing`, the part of a label's weight that all classes share,
      is above 0 and below 1, and `z_loss`, the factor of the mean squared
      log-sum-exp of the logits, is positive and finite.
  }];
  let parameters = (ins Galvatron_OptimizerParameter:$optimizer,
                        StringRefParameter<"">:$dtype,
                        "bool":$clip, "bool":$dropout,
                        DefaultValuedParameter<"bool", "false">:$decay_all,
                        DefaultValuedParameter<"bool", "false">:$clip_delayed,
                        OptionalParameter<"::mlir::FloatAttr">:$label_smoothing,
                        OptionalParameter<"::mlir::FloatAttr">:$z_loss);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Galvatron_AdaptersAttr : Galvatron_Attr<"Adapters", "adapters"> {
  let summary = "low-rank adapters of a module's model";
  let description = [{
    The products whose weights are frozen and beside which two of `rank` are
    trained, by the names of their modules in checkpoints; what these add is
    scaled by `alpha / rank`. `ranks` and `alphas`, if given, are those of each
    module. `in_first`: the files have weights as [in, out].

    Syntax: `#galvatron.adapters<rank = 8, alpha = 16.0, in_first = false,
    modules = ["h.0.q_proj"]>`

    Constraints:
    - (C1) `rank` is positive, and `alpha` is finite, those of modules as well;
    - (C2) `modules` are names, at least one;
    - (C3) `ranks` and `alphas` have an entry for each module.
  }];
  let parameters = (ins "int64_t":$rank, "::mlir::FloatAttr":$alpha,
                        "bool":$in_first, "::mlir::ArrayAttr":$modules,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$ranks,
                        OptionalParameter<"::mlir::DenseF64ArrayAttr">:$alphas);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

include "galvatron/Dialect/Galvatron/IR/PartitionAttrs.td"

//===----------------------------------------------------------------------===//
// Attributes by which passes tell each other of a layer
//===----------------------------------------------------------------------===//

def Galvatron_ProfileAttr : Galvatron_Attr<"Profile", "profile"> {
  let summary = "what was measured of a layer without a body";
  let description = [{
    For one sample: times of both passes in milliseconds, or floating-point
    operations and bytes moved of the forward pass; bytes of its parameters, of
    what it gives to the next layer, and of what its backward pass needs; under
    tensor parallelism the bytes of its all-reduces, and those that every rank
    keeps whole. Without `backward_ms` the backward pass takes twice as long as
    the forward pass.

    Syntax: `#galvatron.profile<parameter_bytes = 64, boundary_bytes = 16,
    intermediate_bytes = 512, forward_ms = 3.0>`

    Constraints:
    - (C1) `forward_ms`, or `forward_flops` and `forward_moved_bytes`;
    - (C2) nothing is negative, and times and operations are finite `f64`.
  }];
  let parameters = (ins "int64_t":$parameter_bytes, "int64_t":$boundary_bytes,
                        "int64_t":$intermediate_bytes,
                        OptionalParameter<"::mlir::FloatAttr">:$forward_ms,
                        OptionalParameter<"::mlir::FloatAttr">:$backward_ms,
                        OptionalParameter<"::mlir::FloatAttr">:$forward_flops,
                        DefaultValuedParameter<"int64_t", "0">:$forward_moved_bytes,
                        DefaultValuedParameter<"int64_t", "0">:$tp_allreduce_bytes,
                        DefaultValuedParameter<"int64_t", "0">:$tp_replicated_bytes);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Return milliseconds; nothing where operations are given in their place.
    std::optional<double> getForwardTime() const;
    std::optional<double> getBackwardTime() const;
  }];
}

def Galvatron_PartAttr : Galvatron_Attr<"Part", "part"> {
  let summary = "where in a tensor of a file a parameter stands";
  let description = [{
    Files may hold several parameters as one tensor: the rows of a product to
    queries, keys and values behind each other, or head by head. `of` is that
    tensor's name. Its first dimension is groups of `stride` rows; of each the
    parameter has `count` rows from `first` on, group after group. The other
    dimensions are the parameter's.

    Syntax: `#galvatron.part<of = "h.0.attention.query_key_value.weight",
    first = 64, count = 64, stride = 192>`

    Constraints:
    - (C1) `of` is not empty;
    - (C2) `count` is positive, and rows `first` to `first + count` lie in
      `stride`.
  }];
  let parameters = (ins "::mlir::StringAttr":$of, "int64_t":$first,
                        "int64_t":$count, "int64_t":$stride);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Galvatron_CostsAttr : Galvatron_Attr<"Costs", "costs"> {
  let summary = "what one sample of a layer costs, counted from its body";
  let description = [{
    Elements and bytes of its parameters; bytes of its results, of what the
    backward pass needs besides, and of the most that is alive in the backward
    pass; floating-point operations and bytes moved of both passes.

    Constraints:
    - (C1) nothing is negative, and operations are finite `f64`.
  }];
  let parameters = (ins "int64_t":$parameters, "int64_t":$parameter_bytes,
                        "int64_t":$boundary_bytes, "int64_t":$intermediate_bytes,
                        "int64_t":$backward_bytes,
                        "::mlir::FloatAttr":$forward_flops,
                        "::mlir::FloatAttr":$backward_flops,
                        "::mlir::FloatAttr":$forward_moved_bytes,
                        "::mlir::FloatAttr":$backward_moved_bytes);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Galvatron_FlatTensorAttr : Galvatron_Attr<"FlatTensor", "flat_tensor"> {
  let summary = "a parameter in the flat parameters of a layer";
  let description = [{
    The tensor of `parameter`, looked at with the shape `view`, of which a
    tensor-parallel rank holds `local_shape`, cut along dimension `tp_dim` (-1:
    not cut). It begins `offset` elements into its group: 0 what the layer owns,
    1 what it borrows from the layer that owns it; 2 and 3 likewise, of what is not
    trained.

    Constraints:
    - (C1) the group is 0 to 3, and the offset not negative;
    - (C2) `view` and `local_shape` have equal rank;
    - (C3) `tp_dim` is -1 or a dimension of the view.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$parameter,
                        "int64_t":$group, "int64_t":$offset,
                        "::mlir::DenseI64ArrayAttr":$view,
                        "::mlir::DenseI64ArrayAttr":$local_shape,
                        DefaultValuedParameter<"int64_t", "-1">:$tp_dim);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Elements that a rank holds.
    int64_t getElements() const;
  }];
}

def Galvatron_FlatGroupAttr : Galvatron_Attr<"FlatGroup", "flat_group"> {
  let summary = "how large a group of a layer's flat parameters is";
  let description = [{
    In elements: all of it, and what one rank holds.

    Constraints:
    - (C1) neither is negative, and what a rank holds is not more than all.
  }];
  let parameters = (ins "int64_t":$elements, "int64_t":$shard_elements);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

/// The tensors and the groups, as operations and attributes have them.
def Galvatron_FlatTensorsAttr : TypedArrayAttrBase<Galvatron_FlatTensorAttr,
                                                   "array of #galvatron.flat_tensor">;
def Galvatron_FlatGroupsAttr : TypedArrayAttrBase<Galvatron_FlatGroupAttr,
                                                  "array of #galvatron.flat_group">;

def Galvatron_LayoutAttr : Galvatron_Attr<"Layout", "layout"> {
  let summary = "what the schedule needs to know of a layer's functions";
  let description = [{
    For the samples of one micro-batch that a rank has: bytes of its inputs, its
    results, and of what it keeps for the backward pass, with recomputation of
    what is computed again. `bytes_per_unit`, unless 0, are those of one sample
    of its results on all ranks together. Then its parameters, and the names of
    the data that it reads, in the order in which its functions number them.

    Constraints:
    - (C1) at least one sample, and no negative bytes;
    - (C2) `tensors` are `#galvatron.flat_tensor`, `groups` two
      `#galvatron.flat_group`, and every tensor lies inside its group;
    - (C3) `data` are strings.
  }];
  let parameters = (ins "int64_t":$samples, "int64_t":$input_bytes,
                        "int64_t":$output_bytes, "int64_t":$stash_bytes,
                        DefaultValuedParameter<"int64_t", "0">:$recompute_stash_bytes,
                        DefaultValuedParameter<"int64_t", "0">:$bytes_per_unit,
                        "::mlir::ArrayAttr":$tensors,
                        "::mlir::ArrayAttr":$groups,
                        OptionalParameter<"::mlir::ArrayAttr">:$data);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// (C2), which operations that have these arrays hold, too.
    static ::llvm::LogicalResult verifyParameters(
        ::llvm::function_ref<::mlir::InFlightDiagnostic()> emitError,
        ::mlir::ArrayAttr tensors, ::mlir::ArrayAttr groups);
  }];
}

//===----------------------------------------------------------------------===//
// Cluster
//===----------------------------------------------------------------------===//

def Galvatron_LinkAttr : Galvatron_Attr<"Link", "link"> {
  let summary = "a link between two devices or two nodes";
  let description = [{
    Bandwidth in bytes per second and direction, latency in seconds.
    Syntax: `#galvatron.link<bandwidth = 3.1e9, latency = 1.5e-5>`

    Constraints:
    - (C1) both are `f64`, the bandwidth positive, the latency not negative.
  }];
  let parameters = (ins "::mlir::FloatAttr":$bandwidth,
                        "::mlir::FloatAttr":$latency);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Galvatron_DeviceTypeAttr : Galvatron_Attr<"DeviceType", "device_type"> {
  let summary = "a kind of device";
  let description = [{
    Memory in bytes, peak FLOP/s per element type, memory bandwidth in bytes per
    second, the factor by which overlapping communication and computation slow
    each other, and the fixed cost of one kernel call in seconds. Optionally the
    bytes that no plan gets, which part of the FLOP/s products (and attention
    kernels) reach: pairs of a size and a fraction, one after the other, and the
    bytes per second of optimizer updates and norms (0: they take no time), and
    the seconds in which the host launches a kernel; of devices with memory of
    their own the bytes per second between it and the host's, and of updates at
    home there.

    Constraints:
    - (C1) `memory` is positive;
    - (C2) `backend` is `cpu` or `cuda`;
    - (C3) `flops` maps element types to positive `f64` numbers and is not empty;
    - (C4) `memory_bandwidth` is positive, `overlap_slowdown` at least 1 and
      `kernel_overhead` not negative, all `f64`;
    - (C5) `efficiency` and `attention_efficiency` are pairs of positive `f64`;
    - (C6) `optimizer_bandwidth`, `host_overhead`, `host_bandwidth` and
      `host_memory_bandwidth` are non-negative `f64`.
  }];
  let parameters = (ins StringRefParameter<"">:$name,
                        StringRefParameter<"">:$backend, "int64_t":$memory,
                        "::mlir::DictionaryAttr":$flops,
                        "::mlir::FloatAttr":$memory_bandwidth,
                        "::mlir::FloatAttr":$overlap_slowdown,
                        "::mlir::FloatAttr":$kernel_overhead,
                        DefaultValuedParameter<"int64_t", "0">:$reserved_memory,
                        OptionalParameter<"::mlir::ArrayAttr">:$efficiency,
                        OptionalParameter<"::mlir::ArrayAttr">:$attention_efficiency,
                        OptionalParameter<"::mlir::FloatAttr">:$optimizer_bandwidth,
                        OptionalParameter<"::mlir::FloatAttr">:$host_overhead,
                        OptionalParameter<"::mlir::FloatAttr">:$host_bandwidth,
                        OptionalParameter<"::mlir::FloatAttr">:$host_memory_bandwidth);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Galvatron_NodeAttr : Galvatron_Attr<"Node", "node"> {
  let summary = "some equal nodes of a cluster";
  let description = [{
    `link` joins the devices of a node, `network` (the cluster's if not given) the
    node to others; `cores`, if not 0, are shared by the node's devices.

    Constraints:
    - (C1) `count` and `devices` are at least 1.
  }];
  let parameters = (ins "int64_t":$count, StringRefParameter<"">:$device_type,
                        "int64_t":$devices,
                        OptionalParameter<"LinkAttr">:$link,
                        OptionalParameter<"LinkAttr">:$network,
                        DefaultValuedParameter<"int64_t", "0">:$cores);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Galvatron_CollectiveAttr : Galvatron_Attr<"Collective", "collective"> {
  let summary = "measured times of one collective";
  let description = [{
    As in a cluster file: `kind` is `all-reduce`, `all-gather`, `reduce-scatter`
    or `send`; `times` holds pairs of bytes and seconds, one after the other.

    Constraints:
    - (C1) `kind` is one of these;
    - (C2) `times` is not empty and holds pairs of positive `f64`.
  }];
  let parameters = (ins StringRefParameter<"">:$kind, "int64_t":$ranks,
                        "bool":$across_nodes, "int64_t":$stride,
                        "int64_t":$concurrent, "::mlir::ArrayAttr":$times);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Galvatron_ClusterAttr : Galvatron_Attr<"Cluster", "cluster"> {
  let summary = "the devices a plan is for";
  let description = [{
    The same data as a cluster file. Devices are numbered node by node.

    ```mlir
    #galvatron.cluster<name = "4xcpu",
      device_types = [#galvatron.device_type<name = "cpu-core", backend = "cpu",
        memory = 4294967296, flops = {f32 = 6.1e10 : f64},
        memory_bandwidth = 9.0e9, overlap_slowdown = 1.3, kernel_overhead = 2.0e-6>],
      nodes = [#galvatron.node<count = 1, device_type = "cpu-core", devices = 4,
        link = #galvatron.link<bandwidth = 3.1e9, latency = 1.5e-5>>]>
    ```

    Constraints:
    - (C1) there is at least one device type and one node, and no two device
      types have the same name;
    - (C2) every node names a device type of this cluster;
    - (C3) a node of several devices has a link;
    - (C4) a cluster of several nodes has a network, or each of its nodes has;
    - (C5) `bandwidth_matrix`, if given, has one row and one column per device,
      all `f64`;
    - (C6) `collectives`, if given, are `#galvatron.collective`.
  }];
  let parameters = (ins StringRefParameter<"">:$name,
                        "::mlir::ArrayAttr":$device_types,
                        "::mlir::ArrayAttr":$nodes,
                        OptionalParameter<"LinkAttr">:$network,
                        OptionalParameter<"::mlir::ArrayAttr">:$bandwidth_matrix,
                        OptionalParameter<"::mlir::ArrayAttr">:$collectives);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Converts from and to the type of the planner, and keeps every number bit
    /// for bit.
    static ClusterAttr get(::mlir::MLIRContext *context,
                           const ::galvatron::Cluster &cluster);
    ::llvm::Expected<::galvatron::Cluster> toCluster() const;

    /// Number of devices of all nodes.
    int64_t getDeviceCount() const;
    /// The one backend of all devices, `cpu` or `cuda`; "" if they differ.
    ::llvm::StringRef getBackend() const;
    /// The most threads that a CPU rank has, see Cluster/Cluster.h.
    int64_t getThreadsPerDevice() const;
  }];
}

#endif // GALVATRON_DIALECT_GALVATRON_IR_GALVATRONATTRS_TD
