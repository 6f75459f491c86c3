// RUN: galvatron-opt %s --split-input-file --verify-diagnostics

//===----------------------------------------------------------------------===//
// grt.func
//===----------------------------------------------------------------------===//

// C8
// expected-error @+1 {{attribute 'sym_name' failed to satisfy constraint: string attribute that is not empty}}
grt.func @"" {}

// -----

// C1: used before its begin
grt.func @f {
  // expected-note @+1 {{buffer named here}}
  %t = grt.buffer transient : memref<16xf32>
  // expected-error @+1 {{expected a transient buffer to be begun before its uses, found no begin}}
  grt.kernel zero(%t) : memref<16xf32>
}

// -----

// C1: used after its end
grt.func @f {
  %t = grt.buffer transient : memref<16xf32>
  grt.begin %t : memref<16xf32>
  // expected-note @+1 {{ended here}}
  grt.end %t : memref<16xf32>
  %v = grt.view %t at 0 : memref<16xf32> to memref<8xf32>
  // expected-error @+1 {{expected uses of a buffer up to its end, found one behind it}}
  grt.kernel zero(%v) : memref<8xf32>
}

// -----

// C1: never ended
grt.func @f {
  // expected-error @+1 {{expected an end of the transient buffer, which is begun, found none}}
  %t = grt.buffer transient : memref<16xf32>
  grt.begin %t : memref<16xf32>
}

// -----

// C1: begun twice
grt.func @f {
  %t = grt.buffer transient : memref<16xf32>
  // expected-note @+1 {{first begun here}}
  grt.begin %t : memref<16xf32>
  // expected-error @+1 {{expected one begin of a buffer, found a second}}
  grt.begin %t : memref<16xf32>
  grt.end %t : memref<16xf32>
}

// -----

// C1: ended twice
grt.func @f {
  %t = grt.buffer transient : memref<16xf32>
  grt.begin %t : memref<16xf32>
  // expected-note @+1 {{first ended here}}
  grt.end %t : memref<16xf32>
  // expected-error @+1 {{expected one end of a buffer, found a second}}
  grt.end %t : memref<16xf32>
}

// -----

// C2: stash begun after a use
grt.func @f {
  %t = grt.buffer stash at 0 : memref<16xf32>
  grt.kernel zero(%t) : memref<16xf32>
  // expected-error @+1 {{expected the begin of a buffer in front of its uses, found it behind one}}
  grt.begin %t : memref<16xf32>
}

// -----

// C3
grt.func @f attributes {stash_bytes = 64 : i64} {
  // expected-error @+1 {{expected to end within the 64 stash bytes of the function, found end 128}}
  %t = grt.buffer stash at 64 : memref<16xf32>
}

// -----

//===----------------------------------------------------------------------===//
// grt.buffer, grt.view, lifetimes
//===----------------------------------------------------------------------===//

grt.func @f {
  // expected-error @+1 {{expected an offset in region 'input'}}
  %t = grt.buffer input : memref<16xf32>
}

// -----

grt.func @f {
  // expected-error @+1 {{expected an offset that is a multiple of 64, found 32}}
  %t = grt.buffer input at 32 : memref<16xf32>
}

// -----

grt.func @f {
  // expected-error @+1 {{static row-major memref}}
  %t = grt.buffer input at 0 : memref<?xf32>
}

// -----

// Element types that the C ABI does not have.
grt.func @f {
  // expected-error @+1 {{static row-major memref of f32, f64, bf16, i32 or i8, but got 'memref<16xf8E4M3FN>'}}
  %t = grt.buffer input at 0 : memref<16xf8E4M3FN>
}

// -----

grt.func @f {
  // expected-error @+1 {{static row-major memref of f32, f64, bf16, i32 or i8, but got 'memref<16xi1>'}}
  %t = grt.buffer input at 0 : memref<16xi1>
}

// -----

grt.func @f {
  %x = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{static row-major memref of f32, f64, bf16, i32 or i8, but got 'memref<16xf16>'}}
  %y = grt.view %x at 0 : memref<16xf32> to memref<16xf16>
}

// -----

grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected to lie inside its source of 64 bytes, found bytes 32 to 96}}
  %v = grt.view %t at 32 : memref<16xf32> to memref<16xf32>
}

// -----

grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected an offset that is a multiple of the 4-byte elements, found 2}}
  %v = grt.view %t at 2 : memref<16xf32> to memref<8xf32>
}

// -----

grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected a stash or transient buffer, found region 'input'}}
  grt.begin %t : memref<16xf32>
}

// -----

grt.func @f {
  %t = grt.buffer transient : memref<16xf32>
  %v = grt.view %t at 0 : memref<16xf32> to memref<8xf32>
  grt.begin %t : memref<16xf32>
  // expected-error @+1 {{expected the result of a 'grt.buffer', found a view}}
  grt.end %v : memref<8xf32>
}

// -----

//===----------------------------------------------------------------------===//
// grt.kernel
//===----------------------------------------------------------------------===//

// C1
grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected 2 buffers for kernel 'gelu', found 1}}
  grt.kernel gelu(%t) ints [16, 1] : memref<16xf32>
}

// -----

// C1: the bias of gemm is there only if the call says so
grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected 4 buffers for kernel 'gemm', found 3}}
  grt.kernel gemm(%t, %t, %t) ints [4, 4, 4, 0, 0, 0, 1] : memref<16xf32>, memref<16xf32>, memref<16xf32>
}

// -----

// C1: behind it stands nothing but scratch
grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  %s = grt.buffer transient at 0 : memref<64xi8>
  // expected-error @+1 {{expected 4 buffers for kernel 'gemm', found 5}}
  grt.kernel gemm(%t, %t, %t, %s, %s) ints [4, 4, 4, 0, 0, 0, 0] : memref<16xf32>, memref<16xf32>, memref<16xf32>, memref<64xi8>, memref<64xi8>
}

// -----

// C3: a bias of which the call says nothing is no scratch
grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected 'i8' elements in 'scratch', found 'f32'}}
  grt.kernel gemm(%t, %t, %t, %t) ints [4, 4, 4, 0, 0, 0, 0] : memref<16xf32>, memref<16xf32>, memref<16xf32>, memref<16xf32>
}

// -----

// C2
grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected 2 integers for kernel 'gelu', found 1}}
  grt.kernel gelu(%t, %t) ints [16] : memref<16xf32>, memref<16xf32>
}

// -----

// C2
grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected 1 reals for kernel 'scale', found 0}}
  grt.kernel scale(%t, %t) ints [16] : memref<16xf32>, memref<16xf32>
}

// -----

// C2: a frequency for every pair
grt.func @f {
  %x = grt.buffer input at 0 : memref<2x3x2x4xf32>
  %y = grt.buffer output at 0 : memref<2x3x2x4xf32>
  // expected-error @+1 {{expected 3 reals for kernel 'rotary', found 2}}
  grt.kernel rotary(%x, %y) ints [2, 3, 2, 4, 0, 2, 0] reals [1.0, 0.5] : memref<2x3x2x4xf32>, memref<2x3x2x4xf32>
}

// -----

// C2: segments
grt.func @f {
  %t = grt.buffer gradient at 0 : memref<16xf32>
  // expected-error @+1 {{expected 6 integers for 2 segments, found 3}}
  grt.kernel norm(%t) ints [16, 2, 0, 16, 0] : memref<16xf32>
}

// -----

// C3
grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected 'i32' elements in 'tokens', found 'f32'}}
  grt.kernel embedding(%t, %t, %t) ints [1, 4, 4, 0] : memref<16xf32>, memref<16xf32>, memref<16xf32>
}

// -----

// C3
grt.func @f {
  %t = grt.buffer input at 0 : memref<16xi32>
  // expected-error @+1 {{expected floating point elements in 'x', found 'i32'}}
  grt.kernel gelu(%t, %t) ints [16, 1] : memref<16xi32>, memref<16xi32>
}

// -----

// C4
grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected 68 bytes in 'x', found 64}}
  grt.kernel gelu(%t, %t) ints [17, 1] : memref<16xf32>, memref<16xf32>
}

// -----

// C6: rows of an operand that stand apart
grt.func @f {
  %qkv = grt.buffer input at 0 : memref<4x3x8xf32>
  %o = grt.buffer output at 0 : memref<4x8xf32>
  %lse = grt.buffer stash at 0 : memref<1x2x4xf32>
  %s = grt.buffer transient : memref<65536xi8>
  %k = grt.view %qkv at 32 : memref<4x3x8xf32> to memref<4x8xf32>
  %v = grt.view %qkv at 64 : memref<4x3x8xf32> to memref<4x8xf32>
  grt.begin %s : memref<65536xi8>
  // expected-error @+1 {{rows of v are its own or of packed q, k, v, found 25 and 4}}
  grt.kernel attention(%qkv, %k, %v, %o, %lse, %s) ints [1, 4, 4, 2, 2, 4, 24, 24, 25, 1, 0, 0, 0, 0] reals [1.0, 0.0]
    : memref<4x3x8xf32>, memref<4x8xf32>, memref<4x8xf32>, memref<4x8xf32>, memref<1x2x4xf32>, memref<65536xi8>
  grt.end %s : memref<65536xi8>
}

// -----

// C4: rows end with the buffer that they view
grt.func @f {
  %x = grt.buffer input at 0 : memref<4x3x8xf32>
  %y = grt.buffer output at 0 : memref<4x8xf32>
  %v = grt.view %x at 64 : memref<4x3x8xf32> to memref<4x8xf32>
  // expected-error @+1 {{expected at least 332 bytes and at most 400 in 'src', found 320}}
  grt.kernel copy(%v, %y) ints [4, 32, 100, 32] : memref<4x8xf32>, memref<4x8xf32>
}

// -----

// C4: rows are of whole elements
grt.func @f {
  %x = grt.buffer input at 0 : memref<4x3x8xf32>
  %y = grt.buffer output at 0 : memref<4x8xf32>
  // expected-error @+1 {{expected whole elements of 4 bytes in the rows of 'src', found 32 of 97 bytes}}
  grt.kernel copy(%x, %y) ints [4, 32, 97, 32] : memref<4x3x8xf32>, memref<4x8xf32>
}

// -----

// C4: no buffer is larger than the integers say
grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected 60 bytes in 'x', found 64}}
  grt.kernel gelu(%t, %t) ints [15, 1] : memref<16xf32>, memref<16xf32>
}

// -----

// C4: nor has it other rows
grt.func @f {
  %x = grt.buffer input at 0 : memref<2x4x6xf32>
  %y = grt.buffer output at 0 : memref<2x6x4xf32>
  // expected-error @+1 {{expected the shape [2, 6, 4] of 'x', found 'memref<2x4x6xf32>'}}
  grt.kernel transpose(%x, %y) ints [2, 6, 4] : memref<2x4x6xf32>, memref<2x6x4xf32>
}

// -----

// C3: elements of one type
grt.func @f {
  %x = grt.buffer input at 0 : memref<16xbf16>
  %y = grt.buffer output at 0 : memref<16xf32>
  // expected-error @+1 {{expected 'bf16' elements in 'y', found 'f32'}}
  grt.kernel gelu(%x, %y) ints [16, 1] : memref<16xbf16>, memref<16xf32>
}

// -----

// C3: sums of bf16 are f32
grt.func @f {
  %x = grt.buffer input at 0 : memref<16xbf16>
  // expected-error @+1 {{expected 'f32' elements in 'dbias', found 'bf16'}}
  grt.kernel bias_grad(%x, %x) ints [1, 16, 0] : memref<16xbf16>, memref<16xbf16>
}

// -----

// C6: a rule of the list
grt.func @f {
  %x = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{windows have at least one position and a shift below their side, found 2 and 2}}
  grt.kernel windows(%x, %x) ints [1, 4, 4, 1, 2, 2, 0, 0] : memref<16xf32>, memref<16xf32>
}

// -----

// C4: scratch of attention
grt.func @f {
  %qkv = grt.buffer input at 0 : memref<4x3x8xf32>
  %o = grt.buffer output at 0 : memref<4x8xf32>
  %lse = grt.buffer stash at 0 : memref<1x2x4xf32>
  %s = grt.buffer transient : memref<16xi8>
  %k = grt.view %qkv at 32 : memref<4x3x8xf32> to memref<4x8xf32>
  %v = grt.view %qkv at 64 : memref<4x3x8xf32> to memref<4x8xf32>
  grt.begin %s : memref<16xi8>
  // expected-error-re @+1 {{expected at least {{[0-9]+}} bytes in 'scratch', found 16}}
  grt.kernel attention(%qkv, %k, %v, %o, %lse, %s) ints [1, 4, 4, 2, 2, 4, 24, 24, 24, 1, 0, 0, 0, 0] reals [1.0, 0.0]
    : memref<4x3x8xf32>, memref<4x8xf32>, memref<4x8xf32>, memref<4x8xf32>, memref<1x2x4xf32>, memref<16xi8>
  grt.end %s : memref<16xi8>
}

// -----

// C4: the mask of attention
grt.func @f {
  %q = grt.buffer input at 0 : memref<2x4x8xf32>
  %o = grt.buffer output at 0 : memref<2x4x8xf32>
  %lse = grt.buffer stash at 0 : memref<2x2x4xf32>
  %m = grt.buffer data at 0 : memref<2x4xi32>
  %s = grt.buffer transient : memref<65536xi8>
  grt.begin %s : memref<65536xi8>
  // expected-error @+1 {{expected 7 buffers for kernel 'attention', found 6}}
  grt.kernel attention(%q, %q, %q, %o, %lse, %s) ints [2, 4, 4, 2, 2, 4, 8, 8, 8, 0, 0, 0, 1, 0] reals [1.0, 0.0]
    : memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x2x4xf32>, memref<65536xi8>
  grt.end %s : memref<65536xi8>
}

// -----

// C4: the bias of attention
grt.func @f {
  %q = grt.buffer input at 0 : memref<2x4x8xf32>
  %b = grt.buffer input at 256 : memref<2x2x6xf32>
  %o = grt.buffer output at 0 : memref<2x4x8xf32>
  %lse = grt.buffer stash at 0 : memref<2x2x4xf32>
  %s = grt.buffer transient : memref<65536xi8>
  grt.begin %s : memref<65536xi8>
  // expected-error @+1 {{expected 112 bytes in 'bias', found 96}}
  grt.kernel biased_attention(%q, %q, %q, %o, %lse, %s, %b) ints [2, 4, 4, 2, 2, 4, 8, 8, 8, 0, 0, 0, 2, 0, 0] reals [1.0, 0.0]
    : memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x2x4xf32>, memref<65536xi8>, memref<2x2x6xf32>
  grt.end %s : memref<65536xi8>
}

// -----

// C4: scratch of attention with a bias
grt.func @f {
  %q = grt.buffer input at 0 : memref<2x4x8xf32>
  %b = grt.buffer input at 256 : memref<2x2x7xf32>
  %o = grt.buffer output at 0 : memref<2x4x8xf32>
  %lse = grt.buffer stash at 0 : memref<2x2x4xf32>
  %s = grt.buffer transient : memref<16xi8>
  grt.begin %s : memref<16xi8>
  // expected-error-re @+1 {{expected at least {{[0-9]+}} bytes in 'scratch', found 16}}
  grt.kernel biased_attention(%q, %q, %q, %o, %lse, %s, %b) ints [2, 4, 4, 2, 2, 4, 8, 8, 8, 0, 0, 0, 2, 0, 0] reals [1.0, 0.0]
    : memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x2x4xf32>, memref<16xi8>, memref<2x2x7xf32>
  grt.end %s : memref<16xi8>
}

// -----

// C4: windows that leave some of a grid out
grt.func @f {
  %x = grt.buffer input at 0 : memref<2x15x4xf32>
  %y = grt.buffer output at 0 : memref<2x4x4x4xf32>
  // expected-error @+1 {{expected 768 bytes in 'y', found 512}}
  grt.kernel windows(%x, %y) ints [2, 3, 5, 4, 2, 1, 0, 0] : memref<2x15x4xf32>, memref<2x4x4x4xf32>
}

// -----

// C4: the table of attention inside windows
grt.func @f {
  %q = grt.buffer input at 0 : memref<1x4x4x2x4xf32>
  %t = grt.buffer parameter at 0 : memref<4x2xf32>
  %o = grt.buffer output at 0 : memref<1x4x4x2x4xf32>
  %lse = grt.buffer stash at 0 : memref<1x4x2x4xf32>
  %s = grt.buffer transient : memref<65536xi8>
  grt.begin %s : memref<65536xi8>
  // expected-error @+1 {{expected 72 bytes in 'table', found 32}}
  grt.kernel window_attention(%q, %q, %q, %o, %lse, %s, %t) ints [1, 2, 2, 2, 1, 2, 4, 0] reals [0.5, 0.0]
    : memref<1x4x4x2x4xf32>, memref<1x4x4x2x4xf32>, memref<1x4x4x2x4xf32>, memref<1x4x4x2x4xf32>, memref<1x4x2x4xf32>, memref<65536xi8>, memref<4x2xf32>
  grt.end %s : memref<65536xi8>
}

// -----

// C4: scratch of attention inside windows
grt.func @f {
  %q = grt.buffer input at 0 : memref<1x4x4x2x4xf32>
  %t = grt.buffer parameter at 0 : memref<9x2xf32>
  %o = grt.buffer output at 0 : memref<1x4x4x2x4xf32>
  %lse = grt.buffer stash at 0 : memref<1x4x2x4xf32>
  %s = grt.buffer transient : memref<16xi8>
  grt.begin %s : memref<16xi8>
  // expected-error-re @+1 {{expected at least {{[0-9]+}} bytes in 'scratch', found 16}}
  grt.kernel window_attention(%q, %q, %q, %o, %lse, %s, %t) ints [1, 2, 2, 2, 1, 2, 4, 0] reals [0.5, 0.0]
    : memref<1x4x4x2x4xf32>, memref<1x4x4x2x4xf32>, memref<1x4x4x2x4xf32>, memref<1x4x4x2x4xf32>, memref<1x4x2x4xf32>, memref<16xi8>, memref<9x2xf32>
  grt.end %s : memref<16xi8>
}

// -----

// C4: elements of a mask
grt.func @f {
  %q = grt.buffer input at 0 : memref<2x4x8xf32>
  %o = grt.buffer output at 0 : memref<2x4x8xf32>
  %lse = grt.buffer stash at 0 : memref<2x2x4xf32>
  %m = grt.buffer data at 0 : memref<2x4xf32>
  %s = grt.buffer transient : memref<65536xi8>
  grt.begin %s : memref<65536xi8>
  // expected-error @+1 {{expected 'i32' elements in 'mask', found 'f32'}}
  grt.kernel attention(%q, %q, %q, %o, %lse, %s, %m) ints [2, 4, 4, 2, 2, 4, 8, 8, 8, 0, 0, 0, 1, 0] reals [1.0, 0.0]
    : memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x2x4xf32>, memref<65536xi8>, memref<2x4xf32>
  grt.end %s : memref<65536xi8>
}

// -----

// C4: size of a mask
grt.func @f {
  %q = grt.buffer input at 0 : memref<2x4x8xf32>
  %o = grt.buffer output at 0 : memref<2x4x8xf32>
  %lse = grt.buffer stash at 0 : memref<2x2x4xf32>
  %m = grt.buffer data at 0 : memref<1x4xi32>
  %s = grt.buffer transient : memref<65536xi8>
  grt.begin %s : memref<65536xi8>
  // expected-error @+1 {{expected 32 bytes in 'mask', found 16}}
  grt.kernel attention(%q, %q, %q, %o, %lse, %s, %m) ints [2, 4, 4, 2, 2, 4, 8, 8, 8, 0, 0, 0, 1, 0] reals [1.0, 0.0]
    : memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x4x8xf32>, memref<2x2x4xf32>, memref<65536xi8>, memref<1x4xi32>
  grt.end %s : memref<65536xi8>
}

// -----

// C4: patches of a part of an image
grt.func @f {
  %i = grt.buffer data at 0 : memref<2x3x9x8xf32>
  %y = grt.buffer output at 0 : memref<2x4x47xf32>
  // expected-error @+1 {{expected 1536 bytes in 'y', found 1504}}
  grt.kernel patches(%i, %y) ints [2, 3, 9, 8, 4, 4, 0] : memref<2x3x9x8xf32>, memref<2x4x47xf32>
}

// -----

// C4: patches beyond an image
grt.func @f {
  %i = grt.buffer data at 0 : memref<2x3x9x8xf32>
  %y = grt.buffer output at 0 : memref<2x4x48xf32>
  // expected-error @+1 {{expected 2304 bytes in 'y', found 1536}}
  grt.kernel patches(%i, %y) ints [2, 3, 9, 8, 4, 4, 1] : memref<2x3x9x8xf32>, memref<2x4x48xf32>
}

// -----

// C5
grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected a number that is not negative for 'n', found -1}}
  grt.kernel gelu(%t, %t) ints [-1, 1] : memref<16xf32>, memref<16xf32>
}

// -----

// C5
grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected 0 or 1 for 'approximate', found 2}}
  grt.kernel gelu(%t, %t) ints [16, 2] : memref<16xf32>, memref<16xf32>
}

// -----

// C5
grt.func @f {
  %t = grt.buffer input at 0 : memref<16xf32>
  // expected-error @+1 {{expected 0, 1 or 2 for 'acc', found 3}}
  grt.kernel bias_grad(%t, %t) ints [1, 16, 3] : memref<16xf32>, memref<16xf32>
}

// -----

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

grt.func @f {
  %t = grt.buffer data at 0 : memref<16xi32>
  // expected-error @+1 {{expected floating-point elements, found 'i32'}}
  grt.all_reduce %t over tp : memref<16xi32>
}

// -----

grt.func @f {
  %a = grt.buffer input at 0 : memref<16xf32>
  %b = grt.buffer output at 0 : memref<32xf64>
  // expected-error @+1 {{expected one element type, found 'f64' in the destination and 'f32' in the source}}
  grt.all_gather %a to %b over tp : memref<16xf32> to memref<32xf64>
}

// -----

grt.func @f {
  %a = grt.buffer input at 0 : memref<16xf32>
  %b = grt.buffer output at 0 : memref<24xf32>
  // expected-error @+1 {{expected the destination to hold a whole number (at least 2) of sources, found 24 and 16 elements}}
  grt.all_gather %a to %b over tp : memref<16xf32> to memref<24xf32>
}

// -----

grt.func @f {
  %a = grt.buffer input at 0 : memref<16xf32>
  %b = grt.buffer gradient at 0 : memref<16xf32>
  // expected-error @+1 {{expected the source to hold a whole number (at least 2) of destinations, found 16 and 16 elements}}
  grt.reduce_scatter %a to %b over sdp : memref<16xf32> to memref<16xf32>
}

// -----

grt.func @f {
  %a = grt.buffer input at 0 : memref<16xf32>
  %b = grt.buffer gradient at 0 : memref<8xf32>
  // expected-error @+1 {{expected acc 0, 1 or 2, found 4}}
  grt.reduce_scatter %a to %b over sdp acc 4 : memref<16xf32> to memref<8xf32>
}

// -----

// shift, C1
grt.func @f {
  %a = grt.buffer input at 0 : memref<16xf32>
  %b = grt.buffer output at 0 : memref<8xf32>
  // expected-error @+1 {{expected as many elements of one type in the source and the destination, found 'memref<16xf32>' and 'memref<8xf32>'}}
  grt.shift %a to %b by 1 over cp : memref<16xf32> to memref<8xf32>
}

// -----

// shift, C2
grt.func @f {
  %a = grt.buffer input at 0 : memref<16xf32>
  %b = grt.buffer output at 0 : memref<16xf32>
  // expected-error @+1 {{expected a positive distance, found 0}}
  grt.shift %a to %b by 0 over cp : memref<16xf32> to memref<16xf32>
}

// -----

// all_to_all, C1
grt.func @f {
  %a = grt.buffer input at 0 : memref<16xf32>
  %b = grt.buffer output at 0 : memref<8xf32>
  // expected-error @+1 {{expected as many elements of one type in the source and the destination, found 'memref<16xf32>' and 'memref<8xf32>'}}
  grt.all_to_all %a to %b over cp : memref<16xf32> to memref<8xf32>
}

// -----

// all_to_all_counts, C1
grt.func @f {
  %a = grt.buffer input at 0 : memref<16xf32>
  %b = grt.buffer output at 0 : memref<16xbf16>
  %c = grt.buffer data at 0 : memref<2x2xi32>
  // expected-error @+1 {{expected one element type, found 'f32' in the source and 'bf16' in the destination}}
  grt.all_to_all_counts %a to %b by %c units 4 over tp : memref<16xf32> to memref<16xbf16> by memref<2x2xi32>
}

// -----

// all_to_all_counts, C2
grt.func @f {
  %a = grt.buffer input at 0 : memref<16xf32>
  %b = grt.buffer output at 0 : memref<8xf32>
  %c = grt.buffer data at 0 : memref<2x2xi32>
  // expected-error @+1 {{expected a unit of a positive number of elements of 4 bytes, found 6 bytes}}
  grt.all_to_all_counts %a to %b by %c units 6 over tp : memref<16xf32> to memref<8xf32> by memref<2x2xi32>
}

// -----

// all_to_all_counts, C2
grt.func @f {
  %a = grt.buffer input at 0 : memref<16xf32>
  %b = grt.buffer output at 0 : memref<8xf32>
  %c = grt.buffer data at 0 : memref<2x2xi32>
  // expected-error @+1 {{expected a unit of a positive number of elements of 4 bytes, found 0 bytes}}
  grt.all_to_all_counts %a to %b by %c units 0 over tp : memref<16xf32> to memref<8xf32> by memref<2x2xi32>
}

// -----

// all_to_all_counts, C3
grt.func @f {
  %a = grt.buffer input at 0 : memref<16xf32>
  %b = grt.buffer output at 0 : memref<8xf32>
  %c = grt.buffer data at 0 : memref<2x3xi32>
  // expected-error @+1 {{expected counts of type i32, members x members of at least 2, found 'memref<2x3xi32>'}}
  grt.all_to_all_counts %a to %b by %c units 4 over tp : memref<16xf32> to memref<8xf32> by memref<2x3xi32>
}

// -----

// all_to_all_counts, C3
grt.func @f {
  %a = grt.buffer input at 0 : memref<16xf32>
  %b = grt.buffer output at 0 : memref<8xf32>
  %c = grt.buffer data at 0 : memref<2x2xf32>
  // expected-error @+1 {{expected counts of type i32, members x members of at least 2, found 'memref<2x2xf32>'}}
  grt.all_to_all_counts %a to %b by %c units 4 over tp : memref<16xf32> to memref<8xf32> by memref<2x2xf32>
}

// -----

//===----------------------------------------------------------------------===//
// grt.exchange
//===----------------------------------------------------------------------===//

// C1
// expected-error @+1 {{expected a transfer of 5 numbers, found 4}}
grt.exchange @e bytes_per_unit 4 transfers [[0, 1, 0, 0]]

// -----

// C1
// expected-error @+1 {{expected no negative number, found one in transfer 1}}
grt.exchange @e bytes_per_unit 4 transfers [[0, 1, 0, 0, 1], [0, -1, 0, 0, 1]]

// -----

// C2
// expected-error @+1 {{expected at least 1 unit, found none in transfer 0}}
grt.exchange @e bytes_per_unit 4 transfers [[0, 1, 0, 0, 0]]

// -----

// C3
// expected-error @+1 {{expected every unit to be written once, found unit 1 of rank 1 written twice}}
grt.exchange @e bytes_per_unit 4 transfers [[0, 1, 0, 0, 2], [2, 1, 0, 1, 1]]

// -----

// The master weights of bf16 parameters stand behind the moments.
grt.func @f {
  %p = grt.buffer parameter at 0 : memref<32xbf16>
  %g = grt.buffer gradient at 0 : memref<32xf32>
  %s = grt.buffer optimizer at 0 : memref<64xf32>
  // expected-error @+1 {{expected 384 bytes in 'state', found 256}}
  grt.kernel optimizer(%p, %g, %s) ints [2, 32, 1, 0, 32, 1] : memref<32xbf16>, memref<32xf32>, memref<64xf32>
}

// -----

// Gathered parameters are read only
grt.func @writes_gathered attributes {gathered_bytes = 256 : i64} {
  // expected-note @+1 {{buffer named here}}
  %w = grt.buffer gathered at 0 : memref<64xf32>
  %v = grt.view %w at 128 : memref<64xf32> to memref<32xf32>
  // expected-error @+1 {{'grt.kernel' op expected gathered parameters to be read, found a write to them}}
  grt.kernel zero(%v) : memref<32xf32>
}

// -----

grt.func @too_much_gathered attributes {gathered_bytes = 128 : i64} {
  // expected-error @+1 {{expected to end within the 128 gathered bytes of the function, found end 256}}
  %w = grt.buffer gathered at 0 : memref<64xf32>
}

// -----

// C2: a segment
grt.func @f {
  %t = grt.buffer gradient at 0 : memref<16xf32>
  // expected-error @+1 {{expected segments of a begin, a length and a flag 0 or 1, found [0, 16, 2]}}
  grt.kernel norm(%t) ints [16, 1, 0, 16, 2] : memref<16xf32>
}

// -----

// C2: a segment
grt.func @f {
  %t = grt.buffer gradient at 0 : memref<16xf32>
  // expected-error @+1 {{expected segments of a begin, a length and a flag 0 or 1, found [-1, 16, 0]}}
  grt.kernel norm(%t) ints [16, 1, -1, 16, 0] : memref<16xf32>
}

// -----

// C2: a segment
grt.func @f {
  %t = grt.buffer gradient at 0 : memref<16xf32>
  // expected-error @+1 {{expected segments of a begin, a length and a flag 0 or 1, found [0, -16, 0]}}
  grt.kernel norm(%t) ints [16, 1, 0, -16, 0] : memref<16xf32>
}

// -----

// C2: a segment behind the one before
grt.func @f {
  %t = grt.buffer gradient at 0 : memref<16xf32>
  // expected-error @+1 {{expected segments behind each other, found [8, 8, 0]}}
  grt.kernel norm(%t) ints [16, 2, 0, 9, 0, 8, 8, 0] : memref<16xf32>
}

// -----

// C2: a transient buffer that is ended but was never begun
grt.func @f {
  %t = grt.buffer transient : memref<16xf32>
  // expected-error @+1 {{expected the end of a buffer that was begun, found no begin}}
  grt.end %t : memref<16xf32>
}
