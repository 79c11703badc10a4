#include "tensor/timing/device_timer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr absl::Duration kWaitTimeout = absl::Minutes(10);
// Pieces of a recording: enough that its start costs little beside them.
constexpr int64_t kMaxRecorded = 64;
constexpr int64_t kMaxPieces = 1'000'000;
// A round is made so much longer than it has to be, as the next one may be faster.
constexpr double kMargin = 1.2;
constexpr int kWaits = 5;

double MiddleOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Rounds of one kind of work on one stream.
class DeviceTimer {
 public:
  DeviceTimer(Stream& stream, Clock& clock, absl::FunctionRef<absl::Status()> enqueue,
              const DeviceTimerOptions& options)
      : stream_(stream), clock_(clock), enqueue_(enqueue), options_(options) {}
  // After an error: the recording ends after its runs.
  ~DeviceTimer() {
    if (!is_over_) (void)stream_.Synchronize(kWaitTimeout);
  }
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;

  absl::StatusOr<double> Run() {
    WEFT_RETURN_IF_ERROR(stream_.Synchronize(kWaitTimeout));
    WEFT_ASSIGN_OR_RETURN(const double wait, WaitSeconds());
    const double enough = std::max(options_.min_seconds, options_.waits * wait);
    WEFT_RETURN_IF_ERROR(RoundSeconds(1).status());  // what is initialised at first use
    WEFT_ASSIGN_OR_RETURN(const double one, RoundSeconds(1));
    const double wanted = std::ceil(kMargin * enough / std::max(one, 1e-9));
    if (options_.can_record && wanted > 1) {
      WEFT_RETURN_IF_ERROR(
          Record(static_cast<int64_t>(std::min(wanted, static_cast<double>(kMaxRecorded)))));
    }
    int64_t repeats = 1;
    while (true) {
      WEFT_ASSIGN_OR_RETURN(const double seconds, RoundSeconds(repeats));
      if (seconds >= enough || repeats * pieces_ >= kMaxPieces) break;
      // At most eight times as many: a first round may say too little.
      const double more = std::clamp(kMargin * enough / std::max(seconds, 1e-9), 1.5, 8.0);
      repeats = std::max(repeats + 1,
                         static_cast<int64_t>(std::ceil(static_cast<double>(repeats) * more)));
    }
    std::vector<double> rounds;
    for (int i = 0; i < std::max(1, options_.rounds); ++i) {
      WEFT_ASSIGN_OR_RETURN(const double seconds, RoundSeconds(repeats));
      rounds.push_back(seconds / static_cast<double>(repeats * pieces_));
    }
    is_over_ = true;
    return MiddleOf(std::move(rounds));
  }

 private:
  double SecondsSince(int64_t begin) const {
    return 1e-9 * static_cast<double>(clock_.MonotonicNanos() - begin);
  }

  // Of a stream that has nothing to do.
  absl::StatusOr<double> WaitSeconds() {
    std::vector<double> waits;
    for (int i = 0; i < kWaits; ++i) {
      const int64_t begin = clock_.MonotonicNanos();
      WEFT_RETURN_IF_ERROR(stream_.Synchronize(kWaitTimeout));
      waits.push_back(SecondsSince(begin));
    }
    return MiddleOf(std::move(waits));
  }

  absl::StatusOr<double> RoundSeconds(int64_t repeats) {
    const int64_t begin = clock_.MonotonicNanos();
    for (int64_t i = 0; i < repeats; ++i) {
      WEFT_RETURN_IF_ERROR(recording_ != nullptr ? recording_->Run(stream_) : enqueue_());
    }
    WEFT_RETURN_IF_ERROR(stream_.Synchronize(kWaitTimeout));
    return SecondsSince(begin);
  }

  // Devices that cannot record go on without.
  absl::Status Record(int64_t pieces) {
    const absl::Status began = stream_.BeginRecording();
    if (absl::IsUnimplemented(began)) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(began);
    absl::Status status;
    for (int64_t i = 0; i < pieces && status.ok(); ++i) status = enqueue_();
    auto recording = stream_.EndRecording(nullptr);
    WEFT_RETURN_IF_ERROR(status);
    if (absl::IsUnimplemented(recording.status())) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(recording.status());
    recording_ = *std::move(recording);
    pieces_ = pieces;
    return RoundSeconds(1).status();
  }

  Stream& stream_;
  Clock& clock_;
  const absl::FunctionRef<absl::Status()> enqueue_;
  const DeviceTimerOptions options_;
  std::unique_ptr<RecordedWork> recording_;  // null: pieces are enqueued one by one
  int64_t pieces_ = 1;                       // of a repetition
  bool is_over_ = false;                     // all that was enqueued
};

}  // namespace

absl::StatusOr<double> SecondsOnDevice(Stream& stream, Clock& clock,
                                       absl::FunctionRef<absl::Status()> enqueue,
                                       const DeviceTimerOptions& options) {
  return DeviceTimer(stream, clock, enqueue, options).Run();
}

}  // namespace weft
