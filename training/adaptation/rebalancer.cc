#include "training/adaptation/rebalancer.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "executor/program/planned_memory.h"
#include "platform/byte_quantity.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "training/job/rank_device.h"

namespace weft {
namespace {

// Moving is worth preparing programs when steps get so many times faster.
constexpr double kMinGain = 1.1;
// Without a change that was told, shares are looked at again after so many observations.
constexpr int64_t kPatience = 16;
// Workers keep the programs of all shares that they had; so many at most.
constexpr size_t kMaxPrograms = 8;

// The ranks at the same place of the other replicas.
std::vector<std::vector<int>> PeersOf(const Mesh& mesh) {
  std::vector<std::vector<int>> peers(static_cast<size_t>(mesh.size()));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    for (const RankId peer : mesh.Group(RankId(rank), MeshAxis::kData)) {
      if (peer.value != rank) peers[static_cast<size_t>(rank)].push_back(peer.value);
    }
  }
  return peers;
}

std::string Milliseconds(double seconds) { return absl::StrFormat("%.3g ms", 1e3 * seconds); }

}  // namespace

Rebalancer::Rebalancer(PreparedJob& job, const Coordinator& coordinator, Repartition repartition,
                       RebalancerOptions options)
    : job_(job),
      coordinator_(coordinator),
      repartition_(std::move(repartition)),
      options_(std::move(options)),
      watch_(PeersOf(job.plan.mesh)),
      log_(options_.clock != nullptr ? *options_.clock : RealClock(), options_.say),
      plan_(job.plan) {
  Begin();
}

void Rebalancer::Begin() {
  plan_ = job_.plan;
  kind_ = kTrainingSteps;
  kinds_ = {{MicroBatches(), kind_}};
  rows_.clear();
  told_ = false;
  decided_ = 0;
}

void Rebalancer::MembersChanged() {
  watch_ = StragglerDetector(PeersOf(job_.plan.mesh));
  Begin();
}

std::vector<int> Rebalancer::MicroBatches() const {
  std::vector<int> counts;
  for (int replica = 0; replica < plan_.mesh.data; ++replica) {
    counts.push_back(MicroBatchesOf(replica, plan_.micro_batches));
  }
  return counts;
}

int Rebalancer::MicroBatchesOf(int replica, int total) const {
  return plan_.FirstMicroBatch(replica + 1, total) - plan_.FirstMicroBatch(replica, total);
}

void Rebalancer::Observe(int rank, const StepReport& report) {
  const BatchShape shape = job_.data->shape_of(report.step);
  Row& row = rows_[report.step];
  row.ranks.resize(static_cast<size_t>(plan_.mesh.size()));
  RankWork& work = row.ranks[static_cast<size_t>(rank)];
  const int replica = plan_.mesh.CoordinateOf(RankId(rank)).data;
  // A last batch may have fewer samples than the job has micro-batches.
  const auto total = static_cast<int>(std::min<int64_t>(plan_.micro_batches, shape.batch));
  work.micro_batches = MicroBatchesOf(replica, total);
  work.update_seconds = std::max(0.0, report.update_seconds);
  work.micro_batch_seconds =
      std::max(0.0, report.seconds - report.waited_seconds - work.update_seconds);
  if (++row.count < plan_.mesh.size()) return;
  const std::vector<RankWork> ranks = std::move(row.ranks);
  rows_.erase(report.step);
  const std::string text = absl::StrCat(shape.batch, "x", shape.length);
  for (const SpeedChange& change : watch_.Add(report.step, text, ranks)) Tell(change);
  log_.Update();
}

void Rebalancer::Tell(const SpeedChange& change) {
  told_ = true;
  const std::string name = coordinator_.name(change.rank);
  Log(LogLevel::kInfo, "straggler: ", name,
      change.kind == SpeedChange::Kind::kRecovered ? " recovered" : " slow", " since step ",
      change.since + 1, ": ", Milliseconds(change.seconds), " of a step, usually ",
      Milliseconds(change.usual));
  const std::string when =
      absl::StrCat("since step ", change.since + 1, ", seen after step ", change.step + 1);
  if (change.kind == SpeedChange::Kind::kRecovered) {
    log_.Add(change, name,
             absl::StrCat("speed  ", name, " works as fast as before again, ", when, ": ",
                          Milliseconds(change.seconds), " of each step"));
    return;
  }
  const bool own = change.kind == SpeedChange::Kind::kSlower;
  log_.Add(change, name,
           absl::StrCat("slow   ", name,
                        absl::StrFormat(" works %.1f times slower than ", change.factor),
                        own ? "before" : "the others on the same", ", ", when, ": ",
                        Milliseconds(change.seconds), " of each step instead of ",
                        Milliseconds(change.usual), Advice()));
}

std::string Rebalancer::WhyNothingMoves(const Plan& plan) {
  if (plan.mesh.data == 1) {
    return absl::StrCat("the plan has one replica, ", plan.mesh.ToString(),
                        ", so its samples have no other place; use --parallel dp=2");
  }
  if (plan.micro_batches > plan.mesh.data) return "";
  return absl::StrCat("each of the ", plan.mesh.data,
                      " replicas has one micro-batch; --micro-batches ", 4 * plan.mesh.data,
                      " gives some that can be moved");
}

std::string Rebalancer::Advice() const {
  const std::string why = WhyNothingMoves(plan_);
  if (!why.empty()) return absl::StrCat("; --rebalance could do nothing: ", why);
  const std::vector<ReplicaSpeed> speeds = ReplicaSpeeds();
  if (speeds.empty()) return "";
  const std::vector<int> best = BalanceShares(speeds, plan_.micro_batches);
  const double now = SecondsWithShares(speeds, MicroBatches());
  const double then = SecondsWithShares(speeds, best);
  if (now < kMinGain * then) {
    return absl::StrCat("; another split of the ", plan_.micro_batches,
                        " micro-batches would be no faster");
  }
  if (options_.moves) return "";
  return absl::StrCat("; --rebalance would split the ", plan_.micro_batches, " micro-batches ",
                      absl::StrJoin(best, ":"), ", and a step takes about ", Milliseconds(then),
                      " of work instead of ", Milliseconds(now));
}

std::vector<ReplicaSpeed> Rebalancer::ReplicaSpeeds() const {
  const std::vector<RankSpeed> speeds = watch_.Speeds();
  if (speeds.empty()) return {};
  std::vector<ReplicaSpeed> replicas(static_cast<size_t>(plan_.mesh.data));
  for (int rank = 0; rank < plan_.mesh.size(); ++rank) {
    const int at = plan_.mesh.CoordinateOf(RankId(rank)).data;
    ReplicaSpeed& replica = replicas[static_cast<size_t>(at)];
    const RankSpeed& speed = speeds[static_cast<size_t>(rank)];
    replica.micro_batch_seconds = std::max(replica.micro_batch_seconds, speed.micro_batch_seconds);
    replica.step_seconds = std::max(replica.step_seconds, speed.update_seconds);
  }
  return replicas;
}

absl::StatusOr<std::string> Rebalancer::ChooseProgram(Coordinator& coordinator, int64_t step) {
  const bool is_time = told_ || watch_.observations() - decided_ >= kPatience;
  if (!options_.moves || gave_up_ || !is_time || !WhyNothingMoves(plan_).empty()) return kind_;
  const std::vector<ReplicaSpeed> speeds = ReplicaSpeeds();
  if (speeds.empty()) return kind_;
  told_ = false;
  decided_ = watch_.observations();
  const std::vector<int> before = MicroBatches();
  Plan plan = plan_;
  plan.shares = BalanceShares(speeds, plan_.micro_batches);
  plan.prediction = Prediction();  // of other shares
  const double now = SecondsWithShares(speeds, before);
  const double then = SecondsWithShares(speeds, plan.shares);
  Log(LogLevel::kInfo, "rebalance after step ", step, ": ", Milliseconds(now),
      " of work in a step, with the best shares ", Milliseconds(then));
  if (now < kMinGain * then) return kind_;
  WEFT_ASSIGN_OR_RETURN(const std::string kind, AddPrograms(coordinator, plan));
  if (kind == kind_) return kind_;
  kind_ = kind;
  plan_ = std::move(plan);
  ++moves_;
  watch_.BeginProgram();
  if (options_.on_plan != nullptr) options_.on_plan(plan_);
  log_.SayWhoIsSlow();
  options_.say(absl::StrCat("moved  micro-batches ", absl::StrJoin(plan_.shares, ":"),
                            " instead of ", absl::StrJoin(before, ":"), " from step ", step + 1,
                            " on: a step takes about ", Milliseconds(then), " of work instead of ",
                            Milliseconds(now), plan_.strict ? "" : "; sums may round otherwise"));
  return kind_;
}

absl::StatusOr<std::string> Rebalancer::AddPrograms(Coordinator& coordinator, const Plan& plan) {
  const auto known = kinds_.find(plan.shares);
  if (known != kinds_.end()) return known->second;
  if (kinds_.size() >= kMaxPrograms) return kind_;
  const std::string kind = absl::StrCat(kTrainingSteps, "@", absl::StrJoin(plan.shares, ":"));
  absl::StatusOr<std::vector<JobProgram>> programs = repartition_(plan, kind);
  absl::Status status = programs.status();
  if (status.ok()) status = CheckMemory(*programs);
  if (!status.ok()) {
    gave_up_ = true;
    options_.say(absl::StrCat("warning: --rebalance: ", std::string(status.message()),
                              "; the job continues with its current shares"));
    return kind_;
  }
  const std::string data = job_.data->spec().ToJson();
  for (JobProgram& program : *programs) {
    WEFT_RETURN_IF_ERROR(coordinator.AddProgram(program.name, program.partitions, data).status());
    job_.programs.push_back(std::move(program));
  }
  kinds_[plan.shares] = kind;
  return kind;
}

// A worker that refused a program would end the job, so nobody is asked who could.
absl::Status Rebalancer::CheckMemory(const std::vector<JobProgram>& programs) const {
  for (int rank = 0; rank < coordinator_.size(); ++rank) {
    const WorkerMemory& worker = coordinator_.memory()[static_cast<size_t>(rank)];
    int64_t arena = worker.requirement.arena_bytes, more = kProcessGrowthBytes;
    for (const JobProgram& program : programs) {
      const Partition& partition = program.partitions[static_cast<size_t>(rank)];
      // What this machine has no device or kernel for, the worker has compiled before.
      const absl::StatusOr<Device*> device = DeviceOfRank(job_.cluster, job_.plan, partition.rank);
      if (!device.ok()) continue;
      const absl::StatusOr<ProgramMemory> memory = PlanProgramMemory(partition, **device);
      if (!memory.ok()) continue;
      arena = std::max(arena, memory->arena_bytes);
      more += memory->constant_bytes + memory->packed_bytes + memory->staging_bytes;
    }
    more += arena - worker.requirement.arena_bytes;
    const int64_t need = worker.requirement.total() + more;
    if (worker.limit.bytes <= 0 || need <= worker.limit.bytes) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat(worker.worker, " may have ", ByteQuantity(worker.limit.bytes),
                     " of memory and would need about ", ByteQuantity(need)));
  }
  return absl::OkStatus();
}

}  // namespace weft
