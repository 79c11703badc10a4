#include "tools/chaos/process_tree.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/polling.h"
#include "platform/process.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kPatience = absl::Seconds(20);
// A shell that does nothing until a signal comes, and has no child.
constexpr char kWait[] = "kill -STOP $$";

std::unique_ptr<Process> StartShell(const std::string& script) {
  ProcessOptions options;
  options.arguments = {"/bin/sh", "-c", script, "worker"};
  options.own_process_group = true;
  auto process = RealProcessLauncher().Start(options);
  EXPECT_TRUE(process.ok()) << process.status();
  return process.ok() ? *std::move(process) : nullptr;
}

bool Has(const std::vector<RunningProcess>& processes, int64_t id) {
  return std::any_of(processes.begin(), processes.end(),
                     [id](const RunningProcess& process) { return process.id == id; });
}

TEST(ProcessTreeTest, FindsAChildWithItsWords) {
  const auto process = StartShell(kWait);
  ASSERT_NE(process, nullptr);
  const int64_t self = CurrentProcessId();
  ASSERT_TRUE(PollUntil(
      [&] {
        for (const RunningProcess& child : ChildrenOf(RealFileSystem(), self)) {
          if (child.id == process->id() && child.arguments[0] == "/bin/sh") return true;
        }
        return false;
      },
      RealClock(), absl::Now() + kPatience));
  for (const RunningProcess& child : ChildrenOf(RealFileSystem(), self)) {
    if (child.id != process->id()) continue;
    EXPECT_THAT(child.arguments, ElementsAre("/bin/sh", "-c", kWait, "worker"));
    EXPECT_FALSE(child.is_worker());
  }
}

TEST(ProcessTreeTest, SignalsAChildOfThatParentAlone) {
  const auto process = StartShell(kWait);
  ASSERT_NE(process, nullptr);
  const int64_t self = CurrentProcessId();
  EXPECT_TRUE(absl::IsNotFound(SignalChild(RealFileSystem(), 1, process->id(), SIGKILL)));
  EXPECT_FALSE(process->Poll().has_value());
  EXPECT_TRUE(SignalChild(RealFileSystem(), self, process->id(), SIGKILL).ok());
  const std::optional<ExitStatus> ended = process->WaitUntil(absl::Now() + kPatience);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->signal, SIGKILL);
  EXPECT_TRUE(absl::IsNotFound(SignalChild(RealFileSystem(), self, process->id(), SIGKILL)));
}

TEST(ProcessTreeTest, AdoptsWhatAProcessLeavesBehind) {
  AdoptOrphans();
  const int64_t self = CurrentProcessId();
  const auto process = StartShell("sleep 100 & echo; exit 0");
  ASSERT_NE(process, nullptr);
  ASSERT_TRUE(process->WaitUntil(absl::Now() + kPatience).has_value());
  int64_t orphan = 0;
  ASSERT_TRUE(PollUntil(
      [&] {
        for (const RunningProcess& child : ChildrenOf(RealFileSystem(), self)) {
          if (child.arguments == std::vector<std::string>{"sleep", "100"}) orphan = child.id;
        }
        return orphan != 0;
      },
      RealClock(), absl::Now() + kPatience));
  EXPECT_TRUE(SignalChild(RealFileSystem(), self, orphan, SIGKILL).ok());
  EXPECT_TRUE(PollUntil(
      [&] {
        ReapAdopted(RealFileSystem(), {});
        return !Has(ChildrenOf(RealFileSystem(), self), orphan);
      },
      RealClock(), absl::Now() + kPatience));
}

}  // namespace
}  // namespace weft
