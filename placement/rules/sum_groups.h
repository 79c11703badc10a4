// Which sums over the data axis travel together. Internal to placement/.
#ifndef WEFT_PLACEMENT_RULES_SUM_GROUPS_H_
#define WEFT_PLACEMENT_RULES_SUM_GROUPS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "graph/plan.h"
#include "tensor/dtype.h"

namespace weft {

// How a plan uses the data axis.
struct DataAxis {
  int replicas = 1;
  int zero = 0;
  Reduction reduction = Reduction::kUnordered;
};
inline DataAxis DataAxisOf(const Plan& plan) { return {plan.mesh.data, plan.zero, plan.reduction}; }

// ZeRO splits anything at all.
inline bool SplitsVariables(const DataAxis& axis) { return axis.zero > 0 && axis.replicas > 1; }
// Sums may be scattered instead of all-reduced. Ordered ones are made whole, whatever the ranks.
inline bool ScattersSums(const DataAxis& axis) {
  return axis.zero >= 2 && axis.replicas > 1 && axis.reduction == Reduction::kUnordered;
}
// How a step uses a sum over its micro-batches.
struct SumUse {
  bool is_first = false;           // IsFirstSum
  bool are_rows_enough = false;    // whoever reads it reads the replica's rows only
  bool is_read_elsewhere = false;  // on another place of the pipeline
};
// Whether each replica gets its rows of a sum only. What is sent along the pipeline, and what the
// guard waits for, is summed whole.
inline bool IsScattered(const DataAxis& axis, const SumUse& use) {
  return ScattersSums(axis) && !use.is_first && use.are_rows_enough && !use.is_read_elsewhere;
}
// Of a variable's axis 0, as the smallest shard of the tensor axis has it.
inline bool HasRowForEach(int64_t rows, int replicas) { return rows >= replicas; }

// A sum over the micro-batches of a step, as one rank has it.
struct RankSum {
  int64_t bytes = 0;
  DType dtype = DType::kFloat32;
  bool is_scattered = false;  // each replica keeps its rows only
  bool is_report = false;     // no variable's update depends on it
};

// Sums that one collective adds up: a bucket for an all-reduce, or one sum to be scattered.
struct SumGroup {
  std::vector<int> sums;  // indices into the rank's sums, the first ones and then the later ones
  bool is_scattered = false;
};

struct SumGroups {
  std::vector<SumGroup> first;
  std::vector<SumGroup> later;
};

// In the order in which the rank's end graph has them. A bucket takes sums of one element type in
// the order given while they fit `bucket_bytes`; a larger sum is a bucket of its own. First and
// later sums share no bucket, unless all of them together fit one: it is then one of the first.
// Reports among the later sums come last, in buckets of their own, and the others are grouped as if
// they were not there: what a step reports besides must not change the order of its other sums.
SumGroups GroupSums(std::span<const RankSum> first, std::span<const RankSum> later,
                    int64_t bucket_bytes);

// Of all its sums.
int64_t BytesOf(const SumGroup& group, std::span<const RankSum> sums);

}  // namespace weft

#endif  // WEFT_PLACEMENT_RULES_SUM_GROUPS_H_
