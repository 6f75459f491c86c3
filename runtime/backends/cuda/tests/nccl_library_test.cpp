//===- nccl_library_test.cpp - Which NCCL is taken ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The loader of this program finds the stand-in of NCCL 2.30.7; another, of
// 2.18.1 and without what came later, stands in a folder beside it.
//
//===----------------------------------------------------------------------===//

#include "nccl_library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace grt::cuda;

namespace {

const std::string oldFile = OLD_NCCL "/libnccl.so.2";

class NcclLibraryTest : public testing::Test {
protected:
  ~NcclLibraryTest() override {
    unsetenv("GRT_CUDA_LIBRARIES");
    unsetenv("GRT_FAKE_NCCL_VERSION");
  }
  /// Its name, or why there is none.
  static std::string taken(const std::string &named) {
    setenv("GRT_CUDA_LIBRARIES", named.c_str(), 1);
    try {
      return NcclLibrary().name;
    } catch (const DeviceError &error) {
      return error.what();
    }
  }
};

TEST_F(NcclLibraryTest, TheLoadersWhereNoneIsNamed) {
  const std::string expected = "NCCL 2.30.7 of '" FAKES "/libnccl.so.2'";
  EXPECT_EQ(taken(""), expected);
  // Folders that lack it, and files of other libraries, name none.
  EXPECT_EQ(taken("/nowhere:/usr/include:" FAKES "/libcudart.so.13"), expected);
}

TEST_F(NcclLibraryTest, ANamedOneGoesBeforeTheLoaders) {
  const std::string expected = "NCCL 2.18.1 of '" + oldFile + "'";
  EXPECT_EQ(taken("/nowhere:" OLD_NCCL), expected);
  EXPECT_EQ(taken(oldFile), expected);
  EXPECT_EQ(taken(oldFile + ":" FAKES), expected);
  const std::string other = testing::TempDir() + "libnccl-90.so.2";
  unlink(other.c_str());
  ASSERT_EQ(symlink(oldFile.c_str(), other.c_str()), 0);
  EXPECT_EQ(taken(other), "NCCL 2.18.1 of '" + other + "'");
  unlink(other.c_str());
}

TEST_F(NcclLibraryTest, ANamedOneThatCannotBeLoadedIsAnError) {
  const std::string folder = testing::TempDir() + "grt-broken-nccl";
  mkdir(folder.c_str(), 0700);
  const std::string file = folder + "/libnccl.so.2";
  std::ofstream(file) << "no library";
  EXPECT_EQ(taken(folder).rfind("cannot load '" + file +
                                    "', which GRT_CUDA_LIBRARIES names: ",
                                0),
            0u)
      << taken(folder);
  unlink(file.c_str());
  rmdir(folder.c_str());
}

/// The portable form is there for those that lack it.
TEST_F(NcclLibraryTest, AnAllToAllIsTakenWhereThereIsOne) {
  setenv("GRT_CUDA_LIBRARIES", "", 1);
  EXPECT_NE(NcclLibrary().allToAll, nullptr);
  setenv("GRT_CUDA_LIBRARIES", OLD_NCCL, 1);
  EXPECT_EQ(NcclLibrary().allToAll, nullptr);
}

TEST_F(NcclLibraryTest, OlderOnesAreRefused) {
  setenv("GRT_FAKE_NCCL_VERSION", "21701", 1);
  EXPECT_EQ(taken(oldFile), "found NCCL 2.17.1 of '" + oldFile +
                                "', expected 2.18 or later; "
                                "GRT_CUDA_LIBRARIES may name another");
  setenv("GRT_FAKE_NCCL_VERSION", "2804", 1);
  EXPECT_EQ(taken(oldFile).rfind("found NCCL 2.8.4 of ", 0), 0u);
}

} // namespace
