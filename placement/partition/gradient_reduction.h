// The border between micro-batches and the step on one rank: sums over micro-batches, and over the
// replicas of the data axis. Internal to placement/.
#ifndef WEFT_PLACEMENT_PARTITION_GRADIENT_REDUCTION_H_
#define WEFT_PLACEMENT_PARTITION_GRADIENT_REDUCTION_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/partition.h"
#include "graph/schedule/collective_schedule.h"
#include "placement/partition/local_graph.h"
#include "placement/pipeline/step_layout.h"

namespace weft {

// The sums of one rank, from the outputs of its micro graphs to values of its end graph. Ring
// reduction: one sum over the rank's micro-batches, then an all-reduce when there are several
// replicas. Ordered tree: one sum per complete subtree of the rank's micro-batches, then the
// all-reduce that adds these in tree order (also with one replica, unless its micro-batches are one
// subtree). All-reduces take the sums in buckets of Plan::bucket_bytes, in the order given.
class GradientReducer {
 public:
  // `micro_batches` are the rank's own; empty: its sums are zeros.
  GradientReducer(const StepLayout& layout, Mesh::Coordinate at,
                  std::vector<MicroBatch> micro_batches);

  // Makes the terms of all sums of this stage outputs of a micro graph, under names that all micro
  // graphs of the rank share.
  absl::Status AddTerms(LocalGraph& micro);
  // Whether this stage's share of both lists of sums is one element type and fits one bucket.
  bool FitOneBucket(const std::vector<NodeId>& first, const std::vector<NodeId>& later,
                    const LocalGraph& end) const;
  // Adds the given sums (ids of Accumulate nodes, those of other stages are passed over) to the end
  // graph, with the sends of them.
  absl::Status AddSums(const std::vector<NodeId>& sums, LocalGraph& end);
  // What AddSums has added.
  std::vector<Accumulation>& accumulations() { return accumulations_; }

 private:
  const Node& NodeOf(NodeId sum) const { return layout_.step().graph.node(sum); }
  bool IsHere(NodeId sum) const { return layout_.PlaceOf(NodeOf(sum).stage) == at_.pipeline; }
  absl::Status AddTerm(NodeId sum, LocalGraph& micro);
  absl::StatusOr<std::vector<ValueId>> AddBlocks(NodeId sum, LocalGraph& end);
  absl::Status AddBucket(const std::vector<NodeId>& bucket, LocalGraph& end);
  // Each replica keeps its rows of the sum.
  absl::Status AddReduceScatter(NodeId sum, LocalGraph& end);
  absl::Status AddAllReduce(const std::vector<NodeId>& bucket, std::vector<ValueId> blocks,
                            LocalGraph& end);
  int64_t LocalBytes(NodeId sum, const LocalGraph& end) const;

  const StepLayout& layout_;
  const Mesh::Coordinate at_;
  const std::vector<MicroBatch> micro_batches_;
  std::vector<LeafRange> blocks_;
  bool needs_all_reduce_ = false;
  std::map<NodeId, std::string> term_names_;
  std::vector<Accumulation> accumulations_;
  int buckets_ = 0;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_PARTITION_GRADIENT_REDUCTION_H_
