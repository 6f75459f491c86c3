//===- safetensors.h - Reading and writing safetensors files --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A safetensors file is 8 bytes of header length (little endian), a JSON header
// padded with spaces to a multiple of 8 bytes, and the tensors, row-major and
// little endian, one after the other without gaps.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CHECKPOINT_SAFETENSORS_H
#define GRT_CHECKPOINT_SAFETENSORS_H

#include "base/files.h"
#include "grt/abi.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace grt {

struct TensorEntry {
  std::string name;
  grt_dtype dtype;
  std::vector<int64_t> shape;

  uint64_t bytes() const;
};

/// "[2, 3]", for messages.
std::string shapeText(const std::vector<int64_t> &shape);

/// Length, header and padding of a file with these tensors in this order;
/// `offsets[i]` is the byte of the file where tensor i begins, and one more is
/// the size of the file.
std::string safetensorsHeader(const std::vector<TensorEntry> &entries,
                              std::vector<uint64_t> &offsets);

/// Writes a safetensors file. `data(i)` gives the bytes of entry i; one tensor
/// is in memory at a time.
void writeSafetensors(const std::string &path,
                      const std::vector<TensorEntry> &entries,
                      const std::function<std::vector<char>(size_t)> &data);

/// A tensor of a file that is read.
struct StoredTensor {
  std::string dtype; ///< as in the header: "F32"
  std::vector<int64_t> shape;
  uint64_t offset = 0, bytes = 0; ///< in the file
};

/// A safetensors file whose header was checked: tensors lie in the file, have
/// the size their shape and type say, and cover the data without gaps or
/// overlaps. Errors have exit code 2 and name the file and the tensor.
class SafetensorsFile {
public:
  explicit SafetensorsFile(const std::string &path);

  const std::map<std::string, StoredTensor> &tensors() const { return table; }
  const File &file() const { return opened; }
  File take() { return std::move(opened); }
  /// Length, header and padding as they stand in the file.
  const std::string &header() const { return headerBytes; }

private:
  File opened;
  std::string headerBytes;
  std::map<std::string, StoredTensor> table;
};

/// The header alone, of a file of `fileBytes` bytes that begins with `bytes`;
/// `name` is used in messages. Throws as SafetensorsFile does.
std::map<std::string, StoredTensor>
parseSafetensorsHeader(std::string_view bytes, uint64_t fileBytes,
                       const std::string &name);

/// The header's name of an element type of programs ("F32"), and its size for
/// all that safetensors knows (0: unknown).
const char *safetensorsType(grt_dtype dtype);
uint64_t safetensorsTypeBytes(std::string_view type);

/// True if every value of a stored type is a value of the program's type, so
/// that reading loses nothing.
bool widensTo(std::string_view type, grt_dtype dtype);
/// Converts `count` values of F16, BF16, F32 or F64, rounding where it must.
void convertStored(std::string_view type, const void *from, int64_t count,
                   grt_dtype dtype, void *to);

} // namespace grt

#endif // GRT_CHECKPOINT_SAFETENSORS_H
