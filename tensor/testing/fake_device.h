// A second device, unlike the CPU where a GPU is: for tests of everything that runs on devices.
#ifndef WEFT_TENSOR_TESTING_FAKE_DEVICE_H_
#define WEFT_TENSOR_TESTING_FAKE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "tensor/device.h"
#include "tensor/testing/fake_memory.h"
#include "tensor/testing/fake_stream.h"

namespace weft::testing {

struct FakeDeviceOptions {
  // What the device says that it is; its name begins with "fake:" or "cuda:".
  DeviceKind kind = DeviceKind::kFake;
  int index = 0;
  // Bytes that may be allocated; 0 = as much as 8 GiB of address space hold.
  size_t memory_limit = 0;
  // Of a scheduler of its own; without effect when `scheduler` is given.
  FakeSchedulerOptions scheduling = {};
  // Shared by devices that wait for each other's events.
  std::shared_ptr<FakeScheduler> scheduler = nullptr;
  // Host code that touches device memory outside of stream work dies of SIGSEGV.
  bool protect_memory = true;
  // Items per stream; a full stream makes the host wait, at most so long.
  size_t stream_capacity = 1024;
  absl::Duration enqueue_timeout = absl::Seconds(60);
  // False: Stream::Enqueue calls the work at once, in the calling thread and without access to the
  // device's memory, as a device does whose work launches kernels.
  bool runs_host_work = true;
  // For the timeouts of Synchronize and of full streams. Null: the real one.
  Clock* clock = nullptr;
};

// A device whose memory the host cannot touch (fake_memory.h says what it notices) and whose
// streams are threads that run their work later, in an order drawn from a seed (fake_stream.h).
// Work runs CPU code on device pointers. Thread-safe. REQUIRES at its end: no buffer and no stream
// of it is alive.
//
//   FakeDevice device({.scheduling = {.seed = 7}});
//   ... run the code under test on it ...
//   EXPECT_TRUE(device.Verify().ok());
//
// A device built on it (a derived class) sees allocations and frees, and gives its streams hooks.
class FakeDevice : public Device {
 public:
  explicit FakeDevice(const FakeDeviceOptions& options = {});
  ~FakeDevice() override;

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t bytes) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override;
  // Memory of the CPU device; what a recording copies has to be of it.
  absl::StatusOr<std::shared_ptr<Buffer>> AllocateHostMemory(size_t bytes) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  // InvalidArgument when the device's side is not inside one buffer of this device, the host's side
  // is device memory, or the stream belongs to another device.
  absl::Status CopyFromHost(Stream& stream, const void* host, void* device, size_t bytes) override;
  absl::Status CopyToHost(Stream& stream, const void* device, void* host, size_t bytes) override;
  absl::Status CopyOnDevice(Stream& stream, const void* from, void* to, size_t bytes) override;
  size_t bytes_in_use() const override ABSL_LOCKS_EXCLUDED(mutex_);
  size_t peak_bytes() const override ABSL_LOCKS_EXCLUDED(mutex_);
  void ForgetPeakBytes() override ABSL_LOCKS_EXCLUDED(mutex_);

  // Internal with the first damage done to memory: writes out of bounds, or after a free.
  virtual absl::Status Verify() { return memory_.Verify(); }
  // True for every address of the device's memory, allocated or not.
  bool IsDevicePointer(const void* address) const { return memory_.Contains(address); }
  // Makes the k-th allocation from now fail (1 = the next). 0 takes it back.
  void FailAllocation(int64_t k) ABSL_LOCKS_EXCLUDED(mutex_);
  FakeScheduler& scheduler() { return *scheduler_; }

 protected:
  // Called without a lock: after memory was allocated, and before it is freed.
  virtual void OnAllocate(void* /*data*/, size_t /*bytes*/) {}
  virtual void OnFree(void* /*data*/) {}
  // For a new stream, which owns them; null: it needs none.
  virtual absl::StatusOr<std::unique_ptr<FakeStreamHooks>> NewHooks(const std::string& /*name*/) {
    return nullptr;
  }
  FakeMemory& memory() { return memory_; }

 private:
  friend class FakeBuffer;
  friend class FakeHostBuffer;

  absl::StatusOr<void*> TakeMemory(size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Exhausted(size_t bytes, const std::string& reason) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(void* data, size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // The stream as one of ours, or an error.
  absl::StatusOr<FakeStream*> Own(Stream& stream) const;
  absl::Status CheckDeviceSide(const void* data, size_t bytes) const;
  // `stream`: the copy's.
  absl::Status CheckHostSide(const FakeStream& stream, const void* data, size_t bytes) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ReleaseHost(const void* data) ABSL_LOCKS_EXCLUDED(mutex_);

  const FakeDeviceOptions options_;
  const DeviceInfo info_;
  const std::shared_ptr<FakeScheduler> scheduler_;
  FakeMemory memory_;

  mutable Mutex mutex_;
  size_t bytes_in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t peak_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t buffers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<const char*, size_t> host_memory_ ABSL_GUARDED_BY(mutex_);  // Address to bytes.
  int64_t failing_allocation_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::testing

#endif  // WEFT_TENSOR_TESTING_FAKE_DEVICE_H_
