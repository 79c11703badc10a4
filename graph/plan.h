// Plan: which rank runs what. The contract between placement (which makes it) and everything after.
// Pure data, written and read as YAML by placement/files/plan_file.h.
#ifndef WEFT_GRAPH_PLAN_H_
#define WEFT_GRAPH_PLAN_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "graph/ids.h"
#include "graph/sharding.h"

namespace weft {

// Ranks as a box: rank = (stage * data + replica) * tensor + shard.
struct Mesh {
  int data = 1;
  int tensor = 1;
  int pipeline = 1;

  struct Coordinate {
    int data = 0;
    int tensor = 0;
    int pipeline = 0;
    friend bool operator==(const Coordinate&, const Coordinate&) = default;
  };
  int size() const { return data * tensor * pipeline; }
  RankId RankOf(Coordinate c) const {
    return RankId((c.pipeline * data + c.data) * tensor + c.tensor);
  }
  Coordinate CoordinateOf(RankId rank) const {
    const int r = rank.value;
    return {(r / tensor) % data, r % tensor, r / (tensor * data)};
  }
  // The ranks that differ from `rank` only along `axis` (itself included), in order.
  std::vector<RankId> Group(RankId rank, MeshAxis axis) const;
  std::string ToString() const;  // "dp=2 x tp=1 x pp=2"
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// How gradients are combined over the data axis and over micro-batches.
enum class Reduction : uint8_t {
  kUnordered,    // sums in micro-batch order on each rank, then an all-reduce by any algorithm
  kOrderedTree,  // one fixed binary tree over the micro-batch index, whatever the ranks (strict)
};

// The predicted cost of the plan (law 15 of docs/architecture.md).
struct Prediction {
  double step_seconds = 0;
  double compute_seconds = 0;
  double communication_seconds = 0;
  double bubble_fraction = 0;
  bool calibrated = false;  // the times rest on measurements of the cluster, not on published specs
  std::vector<int64_t> memory_bytes;    // per rank
  std::vector<int64_t> bytes_per_step;  // sent per rank
};

// Which rank runs what. A plan file holds one (docs/plan-files.md); CompletePlan fills in what the
// user leaves open. A value.
struct Plan {
  static constexpr int kSchemaVersion = 1;
  int schema_version = kSchemaVersion;
  uint64_t model_digest = 0;    // GraphDigest of the differentiated graph
  uint64_t cluster_digest = 0;  // ClusterSpec::Digest
  Mesh mesh;
  // The cluster's worker for each rank (index into ClusterSpec::workers).
  std::vector<int> workers;
  // The host of each rank, numbered in the cluster's order; empty: all on one. Follows from the
  // workers, so it is not written.
  std::vector<int> hosts;

  // The job's micro-batches: the global batch is cut into this many, first ones one longer. Each
  // replica runs consecutive ones, see FirstMicroBatch.
  int micro_batches = 1;
  // How much each replica runs in proportion to the others, by data coordinate ({2, 1}: the first
  // two thirds of the micro-batches and the last third); empty: all the same. At least 1 each.
  std::vector<int> shares;
  // What mixes samples sees the whole batch: each replica runs its part in one micro-batch, and
  // statistics of a batch are summed over the replicas (OpSchema::whole_batch). Such nodes that do
  // not sum over replicas need one replica; whoever makes the plan takes care of that.
  bool whole_batch = false;
  // The pipeline schedule's generator: "gpipe", "1f1b", "interleaved" or "zero_bubble".
  std::string schedule = "gpipe";
  // Stages that each rank of the pipeline runs: rank r has r, r + mesh.pipeline, ... More than one
  // with the schedule interleaved only.
  int chunks = 1;
  Reduction reduction = Reduction::kUnordered;
  bool strict = false;
  // Partition::uses_cudnn. A choice of the job: plan files do not have it.
  bool uses_cudnn = false;
  // Partition::fuses_nodes, such a choice too.
  bool fuses_nodes = false;
  // Steps are done by all ranks or by none, where they can be (Partition::commits). Such a choice.
  bool commits = false;
  // Sharding over the data axis (ZeRO): 1 splits optimizer state, 2 also the summed gradients, 3
  // also the parameters.
  int zero = 0;
  // Parameters that stay whole on every replica all the same, each with the reason.
  std::map<std::string, std::string> zero_replicated;
  int64_t bucket_bytes = int64_t{4} << 20;
  int threads_per_worker = 1;  // the fewest of any rank
  // Threads of each rank, where they are not all the same; else empty.
  std::vector<int> rank_threads;

  // Stage of each forward node by name; missing = same as its first placed producer, else stage 0.
  std::map<std::string, int> stages;
  // Forward nodes, by name or pattern, that must run on the stage of a worker of the cluster, by
  // its name.
  std::map<std::string, std::string> pins;
  // Sharding hints along the tensor axis, by the name of the value (parameters above all).
  std::map<std::string, AxisSharding> tensor_shardings;
  // Segments of forward nodes whose activations are not kept for the backward pass but computed
  // anew: the segment of each node by name or pattern. A '*' in a segment's name is what the first
  // one of the pattern stands for. "" = kept.
  std::map<std::string, std::string> recompute;
  // Instead of that, until the plan is completed: so many segments on each stage, of which the
  // backward pass reads about equally many bytes; 0 = none.
  int recompute_segments = 0;

  Prediction prediction;
  // Operators, by their full names ("Relu", "ai.weft::Scale"), whose nodes run on the host of a
  // worker whose device has no kernel for them, with copies on both sides; "*" is any operator.
  // Without a word such a node ends the job before it starts.
  std::vector<std::string> host_ops;
  // Products of float32 on GPUs may round their operands to TF32 (10 bits of mantissa). Strict
  // plans and other devices do not.
  bool tf32 = false;

  int num_stages() const { return mesh.pipeline * chunks; }
  int ThreadsOf(RankId rank) const {
    return rank_threads.empty() ? threads_per_worker : rank_threads[rank.value];
  }
  // Replica d runs those of `total` micro-batches from FirstMicroBatch(d) up to, not including,
  // FirstMicroBatch(d + 1): total times the shares before it over all shares, rounded down.
  // REQUIRES: 0 <= replica <= mesh.data; shares empty or one for each replica.
  int FirstMicroBatch(int replica, int total) const;
  // The hosts of these ranks; empty when they share one.
  std::vector<int64_t> HostsOf(const std::vector<RankId>& group) const;
};

// Whether Plan::host_ops names the operator.
bool IsHostOp(const std::vector<std::string>& host_ops, std::string_view op);

}  // namespace weft

#endif  // WEFT_GRAPH_PLAN_H_
