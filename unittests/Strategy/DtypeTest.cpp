//===- DtypeTest.cpp - Names of element types -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/Dtype.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

TEST(Dtype, known_names_have_bytes_and_a_stored_type) {
  struct Known {
    const char *name;
    int64_t bytes;
    const char *stored;
    bool executed;
  };
  for (const Known &known : {Known{"f32", 4, "f32", true},
                             {"tf32", 4, "f32", false},
                             {"f16", 2, "bf16", false},
                             {"bf16", 2, "bf16", true},
                             {"f64", 8, "f64", true}}) {
    SCOPED_TRACE(known.name);
    EXPECT_EQ(llvm::cantFail(elementBytes(known.name)), known.bytes);
    EXPECT_EQ(storedAs(known.name).str(), known.stored);
    EXPECT_TRUE(isPlannedDtype(known.name));
    EXPECT_EQ(isExecutedDtype(known.name), known.executed);
    EXPECT_EQ(isHalf(known.name), known.bytes == 2);
  }
}

TEST(Dtype, unknown_names_are_refused_by_name) {
  for (const char *name : {"f8E4M3FN", "i1", "i32", ""}) {
    llvm::Expected<int64_t> bytes = elementBytes(name);
    ASSERT_FALSE(bool(bytes)) << name;
    EXPECT_EQ(llvm::toString(bytes.takeError()),
              "expected an element type 'f32', 'tf32', 'f16', 'bf16' or 'f64', "
              "found '" +
                  std::string(name) + "'");
    EXPECT_FALSE(isPlannedDtype(name));
    EXPECT_FALSE(isExecutedDtype(name));
    EXPECT_FALSE(isHalf(name));
  }
}

} // namespace
