//===- safetensors.h - Writing safetensors files --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CHECKPOINT_SAFETENSORS_H
#define GRT_CHECKPOINT_SAFETENSORS_H

#include "grt/abi.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace grt {

/// A file that appears whole or not at all: written beside its place, flushed
/// to the disk, then renamed. Errors throw Error with exit code 1.
class AtomicFile {
public:
  explicit AtomicFile(const std::string &path);
  ~AtomicFile();
  AtomicFile(const AtomicFile &) = delete;
  AtomicFile &operator=(const AtomicFile &) = delete;

  void write(std::string_view bytes);
  void commit();

private:
  [[noreturn]] void failed(const char *what);

  std::string path, temporary;
  int descriptor = -1;
};

struct TensorEntry {
  std::string name;
  grt_dtype dtype;
  std::vector<int64_t> shape;
};

/// Writes a safetensors file (8 bytes of header length, little endian; a JSON
/// header padded with spaces to 8 bytes; the tensors in order). `data(i)` gives
/// the bytes of entry i; one tensor is in memory at a time.
void writeSafetensors(const std::string &path,
                      const std::vector<TensorEntry> &entries,
                      const std::function<std::vector<char>(size_t)> &data);

/// Creates a directory and its parents.
void makeDirectory(const std::string &path);

} // namespace grt

#endif // GRT_CHECKPOINT_SAFETENSORS_H
