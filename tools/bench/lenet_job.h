// LeNet in training on worker processes, as the benchmarks want it: one thread each, a global batch
// of 128, gRPC over unix sockets. The workers are the benchmark's own program, run again.
#ifndef WEFT_TOOLS_BENCH_LENET_JOB_H_
#define WEFT_TOOLS_BENCH_LENET_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "distributed/local_cluster.h"
#include "distributed/worker.h"
#include "training/job.h"

namespace weft {

inline constexpr int64_t kLenetBatch = 128;

// What `PROGRAM worker ...` does: `arguments` are those after the program's name.
absl::Status ServeLenetWorker(const std::vector<std::string>& arguments,
                              InputSourceFactory open_input);

// The example LeNet, all of its weights trainable.
absl::StatusOr<Graph> LenetModel();
// Made-up images and labels, 20 batches of them, written to the folder.
absl::StatusOr<std::shared_ptr<const DataSet>> MakeLenetData(const std::string& folder);

// A job on worker processes that live as long as it.
struct LenetJob {
  std::unique_ptr<WorkerCluster> cluster;
  std::unique_ptr<Coordinator> coordinator;
  PreparedJob job;
};
absl::StatusOr<LenetJob> StartLenetJob(const Graph& model, std::shared_ptr<const DataSet> data,
                                       int workers);
absl::Status TrainLenet(LenetJob& job, int64_t steps);

}  // namespace weft

#endif  // WEFT_TOOLS_BENCH_LENET_JOB_H_
