// Worker: one rank's run time: variables, programs, communicator, input. Knows no network.
#ifndef WEFT_DISTRIBUTED_WORKER_H_
#define WEFT_DISTRIBUTED_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/nccl/worker_card.h"
#include "distributed/transport.h"
#include "distributed/worker_client.h"
#include "executor/interfaces/input_source.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "tensor/device.h"

namespace weft {

// Opens a data set from its description (JSON of training/data/data_spec.h). Implemented by
// training/, handed down by tools/.
using InputSourceFactory =
    std::function<absl::StatusOr<std::unique_ptr<InputSource>>(const std::string& data)>;

// Makes this rank's transport once the membership is known.
using TransportFactory =
    std::function<absl::StatusOr<std::unique_ptr<Transport>>(const JobMembership& membership)>;

// Programs of one job that a worker takes. A program is a kind of step under one shape of its
// batch. Shapes are 128 at most: 64 lengths to pad to, for whole batches and the last one. So this
// is room for 32 kinds. The largest job so far has ten: evaluation, training, and eight divisions
// that --rebalance tries.
inline constexpr int kMaxJobPrograms = 4096;

// What a worker works with. Pointers are borrowed and outlive the worker.
struct WorkerEnvironment {
  std::string name = "worker";  // WorkerClient::name
  Device* device = nullptr;
  std::string device_text;  // WorkerDevice::text
  Clock* clock = nullptr;
  InputSourceFactory open_input;
  TransportFactory open_transport;
  std::string version;
  // Programs of a job, and descriptions of data for them.
  int max_programs = kMaxJobPrograms;
  // Its GPU; by default what `device` is (CardOf).
  std::optional<WorkerCard> card;
  // That tell of the process's memory, and that checkpoints are written to; null = the real ones.
  FileSystem* files = nullptr;
  // That checkpoints are written through; null: `files`.
  FileSystem* checkpoint_files = nullptr;
};

// What a coordinator of this process calls as it is, and a server passes calls on to. One call at a
// time, except Abort. After an error of RunSteps only Join (with a new job_id) is accepted, and
// what control_calls.h allows.
class Worker : public WorkerClient {
 public:
  // AddProgram for who has no more use for the partition.
  virtual absl::StatusOr<MemoryRequirement> TakeProgram(const std::string& program,
                                                        Partition partition,
                                                        const std::string& data) = 0;
  // Variables in parts, for who passes them on without holding the whole.
  virtual absl::StatusOr<VariableShard> FindVariable(const std::string& name) const = 0;
  virtual absl::Status WriteVariablePart(const std::string& name, int64_t offset,
                                         std::span<const std::byte> part) = 0;
  virtual absl::Status ReadVariablePart(const std::string& name, int64_t offset,
                                        std::span<std::byte> part) = 0;
  // Leaves its job, if it is in one: variables, data and programs are gone, and their memory.
  virtual void GiveUp() {}
};

// Borrows what the environment points to.
std::unique_ptr<Worker> NewWorker(WorkerEnvironment environment);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_WORKER_H_
