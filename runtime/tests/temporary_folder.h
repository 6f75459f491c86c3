//===- temporary_folder.h - Where a test program puts its files -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_TEMPORARY_FOLDER_H
#define GRT_TESTS_TEMPORARY_FOLDER_H

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <system_error>

/// A new folder that testing::TempDir() names while the object lives, for this
/// process and those that it starts. It goes with all that tests leave there.
class TemporaryFolder {
public:
  TemporaryFolder() : path(testing::TempDir() + "galvatron-test-XXXXXX") {
    if (mkdtemp(path.data()))
      setenv("TEST_TMPDIR", path.c_str(), /*overwrite=*/1);
    else
      path.clear();
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path.empty())
      std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;

private:
  std::string path;
};

#endif // GRT_TESTS_TEMPORARY_FOLDER_H
