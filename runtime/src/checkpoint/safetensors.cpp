//===- safetensors.cpp - Reading and writing safetensors files ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checkpoint/safetensors.h"
#include "base/error.h"
#include "core/init.h"
#include "core/manifest.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

namespace grt {
namespace {

constexpr uint64_t lengthBytes = 8;
/// Most bytes of a header, as in the reference implementation.
constexpr uint64_t largestHeader = 100'000'000;

uint64_t readLength(std::string_view bytes) {
  uint64_t length = 0;
  for (uint64_t i = 0; i < lengthBytes; ++i)
    length |= uint64_t(uint8_t(bytes[i])) << (8 * i);
  return length;
}

/// A non-negative integer, or false.
bool natural(const nlohmann::json &value, uint64_t &number) {
  if (!value.is_number_unsigned())
    return false;
  number = value.get<uint64_t>();
  return true;
}

StoredTensor parseTensor(const nlohmann::json &entry, const std::string &where,
                         uint64_t dataBegin, uint64_t dataBytes) {
  if (!entry.is_object() || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets"))
    invalid(where + "expected 'dtype', 'shape' and 'data_offsets'");
  StoredTensor tensor;
  if (!entry["dtype"].is_string())
    invalid(where + "expected 'dtype' to be a string");
  tensor.dtype = entry["dtype"].get<std::string>();
  uint64_t expected = safetensorsTypeBytes(tensor.dtype);
  if (!expected)
    invalid(where + "unknown dtype '" + tensor.dtype + "'");
  if (!entry["shape"].is_array())
    invalid(where + "expected 'shape' to be a list");
  for (const nlohmann::json &dim : entry["shape"]) {
    uint64_t size = 0;
    if (!natural(dim, size) || size > uint64_t(INT64_MAX) ||
        __builtin_mul_overflow(expected, size, &expected))
      invalid(where + "expected 'shape' to hold natural numbers whose product "
                      "fits 64 bits");
    tensor.shape.push_back(int64_t(size));
  }
  const nlohmann::json &range = entry["data_offsets"];
  uint64_t begin = 0, end = 0;
  if (!range.is_array() || range.size() != 2 || !natural(range[0], begin) ||
      !natural(range[1], end) || begin > end)
    invalid(where + "expected 'data_offsets' to be [begin, end]");
  if (end > dataBytes)
    invalid(where + "its data ends at byte " + std::to_string(end) +
            " of the data, which has " + std::to_string(dataBytes) +
            "; the file is cut short or damaged");
  tensor.bytes = end - begin;
  tensor.offset = dataBegin + begin;
  if (tensor.bytes != expected)
    invalid(where + "shape " + shapeText(tensor.shape) + " of " + tensor.dtype +
            " takes " + std::to_string(expected) + " bytes, found " +
            std::to_string(tensor.bytes));
  return tensor;
}

/// The header as JSON. What readers would take in different ways is refused:
/// a name that stands twice, notes that are no strings, and bytes other than
/// spaces around the object.
nlohmann::json parseHeader(std::string_view text, const std::string &where) {
  size_t last = text.find_last_not_of(' ');
  if (text.starts_with('{') && text[last] != '}')
    invalid(where +
            "expected its header to be a JSON object with nothing but "
            "spaces behind it, found byte " +
            std::to_string(uint8_t(text[last])));
  std::vector<std::set<std::string>> open;
  std::string twice;
  auto look = [&](int, nlohmann::json::parse_event_t event,
                  nlohmann::json &parsed) {
    if (event == nlohmann::json::parse_event_t::object_start)
      open.emplace_back();
    else if (event == nlohmann::json::parse_event_t::object_end)
      open.pop_back();
    else if (event == nlohmann::json::parse_event_t::key &&
             !open.back().insert(parsed.get<std::string>()).second &&
             twice.empty())
      twice = parsed.get<std::string>();
    return true;
  };
  nlohmann::json header =
      nlohmann::json::parse(text, look, /*allow_exceptions=*/false);
  if (!header.is_object() || !text.starts_with('{'))
    invalid(where + "its header is not a JSON object");
  if (!twice.empty())
    invalid(where + "'" + twice + "' stands twice in its header");
  auto notes = header.find("__metadata__");
  if (notes == header.end())
    return header;
  if (!notes->is_object())
    invalid(where + "expected '__metadata__' to be an object of strings");
  for (const auto &[key, note] : notes->items())
    if (!note.is_string())
      invalid(where + "'__metadata__', '" + key +
              "': expected a string, found " + note.dump().substr(0, 40));
  return header;
}

float halfToFloat(uint16_t half) {
  uint32_t sign = uint32_t(half & 0x8000) << 16;
  uint32_t exponent = (half >> 10) & 31, fraction = half & 1023;
  if (exponent == 31)
    return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent)
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  float value = float(fraction) * 0x1p-24f;
  return sign ? -value : value;
}

} // namespace

uint64_t TensorEntry::bytes() const {
  uint64_t total = dtypeBytes(dtype);
  for (int64_t dim : shape)
    total *= uint64_t(dim);
  return total;
}

const char *safetensorsType(grt_dtype dtype) {
  switch (dtype) {
  case GRT_F64:
    return "F64";
  case GRT_F32:
    return "F32";
  case GRT_BF16:
    return "BF16";
  default: // Checkpoints hold no others.
    fail(std::string("expected tensors of f64, f32 or bf16, found ") +
         dtypeName(dtype));
  }
}

uint64_t safetensorsTypeBytes(std::string_view type) {
  static const std::pair<std::string_view, uint64_t> sizes[] = {
      {"BOOL", 1},    {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"U16", 2},
      {"F8_E4M3", 1}, {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
      {"I32", 4},     {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  for (const auto &[name, bytes] : sizes)
    if (name == type)
      return bytes;
  return 0;
}

bool widensTo(std::string_view type, grt_dtype dtype) {
  if (type == safetensorsType(dtype))
    return true;
  bool half = type == "F16" || type == "BF16";
  return dtype == GRT_F64   ? half || type == "F32"
         : dtype == GRT_F32 ? half
                            : false;
}

void convertStored(std::string_view type, const void *from, int64_t count,
                   grt_dtype dtype, void *to) {
  constexpr int64_t block = 256;
  double values[block];
  const char *source = static_cast<const char *>(from);
  char *target = static_cast<char *>(to);
  uint64_t width = safetensorsTypeBytes(type);
  for (int64_t done = 0; done < count; done += block) {
    int64_t n = std::min(block, count - done);
    const char *at = source + uint64_t(done) * width;
    if (type == "F16")
      for (int64_t i = 0; i < n; ++i) {
        uint16_t half;
        std::memcpy(&half, at + 2 * i, sizeof(half));
        values[i] = halfToFloat(half);
      }
    else
      loadValues(at, n,
                 type == "F64"    ? GRT_F64
                 : type == "BF16" ? GRT_BF16
                                  : GRT_F32,
                 values);
    storeValues(values, n, dtype, target + uint64_t(done) * dtypeBytes(dtype));
  }
}

std::string shapeText(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string safetensorsHeader(const std::vector<TensorEntry> &entries,
                              std::vector<uint64_t> &offsets) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t offset = 0;
  offsets.clear();
  for (const TensorEntry &entry : entries) {
    offsets.push_back(offset);
    header[entry.name] = {{"dtype", safetensorsType(entry.dtype)},
                          {"shape", entry.shape},
                          {"data_offsets", {offset, offset + entry.bytes()}}};
    offset += entry.bytes();
  }
  offsets.push_back(offset);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string bytes(lengthBytes, '\0');
  for (uint64_t i = 0; i < lengthBytes; ++i)
    bytes[i] = char(uint64_t(text.size()) >> (8 * i));
  bytes += text;
  for (uint64_t &place : offsets)
    place += bytes.size();
  return bytes;
}

void writeSafetensors(const std::string &path,
                      const std::vector<TensorEntry> &entries,
                      const std::function<std::vector<char>(size_t)> &data) {
  std::vector<uint64_t> offsets;
  AtomicFile file(path);
  file.write(safetensorsHeader(entries, offsets));
  for (size_t i = 0; i < entries.size(); ++i) {
    std::vector<char> bytes = data(i);
    if (bytes.size() != entries[i].bytes())
      fail("'" + entries[i].name + "' has " + std::to_string(bytes.size()) +
           " bytes, expected " + std::to_string(entries[i].bytes()));
    file.write({bytes.data(), bytes.size()});
  }
  file.commit();
}

std::map<std::string, StoredTensor>
parseSafetensorsHeader(std::string_view bytes, uint64_t fileBytes,
                       const std::string &name) {
  std::string where = "'" + name + "': ";
  if (bytes.size() < lengthBytes)
    invalid(where + "expected a safetensors file, found " +
            std::to_string(bytes.size()) + " bytes");
  uint64_t length = readLength(bytes);
  if (length > largestHeader || length > fileBytes - lengthBytes)
    invalid(where + "expected a safetensors file; its header of " +
            std::to_string(length) + " bytes does not fit into " +
            std::to_string(fileBytes) +
            " bytes: cut short, or not safetensors at all");
  if (bytes.size() < lengthBytes + length)
    invalid(where + "the header is cut short");
  nlohmann::json header = parseHeader(bytes.substr(lengthBytes, length), where);

  std::map<std::string, StoredTensor> tensors;
  uint64_t dataBegin = lengthBytes + length;
  std::vector<std::pair<const StoredTensor *, const std::string *>> order;
  for (const auto &[key, entry] : header.items()) {
    if (key == "__metadata__")
      continue;
    auto it =
        tensors
            .emplace(key, parseTensor(entry, where + "tensor '" + key + "': ",
                                      dataBegin, fileBytes - dataBegin))
            .first;
    order.emplace_back(&it->second, &it->first);
  }
  std::sort(order.begin(), order.end(), [](const auto &a, const auto &b) {
    return std::pair(a.first->offset, a.first->bytes) <
           std::pair(b.first->offset, b.first->bytes);
  });
  uint64_t at = dataBegin;
  for (const auto &[tensor, key] : order) {
    if (tensor->offset != at)
      invalid(where + "tensor '" + *key + "' begins at byte " +
              std::to_string(tensor->offset) + ", expected " +
              std::to_string(at));
    at += tensor->bytes;
  }
  if (at != fileBytes)
    invalid(where + "tensors end at byte " + std::to_string(at) +
            ", the file has " + std::to_string(fileBytes) + " bytes");
  return tensors;
}

SafetensorsFile::SafetensorsFile(const std::string &path)
    : opened(File::openToRead(path)) {
  uint64_t size = opened.bytes();
  headerBytes.resize(std::min(size, lengthBytes));
  opened.readAt(0, headerBytes.data(), headerBytes.size());
  if (headerBytes.size() == lengthBytes) {
    uint64_t length = readLength(headerBytes);
    // A header that is too long is refused below, unread.
    if (length <= largestHeader && length <= size - lengthBytes) {
      headerBytes.resize(lengthBytes + length);
      opened.readAt(lengthBytes, headerBytes.data() + lengthBytes, length);
    }
  }
  table = parseSafetensorsHeader(headerBytes, size, path);
}

} // namespace grt
