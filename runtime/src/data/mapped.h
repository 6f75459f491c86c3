//===- mapped.h - Files in memory -------------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_DATA_MAPPED_H
#define GRT_DATA_MAPPED_H

#include <cstdint>
#include <string>
#include <string_view>

namespace grt {

/// A regular file that is not empty, mapped; pages come when they are read.
/// What cannot be opened throws an Error that names it.
class MappedFile {
public:
  /// `kind`: what errors call it, "data file".
  MappedFile(const std::string &path, const char *kind);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  std::string_view bytes() const { return {data, size}; }
  /// Throws if the file changed its size since: what is gone cannot be read.
  void checkSize() const;

private:
  std::string path, kind;
  int descriptor = -1;
  const char *data = nullptr;
  uint64_t size = 0;
};

} // namespace grt

#endif // GRT_DATA_MAPPED_H
