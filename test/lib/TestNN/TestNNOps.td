//===- TestNNOps.td - Operations that only the tests know --*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A dialect of its own that implements the interfaces of nn. That its operations
// go through differentiation, partition, collectives and kernels without any
// pass naming them is the proof that passes know operations by interface only.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TEST_LIB_TESTNN_TESTNNOPS_TD
#define GALVATRON_TEST_LIB_TESTNN_TESTNNOPS_TD

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "galvatron/Dialect/NN/IR/NNInterfaces.td"

def TestNN_Dialect : Dialect {
  let name = "test_nn";
  let cppNamespace = "::mlir::test_nn";
  let summary = "Operations that only the tests know.";
}

def TestNN_Float : RankedTensorOf<[F32, F64, BF16]>;

class TestNN_Op<string mnemonic, list<string> cost = [],
                list<string> factor = [], list<string> kernel = [],
                list<Trait> traits = []>
    : Op<TestNN_Dialect, mnemonic, traits # [
          Pure,
          DeclareOpInterfaceMethods<NN_CostOpInterface, cost>,
          DeclareOpInterfaceMethods<NN_FactorOpInterface, factor>,
          DeclareOpInterfaceMethods<NN_KernelOpInterface, kernel>]>;

// Linear: partial sums pass through it, so the all-reduce comes after it.
def TestNN_ScaleOp
    : TestNN_Op<"scale", [], ["propagatesPartialSums"], ["getReusableOperand"],
                [DeclareOpInterfaceMethods<NN_GradientOpInterface>,
                 AllTypesMatch<["x", "y"]>]> {
  let summary = "y = factor * x";
  let arguments = (ins TestNN_Float:$x, F64Attr:$factor);
  let results = (outs TestNN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}

// Not linear: needs its input in backward, and two kernels with a temporary.
def TestNN_ScaledGeluOp
    : TestNN_Op<"scaled_gelu", ["getFlops"], [], [],
                [DeclareOpInterfaceMethods<NN_GradientOpInterface>,
                 AllTypesMatch<["x", "y"]>]> {
  let summary = "y = factor * gelu(x)";
  let arguments = (ins TestNN_Float:$x, F64Attr:$factor);
  let results = (outs TestNN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}

def TestNN_ScaledGeluGradOp
    : TestNN_Op<"scaled_gelu_grad", ["getFlops"], [], [],
                [AllTypesMatch<["x", "dy", "dx"]>]> {
  let summary = "dx = factor * gelu'(x) * dy";
  let arguments = (ins TestNN_Float:$x, TestNN_Float:$dy, F64Attr:$factor);
  let results = (outs TestNN_Float:$dx);
  let assemblyFormat = "$x `,` $dy attr-dict `:` type($x)";
}

// For what passes must refuse: no gradient, no factors, no kernels.
def TestNN_OpaqueOp : Op<TestNN_Dialect, "opaque", [
    Pure, AllTypesMatch<["x", "y"]>]> {
  let summary = "an operation without any interface";
  let arguments = (ins TestNN_Float:$x);
  let results = (outs TestNN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}

#endif // GALVATRON_TEST_LIB_TESTNN_TESTNNOPS_TD
