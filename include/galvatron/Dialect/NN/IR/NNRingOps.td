//===- NNRingOps.td - Attention in a ring ------------------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Steps of attention for ranks that divide positions, keep their queries and
// pass keys and values round (Liu et al., arXiv 2310.01889): each step has another
// rank's block of keys.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_IR_NNRINGOPS_TD
#define GALVATRON_DIALECT_NN_IR_NNRINGOPS_TD

include "galvatron/Dialect/NN/IR/NNBase.td"

class NN_RingOp<string mnemonic>
    : NN_Op<mnemonic, ["getFlops", "getProductElements", "isAttention"],
            ["mayBeReplicated", "mixesPositions", "getOperandDistance",
             "getResultDistance"],
            ["getReusableOperand"], [AttrSizedOperandSegments],
            ["getElementRole", "removeDropout"]>;

def NN_RingAttentionOp : NN_RingOp<"ring_attention"> {
  let summary = "Attention of a block of queries to another rank's block of keys.";
  let description = [{
    A step of `nn.grouped_attention` on a block of rows, of which `k` and `v` are
    the block of the rank `distance` in front, around the ranks. What the queries
    got of the keys of other steps is `before`, the mean of the values seen, and
    `lse_before`; `o` and `lse` have this step's keys besides, merged by the
    logarithms. The first step has neither, and the last one's results are those of
    all keys. Masks are those of all samples; dropout draws by positions, as whole
    samples do.

    Constraints:
    1. `q`, `k` and `v` are blocks of the rows of samples, `[rows, heads, head
       size]` and, of one type, `[rows, key heads, head size]`; key heads divide
       heads.
    2. `o` is a block like `q` of width `heads * head size`, in the accumulator
       type; `lse` is `[rows, heads]`.
    3. `before` and `lse_before` are there both or neither, of the types of `o` and
       `lse`.
    4. `distance` is not negative and below the number of blocks.
    5. `0 <= dropout < 1`.
    6. `mask`, if present, is `[samples, positions]`.

    ```mlir
    %o, %lse = nn.ring_attention %q, %k, %v from %o0, %lse0
        {causal, scale = 0.125 : f64, distance = 1 : i64}
      : (tensor<128x8x64xf32, #nn.rows<length = 512, degree = 4>>,
         tensor<128x2x64xf32, #nn.rows<length = 512, degree = 4>>,
         tensor<128x2x64xf32, #nn.rows<length = 512, degree = 4>>,
         tensor<128x512xf32, #nn.rows<length = 512, degree = 4>>,
         tensor<128x8xf32, #nn.rows<length = 512, degree = 4>>)
      -> (tensor<128x512xf32, #nn.rows<length = 512, degree = 4>>,
          tensor<128x8xf32, #nn.rows<length = 512, degree = 4>>)
    ```
  }];
  let arguments = (ins NN_Float:$q, NN_Float:$k, NN_Float:$v,
                       Optional<NN_Statistics>:$before,
                       Optional<NN_Statistics>:$lse_before,
                       Optional<NN_Integer>:$mask, UnitAttr:$causal,
                       F64Attr:$scale, I64Attr:$distance,
                       DefaultValuedAttr<F64Attr, "0.0">:$dropout,
                       DefaultValuedAttr<I64Attr, "0">:$op_index);
  let results = (outs NN_Statistics:$o, NN_Statistics:$lse);
  let assemblyFormat = [{
    $q `,` $k `,` $v (`from` $before^ `,` $lse_before)? (`mask` $mask^)? attr-dict
    `:` functional-type(operands, results)
  }];
}

def NN_RingAttentionGradOp : NN_RingOp<"ring_attention_grad"> {
  let summary = "Gradients of a step of attention in a ring.";
  let description = [{
    `o` and `lse` are those behind all steps. `dq` is of the block's queries, `dk`
    and `dv` are of the keys of the step: with what other steps gave, which is
    `dq_before` and so on. They are sums in the accumulator type.

    Constraints:
    1. `q`, `k` and `v` are as in `nn.ring_attention`; `o` and `dout` are blocks like
       `q` of width `heads * head size`; `lse` is `[rows, heads]`.
    2. `dq`, `dk` and `dv` are blocks like `q`, `k` and `v` in the accumulator type.
    3. `dq_before`, `dk_before` and `dv_before` are there all or none, of their
       types.
    4. `distance` is not negative and below the number of blocks.
    5. `0 <= dropout < 1`.
    6. `mask`, if present, is `[samples, positions]`.
  }];
  let arguments = (ins NN_Float:$q, NN_Float:$k, NN_Float:$v, NN_Float:$o,
                       NN_Statistics:$lse, NN_Float:$dout,
                       Optional<NN_Statistics>:$dq_before,
                       Optional<NN_Statistics>:$dk_before,
                       Optional<NN_Statistics>:$dv_before,
                       Optional<NN_Integer>:$mask, UnitAttr:$causal,
                       F64Attr:$scale, I64Attr:$distance,
                       DefaultValuedAttr<F64Attr, "0.0">:$dropout,
                       DefaultValuedAttr<I64Attr, "0">:$op_index);
  let results = (outs NN_Statistics:$dq, NN_Statistics:$dk, NN_Statistics:$dv);
  let assemblyFormat = [{
    $q `,` $k `,` $v `,` $o `,` $lse `,` $dout
    (`from` $dq_before^ `,` $dk_before `,` $dv_before)? (`mask` $mask^)? attr-dict
    `:` functional-type(operands, results)
  }];
}

def NN_RoundOp : NN_Op<"round", ["getFlops"]> {
  let summary = "Rounds sums to the body's element type.";
  let description = [{
    Constraints:
    1. `y` has the shape of `x`, whose elements are of the accumulator type.
  }];
  let arguments = (ins NN_Statistics:$x);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_UnpackOp : NN_Op<"unpack", ["getFlops"]> {
  let summary = "Takes packed queries, keys and values apart.";
  let description = [{
    Constraints:
    1. `qkv` is `[rows, 3, heads * head size]`, and `q`, `k` and `v` have one type,
       `[rows, heads, head size]`.
  }];
  let arguments = (ins NN_Float:$qkv);
  let results = (outs NN_Float:$q, NN_Float:$k, NN_Float:$v);
  let assemblyFormat = "$qkv attr-dict `:` functional-type(operands, results)";
}

def NN_PackOp : NN_Op<"pack", ["getFlops"]> {
  let summary = "Packs queries, keys and values, or their gradients.";
  let description = [{
    Constraints:
    1. `qkv` is `[rows, 3, heads * head size]`, and `q`, `k` and `v` have one type,
       `[rows, heads, head size]`.
  }];
  let arguments = (ins NN_Float:$q, NN_Float:$k, NN_Float:$v);
  let results = (outs NN_Float:$qkv);
  let assemblyFormat = [{
    $q `,` $k `,` $v attr-dict `:` functional-type(operands, results)
  }];
}

#endif // GALVATRON_DIALECT_NN_IR_NNRINGOPS_TD
