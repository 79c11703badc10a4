#include "tools/bench/megatron_plans.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/node_runner.h"
#include "platform/status_macros.h"
#include "tools/bench/gpt_block.h"
#include "tools/bench/kernel_fusion.h"
#include "training/graph/training_graph.h"

namespace weft {
namespace {

constexpr int64_t kTokens = 2048;
constexpr int64_t kVocabulary = 51200;
constexpr float kDropout = 0.1F;  // Megatron-LM's defaults
constexpr int kGpusOfHost = 8;
// Assumed: the CUDA context, communication buffers, what the allocator cannot use.
constexpr int64_t kProcessBytes = int64_t{4} << 30;
constexpr double kPeakFlops = 312e12;

constexpr MegatronRun kRuns[] = {
    {"1.7B", 24, 2304, 24, 1, 1, 32, 512, 16, 1, 137},
    {"3.6B", 32, 3072, 30, 2, 1, 64, 512, 16, 1, 138},
    {"7.5B", 32, 4096, 36, 4, 1, 128, 512, 16, 1, 142},
    {"18.4B", 48, 6144, 40, 8, 1, 256, 1024, 8, 1, 135},
    {"39.1B", 64, 8192, 48, 8, 2, 512, 1536, 4, 1, 138},
    {"76.1B", 80, 10240, 60, 8, 4, 1024, 1792, 2, 3, 140},
    {"145.6B", 96, 12288, 80, 8, 8, 1536, 2304, 2, 2, 148},
    {"310.1B", 128, 16384, 96, 8, 16, 1920, 2160, 1, 2, 155},
    {"529.6B", 128, 20480, 105, 8, 35, 2520, 2520, 1, 3, 163},
    {"1008.0B", 160, 25600, 128, 8, 64, 3072, 3072, 1, 1, 163},
};

// That of Megatron's blocks, the head split by its vocabulary, and nothing else.
std::map<std::string, AxisSharding> HandMadeShardings() {
  std::map<std::string, AxisSharding> shardings = MegatronShardings();
  shardings["*.qkv.bias"] = AxisSharding::Split(0, 3);
  shardings["*.up.bias"] = AxisSharding::Split(0);
  shardings["head.weight"] = AxisSharding::Split(1);
  shardings["*"] = AxisSharding::Replicated();
  // The gradients of the blocks too: without it those of large micro-batches are split by samples.
  shardings["grad/head/LayerNormalization/LayerNormalizationGrad"] = AxisSharding::Replicated();
  return shardings;
}

absl::StatusOr<Graph> TrainingGraphOf(const MegatronRun& run) {
  GptBlocks shape;
  shape.blocks = run.layers;
  shape.width = run.width;
  shape.heads = run.heads;
  shape.tokens = kTokens;
  shape.with_values = false;
  GptText text;
  text.vocabulary = kVocabulary;
  text.compute = DType::kFloat16;
  text.dropout = kDropout;
  WEFT_ASSIGN_OR_RETURN(const Graph model, GptLanguageModel(shape, text));
  TrainingSpec training;
  training.loss.kind = "sequence_cross_entropy";
  training.optimizer.kind = "adam";
  return BuildTrainingGraph(model, training);
}

}  // namespace

std::span<const MegatronRun> MegatronRuns() { return kRuns; }

double MegatronFlops(const MegatronRun& run) {
  const double h = static_cast<double>(run.width);
  const double s = static_cast<double>(kTokens);
  const double l = run.layers;
  return 96 * static_cast<double>(run.batch) * s * l * h * h *
         (1 + s / (6 * h) + static_cast<double>(kVocabulary) / (16 * l * h));
}

double MegatronUtilisation(const MegatronRun& run, double step_seconds) {
  return MegatronFlops(run) / (step_seconds * run.gpus * kPeakFlops);
}

double MegatronPublished(const MegatronRun& run) { return run.teraflops * 1e12 / kPeakFlops; }

ClusterSpec DgxA100(int gpus) {
  ClusterSpec cluster;
  for (int i = 0; i < gpus; ++i) {
    WorkerSpec worker;
    worker.name = absl::StrCat("worker:", i);
    worker.host = absl::StrCat("dgx", i / kGpusOfHost);
    worker.address = absl::StrCat(worker.host, ":", 4000 + i % kGpusOfHost);
    worker.device = DeviceKind::kCuda;
    worker.device_index = i % kGpusOfHost;
    worker.model = "A100-80GB";
    cluster.workers.push_back(std::move(worker));
  }
  LinkSpec within;
  within.from = "*";
  within.kind = "nvlink3";
  LinkSpec between;
  between.from = "*";
  between.to = "*";
  between.kind = "infiniband-hdr";
  between.rails = kGpusOfHost;
  cluster.links = {within, between};
  return cluster;
}

PlanChoice MegatronPlan(const MegatronRun& run) {
  PlanChoice choice;
  choice.mesh = {run.gpus / run.tensor / run.pipeline, run.tensor, run.pipeline};
  choice.micro_batches = static_cast<int>(run.batch / run.micro_batch);
  if (run.pipeline > 1) choice.schedule = run.chunks > 1 ? "interleaved" : "1f1b";
  choice.chunks = run.chunks;
  // Every layer is a segment.
  choice.recompute_segments = run.layers / (run.pipeline * run.chunks);
  for (int i = 0; i < run.gpus; ++i) choice.workers.push_back(i);
  return choice;
}

MegatronJob::MegatronJob(const MegatronRun& run, Graph graph, ClusterSpec cluster, CostModel cost)
    : run_(run), graph_(std::move(graph)), cluster_(std::move(cluster)), cost_(std::move(cost)) {
  options_.global_batch = run.batch;
  options_.max_units = 4 * run.layers;
  options_.node_costs = MakeFusedNodeCosts;
  options_.process_bytes = kProcessBytes;
  options_.given.tensor_shardings = HandMadeShardings();
  options_.memory_limits.assign(cluster_.workers.size(), cost_.MemoryBytes(0));
}

absl::StatusOr<std::unique_ptr<MegatronJob>> MegatronJob::Create(const MegatronRun& run) {
  WEFT_ASSIGN_OR_RETURN(Graph graph, TrainingGraphOf(run));
  ClusterSpec cluster = DgxA100(run.gpus);
  WEFT_ASSIGN_OR_RETURN(CostModel cost, CostModel::OfSpec(cluster));
  std::unique_ptr<MegatronJob> job(
      new MegatronJob(run, std::move(graph), std::move(cluster), std::move(cost)));
  WEFT_ASSIGN_OR_RETURN(job->plans_, PlanEvaluator::Create(job->graph_, job->cost_, job->options_,
                                                           CpuNodeEvaluator()));
  return job;
}

absl::StatusOr<EvaluatedChoice> MegatronJob::HandMade() {
  return plans_->Evaluate(MegatronPlan(run_));
}

absl::StatusOr<SearchResult> MegatronJob::Searched() const {
  SearchOptions options = options_;
  options.given.tensor_shardings.clear();
  return SearchPlan(graph_, cluster_, cost_, options, CpuNodeEvaluator());
}

}  // namespace weft
