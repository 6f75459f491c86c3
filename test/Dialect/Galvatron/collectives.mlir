// RUN: galvatron-opt %s --galvatron-insert-collectives | FileCheck %s
// RUN: galvatron-opt %s --galvatron-insert-collectives --cse --canonicalize | FileCheck %s --check-prefix=KEPT

// From the annotations of galvatron-partition-layers. One all-reduce after the
// embedding; one after the row product, before its bias; one of the gradient that
// leaves the column product, before layer normalisation; cross entropy gathers
// three numbers a row of each shard; 33 tokens make four shards of 9 rows.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
  galvatron.parameter @wte : tensor<33x16xf32> {decay, init = "normal", std = 2.000000e-02 : f64}
  galvatron.parameter @wpe : tensor<12x16xf32> {decay, init = "normal", std = 2.000000e-02 : f64}
  galvatron.parameter @mlp.g : tensor<16xf32> {init = "ones"}
  galvatron.parameter @mlp.b : tensor<16xf32> {init = "zeros"}
  galvatron.parameter @mlp.wi : tensor<16x64xf32> {decay, init = "normal", std = 2.000000e-02 : f64}
  galvatron.parameter @mlp.bi : tensor<64xf32> {init = "zeros"}
  galvatron.parameter @mlp.wf : tensor<64x16xf32> {decay, init = "normal", std = 2.000000e-02 : f64}
  galvatron.parameter @mlp.bf : tensor<16xf32> {init = "zeros"}
  galvatron.parameter @lnf.g : tensor<16xf32> {init = "ones"}
  galvatron.parameter @lnf.b : tensor<16xf32> {init = "zeros"}
  func.func private @embed.tp4.b4.forward(%arg0: tensor<4x8xi32> {nn.role = "data"}, %arg1: tensor<33x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [33, 16], state = <[split 0]>>, nn.factors = ["vocab", ""], nn.role = "parameter"}, %arg2: tensor<12x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [12, 16]>, nn.role = "parameter"}) -> (tensor<4x8x16xf32> {nn.role = "output"}) attributes {galvatron.partition = #galvatron.partition<direction = forward, axes = [tp = 4]>, nn.factor_units = {vocab = 33 : i64}, nn.uneven = ["vocab"]} {
    %0 = nn.embedding %arg0, %arg1 {galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [0]>} : (tensor<4x8xi32>, tensor<33x16xf32>) -> tensor<4x8x16xf32>
    %1 = nn.position_add %0, %arg2 {galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {0 = [replicated]}>} : (tensor<4x8x16xf32>, tensor<12x16xf32>) -> tensor<4x8x16xf32>
    %2 = nn.dropout %1 {p = 1.000000e-01 : f64} : (tensor<4x8x16xf32>) -> tensor<4x8x16xf32>
    return %2 : tensor<4x8x16xf32>
  }
  func.func private @embed.tp4.b4.backward(%arg0: tensor<4x8x16xf32> {nn.role = "gradient"}, %arg1: tensor<4x8xi32> {nn.role = "data"}, %arg2: tensor<33x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [33, 16], state = <[split 0]>>, nn.factors = ["vocab", ""], nn.role = "parameter"}, %arg3: tensor<12x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [12, 16]>, nn.role = "parameter"}) -> (tensor<33x16xf32> {nn.role = "parameter_gradient"}, tensor<12x16xf32> {nn.role = "parameter_gradient"}) attributes {galvatron.partition = #galvatron.partition<direction = backward, axes = [tp = 4]>, nn.factor_units = {vocab = 33 : i64}, nn.uneven = ["vocab"]} {
    %0 = nn.dropout %arg0 {p = 1.000000e-01 : f64} : (tensor<4x8x16xf32>) -> tensor<4x8x16xf32>
    %1 = nn.position_grad %0 : (tensor<4x8x16xf32>) -> tensor<12x16xf32>
    %2 = nn.embedding_grad %arg1, %0, %arg2 {galvatron.sharding = #galvatron.sharding<results = ([split 0]), factors = [0]>} : (tensor<4x8xi32>, tensor<4x8x16xf32>, tensor<33x16xf32>) -> tensor<33x16xf32>
    return %2, %1 : tensor<33x16xf32>, tensor<12x16xf32>
  }
  func.func private @mlp.tp4.b4.forward(%arg0: tensor<4x8x16xf32> {nn.role = "input"}, %arg1: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}, %arg2: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}, %arg3: tensor<16x64xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 64], state = <[split 1]>>, nn.factors = ["", "ffn"], nn.role = "parameter"}, %arg4: tensor<64xf32> {galvatron.slice = #galvatron.slice<global_shape = [64], state = <[split 0]>>, nn.factors = ["ffn"], nn.role = "parameter"}, %arg5: tensor<64x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [64, 16], state = <[split 0]>>, nn.factors = ["ffn", ""], nn.role = "parameter"}, %arg6: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}) -> (tensor<4x8x16xf32> {nn.role = "output"}, tensor<4x8x16xf32> {nn.role = "stash"}, tensor<4x8x2xf32> {nn.role = "stash"}, tensor<4x8x64xf32> {nn.role = "stash"}, tensor<4x8x64xf32> {nn.role = "stash"}) attributes {galvatron.partition = #galvatron.partition<direction = forward, axes = [tp = 4]>, nn.factor_units = {ffn = 64 : i64}} {
    %y, %stats = nn.layer_norm %arg0, %arg1, %arg2 {eps = 1.000000e-05 : f64} : (tensor<4x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x8x16xf32>, tensor<4x8x2xf32>)
    %0 = nn.linear %y, %arg3 {galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [3]>} : (tensor<4x8x16xf32>, tensor<16x64xf32>) -> tensor<4x8x64xf32>
    %1 = nn.bias_add %0, %arg4 {galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [2]>} : (tensor<4x8x64xf32>, tensor<64xf32>) -> tensor<4x8x64xf32>
    %2 = nn.gelu %1 {approximate, galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [2]>} : (tensor<4x8x64xf32>) -> tensor<4x8x64xf32>
    %3 = nn.linear %2, %arg5 {galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [2]>} : (tensor<4x8x64xf32>, tensor<64x16xf32>) -> tensor<4x8x16xf32>
    %4 = nn.bias_add %3, %arg6 {galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {0 = [replicated]}>} : (tensor<4x8x16xf32>, tensor<16xf32>) -> tensor<4x8x16xf32>
    %5 = nn.dropout %4 {op_index = 2 : i64, p = 1.000000e-01 : f64} : (tensor<4x8x16xf32>) -> tensor<4x8x16xf32>
    %6 = nn.add %arg0, %5 : (tensor<4x8x16xf32>, tensor<4x8x16xf32>) -> tensor<4x8x16xf32>
    return %6, %y, %stats, %1, %2 : tensor<4x8x16xf32>, tensor<4x8x16xf32>, tensor<4x8x2xf32>, tensor<4x8x64xf32>, tensor<4x8x64xf32>
  }
  func.func private @mlp.tp4.b4.backward(%arg0: tensor<4x8x16xf32> {nn.role = "gradient"}, %arg1: tensor<4x8x16xf32> {nn.role = "input"}, %arg2: tensor<4x8x16xf32> {nn.role = "stash"}, %arg3: tensor<4x8x2xf32> {nn.role = "stash"}, %arg4: tensor<4x8x64xf32> {galvatron.slice = #galvatron.slice<state = <[split 2]>>, nn.role = "stash"}, %arg5: tensor<4x8x64xf32> {galvatron.slice = #galvatron.slice<state = <[split 2]>>, nn.role = "stash"}, %arg6: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}, %arg7: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}, %arg8: tensor<16x64xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 64], state = <[split 1]>>, nn.factors = ["", "ffn"], nn.role = "parameter"}, %arg9: tensor<64xf32> {galvatron.slice = #galvatron.slice<global_shape = [64], state = <[split 0]>>, nn.factors = ["ffn"], nn.role = "parameter"}, %arg10: tensor<64x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [64, 16], state = <[split 0]>>, nn.factors = ["ffn", ""], nn.role = "parameter"}, %arg11: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}) -> (tensor<4x8x16xf32> {nn.role = "input_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<16x64xf32> {nn.role = "parameter_gradient"}, tensor<64xf32> {nn.role = "parameter_gradient"}, tensor<64x16xf32> {nn.role = "parameter_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}) attributes {galvatron.partition = #galvatron.partition<direction = backward, axes = [tp = 4]>, nn.factor_units = {ffn = 64 : i64}} {
    %0 = nn.dropout %arg0 {op_index = 2 : i64, p = 1.000000e-01 : f64} : (tensor<4x8x16xf32>) -> tensor<4x8x16xf32>
    %1 = nn.bias_grad %0 : (tensor<4x8x16xf32>) -> tensor<16xf32>
    %2 = nn.linear_input_grad %0, %arg10 {galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [2]>} : (tensor<4x8x16xf32>, tensor<64x16xf32>) -> tensor<4x8x64xf32>
    %3 = nn.linear_weight_grad %arg5, %0 {galvatron.sharding = #galvatron.sharding<results = ([split 0]), factors = [2]>} : (tensor<4x8x64xf32>, tensor<4x8x16xf32>) -> tensor<64x16xf32>
    %4 = nn.gelu_grad %arg4, %2 {approximate, galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [2]>} : (tensor<4x8x64xf32>, tensor<4x8x64xf32>) -> tensor<4x8x64xf32>
    %5 = nn.bias_grad %4 {galvatron.sharding = #galvatron.sharding<results = ([split 0]), factors = [2]>} : (tensor<4x8x64xf32>) -> tensor<64xf32>
    %6 = nn.linear_input_grad %4, %arg8 {galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [3]>} : (tensor<4x8x64xf32>, tensor<16x64xf32>) -> tensor<4x8x16xf32>
    %7 = nn.linear_weight_grad %arg2, %4 {galvatron.sharding = #galvatron.sharding<results = ([split 1]), factors = [3]>} : (tensor<4x8x16xf32>, tensor<4x8x64xf32>) -> tensor<16x64xf32>
    %dx, %dgamma, %dbeta = nn.layer_norm_grad %6, %arg1, %arg3, %arg6 {galvatron.sharding = #galvatron.sharding<results = ([replicated], [replicated], [replicated]), operands = {0 = [replicated]}>} : (tensor<4x8x16xf32>, tensor<4x8x16xf32>, tensor<4x8x2xf32>, tensor<16xf32>) -> (tensor<4x8x16xf32>, tensor<16xf32>, tensor<16xf32>)
    %8 = nn.add %arg0, %dx : (tensor<4x8x16xf32>, tensor<4x8x16xf32>) -> tensor<4x8x16xf32>
    return %8, %dgamma, %dbeta, %7, %5, %3, %1 : tensor<4x8x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16x64xf32>, tensor<64xf32>, tensor<64x16xf32>, tensor<16xf32>
  }
  func.func private @head.tp4.b4.borrow2.forward(%arg0: tensor<4x8x16xf32> {nn.role = "input"}, %arg1: tensor<4x8xi32> {nn.role = "data"}, %arg2: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}, %arg3: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}, %arg4: tensor<33x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [33, 16], state = <[split 0]>>, nn.factors = ["vocab", ""], nn.role = "parameter"}) -> (tensor<1xf64> {nn.role = "loss"}, tensor<4x8x16xf32> {nn.role = "stash"}, tensor<4x8x2xf32> {nn.role = "stash"}, tensor<4x8x33xf32> {nn.role = "stash"}) attributes {galvatron.partition = #galvatron.partition<direction = forward, axes = [tp = 4], borrowed = [2]>, nn.factor_units = {vocab = 33 : i64}, nn.uneven = ["vocab"]} {
    %y, %stats = nn.layer_norm %arg0, %arg2, %arg3 {eps = 1.000000e-05 : f64} : (tensor<4x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x8x16xf32>, tensor<4x8x2xf32>)
    %0 = nn.linear %y, %arg4 {galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [3]>, transpose_weight} : (tensor<4x8x16xf32>, tensor<33x16xf32>) -> tensor<4x8x33xf32>
    %loss, %dlogits = nn.cross_entropy %0, %arg1 {classes = 33 : i64, galvatron.sharding = #galvatron.sharding<results = ([replicated], [split 2]), factors = [0]>} : (tensor<4x8x33xf32>, tensor<4x8xi32>) -> (tensor<1xf64>, tensor<4x8x33xf32>)
    return %loss, %y, %stats, %dlogits : tensor<1xf64>, tensor<4x8x16xf32>, tensor<4x8x2xf32>, tensor<4x8x33xf32>
  }
  func.func private @head.tp4.b4.borrow2.backward(%arg0: tensor<4x8x16xf32> {nn.role = "input"}, %arg1: tensor<4x8xi32> {nn.role = "data"}, %arg2: tensor<4x8x16xf32> {nn.role = "stash"}, %arg3: tensor<4x8x2xf32> {nn.role = "stash"}, %arg4: tensor<4x8x33xf32> {galvatron.slice = #galvatron.slice<state = <[split 2]>>, nn.role = "stash"}, %arg5: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}, %arg6: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}, %arg7: tensor<33x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [33, 16], state = <[split 0]>>, nn.factors = ["vocab", ""], nn.role = "parameter"}) -> (tensor<4x8x16xf32> {nn.role = "input_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<33x16xf32> {nn.role = "parameter_gradient"}) attributes {galvatron.partition = #galvatron.partition<direction = backward, axes = [tp = 4], borrowed = [2]>, nn.factor_units = {vocab = 33 : i64}, nn.uneven = ["vocab"]} {
    %0 = nn.linear_input_grad %arg4, %arg7 {galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [3]>, transpose_weight} : (tensor<4x8x33xf32>, tensor<33x16xf32>) -> tensor<4x8x16xf32>
    %1 = nn.linear_weight_grad %arg2, %arg4 {galvatron.sharding = #galvatron.sharding<results = ([split 0]), factors = [3]>, transpose_weight} : (tensor<4x8x16xf32>, tensor<4x8x33xf32>) -> tensor<33x16xf32>
    %dx, %dgamma, %dbeta = nn.layer_norm_grad %0, %arg0, %arg3, %arg5 {galvatron.sharding = #galvatron.sharding<results = ([replicated], [replicated], [replicated]), operands = {0 = [replicated]}>} : (tensor<4x8x16xf32>, tensor<4x8x16xf32>, tensor<4x8x2xf32>, tensor<16xf32>) -> (tensor<4x8x16xf32>, tensor<16xf32>, tensor<16xf32>)
    return %dx, %dgamma, %dbeta, %1 : tensor<4x8x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<33x16xf32>
  }
  galvatron.model @toy(%tokens: tensor<?x8xi32> is <tokens, below = 33>, %labels: tensor<?x8xi32> is <labels, below = 33>) {
    %0 = galvatron.layer "wte"(%tokens) params [@wte, @wpe] {backward = @embed.tp4.b4.backward, forward = @embed.tp4.b4.forward, stage = 0 : i64, strategy = #galvatron.strategy<[tp = 4]>} : (tensor<?x8xi32>) -> tensor<?x8x16xf32>
    %1 = galvatron.layer "m"(%0) params [@mlp.g, @mlp.b, @mlp.wi, @mlp.bi, @mlp.wf, @mlp.bf] {backward = @mlp.tp4.b4.backward, forward = @mlp.tp4.b4.forward, stage = 0 : i64, strategy = #galvatron.strategy<[tp = 4]>} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
    %2 = galvatron.layer "head"(%1, %labels) params [@lnf.g, @lnf.b, @wte] {backward = @head.tp4.b4.borrow2.backward, forward = @head.tp4.b4.borrow2.forward, stage = 0 : i64, strategy = #galvatron.strategy<[tp = 4]>} : (tensor<?x8x16xf32>, tensor<?x8xi32>) -> tensor<1xf64>
    galvatron.output %2 : tensor<1xf64>
  }
}

// CHECK-LABEL: func.func private @embed.tp4.b4.forward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<4x8xi32> {nn.role = "data"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<9x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [33, 16], state = <[split 0]>>, nn.role = "parameter"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<12x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [12, 16]>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<4x8x16xf32> {nn.role = "output"})
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = nn.embedding [[A1]], [[A2]] {sharded}
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = galvatron.all_reduce [[V4]] over{{ +}}tp
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = nn.position_add [[V5]], [[A3]]
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = nn.dropout [[V6]] {p = 1.000000e-01 : f64}
// CHECK-NEXT: return [[V7]] : tensor<4x8x16xf32>

// CHECK-LABEL: func.func private @embed.tp4.b4.backward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "gradient"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<4x8xi32> {nn.role = "data"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<9x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [33, 16], state = <[split 0]>>, nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<12x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [12, 16]>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<9x16xf32> {nn.role = "parameter_gradient"}, tensor<12x16xf32> {nn.role = "parameter_gradient"})
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = nn.dropout [[A1]] {p = 1.000000e-01 : f64}
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = nn.position_grad [[V5]]
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = nn.embedding_grad [[A2]], [[V5]], [[A3]] {sharded}
// CHECK-NEXT: return [[V7]], [[V6]] : tensor<9x16xf32>, tensor<12x16xf32>

// CHECK-LABEL: func.func private @mlp.tp4.b4.forward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<16x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 64], state = <[split 1]>>, nn.role = "parameter"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [64], state = <[split 0]>>, nn.role = "parameter"}
// CHECK-SAME: [[A6:%[a-z0-9_]+]]: tensor<16x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [64, 16], state = <[split 0]>>, nn.role = "parameter"}
// CHECK-SAME: [[A7:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<4x8x16xf32> {nn.role = "output"}, tensor<4x8x16xf32> {nn.role = "stash"}, tensor<4x8x2xf32> {nn.role = "stash"}, tensor<4x8x16xf32> {nn.role = "stash"}, tensor<4x8x16xf32> {nn.role = "stash"})
// CHECK-NEXT: [[Y8:%[a-z0-9_]+]], [[STATS9:%[a-z0-9_]+]] = nn.layer_norm [[A1]], [[A2]], [[A3]] {eps = 1.000000e-05 : f64}
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = nn.linear [[Y8]], [[A4]]
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = nn.bias_add [[V10]], [[A5]]
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = nn.gelu [[V11]] {approximate}
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = nn.linear [[V12]], [[A6]]
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = galvatron.all_reduce [[V13]] over{{ +}}tp
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = nn.bias_add [[V14]], [[A7]]
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = nn.dropout [[V15]] {op_index = 2 : i64, p = 1.000000e-01 : f64}
// CHECK-NEXT: [[V17:%[a-z0-9_]+]] = nn.add [[A1]], [[V16]]
// CHECK-NEXT: return [[V17]], [[Y8]], [[STATS9]], [[V11]], [[V12]] : tensor<4x8x16xf32>, tensor<4x8x16xf32>, tensor<4x8x2xf32>, tensor<4x8x16xf32>, tensor<4x8x16xf32>

// CHECK-LABEL: func.func private @mlp.tp4.b4.backward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "gradient"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "stash"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<4x8x2xf32> {nn.role = "stash"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<4x8x16xf32> {galvatron.slice = #galvatron.slice<state = <[split 2]>>, nn.role = "stash"}
// CHECK-SAME: [[A6:%[a-z0-9_]+]]: tensor<4x8x16xf32> {galvatron.slice = #galvatron.slice<state = <[split 2]>>, nn.role = "stash"}
// CHECK-SAME: [[A7:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A8:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A9:%[a-z0-9_]+]]: tensor<16x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 64], state = <[split 1]>>, nn.role = "parameter"}
// CHECK-SAME: [[A10:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [64], state = <[split 0]>>, nn.role = "parameter"}
// CHECK-SAME: [[A11:%[a-z0-9_]+]]: tensor<16x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [64, 16], state = <[split 0]>>, nn.role = "parameter"}
// CHECK-SAME: [[A12:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<4x8x16xf32> {nn.role = "input_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<16x16xf32> {nn.role = "parameter_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<16x16xf32> {nn.role = "parameter_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"})
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = nn.dropout [[A1]] {op_index = 2 : i64, p = 1.000000e-01 : f64}
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = nn.bias_grad [[V13]]
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = nn.linear_input_grad [[V13]], [[A11]]
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = nn.linear_weight_grad [[A6]], [[V13]]
// CHECK-NEXT: [[V17:%[a-z0-9_]+]] = nn.gelu_grad [[A5]], [[V15]] {approximate}
// CHECK-NEXT: [[V18:%[a-z0-9_]+]] = nn.bias_grad [[V17]]
// CHECK-NEXT: [[V19:%[a-z0-9_]+]] = nn.linear_input_grad [[V17]], [[A9]]
// CHECK-NEXT: [[V20:%[a-z0-9_]+]] = nn.linear_weight_grad [[A3]], [[V17]]
// CHECK-NEXT: [[V21:%[a-z0-9_]+]] = galvatron.all_reduce [[V19]] over{{ +}}tp
// CHECK-NEXT: [[DX22:%[a-z0-9_]+]], [[DGAMMA23:%[a-z0-9_]+]], [[DBETA24:%[a-z0-9_]+]] = nn.layer_norm_grad [[V21]], [[A2]], [[A4]], [[A7]]
// CHECK-NEXT: [[V25:%[a-z0-9_]+]] = nn.add [[A1]], [[DX22]]
// CHECK-NEXT: return [[V25]], [[DGAMMA23]], [[DBETA24]], [[V20]], [[V18]], [[V16]], [[V14]] : tensor<4x8x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16x16xf32>, tensor<16xf32>, tensor<16x16xf32>, tensor<16xf32>

// CHECK-LABEL: func.func private @head.tp4.b4.borrow2.forward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<4x8xi32> {nn.role = "data"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<9x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [33, 16], state = <[split 0]>>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<1xf64> {nn.role = "loss"}, tensor<4x8x16xf32> {nn.role = "stash"}, tensor<4x8x2xf32> {nn.role = "stash"}, tensor<4x8x9xf32> {nn.role = "stash"})
// CHECK-NEXT: [[Y6:%[a-z0-9_]+]], [[STATS7:%[a-z0-9_]+]] = nn.layer_norm [[A1]], [[A3]], [[A4]] {eps = 1.000000e-05 : f64}
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = nn.linear [[Y6]], [[A5]] {transpose_weight}
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = nn.softmax_stats [[V8]], [[A2]] {classes = 33 : i64}
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = galvatron.all_gather [[V9]] over{{ +}}tp
// CHECK-NEXT: [[LOSS11:%[a-z0-9_]+]], [[DLOGITS12:%[a-z0-9_]+]] = nn.cross_entropy [[V8]], [[A2]] stats [[V10]] {classes = 33 : i64}
// CHECK-NEXT: return [[LOSS11]], [[Y6]], [[STATS7]], [[DLOGITS12]] : tensor<1xf64>, tensor<4x8x16xf32>, tensor<4x8x2xf32>, tensor<4x8x9xf32>

// CHECK-LABEL: func.func private @head.tp4.b4.borrow2.backward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<4x8xi32> {nn.role = "data"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "stash"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<4x8x2xf32> {nn.role = "stash"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<4x8x9xf32> {galvatron.slice = #galvatron.slice<state = <[split 2]>>, nn.role = "stash"}
// CHECK-SAME: [[A6:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A7:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A8:%[a-z0-9_]+]]: tensor<9x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [33, 16], state = <[split 0]>>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<4x8x16xf32> {nn.role = "input_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<9x16xf32> {nn.role = "parameter_gradient"})
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = nn.linear_input_grad [[A5]], [[A8]] {transpose_weight}
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = nn.linear_weight_grad [[A3]], [[A5]] {transpose_weight}
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = galvatron.all_reduce [[V9]] over{{ +}}tp
// CHECK-NEXT: [[DX12:%[a-z0-9_]+]], [[DGAMMA13:%[a-z0-9_]+]], [[DBETA14:%[a-z0-9_]+]] = nn.layer_norm_grad [[V11]], [[A1]], [[A4]], [[A6]]
// CHECK-NEXT: return [[DX12]], [[DGAMMA13]], [[DBETA14]], [[V10]] : tensor<4x8x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<9x16xf32>

// Collectives are not touched by clean-up.
// KEPT-COUNT-4: galvatron.all_reduce
// KEPT-NOT: galvatron.all_reduce
