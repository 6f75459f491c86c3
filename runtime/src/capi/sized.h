//===- sized.h - Structures of the C interface ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A structure begins with the size that its user was compiled with, so that it
// can grow: see grt/c_api.h.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CAPI_SIZED_H
#define GRT_CAPI_SIZED_H

#include "base/error.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace grt {

/// Throws Error (2) where there is no structure, or its size cannot be one.
template <typename T> void checkSized(const T *structure, const char *name) {
  if (!structure)
    invalid(std::string(name) + ": expected a structure, found null");
  if (structure->size < sizeof(structure->size))
    invalid(std::string(name) + ": expected its size in 'size', found " +
            str(structure->size));
}

/// Returns the fields that a caller has given, with those of `otherwise` for
/// the fields that its version of the struct lacks.
template <typename T>
T readSized(const T *from, const char *name, T otherwise = T()) {
  checkSized(from, name);
  const char *bytes = reinterpret_cast<const char *>(from);
  if (from->size > sizeof(T) &&
      std::any_of(bytes + sizeof(T), bytes + from->size,
                  [](char byte) { return byte != 0; }))
    invalid(std::string(name) + ": has fields that this library, which knows " +
            str(sizeof(T)) + " bytes of it, lacks: expected zeros there");
  std::memcpy(static_cast<void *>(&otherwise), from,
              std::min(from->size, sizeof(T)));
  otherwise.size = sizeof(T);
  return otherwise;
}

/// Gives a caller what it has room for.
template <typename T> void writeSized(T *to, T value, const char *name) {
  checkSized(to, name);
  const size_t size = to->size;
  value.size = size;
  std::memcpy(static_cast<void *>(to), &value, std::min(size, sizeof(T)));
  if (size > sizeof(T))
    std::memset(reinterpret_cast<char *>(to) + sizeof(T), 0, size - sizeof(T));
}

} // namespace grt

#endif // GRT_CAPI_SIZED_H
