//===- source.cpp - Files of text and their documents ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "source.h"
#include "core/error.h"
#include "grt/tokenizer.h"
#include "text/unicode.h"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace grt::data {

TextFile::TextFile(const std::string &name) : path(name) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (descriptor < 0 || fstat(descriptor, &status) != 0) {
    int error = errno;
    if (descriptor >= 0)
      close(descriptor);
    fail(codeOfPath(error),
         "cannot open text file '" + path + "': " + strerror(error));
  }
  bool isRegular = S_ISREG(status.st_mode);
  bytes = isRegular ? size_t(status.st_size) : 0;
  void *mapped = nullptr;
  if (bytes)
    mapped = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  close(descriptor);
  if (!isRegular)
    invalid("text file '" + path + "' is not a regular file");
  if (bytes == 0)
    invalid("text file '" + path + "' is empty");
  if (mapped == MAP_FAILED)
    fail(ExitMemory, "cannot map text file '" + path + "'");
  data = static_cast<const char *>(mapped);
}

TextFile::~TextFile() { munmap(const_cast<char *>(data), bytes); }

/// Bytes of a unit: enough that threads rarely wait, and little memory.
static constexpr size_t unitBytes = 1 << 20;

static void checkUtf8(const TextFile &file) {
  size_t at = text::firstInvalidByte(file.text());
  if (at == file.text().size())
    return;
  char found[8];
  std::snprintf(found, sizeof(found), "0x%02x",
                unsigned(uint8_t(file.text()[at])));
  invalid("text file '" + file.name() + "', byte " + str(at) +
          ": expected UTF-8, found " + found);
}

std::vector<Unit> unitsOf(std::shared_ptr<const TextFile> file,
                          Documents documents, bool hasParts) {
  checkUtf8(*file);
  std::vector<Unit> units;
  std::string_view text = file->text();
  bool isWhole = documents == Documents::File;
  // A mark of the byte order is no text.
  constexpr std::string_view mark = "\xef\xbb\xbf";
  size_t begin = text.starts_with(mark) ? mark.size() : 0;
  while (begin < text.size()) {
    size_t end = text.size();
    if (isWhole && hasParts) {
      end = nextCut(text, std::min(begin + unitBytes, text.size()));
    } else if (!isWhole && begin + unitBytes < text.size()) {
      size_t line = text.find('\n', begin + unitBytes);
      end = line == std::string_view::npos ? text.size() : line + 1;
    }
    bool isCut = isWhole && (begin > mark.size() || end < text.size());
    units.push_back({file, documents, begin, end, end == text.size(), isCut});
    begin = end;
  }
  return units;
}

void eachLine(
    const Unit &unit,
    const std::function<void(std::string_view line, size_t at)> &use) {
  std::string_view text = unit.file->text();
  for (size_t at = unit.begin; at < unit.end;) {
    size_t end = std::min(text.find('\n', at), unit.end);
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    if (!line.empty())
      use(line, at);
    at = end + 1;
  }
}

std::string textOfJson(const Unit &unit, std::string_view line, size_t at,
                       const std::string &key) {
  std::string place =
      "text file '" + unit.file->name() + "', byte " + str(at) + ": ";
  nlohmann::json value = nlohmann::json::parse(line, nullptr, false);
  if (!value.is_object())
    invalid(place + "expected a JSON object a line");
  auto found = value.find(key);
  if (found == value.end() || !found->is_string())
    invalid(place + "expected an object with a text under the key '" + key +
            "'");
  return found->get<std::string>();
}

} // namespace grt::data
