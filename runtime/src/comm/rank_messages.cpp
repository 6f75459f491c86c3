//===- rank_messages.cpp - Messages between hosts of ranks ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/rank_messages.h"

namespace grt {
namespace {

std::string nameOf(MessageKind kind) {
  switch (kind) {
  case MessageKind::StepNumbers:
    return "losses and norms";
  case MessageKind::ToldNumbers:
    return "losses and norms that are told";
  case MessageKind::NotFinite:
    return "a value that is not finite";
  case MessageKind::Failure:
    return "a failure";
  case MessageKind::FailureText:
    return "a failure's text";
  case MessageKind::HostMemory:
    return "needs of memory";
  case MessageKind::CheckpointCopies:
    return "copies for a checkpoint";
  case MessageKind::CheckpointFits:
    return "room for a checkpoint";
  case MessageKind::Replicas:
    return "sums of replicas";
  case MessageKind::RankMemory:
    return "memory in use";
  case MessageKind::RankWork:
    return "waits and clocks";
  case MessageKind::Hits:
    return "hits";
  case MessageKind::Predictions:
    return "predictions";
  case MessageKind::ScoresPart:
    return "parts of scores";
  case MessageKind::Scores:
    return "scores";
  case MessageKind::HostName:
    return "names of hosts";
  case MessageKind::Times:
    return "times";
  }
  return "kind " + str(uint64_t(kind));
}

std::string textOf(const MessageHeader &header) {
  return nameOf(header.kind) + " (" + str(header.count) + " values of " +
         str(uint64_t(header.fieldBytes)) + " bytes)";
}

} // namespace

void checkHeader(int rank, const MessageHeader &found,
                 const MessageHeader &expected) {
  if (found != expected)
    fail("rank " + str(rank) + " sends " + textOf(found) + ", expected " +
         textOf(expected));
}

} // namespace grt
