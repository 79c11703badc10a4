// A job as data: how its steps are made, and what every rank runs in them.
#ifndef WEFT_TRAINING_JOB_JOB_SPEC_H_
#define WEFT_TRAINING_JOB_JOB_SPEC_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "graph/graph.h"
#include "graph/partition.h"
#include "graph/plan.h"
#include "ops/defs/optimizer/rate_schedule.h"
#include "placement/cost/cost_model.h"
#include "placement/cost/run_history.h"
#include "training/checkpoint/flag_record.h"
#include "training/data/data_set.h"
#include "training/job/compiled_memory.h"

namespace weft {

struct StoredPrograms;  // training/job/stored_programs.h

// Whether and how a training job's plan is searched for (training/job/job_search.h).
struct PlanSearch {
  bool wanted = false;
  // It may use fewer workers than there are.
  bool may_leave_out = false;
  // Where it cannot search, that is an error. Else the plan is then completed as it was given.
  bool demanded = false;
  // Plan::micro_batches was given.
  bool keep_micro_batches = false;
  // Plan::micro_batches was not given, but is what strict jobs usually have.
  bool default_micro_batches = false;
  std::string strategy = "dp";  // SearchOptions::strategy
  // SearchOptions::max_replicas and batch_reason: LimitBatchCuts sets them.
  int max_replicas = 0;
  std::string batch_reason = {};
  // What workers of a host share that nobody gave a limit; 0 = any amount.
  int64_t host_memory = 0;
};

// What a job does where nodes mix the samples of a batch (placement/sharding/batch_mixing.h), so
// that cutting the batch changes results.
struct BatchPolicy {
  // The statistics of BatchNormalization in training are those of each micro-batch, not of the
  // whole batch.
  bool statistics_of_micro_batches = false;
  // Each micro-batch is mixed by itself, whatever mixes.
  bool allows_cuts = false;
};

// What becomes of operators that have no kernel on a GPU of the plan
// (training/job/cpu_fallback.h).
enum class CpuFallback : uint8_t {
  kSmallShare,  // they run on the worker's host where that is little of the step; else refused
  kAllow,
  kRefuse,
};

// How steps are made of a data set: everything but the graph.
struct JobSpec {
  ClusterSpec cluster;
  // As the user gave it (mesh all 1 = nothing given); completed by Prepare.
  Plan plan;
  // The plan comes from the model's file: names of it that the graph does not have are left out.
  bool drop_absent_names = false;
  PlanSearch search = {};
  BatchPolicy batch_policy = {};
  CpuFallback cpu_fallback = CpuFallback::kSmallShare;
  // What searches and predictions rest on; null: the cluster spec.
  std::shared_ptr<const CostModel> costs = nullptr;
  double stall_timeout_seconds = 60;
  // What a worker may have where the cluster does not say; 0 = what its machine allows.
  int64_t memory_per_worker = 0;
  // The loop will ask for checkpoints.
  bool checkpoints = false;
  // Its ranks agree on each step (JobMembership::commits), so that it can go on without one.
  bool commits = false;
  // After so many steps each rank's state is copied to another (Replication::every); 0 = never.
  int64_t replicate_every = 0;
  // Only what its steps measure is wanted: its weights are thrown away.
  bool measures_only = false;
  // Earlier runs, from which the costs of its model are corrected (CostsOf).
  std::vector<RunHistoryEntry> history = {};
  // Plan and programs that the job takes instead of making its own; null: it makes them.
  std::shared_ptr<const StoredPrograms> stored = nullptr;
  // The flags that were given and change what is computed: to say why `stored` does not fit.
  FlagRecord given_flags = {};
};

// One kind of step and what every rank runs in it.
struct JobProgram {
  // "train/128" or "train/128x64": kind, samples of the global batch, length of padded inputs.
  std::string name;
  BatchShape shape;
  std::vector<Partition> partitions;  // by rank
  size_t update = 0;                  // of PreparedJob::updates, where there are some
};

// One of several updates that a job makes in turn (training/job/alternation.h).
struct PreparedUpdate {
  std::string name;
  int64_t steps = 1;      // in a row
  std::string loss;       // LossSpec::kind
  std::string optimizer;  // OptimizerSpec::kind
  int parameters = 0;     // that it changes
  double learning_rate = 0;
  RateSchedule schedule = {};
  std::shared_ptr<const DataSet> data;
};

// A job that is ready to run: its graph, complete plan, data, and the partitions of all ranks.
struct PreparedJob {
  Graph graph;          // the logical one
  Plan plan;            // complete
  ClusterSpec cluster;  // whose workers the plan names
  // What people should know of the plan, a line each.
  std::vector<std::string> notes;
  // CostModel::StepFactor that is in the plan's predicted step.
  double step_factor = 1;
  // What steps of a training job take as learning rate: the base, times RateFactor(schedule, step).
  double learning_rate = 0;
  RateSchedule schedule = {};
  std::vector<JobProgram> programs;
  // Which nodes run on the hosts of GPUs, its workers say when they have the programs
  // (WorkersSettleFallback).
  bool workers_settle_fallback = false;
  // What the ranks of the first program need, where they were compiled already; else empty.
  PlannedRanks planned;
  std::shared_ptr<const DataSet> data;
  // Where it makes several in turn; else empty. The fields above are then those of the first, but
  // for programs and notes.
  std::vector<PreparedUpdate> updates = {};
  std::vector<Graph> more_graphs = {};  // of the updates behind the first

  // Of all its updates.
  std::vector<const Graph*> graphs() const {
    std::vector<const Graph*> all = {&graph};
    for (const Graph& more : more_graphs) all.push_back(&more);
    return all;
  }
  // Whose samples a program reads.
  const DataSet& data_of(const JobProgram& program) const {
    return updates.empty() ? *data : *updates[program.update].data;
  }
};

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_JOB_SPEC_H_
