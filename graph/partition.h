// Partition: everything one rank runs in one kind of step (a training step of a given global batch
// size, or an evaluation step). Made by placement, sent by distributed, compiled by executor. It
// carries no weights.
//
// A step on a rank is a list of actions over three kinds of graphs, all with concrete local shapes:
//
//   begin   once: values that live the whole step (variables fetched from other stages)
//   micro   per micro-batch: forward and backward nodes; one graph per distinct micro-batch size
//   end     once: collectives over the data axis, optimizer updates, the step's reports
//
// Values pass between them by name:
//   * a graph's kVariable values name variables of `variables` (same name);
//   * kInput values of a micro graph are fed by `inputs` (data rows, step scalars) or by outputs of
//     the begin graph of the same name;
//   * kInput values of the end graph are blocks of `accumulations`, step scalars, or outputs of
//   begin;
//   * outputs of the end graph named in `reports` go to the coordinator; variables' updates are
//     set in the end graph (Variable::update).
#ifndef WEFT_GRAPH_PARTITION_H_
#define WEFT_GRAPH_PARTITION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/ids.h"
#include "graph/plan.h"
#include "graph/sharding.h"

namespace weft {

// The output of a training graph (a floating scalar) that must be finite before any variable
// changes. A graph without one is guarded by its loss.
inline constexpr char kStepGuard[] = "weft.guard";

// One entry of a pipeline schedule on a rank. Text form: "F0", "B2", "W1", "F0.1", "Begin", "U".
struct Action {
  // Where a list has weight gradients (W), its backwards (B) run what other stages wait for, and
  // the weight gradients run the rest of the backward pass. Else B runs all of it.
  enum class Kind : uint8_t { kBegin, kForward, kBackward, kWeightGradient, kUpdate };
  Kind kind = Kind::kForward;
  int micro_batch = 0;  // index into Partition::micro_batches
  int chunk = 0;        // runs the nodes of stage chunk * Mesh::pipeline + this rank's place
  friend bool operator==(const Action&, const Action&) = default;
};

// One micro-batch of a rank: its samples, and the micro graph that runs it.
struct MicroBatch {
  int index = 0;        // in the job's list of V
  int64_t first = 0;    // first sample, counted in the global batch
  int64_t samples = 0;  // may be 0 (a short last batch)
  int graph = 0;        // index into Partition::micro
};

// A sum over micro-batches: output `micro_output` of the micro graphs (of those micro-batches that
// some block counts) becomes one or several inputs of the end graph, each the sum over a run of
// consecutive local micro-batches.
struct Accumulation {
  struct Block {
    std::string end_input;
    int first = 0;  // [first, last) in the job's micro-batch indices
    int last = 0;
  };
  std::string micro_output;
  std::vector<Block> blocks;
  // Ordered tree inside each block (blocks are then aligned powers of two); else in index order.
  bool ordered_tree = false;
};

// A graph input fed from outside.
struct FeedInput {
  std::string name;  // of the input in micro graphs (and in the data set) or in the end graph
  InputRole role = InputRole::kData;
  DType dtype = DType::kInvalid;
  // Shape of one sample (kData) or of the whole (kStep).
  Shape sample_shape;
};

// This rank's part of a variable.
struct VariableShard {
  std::string name;
  DType dtype = DType::kInvalid;
  Shape global_shape;
  Shape local_shape;
  AxisSharding tensor_sharding;  // shard `tensor_index` of `tensor_shards`
  int tensor_shards = 1;
  int tensor_index = 0;
  // Rows (axis 0) of the tensor shard: part `data_index` of `data_shards`
  // (AxisSharding::ShardRange).
  int data_shards = 1;
  int data_index = 0;
  bool trainable = false;
  std::string slot_of;
  // This rank's copy is one to read back (replica 0 of each shard; all replicas that have rows).
  bool is_primary = false;
};

// A point-to-point edge this rank takes part in; once per micro-batch or once per step.
struct Channel {
  ChannelId id;  // unique in the job; the `channel` attribute of Send and Recv
  RankId from;
  RankId to;
  std::string value;
  DType dtype = DType::kInvalid;
  Shape shape;
  bool per_micro_batch = true;
};

// Everything that one rank runs: graphs, actions, variables and channels. Made by
// placement/partition, compiled by executor/. A value; all shapes of a training partition are
// concrete.
struct Partition {
  RankId rank;
  Mesh mesh;
  bool training = true;
  bool strict = false;
  // Convolutions of its CUDA device go through cuDNN (PrepareContext::uses_cudnn).
  bool uses_cudnn = false;
  // Nodes that its device computes by one kernel are fused (ops/fusion), where its kind has rules.
  // Not if `strict`.
  bool fuses_nodes = false;
  // The ranks agree on the step behind its guard (StepCommit). All that its updates need from other
  // ranks comes before (OrderOfEnd), and each has replicas, so that it can be ended without one.
  // The same on all ranks.
  bool commits = false;
  int threads = 1;
  int64_t global_batch = 0;  // samples in the step
  int total_micro_batches = 1;

  std::vector<VariableShard> variables;
  std::vector<FeedInput> inputs;
  Graph begin;
  std::vector<Graph> micro;
  Graph end;
  std::vector<MicroBatch> micro_batches;  // local ones, by index
  std::vector<Accumulation> accumulations;
  std::vector<Action> actions;
  std::vector<Channel> channels;
  // Output of `end` whose value must be finite before any variable changes ("loss"); empty = none.
  std::string guard;
  std::vector<std::string> reports;
  std::vector<std::string> host_ops;  // Plan::host_ops
  bool tf32 = false;                  // Plan::tf32

  Partition() = default;
  Partition(Partition&&) = default;
  Partition& operator=(Partition&&) = default;
  Partition Clone() const;  // deep, but shares constants
};

}  // namespace weft

#endif  // WEFT_GRAPH_PARTITION_H_
