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
#include "placement/rules/sum_groups.h"

namespace weft {

// The sums of one rank, from the outputs of its micro graphs to values of its end graph.
// Unordered: one sum over the rank's micro-batches, then an all-reduce when there are several
// replicas. Ordered tree: one sum per complete subtree of the rank's micro-batches, then the
// all-reduce that adds these in tree order (also with one replica, unless its micro-batches are one
// subtree). All-reduces take the sums in buckets (Plan::bucket_bytes).
class GradientReducer {
 public:
  // `micro_batches` are the rank's own; empty: its sums are zeros.
  GradientReducer(const StepLayout& layout, Mesh::Coordinate at,
                  std::vector<MicroBatch> micro_batches);

  // Makes the terms of all sums of this stage outputs of a micro graph, under names that all micro
  // graphs of the rank share.
  absl::Status AddTerms(LocalGraph& micro);
  // Groups this place's sums into buckets (placement/rules/sum_groups.h).
  void GroupSumsOf(const LocalGraph& end);
  // Adds the collectives of the first sums to the end graph, with the sends of what they make; then
  // those of the later ones. REQUIRES: GroupSumsOf.
  absl::Status AddFirstSums(LocalGraph& end) { return AddGroups(groups_.first, end); }
  absl::Status AddLaterSums(LocalGraph& end) { return AddGroups(groups_.later, end); }
  // What was added.
  std::vector<Accumulation>& accumulations() { return accumulations_; }

 private:
  const Node& NodeOf(NodeId sum) const { return layout_.step().graph.node(sum); }
  bool IsHere(NodeId sum) const { return layout_.PlaceOf(NodeOf(sum).stage) == at_.pipeline; }
  absl::Status AddTerm(NodeId sum, LocalGraph& micro);
  std::vector<RankSum> SumsOf(const std::vector<NodeId>& sums, const LocalGraph& end);
  absl::Status AddGroups(const std::vector<SumGroup>& groups, LocalGraph& end);
  absl::StatusOr<std::vector<ValueId>> AddBlocks(NodeId sum, LocalGraph& end);
  absl::Status AddBucket(const std::vector<NodeId>& bucket, LocalGraph& end);
  // Each replica keeps its rows of the sum.
  absl::Status AddReduceScatter(NodeId sum, LocalGraph& end);
  absl::Status AddAllReduce(const std::vector<NodeId>& bucket, std::vector<ValueId> blocks,
                            LocalGraph& end);

  const StepLayout& layout_;
  const Mesh::Coordinate at_;
  const std::vector<MicroBatch> micro_batches_;
  std::vector<LeafRange> blocks_;
  bool needs_all_reduce_ = false;
  std::map<NodeId, std::string> term_names_;
  std::vector<NodeId> sums_;  // of this place, as groups_ numbers them
  SumGroups groups_;
  std::vector<Accumulation> accumulations_;
  int buckets_ = 0;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_PARTITION_GRADIENT_REDUCTION_H_
