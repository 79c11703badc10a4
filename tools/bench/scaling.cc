// LeNet images per second on one and on two worker processes (one thread each, global batch 128,
// gRPC over unix sockets), alternately in one run: `bazel run //tools/bench:scaling`.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "platform/status_macros.h"
#include "tools/bench/bench_job.h"
#include "tools/bench/lenet.h"

namespace weft {
namespace {

constexpr int64_t kSteps = 40;  // per round
constexpr int kRounds = 9;

absl::StatusOr<double> ImagesPerSecond(BenchJob& running) {
  WEFT_ASSIGN_OR_RETURN(const double seconds, TrainSteps(running, kSteps));
  return static_cast<double>(kLenetBatch) / seconds;
}

absl::Status Measure() {
  std::string folder = std::filesystem::temp_directory_path() / "weft-scaling-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no temporary folder");
  WEFT_ASSIGN_OR_RETURN(auto data, MakeLenetData(folder));
  WEFT_ASSIGN_OR_RETURN(const Graph model, LenetModel());
  WEFT_ASSIGN_OR_RETURN(BenchJob one, StartBenchJob(model, data, 1));
  WEFT_ASSIGN_OR_RETURN(BenchJob two, StartBenchJob(model, data, 2));
  WEFT_RETURN_IF_ERROR(ImagesPerSecond(one).status());
  WEFT_RETURN_IF_ERROR(ImagesPerSecond(two).status());
  std::vector<double> singles, doubles, efficiencies;
  for (int round = 0; round < kRounds; ++round) {
    WEFT_ASSIGN_OR_RETURN(const double single, ImagesPerSecond(one));
    WEFT_ASSIGN_OR_RETURN(const double both, ImagesPerSecond(two));
    singles.push_back(single);
    doubles.push_back(both);
    efficiencies.push_back(both / (2 * single));
  }
  PrintMedian("samples/s with 1 worker", singles);
  PrintMedian("samples/s with 2 workers", doubles);
  PrintMedian("samples/s(2) / (2 x samples/s(1))", efficiencies);
  std::filesystem::remove_all(folder);
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::BenchMain(argc, argv, weft::Measure); }
