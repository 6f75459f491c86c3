//===- NNBase.td - What nn operations are made of ----------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_IR_NNBASE_TD
#define GALVATRON_DIALECT_NN_IR_NNBASE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/TensorEncoding.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "galvatron/Dialect/NN/IR/NNInterfaces.td"

def NN_Dialect : Dialect {
  let name = "nn";
  let cppNamespace = "::mlir::nn";
  let summary = "The mathematics inside a layer, forward and backward.";
  let description = [{
    A layer's body is a function of `nn` operations. A leading `?` dimension
    counts samples and stands first in every activation; parameters have none.
    Operations carry their cost, their gradient, the factors along which they
    may be split, and the kernels they become as interfaces, so that a new
    operation needs no change in any pass (docs/rationale-nn.md).

    Floating-point operands and results of an operation have one element type;
    statistics have its accumulator type, f64 for f64 and f32 for all others;
    losses are f64. Every operation verifies this besides its own constraints.

    Discardable attributes on body functions and their arguments:

    - `nn.factors = ["", "heads"]` on a parameter argument: the factor each
      dimension carries (`""` for none); at most one dimension carries one;
    - `nn.factor_units = {heads = 12 : i64}` on the function: how many indivisible
      units a factor has; a tensor-parallel degree must divide it;
    - `nn.uneven = ["vocab"]`: factors that may be split into ceil-sized shards
      with a short last one;
    - `nn.shared = ["key_heads"]`: factors whose units several ranks may share: a
      degree may be a multiple of the units too. Parameters that carry such a
      factor have one element of the dimension a unit;
    - `nn.role = "input"` on arguments and results after differentiation; the
      roles are those of `ValueRole` (NN.h).
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

def NN_RowsAttr : AttrDef<NN_Dialect, "Rows", [
    DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let mnemonic = "rows";
  let summary = "A tensor is a block of the rows of another.";
  let description = [{
    Encoding of a tensor type. The rows of an activation are its samples times
    its positions, in this order; `degree` ranks have a block of them each, one
    behind the other, which need not begin or end with a sample. The first
    dimension of the tensor counts the rows of the block: where it is `?`,
    `samples * length / degree`.

    `balanced` blocks are for causal attention, where late positions have more work
    than early ones: the rows are cut into twice `degree` chunks, and rank r has
    chunk r and behind it chunk `2 * degree - 1 - r`. A row and the one that mirrors
    it see as many keys together as any other such pair.

    Syntax: `tensor<?x64xf32, #nn.rows<length = 197, degree = 8>>` is an eighth of
    `tensor<?x197x64xf32>`, and with `balanced = true` two sixteenths of it.

    Where ranks of another axis have put their blocks side by side, `behind` a new
    dimension, that one is in front of the block's.

    A block may be cut again: `within` ranks have a block of all rows, and as many
    as `degree / within` one each of that. Then `degree` counts the blocks of all
    rows, and rank i of those that share block r has number
    `r * (degree / within) + i`. A balanced block is cut into balanced ones, which
    makes that number the number among all balanced blocks: the first half of block
    r is chunks of the front in ascending order, the second their mirrors.

    Constraints:
    1. `length` is at least 1 and `degree` at least 2. `within` is at least 1; above
       1, `degree` is a larger multiple of it.
    2. The tensor has a dimension of rows; where it is known, the rows of all blocks
       are a whole number of samples, and a balanced block has an even number.
  }];
  let parameters = (ins "int64_t":$length, "int64_t":$degree,
                        DefaultValuedParameter<"bool", "false">:$balanced,
                        DefaultValuedParameter<"int64_t", "0">:$behind,
                        DefaultValuedParameter<"int64_t", "1">:$within);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The rows of a tensor type; null if it is no block of rows.
    static RowsAttr of(::mlir::Type type);
    /// The ranks that share what the block is cut from: all rows, or a block.
    int64_t getSharers() const { return getDegree() / getWithin(); }
  }];
}

// Activations, gradients and parameters.
def NN_Float : RankedTensorOf<[F32, F64, BF16]>;
// Token numbers and labels.
def NN_Integer : RankedTensorOf<[I32]>;
// Row statistics, losses and gradients of parameters: accumulator type of the
// body's element type.
def NN_Statistics : RankedTensorOf<[F32, F64]>;

// The lists name the interface methods with a default that the operation
// overrides. An operation that writes to an argument of its function has other
// effects than none, and says on which operand.
class NN_Op<string mnemonic, list<string> cost = [], list<string> factor = [],
            list<string> kernel = [], list<Trait> traits = [],
            list<string> training = [], list<Trait> effects = [Pure]>
    : Op<NN_Dialect, mnemonic, traits # effects # [
          DeclareOpInterfaceMethods<NN_TrainingOpInterface, training>,
          DeclareOpInterfaceMethods<NN_CostOpInterface, cost>,
          DeclareOpInterfaceMethods<NN_FactorOpInterface, factor>,
          DeclareOpInterfaceMethods<NN_KernelOpInterface, kernel>]> {
  let hasVerifier = 1;
}

// A forward operation: it can be differentiated.
class NN_ForwardOp<string mnemonic, list<string> cost = [],
                   list<string> factor = [], list<string> kernel = [],
                   list<string> training = [], list<Trait> traits = [],
                   list<Trait> effects = [Pure]>
    : NN_Op<mnemonic, cost, factor, kernel,
            traits # [DeclareOpInterfaceMethods<NN_GradientOpInterface>],
            training, effects>;

#endif // GALVATRON_DIALECT_NN_IR_NNBASE_TD
