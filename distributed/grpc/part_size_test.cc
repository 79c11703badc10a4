#include "distributed/grpc/part_size.h"

#include <algorithm>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// A link of so many bytes a second behind a buffer that takes some at once, as the system's does.
class Link {
 public:
  Link(double rate, double buffer) : rate_(rate), buffer_(buffer) {}

  // Sends so much; the longest that anything else would have had to wait meanwhile, in seconds.
  double Send(PartSize& size, double bytes) {
    double longest = 0;
    for (double sent = 0; sent < bytes;) {
      const double part = static_cast<double>(size.bytes());
      queued_ += part;
      longest = std::max(longest, queued_ / rate_);
      const double seconds = std::max(1e-5, (queued_ - buffer_) / rate_);
      queued_ = std::max(0.0, queued_ - seconds * rate_);
      size.Left(size.bytes(), absl::Seconds(seconds));
      sent += part;
    }
    return longest;
  }

 private:
  const double rate_;
  const double buffer_;
  double queued_ = 0;
};

TEST(PartSizeTest, GrowsToTheLargestWhereThePartsLeaveAtOnce) {
  PartSize size;
  EXPECT_EQ(size.bytes(), PartSize::kSmallest);
  Link(5e9, 1e6).Send(size, 8e6);
  EXPECT_EQ(size.bytes(), PartSize::kLargest);
}

// Keepalive waits for three seconds.
TEST(PartSizeTest, NothingWaitsForLongBehindAPartOnASlowLink) {
  for (const double megabits : {1.0, 2.0, 5.0, 10.0, 100.0}) {
    PartSize size;
    Link link(megabits * 1e6 / 8, 150e3);
    EXPECT_LT(link.Send(size, 20e6), 2) << megabits << " Mbit/s";
  }
}

TEST(PartSizeTest, ALinkThatBecomesSlowGetsSmallParts) {
  PartSize size;
  Link(5e9, 1e6).Send(size, 8e6);
  Link(125e3, 150e3).Send(size, 4e6);
  EXPECT_EQ(size.bytes(), PartSize::kSmallest);
}

TEST(PartSizeTest, ShortPartsSayNothing) {
  PartSize size;
  for (int i = 0; i < 100; ++i) size.Left(100, absl::ZeroDuration());
  EXPECT_EQ(size.bytes(), PartSize::kSmallest);
}

}  // namespace
}  // namespace weft
