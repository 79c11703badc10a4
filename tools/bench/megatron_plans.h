// The training runs of Narayanan et al., Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM, SC 2021, table 1: GPT models on DGX A100 nodes, each with the plan
// that its authors found by hand and what that attained.
#ifndef WEFT_TOOLS_BENCH_MEGATRON_PLANS_H_
#define WEFT_TOOLS_BENCH_MEGATRON_PLANS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "graph/graph.h"
#include "placement/cost/cost_model.h"
#include "placement/search/plan_choice.h"
#include "placement/search/plan_evaluator.h"
#include "placement/search/plan_search.h"

namespace weft {

// A row of the table, with what the authors' script for it (examples/sc21/run_table_1.sh of
// Megatron-LM) says besides: samples of a micro-batch, and chunks of the interleaved schedule.
struct MegatronRun {
  const char* name;
  int64_t heads;
  int64_t width;
  int layers;
  int tensor;
  int pipeline;
  int gpus;
  int64_t batch;
  int64_t micro_batch;
  int chunks;        // 1: the schedule is 1F1B
  double teraflops;  // published: of a GPU, in a second
};
std::span<const MegatronRun> MegatronRuns();

// FLOPs of a training step as the paper counts them: products alone, the forward pass twice since
// activations are computed anew (appendix, equation 2).
double MegatronFlops(const MegatronRun& run);
// What a step of so many seconds attains of the GPUs' peak of 312 TFLOP/s.
double MegatronUtilisation(const MegatronRun& run, double step_seconds);
double MegatronPublished(const MegatronRun& run);  // the same as published

// DGX A100: 8 GPUs of 80 GB behind NVLink, a 200 Gbit/s InfiniBand card for each.
ClusterSpec DgxA100(int gpus);
// The hand-made plan.
PlanChoice MegatronPlan(const MegatronRun& run);

// One run's job: the training graph with Adam and the evaluator of its plans.
class MegatronJob {
 public:
  static absl::StatusOr<std::unique_ptr<MegatronJob>> Create(const MegatronRun& run);
  // The hand-made plan as the simulator runs it.
  absl::StatusOr<EvaluatedChoice> HandMade();
  // What the search finds for the same job: all GPUs, the tensor axis too is its own to split.
  absl::StatusOr<SearchResult> Searched() const;

 private:
  MegatronJob(const MegatronRun& run, Graph graph, ClusterSpec cluster, CostModel cost);

  const MegatronRun& run_;
  const Graph graph_;
  const ClusterSpec cluster_;
  const CostModel cost_;
  SearchOptions options_;
  std::unique_ptr<PlanEvaluator> plans_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_BENCH_MEGATRON_PLANS_H_
