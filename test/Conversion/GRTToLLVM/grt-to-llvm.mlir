// RUN: galvatron-opt %s --galvatron-allocate-arena=functions-only --convert-grt-to-llvm | FileCheck %s
// RUN: galvatron-opt %s --galvatron-allocate-arena=functions-only --convert-grt-to-llvm | mlir-translate --mlir-to-llvmir | FileCheck %s --check-prefix=IR

module attributes {grt.manifest = "{}"} {
  grt.func @f {
    %x = grt.buffer input at 0 : memref<4x8xf32>
    %t = grt.buffer transient : memref<4x8xf32>
    %y = grt.buffer output at 0 : memref<4x8xf32>
    grt.begin %t : memref<4x8xf32>
    grt.kernel scale(%x, %t) ints [32] reals [2.5] {label = "twice and a bit"} : memref<4x8xf32>, memref<4x8xf32>
    grt.all_reduce %t over tp : memref<4x8xf32>
    // A strided operand is given all the bytes that the kernel reaches: two
    // columns of four rows end 104 bytes behind the start of the view.
    %v = grt.view %t at 8 : memref<4x8xf32> to memref<4x2xf32>
    %w = grt.view %y at 0 : memref<4x8xf32> to memref<4x2xf32>
    grt.kernel copy(%v, %w) ints [4, 8, 32, 8] : memref<4x2xf32>, memref<4x2xf32>
    grt.end %t : memref<4x8xf32>
  }
  grt.func @g {
    %p = grt.buffer parameter at 0 : memref<8xf32>
    %s = grt.buffer stash at 0 : memref<2x8xf32>
    grt.record 0 on compute
    grt.wait 0 on gather
    grt.all_gather %p to %s over sdp on gather : memref<8xf32> to memref<2x8xf32>
    grt.record 1 on gather
    grt.wait 1 on compute
  }
  grt.role @stage0 stage 0 devices [0, 1] slots 1 {
    grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[tp = 2]>, samples = 4 : i64, forward = @f, backward = @f, tensors = [],
      groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
      input_bytes = 128 : i64, output_bytes = 128 : i64, stash_bytes = 0 : i64}
  }
  grt.schedule @stage0.schedule role @stage0 {
    grt.part steady {
      grt.task forward micro_batch 3 slot 0
      grt.task transfer recv_activation 2 send_gradient 1 slot 0
      grt.task backward micro_batch 3 slot 0 sync_behind
    }
    grt.part step_end {
      grt.task norm
    }
  }
}

// CHECK-NOT: grt.
// CHECK-DAG: llvm.func @grt_launch(!llvm.ptr, !llvm.ptr) -> i32
// CHECK-DAG: llvm.func @grt_communicate(!llvm.ptr, !llvm.ptr) -> i32
// CHECK-DAG: llvm.func @grt_order(!llvm.ptr, !llvm.ptr) -> i32

// Region and element type share a word: 4 is TRANSIENT of f32.
// CHECK: llvm.mlir.global private constant @f.buffers(dense<{{\[\[}}4, 0, 128], [5, 0, 128], [4, 0, 128], [4, 8, 104], [6, 0, 32], [4, 0, 128]]> : tensor<6x3xi64>)
// CHECK: llvm.mlir.global private constant @f.ints(dense<[32, 4, 8, 32, 8]> : tensor<5xi64>)
// CHECK: llvm.mlir.global private constant @f.reals(dense<2.5{{.*}}> : tensor<1xf64>)

// Every status is checked.
// CHECK-LABEL: llvm.func internal @f(%arg0: !llvm.ptr) -> i32
// CHECK: %[[ZERO:.*]] = llvm.mlir.constant(0 : i32) : i32
// CHECK: %[[BEGIN:.*]] = llvm.mlir.addressof @f.buffers
// CHECK-NEXT: %[[S0:.*]] = llvm.call @grt_begin(%arg0, %[[BEGIN]])
// CHECK-NEXT: %[[F0:.*]] = llvm.icmp "ne" %[[S0]], %[[ZERO]]
// CHECK-NEXT: llvm.cond_br %[[F0]], ^[[EXIT:bb[0-9]+]](%[[S0]] : i32), ^[[NEXT:bb[0-9]+]]
// CHECK: %[[OP:.*]] = llvm.mlir.addressof @f.call0
// CHECK-NEXT: llvm.call @grt_launch(%arg0, %[[OP]])
// CHECK: llvm.call @grt_communicate
// CHECK: llvm.call @grt_launch
// CHECK: llvm.call @grt_end

// CHECK-LABEL: llvm.func internal @g(%arg0: !llvm.ptr) -> i32
// CHECK: llvm.call @grt_order
// CHECK: llvm.call @grt_order
// CHECK: llvm.call @grt_communicate
// CHECK: llvm.call @grt_order

// A task: kind, flags and slot in one word; forward of micro-batch 3, then a
// transfer (2) with RECV_ACTIVATION (2) and SEND_GRADIENT (4), then its backward
// (1) with SYNC_BEHIND (1).
// CHECK: llvm.mlir.global private constant @stage0.schedule.steady(dense<{{\[\[}}0, 0, 3, 0, 0, 0], [2, 0, 0, 0, 2, 0], [257, 0, 3, 0, 0, 0]]> : tensor<3x6xi32>)
// CHECK: llvm.mlir.global private constant @stage0.schedule.step_end(dense<{{\[\[}}5, 0, 0, 0, 0, 0]]> : tensor<1x6xi32>)
// CHECK: llvm.mlir.global private constant @stage0.schedule.transfers(dense<{{\[\[}}256, 65535, 1, 0], [1, 65535, 2, 0]]> : tensor<2x4xi32>)
// CHECK: llvm.mlir.global private constant @grt$manifest("{}")
// CHECK-SAME: section = ".grt.manifest"
// CHECK: llvm.mlir.global external constant @grt_program()

// IR: @f.call0 = private constant { i32, i32, i32, i32, ptr, ptr, ptr, ptr } { i32 23, i32 2, i32 1, i32 1, ptr getelementptr {{.*}}(i8, ptr @f.buffers, i64 24), ptr @f.ints, ptr @f.reals, ptr @"grt$names" }
// IR: @f.call1 = private constant { i32, i32, i32, i32, [3 x i64], [3 x i64], ptr } { i32 0, i32 2, i32 0, i32 0, [3 x i64] [i64 4, i64 0, i64 128], [3 x i64] [i64 4, i64 0, i64 128], ptr
// An event: number, stream (2: gather), wait.
// IR: @g.call0 = private constant { i32, i32, i32, i32, ptr } { i32 0, i32 0, i32 0, i32 0, ptr
// IR: @g.call1 = private constant { i32, i32, i32, i32, ptr } { i32 0, i32 2, i32 1, i32 0, ptr
// IR: @g.call2 = private constant { i32, i32, i32, i32, [3 x i64], [3 x i64], ptr } { i32 1, i32 1, i32 0, i32 2,
// IR: @g.call3 = private constant { i32, i32, i32, i32, ptr } { i32 1, i32 2, i32 0, i32 0, ptr
// IR: @"grt$schedules" = private constant [1 x [6 x { ptr, i64 }]] {{\[\[}}6 x { ptr, i64 }] [{ ptr, i64 } zeroinitializer, { ptr, i64 } { ptr @stage0.schedule.steady, i64 3 }, { ptr, i64 } { ptr @stage0.schedule.step_end, i64 1 }, { ptr, i64 } zeroinitializer, { ptr, i64 } zeroinitializer, { ptr, i64 } { ptr @stage0.schedule.transfers, i64 2 }]]
// IR: @grt_program = constant { i32, i32, i32, i32, ptr, ptr, ptr, i64 } { i32 5, i32 2, i32 1, i32 1048600, ptr @"grt$functions", ptr @"grt$schedules", ptr @"grt$manifest", i64 2 }
