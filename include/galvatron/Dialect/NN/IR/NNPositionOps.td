//===- NNPositionOps.td - Positions and their order --------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Windows of a grid of positions and attention inside them (Liu et al., "Swin
// Transformer", arXiv 2103.14030), means over positions, transposes,
// parts of ranks.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_IR_NNPOSITIONOPS_TD
#define GALVATRON_DIALECT_NN_IR_NNPOSITIONOPS_TD

include "galvatron/Dialect/NN/IR/NNBase.td"

def NN_WindowsOp
    : NN_ForwardOp<"windows", ["getFlops"], ["propagatesPartialSums"],
                   ["getFreeAttributes"], ["separateDocuments", "keepKeys"]> {
  let summary = "Positions of a grid, window by window.";
  let description = [{
    Positions are those of a grid of `rows` by `columns`, row by row. Zeros are
    put below and to the right of it until both are multiples of `window`; it is
    then turned by `shift`: what stands at `(i, j)` comes from
    `((i + shift) mod rows, (j + shift) mod columns)` of the larger grid. `y` has
    the windows of `window` by `window` positions, row by row, and in each its
    positions, row by row. With `merge` the positions of a window become one,
    side by side, column by column: what patch merging takes.

    Constraints:
    1. `x` is `[samples, rows * columns, width]`, of positive sizes.
    2. `window` is positive, and `shift` at least 0 and less.
    3. `y` is `[samples, windows, window^2, width]`, with `merge`
       `[samples, windows, window^2 * width]`.

    ```mlir
    %y = nn.windows %x {rows = 56 : i64, columns = 56 : i64, window = 7 : i64,
                        shift = 3 : i64}
      : (tensor<?x3136x96xf32>) -> tensor<?x64x49x96xf32>
    ```
  }];
  let arguments = (ins NN_Float:$x, I64Attr:$rows, I64Attr:$columns,
                       I64Attr:$window, DefaultValuedAttr<I64Attr, "0">:$shift,
                       UnitAttr:$merge);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_JoinWindowsOp
    : NN_ForwardOp<"join_windows", ["getFlops"], ["propagatesPartialSums"],
                   ["getFreeAttributes"], ["separateDocuments", "keepKeys"]> {
  let summary = "Positions of windows, back in their grid.";
  let description = [{
    Undoes `nn.windows` with the same attributes; what stands where that put
    zeros is left out. Each is the gradient of the other.

    Constraints:
    1. `y` is `[samples, rows * columns, width]`, of positive sizes.
    2. `window` is positive, and `shift` at least 0 and less.
    3. `x` is `[samples, windows, window^2, width]`, with `merge`
       `[samples, windows, window^2 * width]`.
  }];
  let arguments = (ins NN_Float:$x, I64Attr:$rows, I64Attr:$columns,
                       I64Attr:$window, DefaultValuedAttr<I64Attr, "0">:$shift,
                       UnitAttr:$merge);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_WindowAttentionOp
    : NN_ForwardOp<"window_attention",
                   ["getFlops", "getProductElements", "isAttention"],
                   ["mayBeReplicated", "takesRows", "mixesPositions"],
                   ["getFreeAttributes"],
                   ["getElementRole", "removeDropout", "separateDocuments",
                    "keepKeys",
                    "getRandomKey"]> {
  let summary = "Attention inside windows, with biases of relative positions.";
  let description = [{
    Every position of a window sees those of its window. To the scaled score of
    query `a` and key `b` of head `h` the element
    `table[(ya - yb + window - 1) * (2 * window - 1) + xa - xb + window - 1, h]`
    is added, where position `a` stands in row `ya = a / window` and column
    `xa = a mod window`. The windows are those of `nn.windows`, `across` of them
    side by side. With `shift`, -100 is added besides where query and key have
    come together by turning the grid: where they lie on different sides of
    `window - shift` in the last row, or the last column, of windows. Scores are
    never materialised. Dropout is keyed by (sample, window, global head, query,
    key) and `op_index`.

    Constraints:
    1. `q` is `[samples, windows, positions, heads, head size]`; `k` and `v` have
       its type.
    2. `window^2` is the number of positions, and `shift` at least 0 and less
       than `window`.
    3. `across` divides the windows.
    4. `table` is `[(2 * window - 1)^2, heads]`.
    5. `o` is `[samples, windows, positions, heads * head size]`.
    6. `lse` is `[samples, windows, heads, positions]`.
    7. `0 <= dropout < 1`, and `scale` is not 0.

    ```mlir
    %o, %lse = nn.window_attention %q, %k, %v, %table
        {window = 7 : i64, across = 8 : i64, shift = 3 : i64, scale = 0.18 : f64}
      : (tensor<?x64x49x3x32xf32>, tensor<?x64x49x3x32xf32>,
         tensor<?x64x49x3x32xf32>, tensor<169x3xf32>)
      -> (tensor<?x64x49x96xf32>, tensor<?x64x3x49xf32>)
    ```
  }];
  let arguments = (ins NN_Float:$q, NN_Float:$k, NN_Float:$v, NN_Float:$table,
                       I64Attr:$window, I64Attr:$across,
                       DefaultValuedAttr<I64Attr, "0">:$shift, F64Attr:$scale,
                       DefaultValuedAttr<F64Attr, "0.0">:$dropout,
                       DefaultValuedAttr<I64Attr, "0">:$op_index);
  let results = (outs NN_Float:$o, NN_Statistics:$lse);
  let assemblyFormat = [{
    $q `,` $k `,` $v `,` $table attr-dict `:`
    functional-type(operands, results)
  }];
}

def NN_WindowAttentionGradOp
    : NN_Op<"window_attention_grad",
            ["getFlops", "getProductElements", "isAttention"],
            ["mayBeReplicated", "takesRows", "mixesPositions"],
            ["supportsAccumulation", "getFreeAttributes"], [],
            ["getElementRole", "removeDropout"]> {
  let summary = "Gradients of attention inside windows.";
  let description = [{
    Constraints:
    1. `q` is `[samples, windows, positions, heads, head size]`; `k` and `v` have
       its type.
    2. `window^2` is the number of positions, and `shift` at least 0 and less
       than `window`.
    3. `across` divides the windows.
    4. `table` is `[(2 * window - 1)^2, heads]`.
    5. `o` and `dout` are `[samples, windows, positions, heads * head size]`.
    6. `lse` is `[samples, windows, heads, positions]`.
    7. `0 <= dropout < 1`, and `scale` is not 0.
    8. `dq`, `dk` and `dv` have the type of `q`, `dtable` the shape of `table`.
  }];
  let arguments = (ins NN_Float:$q, NN_Float:$k, NN_Float:$v, NN_Float:$o,
                       NN_Statistics:$lse, NN_Float:$dout, NN_Float:$table,
                       I64Attr:$window, I64Attr:$across,
                       DefaultValuedAttr<I64Attr, "0">:$shift, F64Attr:$scale,
                       DefaultValuedAttr<F64Attr, "0.0">:$dropout,
                       DefaultValuedAttr<I64Attr, "0">:$op_index);
  let results = (outs NN_Float:$dq, NN_Float:$dk, NN_Float:$dv,
                      NN_Statistics:$dtable);
  let assemblyFormat = [{
    $q `,` $k `,` $v `,` $o `,` $lse `,` $dout `,` $table attr-dict `:`
    functional-type(operands, results)
  }];
}

def NN_DropPathOp
    : NN_ForwardOp<"drop_path", [], ["propagatesPartialSums", "takesRows"],
                   ["getReusableOperand"], ["removeDropout", "getRandomKey"]> {
  let summary = "Drops whole samples of a branch; also its own backward.";
  let description = [{
    Stochastic depth (Huang et al., arXiv 1603.09382): with probability
    `p = rate * (layer - first_layer)` all of a sample becomes zeros, else it is
    divided by `1 - p`. `layer` is the number of the running layer in the model,
    so that layers whose rates grow share a body. The mask is keyed by (sample)
    and `op_index`; it is computed again in the backward pass.

    Constraints:
    1. `y` has the type of `x`.
    2. `rate` is in [0, 1).
    3. `x` has rank >= 2.
    4. `first_layer` is not negative.

    ```mlir
    %y = nn.drop_path %x {rate = 0.01 : f64, first_layer = 1 : i64}
      : (tensor<?x3136x96xf32>) -> tensor<?x3136x96xf32>
    ```
  }];
  let arguments = (ins NN_Float:$x, F64Attr:$rate, I64Attr:$first_layer,
                       DefaultValuedAttr<I64Attr, "0">:$op_index);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_MeanOp
    : NN_ForwardOp<"mean", ["getFlops"], ["propagatesPartialSums"], [],
                   ["separateDocuments", "keepKeys"]> {
  let summary = "The mean over the positions of every sample.";
  let description = [{
    `y[s, :] = sum over t of x[s, t, :] / positions`. With `beside_first` the mean
    is of all but the first position, and stands behind that one: what DINOv2's head
    for classes reads.

    Constraints:
    1. `x` has rank 3, and with `beside_first` at least two positions.
    2. `y` is `[samples, width]`, with `beside_first` `[samples, 2 * width]`.
  }];
  let arguments = (ins NN_Float:$x, UnitAttr:$beside_first);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

// Sums wait for it: behind it they would be as many values as there are
// positions.
def NN_MeanGradOp : NN_Op<"mean_grad"> {
  let summary = "Gradient of a mean over positions.";
  let description = [{
    `dx[s, t, :] = dy[s, :] / positions`; `beside_first` as in `nn.mean`.

    Constraints:
    1. `dx` has rank 3, and with `beside_first` at least two positions.
    2. `dy` is `[samples, width]`, with `beside_first` `[samples, 2 * width]`.
  }];
  let arguments = (ins NN_Float:$dy, UnitAttr:$beside_first);
  let results = (outs NN_Float:$dx);
  let assemblyFormat = "$dy attr-dict `:` functional-type(operands, results)";
}

def NN_TransposeOp
    : NN_ForwardOp<"transpose", ["getFlops"], ["propagatesPartialSums"], [],
                   ["separateDocuments", "keepKeys"]> {
  let summary = "Swaps the last two dimensions.";
  let description = [{
    `y[.., b, a] = x[.., a, b]`. Its own gradient.

    Constraints:
    1. `x` has rank >= 3.
    2. `y` has the shape of `x` with the last two dimensions swapped.
  }];
  let arguments = (ins NN_Float:$x);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_OwnPartOp
    : NN_Op<"own_part", ["getFlops", "getMovedBytes"],
            ["partition", "getSlicedFactor"]> {
  let summary = "A rank's part of a parameter that is whole on every rank.";
  let description = [{
    With `p` parts, `p = x.shape[dim] / y.shape[dim]`, rank `r` of the
    tensor-parallel group has part `r / ranks` of dimension `dim`: `ranks`
    neighbours share a part, and the group has `p * ranks` ranks. On whole
    tensors it is a copy. Made by partition where a degree goes beyond the units
    of a factor that ranks may share (`nn.shared`), so it has no gradient of its
    own.

    Constraints:
    1. `y` has the rank of `x`, and `dim` is one of its dimensions.
    2. `y` has the shape of `x` but for dimension `dim`, which divides that of
       `x`.
    3. `ranks` is positive.

    ```mlir
    %y = nn.own_part %w {dim = 0 : i64, ranks = 2 : i64}
      : (tensor<8x128x8192xf32>) -> tensor<1x128x8192xf32>
    ```
  }];
  let arguments = (ins NN_Float:$x, I64Attr:$dim,
                       DefaultValuedAttr<I64Attr, "1">:$ranks);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_OwnPartGradOp
    : NN_Op<"own_part_grad", ["getFlops"], ["partition"], [], [],
            ["getElementRole"]> {
  let summary = "What a rank's part adds to the gradient of the whole.";
  let description = [{
    `dy` in the place of the rank's part, zeros elsewhere; the sum over the group
    is the gradient of the parameter.

    Constraints:
    1. `dy` has the rank of `dx`, and `dim` is one of its dimensions.
    2. `dy` has the shape of `dx` but for dimension `dim`, which divides that of
       `dx`.
    3. `ranks` is positive.
  }];
  let arguments = (ins NN_Statistics:$dy, I64Attr:$dim,
                       DefaultValuedAttr<I64Attr, "1">:$ranks);
  let results = (outs NN_Statistics:$dx);
  let assemblyFormat = "$dy attr-dict `:` functional-type(operands, results)";
}

#endif // GALVATRON_DIALECT_NN_IR_NNPOSITIONOPS_TD
