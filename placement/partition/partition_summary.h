// What a partition costs its rank, as numbers for people.
#ifndef WEFT_PLACEMENT_PARTITION_PARTITION_SUMMARY_H_
#define WEFT_PLACEMENT_PARTITION_PARTITION_SUMMARY_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/ids.h"
#include "graph/partition.h"
#include "placement/partition/partition_memory.h"

namespace weft {

// Sums over a partition for `plan` output: what runs where, bytes per channel and step, memory.
struct RankSummary {
  RankId rank;
  int nodes = 0;
  int64_t parameters = 0;       // elements of trainable shards
  double flops = 0;             // per step
  double recomputed_flops = 0;  // of these: what runs a second time
  int64_t variable_bytes = 0;
  int64_t arena_bytes = 0;  // an estimate (LifetimesOfStep); a rank's compile is exact
  int64_t sent_bytes = 0;   // payload per step, exactly what the executor sends
};
absl::StatusOr<RankSummary> Summarize(const Partition& partition);

// What the partition's rank on `worker` needs besides its process, in bytes: by `rank_memory`, or,
// where that is null or cannot tell, the variables and the arena of its summary.
absl::StatusOr<int64_t> MemoryOfRank(const Partition& partition, int worker,
                                     const RankMemoryFn& rank_memory);

// An op whose nodes run whole on every rank of the tensor axis, since it has no sharding rule or a
// body (If, Loop, Scan); what a rank spends on it in a step.
struct ReplicatedOp {
  std::string op;               // "Range", "ai.weft::Name"
  std::set<std::string> nodes;  // names
  double flops = 0;
  double bytes = 0;  // read and written
};
// The most FLOPs first; empty where nothing is tensor-parallel.
std::vector<ReplicatedOp> OpsWithoutRule(const Partition& partition);

// Nodes that read an axis whole along which a value lay split, since it is made of parts (heads)
// that the ranks of the tensor axis cannot share evenly: the value was gathered, or exchanged for
// shards along another axis.
struct UnevenSplit {
  std::string op;
  int64_t parts = 0;            // "3 parts of 4 elements"
  int64_t elements = 0;         // of a part
  std::set<std::string> nodes;  // names
  double bytes = 0;             // that they read so, in a step
};
// By op, then by parts; empty where nothing is tensor-parallel.
std::vector<UnevenSplit> UnevenSplits(const Partition& partition);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PARTITION_PARTITION_SUMMARY_H_
