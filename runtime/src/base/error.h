//===- error.h - Errors inside the runtime --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Exceptions stay inside the library: the C ABI and the public C++ interface
// turn them into statuses.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_ERROR_H
#define GRT_BASE_ERROR_H

#include "grt/session.h"

#include <cerrno>
#include <concepts>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace grt {

/// A failure with the exit code of a tool, see ExitCode.
class Error : public std::runtime_error {
public:
  Error(int exitCode, const std::string &message)
      : std::runtime_error(message), code(exitCode) {}
  int exitCode() const { return code; }

private:
  int code;
};

/// Thrown in ranks that were woken because another rank failed; carries no
/// message of its own.
class Aborted : public std::runtime_error {
public:
  Aborted() : std::runtime_error("another rank failed") {}
};

[[noreturn]] inline void fail(ExitCode code, const std::string &message) {
  throw Error(code, message);
}
[[noreturn]] inline void fail(const std::string &message) {
  fail(ExitFailed, message);
}
[[noreturn]] inline void invalid(const std::string &message) {
  fail(ExitInvalid, message);
}

/// The exit code for a path that the user named and the system refuses with
/// `error` (errno): the name is wrong, or it is right and storage fails.
inline ExitCode codeOfPath(int error) {
  switch (error) {
  case ENOENT:
  case ENOTDIR:
  case EISDIR:
  case EACCES:
  case EPERM:
  case ENAMETOOLONG:
  case ELOOP:
  case EINVAL:
  case ENXIO:
  case ENODEV:
    return ExitInvalid;
  default:
    return ExitStorage;
  }
}

/// Whole numbers in messages.
template <typename Number>
  requires std::integral<Number> || std::is_enum_v<Number>
std::string str(Number value) {
  return std::to_string(+value);
}

/// Runs `body` and turns its exceptions into a status.
template <typename Body> Status guarded(Body &&body) {
  try {
    std::forward<Body>(body)();
    return Status();
  } catch (const Error &error) {
    return Status(error.exitCode(), error.what());
  } catch (const std::bad_alloc &) {
    return Status(ExitMemory, "out of host memory");
  } catch (const std::exception &error) {
    return Status(ExitFailed, error.what());
  }
}

} // namespace grt

#endif // GRT_BASE_ERROR_H
