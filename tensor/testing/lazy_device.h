// LazyDevice: a fake device that does nothing before the host waits for it, and then no more than
// it must.
#ifndef WEFT_TENSOR_TESTING_LAZY_DEVICE_H_
#define WEFT_TENSOR_TESTING_LAZY_DEVICE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensor/device.h"
#include "tensor/testing/fake_device.h"

namespace weft::testing {

class LazyQueues;

// The other extreme to a FakeDevice with a random order. A stream keeps what it is given until the
// host synchronizes it or asks often whether an event is done. Then the stream goes on up to there.
// Another stream goes on only as far as an event says that this one waits for it. So whoever reads
// without a wait finds the bytes of before, in every run. Which thread runs when decides nothing.
// Streams with the name `eager_stream` go on at once, as far as they may: so whoever does not wait
// for another stream comes too early. Whoever gives memory back that a copy still needs is noticed.
// A wait that times out leaves the rest under way; its DeadlineExceeded is not kept as the stream's
// error, so work of the stream may not return that code.
//
// Memory is that of the FakeDevice behind. Streams do not record. Thread-safe. REQUIRES: its work
// runs on the stream (FakeDeviceOptions::runs_host_work) and calls no stream of the device; at its
// end, no buffer and no stream of it is alive.
class LazyDevice final : public Device {
 public:
  explicit LazyDevice(const FakeDeviceOptions& options = {}, std::string eager_stream = "");
  ~LazyDevice() override;

  const DeviceInfo& info() const override { return fake_.info(); }
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t bytes) override;
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override;
  absl::StatusOr<std::shared_ptr<Buffer>> AllocateHostMemory(size_t bytes) override;
  // Errors of a copy come when it is made.
  absl::Status CopyFromHost(Stream& stream, const void* host, void* device, size_t bytes) override;
  absl::Status CopyToHost(Stream& stream, const void* device, void* host, size_t bytes) override;
  absl::Status CopyOnDevice(Stream& stream, const void* from, void* to, size_t bytes) override;
  size_t bytes_in_use() const override { return fake_.bytes_in_use(); }
  size_t peak_bytes() const override { return fake_.peak_bytes(); }
  void ForgetPeakBytes() override { fake_.ForgetPeakBytes(); }

  // As FakeDevice::Verify. Also Internal where memory of this device, or of its AllocateHostMemory,
  // was given back while a copy that had not been made was to use it.
  absl::Status Verify();

 private:
  FakeDevice fake_;
  const std::string eager_stream_;
  const std::shared_ptr<LazyQueues> queues_;  // of its streams
};

}  // namespace weft::testing

#endif  // WEFT_TENSOR_TESTING_LAZY_DEVICE_H_
