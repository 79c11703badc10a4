#include "tools/chaos/disk_fault.h"

#include <stdlib.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"

namespace weft {
namespace {

// As root in a file system in memory, else with a file in the folder's place.
class DiskFaultTest : public ::testing::Test {
 protected:
  DiskFaultTest() {
    char pattern[] = "/tmp/weft-disk-XXXXXX";
    root_ = mkdtemp(pattern);
  }
  ~DiskFaultTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  absl::Status Write(const std::string& name) const {
    return RealFileSystem().WriteFileAtomically(folder() + "/" + name, "bytes");
  }
  std::string folder() const { return root_ + "/saved"; }

  std::string root_;
};

TEST_F(DiskFaultTest, TakesNothingWhileItIsOn) {
  const auto disk = DiskFault::Create(folder());
  ASSERT_TRUE(disk.ok()) << disk.status();
  std::cout << "why not full: " << (*disk)->why_not_full() << "\n";
  EXPECT_TRUE(Write("before").ok());
  ASSERT_TRUE((*disk)->Begin().ok());
  const absl::Status refused = Write("meanwhile");
  EXPECT_FALSE(refused.ok());
  if ((*disk)->why_not_full().empty()) {
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_TRUE(RealFileSystem().Exists(folder() + "/before"));
  }
  ASSERT_TRUE((*disk)->End().ok());
  EXPECT_TRUE(RealFileSystem().Exists(folder() + "/before"));
  EXPECT_FALSE(RealFileSystem().Exists(folder() + "/meanwhile"));
  EXPECT_TRUE(Write("after").ok());
}

TEST_F(DiskFaultTest, IsClearedForTheNextRun) {
  const auto disk = DiskFault::Create(folder());
  ASSERT_TRUE(disk.ok()) << disk.status();
  EXPECT_TRUE(RealFileSystem().CreateDirectories(folder() + "/step-1").ok());
  EXPECT_TRUE(Write("step-1/index").ok());
  ASSERT_TRUE((*disk)->Begin().ok());
  ASSERT_TRUE((*disk)->Clear().ok());
  EXPECT_FALSE((*disk)->is_on());
  EXPECT_FALSE(RealFileSystem().Exists(folder() + "/step-1"));
  EXPECT_TRUE(Write("again").ok());
}

}  // namespace
}  // namespace weft
