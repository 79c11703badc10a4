// Emulator: what all streams of an emulated device share.
#ifndef WEFT_OPS_TESTING_EMULATOR_EMULATOR_H_
#define WEFT_OPS_TESTING_EMULATOR_EMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/emulator/emulated_launch.h"
#include "ops/testing/emulator/memory_region.h"
#include "platform/mutex.h"

namespace weft::testing {

// The memory of an emulated device, its reports, and the launches and copies that touch it, one at
// a time. Thread-safe.
class Emulator {
 public:
  explicit Emulator(const EmulatedDeviceOptions& options) : options_(options) {}

  void Add(void* data, size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(void* data) ABSL_LOCKS_EXCLUDED(mutex_);
  void Describe(const void* data, const std::string& name, bool read_only)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void MarkWritten(const void* data, size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs a launch on a stream (its number in WorkOrder), whose memory is accessible.
  void RunGrid(uint32_t stream, const std::string& stream_name, const cuda::LaunchGrid& grid,
               const EmulatedBody& body) ABSL_LOCKS_EXCLUDED(mutex_);
  // Bytes are about to be copied; sides that are not in an allocation are the host's.
  void Copy(uint32_t stream, const std::string& stream_name, const void* from, void* to,
            size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status Verify() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::string> reports() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t report_count() const ABSL_LOCKS_EXCLUDED(mutex_);
  void ClearReports() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<EmulatedLaunchRecord> launches() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A launch or copy that began.
  struct Past {
    uint32_t stream = 0;
    uint64_t number = 0;  // in the stream
    std::string what;
  };

  // The number of its first access.
  uint32_t Begin(uint32_t stream, const std::string& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Past& PastOf(uint32_t access) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsBefore(uint32_t access, uint32_t stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckCopyRead(uint32_t stream, const std::string& what, uint32_t own, MemoryRegion& region,
                     size_t offset, size_t bytes, bool to_host)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckCopyWrite(uint32_t stream, const std::string& what, uint32_t own, MemoryRegion& region,
                      size_t offset, size_t bytes, const MemoryRegion* source, size_t source_offset)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Report(const std::string& who, const std::string& what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const EmulatedDeviceOptions options_;

  mutable Mutex mutex_;  // held while a launch runs
  EmulatedMemory memory_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, Past> pasts_ ABSL_GUARDED_BY(mutex_);  // by their first access
  uint32_t next_access_ ABSL_GUARDED_BY(mutex_) = kFirstAccess;
  std::vector<std::string> reports_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> alike_ ABSL_GUARDED_BY(mutex_);  // reports without their numbers
  int64_t report_count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<EmulatedLaunchRecord> launches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_EMULATOR_H_
