// What copies of states cost a step (`--replicate every=10`): two worker processes (one thread
// each) of which each has half of the state and a copy of the other's half, and two without copies,
// alternately in one run: `bazel run //tools/bench:state_copies`. Of LeNet, and of a layer of four
// million weights and few samples, whose state is large for its work. What it costs to compare
// replicas: `bazel run //tools/bench:loss_readiness`.
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "graph/plan.h"
#include "platform/status_macros.h"
#include "tools/bench/bench_job.h"
#include "tools/bench/lenet.h"
#include "tools/bench/wide_layer.h"

namespace weft {
namespace {

constexpr int kRounds = 9;
constexpr double kRoundSeconds = 6;
constexpr int64_t kColumns = 2048;
constexpr int64_t kReplicateEvery = 10;

absl::Status MeasureModel(const char* name, const Graph& model,
                          const std::shared_ptr<const DataSet>& data) {
  Plan plan;
  plan.zero = 3;
  WEFT_ASSIGN_OR_RETURN(BenchJob plain, StartBenchJob(model, data, 2, plan));
  WEFT_ASSIGN_OR_RETURN(BenchJob copied, StartBenchJob(model, data, 2, plan, kReplicateEvery));
  WEFT_ASSIGN_OR_RETURN(const double warm, TrainSteps(plain, 50));
  WEFT_RETURN_IF_ERROR(TrainSteps(copied, 50).status());
  const auto steps = std::max<int64_t>(static_cast<int64_t>(kRoundSeconds / warm), 50);
  std::vector<double> with, without, ratios;
  for (int round = 0; round < kRounds; ++round) {
    // Who comes first changes, as the machine's speed drifts.
    const bool first = round % 2 == 0;
    WEFT_ASSIGN_OR_RETURN(const double a, TrainSteps(first ? copied : plain, steps));
    WEFT_ASSIGN_OR_RETURN(const double b, TrainSteps(first ? plain : copied, steps));
    with.push_back(1e3 * (first ? a : b));
    without.push_back(1e3 * (first ? b : a));
    ratios.push_back(with.back() / without.back());
  }
  std::printf("%s, zero=3, %ld steps a round, copies every %ld\n", name, static_cast<long>(steps),
              static_cast<long>(kReplicateEvery));
  PrintMedian("  ms per step without", without);
  PrintMedian("  ms per step with", with);
  PrintMedian("  with / without", ratios);
  return absl::OkStatus();
}

absl::Status Measure() {
  std::string folder = std::filesystem::temp_directory_path() / "weft-copies-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no temporary folder");
  WEFT_ASSIGN_OR_RETURN(const auto lenet_data, MakeLenetData(folder));
  WEFT_ASSIGN_OR_RETURN(const Graph lenet, LenetModel());
  WEFT_RETURN_IF_ERROR(MeasureModel("LeNet", lenet, lenet_data));
  WEFT_ASSIGN_OR_RETURN(const auto wide_data, MakeWideData(folder, kColumns));
  WEFT_ASSIGN_OR_RETURN(const Graph wide, WideLayer(kColumns));
  WEFT_RETURN_IF_ERROR(MeasureModel("2048 x 2048 weights", wide, wide_data));
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::BenchMain(argc, argv, weft::Measure); }
