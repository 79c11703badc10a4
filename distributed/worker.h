// Worker: one rank's run time: variables, programs, communicator, input. Knows no network.
#ifndef WEFT_DISTRIBUTED_WORKER_H_
#define WEFT_DISTRIBUTED_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/transport.h"
#include "distributed/worker_client.h"
#include "executor/interfaces/input_source.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/process_memory.h"
#include "tensor/device.h"

namespace weft {

// Opens a data set from its description (JSON of training/data_spec.h). Implemented by training/,
// handed down by tools/.
using InputSourceFactory =
    std::function<absl::StatusOr<std::unique_ptr<InputSource>>(const std::string& data)>;

// Makes this rank's transport once the membership is known.
using TransportFactory =
    std::function<absl::StatusOr<std::unique_ptr<Transport>>(const JobMembership& membership)>;

// What a worker works with. Pointers are borrowed and outlive the worker.
struct WorkerEnvironment {
  Device* device = nullptr;
  Clock* clock = nullptr;
  InputSourceFactory open_input;
  TransportFactory open_transport;
  std::string version;
  // That tell of the process's memory, and that checkpoints are written to; null = the real ones.
  FileSystem* files = nullptr;
  // That checkpoints are written through; null: `files`.
  FileSystem* checkpoint_files = nullptr;
};

// Mirrors WorkerClient, call by call. Borrows what the environment points to. One call at a time,
// except Abort. After an error of RunSteps only Join (with a new job_id) is accepted.
class Worker {
 public:
  explicit Worker(WorkerEnvironment environment);
  ~Worker();
  absl::StatusOr<WorkerInfo> Join(const JobMembership& membership);
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string& program, Partition partition,
                                               const std::string& data);
  absl::Status WriteVariable(const std::string& name, const Tensor& local);
  absl::StatusOr<Tensor> ReadVariable(const std::string& name);
  // The same in parts, for who passes them on without holding the whole.
  absl::StatusOr<VariableShard> FindVariable(const std::string& name) const;
  absl::Status WriteVariablePart(const std::string& name, int64_t offset,
                                 std::span<const std::byte> part);
  absl::Status ReadVariablePart(const std::string& name, int64_t offset, std::span<std::byte> part);
  ProcessMemory MeasureMemory() const;
  absl::Status RunSteps(const std::vector<StepRange>& ranges,
                        const std::function<void(const StepReport&)>& report);
  absl::StatusOr<WorkerTraffic> ReadTraffic();
  absl::StatusOr<std::vector<ProgramStatistics>> ReadStatistics();
  absl::StatusOr<CheckpointWrite> PollCheckpoint(bool wait);
  void Abort(const absl::Status& reason);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_WORKER_H_
