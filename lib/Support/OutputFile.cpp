//===- OutputFile.cpp - Files written whole or not at all -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/OutputFile.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
namespace fs = llvm::sys::fs;

namespace galvatron {

TemporaryFile::~TemporaryFile() {
  if (!path.empty())
    fs::remove(path);
}

std::error_code TemporaryFile::create(const Twine &name, StringRef suffix) {
  SmallString<128> found;
  std::error_code error =
      fs::createUniqueFile(name + ".%%%%%%%%" + suffix, found);
  if (!error)
    path = std::string(found);
  return error;
}

std::error_code TemporaryFile::moveTo(const Twine &to) {
  std::error_code error = fs::rename(path, to);
  if (!error)
    path.clear();
  return error;
}

bool isWrittenInPlace(const Twine &path) {
  fs::file_status status;
  return !fs::status(path, status) &&
         status.type() != fs::file_type::regular_file;
}

bool isSameFile(StringRef a, StringRef b) {
  if (a == "-" || b == "-" || isWrittenInPlace(a) || isWrittenInPlace(b))
    return false;
  bool same = false;
  if (!fs::equivalent(a, b, same))
    return same;
  // One is not there: the same name in the same folder.
  auto place = [](StringRef path) {
    SmallString<128> folder(sys::path::parent_path(path)), found;
    if (fs::real_path(folder.empty() ? "." : StringRef(folder), found))
      found = folder;
    sys::path::append(found, sys::path::filename(path));
    return found;
  };
  return place(a) == place(b);
}

std::error_code writeInPlace(StringRef path, StringRef bytes, bool append) {
  std::error_code error;
  raw_fd_ostream stream(path, error, append ? fs::OF_Append : fs::OF_None);
  if (error)
    return error;
  stream << bytes;
  stream.flush();
  error = stream.error();
  // Or the stream's destructor ends the process with words of its own.
  stream.clear_error();
  return error;
}

std::error_code writeWhole(StringRef path, StringRef bytes) {
  if (path == "-" || isWrittenInPlace(path))
    return writeInPlace(path, bytes);
  SmallString<128> target(path);
  fs::file_status before;
  bool exists = !fs::status(path, before);
  if (exists)
    fs::real_path(path, target);
  TemporaryFile file;
  if (file.create(target, ".tmp"))
    return writeInPlace(path, bytes);
  if (std::error_code error = writeInPlace(file.getPath(), bytes))
    return error;
  if (exists)
    fs::setPermissions(file.getPath(), before.permissions());
  return file.moveTo(target);
}

} // namespace galvatron
