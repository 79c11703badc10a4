// How a job's batch may be cut into micro-batches and over replicas, where nodes mix its samples.
#ifndef WEFT_TRAINING_JOB_BATCH_CUTS_H_
#define WEFT_TRAINING_JOB_BATCH_CUTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "graph/graph.h"
#include "training/job/job_spec.h"

namespace weft {

// Looks for nodes of the training graph that mix samples (FindBatchMixing). Without any, or where
// spec.batch_policy accepts what they do, `spec` stays as it is. Else the plan gets whole_batch,
// and a search the limits: one replica where a node cannot sum over replicas (or a strict job would
// have other bits), and why (PlanSearch::batch_reason). Micro-batches that
// nobody gave are one then.
//
// InvalidArgument where the given plan cuts the batch all the same: it names the node, what it does
// and the flag that accepts it. Jobs that run stored programs are left alone. `batch`: samples of
// the global batch.
absl::Status LimitBatchCuts(const Graph& graph, int64_t batch, JobSpec& spec);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_BATCH_CUTS_H_
