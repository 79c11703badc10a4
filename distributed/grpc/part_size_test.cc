#include "distributed/grpc/part_size.h"

#include <algorithm>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// A link of so many bytes a second, whose way takes so long. What is before it takes `buffer` bytes
// at once, as the system and HTTP/2 do, and sends them when their turn comes.
class Link {
 public:
  Link(double rate, double way, double buffer) : rate_(rate), way_(way), buffer_(buffer) {}

  // Sends so much, part by part; the longest that anything else would have had to wait behind it,
  // in seconds.
  double Send(PartSize& size, double bytes) {
    double longest = 0;
    for (double sent = 0; sent < bytes;) {
      const auto part = static_cast<double>(size.bytes());
      queued_ += part;
      longest = std::max(longest, queued_ / rate_);
      if (size.wants_answer()) {
        const double seconds = way_ + queued_ / rate_;
        queued_ = 0;
        size.Came(size.bytes(), absl::Seconds(seconds));
      } else {
        const double seconds = std::max(1e-5, (queued_ - buffer_) / rate_);
        queued_ = std::max(0.0, queued_ - seconds * rate_);
        size.Left(absl::Seconds(seconds));
      }
      sent += part;
    }
    return longest;
  }

 private:
  const double rate_;
  const double way_;
  const double buffer_;
  double queued_ = 0;
};

TEST(PartSizeTest, GrowsToTheLargestWhereAnswersComeSoon) {
  PartSize size;
  EXPECT_EQ(size.bytes(), PartSize::kSmallest);
  EXPECT_TRUE(size.wants_answer());
  Link(5e9, 1e-4, 1e6).Send(size, 8e6);
  EXPECT_EQ(size.bytes(), PartSize::kLargest);
  EXPECT_FALSE(size.wants_answer());
}

// A quarter round the world, at 1 Gbit/s: answers come late, and not the later the more is sent.
TEST(PartSizeTest, GrowsOnALongWayThatIsNotSlow) {
  PartSize size;
  Link(125e6, 0.3, 4e6).Send(size, 20e6);
  EXPECT_EQ(size.bytes(), PartSize::kLargest);
}

// Keepalive and the lease wait for three seconds. That is 375 kB at 1 Mbit/s, and buffers of 4 MB
// are common: who goes by what has left fills them. A worker was lost so while it took its first
// large variable.
TEST(PartSizeTest, NothingWaitsForLongOnASlowLinkWhateverItsBuffersTake) {
  for (const double megabits : {1.0, 2.0, 5.0, 10.0, 100.0}) {
    for (const double buffer : {64e3, 4e6}) {
      PartSize size;
      Link link(megabits * 1e6 / 8, 1e-3, buffer);
      EXPECT_LT(link.Send(size, 20e6), 0.6) << megabits << " Mbit/s, " << buffer << " bytes";
    }
  }
}

TEST(PartSizeTest, ALinkThatBecomesSlowGetsSmallParts) {
  PartSize size;
  Link(5e9, 1e-4, 1e6).Send(size, 8e6);
  ASSERT_FALSE(size.wants_answer());
  Link(125e3, 1e-4, 150e3).Send(size, 8e6);
  EXPECT_LE(size.bytes(), 2 * PartSize::kSmallest);
}

TEST(PartSizeTest, ShortPartsSayNothing) {
  PartSize size;
  for (int i = 0; i < 100; ++i) size.Came(100, absl::ZeroDuration());
  EXPECT_EQ(size.bytes(), PartSize::kSmallest);
}

}  // namespace
}  // namespace weft
