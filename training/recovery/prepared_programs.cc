#include "training/recovery/prepared_programs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/graph.h"
#include "platform/log.h"
#include "platform/task_thread.h"

namespace weft {
namespace {

int64_t NodesOf(const std::vector<JobProgram>& programs) {
  int64_t nodes = 0;
  for (const JobProgram& program : programs) {
    for (const Partition& partition : program.partitions) {
      nodes += partition.begin.num_nodes() + partition.end.num_nodes();
      for (const Graph& micro : partition.micro) nodes += micro.num_nodes();
    }
  }
  return nodes;
}

}  // namespace

std::string ProgramsKey(const Plan& plan) {
  return absl::StrCat(plan.mesh.ToString(), "; ", plan.micro_batches, "; ",
                      absl::StrJoin(plan.shares, ","), "; ", absl::StrJoin(plan.hosts, ","), "; ",
                      absl::StrJoin(plan.rank_threads, ","));
}

PreparedPrograms::PreparedPrograms(Repartition repartition, PreparedLimits limits)
    : repartition_(std::move(repartition)), limits_(limits), thread_([this] { Run(); }) {}

PreparedPrograms::~PreparedPrograms() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

std::string PreparedPrograms::KeyOf(const Plan& plan) const {
  return absl::StrCat(generation_, ": ", ProgramsKey(plan));
}

void PreparedPrograms::ForgetAll() {
  MutexLock lock(mutex_);
  ++generation_;
  queue_.clear();
  entries_.clear();
}

void PreparedPrograms::Expect(const std::vector<Plan>& plans) {
  MutexLock lock(mutex_);
  std::map<std::string, Entry> expected;
  queue_.clear();
  for (const Plan& plan : plans) {
    const std::string key = KeyOf(plan);
    if (expected.size() >= limits_.plans || expected.contains(key)) continue;
    const auto known = entries_.find(key);
    if (known != entries_.end() && known->second.programs.has_value()) {
      expected[key] = std::move(known->second);
      continue;
    }
    expected[key].plan = plan;
    queue_.push_back(key);
  }
  entries_ = std::move(expected);
  changed_.NotifyAll();
}

void PreparedPrograms::Hurry(const Plan& plan) {
  MutexLock lock(mutex_);
  const std::string key = KeyOf(plan);
  const auto [entry, is_new] = entries_.try_emplace(key);
  if (is_new) entry->second.plan = plan;
  if (entry->second.is_settled) return;
  const auto queued = std::find(queue_.begin(), queue_.end(), key);
  if (!is_new && queued == queue_.end()) return;  // it is under way
  if (queued != queue_.end()) queue_.erase(queued);
  queue_.push_front(key);
  changed_.NotifyAll();
}

bool PreparedPrograms::IsSettled(const Plan& plan) {
  MutexLock lock(mutex_);
  const auto entry = entries_.find(KeyOf(plan));
  return entry != entries_.end() && entry->second.is_settled;
}

std::optional<std::vector<JobProgram>> PreparedPrograms::Take(const Plan& plan) {
  MutexLock lock(mutex_);
  const auto entry = entries_.find(KeyOf(plan));
  if (entry == entries_.end() || !entry->second.programs.has_value()) return std::nullopt;
  std::optional<std::vector<JobProgram>> programs = std::move(entry->second.programs);
  entries_.erase(entry);
  return programs;
}

int PreparedPrograms::ready() {
  MutexLock lock(mutex_);
  return static_cast<int>(std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second.programs.has_value();
  }));
}

void PreparedPrograms::Keep(const std::string& key,
                            absl::StatusOr<std::vector<JobProgram>> programs) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return;  // given up meanwhile
  entry->second.is_settled = true;
  if (!programs.ok()) {
    Log(LogLevel::kInfo, "no programs ahead for ", entry->second.plan.mesh.ToString(), ": ",
        programs.status().ToString());
    return;
  }
  const int64_t nodes = NodesOf(*programs);
  int64_t kept = 0;
  for (const auto& [other, value] : entries_) kept += value.nodes;
  if (kept + nodes > limits_.nodes) {
    Log(LogLevel::kInfo, "no programs ahead for ", entry->second.plan.mesh.ToString(), ": ", nodes,
        " nodes beside ", kept, " are more than ", limits_.nodes);
    return;
  }
  entry->second.nodes = nodes;
  entry->second.programs = *std::move(programs);
}

void PreparedPrograms::Run() {
  GiveWayToOthers();  // the steps of workers on this machine
  while (true) {
    Plan plan;
    std::string key;
    {
      MutexLock lock(mutex_);
      while (!closing_ && queue_.empty()) changed_.Wait(mutex_);
      if (closing_) return;
      key = std::move(queue_.front());
      queue_.pop_front();
      const auto entry = entries_.find(key);
      if (entry == entries_.end() || entry->second.is_settled) continue;
      plan = entry->second.plan;
    }
    absl::StatusOr<std::vector<JobProgram>> programs = repartition_(plan);
    MutexLock lock(mutex_);
    Keep(key, std::move(programs));
  }
}

}  // namespace weft
