// Which nodes of a job its GPUs compute by one kernel (--fuse auto).
#ifndef WEFT_TRAINING_JOB_FUSED_NODES_H_
#define WEFT_TRAINING_JOB_FUSED_NODES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "graph/ids.h"
#include "graph/partition.h"
#include "graph/plan.h"
#include "ops/fusion/fusion_rules.h"

namespace weft {

// A node that is several.
struct FusedKernel {
  std::string node;                // its name: that of one of the parts
  std::vector<std::string> parts;  // "relu_1 (Relu)", in order
};

// Of one rank on a GPU, for a step. Each micro graph counts once.
struct RankFusion {
  RankId rank;
  int nodes = 0;  // that are parts of others
  std::vector<FusedKernel> kernels;
};

struct JobFusion {
  // One line: "fused: 412 nodes run in 97 kernels on each of 8 GPUs", or rank by rank where they
  // differ; why nothing is fused, or that this program cannot tell. "" where no partition asks for
  // it.
  std::string text;
  std::vector<RankFusion> ranks;  // in the order of the partitions
};

// As the lowering of each worker with a GPU will fuse the nodes (executor/lowering/fuse_nodes.h),
// where its partition asks for it and is not strict, and the libraries of the GPUs take all
// products that could be joined. `rules` are those of GPUs (ops/fusion/fusion_rules.h); null where
// this program has none: then no rank is known. The errors of FuseNodes come through. Thread-safe.
absl::StatusOr<JobFusion> FusionOf(const std::vector<Partition>& partitions,
                                   const ClusterSpec& cluster, const Plan& plan,
                                   const FusionRules* rules);

// The kernels with their parts, a line each, under the ranks that have them: "fused kernels of
// ranks 0, 1". Ranks with the same kernels come together. "" without any.
std::string FusedKernelsText(const std::vector<RankFusion>& ranks);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_FUSED_NODES_H_
