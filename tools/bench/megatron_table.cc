// Table 1 of the Megatron-LM paper: published and simulated. `bazel run
// //tools/bench:megatron_table -- [--searched] [ROW...]`, rows by name: 1.7B. With --searched also
// the plan that the search finds for each, and the processor's time that it takes.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "platform/byte_quantity.h"
#include "platform/status_macros.h"
#include "tools/bench/megatron_plans.h"

namespace weft {
namespace {

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

absl::Status PrintSearched(const MegatronRun& run, const MegatronJob& job, double hand_seconds) {
  const double before = CpuSeconds();
  WEFT_ASSIGN_OR_RETURN(const SearchResult found, job.Searched());
  const PlanCandidate& chosen = found.chosen;
  std::printf("         searched %.1f %% (%.3f of the step), %.2f s, %s: %s; %d plans in %.1f s\n",
              100 * MegatronUtilisation(run, chosen.step_seconds),
              chosen.step_seconds / hand_seconds, chosen.step_seconds,
              ByteQuantity(chosen.memory_bytes).c_str(), ParallelText(chosen.choice).c_str(),
              found.evaluated, CpuSeconds() - before);
  return absl::OkStatus();
}

absl::Status Print(const MegatronRun& run, bool searched) {
  WEFT_ASSIGN_OR_RETURN(const auto job, MegatronJob::Create(run));
  WEFT_ASSIGN_OR_RETURN(const EvaluatedChoice hand, job->HandMade());
  const double published = MegatronPublished(run);
  const double simulated = MegatronUtilisation(run, hand.step_seconds);
  std::printf("%-8s published %.1f %%, simulated %.1f %% (%+.1f %%), %.2f s, %s%s: %s\n", run.name,
              100 * published, 100 * simulated, 100 * (simulated / published - 1),
              hand.step_seconds, ByteQuantity(hand.memory_bytes).c_str(),
              hand.fits ? "" : " (does not fit)", ParallelText(hand.choice).c_str());
  if (searched) WEFT_RETURN_IF_ERROR(PrintSearched(run, *job, hand.step_seconds));
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  std::vector<std::string> rows(argv + 1, argv + argc);
  const bool searched = std::erase(rows, "--searched") > 0;
  int failed = 0;
  for (const weft::MegatronRun& run : weft::MegatronRuns()) {
    if (!rows.empty() && std::find(rows.begin(), rows.end(), run.name) == rows.end()) continue;
    const absl::Status status = weft::Print(run, searched);
    if (status.ok()) continue;
    ++failed;
    std::fprintf(stderr, "%s: %s\n", run.name, std::string(status.message()).c_str());
  }
  return failed > 0 ? 1 : 0;
}
