#include "distributed/process/stale_watch.h"

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// No coordinator gives a worker up earlier (kFastDetection).
constexpr absl::Duration kMinPause = absl::Milliseconds(700);
// How soon after a pause the end of the lease is heard of.
constexpr absl::Duration kHearing = absl::Seconds(2);

}  // namespace

absl::Status StaleWatch::Look(absl::Time now, absl::Time lost) {
  if (now - looked_ >= kMinPause) {
    pause_ = now - looked_;
    judged_from_ = looked_ + pause_ / 2;
    judged_until_ = now + kHearing;
  }
  looked_ = now;
  if (now > judged_until_ || lost < judged_from_) return absl::OkStatus();
  judged_until_ = absl::InfinitePast();
  return absl::AbortedError(absl::StrCat(
      "this worker did not run for ",
      absl::FormatDuration(absl::Trunc(pause_, absl::Milliseconds(100))),
      " (did a signal stop it?), and its job has given it up: what it has of the job is old, so it "
      "ends; start it again to have it take part"));
}

}  // namespace weft
