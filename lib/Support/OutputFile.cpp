//===- OutputFile.cpp - Files written whole or not at all -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/OutputFile.h"

#include "llvm/ADT/STLExtras.h"
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

std::error_code tryOutput(StringRef path) {
  if (path.empty() || path == "-")
    return {};
  fs::file_status status;
  bool exists = !fs::status(path, status);
  // Opening a pipe or a device can block or mean something.
  if (exists && status.type() != fs::file_type::regular_file &&
      status.type() != fs::file_type::directory_file)
    return {};
  int file = -1;
  if (std::error_code error = fs::openFileForWrite(
          path, file, exists ? fs::CD_OpenExisting : fs::CD_CreateNew))
    return error;
  fs::file_t handle = fs::convertFDToNativeFile(file);
  std::error_code error = fs::closeFile(handle);
  if (!exists)
    fs::remove(path);
  return error;
}

bool isWrongPath(std::error_code error) {
  const std::errc wrong[] = {std::errc::no_such_file_or_directory,
                             std::errc::not_a_directory,
                             std::errc::is_a_directory,
                             std::errc::permission_denied,
                             std::errc::operation_not_permitted,
                             std::errc::filename_too_long,
                             std::errc::too_many_symbolic_link_levels,
                             std::errc::invalid_argument,
                             std::errc::no_such_device_or_address,
                             std::errc::no_such_device};
  return llvm::is_contained(wrong, error);
}

std::error_code writeInPlace(StringRef path, StringRef bytes, bool append) {
  std::error_code error;
  raw_fd_ostream stream(path, error, append ? fs::OF_Append : fs::OF_None);
  if (error)
    return error;
  stream << bytes;
  stream.flush();
  error = stream.error();
  // The error is cleared, or the stream's destructor ends the process with
  // words of its own.
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
