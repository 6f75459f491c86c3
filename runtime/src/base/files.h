//===- files.h - Files that survive a crash -------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The few calls of the file system that checkpoints are made of. Errors throw
// Error with ExitStorage and name the path and the system's reason.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_FILES_H
#define GRT_BASE_FILES_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace grt {

/// Called, if set, before every call that changes the file system: its name,
/// the path it changes, and the new name of a "rename". Tests end the process
/// there, or the machine's power: whatever stands on the disk then must be a
/// whole checkpoint.
extern void (*fileOperationHook)(const char *operation, const std::string &path,
                                 const std::string &to);

/// A descriptor that closes itself. Movable.
class File {
public:
  File() = default;
  File(File &&other) noexcept;
  File &operator=(File &&other) noexcept;
  ~File();

  /// Creates (or empties) a file.
  static File create(const std::string &path);
  /// Opens a file that is there, for writing into it.
  static File openToWrite(const std::string &path);
  /// Opens a regular file for reading. Errors have the code of a path that the
  /// user named (codeOfPath).
  static File openToRead(const std::string &path);

  const std::string &path() const { return name; }
  int handle() const { return descriptor; }
  uint64_t bytes() const;

  void write(std::string_view bytes);
  void writeAt(uint64_t offset, const void *from, uint64_t bytes) const;
  /// Throws if the file ends before.
  void readAt(uint64_t offset, void *to, uint64_t bytes) const;
  /// Takes the disk space of a file of this size now.
  void reserve(uint64_t bytes) const;
  /// Returns when the content is on the disk.
  void flush() const;
  void close();

private:
  [[noreturn]] void failed(const char *what) const;

  std::string name;
  int descriptor = -1;
};

/// A file that appears whole or not at all: written beside its place, flushed
/// to the disk, then renamed. What is no regular file ("/dev/stdout") is
/// written in its place.
class AtomicFile {
public:
  explicit AtomicFile(const std::string &path);
  ~AtomicFile();
  AtomicFile(const AtomicFile &) = delete;
  AtomicFile &operator=(const AtomicFile &) = delete;

  void write(std::string_view bytes) { file.write(bytes); }
  void commit();

private:
  std::string path;
  bool inPlace;
  File file;
  bool committed = false;
};

/// Gives standard input, output and error that are closed to /dev/null: a file
/// that is opened next would take their place, and get what is printed.
void openStandardDescriptors();

/// Writes to standard output and flushes it. Throws if it does not take all of
/// the text, as a full disk behind it does.
void writeStandardOutput(std::string_view text);

/// The whole of a file of at most `most` bytes; a larger one is ExitInvalid.
std::string readWholeFile(const std::string &path, uint64_t most);

/// Creates a directory and its parents, names that survive a crash. Returns
/// those that were not there, the innermost first.
std::vector<std::string> makeDirectory(const std::string &path);
/// Removes a directory if nothing is in it.
void removeEmptyDirectory(const std::string &path);
/// Makes the names in a directory survive a crash.
void flushDirectory(const std::string &path);
void renamePath(const std::string &from, const std::string &to);
/// Removes a file or a directory with all that is in it, if it is there.
void removePath(const std::string &path);

} // namespace grt

#endif // GRT_BASE_FILES_H
