// WatchedDevice: another device, of which a test sees what is asked, and which can leave waits out.
#ifndef WEFT_TENSOR_TESTING_WATCHED_DEVICE_H_
#define WEFT_TENSOR_TESTING_WATCHED_DEVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tensor/device.h"

namespace weft::testing {

// Calls of all streams so far.
struct WatchedCalls {
  std::atomic<int64_t> synchronizations{0};
  std::atomic<int64_t> waits{0};
  std::atomic<int64_t> works{0};          // by Enqueue, also of recordings
  std::atomic<int64_t> recordings{0};     // that ended
  std::atomic<int64_t> recorded_runs{0};  // of recordings
};

struct WatchedDeviceOptions {
  // What the device says that it is; by default what the device behind it is.
  const DeviceInfo* info = nullptr;
  // Waits of streams of this name do nothing: a fault, for tests that must find it.
  std::string stream_without_waits = {};
  // Streams record: work and copies are kept, and enqueued again by each run. Else they cannot,
  // whatever the device behind can.
  bool records = false;
};

// Borrows the device behind it, whose buffers and events its own are. Thread-safe as that.
class WatchedDevice final : public Device {
 public:
  explicit WatchedDevice(Device& device, const WatchedDeviceOptions& options = {});

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t bytes) override;
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override;
  absl::StatusOr<std::shared_ptr<Buffer>> AllocateHostMemory(size_t bytes) override;
  absl::Status CopyFromHost(Stream& stream, const void* host, void* device, size_t bytes) override;
  absl::Status CopyToHost(Stream& stream, const void* device, void* host, size_t bytes) override;
  absl::Status CopyOnDevice(Stream& stream, const void* from, void* to, size_t bytes) override;
  size_t bytes_in_use() const override { return device_.bytes_in_use(); }
  size_t peak_bytes() const override { return device_.peak_bytes(); }
  void ForgetPeakBytes() override { device_.ForgetPeakBytes(); }

  WatchedCalls& calls() { return calls_; }

 private:
  Device& device_;
  const WatchedDeviceOptions options_;
  const DeviceInfo info_;
  WatchedCalls calls_;
};

}  // namespace weft::testing

#endif  // WEFT_TENSOR_TESTING_WATCHED_DEVICE_H_
