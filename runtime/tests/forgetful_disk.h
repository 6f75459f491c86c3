//===- forgetful_disk.h - A disk whose power fails ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_FORGETFUL_DISK_H
#define GRT_TESTS_FORGETFUL_DISK_H

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace grt::test {

/// The loss of a disk when the power fails: all that was not flushed. It is the
/// worst that file systems may do: bytes of files that were not flushed are
/// gone, names of folders that were not flushed are the old ones, but what was
/// removed stays removed.
class ForgetfulDisk {
public:
  /// Notes an operation that is about to be done.
  void note(const std::string &operation, const std::string &path,
            const std::string &to) {
    if ((operation == "create" || operation == "make directory") &&
        !std::filesystem::exists(path))
      made.insert(path);
    if (operation == "create" || operation == "write" || operation == "reserve")
      unflushed.insert(path);
    if (operation == "flush")
      unflushed.erase(path);
    if (operation == "flush directory") {
      std::erase_if(made, [&](const std::string &name) {
        return std::filesystem::path(name).parent_path() == path;
      });
      std::erase_if(renamed, [&](const auto &names) {
        return std::filesystem::path(names.second).parent_path() == path;
      });
    }
    if (operation == "rename") {
      for (std::set<std::string> *paths : {&made, &unflushed})
        *paths = moved(*paths, path, to);
      renamed.push_back({path, to});
    }
  }

  void losePower() {
    for (const std::string &file : unflushed)
      if (std::filesystem::is_regular_file(file))
        std::filesystem::resize_file(file, 0);
    for (const std::string &path : made)
      std::filesystem::remove_all(path);
    for (auto names = renamed.rbegin(); names != renamed.rend(); ++names)
      if (std::filesystem::exists(names->second))
        std::filesystem::rename(names->second, names->first);
  }

private:
  static std::set<std::string> moved(const std::set<std::string> &paths,
                                     const std::string &from,
                                     const std::string &to) {
    std::set<std::string> result;
    for (const std::string &path : paths)
      result.insert(path == from || path.starts_with(from + "/")
                        ? to + path.substr(from.size())
                        : path);
    return result;
  }

  std::set<std::string> unflushed; ///< files whose bytes it may forget
  std::set<std::string> made;      ///< what its folder may not have yet
  std::vector<std::pair<std::string, std::string>> renamed; ///< from, to
};

} // namespace grt::test

#endif // GRT_TESTS_FORGETFUL_DISK_H
