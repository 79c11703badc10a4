// What it costs to compare replicas while they train, and to keep copies of their states: steps
// with the check as `train` has it by default, and without, alternately in one run, on two worker
// processes (one thread each); then steps with copies in the other's memory every ten steps
// (`--replicate every=10`), and without, alternately on two pairs of processes:
// `bazel run //tools/bench:replica_checks`. Of LeNet, and of a layer of four million weights and
// few samples, whose state is large for its work.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph_builder.h"
#include "graph/plan.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/bench/bench_job.h"
#include "tools/bench/lenet.h"
#include "training/data/data_file.h"
#include "training/job/trainer.h"
#include "training/recovery/replica_check.h"

namespace weft {
namespace {

constexpr int kRounds = 9;
constexpr double kRoundSeconds = 6;
constexpr int64_t kWidth = 2048;

// scores [N,2048] = x [N,2048] times w.
absl::StatusOr<Graph> WideModel() {
  Graph graph;
  const auto floats = [](std::vector<Dim> dims) -> ValueType {
    return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
  };
  WEFT_ASSIGN_OR_RETURN(const Tensor zeros, Tensor::Zeros(DType::kFloat32, {kWidth, kWidth}));
  const ValueId x = graph.AddInput("x", floats({Dim::Symbol("N"), kWidth}));
  const ValueId w = graph.AddVariable("w", floats({kWidth, kWidth}), zeros, true);
  GraphBuilder builder(graph);
  const ValueId scores = builder.Op("MatMul", {x, w});
  builder.Name(scores, "scores");
  graph.AddOutput(scores);
  WEFT_RETURN_IF_ERROR(builder.status());
  return graph;
}

absl::StatusOr<std::shared_ptr<const DataSet>> MakeWideData(const std::string& folder) {
  constexpr int64_t kSamples = 64;
  std::vector<float> x(static_cast<size_t>(kSamples * kWidth));
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1e-3F * static_cast<float>(i % 1000);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kSamples; ++i) labels.push_back((i * 37) % kWidth);
  DataSpec spec;
  spec.batch = 16;
  const auto add = [&](const std::string& input, const Tensor& tensor) -> absl::Status {
    const std::string path = folder + "/wide-" + input + ".npy";
    WEFT_ASSIGN_OR_RETURN(const std::string bytes, ToNpy(tensor));
    spec.files.push_back({input, path, 0});
    return RealFileSystem().WriteFileAtomically(path, bytes);
  };
  WEFT_RETURN_IF_ERROR(add("x", Tensor::Of<float>({kSamples, kWidth}, x)));
  WEFT_RETURN_IF_ERROR(add("labels", Tensor::Of<int64_t>({kSamples}, labels)));
  return DataSet::Open(RealFileSystem(), spec);
}

struct Round {
  double step_seconds = 0;
  int64_t checks = 0;
  double part = 0;  // of the time, that checks took
};

// All of the run but its first step; the check at its end counts, too.
absl::StatusOr<Round> RunRound(BenchJob& job, int64_t steps, bool checks) {
  Clock& clock = RealClock();
  ReplicaCheckOptions options;
  options.on_divergence = OnDivergence::kStop;
  options.say = [](const std::string&) {};
  ReplicaCheck check(job.job, 0, options);
  TrainOptions train;
  train.steps = steps + 1;
  train.stop = [] { return false; };  // as a person's Ctrl-C ends stretches
  if (checks) train.hooks = {&check};
  int64_t first_end = 0, last_end = 0;
  const auto note = [&](const TrainProgress& progress) {
    last_end = clock.MonotonicNanos();
    if (progress.step == 0) first_end = last_end;
  };
  WEFT_RETURN_IF_ERROR(Train(*job.coordinator, job.job, train, note).status());
  const double seconds = static_cast<double>(last_end - first_end) * 1e-9;
  const ReplicaCheckSummary& summary = check.summary();
  return Round{seconds / static_cast<double>(steps), summary.checks, summary.seconds / seconds};
}

absl::Status MeasureModel(const char* name, const Graph& model,
                          std::shared_ptr<const DataSet> data) {
  WEFT_ASSIGN_OR_RETURN(BenchJob job, StartBenchJob(model, std::move(data), 2));
  WEFT_ASSIGN_OR_RETURN(const Round warm, RunRound(job, 50, false));
  const auto steps = std::max<int64_t>(static_cast<int64_t>(kRoundSeconds / warm.step_seconds), 50);
  std::vector<double> with, without, ratios, parts;
  int64_t checks = 0;
  for (int round = 0; round < kRounds; ++round) {
    // Who comes first changes, as the machine's speed drifts.
    const bool first = round % 2 == 0;
    WEFT_ASSIGN_OR_RETURN(const Round a, RunRound(job, steps, first));
    WEFT_ASSIGN_OR_RETURN(const Round b, RunRound(job, steps, !first));
    const Round& checked = first ? a : b;
    const Round& plain = first ? b : a;
    with.push_back(1e3 * checked.step_seconds);
    without.push_back(1e3 * plain.step_seconds);
    ratios.push_back(checked.step_seconds / plain.step_seconds);
    parts.push_back(100 * checked.part);
    checks = checked.checks;
  }
  std::printf("%s, %ld steps a round, %ld checks in the last\n", name, static_cast<long>(steps),
              static_cast<long>(checks));
  PrintMedian("  ms per step without", without);
  PrintMedian("  ms per step with", with);
  PrintMedian("  with / without", ratios);
  PrintMedian("  % of the time in checks", parts);
  return absl::OkStatus();
}

constexpr int64_t kReplicateEvery = 10;

// Each of the two has half of the state (ZeRO).
absl::Status MeasureCopies(const char* name, const Graph& model,
                           const std::shared_ptr<const DataSet>& data) {
  Plan plan;
  plan.zero = 3;
  WEFT_ASSIGN_OR_RETURN(BenchJob plain, StartBenchJob(model, data, 2, plan));
  WEFT_ASSIGN_OR_RETURN(BenchJob copied, StartBenchJob(model, data, 2, plan, kReplicateEvery));
  WEFT_ASSIGN_OR_RETURN(const Round warm, RunRound(plain, 50, false));
  WEFT_RETURN_IF_ERROR(RunRound(copied, 50, false).status());
  const auto steps = std::max<int64_t>(static_cast<int64_t>(kRoundSeconds / warm.step_seconds), 50);
  std::vector<double> with, without, ratios;
  for (int round = 0; round < kRounds; ++round) {
    const bool first = round % 2 == 0;
    WEFT_ASSIGN_OR_RETURN(const Round a, RunRound(first ? copied : plain, steps, false));
    WEFT_ASSIGN_OR_RETURN(const Round b, RunRound(first ? plain : copied, steps, false));
    const Round& replicated = first ? a : b;
    const Round& alone = first ? b : a;
    with.push_back(1e3 * replicated.step_seconds);
    without.push_back(1e3 * alone.step_seconds);
    ratios.push_back(replicated.step_seconds / alone.step_seconds);
  }
  std::printf("%s, zero=3, %ld steps a round, copies every %ld\n", name, static_cast<long>(steps),
              static_cast<long>(kReplicateEvery));
  PrintMedian("  ms per step without", without);
  PrintMedian("  ms per step with", with);
  PrintMedian("  with / without", ratios);
  return absl::OkStatus();
}

absl::Status Measure() {
  std::string folder = std::filesystem::temp_directory_path() / "weft-replicas-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no temporary folder");
  WEFT_ASSIGN_OR_RETURN(auto lenet_data, MakeLenetData(folder));
  WEFT_ASSIGN_OR_RETURN(const Graph lenet, LenetModel());
  WEFT_RETURN_IF_ERROR(MeasureModel("LeNet", lenet, lenet_data));
  WEFT_ASSIGN_OR_RETURN(auto wide_data, MakeWideData(folder));
  WEFT_ASSIGN_OR_RETURN(const Graph wide, WideModel());
  WEFT_RETURN_IF_ERROR(MeasureModel("2048 x 2048 weights", wide, wide_data));
  WEFT_RETURN_IF_ERROR(MeasureCopies("LeNet", lenet, lenet_data));
  WEFT_RETURN_IF_ERROR(MeasureCopies("2048 x 2048 weights", wide, wide_data));
  std::filesystem::remove_all(folder);
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::BenchMain(argc, argv, weft::Measure); }
