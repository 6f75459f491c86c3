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
  Index, ///< i32 tokens or labels
  Loss,  ///< f64
  Any    ///< raw bytes
};

struct KernelOperand {
  StringLiteral name;
  Access access;
  ElementClass elements = ElementClass::Float;
  /// Rows may lie apart (columns of a packed buffer): the kernel then reaches
  /// past the view it is given, but never past the buffer viewed.
  bool strided = false;
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

struct KernelInfo {
  Kernel kernel;
  ArrayRef<KernelOperand> operands;
  ArrayRef<KernelInt> ints;
  ArrayRef<StringLiteral> reals;
  /// If true the integer named `segments` counts triples that follow.
  bool hasSegments;
  /// If true the last operand is there only if the last integer is 1.
  bool lastIsOptional;
  /// Elements (for ElementClass::Any: bytes) that operand `index` needs given
  /// valid `ints`; 0 where any size will do.
  int64_t (*neededElements)(unsigned index, ArrayRef<int64_t> ints);

  /// The number of operands that a call with these integers takes.
  size_t operandCount(ArrayRef<int64_t> intValues) const;
  /// Value of the integer called `name`; nullopt if the kernel has none.
  std::optional<int64_t> getInt(StringRef name,
                                ArrayRef<int64_t> intValues) const;
};

/// The facts about `kernel`.
const KernelInfo &getKernelInfo(Kernel kernel);

} // namespace mlir::grt

#endif // GALVATRON_DIALECT_GRT_IR_KERNELINFO_H
