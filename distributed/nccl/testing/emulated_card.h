// EmulatedCard: an emulated GPU that FakeNccl joins with others.
#ifndef WEFT_DISTRIBUTED_NCCL_TESTING_EMULATED_CARD_H_
#define WEFT_DISTRIBUTED_NCCL_TESTING_EMULATED_CARD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/nccl/testing/fake_nccl.h"
#include "distributed/nccl/worker_card.h"
#include "ops/testing/emulator/emulated_device.h"
#include "platform/mutex.h"
#include "tensor/device.h"
#include "tensor/testing/fake_stream.h"

namespace weft::testing {

// A device that launches, as a GPU does (DeviceInfo::runs_host_work is false). A collective is a
// copy to the host, an exchange among the ranks, and a copy back, all in the order of the stream
// that it was called with: so the emulator reports a kernel that no event puts before it or after
// it. `version`: of its NCCL; 0: the world's. Thread-safe; ends after its streams and buffers, and
// before the world.
class EmulatedCard final : public Device {
 public:
  EmulatedCard(FakeNcclWorld& world, int index, uint64_t seed, int version = 0);

  Nccl& nccl() { return nccl_; }
  WorkerCard card();
  // What the emulator has found.
  absl::Status Verify() { return device_.Verify(); }
  // Kernels that have run.
  size_t launches() const { return device_.launches().size(); }

  const DeviceInfo& info() const override { return device_.info(); }
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t bytes) override {
    return device_.Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(const std::string& name) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override { return device_.NewEvent(); }
  absl::StatusOr<std::shared_ptr<Buffer>> AllocateHostMemory(size_t bytes) override {
    return device_.AllocateHostMemory(bytes);
  }
  absl::Status CopyFromHost(Stream& stream, const void* host, void* device, size_t bytes) override {
    return device_.CopyFromHost(stream, host, device, bytes);
  }
  absl::Status CopyToHost(Stream& stream, const void* device, void* host, size_t bytes) override {
    return device_.CopyToHost(stream, device, host, bytes);
  }
  absl::Status CopyOnDevice(Stream& stream, const void* from, void* to, size_t bytes) override {
    return device_.CopyOnDevice(stream, from, to, bytes);
  }
  size_t bytes_in_use() const override { return device_.bytes_in_use(); }
  size_t peak_bytes() const override { return device_.peak_bytes(); }
  void ForgetPeakBytes() override { device_.ForgetPeakBytes(); }

 private:
  // An exchange in a stream, with the host's side of its copies.
  struct Waiting {
    FakeNcclWorld::Exchange exchange;
    std::vector<char> given;
    std::vector<char> taken;
  };
  absl::Status Enqueue(void* stream, FakeNcclWorld::Exchange exchange) ABSL_LOCKS_EXCLUDED(mutex_);
  static absl::Status RunExchange(void* waiting, Stream& stream);

  Mutex mutex_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);           // kept to the end
  std::map<void*, FakeStream*> streams_ ABSL_GUARDED_BY(mutex_);  // by native_handle
  EmulatedDevice device_;
  Nccl& nccl_;
};

}  // namespace weft::testing

#endif  // WEFT_DISTRIBUTED_NCCL_TESTING_EMULATED_CARD_H_
