//===- swap_order.cpp - Events between swaps and what runs ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One walk over a role's tasks in the order in which the host puts them on
// streams. Every queue knows how far the others have come at least; a wait
// tells it what the recording queue knew, and a task must know of all that it
// needs.
//
//===----------------------------------------------------------------------===//

#include "grt/swap_order.h"
#include "grt/accesses.h"
#include "schedule/fault_log.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <tuple>

namespace galvatron::tasks {
namespace {

/// Queues that work tasks off in order; the host runs the tasks that end a
/// step.
enum class Queue : uint8_t { Compute, Transfer, In, Out, Host };
constexpr size_t kQueues = 5;

/// The number of the last task that is known to be done, by queue; -1: none.
using Positions = std::array<int64_t, kQueues>;

Positions nothing() {
  Positions none;
  none.fill(-1);
  return none;
}

void join(Positions &mine, const Positions &others) {
  for (size_t queue = 0; queue < kQueues; ++queue)
    mine[queue] = std::max(mine[queue], others[queue]);
}

/// Kind of memory that a swap shares with other tasks.
enum class Shared : uint8_t {
  Parameters, ///< of a place for resident chunks
  Sum,        ///< of gradients, the same
  Slot,       ///< the device's, where slots have their home on the host
  HomeSlot,
  HomeParameters,
  HomeSum
};
/// One piece of shared memory: its kind and a place, or a chunk and a slot.
using Location = std::tuple<Shared, int64_t, int64_t>;

struct Use {
  Location location;
  bool writes;
};

class UseLister {
public:
  UseLister(const TaskProgram &program, int64_t role)
      : program(program), role(role) {}

  const std::vector<Use> &usesOf(const Task &task, bool training) {
    uses.clear();
    swaps = task.kind == TaskKind::Swap;
    // The ends of a tie may be in any layer.
    if (task.kind == TaskKind::TieReduce || task.kind == TaskKind::TieBroadcast)
      for (int64_t chunk : program.chunksOf(role)) {
        use(task.kind == TaskKind::TieReduce ? Shared::HomeSum
                                             : Shared::HomeParameters,
            chunk, true);
      }
    listAccesses(program, role, task, training, accesses);
    for (const Access &access : accesses)
      add(access, endsStep(task.kind));
    return uses;
  }

private:
  void use(Shared shared, int64_t of, bool writes, int64_t slot = 0) {
    uses.push_back({{shared, of, slot}, writes});
  }

  void add(const Access &access, bool atHome) {
    int64_t chunk = access.chunk;
    bool reads =
        access.mode == AccessMode::Read || access.mode == AccessMode::Take;
    switch (access.place) {
    case Place::Slot:
      // A pass fills more of a slot than its mode says, and poisons what it
      // takes. What is done at home has its own room for what arrives.
      if (program.slotsAtHome && !atHome)
        use(Shared::Slot, 0, !swaps || !reads);
      return;
    case Place::HomeSlot:
      return use(Shared::HomeSlot, chunk, !reads, access.slot);
    case Place::Sum:
      if (atHome)
        use(Shared::HomeSum, chunk, access.mode != AccessMode::Read);
      return;
    case Place::Resident:
      return reside(access.mode, chunk, program.residencyOf(chunk));
    default:
      // The other places lie between layers or hold messages.
      return;
    }
  }

  void reside(AccessMode mode, int64_t chunk, int64_t place) {
    switch (mode) {
    case AccessMode::Bring:
      use(Shared::HomeParameters, chunk, false);
      return use(Shared::Parameters, place, true);
    case AccessMode::BringSum:
      use(Shared::HomeSum, chunk, false);
      return use(Shared::Sum, place, true);
    case AccessMode::SendSum:
      use(Shared::Sum, place, false);
      return use(Shared::HomeSum, chunk, true);
    case AccessMode::Add:
      use(Shared::Sum, place, true);
      [[fallthrough]];
    case AccessMode::Read:
      return use(Shared::Parameters, place, false);
    case AccessMode::Reduce:
      return use(Shared::HomeSum, chunk, true);
    default: // Replace
      return use(Shared::HomeParameters, chunk, true);
    }
  }

  const TaskProgram &program;
  int64_t role;
  bool swaps = false;
  std::vector<Access> accesses;
  std::vector<Use> uses;
};

/// A task as the walk sees it.
struct Step {
  const Task *task;
  SchedulePart part;
  int64_t index; ///< in the part
  Queue queue;
  /// The last task of each queue that must be done before: `needs` of those
  /// that only events order, `meets` of layers and messages that meet.
  Positions needs = nothing(), meets = nothing();
};

Queue queueOf(const Task &task) {
  if (task.kind == TaskKind::Swap)
    return task.stream == TaskStream::In    ? Queue::In
           : task.stream == TaskStream::Out ? Queue::Out
                                            : Queue::Compute;
  if (task.kind == TaskKind::Transfer)
    return Queue::Transfer;
  return endsStep(task.kind) ? Queue::Host : Queue::Compute;
}

const char *queueName(Queue queue) {
  static constexpr const char *names[] = {"compute", "transfer", "in", "out",
                                          "the host"};
  return names[size_t(queue)];
}

/// Finds the needs of every task that one batch runs, given in the order in
/// which the host comes to them.
void findNeeds(const TaskProgram &program, int64_t role, bool training,
               std::vector<Step> &steps) {
  struct Cell {
    int64_t writer = -1;
    Positions readers = nothing(); ///< since
  };
  std::map<Location, Cell> cells;
  UseLister lister(program, role);
  auto later = [](int64_t &mine, int64_t other) {
    mine = std::max(mine, other);
  };
  for (size_t number = 0; number < steps.size(); ++number) {
    Step &step = steps[number];
    auto need = [&](int64_t before) {
      if (before < 0)
        return;
      auto other = size_t(steps[before].queue);
      bool isSwap = step.task->kind == TaskKind::Swap ||
                    steps[before].task->kind == TaskKind::Swap;
      later((isSwap ? step.needs : step.meets)[other], before);
    };
    for (const Use &use : lister.usesOf(*step.task, training)) {
      Cell &cell = cells[use.location];
      need(cell.writer);
      if (!use.writes) {
        later(cell.readers[size_t(step.queue)], number);
        continue;
      }
      for (int64_t reader : cell.readers)
        if (reader != int64_t(number))
          need(reader);
      cell = {int64_t(number), nothing()};
    }
  }
}

/// The tasks of a role's batch, or of its evaluation.
std::vector<Step> stepsOf(const TaskProgram &program, int64_t role,
                          bool training) {
  std::vector<Step> steps;
  std::vector<SchedulePart> parts{SchedulePart::Evaluate};
  if (training)
    parts = trainingParts(program, /*batches=*/1);
  for (SchedulePart part : parts)
    for (const Task &task : program.roles[role].part(part))
      steps.push_back({&task, part,
                       &task - program.roles[role].part(part).data(),
                       queueOf(task)});
  return steps;
}

/// Tasks that each queue knows to be done, while tasks are put on queues.
class Progress {
public:
  explicit Progress(std::span<const Step> steps)
      : steps(steps), ended(steps.size(), nothing()) {
    known.fill(nothing());
  }

  /// The host comes to a step: what orders it without events.
  void begin(const Step &step) {
    Positions &mine = of(step.queue);
    join(mine, of(Queue::Host));
    if (step.queue == Queue::Host)
      join(mine, of(Queue::Out));
    for (int64_t before : step.meets)
      if (before >= 0)
        join(mine, ended[before]);
  }
  /// Makes a step wait for an event behind the step `before`.
  void wait(const Step &step, int64_t before) {
    join(of(step.queue), ended[before]);
  }
  void end(const Step &step, int64_t number) {
    of(step.queue)[size_t(step.queue)] = number;
    ended[number] = of(step.queue);
  }
  /// The tasks that are not known to be done, one of a queue at most.
  std::vector<int64_t> missing(const Step &step) const {
    std::vector<int64_t> found;
    const Positions &done = known[size_t(step.queue)];
    for (size_t queue = 0; queue < kQueues; ++queue)
      if (step.needs[queue] > done[queue])
        found.push_back(step.needs[queue]);
    return found;
  }
  /// The number of the step's needs that waiting for the step `before` would
  /// meet.
  int64_t metBy(const Step &step, int64_t before) const {
    int64_t count = 0;
    for (size_t queue = 0; queue < kQueues; ++queue)
      count += step.needs[queue] <= ended[before][queue];
    return count;
  }

private:
  Positions &of(Queue queue) { return known[size_t(queue)]; }

  std::span<const Step> steps;
  std::array<Positions, kQueues> known;
  std::vector<Positions> ended; ///< what a queue knew behind a step
};

/// Gives numbers to events: one that nobody waits for any more is free. Returns
/// what is wrong.
std::string numberEvents(TaskProgram &program, int64_t role,
                         std::span<const Step> steps,
                         std::span<const std::vector<int64_t>> waits) {
  std::map<int64_t, int64_t> lastWait; // by the step that records
  for (size_t number = 0; number < waits.size(); ++number)
    for (int64_t before : waits[number])
      lastWait[before] = int64_t(number);
  std::array<int64_t, kScheduleEvents + 1> inUseUntil;
  inUseUntil.fill(-1);
  for (size_t number = 0; number < steps.size(); ++number) {
    const Step &step = steps[number];
    auto at = int64_t(number);
    Task &task = program.roles[role].part(step.part)[step.index];
    for (size_t i = 0; i < waits[number].size(); ++i)
      task.waits[i] = steps[waits[number][i]].task->records;
    auto last = lastWait.find(at);
    if (last == lastWait.end())
      continue;
    // An event whose last wait is at this step is free again, as the step
    // records behind its waits.
    auto *free = std::find_if(inUseUntil.begin() + 1, inUseUntil.end(),
                              [&](int64_t until) { return until <= at; });
    if (free == inUseUntil.end())
      return proof::joined("swaps of role ", role, " would need more than ",
                           int(kScheduleEvents), " events");
    *free = last->second;
    task.records = uint8_t(free - inUseUntil.begin());
  }
  return "";
}

std::string assignEvents(TaskProgram &program, int64_t role, bool training) {
  std::vector<Step> steps = stepsOf(program, role, training);
  findNeeds(program, role, training, steps);
  std::vector<std::vector<int64_t>> waits(steps.size());
  Progress progress(steps);
  for (size_t number = 0; number < steps.size(); ++number) {
    const Step &step = steps[number];
    progress.begin(step);
    while (true) {
      std::vector<int64_t> missing = progress.missing(step);
      if (missing.empty())
        break;
      // The host waits for no event: what it needs has to have left before.
      if (step.queue == Queue::Host || waits[number].size() == 3)
        return proof::joined("'" + step.task->str(true) + "' of role ", role,
                             " cannot wait for what it needs");
      int64_t best =
          *std::ranges::max_element(missing, [&](int64_t a, int64_t b) {
            return progress.metBy(step, a) < progress.metBy(step, b);
          });
      waits[number].push_back(best);
      progress.wait(step, best);
    }
    progress.end(step, int64_t(number));
  }
  return numberEvents(program, role, steps, waits);
}

/// Looks at what tasks say.
class Checker {
public:
  explicit Checker(const TaskProgram &program) : program(program) {}

  std::vector<ScheduleFault> run() {
    for (size_t role = 0; role < program.roles.size(); ++role)
      for (bool training : {true, false})
        check(int64_t(role), training);
    return std::move(faults);
  }

private:
  void report(int64_t role, const Step &step, const auto &...what) {
    faults.push_back(
        {ScheduleFaultKind::StreamOrder, role, step.part, step.index,
         proof::joined("role ", role, " ", schedulePartName(step.part),
                       " task ", step.index, " '",
                       step.task->str(program.hasSeveralChunks()),
                       "': ", what...)});
  }

  void checkFields(int64_t role, const Step &step) {
    const Task &task = *step.task;
    TaskStream wanted = TaskStream::Compute;
    if (program.swapsOnStreams && task.kind == TaskKind::Swap)
      wanted = task.out ? TaskStream::Out : TaskStream::In;
    if (task.stream != wanted)
      report(role, step, "expected it on stream ", int(wanted), ", found ",
             int(task.stream));
    bool mayHave = program.swapsOnStreams && step.queue != Queue::Host;
    bool has = task.records > 0 ||
               std::ranges::any_of(task.waits,
                                   [](uint8_t event) { return event > 0; });
    if (has && !mayHave)
      report(role, step, "expected no events, found some");
    for (uint8_t event :
         {task.records, task.waits[0], task.waits[1], task.waits[2]})
      if (event > kScheduleEvents)
        report(role, step, "expected events of 1 to ", int(kScheduleEvents),
               ", found ", int(event));
  }

  void check(int64_t role, bool training) {
    std::vector<Step> steps = stepsOf(program, role, training);
    size_t before = faults.size();
    if (program.swapsOnStreams)
      findNeeds(program, role, training, steps);
    for (const Step &step : steps)
      checkFields(role, step);
    if (!program.swapsOnStreams || faults.size() > before)
      return;
    Progress progress(steps);
    std::array<int64_t, kScheduleEvents + 1> recorded;
    recorded.fill(-1);
    for (size_t number = 0; number < steps.size(); ++number) {
      const Step &step = steps[number];
      progress.begin(step);
      for (uint8_t event : step.task->waits) {
        if (event > 0 && recorded[event] < 0)
          report(role, step, "event ", int(event), " has not been recorded");
        else if (event > 0)
          progress.wait(step, recorded[event]);
      }
      for (int64_t missing : progress.missing(step)) {
        const Step &other = steps[missing];
        report(role, step,
               "nothing orders it behind '" +
                   other.task->str(program.hasSeveralChunks()) + "' on " +
                   queueName(other.queue));
      }
      progress.end(step, int64_t(number));
      if (step.task->records > 0)
        recorded[step.task->records] = int64_t(number);
    }
  }

  const TaskProgram &program;
  std::vector<ScheduleFault> faults;
};

} // namespace

std::string assignSwapEvents(TaskProgram &program) {
  // Packs take turns in one place, and use it whole: nothing of the next one
  // can come beside, so their copies stand among the layers.
  if (program.residentChunks == 0 || program.hasPacks)
    return "";
  for (RoleProgram &role : program.roles)
    for (std::vector<Task> &part : role.parts)
      for (Task &task : part)
        if (task.kind == TaskKind::Swap)
          task.stream = task.out ? TaskStream::Out : TaskStream::In;
  program.swapsOnStreams = true;
  for (size_t role = 0; role < program.roles.size(); ++role)
    for (bool training : {true, false})
      if (std::string problem = assignEvents(program, int64_t(role), training);
          !problem.empty())
        return problem;
  return "";
}

std::vector<ScheduleFault> checkSwapOrder(const TaskProgram &program) {
  return Checker(program).run();
}

} // namespace galvatron::tasks
