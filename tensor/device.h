// Device, Stream, Event: where memory lives and work runs. The CPU, CUDA and the fake device of the
// tests implement the same few calls.
#ifndef WEFT_TENSOR_DEVICE_H_
#define WEFT_TENSOR_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tensor/buffer.h"
#include "tensor/device_fault.h"

namespace weft {

class Stream;

// A unit of work without an allocation: `run(argument, stream)`. What `argument` points to must
// stay until the work has run (the owner of the stream synchronizes before it frees).
struct Work {
  absl::Status (*run)(void* argument, Stream& stream);
  void* argument;
};

// A point in a stream's work. Reusable: recording again moves it. Thread-safe.
class Event {
 public:
  virtual ~Event() = default;
  // True if everything before the last recording has run; true before the first recording.
  virtual bool Done() const = 0;
};

// An in-order queue of work on one device. One thread enqueues; events tie streams together.
// The first error of a work item is kept: later items are skipped, and the error is returned by
// every later call. Destroying a stream waits for its work.
class Stream {
 public:
  virtual ~Stream() = default;
  // Runs `work` after all that was enqueued before. The CPU stream runs it now, in the calling
  // thread; asynchronous devices return at once.
  virtual absl::Status Enqueue(Work work) = 0;
  virtual absl::Status Record(Event& event) = 0;
  // Later work of this stream waits until `event`'s last recording is done.
  virtual absl::Status Wait(Event& event) = 0;
  // Blocks the host until all work has run. DeadlineExceeded after `timeout`.
  virtual absl::Status Synchronize(absl::Duration timeout) = 0;
  // cudaStream_t and the like; null on the CPU.
  virtual void* native_handle() const { return nullptr; }
  // Memory of the device in which kernels of this stream report bad data, and which the stream
  // reads when the host waits for it: the report is then the stream's error. Null where kernels
  // return their errors.
  virtual DeviceFault* fault() const { return nullptr; }
};

// The kinds of devices; kFake is the asynchronous device of the tests.
enum class DeviceKind : uint8_t { kCpu, kCuda, kFake };

// What a device is.
struct DeviceInfo {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  // Bytes that may be allocated; 0 = no limit of ours.
  size_t memory_limit = 0;
  // The host may read and write the device's buffers through their pointers.
  bool host_accessible = true;
  std::string name;  // "cpu:0", "cuda:1"
};

// One device of this process. Thread-safe. Outlives its buffers and streams.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // 64-byte-aligned, uninitialised. ResourceExhausted with need, limit and device name.
  virtual absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream(const std::string& name) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> NewEvent() = 0;
  // Ordered on `stream`. The host memory must stay until the stream has passed this point.
  virtual absl::Status CopyFromHost(Stream& stream, const void* host, void* device,
                                    size_t bytes) = 0;
  virtual absl::Status CopyToHost(Stream& stream, const void* device, void* host, size_t bytes) = 0;
  virtual absl::Status CopyOnDevice(Stream& stream, const void* from, void* to, size_t bytes) = 0;
  // Bytes allocated now and at most so far.
  virtual size_t bytes_in_use() const = 0;
  virtual size_t peak_bytes() const = 0;
};

// The process's CPU device, index 0, without a limit. Lives for ever.
Device& CpuDevice();

}  // namespace weft

#endif  // WEFT_TENSOR_DEVICE_H_
