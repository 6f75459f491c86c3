//===- OutputFile.h - Files written whole or not at all ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SUPPORT_OUTPUTFILE_H
#define GALVATRON_SUPPORT_OUTPUTFILE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"

#include <string>
#include <system_error>

namespace galvatron {

/// A file under construction, removed unless kept.
class TemporaryFile {
public:
  TemporaryFile() = default;
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;
  ~TemporaryFile();

  /// Makes an empty file called `name` plus something random.
  std::error_code create(const llvm::Twine &name, llvm::StringRef suffix);
  /// The file takes the place of `path` and stays.
  std::error_code moveTo(const llvm::Twine &path);

  llvm::StringRef getPath() const { return path; }

private:
  std::string path;
};

/// Whether `path` is a device, a pipe or the like: it is written into, and no
/// new file may take its place.
bool isWrittenInPlace(const llvm::Twine &path);

/// Whether both paths name one file, which need not be there yet; never for
/// "-", devices, pipes and the like, which several can write into.
bool isSameFile(llvm::StringRef a, llvm::StringRef b);

/// Tries whether `path` can be written, before the work whose result it is to
/// hold: a search is not to be lost to a folder that does not exist. Leaves
/// nothing behind and changes no file. "-" and "" are always fine.
std::error_code tryOutput(llvm::StringRef path);

/// Whether an `error` of tryOutput says that the name is wrong, which is wrong
/// usage, and not that the storage fails (`codeOfPath` of the runtime).
bool isWrongPath(std::error_code error);

/// Writes `bytes` to a file, replacing or extending what is there.
std::error_code writeInPlace(llvm::StringRef path, llvm::StringRef bytes,
                             bool append = false);

/// Writes a file; one that is there stays as it is until the new one is
/// complete. A link stays one. Where no file can be made beside it, and to what
/// is no file, it is written in place.
std::error_code writeWhole(llvm::StringRef path, llvm::StringRef bytes);

} // namespace galvatron

#endif // GALVATRON_SUPPORT_OUTPUTFILE_H
