// A GPU that is not there: launches of bodies run on it thread by thread, and every access is
// checked.
#ifndef WEFT_OPS_TESTING_EMULATOR_EMULATED_DEVICE_H_
#define WEFT_OPS_TESTING_EMULATOR_EMULATED_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "ops/testing/emulator/warp_traffic.h"
#include "tensor/testing/fake_device.h"

namespace weft::testing {

class Emulator;

struct EmulatedDeviceOptions {
  int index = 0;
  // Bytes that may be allocated; 0: as FakeDeviceOptions.
  size_t memory_limit = 0;
  // Draws the order of streams, blocks, warps and threads.
  uint64_t seed = 1;
  // As FakeDeviceOptions; its own seed is not used.
  FakeSchedulerOptions scheduling = {};
  std::shared_ptr<FakeScheduler> scheduler = nullptr;
  // True: Stream::Enqueue runs work later, on the stream's thread, where it may also touch the
  // device's memory: for tests of what is not a kernel. The emulator sees nothing of that; call
  // MarkWritten.
  bool runs_host_work = false;
  // A launch that takes more accesses, meetings and threads than this is stuck.
  int64_t max_steps = 50'000'000;
  // Shuffles and votes order memory within the warp. CUDA does not say so.
  bool shuffles_order_memory = false;
  // Copies to the host of bytes that nobody wrote are reported.
  bool checks_copies_to_host = true;
  // Launches say what their warps ask of memory (EmulatedLaunchRecord::traffic): twice the time.
  bool counts_traffic = false;
};

// A launch that has run.
struct EmulatedLaunchRecord {
  std::string body;  // its type, "weft::cuda::ReluBody<float>"
  cuda::LaunchGrid grid;
  std::string stream;
  // Of global memory; what several threads read counts for each.
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  // With EmulatedDeviceOptions::counts_traffic.
  TrafficCount traffic = {};
};

// A device of kind kCuda on the memory and streams of a FakeDevice. native_handle() of its streams
// is for EmulateLaunch (emulated_launch.h), and fault() is memory of the device.
//
// Reported are, besides what FakeDevice notices: accesses outside of the allocation that a pointer
// lies in, or that was freed; misaligned ones; reads of bytes that nobody wrote; races between the
// threads of a launch, and between launches and copies that no stream or event orders; barriers,
// shuffles and votes that not all threads reach; launches that do not end.
//
// A launch goes on after a report (until there are 10,000): a wrong read gives zeros and a wrong
// write does nothing. One launch runs at a time. Thread-safe; ends as FakeDevice does.
class EmulatedDevice final : public FakeDevice {
 public:
  explicit EmulatedDevice(const EmulatedDeviceOptions& options = {});
  ~EmulatedDevice() override;

  // Internal with the first report: kernel, block, thread, place, what happened and how many more
  // reports there are; else what FakeDevice has noticed.
  absl::Status Verify() override;
  // The first reports, up to 20, in order; of those that differ in numbers alone, three.
  std::vector<std::string> reports() const;
  int64_t report_count() const;
  void ClearReports();

  // What an allocation is called in reports, and whether launches may only read it. REQUIRES:
  // `data` lies in an allocation.
  void Describe(const void* data, const std::string& name, bool read_only = false);
  // The host has written these bytes.
  void MarkWritten(const void* data, size_t bytes);

  // What has run so far, in order.
  std::vector<EmulatedLaunchRecord> launches() const;

 protected:
  void OnAllocate(void* data, size_t bytes) override;
  void OnFree(void* data) override;
  absl::StatusOr<std::unique_ptr<FakeStreamHooks>> NewHooks(const std::string& name) override;

 private:
  const std::unique_ptr<Emulator> emulator_;
};

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_EMULATED_DEVICE_H_
