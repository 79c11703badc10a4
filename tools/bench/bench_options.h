// A BenchJob whose workers are told something else than usual.
#ifndef WEFT_TOOLS_BENCH_BENCH_OPTIONS_H_
#define WEFT_TOOLS_BENCH_BENCH_OPTIONS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/loss_detection.h"
#include "platform/process.h"
#include "tools/bench/bench_job.h"

namespace weft {

// What of a job is not as StartBenchJob has it.
struct BenchJobOptions {
  // Its ranks agree on each step, as those of `train` do that can go on without one.
  bool commits = false;
  LossDetection detection = {};
  // Ports of 127.0.0.1 in place of unix sockets.
  bool tcp = false;
  // With tcp, for TLS: a folder that MakeClusterKeys has made for the host 127.0.0.1. "" = no TLS.
  std::string keys = {};
};

// A job and what it needs besides.
struct OwnedBenchJob {
  std::vector<std::unique_ptr<Process>> processes;  // of workers on ports
  BenchJob job;
};
// As StartBenchJob, with no plan given.
absl::StatusOr<OwnedBenchJob> StartBenchJobWith(const Graph& model,
                                                std::shared_ptr<const DataSet> data, int workers,
                                                const BenchJobOptions& options);

}  // namespace weft

#endif  // WEFT_TOOLS_BENCH_BENCH_OPTIONS_H_
