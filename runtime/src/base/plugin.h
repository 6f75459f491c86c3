//===- plugin.h - Libraries that are loaded when asked for ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_PLUGIN_H
#define GRT_BASE_PLUGIN_H

#include <string>

namespace grt {

/// The address of `symbol` in `libgrt_<name>.so`, which stands in `folder`, or,
/// if that is empty, beside this library or on the system's search path. It is
/// never unloaded: threads that it started may outlive what asked for it.
/// Throws Error that begins with `purpose`.
void *loadPlugin(const std::string &name, const char *symbol,
                 const std::string &folder, const std::string &purpose);

} // namespace grt

#endif // GRT_BASE_PLUGIN_H
