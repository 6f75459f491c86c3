//===- npy.h - Headers of NumPy's array files -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_DATA_NPY_H
#define GRT_DATA_NPY_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace grt {

/// Element type and shape in the header of a `.npy` file (NumPy's format,
/// versions 1 to 3).
struct NpyHeader {
  char kind = 'f';    ///< 'f' floating, 'i' signed, 'u' unsigned, 'b' boolean
  uint64_t width = 4; ///< bytes of an element
  std::vector<int64_t> shape;
  uint64_t dataOffset = 0; ///< where the elements begin

  /// NumPy's name of the element type, such as "f4".
  std::string typeName() const { return kind + std::to_string(width); }
};

/// Reads the header at the beginning of a file's `bytes`. What is no header, or
/// one of an array that is not taken (another byte order, columns first,
/// elements that are no plain numbers), throws with what was expected and what
/// was found, behind `name`, and the byte where it was.
NpyHeader parseNpyHeader(std::string_view bytes, const std::string &name);

} // namespace grt

#endif // GRT_DATA_NPY_H
