//===- library.h - Libraries that are loaded at run time ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_LIBRARY_H
#define GRT_BACKENDS_CUDA_LIBRARY_H

#include "gpu.h"

#include <initializer_list>
#include <string>

namespace grt::cuda {

/// A shared library of the system. Stays loaded.
class Library {
public:
  /// Takes what GRT_CUDA_LIBRARIES names before all others: folders, and files
  /// whose names begin as the library's does, separated by colons. Then the
  /// names are tried in their order where the loader looks, and in
  /// /usr/local/cuda/lib64. Throws DeviceError that lists what was tried; a
  /// named library that is there and cannot be loaded is an error, too.
  explicit Library(std::initializer_list<const char *> names);

  /// Sets `function` to what the library exports under that name; throws where
  /// it exports no such thing.
  template <class Function> void find(Function *&function, const char *name) {
    function = reinterpret_cast<Function *>(address(name));
  }
  /// Finds a function, or null where the library does not export it.
  template <class Function>
  void findIfThere(Function *&function, const char *name) {
    function = reinterpret_cast<Function *>(addressIfThere(name));
  }
  const std::string &path() const { return loaded; }

private:
  void *address(const char *name) const;
  void *addressIfThere(const char *name) const;
  void *handle = nullptr;
  std::string loaded;
};

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_LIBRARY_H
