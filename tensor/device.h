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
// stay until the work has run (the owner of the stream synchronizes before it frees), and as long
// as a recording that it is part of. DeviceInfo::runs_host_work says what `run` may do.
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

// What a stream was given between BeginRecording and EndRecording, to be run again as a whole at
// little cost for the host. What it uses (buffers, arguments of work, events, pinned host memory)
// must stay as long as it does. One thread at a time. Ends after its runs have, and before its
// device.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  // Runs it after all that was enqueued on `stream` before: a stream of its device.
  virtual absl::Status Run(Stream& stream) = 0;
};

// An in-order queue of work on one device. One thread enqueues; events tie streams together.
// The first error of a work item is kept: later items are skipped, and the error is returned by
// every later call. Destroying a stream waits for its work.
class Stream {
 public:
  virtual ~Stream() = default;
  // Runs `work` after all that was enqueued before. The CPU stream runs it now, in the calling
  // thread; asynchronous devices that run host work return at once and run it later, in another
  // thread. Launching devices (DeviceInfo::runs_host_work is false) call `run` now, in the calling
  // thread: it launches kernels on native_handle(), and these run later.
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

  // From here on, what is enqueued, recorded, waited for and copied on this stream does not run: it
  // is kept for EndRecording (a launching device calls work as ever, and keeps what that launches).
  // A stream that waits for an event recorded meanwhile is recorded too, from there on; before the
  // end, this stream waits for an event of it. Until then: no Synchronize of these streams, no
  // Allocate, no wait for an event from before, and copies use memory of Device::AllocateHostMemory
  // alone (FailedPrecondition). Unimplemented where the device cannot record.
  virtual absl::Status BeginRecording();
  // Gives what was recorded, or the stream's error, and lets the stream run again. `former` is
  // null, or what an earlier EndRecording gave: where both have the same form it is brought up to
  // date and returned, which costs less than a new one. No run of `former` is then under way.
  virtual absl::StatusOr<std::unique_ptr<RecordedWork>> EndRecording(
      std::unique_ptr<RecordedWork> former);
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
  // Work may compute on the device's buffers in C++: their stream runs it in its turn. False on
  // devices whose work launches kernels (CUDA): it is run by Enqueue itself, before what was
  // enqueued earlier has run, and must not touch the bytes of a buffer.
  bool runs_host_work = true;
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
  // Memory of the host that copies from and to this device need not stage: they then run beside the
  // host, and can be recorded. 64-byte aligned, uninitialised. Plain memory of the CPU device where
  // that makes no difference. ResourceExhausted with need and device name.
  virtual absl::StatusOr<std::shared_ptr<Buffer>> AllocateHostMemory(size_t bytes);
  // Ordered on `stream`. The host memory must stay until the stream has passed this point. What
  // CopyFromHost reads may be read at any time between the call and that point, so nothing writes
  // it meanwhile, no earlier copy of the stream either.
  virtual absl::Status CopyFromHost(Stream& stream, const void* host, void* device,
                                    size_t bytes) = 0;
  virtual absl::Status CopyToHost(Stream& stream, const void* device, void* host, size_t bytes) = 0;
  virtual absl::Status CopyOnDevice(Stream& stream, const void* from, void* to, size_t bytes) = 0;
  // To memory of another device: Unimplemented where there is no way between the two but the host.
  virtual absl::Status CopyToPeer(Stream& stream, const void* from, Device& peer, void* to,
                                  size_t bytes);
  // Bytes allocated now, and at most since the device began or ForgetPeakBytes was last called.
  virtual size_t bytes_in_use() const = 0;
  virtual size_t peak_bytes() const = 0;
  // Begins the peak anew with what is allocated now. For who has the device to itself: a worker
  // between two jobs.
  virtual void ForgetPeakBytes() = 0;
};

// The process's CPU device, index 0, without a limit. Lives for ever.
Device& CpuDevice();

}  // namespace weft

#endif  // WEFT_TENSOR_DEVICE_H_
