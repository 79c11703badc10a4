#include "distributed/keys/key_ring.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/keys/cluster_keys.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/log.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string BytesAt(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class KeyRingTest : public ::testing::Test {
 protected:
  void SetUp() override { Renew(); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Renew() {
    const absl::Status made =
        MakeClusterKeys({folder_, ParseHosts("a").value(), 30, absl::Now()}).status();
    ASSERT_TRUE(made.ok()) << made;
  }
  std::string Identity() { return BytesAt(host_ + "/identity.pem"); }
  const std::string folder_ = absl::StrCat(::testing::TempDir(), "/ring-", getpid());
  const std::string host_ = folder_ + "/a";
};

TEST_F(KeyRingTest, NewKeysCountAtOnceInMemoryAndByPath) {
  const auto ring = KeyRing::Open(host_, absl::Hours(1)).value();
  EXPECT_EQ(ring->Current()->identity_pem, Identity());
  EXPECT_EQ(BytesAt(ring->identity_path()), Identity());
  EXPECT_EQ(BytesAt(ring->authority_path()), BytesAt(host_ + "/authority.pem"));
  const std::string first = Identity();
  ASSERT_TRUE(ring->Reload().ok());
  EXPECT_EQ(ring->changes(), 0);
  Renew();
  EXPECT_EQ(ring->Current()->identity_pem, first);
  ASSERT_TRUE(ring->Reload().ok());
  EXPECT_EQ(ring->changes(), 1);
  EXPECT_NE(ring->Current()->identity_pem, first);
  EXPECT_EQ(ring->Current()->identity_pem, Identity());
  EXPECT_EQ(BytesAt(ring->identity_path()), Identity());
}

TEST_F(KeyRingTest, BadKeysLeaveTheEarlierOnesAndSaySo) {
  std::string log;
  SetLogSink([&log](const std::string& line) { log += line + "\n"; });
  const LogLevel before = CurrentLogLevel();
  SetLogLevel(LogLevel::kDebug);
  const auto ring = KeyRing::Open(host_, absl::Hours(1)).value();
  const std::string good = Identity();
  std::ofstream(host_ + "/identity.pem") << good.substr(0, good.size() / 2);
  EXPECT_FALSE(ring->Reload().ok());
  EXPECT_EQ(ring->Current()->identity_pem, good);
  EXPECT_EQ(BytesAt(ring->identity_path()), good);
  EXPECT_THAT(log, HasSubstr("the earlier ones stay"));
  // Said once, not twice a second.
  log.clear();
  EXPECT_TRUE(ring->Reload().ok());
  EXPECT_EQ(log, "");
  std::filesystem::remove(host_ + "/identity.pem");
  EXPECT_FALSE(ring->Reload().ok());
  EXPECT_EQ(ring->Current()->identity_pem, good);
  Renew();
  EXPECT_TRUE(ring->Reload().ok());
  EXPECT_EQ(ring->changes(), 1);
  SetLogSink(nullptr);
  SetLogLevel(before);
  EXPECT_THAT(log, Not(HasSubstr("PRIVATE")));
  // Neither a line of a key, whichever.
  for (const std::string& text : {good, Identity()}) {
    const size_t secret = text.find('\n') + 1;
    EXPECT_THAT(log, Not(HasSubstr(text.substr(secret, 40))));
  }
}

TEST_F(KeyRingTest, LooksByItself) {
  const auto ring = KeyRing::Open(host_, absl::Milliseconds(10)).value();
  Renew();
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  // It may look between the two files of a renewal, and then once more.
  while (ring->Current()->identity_pem != Identity() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(ring->Current()->identity_pem, Identity());
  EXPECT_GE(ring->changes(), 1);
}

// Whoever opens the path gets one whole file, at any moment.
TEST_F(KeyRingTest, ThePathHoldsAWholeFileAtAnyMoment) {
  constexpr int kRenewals = 25;
  const auto ring = KeyRing::Open(host_, absl::Hours(1)).value();
  std::atomic<bool> ends = false;
  std::atomic<int> reads = 0;
  std::atomic<int> broken = 0;
  std::thread reader([&] {
    while (!ends) {
      ++reads;
      const std::string text = BytesAt(ring->identity_path());
      if (!CheckKeySet({text, ring->Current()->authority_pem, {}}, absl::Now()).ok()) ++broken;
    }
  });
  for (int i = 0; i < kRenewals; ++i) {
    Renew();
    EXPECT_TRUE(ring->Reload().ok());
  }
  ends = true;
  reader.join();
  EXPECT_EQ(ring->changes(), kRenewals);
  EXPECT_GT(reads.load(), 0);
  EXPECT_EQ(broken.load(), 0);
}

TEST_F(KeyRingTest, AFolderThatCannotBeUsedIsAnError) {
  ASSERT_EQ(chmod((host_ + "/identity.pem").c_str(), 0644), 0);
  EXPECT_EQ(KeyRing::Open(host_).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(KeyRing::Open(folder_ + "/none").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace weft
