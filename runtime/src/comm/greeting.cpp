//===- greeting.cpp - The handshake as bytes ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/greeting.h"
#include "base/random.h"
#include "comm/secret.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

namespace grt {
namespace {

constexpr std::string_view magic = "GRTHELO2";
constexpr size_t nonceBytes = 32;
constexpr size_t openingBytes = magic.size() + nonceBytes;
constexpr size_t challengeBytes = nonceBytes + codeBytes;
/// Taken from a peer before it has proved anything.
constexpr uint32_t longestClaim = 1024;

/// First bytes of an answer; its text follows.
struct AnswerHead {
  uint32_t refused;
  uint32_t bytes;
};

template <typename Number> std::string numberBytes(Number number) {
  return std::string(reinterpret_cast<const char *>(&number), sizeof(number));
}

/// Texts that follow each other, each after its length.
std::string joined(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (std::string_view part : parts) {
    all += numberBytes(uint64_t(part.size()));
    all += part;
  }
  return all;
}

std::string prove(const Trust &trust, std::string_view role,
                  std::string_view transcript) {
  return authenticationCode(trust.key, joined({role, transcript}));
}

std::string answerText(const std::string &transcript, bool refused,
                       std::string_view text) {
  return joined({transcript, refused ? "refused" : "taken", text});
}

bool isOpening(std::string_view text) {
  size_t common = std::min(text.size(), magic.size());
  return text.substr(0, common) == magic.substr(0, common);
}

} // namespace

std::string answerBytes(const Trust &trust, const std::string &transcript,
                        bool refused, std::string_view text) {
  std::string all = numberBytes(AnswerHead{refused, uint32_t(text.size())});
  all += text;
  all += prove(trust, "answer", answerText(transcript, refused, text));
  return all;
}

//===----------------------------------------------------------------------===//
// The side that listens
//===----------------------------------------------------------------------===//

ListeningSide::ListeningSide(const Trust &trust)
    : trust(trust), expected(openingBytes) {}

ListeningSide::State ListeningSide::received(std::string_view bytes) {
  incoming += bytes;
  // A prefix that is wrong is no peer, whatever follows.
  if (!opened && !isOpening(incoming))
    return State::Stranger;
  if (incoming.size() < expected)
    return State::Open;
  if (!opened) {
    opened = true;
    nonces = joined({trust.purpose, incoming.substr(magic.size())});
    std::string own = randomBytes(nonceBytes);
    nonces += joined({own});
    outgoing = own + prove(trust, "listener", nonces);
    incoming.clear();
    expected = sizeof(claimBytes);
    return State::Open;
  }
  if (expected == sizeof(claimBytes)) {
    std::memcpy(&claimBytes, incoming.data(), sizeof(claimBytes));
    if (claimBytes > longestClaim)
      return State::Stranger;
    expected += claimBytes + codeBytes;
    return State::Open;
  }
  claimed = incoming.substr(sizeof(claimBytes), claimBytes);
  heard = nonces + joined({claimed});
  return sameCode(incoming.substr(sizeof(claimBytes) + claimBytes),
                  prove(trust, "connector", heard))
             ? State::Claimed
             : State::Stranger;
}

//===----------------------------------------------------------------------===//
// The side that connects
//===----------------------------------------------------------------------===//

ConnectingSide::ConnectingSide(const Trust &trust, std::string_view claim,
                               size_t longest)
    : trust(trust), claim(claim), nonce(randomBytes(nonceBytes)),
      longest(longest), expected(challengeBytes), why(saidNothing) {
  outgoing = std::string(magic) + nonce;
}

ConnectingSide::State ConnectingSide::received(std::string_view bytes) {
  incoming += bytes;
  if (incoming.size() < expected)
    return State::Open;
  if (!challenged) {
    std::string nonces =
        joined({trust.purpose, nonce, incoming.substr(0, nonceBytes)});
    if (!sameCode(incoming.substr(nonceBytes),
                  prove(trust, "listener", nonces))) {
      why = trust.key.empty()
                ? "what listens there knows a secret, this process none"
                : "what listens there does not know the secret of this run";
      return State::Failed;
    }
    challenged = true;
    transcript = nonces + joined({claim});
    outgoing = numberBytes(uint32_t(claim.size())) + claim +
               prove(trust, "connector", transcript);
    incoming.clear();
    expected = sizeof(AnswerHead);
    return State::Open;
  }
  if (!headed) {
    AnswerHead head;
    std::memcpy(&head, incoming.data(), sizeof(head));
    if (head.bytes > longest)
      return State::Failed;
    headed = true;
    refused = head.refused != 0;
    answerLength = head.bytes;
    incoming.clear();
    expected = answerLength + codeBytes;
    return State::Open;
  }
  answer = incoming.substr(0, answerLength);
  return sameCode(
             incoming.substr(answerLength),
             prove(trust, "answer", answerText(transcript, refused, answer)))
             ? State::Answered
             : State::Failed;
}

} // namespace grt
