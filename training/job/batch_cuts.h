// How a job's batch may be cut into micro-batches and over replicas, where nodes mix its samples.
#ifndef WEFT_TRAINING_JOB_BATCH_CUTS_H_
#define WEFT_TRAINING_JOB_BATCH_CUTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "graph/graph.h"
#include "training/job/job_spec.h"

namespace weft {

// Looks for nodes of the training graph that mix samples (FindBatchMixing). Without any, `spec`
// stays as it is. Where spec.batch_policy takes statistics of each micro-batch, and nothing else
// mixes, the plan loses whole_batch, also if its file says so; where it allows cuts, if the plan
// cuts. Else the plan gets whole_batch, and a search the limits: one replica where a
// node cannot sum over replicas (or a strict job would have other bits), and why
// (PlanSearch::batch_reason). Micro-batches that nobody gave are one then.
//
// A graph that cannot be looked at is held to mix samples that no replicas can share. But where its
// shapes allow single samples only, there is nothing to mix: then batch_reason says so, nothing is
// limited, and the plan loses whole_batch.
//
// `evaluation`: the graph is an evaluation's. Its replicas sum no statistics, so that all that
// mixes samples needs one replica.
//
// InvalidArgument where the given plan cuts the batch all the same, or where one replica would have
// to take it whole and the graph's shapes do not allow that: it names the node, what it does and
// the flag that accepts it. Jobs that run stored programs are left alone. `batch`: samples of the
// global batch.
absl::Status LimitBatchCuts(const Graph& graph, int64_t batch, JobSpec& spec,
                            bool evaluation = false);

// For a plan that was to be searched for and could not be: completed without a mesh, it would have
// all workers as replicas. Where LimitBatchCuts allows one replica, it has the first worker.
void KeepReplicaLimit(JobSpec& spec);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_BATCH_CUTS_H_
