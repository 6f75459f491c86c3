//===- GalvatronOps.td - Operations of the dialect ---------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_IR_GALVATRONOPS_TD
#define GALVATRON_DIALECT_GALVATRON_IR_GALVATRONOPS_TD

include "galvatron/Dialect/Galvatron/IR/GalvatronAttrs.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Galvatron_Op<string mnemonic, list<Trait> traits = []>
    : Op<Galvatron_Dialect, mnemonic, traits>;

//===----------------------------------------------------------------------===//
// The model
//===----------------------------------------------------------------------===//

def Galvatron_ParameterOp
    : Galvatron_Op<"parameter", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "declares a tensor of the model that is trained, or was";
  let description = [{
    The symbol is the tensor's name in checkpoints and the type its shape there.
    A parameter that two layers use is tied; the first user owns it.
    `init` says how it starts: `normal` with standard deviation `std`, `constant`
    with all elements `value`, `zeros` or `ones`; `sinusoids`, a table of positions that
    is not trained and that files may lack; or that it is a `cache`, zeros at
    first, which layers write as they generate and no file has; `decay` that weight decay applies;
    `frozen` that it is not trained: no rank has a gradient or a state of it.
    `copies` are other names under which files hold the same values, as they do for a
    head tied to the table of an embedding: a file may have such a tensor, with equal
    values, or have it instead. With `part` a file may hold it as a part of another
    tensor, and a file that is saved does; the parts of a tensor fill its rows.

    ```mlir
    galvatron.parameter @"transformer.wte.weight" : tensor<50257x768xf32>
        {copies = ["lm_head.weight"], decay, init = "normal", std = 2.0e-2 : f64}
    ```

    Constraints:
    - (C1) the type is a tensor of static shape with at least one element, and
      takes at most 2^46 bytes;
    - (C2) `init` is `normal`, `constant`, `zeros`, `ones`, `sinusoids` or `cache`;
      the last two are `frozen`, and `sinusoids` is of a matrix;
    - (C3) `std` is there exactly if `init` is `normal`, and is positive; `value`
      exactly if it is `constant`, and is finite;
    - (C4) the name is not empty;
    - (C5) `copies` holds names that are not empty, not the parameter's own and
      different from each other;
    - (C6) the first dimension of a parameter with `part` is a multiple of its
      `count`, and it has no `copies`.
  }];
  let arguments = (ins Galvatron_NameAttr:$sym_name, TypeAttr:$type,
                       StrAttr:$init, OptionalAttr<F64Attr>:$std,
                       OptionalAttr<F64Attr>:$value, UnitAttr:$decay,
                       OptionalAttr<StrArrayAttr>:$copies,
                       OptionalAttr<Galvatron_PartAttr>:$part,
                       UnitAttr:$frozen);
  let assemblyFormat = "$sym_name `:` $type attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() {
      return ::llvm::cast<::mlir::RankedTensorType>(getType());
    }
  }];
}

def Galvatron_ModelOp
    : Galvatron_Op<"model", [Symbol, HasParent<"::mlir::ModuleOp">,
                             IsolatedFromAbove, SingleBlock,
                             DeclareOpInterfaceMethods<OpAsmOpInterface,
                                                       ["getAsmBlockArgumentNames"]>]> {
  let summary = "a model: layers in the order of execution";
  let description = [{
    The arguments are what the data loader delivers; behind each may stand, as
    `is <..>`, what it is (`#galvatron.data`). The body is a sequence of
    `galvatron.layer` operations, later of `galvatron.stage` operations with
    `galvatron.transfer` between them, ended by `galvatron.output` with the loss.
    Planned and compiled are chains of layers alone: see Executable.h.
    `config` keeps the text of the configuration that the model came from.

    ```mlir
    galvatron.model @gpt2(%tokens: tensor<?x64xi32> is <tokens, below = 50257>,
                          %labels: tensor<?x64xi32> is <labels, below = 50257>) {
      %0 = galvatron.layer "wte" @gpt2.embed(%tokens) params [@wte] : ...
      galvatron.output %1 : tensor<1xf64>
    }
    ```

    Constraints:
    - (C1) every argument is a tensor whose first dimension, and no other, is
      dynamic;
    - (C2) `data`, if given, has an entry of each argument's type, and no two
      have the same name;
    - (C3) the body holds only layers, stages, transfers, reshards and the
      terminator;
    - (C4) no two layers have the same name;
    - (C5) the stages of layers, and of stage operations, start at 0, do not
      fall, and rise by at most 1;
    - (C6) either every layer has a stage or none;
    - (C7) `config`, if given, is the text of a JSON object;
    - (C8) no device belongs to two stages;
    - (C9) the name is not empty.
  }];
  let arguments = (ins Galvatron_NameAttr:$sym_name,
                       OptionalAttr<TypedArrayAttrBase<Galvatron_DataAttr, "data of a model">>:$data,
                       OptionalAttr<StrAttr>:$config);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    OpBuilder<(ins "::llvm::StringRef":$name,
                   "::llvm::ArrayRef<DataAttr>":$data,
                   "::llvm::StringRef":$config)>
  ];
  let extraClassDeclaration = [{
    /// Returns all layers in order, also those inside stages.
    ::llvm::SmallVector<LayerOp, 8> getLayers();
    ::llvm::SmallVector<StageOp, 8> getStages();
    OutputOp getOutput();
    /// The kind of each argument; empty if that was not said.
    ::llvm::SmallVector<DataAttr> getDeclaredData();
    /// Tokens of a sample; 0 for models without tokens.
    int64_t getSequenceLength();
    ::mlir::Block &getBlock() { return getBody().front(); }
  }];
}

def Galvatron_OutputOp
    : Galvatron_Op<"output", [Pure, Terminator, HasParent<"ModelOp">]> {
  let summary = "ends a model and names its loss";
  let arguments = (ins Variadic<AnyType>:$operands);
  let assemblyFormat = "($operands^ `:` type($operands))? attr-dict";
}

def Galvatron_LayerOp
    : Galvatron_Op<"layer", [ParentOneOf<["ModelOp", "StageOp"]>,
                             DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "one layer of a model";
  let description = [{
    Calls the body `callee` with the operands first and the parameters after
    them. A parameter may be passed as a view: the body's argument may have
    another shape of as many elements.

    ```mlir
    %1 = galvatron.layer "h.0" @gpt2.block(%0) params [@a, @b]
        {strategy = #galvatron.strategy<[sdp = 4, tp = 2], ckpt>, stage = 0 : i64}
        : (tensor<?x64x768xf32>) -> tensor<?x64x768xf32>
    ```

    `dropout_key` is the number that masks of dropout are keyed by, where it is
    not the layer's own number in the model: that of the layer that a block was
    before galvatron-split-blocks.

    An opaque layer has a measured `profile` (`#galvatron.profile`) instead of a
    body. It can be planned, not executed.

    Set by passes: `costs` by galvatron-annotate-costs; `strategy` and `stage` by
    the planner or by hand; `kept`, what a layer at a point keeps, by the
    planner; `forward`, `recompute`, `backward`, `update` and
    `norm`, the functions of the layer, from galvatron-differentiate-layers on;
    `weight` by galvatron-split-backward, `backward` is then the input part;
    `layout`, the facts that the schedule needs, by convert-nn-to-grt;
    `pack_forward` and `pack_layout` are the forward function and the layout for
    micro-batches of packs that run forward only, where those have another size.

    Constraints:
    - (C1) a layer has either a `profile` or a body: `callee` or `forward`;
    - (C2) `callee` and the layer functions name functions (`func.func` or
      `grt.func`);
    - (C3) every entry of `params` names a `galvatron.parameter`;
    - (C4) operands and results have the types of the callee's arguments and
      results;
    - (C5) a parameter has the element type and the number of elements of the
      callee's argument;
    - (C6) `stage` is not negative;
    - (C7) `recompute` needs a strategy with `ckpt`;
    - (C8) no parameter is named twice;
    - (C9) `weight` stands beside `backward`, and not beside `recompute`;
    - (C10) `pack_forward` stands beside `forward`, `pack_layout` beside it and
      `layout`;
    - (C11) every argument and result of `forward`, `recompute`, `backward`,
      `weight` and `pack_forward` has an `nn.role`, as long as they are
      `func.func`; of all but `weight` those with the role `parameter` are the
      layer's parameters, in their order, and have, as wholes, their elements;
    - (C12) the tensors of `layout` and `pack_layout` are the layer's parameters,
      in their order;
    - (C13) `kept` stands beside a strategy with a point;
    - (C14) `dropout_key` is not negative;
    - (C15) its functions have `nn.frozen` on the parameters that are `frozen`, and
      on no others;
    - (C16) its body has `nn.frozen` on inputs of layers alone whose parameters
      are `frozen`, and whose inputs are data or have it, too.
  }];
  let arguments = (ins StrAttr:$layer_name,
                       OptionalAttr<FlatSymbolRefAttr>:$callee,
                       Variadic<AnyType>:$inputs,
                       OptionalAttr<TypedArrayAttrBase<FlatSymbolRefAttr, "parameter symbols">>:$params,
                       OptionalAttr<Galvatron_StrategyAttr>:$strategy,
                       OptionalAttr<I64Attr>:$stage,
                       OptionalAttr<FlatSymbolRefAttr>:$forward,
                       OptionalAttr<FlatSymbolRefAttr>:$recompute,
                       OptionalAttr<FlatSymbolRefAttr>:$backward,
                       OptionalAttr<FlatSymbolRefAttr>:$weight,
                       OptionalAttr<FlatSymbolRefAttr>:$update,
                       OptionalAttr<FlatSymbolRefAttr>:$norm,
                       OptionalAttr<Galvatron_ProfileAttr>:$profile,
                       OptionalAttr<Galvatron_CostsAttr>:$costs,
                       OptionalAttr<Galvatron_LayoutAttr>:$layout,
                       OptionalAttr<FlatSymbolRefAttr>:$pack_forward,
                       OptionalAttr<Galvatron_LayoutAttr>:$pack_layout,
                       OptionalAttr<I64Attr>:$dropout_key,
                       OptionalAttr<Galvatron_KeptAttr>:$kept);
  let results = (outs Variadic<AnyType>:$outputs);
  let assemblyFormat = [{
    $layer_name ($callee^)? `(` $inputs `)` (`params` $params^)? attr-dict `:`
    functional-type($inputs, $outputs)
  }];
  let hasVerifier = 1;
  let builders = [
    OpBuilder<(ins "::mlir::TypeRange":$outputs, "::llvm::StringRef":$name,
                   "::llvm::StringRef":$callee, "::mlir::ValueRange":$inputs,
                   "::llvm::ArrayRef<::llvm::StringRef>":$params)>
  ];
  let extraClassDeclaration = [{
    /// The symbols of the layer's parameters; empty if it has none.
    ::llvm::SmallVector<::mlir::FlatSymbolRefAttr> getParamSymbols();
    /// The argument of the model that an operand is, seen through what stands
    /// between layers; null if it is an activation.
    ::mlir::BlockArgument getDataArgument(unsigned input);
    /// Which inputs are arguments of the model.
    ::llvm::SmallVector<bool> getDataInputs();
    /// A layer without a body.
    bool isOpaque() { return static_cast<bool>(getProfileAttr()); }
  }];
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

def Galvatron_StageOp
    : Galvatron_Op<"stage", [HasParent<"ModelOp">, SingleBlock, NoRegionArguments,
                             SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "the layers that one group of devices runs";
  let description = [{
    ```mlir
    %0 = galvatron.stage 0 devices [0, 1] -> tensor<?x64x768xf32> {
      %1 = galvatron.layer "wte" @gpt2.embed(%tokens) ...
      galvatron.yield %1 : tensor<?x64x768xf32>
    }
    %2 = galvatron.transfer %0 from 0 to 1 : tensor<?x64x768xf32>
    ```

    A stage may use the model's arguments and what was transferred to it.

    Constraints:
    - (C1) `devices` is not empty and holds distinct, non-negative numbers;
    - (C2) the types that the body yields are the result types;
    - (C3) every layer of the body has the stage's number;
    - (C4) a layer's strategy uses exactly the stage's devices;
    - (C5) a value from outside is an argument of the model or the result of a
      transfer to this stage;
    - (C6) the body holds only layers, reshards and the terminator.
  }];
  let arguments = (ins I64Attr:$index, DenseI64ArrayAttr:$devices);
  let results = (outs Variadic<AnyType>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $index `devices` $devices (`->` type($outputs)^)? attr-dict-with-keyword $body
  }];
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::Block &getBlock() { return getBody().front(); }
    ::llvm::SmallVector<LayerOp, 8> getLayers();
  }];
}

def Galvatron_YieldOp
    : Galvatron_Op<"yield", [Pure, Terminator, HasParent<"StageOp">]> {
  let summary = "ends a stage and names what leaves it";
  let arguments = (ins Variadic<AnyType>:$operands);
  let assemblyFormat = "($operands^ `:` type($operands))? attr-dict";
  let builders = [OpBuilder<(ins), [{ /* no operands */ }]>];
}

def Galvatron_TransferOp
    : Galvatron_Op<"transfer", [Pure, HasParent<"ModelOp">,
                                AllTypesMatch<["input", "output"]>]> {
  let summary = "takes a boundary tensor from one stage to a later one";
  let description = [{
    Constraints:
    - (C1) `to` is `from` + 1: tensors go to the next stage;
    - (C2) the input is a result of stage `from`, or of a transfer to it.
  }];
  let arguments = (ins AnyType:$input, I64Attr:$from, I64Attr:$to);
  let results = (outs AnyType:$output);
  let assemblyFormat = [{
    $input `from` $from `to` $to attr-dict `:` type($input)
  }];
  let hasVerifier = 1;
}

def Galvatron_ReshardOp
    : Galvatron_Op<"reshard", [Pure, ParentOneOf<["ModelOp", "StageOp"]>,
                               AllTypesMatch<["input", "output"]>]> {
  let summary = "changes the layout of a boundary tensor between two layers";
  let description = [{
    Stands between two neighbouring layers of different strategies:

    `%y = galvatron.reshard %x from <[dp = 4]> to <[tp = 4]> : tensor<?x64x768xf32>`

    Constraints:
    - (C1) both strategies use the same number of devices.
  }];
  let arguments = (ins AnyType:$input, Galvatron_StrategyAttr:$from,
                       Galvatron_StrategyAttr:$to);
  let results = (outs AnyType:$output);
  let assemblyFormat = [{
    $input `from` custom<Strategy>($from) `to` custom<Strategy>($to) attr-dict
    `:` type($input)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Collectives on tensors, inside partitioned bodies
//===----------------------------------------------------------------------===//

class Galvatron_CollectiveOp<string mnemonic, list<Trait> traits = []>
    : Galvatron_Op<mnemonic, traits # [MemoryEffects<[MemRead, MemWrite]>]>;

def Galvatron_AllReduceOp
    : Galvatron_CollectiveOp<"all_reduce", [AllTypesMatch<["input", "output"]>]> {
  let summary = "sums a tensor over the devices of an axis";
  let description = [{
    `%y = galvatron.all_reduce %x over tp : tensor<4x64x768xf32>`

    Carries memory effects: no two calls may be merged, none dropped.
  }];
  let arguments = (ins AnyRankedTensor:$input, Galvatron_AxisAttr:$axis);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = "$input `over` $axis attr-dict `:` type($input)";
}

def Galvatron_AllGatherOp : Galvatron_CollectiveOp<"all_gather"> {
  let summary = "gathers a tensor from the devices of an axis";
  let description = [{
    `%y = galvatron.all_gather %x over tp : tensor<256x3xf32> -> tensor<2x256x3xf32>`

    Constraints:
    - (C1) the result has the input's element type and its shape behind one new
      static dimension, the size of the group, at least 2.
  }];
  let arguments = (ins AnyRankedTensor:$input, Galvatron_AxisAttr:$axis);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = [{
    $input `over` $axis attr-dict `:` type($input) `->` type($output)
  }];
  let hasVerifier = 1;
}

def Galvatron_GatherRowsOp : Galvatron_CollectiveOp<"gather_rows"> {
  let summary = "joins the blocks of rows of the devices of an axis";
  let description = [{
    ```mlir
    %y = galvatron.gather_rows %x over tp
      : tensor<64x768xf32, #nn.rows<length = 64, degree = 4>> -> tensor<4x64x768xf32>
    ```

    Constraints:
    - (C1) the input is a block of the rows of a tensor of the result's type.
  }];
  let arguments = (ins AnyRankedTensor:$input, Galvatron_AxisAttr:$axis);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = [{
    $input `over` $axis attr-dict `:` type($input) `->` type($output)
  }];
  let hasVerifier = 1;
}

def Galvatron_ReduceScatterRowsOp
    : Galvatron_CollectiveOp<"reduce_scatter_rows"> {
  let summary = "sums a tensor over the devices of an axis, a block of rows each";
  let description = [{
    ```mlir
    %y = galvatron.reduce_scatter_rows %x over tp
      : tensor<4x64x768xf32> -> tensor<64x768xf32, #nn.rows<length = 64, degree = 4>>
    ```

    Constraints:
    - (C1) the result is a block of the rows of a tensor of the input's type.
  }];
  let arguments = (ins AnyRankedTensor:$input, Galvatron_AxisAttr:$axis);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = [{
    $input `over` $axis attr-dict `:` type($input) `->` type($output)
  }];
  let hasVerifier = 1;
}

def Galvatron_AllToAllOp : Galvatron_CollectiveOp<"all_to_all"> {
  let summary = "exchanges blocks of rows for parts of a dimension, or back";
  let description = [{
    ```mlir
    %y = galvatron.all_to_all %x dim 2 over cp
      : tensor<64x8x64xf32, #nn.rows<length = 64, degree = 4>> -> tensor<4x64x2x64xf32>
    %z = galvatron.all_to_all %y dim 2 over cp
      : tensor<4x64x2x64xf32> -> tensor<64x8x64xf32, #nn.rows<length = 64, degree = 4>>
    ```

    Every device of the axis has a block of the rows of a tensor on one side, and
    on the other all rows of a part of dimension `dim` of it, counted with samples
    and positions: the part whose number is the device's. Of a dimension smaller
    than the devices, which it divides, a part is of size 1 and goes to as many
    devices as share it; back, what they have is summed, ascending. Each of the
    two ways is the gradient of the other.

    Constraints:
    - (C1) input or result is a block of rows, not balanced, of a tensor of which
      the other is a part in dimension `dim`, which is behind the positions.
  }];
  let arguments = (ins AnyRankedTensor:$input, I64Attr:$dim,
                       Galvatron_AxisAttr:$axis);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = [{
    $input `dim` $dim `over` $axis attr-dict `:` type($input) `->` type($output)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// True if devices have rows behind it.
    bool isToRows();
    /// The type of the block of rows, and that of the part.
    ::mlir::RankedTensorType getBlockType();
    ::mlir::RankedTensorType getPartType();
    /// The size of a part of a dimension; nothing if it has none for so many
    /// devices.
    static std::optional<int64_t> partOf(int64_t size, int64_t devices);
  }];
}

def Galvatron_ShiftOp
    : Galvatron_CollectiveOp<"shift", [AllTypesMatch<["input", "output"]>]> {
  let summary = "passes a block of rows on to the next device, around an axis";
  let description = [{
    ```mlir
    %y = galvatron.shift %x over cp
      : tensor<64x8x64xf32, #nn.rows<length = 64, degree = 4>>
    ```

    Every device has the block of the device in front of it afterwards, the first
    that of the last. Attention in a ring has a step between two shifts.

    Constraints:
    - (C1) the input is a block of rows.
  }];
  let arguments = (ins AnyRankedTensor:$input, Galvatron_AxisAttr:$axis);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = "$input `over` $axis attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def Galvatron_SliceRowsOp : Galvatron_Op<"slice_rows", [Pure]> {
  let summary = "a device's block of rows of a tensor that all of an axis have";
  let description = [{
    ```mlir
    %y = galvatron.slice_rows %x over tp
      : tensor<4x64x768xf32> -> tensor<64x768xf32, #nn.rows<length = 64, degree = 4>>
    ```

    Nothing is moved between devices.

    Constraints:
    - (C1) the result is a block of the rows of a tensor of the input's type.
  }];
  let arguments = (ins AnyRankedTensor:$input, Galvatron_AxisAttr:$axis);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = [{
    $input `over` $axis attr-dict `:` type($input) `->` type($output)
  }];
  let hasVerifier = 1;
}

def Galvatron_FirstTermOp
    : Galvatron_Op<"first_term", [Pure, SameOperandsAndResultType]> {
  let summary = "the term of a sum that is a value on one device of an axis";
  let description = [{
    ```mlir
    %y = galvatron.first_term %x over cp : tensor<8xf32>
    ```

    The value on the first device of the axis and zeros on the others, whose sum
    is what all of them have. Gradients of context parallelism that every device
    computes whole become terms so, since sums are once a step and of all
    gradients of a layer.
  }];
  let arguments = (ins AnyRankedTensor:$input, Galvatron_AxisAttr:$axis);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = "$input `over` $axis attr-dict `:` type($input)";
}

def Galvatron_GatherParametersOp : Galvatron_CollectiveOp<"gather_parameters"> {
  let summary = "marks that a function works on gathered parameters";
  let description = [{
    `galvatron.gather_parameters over sdp`: the parameter arguments of the
    function hold full tensors, gathered from the shards of the axis before their
    first use.

    Constraints:
    - (C1) the axis is `sdp`.
  }];
  let arguments = (ins Galvatron_AxisAttr:$axis);
  let assemblyFormat = "`over` $axis attr-dict";
  let hasVerifier = 1;
}

def Galvatron_ReduceScatterGradientsOp
    : Galvatron_CollectiveOp<"reduce_scatter_gradients"> {
  let summary = "marks that a function leaves gradients summed and sharded";
  let description = [{
    `galvatron.reduce_scatter_gradients over sdp`: the parameter gradients that
    the function computes are summed over the axis, and each device keeps its
    shard.

    Constraints:
    - (C1) the axis is `sdp`.
  }];
  let arguments = (ins Galvatron_AxisAttr:$axis);
  let assemblyFormat = "`over` $axis attr-dict";
  let hasVerifier = 1;
}

#endif // GALVATRON_DIALECT_GALVATRON_IR_GALVATRONOPS_TD
