//===- PartitionAttrs.td - Attributes of local functions ---*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Included by GalvatronAttrs.td.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_IR_PARTITIONATTRS_TD
#define GALVATRON_DIALECT_GALVATRON_IR_PARTITIONATTRS_TD

def Galvatron_Direction : I32Enum<"Direction", "what a function of a layer does", [
  I32EnumCase<"Forward", 0, "forward">,
  I32EnumCase<"Recompute", 1, "recompute">,
  I32EnumCase<"Backward", 2, "backward">,
  I32EnumCase<"Weight", 3, "weight">
]> {
  let cppNamespace = "::mlir::galvatron";
}

def Galvatron_PartitionAttr : Galvatron_Attr<"Partition", "partition"> {
  let summary = "for which strategy a layer function was cut";
  let description = [{
    What galvatron-partition-layers leaves on a function: what it does, the levels
    whose devices work inside it (`axes`, outermost first), over how many devices
    its parameters are sharded (`sdp`), and over how many the states of what a
    device holds (`zdp`), whether the recompute function has gathered its
    parameters already, and the numbers of those parameters that belong to another
    layer. It stands as `galvatron.partition`. States of values
    (`#galvatron.state`) have one entry for each of the axes.

    Syntax: `#galvatron.partition<direction = backward, axes = [tp = 2], sdp = 4,
    borrowed = [2]>`

    Constraints:
    - (C1) degrees are at least 1, those of axes at least 2;
    - (C2) the paradigm of every axis works inside functions, and none occurs
      twice.
  }];
  let parameters = (ins EnumParameter<Galvatron_Direction>:$direction,
                        Galvatron_LevelsParameter:$axes,
                        DefaultValuedParameter<"int64_t", "1">:$sdp,
                        DefaultValuedParameter<"int64_t", "1">:$zdp,
                        DefaultValuedParameter<"bool", "false">:$gathered,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$borrowed);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    static constexpr ::llvm::StringLiteral attrName = "galvatron.partition";
    /// Null on functions that are not partitioned.
    static PartitionAttr of(::mlir::Operation *function);
    bool isBackward() const {
      return getDirection() == Direction::Backward ||
             getDirection() == Direction::Weight;
    }
    PartitionAttr withDirection(Direction direction) const;
    /// The partition of the same function with other shards of parameters and
    /// states.
    PartitionAttr withShards(int64_t sdp, int64_t zdp,
                             ::llvm::ArrayRef<int64_t> borrowed) const;
  }];
}

def Galvatron_StateAttr : Galvatron_Attr<"State", "state"> {
  let summary = "state of a value on every axis of its function";
  let description = [{
    One entry for each of the axes of the function's `#galvatron.partition`, in
    their order: `replicated`, the same on all ranks of the axis; `split` and a
    dimension, of which every rank has a block; `rows` or `balanced rows`, of whose
    samples times positions every rank has a block (`#nn.rows`); or `unreduced`, a term of a sum
    over the ranks.

    Syntax: `#galvatron.state<[split 2]>`

    Constraints:
    - (C1) there is at least one axis.
  }];
  let parameters = (ins ArrayRefParameter<"AxisState">:$axes);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Galvatron_ShardingAttr : Galvatron_Attr<"Sharding", "sharding"> {
  let summary = "how the axes of its function cut an operation";
  let description = [{
    What the propagation of factors leaves on an operation of a partitioned
    function, as `galvatron.sharding`, and the insertion of collectives takes
    away: the state of every result; for every axis the number of the operation's
    factor that it splits, -1 for none; and for operands that the operation does
    not take as they are the state that it takes them in: the value is converted
    for this use, and for no other.

    Syntax: `#galvatron.sharding<results = ([split 2], [replicated]),
    factors = [4]>`, `#galvatron.sharding<results = ([replicated]),
    operands = {0 = [replicated]}>`

    Constraints:
    - (C1) all states speak of as many axes, and so do factors, where there are
      any;
    - (C2) factors are -1 and more;
    - (C3) no operand's number is negative, and they ascend.
  }];
  let parameters = (ins ArrayRefParameter<"StateAttr">:$results,
                        ArrayRefParameter<"int64_t">:$factors,
                        ArrayRefParameter<"OperandState">:$operands);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    static constexpr ::llvm::StringLiteral attrName = "galvatron.sharding";
    /// The factor that an axis splits, -1 for none.
    int64_t getFactor(size_t axis) const {
      return getFactors().empty() ? -1 : getFactors()[axis];
    }
  }];
}

def Galvatron_PartLifetime
    : I32Enum<"PartLifetime", "where a kept value of a backward pass ends", [
  I32EnumCase<"Own", 0, "own">,
  I32EnumCase<"Kept", 1, "kept">,
  I32EnumCase<"Ended", 2, "ended">
]> {
  let cppNamespace = "::mlir::galvatron";
}

def Galvatron_PartValueAttr : Galvatron_Attr<"PartValue", "part_value"> {
  let summary = "what an argument or result of a part of a backward pass is";
  let description = [{
    What galvatron-split-backward says of arguments and results of the two parts
    of a backward function, as `galvatron.part_value`, beside their roles. Of a
    gradient: the number of the parameter that it is of. Of a value that is kept
    between forward and backward, or between the parts: whether it ends in the
    part that reads it (`own`), lives on because the other part reads it too
    (`kept`), or was ended by the other part (`ended`); whether it is a
    parameter's gradient, in the type that gradients are summed in (`wide`); and
    once that is decided the byte where it lies (`offset`).

    Syntax: `#galvatron.part_value<parameter = 3>`,
    `#galvatron.part_value<lifetime = kept>`,
    `#galvatron.part_value<wide = true, offset = 4096>`

    Constraints:
    - (C1) numbers are -1, for "none", and more;
    - (C2) a gradient has nothing of a kept value.
  }];
  let parameters = (ins DefaultValuedParameter<"int64_t", "-1">:$parameter,
                        DefaultValuedParameter<"PartLifetime",
                                               "PartLifetime::Own">:$lifetime,
                        DefaultValuedParameter<"bool", "false">:$wide,
                        DefaultValuedParameter<"int64_t", "-1">:$offset);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    static constexpr ::llvm::StringLiteral attrName = "galvatron.part_value";
    static PartValueAttr ofParameter(::mlir::MLIRContext *context,
                                     int64_t parameter);
    static PartValueAttr ofLifetime(::mlir::MLIRContext *context,
                                    PartLifetime lifetime);
    static PartValueAttr ofGradient(::mlir::MLIRContext *context);
    /// The value among the attributes of an argument or result; null if there
    /// is none.
    static PartValueAttr in(::mlir::DictionaryAttr attributes);
    /// The lifetime and width that `in` finds, at byte `offset`.
    static PartValueAttr placed(::mlir::MLIRContext *context,
                                ::mlir::DictionaryAttr attributes,
                                int64_t offset);
    static bool isWide(::mlir::DictionaryAttr attributes);
    static PartLifetime lifetimeOf(::mlir::DictionaryAttr attributes);
  }];
}

def Galvatron_SliceAttr : Galvatron_Attr<"Slice", "slice"> {
  let summary = "which part of a tensor an argument is";
  let description = [{
    Of an argument of a partitioned function, as `galvatron.slice`: the shape of
    the whole parameter, and the state of the argument on the axes of the
    function, left out where it is replicated on all of them. Arguments that are
    no parameters have only the latter.

    Syntax: `#galvatron.slice<global_shape = [33, 16], state = <[split 0]>>`

    Constraints:
    - (C1) a dimension that is split is one of the global shape, where there is
      one, a parameter has no rows, and none is unreduced.
  }];
  let parameters = (ins OptionalParameter<"::mlir::DenseI64ArrayAttr">:$global_shape,
                        OptionalParameter<"StateAttr">:$state);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    static constexpr ::llvm::StringLiteral attrName = "galvatron.slice";
    /// The slice of an argument of a function; null if it has none.
    static SliceAttr of(::mlir::FunctionOpInterface function, unsigned argument);
    /// The state on an axis.
    AxisState getStateOn(size_t axis) const;
  }];
}

#endif // GALVATRON_DIALECT_GALVATRON_IR_PARTITIONATTRS_TD
