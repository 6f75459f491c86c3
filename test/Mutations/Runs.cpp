//===- Runs.cpp - Programs that are run and compared ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Runs.h"
#include "Twin.h"

#include "llvm/Support/ErrorHandling.h"

#include <cmath>
#include <csignal>
#include <cstring>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace galvatron::test {

namespace {

void appendBytes(std::string &bytes, const void *from, size_t count) {
  bytes.append(static_cast<const char *>(from), count);
}

void appendText(std::string &bytes, const std::string &text) {
  size_t size = text.size();
  appendBytes(bytes, &size, sizeof(size));
  bytes += text;
}

std::string takeText(llvm::StringRef &bytes) {
  size_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  std::string text = bytes.substr(sizeof(size), size).str();
  bytes = bytes.drop_front(sizeof(size) + size);
  return text;
}

} // namespace

std::string Figures::pack() const {
  std::string bytes;
  appendText(bytes, error);
  appendText(bytes, stage);
  for (const auto &[name, list] : values) {
    appendText(bytes, name);
    std::string raw;
    appendBytes(raw, list.data(), list.size() * sizeof(double));
    appendText(bytes, raw);
  }
  return bytes;
}

Figures Figures::unpack(llvm::StringRef bytes) {
  Figures figures;
  figures.error = takeText(bytes);
  figures.stage = takeText(bytes);
  while (!bytes.empty()) {
    std::string name = takeText(bytes), raw = takeText(bytes);
    std::vector<double> list(raw.size() / sizeof(double));
    std::memcpy(list.data(), raw.data(), raw.size());
    figures.values.emplace_back(std::move(name), std::move(list));
  }
  return figures;
}

std::string compare(const Figures &run, const Figures &reference) {
  if (run.values.size() != reference.values.size())
    return "other tensors";
  for (size_t i = 0; i < run.values.size(); ++i) {
    const auto &[name, values] = run.values[i];
    const auto &[wanted, expected] = reference.values[i];
    if (name != wanted || values.size() != expected.size())
      return "'" + name + "' in place of '" + wanted + "'";
    double distance = 0, norm = 0;
    for (size_t j = 0; j < values.size(); ++j) {
      distance += (values[j] - expected[j]) * (values[j] - expected[j]);
      norm += expected[j] * expected[j];
    }
    // Not `>`: numbers that are not finite differ, too.
    if (!(std::sqrt(distance) <= 1e-9 * std::sqrt(norm) + 1e-12))
      return "'" + name + "' differs by " +
             std::to_string(std::sqrt(distance / std::max(norm, 1e-300)));
  }
  return "";
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

namespace {

constexpr int64_t kSteps = 2;

// Limits of what is run have to hold on a machine that does other things, too:
// what computes without end is ended by the processor time that it takes. The
// time that passes ends what waits without end, and is far beyond what a run
// takes anywhere: some milliseconds.
constexpr double kStandingSeconds = 60;
constexpr int kWallSeconds = 600;
/// Memory that ranks may take, whatever else runs on the machine.
constexpr uint64_t kRankBytes = uint64_t(2) << 30;

void add(Figures &figures, const std::string &name, ::grt::TensorMap &tensors) {
  for (auto &[key, tensor] : tensors)
    figures.values.emplace_back(name + " " + key, std::move(tensor.values));
}

/// The tokens that an encoder reads of the text in a row, of each another
/// number of them.
std::span<const int32_t> sourceOf(const ::grt::Program &program, int32_t row) {
  static const std::vector<int32_t> tokens = [] {
    std::vector<int32_t> made;
    for (int32_t at = 0; at < 64; ++at)
      made.push_back((5 * at * at + 3) % 50);
    return made;
  }();
  const int64_t length = std::max<int64_t>(program.sequenceLength() - row, 1);
  return std::span(tokens).first(size_t(std::min<int64_t>(length, 64)));
}

/// The logits behind the tokens of texts, which take turns, and the weights.
::grt::Status runTexts(::grt::Session &session, Figures &figures) {
  const ::grt::Program &program = session.program();
  std::vector<::grt::RowToken> order;
  for (int64_t at = 0; at < program.cacheLength(); ++at)
    for (int64_t row = 0; row < program.cacheRows(); ++row)
      order.push_back(
          {int32_t(row), int32_t(at),
           int32_t((7 * at * at + 5 * row + 1) % program.vocabularySize())});
  // However many of them a pass has, they are the same.
  const auto each = size_t(program.batchSize());
  std::vector<double> logits;
  ::grt::Status status = disturbVectors(session);
  for (size_t first = 0; status && first < order.size(); first += each) {
    std::vector<int32_t> likeliest;
    std::vector<double> scores;
    const auto tokens =
        std::span(order).subspan(first, std::min(each, order.size() - first));
    std::vector<::grt::RowSource> sources;
    for (const ::grt::RowToken &token : tokens)
      if (token.position == 0 && program.cachesSources())
        sources.push_back({token.row, {sourceOf(program, token.row)}});
    status = session.decode(tokens, likeliest, &scores, sources);
    logits.insert(logits.end(), scores.begin(), scores.end());
  }
  figures.values.emplace_back("logits", std::move(logits));
  ::grt::TensorMap tensors;
  if (status)
    status = session.parameters(tensors);
  add(figures, "parameter", tensors);
  return status;
}

::grt::Status runSteps(::grt::Session &session, Figures &figures) {
  auto batchOf = [&](int64_t step) {
    return twinBatch(session.program(), session.program().batchSize(), step);
  };
  ::grt::TensorMap tensors;
  ::grt::Status status = disturbVectors(session);
  bool late = session.program().gradientDelay() > 0;
  for (int64_t step = 0; status && step < kSteps; ++step) {
    ::grt::StepResult out;
    if (!session.hasBegun())
      status = session.setBatch(batchOf(step));
    if (status && late && step + 1 < kSteps)
      status = session.setNextBatch(batchOf(step + 1));
    if (status)
      status = session.step(out);
    figures.values.push_back({"loss", {out.loss}});
    if (!late)
      figures.values.push_back({"norm", {out.gradientNorm}});
    if (status && step == 0 && !session.program().updatesOnDevice()) {
      status = session.gradients(tensors);
      add(figures, "gradient", tensors);
    }
  }
  double loss = 0;
  uint64_t counted = 0;
  if (status)
    status = session.setBatch(batchOf(kSteps));
  if (status)
    status = session.evaluate(loss, counted);
  figures.values.push_back({"evaluation", {loss, double(counted)}});
  if (status)
    status = session.parameters(tensors);
  add(figures, "parameter", tensors);
  return status;
}

/// Fails if a rank took more memory than the plan says.
::grt::Status compareMemory(::grt::Session &session) {
  ::grt::Status status;
  for (const ::grt::RankMemory &memory : session.memory())
    if (status && memory.measuredPeakBytes > memory.plannedPeakBytes)
      status = ::grt::Status(1, "rank " + std::to_string(memory.rank) +
                                    " took more memory than planned");
  return status;
}

} // namespace

Figures runProgram(const std::string &bytes) {
  Figures figures;
  std::shared_ptr<const ::grt::Program> program;
  ::grt::SessionOptions options;
  options.seed = 7;
  options.poison = true;
  options.shareDevices = true;
  options.threadsPerRank = 1;
  options.timeoutSeconds = kStandingSeconds;
  options.hostMemoryBytes = kRankBytes;
  options.backendFolder = BACKEND_FOLDER;
  // What is compiled for devices runs on the model of one, which also checks
  // the order of streams.
  options.checkStreams = bytes.find("\"backend\":\"cpu\"") == bytes.npos;
  std::unique_ptr<::grt::Session> session;
  figures.stage = "load";
  ::grt::Status status = ::grt::Program::loadMemory(bytes, "program", program);
  if (status) {
    figures.stage = "ranks";
    if (program->gradientDelay() > 0 || program->updatesJustInTime())
      options.onNan = ::grt::OnNan::Late;
    status = ::grt::Session::create(program, options, session);
  }
  if (status) {
    figures.stage = "run";
    session->hyperparameters().clipNorm = 0.5;
    status = program->cacheRows() > 0 ? runTexts(*session, figures)
                                      : runSteps(*session, figures);
    if (status)
      status = compareMemory(*session);
  }
  if (!status)
    figures.error = status.message().empty() ? "no message" : status.message();
  return figures;
}

//===----------------------------------------------------------------------===//
// Processes
//===----------------------------------------------------------------------===//

void limitProcessor(int seconds) {
  rusage used{};
  rlimit limit{};
  if (getrusage(RUSAGE_SELF, &used) != 0 || getrlimit(RLIMIT_CPU, &limit) != 0)
    llvm::report_fatal_error("no figures of this process");
  // Begun seconds count as whole ones.
  limit.rlim_cur =
      std::min(limit.rlim_max, rlim_t(used.ru_utime.tv_sec +
                                      used.ru_stime.tv_sec + 2 + seconds));
  if (setrlimit(RLIMIT_CPU, &limit) != 0)
    llvm::report_fatal_error("no limit of processor time");
}

std::string howEnded(int status) {
  if (!WIFSIGNALED(status))
    return "exit code " + std::to_string(WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGXCPU)
    return "no end within its limit of processor time";
  return std::string("signal ") + strsignal(WTERMSIG(status));
}

std::optional<std::string> inProcess(int processorSeconds,
                                     const std::function<std::string()> &work,
                                     std::string &why) {
  int ends[2];
  if (pipe(ends) != 0)
    llvm::report_fatal_error("no pipe");
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    limitProcessor(processorSeconds);
    std::string bytes = work();
    for (size_t at = 0; at < bytes.size();) {
      ssize_t count = write(ends[1], bytes.data() + at, bytes.size() - at);
      if (count <= 0)
        _exit(1);
      at += size_t(count);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string bytes;
  bool inTime = true;
  std::vector<char> buffer(1 << 16);
  while (true) {
    pollfd wait{ends[0], POLLIN, 0};
    inTime = poll(&wait, 1, kWallSeconds * 1000) > 0;
    ssize_t count = inTime ? read(ends[0], buffer.data(), buffer.size()) : 0;
    if (count <= 0)
      break;
    bytes.append(buffer.data(), size_t(count));
  }
  if (!inTime)
    kill(child, SIGKILL);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (inTime && WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return bytes;
  why = inTime ? howEnded(status)
               : "no end in " + std::to_string(kWallSeconds) + " s";
  return std::nullopt;
}

} // namespace galvatron::test
