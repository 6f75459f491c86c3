//===- trace_report.cpp - What recorded steps amount to -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/trace_report.h"
#include "base/files.h"
#include "core/program_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace grt {
namespace {

const char *phaseName(uint8_t phase) {
  static const char *const names[] = {
      "forward", "recompute", "backward", "backward weight", "update", "norm"};
  return names[phase];
}

/// Rows of a process, in the order in which they are shown.
enum Thread {
  MeasuredTasks,
  MeasuredCommunication,
  MeasuredWaits,
  PredictedTasks,
  PredictedCompute,
  PredictedCommunication,
  ThreadCount,
  /// Rows of a device's streams, a grt_stream each; shown behind what was
  /// measured on the host.
  DeviceRows = ThreadCount
};
const char *const threadNames[ThreadCount] = {
    "measured: tasks, functions, kernels",
    "measured: communication",
    "measured: waits",
    "predicted: tasks",
    "predicted: compute",
    "predicted: communication"};
const char *const streamNames[GRT_STREAM_COUNT] = {
    "device: compute",  "device: gradient", "device: gather",
    "device: transfer", "device: in",       "device: out"};

/// Nanoseconds that the spans cover together.
double unionLength(std::vector<std::pair<uint64_t, uint64_t>> spans) {
  std::sort(spans.begin(), spans.end());
  double length = 0;
  uint64_t end = 0;
  for (auto [from, to] : spans) {
    from = std::max(from, end);
    if (to > from) {
      length += double(to - from);
      end = to;
    }
  }
  return length;
}

/// Writes events one by one; times are nanoseconds.
class EventWriter {
public:
  explicit EventWriter(AtomicFile &file) : file(file) {}

  void name(int process, int thread, const char *kind,
            const std::string &text) {
    item("{\"ph\":\"M\",\"pid\":" + std::to_string(process) +
         ",\"tid\":" + std::to_string(thread) + ",\"name\":\"" + kind +
         "\",\"args\":{\"name\":" + quoted(text) + "}}");
  }
  void order(int process, int thread) {
    item("{\"ph\":\"M\",\"pid\":" + std::to_string(process) +
         ",\"tid\":" + std::to_string(thread) +
         ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":" +
         std::to_string(thread) + "}}");
  }
  void slice(int process, int thread, const std::string &text,
             const char *category, double begin, double end) {
    item("{\"ph\":\"X\",\"pid\":" + std::to_string(process) +
         ",\"tid\":" + std::to_string(thread) + ",\"name\":" + quoted(text) +
         ",\"cat\":\"" + category + "\",\"ts\":" + micro(begin) +
         ",\"dur\":" + micro(end - begin) + "}");
  }
  void memory(int process, double time, uint64_t live, uint64_t planned) {
    item("{\"ph\":\"C\",\"pid\":" + std::to_string(process) +
         ",\"name\":\"memory\",\"ts\":" + micro(time) + ",\"args\":{\"live\":" +
         std::to_string(live) + ",\"planned but not live\":" +
         std::to_string(planned > live ? planned - live : 0) + "}}");
  }
  void flush() {
    file.write(buffer);
    buffer.clear();
  }

private:
  static std::string quoted(const std::string &text) {
    return nlohmann::json(text).dump(-1, ' ', false,
                                     nlohmann::json::error_handler_t::replace);
  }
  static std::string micro(double nanoseconds) {
    char text[40];
    std::snprintf(text, sizeof(text), "%.3f", nanoseconds / 1e3);
    return text;
  }
  void item(const std::string &text) {
    buffer += first ? "\n" : ",\n";
    buffer += text;
    first = false;
    if (buffer.size() > (1 << 20))
      flush();
  }

  AtomicFile &file;
  std::string buffer;
  bool first = true;
};

} // namespace

std::string taskText(const grt_task &task, const grt_transfer_part *transfers) {
  std::string ofChunk = " chunk " + std::to_string(task.chunk);
  auto onSlot = [&](const char *name) {
    return name + ofChunk + " mb " + std::to_string(task.micro_batch) +
           " slot " + std::to_string(task.slot);
  };
  switch (task.kind) {
  case GRT_TASK_FORWARD:
    return onSlot("forward");
  case GRT_TASK_BACKWARD:
    return onSlot("backward");
  case GRT_TASK_BACKWARD_INPUT:
    return onSlot("backward-input");
  case GRT_TASK_BACKWARD_WEIGHT:
    return onSlot("backward-weight");
  case GRT_TASK_TRANSFER: {
    static const char *const names[2][3] = {
        {"send-activation", "send-gradient", "send-stash"},
        {"recv-activation", "recv-gradient", "recv-stash"}};
    std::string text = "transfer";
    for (uint32_t p = 0; p < task.count; ++p) {
      const grt_transfer_part &part = transfers[task.first + p];
      text += std::string(p ? ", " : " ") + names[part.direction][part.value] +
              " chunk " + std::to_string(part.chunk) + " mb " +
              std::to_string(part.micro_batch);
    }
    return text;
  }
  case GRT_TASK_SYNC_GRADIENTS:
    return "sync-gradients" + ofChunk;
  case GRT_TASK_TIE_REDUCE:
    return "tie-reduce";
  case GRT_TASK_NORM:
    return "norm";
  case GRT_TASK_UPDATE:
    return "update" + ofChunk;
  case GRT_TASK_SWAP:
    return (task.tiers == GRT_TO_HOST ? "swap out" : "swap in") + ofChunk +
           (task.classes & GRT_SWAP_PARAMETERS ? " parameters" : "") +
           (task.classes & GRT_SWAP_GRADIENTS ? " gradients" : "") +
           (task.classes & GRT_SWAP_OPTIMIZER ? " optimizer" : "") +
           (task.classes & GRT_SWAP_ACTIVATIONS
                ? " activations mb " + std::to_string(task.micro_batch)
                : "");
  default:
    return "tie-broadcast";
  }
}

TraceReport::TraceReport(const Program &program,
                         std::vector<RankRecording> recordings)
    : program(program), manifest(program.manifest()),
      ranks(std::move(recordings)) {
  findWindows();
  findWaits();
  if (manifest.predicted)
    prediction = layOut(*manifest.predicted, program.file().schedules());
}

void TraceReport::findWindows() {
  std::map<uint32_t, std::pair<Window, size_t>> found;
  for (const RankRecording &rank : ranks)
    for (const TraceEvent &event : rank.recorder->events()) {
      // A rank that has lost an end did not finish the step.
      if (event.kind != TraceKind::Step || event.end == 0)
        continue;
      auto [it, isNew] = found.try_emplace(
          event.step, Window{event.step, event.begin, event.end}, 0);
      Window &window = it->second.first;
      window.begin = std::min(window.begin, event.begin);
      window.end = std::max(window.end, event.end);
      ++it->second.second;
    }
  for (const auto &[step, entry] : found)
    if (entry.second == ranks.size())
      windows.push_back(entry.first);
}

void TraceReport::findWaits() {
  // The n-th operation of a rank on a channel meets the n-th of the other end:
  // messages by sender and receiver, collectives by the list of ranks.
  using Channel = std::vector<int>;
  struct Use {
    size_t rank, event;
  };
  std::map<Channel, std::map<int, std::vector<Use>>> channels;
  std::vector<int> everyone(size_t(manifest.world));
  for (size_t r = 0; r < everyone.size(); ++r)
    everyone[r] = int(r);
  waits.resize(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::span<const TraceEvent> events = ranks[r].recorder->events();
    int self = ranks[r].recorder->rank();
    waits[r].assign(events.size(), 0);
    for (size_t e = 0; e < events.size(); ++e) {
      const TraceEvent &event = events[e];
      if (event.kind != TraceKind::Communication)
        continue;
      if (event.tableCount == 0) {
        const std::vector<int> &members =
            event.group ? event.group->ranks() : everyone;
        channels[members][self].push_back({r, e});
        continue;
      }
      // A length of 2 could be a group: messages have a third number.
      for (size_t t = 0; t < event.tableCount; ++t) {
        for (const ExchangePeer &peer : event.tables[t]->sends)
          if (peer.peer != self)
            channels[{self, peer.peer, -1}][self].push_back({r, e});
        for (const ExchangePeer &peer : event.tables[t]->receives)
          if (peer.peer != self)
            channels[{peer.peer, self, -1}][self].push_back({r, e});
      }
    }
  }
  for (const auto &[channel, members] : channels) {
    size_t rendezvous = size_t(-1);
    for (const auto &[rank, uses] : members)
      rendezvous = std::min(rendezvous, uses.size());
    for (size_t n = 0; n < rendezvous; ++n) {
      auto eventOf = [&](const Use &use) -> const TraceEvent & {
        return ranks[use.rank].recorder->events()[use.event];
      };
      uint64_t last = 0;
      for (const auto &[rank, uses] : members)
        last = std::max(last, eventOf(uses[n]).begin);
      for (const auto &[rank, uses] : members) {
        const TraceEvent &event = eventOf(uses[n]);
        uint64_t wait =
            std::min(last, std::max(event.begin, event.end)) - event.begin;
        uint64_t &most = waits[uses[n].rank][uses[n].event];
        most = std::max(most, wait);
      }
    }
  }
}

TimeShares TraceReport::measured() const {
  TimeShares shares;
  double length = 0, compute = 0, exposed = 0, bubble = 0;
  for (const Window &window : windows)
    length += double(window.end - window.begin);
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::span<const TraceEvent> events = ranks[r].recorder->events();
    // On a device what the host did says nothing: kernels run when all streams
    // allow it, and members of a collective wait inside it.
    std::vector<std::pair<uint64_t, uint64_t>> kernels, all;
    for (size_t e = 0; e < events.size(); ++e) {
      const TraceEvent &event = events[e];
      bool counted = std::any_of(
          windows.begin(), windows.end(),
          [&](const Window &window) { return window.step == event.step; });
      if (!counted || event.end < event.begin)
        continue;
      if (event.deviceEnd) {
        if (event.kind == TraceKind::Kernel)
          kernels.emplace_back(event.deviceBegin, event.deviceEnd);
        all.emplace_back(event.deviceBegin, event.deviceEnd);
        continue;
      }
      if (ranks[r].recorder->hasDevice())
        continue;
      double time = double(event.end - event.begin);
      if (event.kind == TraceKind::Kernel)
        compute += time;
      if (event.kind == TraceKind::Communication) {
        bubble += double(waits[r][e]);
        exposed += time - double(waits[r][e]);
      }
    }
    double computing = unionLength(std::move(kernels));
    compute += computing;
    exposed += unionLength(std::move(all)) - computing;
  }
  shares.steps = windows.size();
  if (windows.empty() || length <= 0)
    return shares;
  length *= double(ranks.size());
  shares.milliseconds =
      length / double(ranks.size()) / double(windows.size()) / 1e6;
  shares.compute = compute / length;
  shares.exposedCommunication = exposed / length;
  shares.bubble = bubble / length;
  shares.idle = std::max(0.0, 1 - shares.compute - shares.exposedCommunication -
                                  shares.bubble);
  return shares;
}

bool TraceReport::predicted(TimeShares &shares) const {
  if (!prediction || prediction->length <= 0)
    return false;
  double compute = 0, exposed = 0, copied = 0, world = 0;
  for (size_t r = 0; r < prediction->roles.size(); ++r) {
    // Spans of one row do not overlap; communication counts where no
    // computation runs.
    double computing = 0, communicating = 0, both = 0, copying = 0;
    const std::vector<PredictedSpan> &spans = prediction->roles[r];
    for (size_t i = 0; i < spans.size(); ++i) {
      const PredictedSpan &span = spans[i];
      double length = span.end - span.begin;
      // What is measured has copies from and to the host as neither.
      if (span.row == PredictedRow::Compute)
        (span.task.kind == GRT_TASK_SWAP ? copying : computing) += length;
      if (span.row != PredictedRow::Communication)
        continue;
      communicating += length;
      // What overlaps belongs to one layer's backward, of at most two
      // computations and three communications.
      for (size_t j = i < 4 ? 0 : i - 4; j < i; ++j)
        if (spans[j].row == PredictedRow::Compute)
          both += std::max(0.0, std::min(spans[j].end, span.end) -
                                    std::max(spans[j].begin, span.begin));
    }
    double count = double(manifest.roles[r].devices.size());
    compute += computing * count;
    copied += copying * count;
    exposed += (communicating - both) * count;
    world += count;
  }
  double length = prediction->length * world;
  shares = TimeShares();
  shares.steps = 1;
  shares.milliseconds = prediction->length / 1e3;
  shares.compute = compute / length;
  shares.exposedCommunication = exposed / length;
  shares.idle = copied / length;
  shares.bubble = std::max(0.0, 1 - shares.compute -
                                    shares.exposedCommunication - shares.idle);
  return true;
}

void TraceReport::write(const std::string &path) const {
  // Steps stand one after the other, measured and predicted side by side: a
  // step begins where the longer of the two before it ends.
  struct Place {
    uint64_t begin; ///< of the step, as recorded
    double at;      ///< nanoseconds in the trace
  };
  std::map<uint32_t, Place> places;
  double next = 0;
  for (const Window &window : windows) {
    places[window.step] = {window.begin, next};
    next += std::max(double(window.end - window.begin),
                     prediction ? prediction->length * 1e3 : 0.0);
  }
  uint64_t lost = 0;
  for (const RankRecording &rank : ranks)
    lost += rank.recorder->lost();
  nlohmann::ordered_json other = {{"measured-step-ms", measured().milliseconds},
                                  {"steps", windows.size()},
                                  {"lost-events", lost}};
  if (prediction)
    other["predicted-step-ms"] = prediction->length / 1e3;

  AtomicFile file(path);
  file.write("{\"displayTimeUnit\":\"ms\",\"otherData\":" + other.dump() +
             ",\n\"traceEvents\":[");
  EventWriter out(file);
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankRecording &rank = ranks[r];
    const Role &role = manifest.roles[rank.role];
    const grt_transfer_part *transfers =
        program.file().schedules()[size_t(rank.role)].transfers;
    int self = rank.recorder->rank();
    out.name(self, 0, "process_name",
             "rank " + std::to_string(self) + " (stage " +
                 std::to_string(role.stage) + ")");
    for (int thread = 0; thread < ThreadCount; ++thread) {
      if (thread >= PredictedTasks && !prediction)
        continue;
      out.name(self, thread, "thread_name", threadNames[thread]);
      out.order(self, thread);
    }
    for (int s = 0; rank.recorder->hasDevice() && s < GRT_STREAM_COUNT; ++s) {
      out.name(self, DeviceRows + s, "thread_name", streamNames[s]);
      out.order(self, DeviceRows + s);
    }
    auto of = [&](int layer, const std::string &text) {
      return layer >= 0 ? text + " " + role.layers[layer].name : text;
    };
    std::span<const TraceEvent> events = rank.recorder->events();
    for (size_t e = 0; e < events.size(); ++e) {
      const TraceEvent &event = events[e];
      auto place = places.find(event.step);
      if (place == places.end() || event.end < event.begin)
        continue;
      double begin =
          place->second.at + double(event.begin - place->second.begin);
      double end = begin + double(event.end - event.begin);
      auto onDevice = [&](const std::string &text, const char *category) {
        if (event.deviceEnd)
          out.slice(self, DeviceRows + event.stream, text, category,
                    place->second.at +
                        double(event.deviceBegin - place->second.begin),
                    place->second.at +
                        double(event.deviceEnd - place->second.begin));
      };
      switch (event.kind) {
      case TraceKind::Step:
        out.slice(self, MeasuredTasks, "step " + std::to_string(event.step),
                  "step", begin, end);
        break;
      case TraceKind::Task:
        out.slice(self, MeasuredTasks, taskText(event.task, transfers), "task",
                  begin, end);
        break;
      case TraceKind::Function:
        out.slice(self, MeasuredTasks, of(event.layer, phaseName(event.detail)),
                  "function", begin, end);
        break;
      case TraceKind::Kernel: {
        std::string text = kernelName(event.detail);
        if (event.name)
          text += std::string(" ") + event.name;
        out.slice(self, MeasuredTasks, text, "kernel", begin, end);
        onDevice(text, "kernel");
        break;
      }
      case TraceKind::Communication: {
        std::string text = of(event.layer, event.name);
        out.slice(self, MeasuredCommunication, text, "communication", begin,
                  end);
        onDevice(text, "communication");
        if (waits[r][e] > 0)
          out.slice(self, MeasuredWaits, text, "wait", begin,
                    begin + double(waits[r][e]));
        break;
      }
      }
      if (event.kind != TraceKind::Communication)
        out.memory(self, end, event.live, rank.plannedBytes);
    }
    if (!prediction)
      continue;
    for (const auto &[step, place] : places)
      for (const PredictedSpan &span : prediction->roles[rank.role]) {
        double begin = place.at + span.begin * 1e3;
        double end = place.at + span.end * 1e3;
        switch (span.row) {
        case PredictedRow::Task:
          out.slice(self, PredictedTasks, taskText(span.task, transfers),
                    "task", begin, end);
          break;
        case PredictedRow::Compute:
          out.slice(self, PredictedCompute, of(span.layer, span.what),
                    "function", begin, end);
          break;
        case PredictedRow::Communication:
          out.slice(self, PredictedCommunication, of(span.layer, span.what),
                    "communication", begin, end);
          break;
        }
      }
  }
  out.flush();
  file.write("\n]}\n");
  file.commit();
}

} // namespace grt
