// A bit of a worker process flips in its memory while a job trains: the job names it, repairs it or
// ends, and what is resumed comes to the bits of a job that was never disturbed.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "onnx_import/importer.h"
#include "ops/testing/test_tensors.h"
#include "platform/file_system.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSamples = 64;
constexpr int kFeatures = 8;
constexpr int kClasses = 64;

ValueType Floats(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The parent of a process; 0 where there is none (any more).
int ParentOf(int pid) {
  const std::string text = TextOf(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = text.rfind(')');  // "123 (name) S 45 ..."
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields = absl::StrSplit(text.substr(name_end + 2), ' ');
  int parent = 0;
  return fields.size() > 1 && absl::SimpleAtoi(fields[1], &parent) ? parent : 0;
}

// Worker processes below this one.
std::vector<int> Workers() {
  std::vector<int> workers;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const std::string command = TextOf(absl::StrCat("/proc/", pid, "/cmdline"));
    if (command.find(std::string_view("\0worker\0", 8)) == std::string::npos) continue;
    int ancestor = pid;
    while (ancestor > 1 && ancestor != getpid()) ancestor = ParentOf(ancestor);
    if (ancestor == getpid()) workers.push_back(pid);
  }
  return workers;
}

// Flips the lowest bit at each place where the process has these bytes; how many there were.
int FlipWhereFound(int pid, std::string_view bytes) {
  const int memory = open(absl::StrCat("/proc/", pid, "/mem").c_str(), O_RDWR | O_CLOEXEC);
  if (memory < 0) return -1;
  int found = 0;
  std::istringstream maps(TextOf(absl::StrCat("/proc/", pid, "/maps")));
  for (std::string line; std::getline(maps, line);) {
    uint64_t first = 0, last = 0;
    char write = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*c%c", &first, &last, &write) != 3 || write != 'w') {
      continue;
    }
    std::string content(last - first, '\0');
    const ssize_t got = pread(memory, content.data(), content.size(), static_cast<off_t>(first));
    if (got <= 0) continue;
    const std::string_view text(content.data(), static_cast<size_t>(got));
    for (size_t at = text.find(bytes); at != std::string_view::npos;
         at = text.find(bytes, at + 1)) {
      const auto flipped = static_cast<char>(bytes.front() ^ 1);
      if (pwrite(memory, &flipped, 1, static_cast<off_t>(first + at)) == 1) ++found;
    }
  }
  close(memory);
  return found;
}

// scores [N,64] = x [N,8] times w + b; nobody trains b, whose bytes are found in memory.
class ReplicaFaultsTest : public ::testing::Test {
 protected:
  ReplicaFaultsTest() {
    Graph graph;
    const ValueId x = graph.AddInput("x", Floats({Dim::Symbol("N"), kFeatures}));
    const ValueId w = graph.AddVariable("w", Floats({kFeatures, kClasses}),
                                        RandomTensor({kFeatures, kClasses}, 2), true);
    const ValueId b = graph.AddVariable("b", Floats({kClasses}), bias_, true);
    GraphBuilder builder(graph);
    const ValueId scores = builder.Op("Add", {builder.Op("MatMul", {x, w}), b});
    builder.Name(scores, "scores");
    graph.AddOutput(scores);
    EXPECT_TRUE(builder.status().ok()) << builder.status();
    model_ = WriteTestModel("m.onnx", graph);
    x_ = WriteTestTensor("x.npy", RandomTensor({kSamples, kFeatures}, 3));
    labels_ = WriteTestTensor("y.npy", RandomTensor({kSamples}, 4, 0, kClasses, DType::kInt64));
  }

  // Bits are flipped where the bytes of a variable are found. Memory that workers share may hold
  // them on their way, where the checksum of their message finds it: so they go through sockets.
  Arguments Command(const std::string& output, const std::string& metrics, int workers,
                    int steps) const {
    return {"train",       model_,
            "--data",      absl::StrCat("x=", x_),
            "--labels",    labels_,
            "--loss",      "softmax_cross_entropy",
            "--freeze",    "b",
            "--optimizer", "adam",
            "--lr",        "0.001",
            "--batch",     "16",
            "--steps",     absl::StrCat(steps),
            "--local",     absl::StrCat(workers),
            "--parallel",  absl::StrCat("dp=", workers),
            "--transport", "sockets",
            "--metrics",   metrics,
            "-o",          output};
  }

  // Runs the command, and flips the bit in the memory of one of its workers, whose number in the
  // order of their start is `rank`, once some steps are done. Its process id goes to flipped_.
  CommandResult RunWithFlip(const Arguments& command, const std::string& metrics, size_t rank) {
    CommandResult result;
    std::thread job([&] { result = RunProgram(command); });
    const absl::Time deadline = absl::Now() + absl::Seconds(120);
    while (RowsOf(metrics) < 150 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(2));
    const std::vector<int> workers = Workers();
    if (rank < workers.size()) {
      flipped_ = workers[rank];
      const std::string_view bytes(static_cast<const char*>(bias_.raw_data()), bias_.bytes());
      places_ = FlipWhereFound(flipped_, bytes);
    }
    job.join();
    return result;
  }

  static int64_t RowsOf(const std::string& metrics) {
    const std::string text = TextOf(metrics);
    return std::count(text.begin(), text.end(), '\n');
  }
  // Of a model file.
  static Tensor BiasOf(const std::string& path) {
    const auto model = ImportModelFile(RealFileSystem(), path);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return Tensor();
    const Variable* const bias = model->graph.FindVariable("b");
    EXPECT_NE(bias, nullptr);
    return bias == nullptr ? Tensor() : bias->initial;
  }

  const Tensor bias_ = RandomTensor({kClasses}, 17);
  std::string model_, x_, labels_;
  int flipped_ = 0;
  int places_ = 0;
};

TEST_F(ReplicaFaultsTest, ThreeWorkersRepairTheOne) {
  const std::string out = TestPath("out.onnx"), metrics = TestPath("m.csv");
  for (const size_t rank : {0, 2}) {
    SCOPED_TRACE(rank);
    std::filesystem::remove(metrics);
    const CommandResult result = RunWithFlip(
        Command(out, metrics, 3, 1500) + Arguments{"--digest-every", "1", "--output", "json"},
        metrics, rank);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    ASSERT_GT(places_, 0) << "in process " << flipped_;
    EXPECT_THAT(result.err, AllOf(HasSubstr(absl::StrCat("pid ", flipped_)),
                                  HasSubstr("it was given the majority's copy")));
    const auto report = nlohmann::json::parse(result.out, nullptr, false);
    ASSERT_TRUE(report.is_object()) << result.out;
    const auto& found = report["replicas"]["divergences"];
    ASSERT_THAT(found, SizeIs(1)) << report["replicas"].dump();
    EXPECT_EQ(found[0]["action"], "repaired");
    EXPECT_EQ(found[0]["variables"], nlohmann::json({"b"}));
    EXPECT_THAT(found[0]["workers"].dump(), HasSubstr(absl::StrCat("pid ", flipped_)));
    EXPECT_EQ(found[0]["step"].get<int64_t>() - 1, found[0]["equal_after_step"].get<int64_t>());
    EXPECT_EQ(report["replicas"]["equal_after_step"], 1500);
    EXPECT_TRUE(BitwiseEqual(BiasOf(out), bias_));
  }
}

// The run ends; what it saved since is set aside, and the resumed job redoes those steps.
TEST_F(ReplicaFaultsTest, TwoWorkersStopAndResumeToTheSameBits) {
  const std::string out = TestPath("out.onnx"), metrics = TestPath("m.csv");
  const std::string folder = TestPath("saved");
  std::filesystem::remove_all(folder);
  std::filesystem::remove(metrics);
  const std::string expected = TestPath("expected.onnx");
  ASSERT_EQ(RunProgram(Command(expected, TestPath("e.csv"), 2, 1500)).exit_code, 0);
  const Arguments command = Command(out, metrics, 2, 1500) +
                            Arguments{"--checkpoint", folder, "--checkpoint-every", "7",
                                      "--keep",       "1000", "--digest-every",     "100"};
  const CommandResult stopped = RunWithFlip(command, metrics, 1);
  ASSERT_GT(places_, 0) << "in process " << flipped_ << ": " << stopped.err;
  EXPECT_EQ(stopped.exit_code, static_cast<int>(ExitCode::kDiverged)) << stopped.err;
  EXPECT_THAT(stopped.err,
              AllOf(HasSubstr(absl::StrCat("pid ", flipped_)), HasSubstr("'b'"),
                    HasSubstr("no majority says which is right"),
                    HasSubstr("were set aside as *.suspect"), HasSubstr("--resume goes on from ")));
  EXPECT_FALSE(std::filesystem::exists(out));
  const CommandResult resumed = RunProgram(command + Arguments{"--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resume step "));
  EXPECT_EQ(ReadTestFile(out), ReadTestFile(expected));
}

// With ZeRO a rank's rows have no copy, and go into the weights of all with the next update. The
// features of rows 4 to 7 are zero, so that nothing changes these rows, and they are found. A bit
// of one flips again and again, as it is not seen from the last backward pass to the end of a step.
TEST_F(ReplicaFaultsTest, ABitInARanksOwnRowsEndsTheRunBeforeItSpreads) {
  Tensor x = RandomTensor({kSamples, kFeatures}, 3);
  auto* const features = static_cast<float*>(x.raw_data());
  for (int64_t i = 0; i < kSamples * kFeatures; ++i) {
    if (i % kFeatures >= 4) features[i] = 0;
  }
  x_ = WriteTestTensor("x.npy", x);
  const std::string out = TestPath("out.onnx"), metrics = TestPath("m.csv");
  std::filesystem::remove(out);
  std::filesystem::remove(metrics);
  Arguments command = Command(out, metrics, 2, 200000);
  for (std::string& word : command) {
    if (word == "dp=2") word = "dp=2,zero=3";
  }
  const Tensor w = RandomTensor({kFeatures, kClasses}, 2);
  const size_t row_bytes = w.bytes() / kFeatures;
  std::string row(static_cast<const char*>(w.raw_data()) + 6 * row_bytes, row_bytes);
  CommandResult result;
  std::atomic<bool> has_ended{false};
  std::thread job([&] {
    result = RunProgram(command);
    has_ended = true;
  });
  const absl::Time deadline = absl::Now() + absl::Seconds(120);
  while (RowsOf(metrics) < 150 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(2));
  int flipped = 0;
  for (int i = 0; i < 60 && !has_ended; ++i) {
    for (const int worker : Workers()) flipped += std::max(0, FlipWhereFound(worker, row));
    row[0] = static_cast<char>(row[0] ^ 1);  // the next one flips it back
    for (int wait = 0; wait < 20 && !has_ended; ++wait) absl::SleepFor(absl::Milliseconds(10));
  }
  for (const int worker : Workers()) {
    if (!has_ended) kill(worker, SIGKILL);  // the test has failed: it does not wait for the job
  }
  job.join();
  ASSERT_GT(flipped, 0);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("worker:"), HasSubstr("of this rank's part of 'w'"),
                                HasSubstr("have changed in memory between the update of step ")));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(ReplicaFaultsTest, ABadIntervalIsRefused) {
  const CommandResult result = RunCommand(Command(TestPath("o.onnx"), TestPath("m.csv"), 2, 1) +
                                          Arguments{"--digest-every", "often"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(result.err, HasSubstr("--digest-every 'often' is not a number of steps"));
}

}  // namespace
}  // namespace weft::testing
