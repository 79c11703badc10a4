// Who may start jobs on a worker still reads and writes nothing but what the worker's flags allow.
//
// WEFT_RUNNER: graph_runner.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/attacks/attacked_worker.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

class JobAttacksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    worker_ = AttackedWorker::Start(AttackedWorker::Door::kToken);
    ASSERT_NE(worker_, nullptr);
    std::filesystem::create_directories(worker_->Path("outside"));
    for (const char* const name : {"x.npy", "y.npy"}) {
      std::filesystem::copy_file(worker_->DataPath(name), Outside(name));
    }
    std::filesystem::create_symlink(Outside("x.npy"), worker_->DataPath("link.npy"));
    std::filesystem::create_directory_symlink(worker_->Path("outside"),
                                              worker_->DataPath("folder"));
    std::filesystem::create_directory_symlink(worker_->Path("outside"),
                                              worker_->SavedPath("folder"));
  }
  std::string Outside(const std::string& name) const {
    return worker_->Path(absl::StrCat("outside/", name));
  }

  std::unique_ptr<AttackedWorker> worker_;
};

TEST_F(JobAttacksTest, NothingElseIsRead) {
  constexpr char kRefusal[] = "is not below a folder that jobs may read from on this worker";
  const std::vector<std::pair<std::string, std::string>> paths = {
      {"DataOutside", Outside("x.npy")},
      {"DataByDots", worker_->DataPath("../outside/x.npy")},
      {"DataByManyDots", worker_->DataPath("./../data/.././outside/x.npy")},
      {"DataByALink", worker_->DataPath("link.npy")},
      {"DataInALinkedFolder", worker_->DataPath("folder/x.npy")}};
  for (const auto& [name, path] : paths) {
    SCOPED_TRACE(name);
    const CommandResult result =
        RunProgram(worker_->Job(path, worker_->DataPath("y.npy"), 2) + worker_->Credentials());
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kRefused)) << result.err;
    EXPECT_THAT(result.err, HasSubstr(kRefusal));
    worker_->ExpectNoSecret(result.out + result.err);
    worker_->ExpectUnharmed();
  }
  // What is no data at all does not come so far.
  for (const auto& [name, path] : std::vector<std::pair<std::string, std::string>>{
           {"DataOfALongPath", worker_->DataPath(std::string(5000, 'd'))},
           {"DataThatAreTheProcess", "/proc/self/environ"},
           {"DataThatAreTheToken", worker_->Path("token")},
           {"DataThatAreADevice", "/dev/zero"}}) {
    SCOPED_TRACE(name);
    const CommandResult result =
        RunProgram(worker_->Job(path, worker_->DataPath("y.npy"), 2) + worker_->Credentials());
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kData)) << result.err;
    worker_->ExpectNoSecret(result.out + result.err);
    worker_->ExpectUnharmed();
  }
}

// A checkpoint that cannot be written costs no step: the job goes on, and says so.
TEST_F(JobAttacksTest, NothingIsWrittenElsewhere) {
  constexpr char kRefusal[] = "is not below a folder that jobs may write to on this worker";
  const std::vector<std::pair<std::string, std::string>> paths = {
      {"CheckpointOutside", worker_->Path("outside/a")},
      {"CheckpointAmongTheData", worker_->DataPath("b")},
      {"CheckpointByDots", worker_->SavedPath("../outside/c")},
      {"CheckpointByALink", worker_->SavedPath("folder/d")}};
  for (const auto& [name, path] : paths) {
    SCOPED_TRACE(name);
    const CommandResult result = RunProgram(
        worker_->Job(2) + worker_->Credentials() +
        Arguments{"--checkpoint", path, "--checkpoint-every", "1", "-o", worker_->Path("m.onnx")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr(kRefusal));
    worker_->ExpectNoSecret(result.out + result.err);
    worker_->ExpectUnharmed();
  }
  for (const char* const folder : {"outside", "data"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(worker_->Path(folder))) {
      EXPECT_NE(entry.path().extension(), ".safetensors") << entry.path();
    }
  }
  // Where it may write, it does.
  const CommandResult right =
      RunProgram(worker_->Job(2) + worker_->Credentials() +
                 Arguments{"--checkpoint", worker_->SavedPath("job"), "--checkpoint-every", "1"});
  EXPECT_EQ(right.exit_code, 0) << right.err;
  int written = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(worker_->SavedPath(""))) {
    written += entry.path().extension() == ".safetensors" ? 1 : 0;
  }
  EXPECT_GT(written, 0);
}

}  // namespace
}  // namespace weft::testing
