#include "tests/soak/clock_keeper.h"

#include <utility>

#include "platform/clock.h"

namespace weft::testing {
namespace {

// A thread that has something to do may have to wait for a processor: the count must stand still
// for several looks. A wait of 20 virtual seconds takes a real one at least.
constexpr absl::Duration kLook = absl::Milliseconds(5);
constexpr int kStill = 5;
constexpr absl::Duration kTurn = absl::Milliseconds(500);

}  // namespace

ClockKeeper::ClockKeeper(FakeClock& clock, std::function<int64_t()> count, absl::Duration longest,
                         std::function<void()> end)
    : clock_(clock), count_(std::move(count)), longest_(longest), end_(std::move(end)) {
  thread_ = std::thread([this] { Keep(); });
}

ClockKeeper::~ClockKeeper() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

absl::Duration ClockKeeper::turned() {
  MutexLock lock(mutex_);
  return turned_;
}

void ClockKeeper::Keep() {
  int64_t seen = -1;
  int still = 0;
  MutexLock lock(mutex_);
  while (!stopping_) {
    RealClock().WaitUntil(changed_, mutex_, RealClock().Now() + kLook);
    const int64_t count = count_();
    still = count == seen ? still + 1 : 0;
    seen = count;
    if (stopping_ || still < kStill) continue;
    still = 0;
    clock_.Advance(kTurn);
    turned_ += kTurn;
    if (turned_ < longest_ || has_ended_it_.exchange(true)) continue;
    end_();
  }
}

}  // namespace weft::testing
