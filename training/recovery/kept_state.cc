#include "training/recovery/kept_state.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "distributed/settle_step.h"
#include "distributed/shards_digest.h"
#include "platform/log.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "training/graph/training_spec.h"
#include "training/job/trainer.h"
#include "training/recovery/held_source.h"

namespace weft {
namespace {

// What each of these keeps, of which the first so many must answer.
absl::StatusOr<std::vector<KeptJob>> AskKept(const std::vector<WorkerClient*>& clients,
                                             size_t needed) {
  std::vector<absl::StatusOr<KeptJob>> replies(clients.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clients.size(); ++i) {
    threads.emplace_back(
        [&replies, &clients, i] { replies[i] = clients[i]->Ask(KeptJobRequest{}); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<KeptJob> kept;
  for (size_t i = 0; i < clients.size(); ++i) {
    if (!replies[i].ok() && i < needed) return Annotate(replies[i].status(), clients[i]->name());
    kept.push_back(replies[i].ok() ? *std::move(replies[i]) : KeptJob());
  }
  return kept;
}

// Steps of the job that were done before the worker's newest stretch; -1: it does not know.
int64_t StretchBegin(const KeptJob& kept) {
  const auto step = kept.note.find(kJobStepNote);
  return step == kept.note.end() ? -1 : static_cast<int64_t>(step->second);
}

int64_t StepsDone(const KeptJob& kept) { return StretchBegin(kept) + kept.steps; }

// Of what is kept of the job with this digest, the job id of the newest state; 0: nothing is kept.
uint64_t NewestJob(const std::vector<KeptJob>& kept, uint64_t job_digest) {
  const KeptJob* newest = nullptr;
  for (const KeptJob& one : kept) {
    if (one.job_id == 0 || one.job_digest != job_digest || StretchBegin(one) < 0) continue;
    if (newest == nullptr || StepsDone(one) > StepsDone(*newest)) newest = &one;
  }
  return newest == nullptr ? 0 : newest->job_id;
}

// Brings those that were in the job to one step. DataLoss: they cannot come to one.
absl::Status Settle(const std::vector<WorkerClient*>& clients, const std::vector<KeptJob>& kept,
                    uint64_t job_id) {
  std::vector<WorkerClient*> members;
  int64_t runs = 0;
  for (size_t i = 0; i < clients.size(); ++i) {
    if (kept[i].job_id != job_id) continue;
    // A run that was lost before its first steps has settled them all.
    if (kept[i].runs == 0) return absl::OkStatus();
    members.push_back(clients[i]);
    runs = std::max(runs, kept[i].runs);
  }
  WEFT_ASSIGN_OR_RETURN(const SettledStep settled, SettleStep(members, runs, /*reported=*/0));
  if (settled.left.size() == members.size()) return absl::OkStatus();
  return absl::UnavailableError("a worker that keeps a part of the job's state is lost");
}

// Of what a rank is going to have.
uint64_t DigestOf(const PreparedJob& job, const PreparedJob* evaluation, size_t rank) {
  std::map<std::string, VariableShard> shards;
  for (const PreparedJob* const one : {&job, evaluation}) {
    if (one == nullptr) continue;
    for (const JobProgram& program : one->programs) {
      for (const VariableShard& shard : program.partitions[rank].variables) {
        shards[shard.name] = shard;
      }
    }
  }
  return ShardsDigest(shards);
}

// Who begins anew, and from whom it takes the state; the reason where nobody has it. `kept`: by
// rank.
std::string Place(std::span<const KeptJob> kept, const PreparedJob& job,
                  const PreparedJob* evaluation, KeptState& state) {
  std::vector<uint64_t> digests;
  std::vector<bool> keeps;
  for (size_t rank = 0; rank < kept.size(); ++rank) {
    digests.push_back(DigestOf(job, evaluation, rank));
    keeps.push_back(kept[rank].job_id == state.job_id && kept[rank].shards_digest == digests[rank]);
  }
  for (size_t to = 0; to < kept.size(); ++to) {
    if (keeps[to]) continue;
    size_t from = 0;
    while (from < kept.size() && !(keeps[from] && digests[from] == digests[to])) ++from;
    if (from == kept.size()) {
      return absl::StrCat("no worker has in its place what worker:", to, " is to have under ",
                          job.plan.mesh.ToString());
    }
    state.newcomers.insert(static_cast<int>(to));
    state.handovers.push_back({static_cast<int>(from), static_cast<int>(to)});
  }
  return "";
}

// What the newest stretch has reported, and the loop's state before it: of the lowest rank of those
// that have begun it.
absl::Status TakeReports(const std::vector<WorkerClient*>& clients,
                         const std::vector<KeptJob>& kept, KeptState& state) {
  size_t teller = kept.size();
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].job_id != state.job_id) continue;
    const bool is_better =
        teller == kept.size() || StretchBegin(kept[i]) > StretchBegin(kept[teller]) ||
        (StretchBegin(kept[i]) == StretchBegin(kept[teller]) && kept[i].rank < kept[teller].rank);
    if (is_better) teller = i;
  }
  state.loop = kept[teller].note;
  state.loop.erase(kJobStepNote);
  if (kept[teller].steps == 0) return absl::OkStatus();
  auto reports = clients[teller]->Ask(StepReportsRequest{.first = 0, .noted = true});
  if (!reports.ok()) return Annotate(reports.status(), clients[teller]->name());
  // A rank of a later stage knows no losses.
  const bool has_losses = std::all_of(reports->begin(), reports->end(), [](const StepReport& one) {
    return one.values.contains(kLossOutput);
  });
  if (has_losses) state.reports = *std::move(reports);
  return absl::OkStatus();
}

// The step that those of the job stand at; the reason where they do not stand at one.
std::string CheckOneStep(const std::vector<WorkerClient*>& clients,
                         const std::vector<KeptJob>& kept, KeptState& state) {
  for (const KeptJob& one : kept) {
    if (one.job_id == state.job_id) state.steps = std::max(state.steps, StepsDone(one));
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].job_id != state.job_id || StepsDone(kept[i]) == state.steps) continue;
    return absl::StrCat(clients[i]->name(), " stands after step ", StepsDone(kept[i]),
                        ", and another worker after step ", state.steps);
  }
  return "";
}

// Those of the job hold what they have, as the state after this step.
absl::Status HoldKept(const std::vector<WorkerClient*>& clients, const std::vector<KeptJob>& kept,
                      const KeptState& state) {
  std::vector<absl::Status> held(clients.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clients.size(); ++i) {
    if (kept[i].job_id != state.job_id) continue;
    threads.emplace_back([&clients, &held, &state, i] {
      held[i] = clients[i]->Ask(HoldStateRequest{.step = state.steps}).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < clients.size(); ++i) {
    if (!held[i].ok()) return Annotate(held[i], clients[i]->name());
  }
  return absl::OkStatus();
}

// The newest state that the workers hold beside their variables; `why` has why those cannot be
// used, and then why that cannot.
absl::Status TakeHeld(const std::vector<WorkerClient*>& clients, const PreparedJob& job,
                      KeptState& state, std::string& why) {
  auto source = HeldSource::FindNewest(clients, StateNames(job));
  if (!source.ok()) {
    if (!absl::IsNotFound(source.status())) return source.status();
    absl::StrAppend(&why, "; and ", std::string(source.status().message()));
    return absl::OkStatus();
  }
  // Reports of later steps are of steps that are done again.
  if (source->step() != state.steps) state.reports.clear();
  state.steps = source->step();
  state.newcomers.clear();
  state.handovers.clear();
  state.source = std::make_shared<HeldSource>(*std::move(source));
  why.clear();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KeptSearch> FindKeptState(const std::vector<WorkerClient*>& clients,
                                         const PreparedJob& job, const PreparedJob* evaluation,
                                         uint64_t job_digest,
                                         const std::vector<WorkerClient*>& others) {
  KeptSearch search;
  if (job_digest == 0) return search;
  std::vector<WorkerClient*> all = clients;
  all.insert(all.end(), others.begin(), others.end());
  WEFT_ASSIGN_OR_RETURN(std::vector<KeptJob> kept, AskKept(all, clients.size()));
  KeptState state;
  state.job_id = NewestJob(kept, job_digest);
  if (state.job_id == 0) return search;
  std::string& why = search.why_not;
  const absl::Status settled = Settle(all, kept, state.job_id);
  if (absl::IsDataLoss(settled)) {
    why = std::string(settled.message());
  } else {
    WEFT_RETURN_IF_ERROR(settled);
    WEFT_ASSIGN_OR_RETURN(kept, AskKept(all, clients.size()));
    why = CheckOneStep(all, kept, state);
  }
  if (why.empty()) {
    WEFT_RETURN_IF_ERROR(TakeReports(all, kept, state));
    why = Place({kept.data(), clients.size()}, job, evaluation, state);
    if (!why.empty()) WEFT_RETURN_IF_ERROR(HoldKept(all, kept, state));
  }
  if (!why.empty()) WEFT_RETURN_IF_ERROR(TakeHeld(all, job, state, why));
  if (!why.empty()) return search;
  Log(LogLevel::kInfo, "the workers keep job ", state.job_id, " after step ", state.steps, ", ",
      state.newcomers.size(), " of ", clients.size(), " begin anew");
  search.state = std::move(state);
  return search;
}

}  // namespace weft
