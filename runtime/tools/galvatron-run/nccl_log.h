//===- nccl_log.h - What NCCL chose -----------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// NCCL picks interfaces, networks and ways inside a machine by itself, and says
// so in its log alone: no call returns it. So the tool asks for the log, in
// memory, where the user has not asked for it, and reads the few lines whose
// words have been the same since 2.18.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_NCCL_LOG_H
#define GALVATRON_RUN_NCCL_LOG_H

#include <set>
#include <string>
#include <string_view>
#include <vector>

/// The choices that a log tells of one rank, or of several together.
struct NcclChoice {
  /// The interfaces by which ranks find each other, "eth0"; several where ranks
  /// differ.
  std::set<std::string> interfaces;
  /// "IB", "Socket", or a plug-in's name.
  std::set<std::string> networks;
  /// The transports of connections to other ranks: "P2P", "SHM", "NET", ..
  std::set<std::string> ways;
  /// Whether connections over the network read and write the GPU's memory, and
  /// whether some do not.
  bool gpuDirect = false, throughHost = false;
  /// Whether the switches add (NVLS), and whether they cannot.
  bool nvls = false, noNvls = false;

  bool operator==(const NcclChoice &other) const = default;
  bool isEmpty() const { return *this == NcclChoice(); }
};

/// Reads a log of NCCL_DEBUG=INFO.
NcclChoice readNcclLog(std::string_view log);

/// "found each other over eth0; P2P inside hosts, NVLS; InfiniBand with
/// GPU-direct between hosts"; empty if nothing is known.
std::string textOf(const NcclChoice &choice);

/// Writes a choice as one line without spaces at its ends, and reads it back; a
/// line of another form gives an empty choice.
std::string encode(const NcclChoice &choice);
NcclChoice decodeChoice(std::string_view text);
NcclChoice joinChoices(const std::vector<NcclChoice> &all);

/// The log that NCCL writes in this process.
class NcclLog {
public:
  /// Lets NCCL write its log to memory, unless NCCL_DEBUG or NCCL_DEBUG_FILE is
  /// set. Before the library is loaded, and before there are other threads.
  static void capture();
  /// Returns what the library has written so far; empty where it is not
  /// captured.
  static std::string text();
};

#endif // GALVATRON_RUN_NCCL_LOG_H
