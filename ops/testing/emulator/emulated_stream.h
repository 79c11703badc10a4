// EmulatedStream: what an emulated device adds to a stream of the fake one.
#ifndef WEFT_OPS_TESTING_EMULATOR_EMULATED_STREAM_H_
#define WEFT_OPS_TESTING_EMULATOR_EMULATED_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "ops/testing/emulator/emulator.h"
#include "platform/mutex.h"
#include "tensor/device_fault.h"
#include "tensor/testing/fake_stream.h"

namespace weft::testing {

// Lies behind native_handle(). Thread-safe.
class EmulatedStream final : public FakeStreamHooks {
 public:
  // `fault` is zeroed memory of the device.
  EmulatedStream(Emulator& emulator, FakeMemory& memory, std::string name,
                 std::shared_ptr<DeviceFault> fault);
  ~EmulatedStream() override;

  void Attach(FakeStream& stream) override { stream_ = &stream; }
  void* native_handle() override { return this; }
  DeviceFault* fault() const override { return fault_.get(); }
  absl::Status RunWork(const Work& work, Stream& stream) override;
  void OnCopy(const void* from, void* to, size_t bytes) override;
  std::shared_ptr<const FakePast> PastOfHost() override;
  std::shared_ptr<const FakePast> PastOfStream() override;
  void ComesAfter(const std::shared_ptr<const FakePast>& past) override;

  // Runs the body on the grid in the order of the stream: later, or now when work of this stream
  // calls it.
  absl::Status Launch(const cuda::LaunchGrid& grid, const EmulatedBody& body)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A launch that waits for its turn, with its own copy of the body.
  struct Waiting {
    EmulatedStream* stream;
    cuda::LaunchGrid grid;
    EmulatedBody body;
    std::unique_ptr<std::max_align_t[]> bytes;
  };
  static absl::Status RunWaiting(void* argument, Stream& stream);

  Emulator& emulator_;
  FakeMemory& memory_;
  const std::string name_;
  const std::shared_ptr<DeviceFault> fault_;
  const uint32_t number_;  // in WorkOrder
  FakeStream* stream_ = nullptr;

  Mutex mutex_;
  std::list<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_EMULATED_STREAM_H_
