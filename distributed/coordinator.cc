#include "distributed/coordinator.h"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "distributed/coordinator_epoch.h"
#include "distributed/nccl/card_pairs.h"
#include "distributed/recovery/lost_peer.h"
#include "executor/interfaces/wait_info.h"
#include "executor/variables/variable_store.h"
#include "platform/log.h"
#include "platform/mutex.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// 0: a consequence of what happened elsewhere; 1: a peer was lost; 2: a cause.
int Weight(const absl::Status& status) {
  if (absl::IsAborted(status) || absl::IsCancelled(status)) return 0;
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ? 1 : 2;
}

// Waits of so many workers are told.
constexpr int kMaxWaits = 8;

}  // namespace

absl::Status Coordinator::OnAll(const std::string& doing,
                                const std::function<absl::Status(int)>& call) {
  Mutex mutex;
  absl::Status cause;
  std::vector<absl::Status> errors(clients_.size());
  const auto run = [&](int i) {
    LoggedPhase phase(absl::StrCat("worker:", i, " ", doing), LogLevel::kDebug);
    absl::Status status = call(i);
    if (status.ok()) return;
    phase.Note(status.ToString());
    errors[i] = status;
    bool first = false;
    {
      MutexLock lock(mutex);
      first = cause.ok();
      if (first || Weight(status) > Weight(cause)) cause = NameWorker(status, i);
    }
    if (first) Abort(status);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < size(); ++i) threads.emplace_back(run, i);
  if (size() > 0) run(0);
  for (std::thread& thread : threads) thread.join();
  lost_peers_.clear();
  for (int i = 0; i < size(); ++i) {
    const int peer = LostPeerOf(errors[static_cast<size_t>(i)]).value;
    if (peer >= 0 && peer < size() && peer != i) lost_peers_.emplace_back(i, peer);
  }
  if (cause.ok()) return cause;
  const absl::Status error = Conclude(cause, errors);
  return explain_ == nullptr ? error : explain_(error);
}

absl::Status Coordinator::Conclude(const absl::Status& cause,
                                   const std::vector<absl::Status>& errors) const {
  if (Weight(cause) == 2) return cause;  // waits are only its consequences
  std::string text(cause.message());
  int waits = 0;
  for (size_t i = 0; i < errors.size(); ++i) {
    const std::string wait = WaitText(errors[i]);
    if (wait.empty() || ++waits > kMaxWaits) continue;
    absl::StrAppend(&text, "; worker:", i, " was waiting for ", wait);
  }
  if (waits > kMaxWaits) {
    absl::StrAppend(&text, "; ", waits - kMaxWaits, " more workers were waiting");
  }
  return waits == 0 ? cause : absl::Status(cause.code(), text);
}

absl::Status Coordinator::NameWorker(const absl::Status& status, int rank) const {
  const bool named = absl::StrContains(status.message(), absl::StrCat("worker:", rank));
  return named ? status : Annotate(status, clients_[rank]->name());
}

void Coordinator::Abort(const absl::Status& reason) {
  // One that does not answer must not keep the others from hearing of it.
  std::vector<std::thread> threads;
  for (WorkerClient* client : clients_) {
    threads.emplace_back([client, &reason] { client->Abort(reason); });
  }
  for (std::thread& thread : threads) thread.join();
}

absl::StatusOr<std::vector<WorkerInfo>> Coordinator::Join(const JobMembership& given,
                                                          const std::vector<int64_t>& memory_limits,
                                                          const std::vector<std::string>& devices,
                                                          const std::set<int>& newcomers) {
  JobMembership membership = given;
  if (membership.epoch == 0) membership.epoch = NextEpoch(clients_);
  std::vector<WorkerInfo> infos(clients_.size());
  shards_.assign(clients_.size(), {});
  WEFT_RETURN_IF_ERROR(OnAll("joining the job", [&](int i) -> absl::Status {
    JobMembership own = membership;
    own.rank = RankId(i);
    if (!memory_limits.empty()) own.memory_limit_bytes = memory_limits[i];
    if (!devices.empty()) own.device = devices[i];
    // What one holds that has come later is of another job.
    if (newcomers.contains(i)) own.continues_job_id = own.recovers_job_id = 0;
    WEFT_ASSIGN_OR_RETURN(infos[i], clients_[i]->Join(own));
    return absl::OkStatus();
  }));
  memory_.clear();
  cards_.clear();
  joined_cards_.clear();
  card_use_ = {};
  membership_ = membership;
  replication_ = membership.replication;
  memory_limits_ = memory_limits;
  devices_ = devices;
  runs_ = 0;
  for (int i = 0; i < size(); ++i) {
    memory_.push_back({absl::StrCat("worker:", i), infos[i].memory_limit, {}});
    cards_.push_back(infos[i].card);
  }
  return infos;
}

std::vector<JobMember> Coordinator::members() const {
  std::vector<JobMember> members;
  for (size_t i = 0; i < clients_.size(); ++i) {
    JobMember& member = members.emplace_back();
    member.client = clients_[i];
    if (!membership_.addresses.empty()) member.address = membership_.addresses[i];
    if (!memory_limits_.empty()) member.memory_limit_bytes = memory_limits_[i];
    if (!devices_.empty()) member.device = devices_[i];
  }
  return members;
}

absl::Status Coordinator::GoOnAs(const std::vector<JobMember>& members) {
  return JoinNext(members, /*keeps_variables=*/true);
}

absl::Status Coordinator::BeginAgainAs(const std::vector<JobMember>& members) {
  return JoinNext(members, /*keeps_variables=*/false);
}

absl::Status Coordinator::JoinNext(const std::vector<JobMember>& members, bool keeps_variables) {
  JobMembership membership = membership_;
  membership.addresses.clear();
  clients_.clear();
  std::vector<int64_t> memory_limits;
  std::vector<std::string> devices;
  std::set<int> newcomers;
  for (const JobMember& member : members) {
    if (!member.keeps_state) newcomers.insert(size());
    clients_.push_back(member.client);
    if (!membership_.addresses.empty()) membership.addresses.push_back(member.address);
    memory_limits.push_back(member.memory_limit_bytes);
    devices.push_back(member.device);
  }
  std::random_device random;
  membership.continues_job_id = keeps_variables ? membership_.job_id : 0;
  membership.recovers_job_id = keeps_variables ? 0 : membership_.job_id;
  membership.replication = replication_;
  membership.job_id = (uint64_t{random()} << 32) | random();
  return Join(membership, memory_limits, devices, newcomers).status();
}

absl::Status Coordinator::CheckNewcomer(const JobMember& newcomer) const {
  JobMembership alone = membership_;
  std::random_device random;
  alone.job_id = (uint64_t{random()} << 32) | random();
  alone.continues_job_id = 0;
  alone.recovers_job_id = 0;
  alone.replication = {};
  alone.rank = RankId(0);
  if (!alone.addresses.empty()) alone.addresses = {newcomer.address};
  alone.memory_limit_bytes = newcomer.memory_limit_bytes;
  alone.device = newcomer.device;
  return Annotate(newcomer.client->Join(alone).status(), newcomer.client->name());
}

bool Coordinator::has_leaving() const {
  return std::any_of(clients_.begin(), clients_.end(),
                     [](const WorkerClient* client) { return client->is_leaving(); });
}

absl::StatusOr<std::vector<MemoryRequirement>> Coordinator::AddProgram(
    const std::string& program, const std::vector<Partition>& partitions, const std::string& data) {
  if (partitions.size() != clients_.size()) {
    return absl::InternalError(absl::StrCat("program '", program, "' has ", partitions.size(),
                                            " partitions for ", clients_.size(), " workers"));
  }
  WEFT_RETURN_IF_ERROR(JoinCards(partitions));
  std::vector<MemoryRequirement> reports(clients_.size());
  WEFT_RETURN_IF_ERROR(
      OnAll(absl::StrCat("taking program '", program, "'"), [&](int i) -> absl::Status {
        WEFT_ASSIGN_OR_RETURN(reports[i], clients_[i]->AddProgram(program, partitions[i], data));
        return absl::OkStatus();
      }));
  for (size_t i = 0; i < partitions.size(); ++i) {
    for (const VariableShard& shard : partitions[i].variables) shards_[i][shard.name] = shard;
    memory_[i].requirement = reports[i];
  }
  return reports;
}

absl::Status Coordinator::JoinCards(const std::vector<Partition>& partitions) {
  const CardGroupChoice choice = ChooseCardGroups(cards_, partitions, membership_.strict);
  WEFT_ASSIGN_OR_RETURN(const CardPairChoice sends, ChooseCardPairs(cards_, partitions));
  std::vector<CardGroup> groups;
  for (const std::vector<RankId>& members : choice.groups) groups.push_back({members, ""});
  for (const CardSends& one : sends.sends) {
    groups.push_back({{one.pair.first, one.pair.second}, "", /*sends=*/true, one.channels});
  }

  CardUse use;
  use.pairs = static_cast<int>(sends.sends.size());
  use.refusal = choice.refusal;
  use.send_refusal = sends.refusal;
  std::vector<UseCardGroupsRequest> requests(clients_.size());
  std::set<int> ranks;
  for (CardGroup& group : groups) {
    std::vector<int> key;
    for (const RankId member : group.members) key.push_back(member.value);
    use.nccl_version = cards_[key.front()].nccl_version;
    if (joined_cards_.insert({key, group.sends}).second) {
      WEFT_ASSIGN_OR_RETURN(CardGroupId made, Ask(key.front(), NewCardGroupRequest{}));
      group.id = std::move(made.id);
    }
    for (const int rank : key) {
      requests[rank].groups.push_back(group);
      requests[rank].nccl_version = use.nccl_version;
      if (!group.sends) ranks.insert(rank);
    }
  }
  use.ranks = static_cast<int>(ranks.size());
  const bool has_any = !groups.empty() || !use.refusal.empty() || !use.send_refusal.empty();
  if (has_any) card_use_ = std::move(use);
  if (joined_cards_.empty()) return absl::OkStatus();
  return OnAll(UseCardGroupsRequest::kDoing,
               [&](int i) { return clients_[i]->Ask(requests[i]).status(); });
}

absl::Status Coordinator::WriteVariables(const std::map<std::string, Tensor>& values) {
  return OnAll("taking variables", [&](int i) -> absl::Status {
    for (const auto& [name, shard] : shards_[i]) {
      const auto value = values.find(name);
      if (value == values.end()) continue;
      WEFT_ASSIGN_OR_RETURN(Tensor local, SliceShard(value->second, shard));
      WEFT_RETURN_IF_ERROR(clients_[i]->WriteVariable(name, local));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::map<std::string, Tensor>> Coordinator::ReadVariables(
    const std::vector<std::string>& names) {
  std::map<std::string, Tensor> values;
  const LoggedPhase phase(absl::StrCat("reading ", names.size(), " variables"), LogLevel::kDebug);
  for (const std::string& name : names) {
    for (int i = 0; i < size(); ++i) {
      const auto shard = shards_[i].find(name);
      if (shard == shards_[i].end() || !shard->second.is_primary) continue;
      absl::StatusOr<Tensor> local = clients_[i]->ReadVariable(name);
      if (!local.ok()) return NameWorker(local.status(), i);
      Tensor& whole = values[name];
      const bool is_whole =
          local->dtype() == shard->second.dtype && local->shape() == shard->second.global_shape;
      if (is_whole) {
        whole = *std::move(local);  // not a second copy
        continue;
      }
      if (!whole.valid()) {
        WEFT_ASSIGN_OR_RETURN(whole,
                              Tensor::Allocate(shard->second.dtype, shard->second.global_shape));
      }
      WEFT_RETURN_IF_ERROR(AssembleShard(*local, shard->second, whole));
    }
    if (!values.contains(name)) {
      return absl::NotFoundError(absl::StrCat("no worker owns variable '", name, "'"));
    }
  }
  return values;
}

absl::Status Coordinator::RunSteps(
    const std::vector<StepRange>& ranges, const std::function<void(const StepReport&)>& report,
    const std::function<void(int rank, const StepReport&)>& observe) {
  ++runs_;
  if (observe == nullptr) {
    return OnAll("running steps",
                 [&](int i) { return clients_[i]->RunSteps(ranges, i == 0 ? report : nullptr); });
  }
  std::vector<StepRange> timed = ranges;
  for (StepRange& range : timed) range.times_only = true;
  return OnAll("running steps", [&](int i) {
    return clients_[i]->RunSteps(i == 0 ? ranges : timed, [&, i](const StepReport& done) {
      observe(i, done);
      if (i == 0 && report != nullptr) report(done);
    });
  });
}

}  // namespace weft
