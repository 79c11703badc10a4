#include "tensor/timing/device_copies.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "platform/status_macros.h"
#include "tensor/timing/device_timer.h"

namespace weft {
namespace {

constexpr size_t kSmallest = size_t{4} << 10;
constexpr size_t kLargest = size_t{64} << 20;
constexpr size_t kShareOfMemory = 16;
constexpr int kGrowth = 4;
// Small copies are over soon, and vary: their median is of many.
constexpr int kMinCopies = 5;
constexpr int kMaxCopies = 50;
constexpr double kSecondsPerSize = 5e-3;

// What one copy takes from its call to the end of the wait for it.
absl::StatusOr<double> WaitedSeconds(Stream& stream, Clock& clock,
                                     absl::FunctionRef<absl::Status()> copy) {
  std::vector<double> taken;
  double sum = 0;
  for (int i = -1; i < kMaxCopies && (i < kMinCopies || sum < kSecondsPerSize); ++i) {
    const int64_t begin = clock.MonotonicNanos();
    WEFT_RETURN_IF_ERROR(copy());
    WEFT_RETURN_IF_ERROR(stream.Synchronize(absl::Minutes(10)));
    const double seconds = 1e-9 * static_cast<double>(clock.MonotonicNanos() - begin);
    if (i < 0) continue;  // touches what is touched for the first time
    taken.push_back(std::max(seconds, 1e-9));
    sum += seconds;
  }
  std::sort(taken.begin(), taken.end());
  return taken[taken.size() / 2];
}

}  // namespace

CopyLine FitCopies(const std::vector<TimedCopy>& copies) {
  const FittedLine line = FitLine(copies);
  if (line.seconds >= 0 && line.seconds_per_byte > 0) {
    return {line.seconds, 1 / line.seconds_per_byte};
  }
  return {0, 1 / FitLineThroughOrigin(copies).seconds_per_byte};
}

absl::StatusOr<DeviceCopies> MeasureDeviceCopies(Device& device, Clock& clock) {
  DeviceCopies copies;
  if (device.info().host_accessible) return copies;
  size_t largest = kLargest;
  if (device.info().memory_limit > 0) {
    largest = std::min(largest, device.info().memory_limit / kShareOfMemory);
  }
  largest = std::max(largest, kGrowth * kSmallest);
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> host, device.AllocateHostMemory(largest));
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> target, device.Allocate(largest));
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> beside, device.Allocate(largest));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.NewStream("copies"));
  std::memset(host->data(), 0, largest);
  std::vector<TimedCopy> from_host, to_host;
  for (size_t bytes = kSmallest; bytes <= largest; bytes *= kGrowth) {
    WEFT_ASSIGN_OR_RETURN(const double in, WaitedSeconds(*stream, clock, [&] {
                            return device.CopyFromHost(*stream, host->data(), target->data(),
                                                       bytes);
                          }));
    WEFT_ASSIGN_OR_RETURN(const double out, WaitedSeconds(*stream, clock, [&] {
                            return device.CopyToHost(*stream, target->data(), host->data(), bytes);
                          }));
    from_host.push_back({static_cast<double>(bytes), in});
    to_host.push_back({static_cast<double>(bytes), out});
  }
  copies.from_host = FitCopies(from_host);
  copies.to_host = FitCopies(to_host);
  // All of it has been written, also where the largest size is none of those above.
  WEFT_RETURN_IF_ERROR(device.CopyFromHost(*stream, host->data(), target->data(), largest));
  WEFT_ASSIGN_OR_RETURN(const double seconds, SecondsOnDevice(*stream, clock, [&] {
                          return device.CopyOnDevice(*stream, target->data(), beside->data(),
                                                     largest);
                        }));
  copies.on_device = {0, static_cast<double>(largest) / std::max(seconds, 1e-12)};
  return copies;
}

}  // namespace weft
