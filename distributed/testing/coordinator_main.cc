// A coordinator process of the tests, to be killed: coordinator_main [--resumable STEPS] ADDRESS...
// runs the job of sum_job.h on the workers there, without end, and prints "running" after its first
// step. --resumable: as a job whose state workers keep, in runs of so many steps; after each it
// prints "ran N", of the steps so far, and in the end "ended: WHY". --uncommitted STEPS: the same,
// and its ranks agree on no step.
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "distributed/coordinator.h"
#include "distributed/process/local_cluster.h"
#include "distributed/testing/sum_job.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int64_t kWithoutEnd = int64_t{1} << 40;

// 0: it is no job that can be resumed.
absl::Status RunIn(int64_t steps, bool commits, Coordinator& coordinator,
                   const std::vector<std::string>& at) {
  JobMembership membership;
  membership.job_id = 4711;
  membership.addresses = at;
  membership.version = "test";
  membership.commits = commits;
  membership.job_digest = steps > 0 ? testing::kSumJobDigest : 0;
  WEFT_RETURN_IF_ERROR(coordinator.Join(membership).status());
  const int ranks = coordinator.size();
  WEFT_RETURN_IF_ERROR(
      coordinator
          .AddProgram("train",
                      commits ? testing::CommittingSumJob(ranks) : testing::SumJobPartitions(ranks),
                      "data")
          .status());
  bool said = false;
  const auto report = [&said](const StepReport&) {
    if (!said) std::cout << "running" << std::endl;
    said = true;
  };
  StepRange range;
  range.program = "train";
  range.scalars = {{"rate", 0.5}};
  range.count = steps > 0 ? steps : kWithoutEnd;
  while (true) {
    if (steps > 0) range.note = {{testing::kSumJobStep, static_cast<double>(range.first_step)}};
    WEFT_RETURN_IF_ERROR(coordinator.RunSteps({range}, report));
    range.first_step += range.count;
    std::cout << "ran " << range.first_step << std::endl;
  }
}

absl::Status Run(std::vector<std::string> arguments) {
  int64_t steps = 0;
  const bool commits = arguments.size() > 2 && arguments[0] == "--resumable";
  if (commits || (arguments.size() > 2 && arguments[0] == "--uncommitted")) {
    if (!absl::SimpleAtoi(arguments[1], &steps)) return absl::InvalidArgumentError("no number");
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  RemoteClusterOptions options;
  options.addresses = arguments;
  options.token = testing::kTestToken;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerCluster> cluster, ConnectToCluster(options));
  Coordinator coordinator(cluster->clients());
  const absl::Status ended = cluster->Explain(RunIn(steps, commits, coordinator, arguments));
  if (steps > 0) std::cout << "ended: " << ended.message() << std::endl;
  return ended;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const absl::Status status = weft::Run({argv + 1, argv + argc});
  std::cerr << "coordinator: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
