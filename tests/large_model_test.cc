// A model of 3 GiB with its weights in a file beside it: what memory the program takes to inspect
// it, and to run it. Skipped aloud where disk or memory lack.
//
// WEFT_PROGRAM: graph_runner, as a person starts it.
#include "onnx_import/testing/large_model.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"
#include "platform/process_memory.h"
#include "tensor/tensor.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

constexpr int64_t kSize = 8192;
constexpr int kLayers = 12;
constexpr int64_t kModelBytes = 4 * kSize * kSize * kLayers;  // 3 GiB
constexpr int64_t kMebibyte = 1 << 20;

// What is free for new processes, by /proc/meminfo and the limit of the control group.
int64_t AvailableMemory() {
  const auto text = RealFileSystem().ReadFile("/proc/meminfo");
  if (!text.ok()) return 0;
  const size_t found = text->find("MemAvailable:");
  const int64_t available =
      found == std::string::npos ? 0 : 1024 * std::atoll(text->c_str() + found + 13);
  return std::min(available, ProcessMemoryLimit(RealFileSystem()).bytes);
}

struct Outcome {
  int exit_code = -1;
  int64_t peak_bytes = 0;  // most that was resident, pages of mapped files included
  std::string err;
};

class LargeModel : public ::testing::Test {
 protected:
  // The folder is made for each test and removed after it: it takes 400 MB of the disk.
  void SetUp() override {
    const char* const program = std::getenv("WEFT_PROGRAM");
    ASSERT_NE(program, nullptr) << "WEFT_PROGRAM is not set";
    program_ = program;
    folder_ = absl::StrCat(::testing::TempDir(), "/large_model_",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    struct statvfs disk = {};
    ASSERT_EQ(statvfs(folder_.c_str(), &disk), 0);
    const auto free = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
    if (free < 1024 * kMebibyte) {
      GTEST_SKIP() << "the model takes 400 MB of the disk; free in " << folder_ << " are "
                   << free / kMebibyte << " MiB";
    }
    ASSERT_TRUE(WriteLargeModel(folder_, kSize, kLayers)) << folder_;
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  Outcome Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program_);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    const std::string err = folder_ + "/stderr";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    pid_t child = 0;
    const int started =
        posix_spawn(&child, program_.c_str(), &actions, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    Outcome outcome;
    if (started != 0) return outcome;
    int status = 0;
    struct rusage usage = {};
    if (wait4(child, &status, 0, &usage) != child) return outcome;
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    outcome.peak_bytes = 1024 * int64_t{usage.ru_maxrss};
    outcome.err = RealFileSystem().ReadFile(err).value_or("");
    return outcome;
  }

  std::string Model() const { return folder_ + "/model.onnx"; }

  std::string program_;
  std::string folder_;
};

TEST_F(LargeModel, IsInspectedWithoutItsWeightsInMemory) {
  const Outcome outcome = Run({"inspect", Model()});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_LT(outcome.peak_bytes, 200'000'000);
  EXPECT_GT(outcome.peak_bytes, kMebibyte);
}

TEST_F(LargeModel, RunsInMemoryOfItsSize) {
  if (AvailableMemory() < kModelBytes + 1024 * kMebibyte) {
    GTEST_SKIP() << "the model takes " << kModelBytes / kMebibyte
                 << " MiB of memory and a gigabyte is to be left; available are "
                 << AvailableMemory() / kMebibyte << " MiB";
  }
  const Tensor x =
      Tensor::Of<float>(Shape({1, kSize}), std::vector<float>(static_cast<size_t>(kSize), 1.0f));
  const std::string input = folder_ + "/x.npy";
  ASSERT_TRUE(RealFileSystem().WriteFileAtomically(input, ToNpy(x).value()).ok());
  const Outcome outcome =
      Run({"run", Model(), "--input", "x=" + input, "--threads", "2", "--output-dir", folder_});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_LT(static_cast<double>(outcome.peak_bytes), 1.1 * static_cast<double>(kModelBytes));
  // All of it was read: less would mean that the measure is wrong.
  EXPECT_GT(static_cast<double>(outcome.peak_bytes), 0.9 * static_cast<double>(kModelBytes));
  const auto y = ReadDataFile(RealFileSystem(), folder_ + "/y.npy");
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(y->data<float>(), ::testing::Each(4096.0f));
}

}  // namespace
}  // namespace weft::testing
