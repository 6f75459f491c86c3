//===- library.cpp - Libraries that are loaded at run time ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <sstream>
#include <vector>

namespace grt::cuda {

Library::Library(std::initializer_list<const char *> names) {
  std::vector<std::string> folders = {""};
  if (const char *list = std::getenv("GRT_CUDA_LIBRARIES")) {
    std::istringstream stream(list);
    for (std::string folder; std::getline(stream, folder, ':');)
      folders.push_back(folder + "/");
  }
  folders.push_back("/usr/local/cuda/lib64/");
  std::string tried;
  for (const char *name : names)
    for (const std::string &folder : folders) {
      std::string path = folder + name;
      handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle) {
        loaded = path;
        return;
      }
      tried += (tried.empty() ? "" : ", ") + path;
    }
  const char *why = dlerror();
  throw DeviceError("cannot load " + std::string(*names.begin()) + ": tried " +
                    tried +
                    (why ? " (the last: " + std::string(why) + ")" : "") +
                    "; GRT_CUDA_LIBRARIES may name more folders");
}

void *Library::address(const char *name) const {
  void *found = dlsym(handle, name);
  if (!found)
    throw DeviceError("'" + loaded + "' does not export " + name);
  return found;
}

} // namespace grt::cuda
