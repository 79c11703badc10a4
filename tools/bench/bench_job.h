// A training job on worker processes, as the benchmarks want it: one thread each, gRPC over unix
// sockets. The workers are the benchmark's own program, run again.
#ifndef WEFT_TOOLS_BENCH_BENCH_JOB_H_
#define WEFT_TOOLS_BENCH_BENCH_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "distributed/process/local_cluster.h"
#include "distributed/worker.h"
#include "graph/plan.h"
#include "platform/file_system.h"
#include "training/job/job.h"

namespace weft {

// Of coordinator and workers.
inline constexpr char kBenchVersion[] = "bench";
// A worker that is to listen here prints the address that it has got, as a line.
inline constexpr char kBenchPort[] = "127.0.0.1:0";

// What `PROGRAM worker ...` does: `arguments` are those after the program's name.
absl::Status ServeBenchWorker(const std::vector<std::string>& arguments,
                              std::function<InputSourceFactory(FileSystem& files)> open_input);

// Workers live as long as it.
struct BenchJob {
  std::unique_ptr<WorkerCluster> cluster;
  std::unique_ptr<Coordinator> coordinator;
  PreparedJob job;
};
// By softmax cross entropy and plain SGD. `replicate_every`: JobSpec::replicate_every.
absl::StatusOr<BenchJob> StartBenchJob(const Graph& model, std::shared_ptr<const DataSet> data,
                                       int workers, const Plan& plan = {},
                                       int64_t replicate_every = 0);
// Trains one step more than `steps` and returns the mean seconds from the end of a step to the end
// of the next: what comes before the first and after the last (which hands the trained parameters
// over) is no part of a step. REQUIRES: steps >= 1.
absl::StatusOr<double> TrainSteps(BenchJob& job, int64_t steps);

// The `main` of such a benchmark: a worker where the arguments say so, else `measure`. Returns the
// exit code, having said what failed.
int BenchMain(int argc, char** argv, const std::function<absl::Status()>& measure);
// "what: median 3.2 (2.9 to 3.4)". REQUIRES: not empty.
void PrintMedian(const char* what, std::vector<double> values);

}  // namespace weft

#endif  // WEFT_TOOLS_BENCH_BENCH_JOB_H_
