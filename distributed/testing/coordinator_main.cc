// A coordinator process of the tests, to be killed: coordinator_main ADDRESS... runs the job of
// sum_job.h on the workers there, without end, and prints "running" after its first step.
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "distributed/coordinator.h"
#include "distributed/process/local_cluster.h"
#include "distributed/testing/sum_job.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status Run(std::vector<std::string> addresses) {
  RemoteClusterOptions options;
  options.addresses = addresses;
  options.token = testing::kTestToken;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerCluster> cluster, ConnectToCluster(options));
  Coordinator coordinator(cluster->clients());
  JobMembership membership;
  membership.job_id = 4711;
  membership.addresses = std::move(addresses);
  membership.version = "test";
  WEFT_RETURN_IF_ERROR(coordinator.Join(membership).status());
  WEFT_RETURN_IF_ERROR(
      coordinator.AddProgram("train", testing::SumJobPartitions(coordinator.size()), "data")
          .status());
  bool said = false;
  return coordinator.RunSteps({{"train", 0, int64_t{1} << 40, {{"rate", 0.5}}}},
                              [&](const StepReport&) {
                                if (!said) std::cout << "running" << std::endl;
                                said = true;
                              });
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const absl::Status status = weft::Run({argv + 1, argv + argc});
  std::cerr << "coordinator: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
