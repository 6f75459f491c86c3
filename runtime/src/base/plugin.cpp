//===- plugin.cpp - Libraries that are loaded when asked for --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/plugin.h"
#include "base/error.h"
#include "grt/session.h"

#include <dlfcn.h>

namespace grt {
namespace {

/// The folder of the library that this code is in.
std::string ownFolder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void *>(&version), &info) || !info.dli_fname)
    return "";
  std::string path = info.dli_fname;
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

} // namespace

void *loadPlugin(const std::string &name, const char *symbol,
                 const std::string &folder, const std::string &purpose) {
  std::string file = "libgrt_" + name + ".so";
  std::string beside = folder.empty() ? ownFolder() : folder;
  std::string problem;
  void *library = nullptr;
  for (const std::string &path : {beside + "/" + file, file}) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library)
      break;
    if (problem.empty())
      problem = dlerror();
    if (!folder.empty())
      break;
  }
  if (!library && access((beside + "/" + file).c_str(), F_OK) != 0)
    fail(purpose + ": expected the plug-in '" + file + "' in '" + beside +
         "', found none: 'ninja -C build' builds all that this machine has "
         "libraries for, scripts/demo a part");
  if (!library)
    fail(purpose + ": " + problem);
  void *address = dlsym(library, symbol);
  if (!address)
    fail(purpose + ": '" + file + "' exports no '" + symbol + "'");
  return address;
}

} // namespace grt
