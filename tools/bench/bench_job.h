// A training job on worker processes, as the benchmarks want it: one thread each, gRPC over unix
// sockets. The workers are the benchmark's own program, run again.
#ifndef WEFT_TOOLS_BENCH_BENCH_JOB_H_
#define WEFT_TOOLS_BENCH_BENCH_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "distributed/local_cluster.h"
#include "distributed/worker.h"
#include "graph/plan.h"
#include "training/job.h"

namespace weft {

// What `PROGRAM worker ...` does: `arguments` are those after the program's name.
absl::Status ServeBenchWorker(const std::vector<std::string>& arguments,
                              InputSourceFactory open_input);

// Workers live as long as it.
struct BenchJob {
  std::unique_ptr<WorkerCluster> cluster;
  std::unique_ptr<Coordinator> coordinator;
  PreparedJob job;
};
// By softmax cross entropy and plain SGD.
absl::StatusOr<BenchJob> StartBenchJob(const Graph& model, std::shared_ptr<const DataSet> data,
                                       int workers, const Plan& plan = {});
absl::Status TrainSteps(BenchJob& job, int64_t steps);

}  // namespace weft

#endif  // WEFT_TOOLS_BENCH_BENCH_JOB_H_
