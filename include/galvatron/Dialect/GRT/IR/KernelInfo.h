//===- KernelInfo.h - What the runtime's kernels take ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The comments of grt_kernel in runtime/include/grt/abi.h as a table. It drives
// the verifier and the memory effects of `grt.kernel`; builders may use it to
// name operands.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_IR_KERNELINFO_H
#define GALVATRON_DIALECT_GRT_IR_KERNELINFO_H

#include "galvatron/Dialect/GRT/IR/GRT.h"

namespace mlir::grt {

/// What a kernel does with a buffer.
enum class Access {
  Read,
  Write,
  ReadWrite,
  /// Written, and read first if the integer `acc` is not 0.
  Accumulate,
  /// Free for the kernel while it runs; nothing is expected before or after.
  Scratch
};

/// What the elements of a buffer are.
enum class ElementClass {
  Float, ///< compute or accumulator type
  Index, ///< i32 tokens, labels or masks
  Loss,  ///< f64
  Any    ///< raw bytes
};

/// When a call has an operand.
enum class Presence {
  Always,
  IfLastInt, ///< if the last integer is 1
  Optional   ///< as the caller likes; last of the operands
};

struct KernelOperand {
  StringLiteral name;
  Access access;
  ElementClass elements = ElementClass::Float;
  /// Rows may lie apart (columns of a packed buffer): the kernel then reaches
  /// past the view it is given, but never past the buffer viewed.
  bool strided = false;
  Presence presence = Presence::Always;
};

/// What an integer argument may be.
enum class IntClass {
  Size, ///< not negative
  Flag, ///< 0 or 1
  Acc,  ///< 0, 1 or 2
  Free  ///< any number
};

struct KernelInt {
  StringLiteral name;
  IntClass kind = IntClass::Size;
};

/// What may follow the arguments that have names.
enum class Tail {
  None,
  Segments, ///< the integer `segments` counts triples of integers
  Pairs     ///< the integer `pairs` counts reals
};

struct KernelInfo {
  Kernel kernel;
  ArrayRef<KernelOperand> operands;
  ArrayRef<KernelInt> ints;
  ArrayRef<StringLiteral> reals;
  Tail tail;
  /// Elements (for ElementClass::Any: bytes) that operand `index` needs given
  /// valid `ints`; 0 where any size will do.
  int64_t (*neededElements)(unsigned index, ArrayRef<int64_t> ints);

  /// Which operands the buffers of a call with these integers are, in order.
  /// Not `buffers` of them if the call has too few or too many.
  SmallVector<unsigned> operandsOf(ArrayRef<int64_t> intValues,
                                   size_t buffers) const;
  /// Value of the integer called `name`; nullopt if the kernel has none.
  std::optional<int64_t> getInt(StringRef name,
                                ArrayRef<int64_t> intValues) const;
};

/// The facts about `kernel`.
const KernelInfo &getKernelInfo(Kernel kernel);

} // namespace mlir::grt

#endif // GALVATRON_DIALECT_GRT_IR_KERNELINFO_H
