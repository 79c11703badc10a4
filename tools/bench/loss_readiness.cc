// What it costs to be ready for a loss and to compare replicas while they train, as `train` does by
// default: `bazel run //tools/bench:loss_readiness`. Three kinds of steps take turns in one run, on
// two worker processes (one thread each) for those that are not ready, and two for those that are:
// not ready, that is the ranks do not agree on steps, and workers are asked every 3 s (a worker
// that hears nothing for longer gives its job up); ready; ready and compared. Of LeNet, and of a
// layer of four million weights and few samples, whose state is large for its work. Keepalive of
// connections is in all of them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "platform/clock.h"
#include "platform/status_macros.h"
#include "tools/bench/bench_job.h"
#include "tools/bench/bench_options.h"
#include "tools/bench/lenet.h"
#include "tools/bench/wide_layer.h"
#include "training/job/trainer.h"
#include "training/recovery/replica_check.h"

namespace weft {
namespace {

constexpr int kRounds = 9;
constexpr double kRoundSeconds = 6;
constexpr int64_t kColumns = 2048;

// Of steps.
enum Kind { kUnready, kReady, kReadyAndCompared, kKinds };

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
                          const std::shared_ptr<const DataSet>& data) {
  BenchJobOptions unready_options, ready_options;
  unready_options.detection.beat = absl::Seconds(3);
  ready_options.commits = true;
  WEFT_ASSIGN_OR_RETURN(OwnedBenchJob unready, StartBenchJobWith(model, data, 2, unready_options));
  WEFT_ASSIGN_OR_RETURN(OwnedBenchJob ready, StartBenchJobWith(model, data, 2, ready_options));
  WEFT_ASSIGN_OR_RETURN(const Round warm, RunRound(unready.job, 50, false));
  WEFT_RETURN_IF_ERROR(RunRound(ready.job, 50, false).status());
  const auto steps = std::max<int64_t>(static_cast<int64_t>(kRoundSeconds / warm.step_seconds), 50);
  std::vector<double> milliseconds[kKinds];
  std::vector<double> for_readiness, for_checks, for_both, parts;
  int64_t checks = 0;
  for (int round = 0; round < kRounds; ++round) {
    double seconds[kKinds] = {};
    // Who comes first changes, as the machine's speed drifts.
    for (int turn = 0; turn < kKinds; ++turn) {
      const int kind = (round + turn) % kKinds;
      WEFT_ASSIGN_OR_RETURN(const Round run, RunRound(kind == kUnready ? unready.job : ready.job,
                                                      steps, kind == kReadyAndCompared));
      seconds[kind] = run.step_seconds;
      milliseconds[kind].push_back(1e3 * run.step_seconds);
      if (kind != kReadyAndCompared) continue;
      parts.push_back(100 * run.part);
      checks = run.checks;
    }
    for_readiness.push_back(seconds[kReady] / seconds[kUnready]);
    for_checks.push_back(seconds[kReadyAndCompared] / seconds[kReady]);
    for_both.push_back(seconds[kReadyAndCompared] / seconds[kUnready]);
  }
  std::printf("%s, %ld steps a round, %ld checks in the last\n", name, static_cast<long>(steps),
              static_cast<long>(checks));
  PrintMedian("  ms per step, not ready", milliseconds[kUnready]);
  PrintMedian("  ms per step, ready", milliseconds[kReady]);
  PrintMedian("  ms per step, ready and compared", milliseconds[kReadyAndCompared]);
  PrintMedian("  ready / not ready", for_readiness);
  PrintMedian("  compared / not compared", for_checks);
  PrintMedian("  both / none", for_both);
  PrintMedian("  % of the time in checks", parts);
  return absl::OkStatus();
}

absl::Status Measure() {
  std::string folder = std::filesystem::temp_directory_path() / "weft-replicas-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no temporary folder");
  WEFT_ASSIGN_OR_RETURN(auto lenet_data, MakeLenetData(folder));
  WEFT_ASSIGN_OR_RETURN(const Graph lenet, LenetModel());
  WEFT_RETURN_IF_ERROR(MeasureModel("LeNet", lenet, lenet_data));
  WEFT_ASSIGN_OR_RETURN(auto wide_data, MakeWideData(folder, kColumns));
  WEFT_ASSIGN_OR_RETURN(const Graph wide, WideLayer(kColumns));
  WEFT_RETURN_IF_ERROR(MeasureModel("2048 x 2048 weights", wide, wide_data));
  std::filesystem::remove_all(folder);
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::BenchMain(argc, argv, weft::Measure); }
