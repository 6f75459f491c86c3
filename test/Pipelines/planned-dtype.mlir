// Plans can be made for types that nothing computes in: bytes of bf16 and f32,
// times of f16 and tf32. Splitting is the first phase that refuses them.
// RUN: galvatron-plan %examples/gpt2-tiny/config.json --seq-len=8 --cluster=2x1xa100-40gb --dtype=f16 --batch=8 --json=%t.json -o %t.mlir | FileCheck %s
// RUN: FileCheck %s --check-prefix=IR < %t.mlir
// RUN: not galvatron-opt %t.mlir --galvatron-split-stages 2>&1 | FileCheck %s --check-prefix=SPLIT
// RUN: not galvatron-compile %t.mlir -o %t.gvx 2>&1 | FileCheck %s --check-prefix=SPLIT
// RUN: not galvatron-compile --plan=%t.json %examples/gpt2-tiny/config.json --seq-len=8 --cluster=2x1xa100-40gb -o %t.gvx 2>&1 | FileCheck %s --check-prefix=SPLIT
// RUN: galvatron-plan %examples/gpt2-tiny/config.json --seq-len=8 --cluster=2x1xa100-40gb --dtype=tf32 --batch=8 | FileCheck %s --check-prefix=TF32

// CHECK: space bmw, f16, adamw
// IR: dtype = "f16"
// IR: galvatron.parameter {{.*}}xbf16>
// SPLIT: error: dtype 'f16' is planned, not executed: expected 'f32', 'bf16' or 'f64'
// TF32: space bmw, tf32, adamw
