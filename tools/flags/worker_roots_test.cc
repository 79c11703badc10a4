#include "tools/flags/worker_roots.h"

#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<WorkerRoots> RootsOf(const std::vector<std::string>& arguments) {
  CLI::App app;
  WorkerRootFlags flags;
  flags.AddTo(app);
  app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  return flags.Roots();
}

class WorkerRootFlagsTest : public ::testing::Test {
 protected:
  WorkerRootFlagsTest() {
    std::filesystem::create_directories(InFolder("data"));
    std::filesystem::create_directories(InFolder("saved"));
  }
  ~WorkerRootFlagsTest() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(root_);
  }
  std::string InFolder(const std::string& name) const { return absl::StrCat(root_, "/", name); }

  const std::filesystem::path before_ = std::filesystem::current_path();
  const std::string root_ = absl::StrCat(::testing::TempDir(), "/roots-", getpid());
};

TEST_F(WorkerRootFlagsTest, WithoutAnyBothAreTheWorkingFolder) {
  std::filesystem::current_path(InFolder("data"));
  const auto roots = RootsOf({});
  ASSERT_TRUE(roots.ok()) << roots.status();
  EXPECT_TRUE(roots->is_default);
  const std::string working = std::filesystem::canonical(InFolder("data")).string();
  EXPECT_THAT(roots->data, ElementsAre(working));
  EXPECT_THAT(roots->checkpoints, ElementsAre(working));
}

// A worker that a service manager starts has "/" as its working folder.
TEST_F(WorkerRootFlagsTest, TheWholeMachineIsNoDefault) {
  std::filesystem::current_path("/");
  const auto roots = RootsOf({});
  EXPECT_EQ(ExitCodeOf(roots.status()), ExitCode::kUsage);
  EXPECT_THAT(std::string(roots.status().message()), HasSubstr("--data-root DIR"));
  EXPECT_TRUE(RootsOf({"--allow-path", "/"}).ok());
}

TEST_F(WorkerRootFlagsTest, OneKindAloneLeavesTheOtherWithoutAFolder) {
  const auto data = RootsOf({"--data-root", InFolder("data"), "--data-root", InFolder("saved")});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_FALSE(data->is_default);
  EXPECT_THAT(data->data, ElementsAre(InFolder("data"), InFolder("saved")));
  EXPECT_THAT(data->checkpoints, IsEmpty());
  const auto saved = RootsOf({"--checkpoint-root", InFolder("saved")});
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_THAT(saved->data, IsEmpty());
  EXPECT_THAT(saved->checkpoints, ElementsAre(InFolder("saved")));
}

TEST_F(WorkerRootFlagsTest, AllowPathIsForBoth) {
  const auto roots = RootsOf({"--data-root", InFolder("data"), "--allow-path", InFolder("saved")});
  ASSERT_TRUE(roots.ok()) << roots.status();
  EXPECT_THAT(roots->data, ElementsAre(InFolder("data"), InFolder("saved")));
  EXPECT_THAT(roots->checkpoints, ElementsAre(InFolder("saved")));
}

TEST_F(WorkerRootFlagsTest, AFolderThatIsMissingIsNamedWithItsFlag) {
  for (const std::string flag : {"--data-root", "--checkpoint-root", "--allow-path"}) {
    const auto roots = RootsOf({flag, InFolder("none")});
    EXPECT_EQ(ExitCodeOf(roots.status()), ExitCode::kUsage) << flag;
    EXPECT_THAT(std::string(roots.status().message()),
                HasSubstr(absl::StrCat(flag, " ", InFolder("none"), ": no such folder")));
  }
}

}  // namespace
}  // namespace weft
