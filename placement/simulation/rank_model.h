// One rank's part of a StepModel. Internal to simulation/.
#ifndef WEFT_PLACEMENT_SIMULATION_RANK_MODEL_H_
#define WEFT_PLACEMENT_SIMULATION_RANK_MODEL_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/partition.h"
#include "graph/schedule/end_order.h"
#include "placement/simulation/model_tables.h"
#include "placement/simulation/step_model.h"

namespace weft {

// Walks the rank's actions as the executor's lowering does.
class RankModel {
 public:
  RankModel(const Partition& partition, ModelTables& tables, bool per_node);

  // Adds segments, channels and collectives to the model; the rank's routine is not yet in it.
  absl::Status Build();
  StepRoutine& routine() { return routine_; }
  StepRank& rank() { return rank_; }

 private:
  // What is known of a graph of the partition, made when first needed.
  struct KnownCollective {
    int32_t entry = -1;  // in the rank's table; -1: not known yet
    double before = 0;   // seconds of copies
    double after = 0;
  };
  // What a node of a micro-batch was seen to be: most have nothing to do with sums, inputs or
  // ranks.
  enum class Plain : int8_t { kUnknown, kNo, kComputes, kDoesNothing };
  struct OfGraph {
    std::vector<Plain> plain;                  // by NodeId
    std::vector<double> seconds;               // by NodeId; < 0: not known yet
    std::vector<KnownCollective> collectives;  // by NodeId
    std::vector<std::vector<int>> blocks;      // by ValueId: sums that it is a term of
  };
  // A sum over micro-batches.
  struct Block {
    int first = 0;  // [first, last) of the job's micro-batches
    int last = 0;
    double add_seconds = 0;  // of one addition
    int terms = 0;           // so far
    int job = -1;            // that sums it over ranks beside the micro-batches; -1: none
  };

  absl::Status OpenBlocks();
  absl::Status OpenJobs();
  OfGraph& Known(const Graph& graph);
  absl::StatusOr<double> SecondsOf(const Graph& graph, const Node& node);
  double CopySeconds(double bytes) const;

  absl::Status RunNode(const Graph& graph, const Node& node, const MicroBatch* rows);
  Plain PlainnessOf(const Graph& graph, const Node& node);
  absl::Status RunMicroBatch(const Action& action, const std::vector<NodeId>& nodes);
  absl::Status RunEnd();
  absl::Status RunCollective(const Graph& graph, const Node& node);
  absl::Status RunTransfer(const Graph& graph, const Node& node);
  // Data inputs that are read for the first time in their micro-batch.
  void FillInputs(const Graph& graph, const Node& node, const MicroBatch* rows);
  // The value is made: terms of its sums.
  void AddTerms(const Graph& graph, ValueId value, const MicroBatch& rows);
  void AddConstantTerms(const Graph& graph, const MicroBatch& rows);

  void Compute(const std::string& name, double seconds);
  void Push(StepInstruction instruction);
  void Flush();
  // Waits for the jobs that make these values of the end graph.
  void AwaitFor(const Graph& graph, const std::vector<ValueId>& values);
  int32_t TableEntry(std::vector<int32_t>& table, std::map<int32_t, int32_t>& entries,
                     int32_t index) const;

  const Partition& partition_;
  ModelTables& tables_;
  const bool per_node_;
  const int worker_;
  const int in_flight_;  // micro-batches
  StepRoutine routine_;
  StepRank rank_;
  std::map<int32_t, int32_t> channel_entries_;
  std::map<int32_t, int32_t> collective_entries_;
  std::map<int64_t, const Channel*> channels_;  // by number
  std::map<const Graph*, OfGraph> graphs_;
  std::vector<Block> blocks_;
  std::map<std::string, std::vector<int>> blocks_of_output_;
  std::vector<int> open_blocks_;         // by job: sums that are not complete
  std::map<NodeId, int> job_of_node_;    // of the end graph
  std::map<ValueId, int> awaited_jobs_;  // by value of the end graph: jobs that must have ended
  std::set<std::pair<int, ValueId>> filled_;  // micro-batch and input
  int signals_ = 0;
  int awaited_ = 0;
  double pending_ = 0;  // seconds of instructions that are one
  StepSegment segment_;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SIMULATION_RANK_MODEL_H_
