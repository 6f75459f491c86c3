//===- secret.cpp - What the processes of a run know and strangers do not -===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/secret.h"
#include "base/error.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef GRT_LIBCRYPTO
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#endif

namespace grt {
namespace {

/// Most bytes of a file with a secret; a longer one is a file of something
/// else.
constexpr size_t mostSecretBytes = 4096;

constexpr const char *howToMake =
    "; make one with (umask 077; head -c 32 /dev/urandom | base64 > secret)";

std::string readSecretFile(const std::string &path) {
  auto refuse = [&](const std::string &what) {
    invalid("launch secret '" + path + "': " + what);
  };
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    refuse("cannot be opened: " + std::string(strerror(errno)));
  struct stat status{};
  std::string text(mostSecretBytes + 1, 0);
  bool known = fstat(descriptor, &status) == 0;
  ssize_t got = known && S_ISREG(status.st_mode)
                    ? ::read(descriptor, text.data(), text.size())
                    : 0;
  int problem = errno;
  ::close(descriptor);
  if (!known || got < 0)
    refuse("cannot be read: " + std::string(strerror(problem)));
  if (!S_ISREG(status.st_mode))
    refuse("expected a regular file");
  if (status.st_mode & 077) {
    char mode[8];
    std::snprintf(mode, sizeof(mode), "%04o", unsigned(status.st_mode & 07777));
    refuse(std::string("expected mode 0600, found ") + mode +
           ": others could read it");
  }
  if (status.st_uid != geteuid() && status.st_uid != 0)
    refuse("expected a file of this user, found one of user " +
           str(status.st_uid));
  if (size_t(got) > mostSecretBytes)
    refuse("expected at most " + str(mostSecretBytes) + " bytes");
  text.resize(size_t(got));
  return text;
}

} // namespace

std::string launchSecret(const std::string &file) {
  std::string text, where;
  if (!file.empty()) {
    text = readSecretFile(file);
    where = "launch secret '" + file + "'";
  } else if (const char *value = std::getenv("GALVATRON_LAUNCH_SECRET")) {
    text = value;
    where = "GALVATRON_LAUNCH_SECRET";
  } else {
    return "";
  }
  constexpr const char *blank = " \t\r\n";
  size_t first = text.find_first_not_of(blank);
  text = first == std::string::npos
             ? ""
             : text.substr(first, text.find_last_not_of(blank) - first + 1);
  if (text.size() < leastSecretBytes)
    invalid(where + ": expected at least " + str(leastSecretBytes) +
            " bytes, found " + str(text.size()) + howToMake);
  return text;
}

#ifdef GRT_LIBCRYPTO

std::string authenticationCode(std::string_view key, std::string_view text) {
  unsigned char code[EVP_MAX_MD_SIZE];
  unsigned bytes = 0;
  if (!HMAC(EVP_sha256(), key.data(), int(key.size()),
            reinterpret_cast<const unsigned char *>(text.data()), text.size(),
            code, &bytes) ||
      bytes != codeBytes)
    fail("libcrypto cannot make an HMAC-SHA256");
  return std::string(reinterpret_cast<const char *>(code), bytes);
}

bool sameCode(std::string_view one, std::string_view other) {
  return one.size() == other.size() &&
         CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

#else

std::string authenticationCode(std::string_view, std::string_view) {
  invalid("this build runs one process: it has no libcrypto, by which several "
          "know each other; install libssl-dev and build again");
}

bool sameCode(std::string_view, std::string_view) { return false; }

#endif

} // namespace grt
