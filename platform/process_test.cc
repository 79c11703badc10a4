#include "platform/process.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr char kChild[] = "platform/testing/process_test_child";

// Long enough for any machine; a test that reaches it fails.
absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

ProcessOptions Child(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), kChild);
  return {.arguments = std::move(arguments),
          .standard_output = {.kind = ProcessOutput::Kind::kPipe}};
}

std::unique_ptr<Process> Start(const ProcessOptions& options) {
  absl::StatusOr<std::unique_ptr<Process>> process = RealProcessLauncher().Start(options);
  EXPECT_TRUE(process.ok()) << process.status();
  return *std::move(process);
}

std::string OnlyLine(const ProcessOptions& options) {
  const std::unique_ptr<Process> process = Start(options);
  const absl::StatusOr<std::string> line = process->ReadLine(Soon());
  EXPECT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(process->WaitUntil(Soon()), ExitStatus{});
  return line.value_or("");
}

bool Runs(int64_t id) { return kill(static_cast<pid_t>(id), 0) == 0; }

TEST(ProcessTest, ReportsTheExitCode) {
  const std::unique_ptr<Process> process = Start(Child({"exit", "7"}));
  EXPECT_EQ(process->WaitUntil(Soon()), ExitStatus{.code = 7});
  EXPECT_EQ(process->Poll(), ExitStatus{.code = 7});
  EXPECT_EQ(process->Poll()->DebugString(), "exit code 7");
}

TEST(ProcessTest, ReportsTheKillingSignal) {
  const std::unique_ptr<Process> process = Start(Child({"pause"}));
  EXPECT_EQ(*process->ReadLine(Soon()), "ready");
  EXPECT_EQ(process->Poll(), std::nullopt);
  ASSERT_TRUE(process->Signal(SIGKILL).ok());
  const auto status = process->WaitUntil(Soon());
  EXPECT_EQ(status, ExitStatus{.signal = SIGKILL});
  EXPECT_EQ(status->DebugString(), "killed by signal 9 (Killed)");
  EXPECT_FALSE(status->success());
  EXPECT_EQ(process->Signal(SIGTERM).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ProcessTest, KnowsThatASignalHasStoppedIt) {
  const std::unique_ptr<Process> process = Start(Child({"pause"}));
  EXPECT_EQ(*process->ReadLine(Soon()), "ready");
  EXPECT_FALSE(process->IsStopped());
  ASSERT_TRUE(process->Signal(SIGSTOP).ok());
  while (!process->IsStopped()) ASSERT_LT(absl::Now(), Soon());
  EXPECT_TRUE(process->IsStopped());
  EXPECT_EQ(process->Poll(), std::nullopt);
  ASSERT_TRUE(process->Signal(SIGCONT).ok());
  while (process->IsStopped()) ASSERT_LT(absl::Now(), Soon());
  ASSERT_TRUE(process->Signal(SIGKILL).ok());
  EXPECT_EQ(process->WaitUntil(Soon()), ExitStatus{.signal = SIGKILL});
  EXPECT_FALSE(process->IsStopped());
}

TEST(ProcessTest, WaitEndsAtItsDeadlineWhileTheProcessRuns) {
  const std::unique_ptr<Process> process = Start(Child({"pause"}));
  const absl::Time deadline = absl::Now() + absl::Milliseconds(20);
  EXPECT_EQ(process->WaitUntil(deadline), std::nullopt);
  EXPECT_GE(absl::Now(), deadline);
}

TEST(ProcessTest, DestructorKillsAndReaps) {
  std::unique_ptr<Process> process = Start(Child({"pause"}));
  const int64_t id = process->id();
  EXPECT_TRUE(Runs(id));
  process.reset();
  EXPECT_FALSE(Runs(id));
}

TEST(ProcessTest, ReadsLinesUntilTheEnd) {
  const std::unique_ptr<Process> process = Start(Child({"print", "one", "", "three"}));
  EXPECT_EQ(*process->ReadLine(Soon()), "one");
  EXPECT_EQ(*process->ReadLine(Soon()), "");
  EXPECT_EQ(*process->ReadLine(Soon()), "three");
  EXPECT_EQ(process->ReadLine(Soon()).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(ProcessTest, ReadsALastLineWithoutLineEnd) {
  EXPECT_EQ(OnlyLine(Child({"print-unfinished"})), "no line end");
}

TEST(ProcessTest, ReadLineEndsAtItsDeadline) {
  const std::unique_ptr<Process> process = Start(Child({"pause"}));
  EXPECT_EQ(*process->ReadLine(Soon()), "ready");
  EXPECT_EQ(process->ReadLine(absl::Now() + absl::Milliseconds(20)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(ProcessTest, EnvironmentIsAddedAndReplaced) {
  ASSERT_EQ(setenv("WEFT_PROCESS_TEST", "outer", 1), 0);
  ProcessOptions options = Child({"environment", "WEFT_PROCESS_TEST"});
  EXPECT_EQ(OnlyLine(options), "outer");
  options.environment = {{"WEFT_PROCESS_TEST", "inner"}};
  EXPECT_EQ(OnlyLine(options), "inner");
}

TEST(ProcessTest, InputIsEmpty) { EXPECT_EQ(OnlyLine(Child({"read-input"})), "-1"); }

TEST(ProcessTest, GroupIsInheritedOrItsOwn) {
  ProcessOptions options = Child({"group"});
  EXPECT_EQ(OnlyLine(options), "inherited");
  options.own_process_group = true;
  EXPECT_EQ(OnlyLine(options), "own");
}

TEST(ProcessTest, ErrorsGoToTheEndOfAFile) {
  char folder[] = "/tmp/weft-process-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/log";
  ProcessOptions options = Child({"complain"});
  options.standard_output = {.kind = ProcessOutput::Kind::kDiscard};
  options.standard_error = {.kind = ProcessOutput::Kind::kFile, .path = path};
  EXPECT_EQ(Start(options)->WaitUntil(Soon()), ExitStatus{});
  EXPECT_EQ(Start(options)->WaitUntil(Soon()), ExitStatus{});
  EXPECT_EQ(*RealFileSystem().ReadFile(path), "complaint\ncomplaint\n");
  EXPECT_TRUE(RealFileSystem().RemoveFile(path).ok());
  EXPECT_EQ(rmdir(folder), 0);
}

TEST(ProcessTest, MissingExecutableIsNamed) {
  const absl::Status status =
      RealProcessLauncher().Start({.arguments = {"/no/such/binary"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot start \"/no/such/binary\""));
}

TEST(ProcessTest, UnwritableLogIsNamed) {
  ProcessOptions options = Child({"exit", "0"});
  options.standard_error = {.kind = ProcessOutput::Kind::kFile, .path = "/no/such/folder/log"};
  EXPECT_THAT(std::string(RealProcessLauncher().Start(options).status().message()),
              HasSubstr("/no/such/folder/log"));
}

TEST(ProcessTest, OptionsWithoutMeaningAreRefused) {
  EXPECT_EQ(RealProcessLauncher().Start({.arguments = {}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  ProcessOptions options = Child({"exit", "0"});
  options.standard_error = {.kind = ProcessOutput::Kind::kPipe};
  EXPECT_EQ(RealProcessLauncher().Start(options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ProcessTest, ReadLineNeedsAPipe) {
  ProcessOptions options = Child({"exit", "0"});
  options.standard_output = {.kind = ProcessOutput::Kind::kDiscard};
  EXPECT_EQ(Start(options)->ReadLine(Soon()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(DieWithParentTest, GrandchildEndsWhenItsParentIsKilled) {
  std::unique_ptr<Process> parent = Start(Child({"parent"}));
  const absl::StatusOr<std::string> line = parent->ReadLine(Soon());
  ASSERT_TRUE(line.ok()) << line.status();
  long long grandchild = 0;
  char state[8] = {};
  ASSERT_EQ(std::sscanf(line->c_str(), "%lld %7s", &grandchild, state), 2) << *line;
  EXPECT_STREQ(state, "tied");
  // A handle of the grandchild becomes readable at its end, whoever reaps it.
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, grandchild, 0));
  ASSERT_GE(handle, 0);
  parent.reset();
  pollfd request = {.fd = handle, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&request, 1, 60000), 1);
  close(handle);
}

TEST(DieWithParentTest, SaysWhenTheParentIsGone) {
  // This test is the parent; the child is told to expect another.
  EXPECT_EQ(OnlyLine(Child({"die-with-parent", "1"})), "orphan");
}

TEST(CurrentExecutableTest, IsThisTest) {
  const absl::StatusOr<std::string> path = CurrentExecutable();
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_THAT(*path, HasSubstr("process_test"));
  EXPECT_TRUE(RealFileSystem().Exists(*path));
}

}  // namespace
}  // namespace weft
