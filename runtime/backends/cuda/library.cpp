//===- library.cpp - Libraries that are loaded at run time ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace grt::cuda {

namespace {

/// "libnccl" of "libnccl.so.2".
std::string stemOf(const std::string &name) {
  return name.substr(0, name.find('.'));
}

/// Whether a path is that of a file which is such a library: "libnccl.so.2.28"
/// and "libnccl-90.so.2" are for "libnccl".
bool isNamedAs(const std::string &path, const std::string &stem) {
  const std::string file = path.substr(path.rfind('/') + 1);
  return file.rfind(stem, 0) == 0 && file.find(".so") != std::string::npos &&
         (file[stem.size()] == '.' || file[stem.size()] == '-');
}

/// Returns the libraries that GRT_CUDA_LIBRARIES names, the most wanted first.
std::vector<std::string> named(std::initializer_list<const char *> names) {
  std::vector<std::string> found;
  const char *list = std::getenv("GRT_CUDA_LIBRARIES");
  std::istringstream stream(list ? list : "");
  for (std::string entry; std::getline(stream, entry, ':');) {
    struct stat state{};
    if (entry.empty() || stat(entry.c_str(), &state) != 0)
      continue;
    if (!S_ISDIR(state.st_mode)) {
      if (isNamedAs(entry, stemOf(*names.begin())))
        found.push_back(entry);
      continue;
    }
    for (const char *name : names)
      if (access((entry + "/" + name).c_str(), F_OK) == 0)
        found.push_back(entry + "/" + name);
  }
  return found;
}

} // namespace

Library::Library(std::initializer_list<const char *> names) {
  auto open = [this](const std::string &path) {
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle)
      loaded = path;
    return handle != nullptr;
  };
  auto why = [] {
    const char *text = dlerror();
    return text ? std::string(text) : "unknown reason";
  };
  if (const std::vector<std::string> wanted = named(names); !wanted.empty()) {
    if (!open(wanted.front()))
      throw DeviceError("cannot load '" + wanted.front() +
                        "', which GRT_CUDA_LIBRARIES names: " + why());
    return;
  }
  std::string tried;
  for (const char *name : names)
    for (const char *folder : {"", "/usr/local/cuda/lib64/"}) {
      const std::string path = std::string(folder) + name;
      if (open(path)) {
        // The map says where the loader found the library.
        if (struct link_map *map = nullptr;
            dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0])
          loaded = map->l_name;
        return;
      }
      tried += (tried.empty() ? "" : ", ") + path;
    }
  throw DeviceError("cannot load " + std::string(*names.begin()) + ": tried " +
                    tried + " (the last: " + why() +
                    "); GRT_CUDA_LIBRARIES may name folders and files");
}

void *Library::addressIfThere(const char *name) const {
  return dlsym(handle, name);
}

void *Library::address(const char *name) const {
  void *found = addressIfThere(name);
  if (!found)
    throw DeviceError("'" + loaded + "' does not export " + name);
  return found;
}

} // namespace grt::cuda
