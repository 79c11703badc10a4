// MemoryRequirement: the most memory that a worker process needs, known before the first step.
#ifndef WEFT_DISTRIBUTED_MEMORY_REQUIREMENT_H_
#define WEFT_DISTRIBUTED_MEMORY_REQUIREMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/process_memory.h"

namespace weft {

// Of one rank, for all programs that it was given. All in bytes; the parts add up to the total.
// Programs (training step, short last batch, evaluation) share variables, arena, data and
// transport; their constants, packed weights and staging memory add up. What is passed on in parts
// of 1 MiB (variables that are written and read) needs nothing beyond it. Weights that lie in
// files, in the model or beside it, are read in windows of 4 MiB whose pages are given back
// (platform/mapped_pages.h): they are within kProcessGrowthBytes. Pages of other files that the
// system may drop at any time (data files, once read) are counted as far as the process is charged
// for them when the program is compiled. Where a worker's variables are read within its process,
// the copies take the place of the arena, which is given back (distributed/worker.cc).
struct MemoryRequirement {
  // Exact: parameters and optimizer state of this rank, each rounded up to 64 bytes.
  int64_t variable_bytes = 0;
  // Exact: everything steps make (activations, gradients, buckets and scratch of collectives,
  // workspaces of kernels), by lifetime, for the program that needs most.
  int64_t arena_bytes = 0;
  // Exact: constants of the programs' graphs, those in mapped files included. Where the device has
  // memory of its own: what the host holds of them, without mapped files.
  int64_t constant_bytes = 0;
  // Exact: their copies in the memory of such a device.
  int64_t device_constant_bytes = 0;
  // Estimate: what NCCL's communicators take of the device's memory (NcclBytes,
  // distributed/nccl/nccl_memory.h), besides what programs allocate there.
  int64_t nccl_bytes = 0;
  // Exact: weights that kernels keep in a layout of their own.
  int64_t packed_bytes = 0;
  // Exact: host memory where the host cannot reach the device's.
  int64_t staging_bytes = 0;
  // Exact: the data set, and the order of its samples.
  int64_t input_bytes = 0;
  // Exact: the copy of variables that a checkpoint is written from.
  int64_t checkpoint_bytes = 0;
  // Exact: copies of states that peers go on from after a loss (SnapshotCopies): two of its own,
  // and two of each rank that it keeps.
  int64_t copies_bytes = 0;
  // A bound: messages that come before the step asks for them, and the connections to peers.
  int64_t transport_bytes = 0;
  // Measured when the program had been compiled: program, libraries, heaps, stacks, the graphs and
  // prepared kernels; an allowance for their growth (ProcessGrowthBytes); and the page tables of
  // what is allocated later.
  int64_t process_bytes = 0;
  // Measured: what reading the data set and compiling took for a while, as far as that was more
  // than all of the above, which is taken later.
  int64_t loading_bytes = 0;

  // Of the arena, so not added: the largest workspace of a kernel, those of libraries included.
  int64_t workspace_bytes = 0;

  // Whether the worker's device has memory of its own, which the host cannot reach. Then variables,
  // arena, packed weights and device_constant_bytes lie there.
  bool on_device = false;

  // Of the host's memory.
  int64_t total() const {
    const int64_t computed = on_device ? 0 : variable_bytes + arena_bytes + packed_bytes;
    return computed + constant_bytes + staging_bytes + input_bytes + checkpoint_bytes +
           copies_bytes + transport_bytes + process_bytes + loading_bytes;
  }
  // Of the device's memory, what programs allocate there: what its peak is compared with. 0 where
  // it has none of its own.
  int64_t device_allocated() const {
    return on_device ? variable_bytes + arena_bytes + device_constant_bytes + packed_bytes : 0;
  }
  // The same with NCCL's, without CUDA's context.
  int64_t device_total() const { return on_device ? device_allocated() + nccl_bytes : 0; }
  friend bool operator==(const MemoryRequirement&, const MemoryRequirement&) = default;
};

// What stacks, heaps, code that is run for the first time, buffers of oneDNN's products, the pages
// around variables and arena, and gRPC's messages of trained values grow by from compiling to the
// end. 4 MiB, and 1/64 of `held_bytes` (variables and arena), at most up to kProcessGrowthBytes and
// kThreadGrowthBytes for each of `threads` beyond two. Measured with two: up to 0.6 MiB where 100
// MiB are held, up to 7.3 MiB where 1.2 GiB are.
inline constexpr int64_t kProcessGrowthBytes = int64_t{10} << 20;
inline constexpr int64_t kThreadGrowthBytes = int64_t{1} << 20;
int64_t ProcessGrowthBytes(int64_t held_bytes, int threads);

// What the process of a worker with a GPU grows by besides: NVIDIA's libraries load their code when
// a kernel of theirs is first launched, and copies have pinned memory. Assumed; the report of a run
// has the peak to compare.
inline constexpr int64_t kDeviceProcessGrowthBytes = int64_t{128} << 20;

// What the system takes to map so many bytes, and charges to the process: 8 bytes for each page of
// 4 KiB, and the same again of these. Huge pages take as much: the system keeps their tables. The
// tables at the ends of a mapping, a page each, are within kProcessGrowthBytes.
int64_t PageTableBytes(int64_t bytes);

// What gRPC, the kernel and the inbox's spare buffers hold for the two streams between a pair of
// workers: kIdleConnectionBytes, and a multiple of the messages, up to kConnectionBytes; and what
// gRPC may hold, beyond that, of messages that are under way. It is never more than there are: its
// window grows with them, measured up to this.
inline constexpr int64_t kIdleConnectionBytes = int64_t{256} << 10;
inline constexpr int64_t kConnectionBytes = int64_t{3} << 20;
inline constexpr int64_t kWindowBytes = int64_t{16} << 20;

// A bound of what a connection to a peer takes: `unexpected_bytes` may come from it before the step
// asks for them (executor/memory/unexpected_messages.h), of which the inbox takes `limit` at most.
int64_t ConnectionBytes(int64_t unexpected_bytes, int64_t limit);

// What a worker said it needs, and may have.
struct WorkerMemory {
  std::string worker;  // "worker:1"
  MemoryLimit limit;
  MemoryRequirement requirement;  // of the programs added so far
};

// "412 MiB: variables 300 MiB, arena 80.5 MiB, process 24 MiB, transport 8 MiB": the total and the
// parts that are 64 KiB or more, largest first. Of a worker whose device has memory of its own the
// host's part.
std::string DescribeMemory(const MemoryRequirement& requirement);
// The device's part in the same form.
std::string DescribeDeviceMemory(const MemoryRequirement& requirement);

// ResourceExhausted unless the need of `worker` is within the limit: names the worker, the need in
// its parts, the limit and whose it is, and what to do.
absl::Status CheckFits(const std::string& worker, const MemoryRequirement& requirement,
                       const MemoryLimit& limit);

// The same of the memory of its device, "cuda:0"; fine where that has none of its own.
absl::Status CheckFitsOnDevice(const std::string& worker, const std::string& device,
                               const MemoryRequirement& requirement, const MemoryLimit& limit);

// The same for workers on one host that nobody gave a limit of their own: those whose limit has the
// same source (a control group, the machine) share it.
absl::Status CheckFitTogether(const std::string& host, const std::vector<WorkerMemory>& workers);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_MEMORY_REQUIREMENT_H_
