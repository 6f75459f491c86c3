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

::grt::Status runSteps(::grt::Session &session, Figures &figures) {
  auto add = [&](const std::string &name, ::grt::TensorMap &tensors) {
    for (auto &[key, tensor] : tensors)
      figures.values.emplace_back(name + " " + key, std::move(tensor.values));
  };
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
      add("gradient", tensors);
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
  add("parameter", tensors);
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
  options.timeoutSeconds = 5;
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
    status = runSteps(*session, figures);
  }
  if (!status)
    figures.error = status.message().empty() ? "no message" : status.message();
  return figures;
}

//===----------------------------------------------------------------------===//
// Processes
//===----------------------------------------------------------------------===//

std::optional<std::string> inProcess(int seconds,
                                     const std::function<std::string()> &work,
                                     std::string &why) {
  int ends[2];
  if (pipe(ends) != 0)
    llvm::report_fatal_error("no pipe");
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
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
    inTime = poll(&wait, 1, seconds * 1000) > 0;
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
  why = !inTime ? "no end in " + std::to_string(seconds) + " s"
        : WIFSIGNALED(status)
            ? std::string("signal ") + strsignal(WTERMSIG(status))
            : "exit code " + std::to_string(WEXITSTATUS(status));
  return std::nullopt;
}

} // namespace galvatron::test
