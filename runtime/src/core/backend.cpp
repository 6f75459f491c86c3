//===- backend.cpp - Loading a backend ------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "base/plugin.h"
#include "core/run_state.h"

namespace grt {
namespace {

const grt_backend &loadTable(const std::string &name,
                             const std::string &folder) {
  for (char c : name)
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9'))
      invalid("backend '" + name + "': expected letters and digits");
  using Getter = const grt_backend *();
  auto *get = reinterpret_cast<Getter *>(loadPlugin(
      name, "grt_backend_get", folder, "cannot load backend '" + name + "'"));
  const grt_backend *table = get();
  if (!table)
    fail("backend '" + name + "' exports no table");
  return *table;
}

} // namespace

BackendHandle::BackendHandle(const std::string &name, const std::string &folder)
    : table(loadTable(name, folder)) {}

} // namespace grt
