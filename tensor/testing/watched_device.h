// WatchedDevice: another device, of which a test sees what is asked, and which can leave waits out.
#ifndef WEFT_TENSOR_TESTING_WATCHED_DEVICE_H_
#define WEFT_TENSOR_TESTING_WATCHED_DEVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "platform/mutex.h"
#include "tensor/device.h"

namespace weft::testing {

// Calls of all streams so far.
struct WatchedCalls {
  std::atomic<int64_t> synchronizations{0};
  std::atomic<int64_t> waits{0};
  std::atomic<int64_t> works{0};          // by Enqueue, also of recordings
  std::atomic<int64_t> recordings{0};     // that ended
  std::atomic<int64_t> recorded_runs{0};  // of recordings
  std::atomic<int64_t> copies_made{0};    // from the host, as streams have come to them
};

// A call of a stream that puts work in order.
enum class OrderingCall : uint8_t { kRecord, kWait, kSynchronize };

// The number-th (from 0) call of its kind to streams of this name.
struct OrderingPlace {
  std::string stream;
  OrderingCall call = OrderingCall::kRecord;
  int64_t number = 0;
  friend bool operator==(const OrderingPlace&, const OrderingPlace&) = default;
};

struct WatchedDeviceOptions {
  // What the device says that it is; by default what the device behind it is.
  const DeviceInfo* info = nullptr;
  // Waits of streams of this name do nothing: a fault, for tests that must find it.
  std::string stream_without_waits = {};
  // This call does nothing and answers OK: the same for one place alone. An event that is not
  // recorded is done, or as it was recorded before. Copies to the host that a left out Synchronize
  // would have waited for come too late for any reader: zeros are there in their stead.
  std::optional<OrderingPlace> without = std::nullopt;
  // Streams record: work and copies are kept, and enqueued again by each run. Else they cannot,
  // whatever the device behind can.
  bool records = false;
  // Counts copies_made. REQUIRES: the device behind runs host work.
  bool counts_copies = false;
};

// Borrows the device behind it, whose buffers its own are. Thread-safe as that.
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

  // After so many synchronizations more, as where a device hangs: each later one waits for nothing
  // and answers DeadlineExceeded, no event is done, and what streams were given stays under way.
  void HangAfter(int64_t synchronizations) { until_it_hangs_.store(synchronizations); }
  void NeverHang() { until_it_hangs_.store(std::numeric_limits<int64_t>::max()); }

  WatchedCalls& calls() { return calls_; }
  // All calls so far that put work in order.
  std::vector<OrderingPlace> ordering() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class WatchedEvent;
  friend class WatchedStream;

  // Notes the call; false where it is to do nothing.
  bool TakesPlace(const std::string& stream, OrderingCall call) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Hangs() const { return until_it_hangs_.load() < 0; }
  bool LeavesOutNextSynchronize(const std::string& stream) const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t CallsSoFar(const std::string& stream, OrderingCall call) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Device& device_;
  const WatchedDeviceOptions options_;
  const DeviceInfo info_;
  WatchedCalls calls_;
  std::atomic<int64_t> until_it_hangs_{std::numeric_limits<int64_t>::max()};
  mutable Mutex mutex_;
  std::vector<OrderingPlace> ordering_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::testing

#endif  // WEFT_TENSOR_TESTING_WATCHED_DEVICE_H_
