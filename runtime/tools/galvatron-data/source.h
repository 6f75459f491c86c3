//===- source.h - Files of text and their documents -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DATA_SOURCE_H
#define GALVATRON_DATA_SOURCE_H

#include "options.h"

#include <functional>
#include <memory>
#include <string_view>

namespace grt::data {

/// A file of text, mapped.
class TextFile {
public:
  explicit TextFile(const std::string &path);
  ~TextFile();
  TextFile(const TextFile &) = delete;
  TextFile &operator=(const TextFile &) = delete;

  const std::string &name() const { return path; }
  std::string_view text() const { return {data, bytes}; }

private:
  std::string path;
  const char *data = nullptr;
  size_t bytes = 0;
};

/// What one thread encodes at once: whole lines of a file, or a part of the one
/// document that a file is.
struct Unit {
  std::shared_ptr<const TextFile> file;
  Documents documents = Documents::File;
  size_t begin = 0, end = 0;
  /// Of a file that is one document: whether it ends here, and whether it is
  /// cut at all.
  bool isLast = true, isPart = false;
};

/// Cuts a file into units of about a MiB. Of a file that is one document only
/// if it `hasParts`. Throws if it is no UTF-8.
std::vector<Unit> unitsOf(std::shared_ptr<const TextFile> file,
                          Documents documents, bool hasParts);

/// Calls `use` with every document of lines, and where in the file it begins.
/// Empty lines are none.
void eachLine(const Unit &unit,
              const std::function<void(std::string_view line, size_t at)> &use);

/// The text of a line of JSON.
std::string textOfJson(const Unit &unit, std::string_view line, size_t at,
                       const std::string &key);

} // namespace grt::data

#endif // GALVATRON_DATA_SOURCE_H
