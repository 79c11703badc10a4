// What TLS costs a step: the same job on ports of this machine with keys and without, alternately
// in one run, on two worker processes each (one thread each): `bazel run //tools/bench:tls_steps`.
// Of LeNet, and of a layer whose gradient is 32 MiB, so that the messages of its all-reduce are 16
// MiB. What TLS costs the messages alone: `bazel run //distributed:transport_benchmark`.
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "distributed/keys/cluster_keys.h"
#include "platform/status_macros.h"
#include "tools/bench/bench_job.h"
#include "tools/bench/bench_options.h"
#include "tools/bench/lenet.h"
#include "tools/bench/wide_layer.h"

namespace weft {
namespace {

constexpr int kRounds = 9;
constexpr double kRoundSeconds = 6;
constexpr int64_t kColumns = 4096;

absl::Status MeasureModel(const char* name, const Graph& model,
                          const std::shared_ptr<const DataSet>& data, const std::string& keys) {
  BenchJobOptions open, secured;
  open.tcp = secured.tcp = true;
  secured.keys = keys;
  WEFT_ASSIGN_OR_RETURN(OwnedBenchJob plain, StartBenchJobWith(model, data, 2, open));
  WEFT_ASSIGN_OR_RETURN(OwnedBenchJob tls, StartBenchJobWith(model, data, 2, secured));
  WEFT_ASSIGN_OR_RETURN(const double warm, TrainSteps(plain.job, 20));
  WEFT_RETURN_IF_ERROR(TrainSteps(tls.job, 20).status());
  const auto steps = std::max<int64_t>(static_cast<int64_t>(kRoundSeconds / warm), 20);
  std::vector<double> with, without, ratios;
  for (int round = 0; round < kRounds; ++round) {
    // Who comes first changes, as the machine's speed drifts.
    const bool first = round % 2 == 0;
    WEFT_ASSIGN_OR_RETURN(const double a, TrainSteps(first ? tls.job : plain.job, steps));
    WEFT_ASSIGN_OR_RETURN(const double b, TrainSteps(first ? plain.job : tls.job, steps));
    with.push_back(1e3 * (first ? a : b));
    without.push_back(1e3 * (first ? b : a));
    ratios.push_back(with.back() / without.back());
  }
  std::printf("%s, %ld steps a round\n", name, static_cast<long>(steps));
  PrintMedian("  ms per step without TLS", without);
  PrintMedian("  ms per step with TLS", with);
  PrintMedian("  with / without", ratios);
  return absl::OkStatus();
}

absl::Status Measure() {
  std::string folder = std::filesystem::temp_directory_path() / "weft-tls-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no temporary folder");
  WEFT_ASSIGN_OR_RETURN(const auto hosts, ParseHosts("127.0.0.1"));
  const std::string keys = folder + "/keys";
  WEFT_RETURN_IF_ERROR(MakeClusterKeys({keys, hosts, 30, absl::Now()}).status());
  WEFT_ASSIGN_OR_RETURN(const auto lenet_data, MakeLenetData(folder));
  WEFT_ASSIGN_OR_RETURN(const Graph lenet, LenetModel());
  WEFT_RETURN_IF_ERROR(MeasureModel("LeNet", lenet, lenet_data, keys));
  WEFT_ASSIGN_OR_RETURN(const auto wide_data, MakeWideData(folder, kColumns));
  WEFT_ASSIGN_OR_RETURN(const Graph wide, WideLayer(kColumns));
  WEFT_RETURN_IF_ERROR(MeasureModel("2048 x 4096 weights", wide, wide_data, keys));
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::BenchMain(argc, argv, weft::Measure); }
