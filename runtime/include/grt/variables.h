//===- variables.h - Variables that libraries read when loaded --*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Some libraries that backends load read a setting from the environment once,
// as they are loaded. The runtime never changes the environment of the process
// that it is in: other threads may read it, and the library may be there
// already. The tools set what is needed before anything else; a program that
// holds sessions of its own sets it, or calls setLibraryVariables(), first
// thing in main().
//
//===----------------------------------------------------------------------===//

#ifndef GRT_VARIABLES_H
#define GRT_VARIABLES_H

#include "grt/launcher.h"

#include <cstdlib>
#include <string>
#include <vector>

namespace grt {

struct LibraryVariable {
  const char *name, *value;
  const char *backend; ///< that loads the library
  /// Cost of going without, as the end of a sentence about the library.
  const char *cost;
};

/// Returns the variables that are not set, nor another that says the same, in
/// the environment (of this process, if none is given).
std::vector<LibraryVariable>
missingLibraryVariables(const Environment &environment = {});

/// Sets them. Not thread-safe, as setenv() is not. Code of whoever calls it:
/// the library has none that changes an environment.
inline void setLibraryVariables() {
  for (const LibraryVariable &variable : missingLibraryVariables())
    setenv(variable.name, variable.value, /*overwrite=*/0);
}

} // namespace grt

#endif // GRT_VARIABLES_H
