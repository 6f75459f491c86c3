//===- UnitsTest.cpp - Quantities -----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/Units.h"
#include "galvatron/Support/Hash.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

template <typename T> std::string messageOf(llvm::Expected<T> value) {
  if (value)
    return "no error";
  return llvm::toString(value.takeError());
}

TEST(Units, quantities_are_read) {
  EXPECT_EQ(llvm::cantFail(parseBytes("24GiB")), int64_t(24) << 30);
  EXPECT_EQ(llvm::cantFail(parseBytes("1.5 GB")), 1500000000);
  EXPECT_EQ(llvm::cantFail(parseBytes("64B")), 64);
  EXPECT_EQ(llvm::cantFail(parseBytes("1e3MB")), 1000000000);
  EXPECT_DOUBLE_EQ(llvm::cantFail(parseBandwidth("12.5GB/s")), 12.5e9);
  EXPECT_DOUBLE_EQ(llvm::cantFail(parseSeconds("10us")), 10e-6);
  EXPECT_DOUBLE_EQ(llvm::cantFail(parseFlops("16.3TFLOPS")), 16.3e12);
}

TEST(Units, a_bare_number_is_an_error) {
  EXPECT_EQ(messageOf(parseBytes("24")),
            "expected a number of bytes with a unit, like '24GiB', found the "
            "bare number '24'");
  EXPECT_NE(messageOf(parseBandwidth("3.5")).find("bare number"),
            std::string::npos);
}

TEST(Units, wrong_quantities_are_refused) {
  for (const char *text :
       {"", "GiB", "-3GiB", "3 GiBs", "1.2.3GB", "nanGB", "3GB/s", "1e30GiB"})
    EXPECT_NE(messageOf(parseBytes(text)), "no error") << text;
  EXPECT_NE(messageOf(parseSeconds("10")).find("unit"), std::string::npos);
  EXPECT_NE(messageOf(parseFlops("3TFLOP")).find("unknown unit 'TFLOP'"),
            std::string::npos);
}

TEST(Units, printed_values_read_back) {
  for (int64_t bytes : {int64_t(0), int64_t(1), int64_t(1536), int64_t(3) << 40,
                        int64_t(123456789)})
    EXPECT_EQ(llvm::cantFail(parseBytes(printBytes(bytes))), bytes);
  for (double value : {0.0, 1.0, 3.1e9, 12.5e9, 1.0 / 3, 123456789.25, 9e12}) {
    EXPECT_EQ(llvm::cantFail(parseBandwidth(printBandwidth(value))), value);
    EXPECT_EQ(llvm::cantFail(parseFlops(printFlops(value))), value);
  }
  for (double value : {0.0, 1e-6, 15e-6, 2e-9, 0.1, 3.0, 7.3e-5})
    EXPECT_EQ(llvm::cantFail(parseSeconds(printSeconds(value))), value);
  EXPECT_EQ(printBytes(int64_t(24) << 30), "24GiB");
  EXPECT_EQ(printBandwidth(12.5e9), "12.5GB/s");
  EXPECT_EQ(printSeconds(15e-6), "15us");
  EXPECT_EQ(printFlops(16.3e12), "16.3TFLOPS");
  EXPECT_EQ(printBytesRounded(8493465600), "7.91 GiB");
  EXPECT_EQ(printCountRounded(950), "950");
  EXPECT_EQ(printCountRounded(65900), "65.9k");
  EXPECT_EQ(printCountRounded(1.3e9), "1.30B");
  EXPECT_EQ(printCountRounded(2e15), "2000T");
  EXPECT_EQ(printFlopsRounded(12.34e12), "12.3 TFLOP/s");
}

TEST(Units, hash_is_that_of_sha256) {
  EXPECT_EQ(contentHash("abc"), "ba7816bf8f01cfea");
}

} // namespace
