// Coordinator: drives the workers of one job through their clients. Holds no model and no plan: the
// caller (training/) makes partitions and initial values.
#ifndef WEFT_DISTRIBUTED_COORDINATOR_H_
#define WEFT_DISTRIBUTED_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/nccl/card_groups.h"
#include "distributed/worker_client.h"
#include "graph/partition.h"
#include "tensor/tensor.h"

namespace weft {

// One worker of a job, as the coordinator knows it.
struct JobMember {
  WorkerClient* client = nullptr;  // borrowed
  std::string address = {};        // of its data streams; "" in this process
  int64_t memory_limit_bytes = 0;  // as in JobMembership; so `device`
  std::string device = {};
  // It is in the job, and goes on with its variables and data. Otherwise it begins without any.
  bool keeps_state = true;
};

// Borrows the clients; client i is rank i. One thread calls it; it calls the workers in parallel.
// The first error ends the job on all workers, once; it is returned with the worker's name. Where
// several fail, the cause is told from its consequences: Aborted and Unavailable give way to any
// other error, and Aborted to Unavailable. When the cause is a lost peer or a wait that expired,
// the error goes on with what each worker was waiting for: "; worker:0 was waiting for tensor 'h'
// (node 'receive/h', step 3, micro-batch 1) from worker:1".
class Coordinator {
 public:
  // `explain`, if any, adds what is known of the processes to the error that ends a call
  // (WorkerCluster::Explain).
  explicit Coordinator(std::vector<WorkerClient*> clients,
                       std::function<absl::Status(const absl::Status&)> explain = nullptr)
      : clients_(std::move(clients)), explain_(std::move(explain)) {}

  // `membership.rank` is filled in for each, its memory limit from `memory_limits` (0 = what the
  // worker's machine allows), and its device from `devices` ("" = any), if there are any: by rank;
  // an epoch of 0 becomes NextEpoch of the workers. `newcomers`: ranks that begin anew, where the
  // others go on with a job (continues_job_id).
  absl::StatusOr<std::vector<WorkerInfo>> Join(const JobMembership& membership,
                                               const std::vector<int64_t>& memory_limits = {},
                                               const std::vector<std::string>& devices = {},
                                               const std::set<int>& newcomers = {});
  // Who is in the job now, by rank.
  std::vector<JobMember> members() const;
  // These members go on, as ranks 0, 1, ... of a new job, those that keep their state with
  // variables, data and limits (JobMembership::continues_job_id). They have no programs then. After
  // an error, no step has been run: it may be called again, for those that are left. REQUIRES: Join
  // was OK, no call is under way, and at least one member keeps its state.
  absl::Status GoOnAs(const std::vector<JobMember>& members);
  // The same, but all begin anew, without variables; those that keep their state keep what they
  // hold (JobMembership::recovers_job_id), and their data.
  absl::Status BeginAgainAs(const std::vector<JobMember>& members);
  // How the states of the ranks are copied in the next job that GoOnAs or BeginAgainAs makes.
  void set_replication(Replication replication) { replication_ = std::move(replication); }
  // Why this worker could not be one of the job's: it joins a job of its own and alone, which has
  // the job's version, libraries, device and limits, and runs nothing. The job's own workers hear
  // nothing of it. REQUIRES: Join was OK; the worker is in no job.
  absl::Status CheckNewcomer(const JobMember& newcomer) const;
  // Whether a worker wants to leave (WorkerClient::is_leaving).
  bool has_leaving() const;
  // partitions[i] goes to rank i.
  absl::StatusOr<std::vector<MemoryRequirement>> AddProgram(
      const std::string& program, const std::vector<Partition>& partitions,
      const std::string& data);
  // Cuts the global tensors into the shards of the programs added so far. Variables without a value
  // here keep theirs (zeros at first).
  absl::Status WriteVariables(const std::map<std::string, Tensor>& values);
  // Global tensors, put together from the primary shards. NotFound for an unknown name.
  absl::StatusOr<std::map<std::string, Tensor>> ReadVariables(
      const std::vector<std::string>& names);
  // All workers run the ranges; `report` gets rank 0's reports, in order, from another thread.
  // `observe`, if any, gets every rank's, each rank's in order and from a thread of its own; those
  // of rank 0 before `report` does, the others without values.
  absl::Status RunSteps(const std::vector<StepRange>& ranges,
                        const std::function<void(const StepReport&)>& report,
                        const std::function<void(int rank, const StepReport&)>& observe = nullptr);
  // Asks all workers a question of distributed/control_calls.h; the answers by rank.
  template <typename Request>
  absl::StatusOr<std::vector<typename Request::Reply>> AskAll(const Request& request);
  // Asks each worker a question of its own, by rank. REQUIRES: one for each.
  template <typename Request>
  absl::StatusOr<std::vector<typename Request::Reply>> AskEach(
      const std::vector<Request>& requests);
  // Asks one of them.
  template <typename Request>
  absl::StatusOr<typename Request::Reply> Ask(int rank, const Request& request) {
    absl::StatusOr<typename Request::Reply> reply = clients_[rank]->Ask(request);
    if (!reply.ok()) return NameWorker(reply.status(), rank);
    return reply;
  }
  void Abort(const absl::Status& reason);
  // How GPUs exchange what the programs added so far have for each other: of the last of them that
  // has anything.
  const CardUse& card_use() const { return card_use_; }
  // The same as a line (DescribeCardUse).
  std::string card_note() const { return DescribeCardUse(card_use_); }
  // Of each worker of the job, by rank.
  const std::vector<WorkerMemory>& memory() const { return memory_; }
  // The parts of variables that a rank has, by name.
  const std::map<std::string, VariableShard>& shards(int rank) const { return shards_[rank]; }
  int size() const { return static_cast<int>(clients_.size()); }
  const std::vector<WorkerClient*>& clients() const { return clients_; }
  // Calls of RunSteps since the workers joined.
  int64_t runs() const { return runs_; }
  // Of this coordinator (JobMembership::epoch); 0 before Join.
  uint64_t epoch() const { return membership_.epoch; }
  // Whether the workers agree on each step (JobMembership::commits).
  bool commits() const { return membership_.commits; }
  // "worker:1 (unix:/..., pid 4711)"
  std::string name(int rank) const { return clients_[rank]->name(); }
  // Of the newest call of all workers, where it has ended with an error: who has lost which other
  // rank, as the errors say; both are of the job. Ascending.
  const std::vector<std::pair<int, int>>& lost_peers() const { return lost_peers_; }

 private:
  // Calls `call(i)` for every worker, each in a thread of its own. `doing` is for the log: what a
  // worker does meanwhile.
  absl::Status OnAll(const std::string& doing, const std::function<absl::Status(int)>& call);
  // The members become the workers, and join a new job.
  absl::Status JoinNext(const std::vector<JobMember>& members, bool keeps_variables);
  // Joins the cards whose collectives in a program stay on them, and says so to the workers.
  absl::Status JoinCards(const std::vector<Partition>& partitions);
  // The error that ends a call of which worker i ended with errors[i]; `cause` is one of them.
  absl::Status Conclude(const absl::Status& cause, const std::vector<absl::Status>& errors) const;
  // The error with the worker's name before it, unless it is in there.
  absl::Status NameWorker(const absl::Status& status, int rank) const;

  std::vector<WorkerClient*> clients_;
  std::function<absl::Status(const absl::Status&)> explain_;
  // By rank and variable.
  std::vector<std::map<std::string, VariableShard>> shards_;
  std::vector<WorkerMemory> memory_;
  // As the workers joined: what all have, and by rank.
  JobMembership membership_;
  Replication replication_;  // of the next job
  std::vector<int64_t> memory_limits_;
  std::vector<std::string> devices_;
  int64_t runs_ = 0;
  std::vector<std::pair<int, int>> lost_peers_;
  std::vector<RankCard> cards_;                               // by rank
  std::set<std::pair<std::vector<int>, bool>> joined_cards_;  // groups, as ranks; for sends
  CardUse card_use_;
};

template <typename Request>
absl::StatusOr<std::vector<typename Request::Reply>> Coordinator::AskAll(const Request& request) {
  return AskEach(std::vector<Request>(clients_.size(), request));
}

template <typename Request>
absl::StatusOr<std::vector<typename Request::Reply>> Coordinator::AskEach(
    const std::vector<Request>& requests) {
  std::vector<typename Request::Reply> replies(clients_.size());
  const absl::Status status = OnAll(Request::kDoing, [&](int i) {
    absl::StatusOr<typename Request::Reply> reply = clients_[i]->Ask(requests[i]);
    if (reply.ok()) replies[i] = *std::move(reply);
    return reply.status();
  });
  if (!status.ok()) return status;
  return replies;
}

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_COORDINATOR_H_
