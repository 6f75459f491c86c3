//===- WeightsHeader.cpp - Shapes of a model's weights --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WeightsHeader.h"

#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <map>
#include <vector>

using namespace galvatron;
using llvm::StringRef;
using llvm::Twine;

namespace {

std::string weightsBeside(StringRef configFile) {
  llvm::SmallString<128> file(llvm::sys::path::parent_path(configFile));
  llvm::sys::path::append(file, "model.safetensors");
  return file.str().str();
}

/// As long as the format allows a header to be.
constexpr uint64_t kLongestHeader = 100'000'000;

using Shape = std::vector<int64_t>;

struct Tensor {
  std::string name;
  Shape shape;
  double elements = 1;
};

llvm::Expected<std::string> headerOf(StringRef path) {
  auto read = [&](uint64_t size, uint64_t offset)
      -> llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> {
    auto buffer = llvm::MemoryBuffer::getFileSlice(path, size, offset);
    if (!buffer)
      return makeError(path + ": " + buffer.getError().message());
    return std::move(*buffer);
  };
  uint64_t fileSize = 0;
  if (std::error_code code = llvm::sys::fs::file_size(path, fileSize))
    return makeError(path + ": " + code.message());
  if (fileSize < 8)
    return makeError(path + ": expected a safetensors file, found " +
                     Twine(fileSize) + " bytes");
  auto length = read(8, 0);
  if (!length)
    return length.takeError();
  uint64_t size = llvm::support::endian::read64le((*length)->getBufferStart());
  if (size > kLongestHeader || size > fileSize - 8)
    return makeError(path + ": expected a header of at most " +
                     Twine(std::min(kLongestHeader, fileSize - 8)) +
                     " bytes, found " + Twine(size));
  auto header = read(size, 8);
  if (!header)
    return header.takeError();
  return (*header)->getBuffer().str();
}

/// Buffers that old files store among the weights: masks and frequencies.
bool isBuffer(const Tensor &tensor) {
  StringRef name = tensor.name;
  return name.ends_with("inv_freq") || name.ends_with("position_ids") ||
         name.ends_with("masked_bias") ||
         (tensor.shape.size() == 4 && tensor.shape[0] == 1 &&
          tensor.shape[1] == 1);
}

llvm::Expected<std::vector<Tensor>> tensorsOf(StringRef path) {
  llvm::Expected<std::string> text = headerOf(path);
  if (!text)
    return text.takeError();
  llvm::Expected<llvm::json::Value> value = parseJson(*text, path);
  if (!value)
    return value.takeError();
  const llvm::json::Object *object = value->getAsObject();
  if (!object)
    return makeError(path + ": expected a header that is a JSON object");
  std::vector<Tensor> tensors;
  for (const auto &[key, entry] : *object) {
    if (key == "__metadata__")
      continue;
    const llvm::json::Object *fields = entry.getAsObject();
    const llvm::json::Array *shape =
        fields ? fields->getArray("shape") : nullptr;
    auto dtype = fields ? fields->getString("dtype") : std::nullopt;
    if (!shape || !dtype)
      return makeError(path + ": tensor '" + key.str() +
                       "': expected 'dtype' and 'shape'");
    Tensor tensor;
    tensor.name = key.str();
    for (const llvm::json::Value &size : *shape) {
      auto number = size.getAsInteger();
      if (!number || *number < 0)
        return makeError(path + ": tensor '" + tensor.name +
                         "': expected sizes of at least 0");
      tensor.shape.push_back(*number);
      tensor.elements *= double(*number);
    }
    if (isBuffer(tensor))
      continue;
    if (!dtype->starts_with("F") && !dtype->starts_with("BF"))
      return makeError(path + ": tensor '" + tensor.name +
                       "': expected floating-point numbers, found '" + *dtype +
                       "': shapes of packed numbers are not the model's");
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

/// The block that a name belongs to: what stands in front of its first number,
/// and the number; an empty prefix if there is none.
std::pair<StringRef, int64_t> blockOf(StringRef name) {
  for (size_t at = name.find('.'); at != StringRef::npos;
       at = name.find('.', at + 1)) {
    StringRef part = name.drop_front(at + 1).split('.').first;
    int64_t number = 0;
    if (!part.empty() && llvm::all_of(part, llvm::isDigit) &&
        !part.getAsInteger(10, number))
      return {name.take_front(at), number};
  }
  return {"", 0};
}

/// The rows of tables of words: as many as words, or more where they were
/// filled up.
int64_t wordRows(llvm::ArrayRef<Tensor> tensors, int64_t vocabulary) {
  int64_t rows = 0;
  for (const Tensor &tensor : tensors) {
    if (tensor.shape.size() != 2 || !blockOf(tensor.name).first.empty() ||
        tensor.shape[0] < vocabulary || tensor.shape[0] > vocabulary + 1024)
      continue;
    if (!rows || tensor.shape[0] < rows)
      rows = tensor.shape[0];
  }
  return rows;
}

} // namespace

bool galvatron::hasWeightsBeside(StringRef configFile) {
  return configFile != "-" && llvm::sys::fs::exists(weightsBeside(configFile));
}

llvm::Expected<WeightShapes> galvatron::readWeightShapes(StringRef configFile,
                                                         int64_t layers,
                                                         int64_t vocabulary) {
  std::string path = weightsBeside(configFile);
  llvm::Expected<std::vector<Tensor>> tensors = tensorsOf(path);
  if (!tensors)
    return tensors.takeError();

  std::map<StringRef, std::map<int64_t, std::map<StringRef, Shape>>> stacks;
  WeightShapes result;
  result.fileName = path;
  int64_t rows = wordRows(*tensors, vocabulary);
  for (const Tensor &tensor : *tensors) {
    auto [prefix, number] = blockOf(tensor.name);
    if (!prefix.empty()) {
      StringRef rest = StringRef(tensor.name).drop_front(prefix.size() + 1);
      stacks[prefix][number][rest.split('.').second] = tensor.shape;
      continue;
    }
    result.outside += tensor.elements;
    if (tensor.shape.size() == 2 && tensor.shape[0] == rows) {
      ++result.tables;
      result.tableElements = std::max(result.tableElements, tensor.elements);
    }
  }
  if (stacks.size() != 1)
    return makeError(path + ": expected one stack of blocks, found " +
                     Twine(stacks.size()));
  const auto &blocks = stacks.begin()->second;
  if (int64_t(blocks.size()) != layers)
    return makeError(path + ": expected " + Twine(layers) +
                     " blocks as the configuration has, found " +
                     Twine(blocks.size()));
  const std::map<StringRef, Shape> &first = blocks.begin()->second;
  for (const auto &[number, block] : blocks)
    if (block != first)
      return makeError(path +
                       ": expected equal blocks, found tensors of "
                       "other names or shapes in block " +
                       Twine(number));
  for (const auto &[name, shape] : first) {
    double elements = 1;
    for (int64_t size : shape)
      elements *= double(size);
    if (shape.size() > 2)
      return makeError(path +
                       ": expected matrices and vectors in blocks, "
                       "found '" +
                       name + "' of " + Twine(shape.size()) + " dimensions");
    result.blockElements += elements;
    if (shape.size() == 2)
      result.blockProducts += elements;
  }
  return result;
}
