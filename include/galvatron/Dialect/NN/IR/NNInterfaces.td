//===- NNInterfaces.td - Behaviour of nn operations --------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Interfaces by which passes learn of an operation of a layer's body. A new
// operation implements these; no pass has a list of operations.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_IR_NNINTERFACES_TD
#define GALVATRON_DIALECT_NN_IR_NNINTERFACES_TD

include "mlir/IR/OpBase.td"

def NN_CostOpInterface : OpInterface<"CostOpInterface"> {
  let cppNamespace = "::mlir::nn";
  let description = [{
    Work of one operation as a function of the number of samples, which stands
    for every `?` dimension (after partition there is none and `samples` has no
    effect).
  }];
  let methods = [
    InterfaceMethod<[{
      Floating-point operations. A multiply-add counts as two; element-wise
      arithmetic counts one per element. Matrix products must be exact.
    }], "double", "getFlops", (ins "int64_t":$samples), "", [{
      return double(countElements($_op->getResult(0).getType(), samples));
    }]>,
    InterfaceMethod<[{
      Bytes moved between memory and the processor if every operand is read
      once and every result written once.
    }], "double", "getMovedBytes", (ins "int64_t":$samples), "", [{
      double bytes = 0;
      for (mlir::Value value : $_op->getOperands())
        bytes += double(countBytes(value.getType(), samples));
      for (mlir::Value value : $_op->getResults())
        bytes += double(countBytes(value.getType(), samples));
      return bytes;
    }]>,
    InterfaceMethod<[{
      Elements that the operation's matrix products read and write, each product
      on its own. With the FLOPs they give the size of the products
      (`galvatron::productSize`): devices reach less of their FLOP/s in small
      ones.
    }], "double", "getProductElements", (ins "int64_t":$samples), "", [{
      double elements = 0;
      for (mlir::Value value : $_op->getOperands())
        elements += double(countElements(value.getType(), samples));
      for (mlir::Value value : $_op->getResults())
        elements += double(countElements(value.getType(), samples));
      return elements;
    }]>,
    InterfaceMethod<[{
      Whether it is an attention kernel, whose products a device may reach
      another part of its FLOP/s in.
    }], "bool", "isAttention", (ins), "", [{ return false; }]>,
  ];
}

def NN_GradientOpInterface : OpInterface<"GradientOpInterface"> {
  let cppNamespace = "::mlir::nn";
  let description = [{
    The vector-Jacobian product of a forward operation.
  }];
  let methods = [
    InterfaceMethod<[{
      Builds the gradients of the operands from those of the results.
      `resultGradients` has one entry a result, null where nothing flows back.
      `needed` says which operands want a gradient. The method fills the entries
      of `operandGradients` (one an operand, null on entry). It may refer to the
      operation's own operands and results: what it refers to is what the
      forward pass must keep (or recompute).
    }], "void", "buildGradient",
      (ins "mlir::OpBuilder &":$builder,
           "llvm::ArrayRef<mlir::Value>":$resultGradients,
           "llvm::ArrayRef<bool>":$needed,
           "llvm::MutableArrayRef<mlir::Value>":$operandGradients)>,
  ];
}

def NN_FactorOpInterface : OpInterface<"FactorOpInterface"> {
  let cppNamespace = "::mlir::nn";
  let description = [{
    Which dimensions of operands and results carry the same *factor* of the
    operation's iteration space, in the manner of an einsum. If a factor is
    split over ranks, dimensions that carry it are local slices, and a result
    that does not carry it while an operand does is a partial sum, to be reduced
    before the first operation that is not linear in it.
  }];
  let methods = [
    InterfaceMethod<[{
      The rule for the operation's present types.
    }], "::mlir::nn::FactorRule", "getFactorRule">,
    InterfaceMethod<[{
      Whether the operation maps partial sums to partial sums, given which
      operands are partial (the others are the same on all ranks).
    }], "bool", "propagatesPartialSums",
      (ins "llvm::ArrayRef<bool>":$partialOperands), "", [{ return false; }]>,
    InterfaceMethod<[{
      Whether result `index`, which lacks `factor`, is a partial sum if `factor`
      is split. False for operations that combine the shards of that factor
      themselves in `partition`.
    }], "bool", "isPartialResult", (ins "unsigned":$index, "int":$factor), "",
    [{
      return true;
    }]>,
    InterfaceMethod<[{
      Whether the ranks of an axis compute the same results from the same
      operands. False where the kernels take the rank on that axis for a part of
      the operation, as attention's dropout numbers heads by rank.
    }], "bool", "mayBeReplicated", (ins "const ::mlir::nn::ShardContext &":$axis),
    "", [{ return true; }]>,
    InterfaceMethod<[{
      Whether the operation works on any block of rows, samples times positions,
      as it does on all of them. False where a kernel takes the first dimension
      for samples. Asked where the factors of samples and positions stand together
      (`getRowFactors`).
    }], "bool", "takesRows", (ins), "", [{ return true; }]>,
    InterfaceMethod<[{
      Whether a position of a result depends on other positions of the operands.
      On a block of rows such an operation takes whole what its rule has no factor
      of positions for, and what it gives without one is a term of a sum.
    }], "bool", "mixesPositions", (ins), "", [{ return false; }]>,
    InterfaceMethod<[{
      Whether a result's later positions depend on more positions of the operands
      than its earlier ones, as causal attention's do. Blocks of rows are balanced
      where a body has such an operation.
    }], "bool", "weighsLatePositions", (ins), "", [{ return false; }]>,
    InterfaceMethod<[{
      Whether the kernels of a block of rows tell positions by the block's number,
      where others take rows as they come. An operation that mixes positions does.
    }], "bool", "countsPositions", (ins), "", [{
      return $_op.mixesPositions();
    }]>,
    InterfaceMethod<[{
      How many heads the operation's operands have, and the factor that they are.
      Ranks that divide positions may divide heads where positions are mixed.
      Empty for operations without heads.
    }], "::mlir::nn::HeadCounts", "getHeadCounts", (ins), "", [{ return {}; }]>,
    InterfaceMethod<[{
      Why ranks that divide positions cannot pass keys and values of the operation,
      which mixes positions, round; empty if they can.
    }], "std::string", "whyNotInRing", (ins), "", [{
      return "mixes positions otherwise than attention does";
    }]>,
    InterfaceMethod<[{
      The rule for the operation's whole types by which keys and values are divided
      as queries are. Asked for if they can be passed round.
    }], "::mlir::nn::FactorRule", "getRingRule", (ins), "", [{
      return $_op.getFactorRule();
    }]>,
    InterfaceMethod<[{
      Builds steps that compute the operation's results, one for each rank of
      `ring`, by whose shifts keys and values are passed round. Operands and
      results are blocks of rows by now. Returns what takes the results' places.
    }], "llvm::SmallVector<mlir::Value>", "expandInRing",
      (ins "mlir::OpBuilder &":$builder,
           "const ::mlir::nn::ShardContext &":$ring), "", [{
      return {};
    }]>,
    InterfaceMethod<[{
      How many ranks in front of the own one the block is that operand `index`, a
      block of rows, is taken for; 0 is the own one.
    }], "int64_t", "getOperandDistance", (ins "unsigned":$index), "", [{
      return 0;
    }]>,
    InterfaceMethod<[{
      The same of result `index`.
    }], "int64_t", "getResultDistance", (ins "unsigned":$index), "", [{
      return 0;
    }]>,
    InterfaceMethod<[{
      The factor that the operation slices by itself, its operands being whole on
      all ranks of an axis: its results that carry it are this rank's part.
      `kNoFactor` for operations that slice nothing.
    }], "int", "getSlicedFactor", (ins), "", [{
      return ::mlir::nn::kNoFactor;
    }]>,
    InterfaceMethod<[{
      Adapts the operation after its operands and result types became local
      because `factor` is split over the ranks of one axis, which is `shards`:
      attributes that count or place the split dimension change here. Called once
      for every axis that splits a factor of the operation. May replace the
      operation.
    }], "llvm::LogicalResult", "partition",
      (ins "mlir::OpBuilder &":$builder, "int":$factor,
           "const ::mlir::nn::ShardContext &":$shards), "", [{
      return mlir::success();
    }]>,
  ];
}

def NN_KernelOpInterface : OpInterface<"KernelOpInterface"> {
  let cppNamespace = "::mlir::nn";
  let description = [{
    How the operation becomes destination-passing kernel calls on buffers.
  }];
  let methods = [
    InterfaceMethod<[{
      Emits the kernel calls. `operands` and `results` are buffers of the
      operation's (static) types.
    }], "void", "emitKernels",
      (ins "::mlir::nn::KernelEmitter &":$emitter,
           "llvm::ArrayRef<mlir::Value>":$operands,
           "llvm::ArrayRef<mlir::Value>":$results)>,
    InterfaceMethod<[{
      Whether the kernels can add result `index` to what its buffer holds, as
      `KernelEmitter::accumulateMode` asks. Gradients of parameters that cannot
      go through a temporary.
    }], "bool", "supportsAccumulation", (ins "unsigned":$index), "", [{
      return false;
    }]>,
    InterfaceMethod<[{
      The operand whose buffer result `index` may reuse if that operand dies
      here, or -1.
    }], "int", "getReusableOperand", (ins "unsigned":$index), "", [{
      return -1;
    }]>,
    InterfaceMethod<[{
      Names of attributes, numbers, that change what is computed and nothing
      else: operations that differ in them alone have the same work, kernels,
      scratch and reuse of buffers, and so have their gradients.
    }], "llvm::SmallVector<llvm::StringRef>", "getFreeAttributes", (ins), "",
    [{
      return {};
    }]>,
  ];
}

def NN_TrainingOpInterface : OpInterface<"TrainingOpInterface"> {
  let cppNamespace = "::mlir::nn";
  let description = [{
    How training options change an operation.
  }];
  let methods = [
    InterfaceMethod<[{
      What the elements of result `index` are, so that a change of the body's
      element type knows which ones follow it.
    }], "::mlir::nn::ElementRole", "getElementRole", (ins "unsigned":$index),
    "", [{
      return ::mlir::nn::ElementRole::Compute;
    }]>,
    InterfaceMethod<[{
      Leaves dropout out. May erase the operation.
    }], "void", "removeDropout", (ins), "", [{
      return;
    }]>,
    InterfaceMethod<[{
      Keeps the documents that stand in a sample one behind the other apart, as if
      each were a sample of its own. `starts`, `[samples, positions]`, has for
      every position the first one of its document, and `length` is their mean
      length, which costs go by (0: that of a sample). Fails, with an error, for
      operations that mix positions and cannot.
    }], "llvm::LogicalResult", "separateDocuments",
      (ins "mlir::Value":$starts, "int64_t":$length), "", [{
      return mlir::success();
    }]>,
    InterfaceMethod<[{
      Makes of the operation, whose samples have one position each by now, what
      computes that position from those before it, whose keys and values are kept
      (`KeptKeys`). May replace the operation. Fails, with an error, for operations
      that need other positions and have no such form.
    }], "llvm::LogicalResult", "keepKeys",
      (ins "mlir::OpBuilder &":$builder, "::mlir::nn::KeptKeys &":$kept), "", [{
      return mlir::success();
    }]>,
    InterfaceMethod<[{
      Gives a loss label smoothing and a z-loss, as `nn.cross_entropy` has them,
      instead of those that it has. Returns whether the operation is a loss that
      has such terms; the type of its loss may change.
    }], "bool", "addLossTerms", (ins "double":$smoothing, "double":$zLoss), "", [{
      return false;
    }]>,
    InterfaceMethod<[{
      The number that, beside seed, step and layer, keys the random numbers of
      the operation; nothing if it draws none. Operations of one body that draw
      have different ones.
    }], "std::optional<int64_t>", "getRandomKey", (ins), "", [{
      return std::nullopt;
    }]>,
  ];
}

#endif // GALVATRON_DIALECT_NN_IR_NNINTERFACES_TD
