// Table 1 of the Megatron-LM paper: published and simulated. `bazel run
// //tools/bench:megatron_table -- [ROW...]`, rows by name: 1.7B.
#include <cstdio>
#include <string>

#include "platform/byte_quantity.h"
#include "platform/status_macros.h"
#include "tools/bench/megatron_plans.h"

namespace weft {
namespace {

absl::Status Print(const MegatronRun& run) {
  WEFT_ASSIGN_OR_RETURN(const auto job, MegatronJob::Create(run));
  WEFT_ASSIGN_OR_RETURN(const EvaluatedChoice hand, job->HandMade());
  const double published = MegatronPublished(run);
  const double simulated = MegatronUtilisation(run, hand.step_seconds);
  std::printf("%-8s published %.1f %%, simulated %.1f %% (%+.1f %%), %.2f s, %s%s: %s\n", run.name,
              100 * published, 100 * simulated, 100 * (simulated / published - 1),
              hand.step_seconds, ByteQuantity(hand.memory_bytes).c_str(),
              hand.fits ? "" : " (does not fit)", ParallelText(hand.choice).c_str());
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  int failed = 0;
  for (const weft::MegatronRun& run : weft::MegatronRuns()) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted |= std::string(argv[i]) == run.name;
    if (!wanted) continue;
    const absl::Status status = weft::Print(run);
    if (status.ok()) continue;
    ++failed;
    std::fprintf(stderr, "%s: %s\n", run.name, std::string(status.message()).c_str());
  }
  return failed > 0 ? 1 : 0;
}
