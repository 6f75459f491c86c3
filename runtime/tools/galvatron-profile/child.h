//===- child.h - Another tool as a process of this one ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PROFILE_CHILD_H
#define GALVATRON_PROFILE_CHILD_H

#include <functional>
#include <string>
#include <vector>

namespace grt::profile {

/// The path of a tool in the folder of this one. Throws Error with ExitInvalid
/// if there is none that can be executed.
std::string toolBesideThis(const std::string &name);

struct ChildEnd {
  int exitCode = 0; ///< of one that a signal ended 128 and its number
  std::string said; ///< on standard error
};

/// Runs a program with these arguments, without a shell, until it ends; what it
/// writes to standard output is dropped. Once `ended` says so (it is asked
/// several times a second) the child is told to end, too. Throws Error if it
/// cannot be started.
ChildEnd runChild(const std::string &path,
                  const std::vector<std::string> &arguments,
                  const std::function<bool()> &ended);

} // namespace grt::profile

#endif // GALVATRON_PROFILE_CHILD_H
