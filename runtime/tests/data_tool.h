//===- data_tool.h - galvatron-data as tests call it ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_DATA_TOOL_H
#define GRT_TESTS_DATA_TOOL_H

#include "tool.h"

namespace grt::test {

inline const std::string gpt2 = TOKENIZERS "/gpt2.json";

inline Result dataTool(const std::string &arguments) {
  return runTool(arguments, "2>&1", GALVATRON_DATA);
}

/// A folder that is not there yet.
inline std::string newFolder(const std::string &name) {
  std::string path = folder() + "/" + name;
  std::filesystem::remove_all(path);
  return path;
}

} // namespace grt::test

#endif // GRT_TESTS_DATA_TOOL_H
