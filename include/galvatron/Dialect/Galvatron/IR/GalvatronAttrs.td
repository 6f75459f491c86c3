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

class Galvatron_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Galvatron_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

//===----------------------------------------------------------------------===//
// Paradigms
//===----------------------------------------------------------------------===//

def Galvatron_DP : I32EnumCase<"DP", 0, "dp">;
def Galvatron_SDP : I32EnumCase<"SDP", 1, "sdp">;
def Galvatron_TP : I32EnumCase<"TP", 2, "tp">;
def Galvatron_ZDP : I32EnumCase<"ZDP", 3, "zdp">;
def Galvatron_Paradigm
    : I32Enum<"Paradigm", "a way to use several devices for one layer",
              [Galvatron_DP, Galvatron_SDP, Galvatron_TP, Galvatron_ZDP]> {
  let cppNamespace = "::mlir::galvatron";
  let description = [{
    `dp`: data parallelism, parameters replicated. `sdp`: sharded data
    parallelism (ZeRO-3), parameters, gradients and optimizer state sharded.
    `tp`: tensor parallelism along the body's factors. `zdp`: data parallelism
    with sharded optimizer state (ZeRO-1), parameters and gradients replicated.
  }];
}
def Galvatron_AxisAttr
    : EnumAttr<Galvatron_Dialect, Galvatron_Paradigm, "axis"> {
  let assemblyFormat = "$value";
}

//===----------------------------------------------------------------------===//
// Strategy
//===----------------------------------------------------------------------===//

def Galvatron_StrategyAttr : Galvatron_Attr<"Strategy", "strategy"> {
  let summary = "how one layer uses the devices of its stage";
  let description = [{
    The levels of a decision tree, outermost first, and whether the layer keeps
    only its input and computes its other activations again in the backward pass.
    The innermost level joins neighbouring devices.

    Syntax: `#galvatron.strategy<[sdp = 4, tp = 2], ckpt>`; a layer on one device
    is `#galvatron.strategy<[]>`.

    Constraints:
    - (C1) no paradigm occurs twice;
    - (C2) every degree is at least 2.
  }];
  let parameters = (ins ArrayRefParameter<"StrategyLevel">:$levels,
                        "bool":$checkpoint);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// From and to the planner's type; both are lossless.
    static StrategyAttr get(::mlir::MLIRContext *context,
                            const ::galvatron::Strategy &strategy);
    ::galvatron::Strategy toStrategy() const;

    /// Number of devices: the product of all degrees.
    int64_t getDevices() const;
    /// Degree of one paradigm, 1 if it has no level.
    int64_t getDegree(Paradigm paradigm) const;
    /// Into how many parts the samples of a micro-batch are cut: dp * sdp.
    int64_t getSampleShards() const;
    /// The notation of tools and files, e.g. `sdp4.tp2.ckpt`.
    std::string getNotation() const;
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
    `offload` says which states have their home on the host (`optimizer` or
    `all`); without it none has.

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
    - (C6) `offload` is `optimizer` or `all`.
  }];
  let parameters = (ins "int64_t":$batch, "int64_t":$micro_batches,
                        StringRefParameter<"">:$schedule,
                        "int64_t":$pipeline_degree,
                        DefaultValuedParameter<"int64_t", "0">:$memory,
                        OptionalParameter<"::mlir::ArrayAttr">:$devices,
                        OptionalParameter<"::mlir::StringAttr">:$offload);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    /// Which states have their home on the host.
    ::galvatron::Offload getOffloaded() const;
    /// See ScheduleShape, for stages of so many chunks.
    int64_t getResidentChunks(int64_t chunks) const;
  }];
  let genVerifyDecl = 1;
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
    - (C3) `clip_delayed`, by the norm of the batch before, is with `clip`.
  }];
  let parameters = (ins StringRefParameter<"">:$optimizer,
                        StringRefParameter<"">:$dtype,
                        "bool":$clip, "bool":$dropout,
                        DefaultValuedParameter<"bool", "false">:$decay_all,
                        DefaultValuedParameter<"bool", "false">:$clip_delayed);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
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
    bytes per second of optimizer updates and norms (0: they take no time).

    Constraints:
    - (C1) `memory` is positive;
    - (C2) `backend` is `cpu` or `cuda`;
    - (C3) `flops` maps element types to positive `f64` numbers and is not empty;
    - (C4) `memory_bandwidth` is positive, `overlap_slowdown` at least 1 and
      `kernel_overhead` not negative, all `f64`;
    - (C5) `efficiency` and `attention_efficiency` are pairs of positive `f64`;
    - (C6) `optimizer_bandwidth` is a non-negative `f64`.
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
                        OptionalParameter<"::mlir::FloatAttr">:$optimizer_bandwidth);
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
    /// From and to the type of the planner. The conversion keeps every number
    /// bit for bit.
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
