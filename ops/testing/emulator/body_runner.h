// Runs bodies on an emulated device of its own: for tests of bodies that are no operator.
//
//   BodyRunner runner(seed);
//   const float* x = runner.Input<float>({1, 2, 3});
//   float* y = runner.Memory<float>(3);
//   runner.Launch({.threads = 32}, CopyBody{x, y, 3});
//   EXPECT_TRUE(runner.Finish().ok());
//   EXPECT_THAT(runner.Read(y, 3), ElementsAre(1, 2, 3));
#ifndef WEFT_OPS_TESTING_EMULATOR_BODY_RUNNER_H_
#define WEFT_OPS_TESTING_EMULATOR_BODY_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/emulator/emulated_launch.h"

namespace weft::testing {

// One device and one stream. One thread uses it. Mistakes of the caller end the test program.
class BodyRunner {
 public:
  explicit BodyRunner(uint64_t seed = 1) : BodyRunner(EmulatedDeviceOptions{.seed = seed}) {}
  explicit BodyRunner(const EmulatedDeviceOptions& options)
      : device_(options), stream_(device_.NewStream("test").value()) {}

  EmulatedDevice& device() { return device_; }
  Stream& stream() { return *stream_; }

  // `count` elements that nobody has written.
  template <typename T>
  T* Memory(size_t count) {
    std::shared_ptr<Buffer> buffer = device_.Allocate(count * sizeof(T)).value();
    T* const data = static_cast<T*>(buffer->data());
    buffers_[data] = std::move(buffer);
    return data;
  }
  // The elements, in memory that launches may read and write.
  template <typename T>
  T* Input(const std::vector<T>& elements) {
    T* const data = Memory<T>(elements.size());
    Succeed(device_.CopyFromHost(*stream_, elements.data(), data, elements.size() * sizeof(T)));
    Succeed(stream_->Synchronize(kDeadline));
    return data;
  }
  void Free(const void* data) { buffers_.erase(data); }

  // CUDA's error number.
  template <typename Body>
  int Launch(const cuda::LaunchGrid& grid, const Body& body) {
    return LaunchOn(*stream_, grid, body);
  }
  template <typename Body>
  int LaunchOn(Stream& stream, const cuda::LaunchGrid& grid, const Body& body) {
    return EmulateLaunch(stream.native_handle(), grid, 1024, body);
  }

  // Waits. The stream's error, or else what the emulator has to report.
  absl::Status Finish() {
    const absl::Status status = stream_->Synchronize(kDeadline);
    return status.ok() ? device_.Verify() : status;
  }
  template <typename T>
  std::vector<T> Read(const T* data, size_t count) {
    std::vector<T> elements(count);
    Succeed(device_.CopyToHost(*stream_, data, elements.data(), count * sizeof(T)));
    Succeed(stream_->Synchronize(kDeadline));
    return elements;
  }

 private:
  static constexpr absl::Duration kDeadline = absl::Minutes(2);

  static void Succeed(const absl::Status& status) {
    if (!status.ok()) absl::StatusOr<int>(status).value();
  }

  EmulatedDevice device_;
  std::map<const void*, std::shared_ptr<Buffer>> buffers_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_BODY_RUNNER_H_
