//===- files.h - Files in tests -------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_FILES_H
#define GRT_TESTS_FILES_H

#include <fstream>
#include <iterator>
#include <string>

/// The bytes of a file; none if it cannot be read.
inline std::string readAll(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

#endif // GRT_TESTS_FILES_H
