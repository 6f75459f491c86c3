//===- NNOps.td - The nn dialect ---------------------------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_IR_NNOPS_TD
#define GALVATRON_DIALECT_NN_IR_NNOPS_TD

include "galvatron/Dialect/NN/IR/NNActivationOps.td"
include "galvatron/Dialect/NN/IR/NNBase.td"
include "galvatron/Dialect/NN/IR/NNNormOps.td"
include "galvatron/Dialect/NN/IR/NNPositionOps.td"
include "galvatron/Dialect/NN/IR/NNRingOps.td"
include "galvatron/Dialect/NN/IR/NNScalingOps.td"

def NN_EmbeddingOp
    : NN_ForwardOp<"embedding", ["getFlops", "getMovedBytes"],
                   ["partition", "takesRows"]> {
  let summary = "Looks rows of a table up.";
  let description = [{
    `y[.., :] = table[first + tokens[..], :]`. With `sharded` the table holds one
    shard of the rows and tokens of other shards give zeros. The row of token
    `padding` gets no gradient.

    Constraints:
    1. `table` has rank 2.
    2. The shape of `y` is that of `tokens` followed by the table's width.
    3. `padding`, if present, is not negative.
    4. `first` is a row of the table, and 0 with `sharded`.

    ```mlir
    %y = nn.embedding %tokens, %table
      : (tensor<?x64xi32>, tensor<50257x768xf32>) -> tensor<?x64x768xf32>
    ```
  }];
  let arguments = (ins NN_Integer:$tokens, NN_Float:$table, UnitAttr:$sharded,
                       OptionalAttr<I64Attr>:$padding,
                       DefaultValuedAttr<I64Attr, "0">:$first);
  let results = (outs NN_Float:$y);
  let assemblyFormat = [{
    $tokens `,` $table attr-dict `:` functional-type(operands, results)
  }];
}

def NN_EmbeddingGradOp
    : NN_Op<"embedding_grad",
            ["getFlops", "getMovedBytes"], ["partition", "countsPositions"],
            ["supportsAccumulation"], [], ["getElementRole"]> {
  let summary = "Gradient of a looked-up table.";
  let description = [{
    Sums rows of `dy` by token, in ascending order of position; those of token
    `padding` are left out. Rows in front of `first` are zeros. `table` only tells the shape and the split of the
    result; its values are not read.

    Constraints:
    1. `dtable` has the shape of `table` and the accumulator type.
    2. The shape of `dy` is that of `tokens` followed by the table's width. Of a
       block of rows the tokens are those of all.
    3. `padding`, if present, is not negative.
    4. `first` is a row of the table, and 0 with `sharded`.
  }];
  let arguments = (ins NN_Integer:$tokens, NN_Float:$dy, NN_Float:$table,
                       UnitAttr:$sharded, OptionalAttr<I64Attr>:$padding,
                       DefaultValuedAttr<I64Attr, "0">:$first);
  let results = (outs NN_Statistics:$dtable);
  let assemblyFormat = [{
    $tokens `,` $dy `,` $table attr-dict `:` functional-type(operands, results)
  }];
}

def NN_PositionAddOp
    : NN_ForwardOp<"position_add", [], ["takesRows", "countsPositions"],
                   ["getReusableOperand"],
                   ["separateDocuments", "keepKeys"]> {
  let summary = "Adds a learnt position embedding.";
  let description = [{
    `y[s, t, :] = x[s, t, :] + table[first + t, :]`. With `starts`, the first
    position of the document of each, it is the row `first + t - starts[s, t]`.

    Constraints:
    1. `x` has rank 3, `table` rank 2, of equal width.
    2. `table` has at least as many rows from `first` on as `x` has positions.
    3. `y` has the type of `x`.
    4. `starts`, if present, is `[samples, positions]`.
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$table,
                       Optional<NN_Integer>:$starts,
                       DefaultValuedAttr<I64Attr, "0">:$first);
  let results = (outs NN_Float:$y);
  let assemblyFormat = [{
    $x `,` $table (`starts` $starts^)? attr-dict `:`
    functional-type(operands, results)
  }];
}

def NN_PositionGradOp
    : NN_Op<"position_grad", [], ["takesRows", "countsPositions"],
            ["supportsAccumulation"], [], ["getElementRole"]> {
  let summary = "Gradient of a position embedding.";
  let description = [{
    `dtable[first + t, :] = sum over samples of dy[s, t, :]`, zero in unused
    rows. With `starts` position `t` of a sample adds to the row
    `first + t - starts[s, t]`.

    Constraints:
    1. `dy` has rank 3, `dtable` rank 2, of equal width.
    2. `dtable` has at least as many rows from `first` on as `dy` has positions.
    3. `starts`, if present, is `[samples, positions]`.
  }];
  let arguments = (ins NN_Float:$dy, Optional<NN_Integer>:$starts,
                       DefaultValuedAttr<I64Attr, "0">:$first);
  let results = (outs NN_Statistics:$dtable);
  let assemblyFormat = [{
    $dy (`starts` $starts^)? attr-dict `:` functional-type(operands, results)
  }];
}

def NN_PatchesOp
    : NN_ForwardOp<"patches", ["getFlops"], [], [], ["separateDocuments", "keepKeys"]> {
  let summary = "Images as rows of patches.";
  let description = [{
    Cuts images into patches of `rows` by `columns`, row by row; a patch is
    flattened channel, row, column. Patch embedding is this and a product.
    What stands behind the last whole patch is left out; with `pad` it makes
    patches too, filled up with zeros. Images are data and have no gradient.

    Constraints:
    1. `images` is `[samples, channels, rows, columns]`.
    2. `rows` and `columns` are positive and, without `pad`, no larger than the
       image.
    3. `y` is `[samples, patches, channels * rows * columns]`.

    ```mlir
    %y = nn.patches %images {rows = 16 : i64, columns = 16 : i64}
      : (tensor<?x3x224x224xf32>) -> tensor<?x196x768xf32>
    ```
  }];
  let arguments = (ins NN_Float:$images, I64Attr:$rows, I64Attr:$columns,
                       UnitAttr:$pad);
  let results = (outs NN_Float:$y);
  let assemblyFormat = [{
    $images attr-dict `:` functional-type(operands, results)
  }];
}

def NN_PrependOp
    : NN_ForwardOp<"prepend", ["getFlops"], [], [], ["separateDocuments", "keepKeys"]> {
  let summary = "Puts a learnt row in front of every sample's.";
  let description = [{
    `y[s, 0, :] = token`, `y[s, 1 + t, :] = x[s, t, :]`: the class token of
    vision transformers.

    Constraints:
    1. `x` has rank 3, and `token` is a vector of its width.
    2. `y` has one position more than `x`.

    ```mlir
    %y = nn.prepend %x, %token
      : (tensor<?x196x768xf32>, tensor<768xf32>) -> tensor<?x197x768xf32>
    ```
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$token);
  let results = (outs NN_Float:$y);
  let assemblyFormat = [{
    $x `,` $token attr-dict `:` functional-type(operands, results)
  }];
}

def NN_PrependGradOp
    : NN_Op<"prepend_grad", ["getFlops"], [], ["supportsAccumulation"], [],
            ["getElementRole"]> {
  let summary = "Gradients of what a learnt row was put in front of, and of it.";
  let description = [{
    `dx[s, t, :] = dy[s, 1 + t, :]`, `dtoken = sum over samples of dy[s, 0, :]`.

    Constraints:
    1. `dy` has rank 3, and `dtoken` is a vector of its width.
    2. `dy` has one position more than `dx`.
  }];
  let arguments = (ins NN_Float:$dy);
  let results = (outs NN_Float:$dx, NN_Statistics:$dtoken);
  let assemblyFormat = "$dy attr-dict `:` functional-type(operands, results)";
}

def NN_TakeOp
    : NN_ForwardOp<"take", ["getFlops", "getMovedBytes"], [], [],
                   ["separateDocuments", "keepKeys"]> {
  let summary = "One position of every sample.";
  let description = [{
    `y[s, :] = x[s, position, :]`.

    Constraints:
    1. `x` has rank 3, and `position` is one of its positions.
    2. `y` is `[samples, width]`.
  }];
  let arguments = (ins NN_Float:$x, I64Attr:$position);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_TakeGradOp : NN_Op<"take_grad", ["getFlops"]> {
  let summary = "Gradient of what one position was taken from.";
  let description = [{
    `dx[s, position, :] = dy[s, :]`, zero elsewhere.

    Constraints:
    1. `dx` has rank 3, and `position` is one of its positions.
    2. `dy` is `[samples, width]`.
  }];
  let arguments = (ins NN_Float:$dy, I64Attr:$position);
  let results = (outs NN_Float:$dx);
  let assemblyFormat = "$dy attr-dict `:` functional-type(operands, results)";
}

def NN_LinearOp : NN_ForwardOp<"linear", ["getFlops"]> {
  let summary = "A matrix product with a weight.";
  let description = [{
    Contracts the last dimension of `x` with the first of `w`; the other
    dimensions of `w` follow those of `x` in the result. With `transpose_weight`
    `w` is `[out.., in]`, as in `torch.nn.Linear` and tied heads. The optional
    `bias` has the shape of the output dimensions; importers leave it to
    `nn.bias_add`, because a bias after a row-split product must come after the
    all-reduce, and `nn-fuse` moves it in here.

    Constraints:
    1. `x` has rank >= 1, `w` rank >= 2, and the contracted dimension of `w`
       equals the last of `x`.
    2. The shape of `y` is that of `x` without its last dimension followed by
       the output dimensions of `w`.
    3. `bias`, if present, has exactly the output dimensions.

    ```mlir
    %y = nn.linear %x, %w
      : (tensor<?x64x768xf32>, tensor<768x3x768xf32>) -> tensor<?x64x3x768xf32>
    ```
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$w, Optional<NN_Float>:$bias,
                       UnitAttr:$transpose_weight);
  let results = (outs NN_Float:$y);
  let assemblyFormat = [{
    $x `,` $w (`bias` $bias^)? attr-dict `:` functional-type(operands, results)
  }];
}

def NN_LinearInputGradOp : NN_Op<"linear_input_grad", ["getFlops"]> {
  let summary = "Gradient of a linear's input.";
  let description = [{
    Contracts the output dimensions of `dy` with those of `w`.

    Constraints:
    1. `w` has rank >= 2; the trailing dimensions of `dy` are its output
       dimensions.
    2. The shape of `dx` is that of `dy` without them, followed by the
       contracted dimension of `w`.
  }];
  let arguments = (ins NN_Float:$dy, NN_Float:$w, UnitAttr:$transpose_weight);
  let results = (outs NN_Float:$dx);
  let assemblyFormat = [{
    $dy `,` $w attr-dict `:` functional-type(operands, results)
  }];
}

def NN_LinearWeightGradOp
    : NN_Op<"linear_weight_grad", ["getFlops"], [], ["supportsAccumulation"],
            [], ["getElementRole"]> {
  let summary = "Gradient of a linear's weight.";
  let description = [{
    `dw = x^T dy` over all rows (`dy^T x` with `transpose_weight`).

    Constraints:
    1. `x` has rank >= 1; `x` and `dy` agree in all dimensions but the trailing
       ones.
    2. The shape of `dw` is the last dimension of `x` and the output dimensions
       of `dy`, in the order of the weight.
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$dy, UnitAttr:$transpose_weight);
  let results = (outs NN_Statistics:$dw);
  let assemblyFormat = [{
    $x `,` $dy attr-dict `:` functional-type(operands, results)
  }];
}

def NN_BiasAddOp : NN_ForwardOp<"bias_add", [], [], ["getReusableOperand"]> {
  let summary = "Adds a vector to every row.";
  let description = [{
    Constraints:
    1. The shape of `bias` is the trailing part of the shape of `x`.
    2. `y` has the type of `x`.
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$bias);
  let results = (outs NN_Float:$y);
  let assemblyFormat = [{
    $x `,` $bias attr-dict `:` functional-type(operands, results)
  }];
}

def NN_BiasGradOp
    : NN_Op<"bias_grad", ["getFlops"], [], ["supportsAccumulation"], [],
            ["getElementRole"]> {
  let summary = "Gradient of a bias: the sum over rows.";
  let description = [{
    Constraints:
    1. The shape of `dbias` is the trailing part of the shape of `dy`.
  }];
  let arguments = (ins NN_Float:$dy);
  let results = (outs NN_Statistics:$dbias);
  let assemblyFormat = "$dy attr-dict `:` functional-type(operands, results)";
}

def NN_RotaryOp
    : NN_ForwardOp<"rotary", ["getFlops"], ["takesRows", "countsPositions"],
                   ["getReusableOperand"], ["keepKeys"]> {
  let summary = "Rotary position embedding of queries or keys.";
  let description = [{
    Turns elements `(i, i + pairs)`, with `interleaved` `(2 i, 2 i + 1)`, of every
    head at position `t` by the angle `t * frequencies[i]` and multiplies them by
    `factor`; elements behind the pairs stay as they are. With `inverse` the angle is negative: that is the
    gradient. How frequencies follow from a configuration (base, scaling) is the
    importer's business. With `at` position `t` of a sample is `at[s, t]`.

    Constraints:
    1. `x` is `[samples, positions, heads, head size]`.
    2. There are at most head size / 2 `frequencies`, and at most 256.
    3. `factor` is positive.
    4. `y` has the type of `x`.
    5. `at`, if present, is `[samples, positions]`.

    ```mlir
    %y = nn.rotary %x {frequencies = array<f64: 1.0, 0.01>}
      : (tensor<?x64x12x4xf32>) -> tensor<?x64x12x4xf32>
    ```
  }];
  let arguments = (ins NN_Float:$x, Optional<NN_Integer>:$at,
                       DenseF64ArrayAttr:$frequencies,
                       DefaultValuedAttr<F64Attr, "1.0">:$factor,
                       UnitAttr:$inverse, UnitAttr:$interleaved);
  let results = (outs NN_Float:$y);
  let assemblyFormat = [{
    $x (`at` $at^)? attr-dict `:` functional-type(operands, results)
  }];
}

def NN_RelativeBiasOp
    : NN_ForwardOp<"relative_bias", ["getFlops"], [], [], ["keepKeys"]> {
  let summary = "Learnt biases of relative positions.";
  let description = [{
    What `grouped_attention` takes as `bias`, alike for all samples: element `d` of a
    row is what `table` has for the bucket of distance `d - (positions - 1)`, from
    query to key. Without `bidirectional` distances above 0 are all in bucket 0,
    below 0 their size counts. With it half of the buckets are for either. Of the `n`
    buckets of a side the first `e = n / 2` have one distance each, `r` from there on
    is in bucket `min(n - 1, e + floor(ln(r / e) / ln(max_distance / e) * (n - e)))`
    (Raffel et al., arXiv 1910.10683, section 2.1).

    Constraints:
    1. `table` is `[buckets, heads]`, with 2 to 256 buckets, 4 at least with
       `bidirectional`.
    2. `bias` is `[samples, heads, 2 * positions - 1]`.
    3. `max_distance` is more than `e`.

    ```mlir
    %bias = nn.relative_bias %table {bidirectional, max_distance = 128 : i64}
      : (tensor<32x8xf32>) -> tensor<?x8x1023xf32>
    ```
  }];
  let arguments = (ins NN_Float:$table, I64Attr:$max_distance,
                       UnitAttr:$bidirectional);
  let results = (outs NN_Float:$bias);
  let assemblyFormat = [{
    $table attr-dict `:` functional-type(operands, results)
  }];
}

def NN_RelativeBiasGradOp
    : NN_Op<"relative_bias_grad", ["getFlops"], [], ["supportsAccumulation"],
            [], ["getElementRole"]> {
  let summary = "Gradient of a table of relative positions.";
  let description = [{
    Constraints:
    1. `dtable` is `[buckets, heads]`, with 2 to 256 buckets, 4 at least with
       `bidirectional`.
    2. `dbias` is `[samples, heads, 2 * positions - 1]`.
    3. `max_distance` is more than half of the buckets of a side.
  }];
  let arguments = (ins NN_Float:$dbias, I64Attr:$max_distance,
                       UnitAttr:$bidirectional);
  let results = (outs NN_Statistics:$dtable);
  let assemblyFormat = [{
    $dbias attr-dict `:` functional-type(operands, results)
  }];
}

def NN_BiasGeluOp
    : NN_Op<"bias_gelu", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "A bias and a Gaussian error linear unit in one pass.";
  let description = [{
    `pre = x + bias`, `y = gelu(pre)`. Made by `nn-fuse` after partition, so it
    has no gradient of its own.

    Constraints:
    1. The shape of `bias` is the trailing part of the shape of `x`.
    2. `pre` and `y` have the type of `x`.
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$bias, UnitAttr:$approximate);
  let results = (outs NN_Float:$pre, NN_Float:$y);
  let assemblyFormat = [{
    $x `,` $bias attr-dict `:` functional-type(operands, results)
  }];
}

def NN_LinearGeluOp : NN_Op<"linear_gelu", ["getFlops", "getProductElements"]> {
  let summary = "A product, its bias and a Gaussian error linear unit.";
  let description = [{
    `pre = x w + bias` as `nn.linear` has it, `y = gelu(pre)`; `pre` is a result
    where something keeps it. Made by `nn-fuse-products` after partition, so it
    has no gradient of its own. The contracted dimension cannot be split: the
    activation is not linear.

    Constraints:
    1. `x` has rank >= 1, `w` rank >= 2, and the contracted dimension of `w`
       equals the last of `x`.
    2. The shape of `y`, and of `pre`, is that of `x` without its last dimension
       followed by the output dimensions of `w`.
    3. `bias` has exactly the output dimensions.

    ```mlir
    %y, %pre = nn.linear_gelu %x, %w, %b {approximate}
      : (tensor<4x64x768xf32>, tensor<768x3072xf32>, tensor<3072xf32>)
      -> (tensor<4x64x3072xf32>, tensor<4x64x3072xf32>)
    ```
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$w, NN_Float:$bias,
                       UnitAttr:$transpose_weight, UnitAttr:$approximate);
  let results = (outs NN_Float:$y, Optional<NN_Float>:$pre);
  let assemblyFormat = [{
    $x `,` $w `,` $bias attr-dict `:` functional-type(operands, results)
  }];
}

def NN_LinearGeluGradOp
    : NN_Op<"linear_gelu_grad", ["getFlops", "getProductElements"]> {
  let summary = "Gradient of a linear's input, taken through a GELU before it.";
  let description = [{
    `dx = linear_input_grad(dy, w) * gelu'(x)`: with `y = gelu(x) w` the gradient
    of `x`. Made by `nn-fuse-products` after partition. The output dimensions of
    `w` cannot be split.

    Constraints:
    1. `w` has rank >= 2; the trailing dimensions of `dy` are its output
       dimensions.
    2. The shape of `dx` is that of `dy` without them, followed by the
       contracted dimension of `w`.
    3. `x` has the type of `dx`.
  }];
  let arguments = (ins NN_Float:$dy, NN_Float:$w, NN_Float:$x,
                       UnitAttr:$transpose_weight, UnitAttr:$approximate);
  let results = (outs NN_Float:$dx);
  let assemblyFormat = [{
    $dy `,` $w `,` $x attr-dict `:` functional-type(operands, results)
  }];
}

def NN_LinearWeightBiasGradOp
    : NN_Op<"linear_weight_bias_grad", ["getFlops"], ["isPartialResult"],
            ["supportsAccumulation"], [], ["getElementRole"]> {
  let summary = "Gradients of a linear's weight and of its bias.";
  let description = [{
    `dw = x^T dy` over all rows, and `dbias` the sum of the rows of `dy`. Made by
    `nn-fuse-products` after partition, of weights that are not transposed.

    Constraints:
    1. `x` has rank >= 1; `x` and `dy` agree in all dimensions but the trailing
       ones.
    2. The shape of `dw` is the last dimension of `x` and the output dimensions
       of `dy`.
    3. `dbias` has the output dimensions.
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$dy);
  let results = (outs NN_Statistics:$dw, NN_Statistics:$dbias);
  let assemblyFormat = [{
    $x `,` $dy attr-dict `:` functional-type(operands, results)
  }];
}

def NN_AttentionOp
    : NN_ForwardOp<"attention", ["getFlops", "getProductElements", "isAttention"],
                   ["partition", "mayBeReplicated", "takesRows",
                    "mixesPositions", "weighsLatePositions", "getHeadCounts",
                    "getRingRule", "whyNotInRing", "expandInRing"], [],
                   ["getElementRole", "removeDropout", "separateDocuments",
                    "keepKeys", "getRandomKey"]> {
  let summary = "Scaled dot-product attention of packed queries, keys, values.";
  let description = [{
    `qkv` is `[samples, positions, 3, heads * head size]`. `o` holds the heads'
    outputs side by side; `lse` is the logarithm of the sum of exponentials of
    each row of scores, kept for the backward pass. The scores of all heads at
    once are never materialised. Dropout acts on the probabilities and is keyed
    by (sample, global head, row, column) and `op_index`. With `starts`, the
    first position of the document of each, which ascend, a query sees no key
    before its own; `document_length`, the mean length of documents where each
    token counts once, is what costs go by (0: not known).

    On a block of rows (`#nn.rows`) `o` is the block's and `qkv` that of all
    positions; the kernel finds the block's queries there. `lse` then has for every
    head the queries of one sample, behind these of the next. With
    `heads_of_blocks` the ranks that have blocks of rows elsewhere have all
    positions of a part of the heads here: parts of those that an axis of tensor
    parallelism gives them.

    Constraints:
    1. `qkv` has rank 4 and its third dimension is 3; it is no block of rows.
    2. `heads` divides the last dimension of `qkv`.
    3. `o` is `[samples, positions, heads * head size]`, or a block of its rows.
    4. `lse` is `[samples, heads, positions]`, of a block `[rows, heads]`.
    5. `0 <= dropout < 1`.
    6. `starts`, if present, is `[samples, positions]`, and `causal` is there.
    7. `document_length` is not negative, and 0 without `starts`.
  }];
  let arguments = (ins NN_Float:$qkv, Optional<NN_Integer>:$starts,
                       I64Attr:$heads, UnitAttr:$causal,
                       F64Attr:$scale, DefaultValuedAttr<F64Attr, "0.0">:$dropout,
                       DefaultValuedAttr<I64Attr, "0">:$op_index,
                       DefaultValuedAttr<I64Attr, "0">:$document_length,
                       UnitAttr:$heads_of_blocks);
  let results = (outs NN_Float:$o, NN_Statistics:$lse);
  let assemblyFormat = [{
    $qkv (`starts` $starts^)? attr-dict `:` functional-type(operands, results)
  }];
}

def NN_AttentionGradOp
    : NN_Op<"attention_grad", ["getFlops", "getProductElements", "isAttention"],
            ["partition", "mayBeReplicated", "takesRows", "mixesPositions",
             "getHeadCounts", "getRingRule", "whyNotInRing", "expandInRing"],
            [], [], ["removeDropout"]> {
  let summary = "Gradient of scaled dot-product attention.";
  let description = [{
    Constraints:
    1. `qkv` has rank 4 and its third dimension is 3; it is no block of rows.
    2. `heads` divides the last dimension of `qkv`.
    3. `o` and `dout` are `[samples, positions, heads * head size]`, or blocks of
       its rows.
    4. `lse` is `[samples, heads, positions]`, of a block `[rows, heads]`.
    5. `dqkv` has the type of `qkv`.
    6. `0 <= dropout < 1`.
    7. `starts`, if present, is `[samples, positions]`, and `causal` is there.
    8. `document_length` is not negative, and 0 without `starts`.
  }];
  let arguments = (ins NN_Float:$qkv, NN_Float:$o, NN_Statistics:$lse,
                       NN_Float:$dout, Optional<NN_Integer>:$starts,
                       I64Attr:$heads, UnitAttr:$causal,
                       F64Attr:$scale, DefaultValuedAttr<F64Attr, "0.0">:$dropout,
                       DefaultValuedAttr<I64Attr, "0">:$op_index,
                       DefaultValuedAttr<I64Attr, "0">:$document_length,
                       UnitAttr:$heads_of_blocks);
  let results = (outs NN_Float:$dqkv);
  let assemblyFormat = [{
    $qkv `,` $o `,` $lse `,` $dout (`starts` $starts^)? attr-dict `:`
    functional-type(operands, results)
  }];
}

def NN_GroupedAttentionOp
    : NN_ForwardOp<"grouped_attention",
                   ["getFlops", "getProductElements", "isAttention"],
                   ["partition", "mayBeReplicated", "takesRows",
                    "mixesPositions", "weighsLatePositions", "getHeadCounts",
                    "getRingRule", "whyNotInRing", "expandInRing"], [],
                   ["getElementRole", "removeDropout", "separateDocuments",
                    "keepKeys", "getRandomKey"],
                   [AttrSizedOperandSegments]> {
  let summary = "Attention of separate queries and keys, heads sharing keys.";
  let description = [{
    As `nn.attention`, with queries, keys and values apart, and as many keys as
    values per *key head*: query head `h` uses key head
    `h / (heads / key heads)`. With `causal`, query `r` of `Tq` sees keys `0 .. r
    + Tk - Tq`; with `window` only the last `window` of these, its own among
    them. Without `causal` a window reaches as far to the other side: of keys that
    are less than `window` away. No query of a sample sees a key whose `mask` is 0; a query that sees
    none gives zeros. With `starts` and `document_length` as in `nn.attention` a
    query sees no key before its document. With `bias`, element `j - r + queries - 1` of its row of head `h` is
    added to the scaled score of query `r` and key `j`. It has the heads of all ranks,
    whichever of them the operation has. With `cap` above 0 a scaled score `s` is
    `cap * tanh(s / cap)` first (Gemma 2). With `distance` the score of query `r` and
    key `j` has `distance * slope * (j - r - Tk + Tq)` added; with `n` the largest
    power of two that is no more than the heads of all ranks, head `h` below `n` has
    the slope `2^(-8 (h + 1) / n)`, from `n` on `2^(-4 (2 (h - n) + 1) / n)` (ALiBi,
    Press et al., arXiv 2108.12409). The scores are never materialised, and keys
    outside the window are not read.

    Constraints:
    1. `q` is `[samples, queries, heads, head size]` or a block of its rows, `k`
       and `v` have one type, `[samples, keys, key heads, head size]`.
    2. Key heads divide heads.
    3. `o` is `[samples, queries, heads * head size]`, or a block like `q`.
    4. `lse` is `[samples, heads, queries]`, of a block `[rows, heads]`.
    5. `0 <= dropout < 1`.
    6. `window` is 0 (none) or positive.
    7. `mask`, if present, is `[samples, keys]`.
    8. `bias`, if present, is `[samples, whole heads, queries + keys - 1]`, where
       heads divide the whole heads, and `scale` is not 0.
    9. `starts`, if present, is `[samples, queries]`, of as many queries as keys,
       and `causal` is there.
    10. `document_length` is not negative, and 0 without `starts`.
    11. `cap` is not negative. `causal` is there beside `distance`, and no `bias`
       beside either.

    ```mlir
    %o, %lse = nn.grouped_attention %q, %k, %v
        {causal, scale = 0.125 : f64, window = 4096 : i64}
      : (tensor<?x8192x32x64xf32>, tensor<?x8192x8x64xf32>,
         tensor<?x8192x8x64xf32>)
      -> (tensor<?x8192x2048xf32>, tensor<?x32x8192xf32>)
    ```
  }];
  let arguments = (ins NN_Float:$q, NN_Float:$k, NN_Float:$v,
                       Optional<NN_Integer>:$mask,
                       Optional<NN_Integer>:$starts, Optional<NN_Float>:$bias,
                       UnitAttr:$causal,
                       F64Attr:$scale,
                       DefaultValuedAttr<I64Attr, "0">:$window,
                       DefaultValuedAttr<F64Attr, "0.0">:$dropout,
                       DefaultValuedAttr<I64Attr, "0">:$op_index,
                       DefaultValuedAttr<I64Attr, "0">:$document_length,
                       DefaultValuedAttr<F64Attr, "0.0">:$cap,
                       DefaultValuedAttr<F64Attr, "0.0">:$distance,
                       UnitAttr:$heads_of_blocks);
  let results = (outs NN_Float:$o, NN_Statistics:$lse);
  let assemblyFormat = [{
    $q `,` $k `,` $v (`mask` $mask^)? (`starts` $starts^)? (`bias` $bias^)?
    attr-dict `:` functional-type(operands, results)
  }];
}

def NN_GroupedAttentionGradOp
    : NN_Op<"grouped_attention_grad",
            ["getFlops", "getProductElements", "isAttention"],
            ["partition", "mayBeReplicated", "takesRows", "mixesPositions",
             "getHeadCounts", "getRingRule", "whyNotInRing", "expandInRing"],
            [], [AttrSizedOperandSegments], ["removeDropout"]> {
  let summary = "Gradients of attention of separate queries and keys.";
  let description = [{
    Constraints:
    1. `q` is `[samples, queries, heads, head size]` or a block of its rows, `k`
       and `v` have one type, `[samples, keys, key heads, head size]`.
    2. Key heads divide heads.
    3. `o` and `dout` are `[samples, queries, heads * head size]`, or blocks like
       `q`.
    4. `lse` is `[samples, heads, queries]`, of a block `[rows, heads]`.
    5. `0 <= dropout < 1`.
    6. `window` is 0 (none) or positive.
    7. `mask`, if present, is `[samples, keys]`.
    8. `bias`, if present, is `[samples, whole heads, queries + keys - 1]`, where
       heads divide the whole heads, and `scale` is not 0.
    9. `dq` has the type of `q`, `dk` and `dv` have that of `k`. `dbias` is there
       if `bias` is, with its type.
    10. `starts`, if present, is `[samples, queries]`, of as many queries as keys,
       and `causal` is there.
    11. `document_length` is not negative, and 0 without `starts`.
    12. `cap` is not negative. `causal` is there beside `distance`, and no `bias`
       beside either.
  }];
  let arguments = (ins NN_Float:$q, NN_Float:$k, NN_Float:$v, NN_Float:$o,
                       NN_Statistics:$lse, NN_Float:$dout,
                       Optional<NN_Integer>:$mask,
                       Optional<NN_Integer>:$starts, Optional<NN_Float>:$bias,
                       UnitAttr:$causal,
                       F64Attr:$scale,
                       DefaultValuedAttr<I64Attr, "0">:$window,
                       DefaultValuedAttr<F64Attr, "0.0">:$dropout,
                       DefaultValuedAttr<I64Attr, "0">:$op_index,
                       DefaultValuedAttr<I64Attr, "0">:$document_length,
                       DefaultValuedAttr<F64Attr, "0.0">:$cap,
                       DefaultValuedAttr<F64Attr, "0.0">:$distance,
                       UnitAttr:$heads_of_blocks);
  let results = (outs NN_Float:$dq, NN_Float:$dk, NN_Float:$dv,
                      Optional<NN_Float>:$dbias);
  let assemblyFormat = [{
    $q `,` $k `,` $v `,` $o `,` $lse `,` $dout (`mask` $mask^)?
    (`starts` $starts^)? (`bias` $bias^)? attr-dict `:`
    functional-type(operands, results)
  }];
}

def NN_CachedAttentionOp
    : NN_ForwardOp<"cached_attention", ["getFlops"],
                   ["partition", "mayBeReplicated", "takesRows",
                    "mixesPositions"], /*kernel=*/[], /*training=*/[],
                   [AttrSizedOperandSegments], /*effects=*/[]> {
  let summary = "Attention of one position to keys and values that are kept.";
  let description = [{
    What `nn.attention`, of one operand, and `nn.grouped_attention`, of queries, keys
    and values, compute for a position with `causal`: that of sample `s` is position
    `positions[s]` of row `rows[s]` of `keys` and `values`, which have those of the
    positions before it. Those of the sample are put there, at place
    `positions[s]` modulo `places`, and stay behind the call. With `window` the
    query sees the last `window` positions. `cap` and `distance` are those of
    `nn.grouped_attention`, with the slopes of the heads of all ranks. With `bias`,
    as that has it, element `n - positions[s] + distances / 2` of the row of its
    sample and head is added to the score of the key at `n`. Samples are
    taken in order; where `rows[s]` is -1 nothing is put there and `o` is 0.

    It reads and writes memory that is an argument of its function: a state of the
    program, no value. So it is neither left out where its result has no use, nor
    made again in place of keeping it, nor moved over another call on the same
    memory. Nothing flows back through it: its gradients are zeros, as programs that
    keep keys are not trained.

    Constraints:
    1. `parts` are `qkv`, `[samples, 1, 3, heads * head size]`, or `q`, `k` and `v`,
       `[samples, 1, heads or key heads, head size]`.
    2. `heads` divides the last dimension of `qkv`, or is that of `q`; key heads
       divide it.
    3. `keys` and `values` are arguments of one type, `[rows, key heads, places, head
       size]`.
    4. `rows` and `positions` are `[samples, 1]`.
    5. `o` is `[samples, 1, heads * head size]`.
    6. `window` is not negative and at most `places`; `cap` is not negative, and
       `distance` is finite.
    7. Heads have at most 1024 elements.
    8. `bias`, if present, is `[samples, whole heads, distances]`, where heads divide
       the whole heads, and distances are odd and `2 * places - 1` or more; there is
       no window, cap or distance beside it.
  }];
  let arguments = (ins Variadic<NN_Float>:$parts,
                       Arg<NN_Float, "", [MemRead, MemWrite]>:$keys,
                       Arg<NN_Float, "", [MemRead, MemWrite]>:$values,
                       NN_Integer:$rows, NN_Integer:$positions,
                       Optional<NN_Float>:$bias,
                       I64Attr:$heads, F64Attr:$scale,
                       DefaultValuedAttr<I64Attr, "0">:$window,
                       DefaultValuedAttr<F64Attr, "0.0">:$cap,
                       DefaultValuedAttr<F64Attr, "0.0">:$distance);
  let results = (outs NN_Float:$o);
  let assemblyFormat = [{
    $parts `keys` $keys `values` $values `rows` $rows `at` $positions
    (`bias` $bias^)? attr-dict `:` functional-type(operands, results)
  }];
}

def NN_CachedCrossAttentionOp
    : NN_ForwardOp<"cached_cross_attention", ["getFlops"],
                   ["partition", "takesRows", "mixesPositions"], /*kernel=*/[],
                   /*training=*/[], /*traits=*/[], /*effects=*/[]> {
  let summary = "Attention of one position to kept keys of an encoder.";
  let description = [{
    What `nn.grouped_attention` computes for a position of a decoder from the keys and
    values of a source, which an encoder made once. Those of sample `s` are put into
    row `begins[s]` of `keys` and `values` where that is not -1, of all samples before
    the first query sees them. Then the query of sample `s` sees the first
    `lengths[s]` keys of row `rows[s]`; where that is -1 `o` is 0.

    As `nn.cached_attention` it reads and writes memory that is an argument of its
    function, and nothing flows back through it. `k` and `v` may be anything where no
    text begins: what computes nothing else runs where one does (`nn.made_of`).

    Constraints:
    1. `q` is `[samples, 1, heads, head size]`.
    2. `k` and `v` are of one type, `[samples, places, key heads, head size]`; key heads
       divide heads.
    3. `keys` and `values` are arguments of one type, `[rows, key heads, places, head
       size]`.
    4. `begins`, `rows` and `lengths` are `[samples, 1]`.
    5. `o` is `[samples, 1, heads * head size]`.
    6. Heads have at most 1024 elements.
  }];
  let arguments = (ins NN_Float:$q, NN_Float:$k, NN_Float:$v,
                       Arg<NN_Float, "", [MemRead, MemWrite]>:$keys,
                       Arg<NN_Float, "", [MemRead, MemWrite]>:$values,
                       NN_Integer:$begins, NN_Integer:$rows, NN_Integer:$lengths,
                       F64Attr:$scale);
  let results = (outs NN_Float:$o);
  let assemblyFormat = [{
    $q `,` $k `,` $v `keys` $keys `values` $values `begins` $begins `rows` $rows
    `lengths` $lengths attr-dict `:` functional-type(operands, results)
  }];
}

def NN_DropoutOp
    : NN_ForwardOp<"dropout", [], ["partition"], ["getReusableOperand"],
                   ["removeDropout", "getRandomKey"]> {
  let summary = "Inverted dropout; also its own backward.";
  let description = [{
    The mask depends on (seed, step, layer, `op_index`) and on the global element
    index alone; it is computed again in the backward pass, never stored. With
    `col_sharded` the last dimension is a slice of a tensor-parallel group.

    Constraints:
    1. `y` has the type of `x`.
    2. `0 <= p < 1`.
    3. `x` has rank >= 2.
  }];
  let arguments = (ins NN_Float:$x, F64Attr:$p,
                       DefaultValuedAttr<I64Attr, "0">:$op_index,
                       UnitAttr:$col_sharded);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_DropoutAddOp
    : NN_Op<"dropout_add",
            ["getFlops"], ["partition"], ["getReusableOperand"], [],
            ["removeDropout"]> {
  let summary = "Dropout and a residual addition in one pass.";
  let description = [{
    `y = dropout(x) + residual`. Made by `nn-fuse` after partition.

    Constraints:
    1. `residual` and `y` have the type of `x`.
    2. `0 <= p < 1`.
    3. `x` has rank >= 2.
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$residual, F64Attr:$p,
                       DefaultValuedAttr<I64Attr, "0">:$op_index,
                       UnitAttr:$col_sharded);
  let results = (outs NN_Float:$y);
  let assemblyFormat = [{
    $x `,` $residual attr-dict `:` functional-type(operands, results)
  }];
}

def NN_AddOp
    : NN_ForwardOp<"add",
            [], ["propagatesPartialSums"], ["getReusableOperand"]> {
  let summary = "Element-wise sum.";
  let description = [{
    Constraints:
    1. `a`, `b` and `y` have the same type.
  }];
  let arguments = (ins NN_Float:$a, NN_Float:$b);
  let results = (outs NN_Float:$y);
  let assemblyFormat = [{
    $a `,` $b attr-dict `:` functional-type(operands, results)
  }];
}

def NN_CrossEntropyOp
    : NN_ForwardOp<"cross_entropy",
            ["getFlops"], ["partition", "isPartialResult", "countsPositions"],
            ["getReusableOperand"], ["getElementRole", "addLossTerms"]> {
  let summary = "Softmax cross entropy and the gradient of its logits.";
  let description = [{
    `loss` is the sum over rows with a label >= 0; `dlogits` is the gradient of
    the *global mean*: it is divided by the number of valid tokens of the whole
    batch, which the runtime knows when the step starts. The gradient may take
    the place of the logits, so that there is no second copy of them.

    If `stats` is there, the logits are one shard of the vocabulary and `stats`
    holds `[shards, rows.., 3]` of all shards (`nn.softmax_stats`). `classes` is
    the size of the whole vocabulary.

    With `smoothing` the classes share that part of the label's weight: a row's
    loss is `(1 - smoothing)` times its cross entropy and `smoothing` times the
    mean over all classes. With `z_loss` the gradient is that of the loss and of
    `z_loss` times the mean of the squared log-sum-exp of the logits. With either,
    the statistics have a fourth number, the sum of the logits, and `loss` a
    second one, the sum over rows of the squared log-sum-exp.

    Constraints:
    1. The shape of `logits` is that of `labels` followed by the classes. Of a
       block of rows the labels are those of all.
    2. `dlogits` has the type of `logits`.
    3. `loss` is one f64, two with `smoothing` or `z_loss`.
    4. Without `stats` the last dimension of `logits` is `classes`.
    5. `stats`, if present, is `[shards, rows.., 3]`, or `[shards, rows.., 4]` with
       `smoothing` or `z_loss`.
    6. `smoothing` is from 0 to below 1, and `z_loss` is not negative.
  }];
  let arguments = (ins NN_Float:$logits, NN_Integer:$labels,
                       Optional<NN_Statistics>:$stats, I64Attr:$classes,
                       DefaultValuedAttr<F64Attr, "0.0">:$smoothing,
                       DefaultValuedAttr<F64Attr, "0.0">:$z_loss);
  let results = (outs RankedTensorOf<[F64]>:$loss, NN_Float:$dlogits);
  let extraClassDeclaration = [{
    /// Returns whether there is label smoothing or a z-loss.
    bool isRegularized() {
      return !getSmoothing().isZero() || !getZLoss().isZero();
    }
    /// Numbers of a row's statistics.
    int64_t getStatistics() { return isRegularized() ? 4 : 3; }
  }];
  let assemblyFormat = [{
    $logits `,` $labels (`stats` $stats^)? attr-dict `:`
    functional-type(operands, results)
  }];
}

def NN_SoftmaxStatsOp
    : NN_Op<"softmax_stats", ["getFlops"], [], [], [], ["getElementRole"]> {
  let summary = "Row statistics of one shard of the logits.";
  let description = [{
    Per row: maximum, sum of exponentials relative to it, logit of the label; with
    `total` the sum of the logits too.

    Constraints:
    1. The shape of `logits` is that of `labels` followed by the local classes.
    2. The shape of `stats` is that of `labels` followed by 3, or 4 with `total`.
  }];
  let arguments = (ins NN_Float:$logits, NN_Integer:$labels, I64Attr:$classes,
                       UnitAttr:$total);
  let results = (outs NN_Statistics:$stats);
  let assemblyFormat = [{
    $logits `,` $labels attr-dict `:` functional-type(operands, results)
  }];
}

#endif // GALVATRON_DIALECT_NN_IR_NNOPS_TD
