#include "distributed/recovery/lost_peer.h"

#include "gtest/gtest.h"
#include "platform/status.h"

namespace weft {
namespace {

TEST(LostPeerTest, TheFirstRankStaysWhateverIsSaidOfTheError) {
  const absl::Status lost = WithLostPeer(absl::UnavailableError("lost"), RankId(3));
  EXPECT_EQ(LostPeerOf(lost), RankId(3));
  EXPECT_EQ(LostPeerOf(Annotate(WithLostPeer(lost, RankId(5)), "step 7")), RankId(3));
}

TEST(LostPeerTest, OthersNameNobody) {
  EXPECT_FALSE(LostPeerOf(absl::OkStatus()).valid());
  EXPECT_FALSE(LostPeerOf(absl::AbortedError("another's error")).valid());
  EXPECT_TRUE(WithLostPeer(absl::OkStatus(), RankId(1)).ok());
  EXPECT_FALSE(LostPeerOf(WithLostPeer(absl::UnavailableError("lost"), RankId())).valid());
}

}  // namespace
}  // namespace weft
