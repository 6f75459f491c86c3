//===- OutputFileTest.cpp - Files that tools write ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/OutputFile.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

std::string inFolder(const std::string &name) {
  llvm::SmallString<128> path(testing::TempDir());
  llvm::sys::path::append(path, name);
  return path.str().str();
}

std::string contentOf(const std::string &path) {
  auto file = llvm::MemoryBuffer::getFile(path);
  return file ? (*file)->getBuffer().str() : "cannot be read";
}

TEST(OutputFile, whole_files_replace_others_and_keep_their_permissions) {
  std::string path = inFolder("galvatron-output-whole");
  ASSERT_FALSE(writeWhole(path, "first"));
  using llvm::sys::fs::perms;
  ASSERT_FALSE(llvm::sys::fs::setPermissions(path, perms::owner_read |
                                                       perms::owner_write));
  ASSERT_FALSE(writeWhole(path, "second"));
  EXPECT_EQ(contentOf(path), "second");
  EXPECT_EQ(*llvm::sys::fs::getPermissions(path),
            perms::owner_read | perms::owner_write);
  llvm::sys::fs::remove(path);
}

/// A name that is as long as names may be has no room for that of another file
/// beside it.
TEST(OutputFile, what_cannot_have_another_file_beside_it_is_written_in_place) {
  std::string path = inFolder(std::string(250, 'n'));
  TemporaryFile beside;
  ASSERT_TRUE(beside.create(path, ".tmp"));
  ASSERT_FALSE(writeWhole(path, "first"));
  ASSERT_FALSE(writeWhole(path, "second"));
  EXPECT_EQ(contentOf(path), "second");
  llvm::sys::fs::remove(path);
}

} // namespace
