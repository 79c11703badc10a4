// Op libraries in helper processes: they compute what they compute here, and can do nothing else.
#include <errno.h>
#include <linux/landlock.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "ops/concrete_node.h"
#include "ops/custom/custom_op.h"
#include "ops/custom/isolation/load_isolated.h"
#include "ops/custom/loaded_libraries.h"
#include "ops/custom/op_library.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/process.h"

namespace weft {
namespace {

constexpr absl::Duration kOpTimeout = absl::Seconds(4);
constexpr char kEvil[] = "ops/custom/isolation/testing/evil_ops.so";
constexpr char kTelling[] = "ops/custom/isolation/testing/telling_ops.so";
constexpr char kSwiGlu[] = "ops/custom/examples/swiglu.so";

absl::StatusOr<OpLibrary> LoadApart(const std::string& path,
                                    absl::Duration load_timeout = absl::Seconds(30)) {
  return LoadIsolatedOpLibrary(RealFileSystem(), path,
                               {.op_timeout = kOpTimeout,
                                .load_timeout = load_timeout,
                                .program = "ops/custom/isolation/testing/helper"});
}

class IsolationTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const char* path : {kEvil, kTelling, kSwiGlu}) {
      const auto library = LoadApart(path);
      ASSERT_TRUE(library.ok()) << library.status();
      EXPECT_TRUE(library->is_isolated);
      checksums_[path] = library->checksum;
    }
  }
  static IsolatedLibrary& Library(const char* path) {
    return *FindIsolatedLibrary(checksums_.at(path));
  }

  static std::map<std::string, std::string> checksums_;
};
std::map<std::string, std::string> IsolationTest::checksums_;

// ---- The same results

// What a descriptor's kernel for CPUs makes of a case, at step 7.
absl::StatusOr<std::vector<Tensor>> RunDescriptor(const WeftOpDescriptor& op,
                                                  const testing::OpCase& op_case,
                                                  const NodeRunOptions& options = {}) {
  const testing::SingleNodeGraph single = testing::MakeSingleNodeGraph(op_case);
  const auto node = ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, options);
  if (!node.ok()) return node.status();
  auto kernel = PrepareCustomKernel(op, op.run_cpu, *node);
  auto outputs = node->AllocateOutputs();
  if (!kernel.ok() || !outputs.ok()) return kernel.ok() ? outputs.status() : kernel.status();
  std::vector<const void*> in;
  for (const Tensor& input : op_case.inputs)
    in.push_back(input.valid() ? input.raw_data() : nullptr);
  std::vector<void*> out;
  for (Tensor& output : *outputs) out.push_back(output.raw_data());
  KernelContext context;
  context.inputs = in.data();
  context.outputs = out.data();
  context.step = 7;
  if (const absl::Status status = (*kernel)->Run(context); !status.ok()) return status;
  return outputs;
}

// The op of a library that is loaded into this process, but registered nowhere.
const WeftOpDescriptor& OpHere(const char* path, const std::string& name) {
  const auto library = OpenOpLibrary(std::filesystem::absolute(path).string());
  EXPECT_TRUE(library.ok()) << library.status();
  for (uint32_t k = 0; k < (*library)->num_ops; ++k) {
    if (name == (*library)->ops[k].name) return (*library)->ops[k];
  }
  ADD_FAILURE() << "no op " << name;
  return (*library)->ops[0];
}

void ExpectSameBits(const char* path, const testing::OpCase& op_case,
                    const NodeRunOptions& options = {}) {
  const auto here = RunDescriptor(OpHere(path, op_case.op), op_case, options);
  const auto apart = RunDescriptor(*FindCustomOp(op_case.domain, op_case.op), op_case, options);
  ASSERT_TRUE(here.ok()) << here.status();
  ASSERT_TRUE(apart.ok()) << apart.status();
  ASSERT_EQ(here->size(), apart->size());
  for (size_t i = 0; i < here->size(); ++i) {
    const Tensor& expected = (*here)[i];
    const Tensor& actual = (*apart)[i];
    ASSERT_EQ(actual.shape(), expected.shape());
    if (expected.bytes() == 0) continue;
    EXPECT_EQ(std::memcmp(actual.raw_data(), expected.raw_data(), expected.bytes()), 0)
        << op_case.ToString() << ", output " << i;
  }
}

TEST_F(IsolationTest, TheExampleGivesTheSameBits) {
  for (const int64_t size : {0, 1, 1000, 300'000}) {
    for (const int threads : {1, 2, 3}) {
      NodeRunOptions options;
      options.threads = threads;
      const Tensor gate = testing::RandomTensor({size}, 1);
      const Tensor up = testing::RandomTensor({size}, 2);
      const Tensor dy = testing::RandomTensor({size}, 3);
      ExpectSameBits(kSwiGlu, {.domain = "example", .op = "SwiGlu", .inputs = {gate, up}}, options);
      ExpectSameBits(kSwiGlu,
                     {.domain = "example",
                      .op = "SwiGluGrad",
                      .inputs = {gate, up, dy},
                      .outputs = {true, true}},
                     options);
    }
  }
}

// Operands, attributes of each type, the step, and where shards lie.
TEST_F(IsolationTest, AnOpIsToldTheSame) {
  const Tensor a = testing::RandomTensor({2, 3}, 1);
  testing::OpCase tell{.domain = "telling", .op = "Tell", .inputs = {a}};
  ExpectSameBits(kTelling, tell);
  tell.attributes = {{"int", int64_t{5}},
                     {"float", 0.5f},
                     {"string", std::string("some text")},
                     {"ints", std::vector<int64_t>{3, -4}},
                     {"floats", std::vector<float>{1.5f, -2}},
                     {"step", int64_t{1}}};
  tell.inputs = {a, Tensor(), testing::RandomTensor({}, 2), testing::RandomTensor({0, 4}, 3)};
  ExpectSameBits(kTelling, tell);
  NodeRunOptions options;
  options.input_slices = {{Shape{4, 3}, {2, 0}}, {}, {Shape{}, {}}, {Shape{0, 8}, {0, 4}}};
  options.output_slices = {{Shape{128}, {64}}};
  ExpectSameBits(kTelling, tell, options);
}

// Large values lie in the shared memory, which grows for them.
TEST_F(IsolationTest, AShapeFunctionSeesValues) {
  for (const int64_t size : {3, 70'000}) {
    const Tensor count = Tensor::Of<int64_t>({1}, std::vector<int64_t>{size});
    const testing::OpCase op_case{
        .domain = "telling", .op = "Size", .inputs = {testing::RandomTensor({2}, 1), count}};
    const auto y = testing::RunOp(op_case, testing::Kernels::kProduction, 2);
    ASSERT_TRUE(y.ok()) << y.status();
    ASSERT_EQ(y->front().shape(), Shape({size}));
    EXPECT_EQ(y->front().data<float>()[size - 1], static_cast<float>((size - 1) * (size - 1)) / 7);
  }
}

TEST_F(IsolationTest, OnlyAKernelThatAsksForTheStepDependsOnIt) {
  testing::OpCase tell{
      .domain = "telling", .op = "Tell", .inputs = {testing::RandomTensor({2}, 1)}};
  for (const bool asks : {false, true}) {
    tell.attributes.Set("step", int64_t{asks});
    const testing::SingleNodeGraph single = testing::MakeSingleNodeGraph(tell);
    const auto node = ConcreteNode::Create(single.graph->node(single.node), tell.inputs);
    ASSERT_TRUE(node.ok()) << node.status();
    const auto kernel = node->Prepare();
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    auto outputs = node->AllocateOutputs();
    const void* in[] = {tell.inputs[0].raw_data()};
    void* out[] = {outputs->front().raw_data()};
    KernelContext context;
    context.inputs = in;
    context.outputs = out;
    ASSERT_TRUE((*kernel)->Run(context).ok());
    EXPECT_EQ((*kernel)->depends_on_step(), asks);
  }
}

// Several threads call at the same time: one after the other is served.
TEST_F(IsolationTest, ManyThreadsMayCall) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int64_t size = 1; size < 40; ++size) {
        const Tensor x = testing::RandomTensor({size * 10}, static_cast<uint64_t>(t) * 100 + 1);
        const auto y = testing::RunOp({.domain = "evil", .op = "Act", .inputs = {x}});
        ASSERT_TRUE(y.ok()) << y.status();
        ASSERT_EQ(std::memcmp(y->front().raw_data(), x.raw_data(), x.bytes()), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The sum over the kernels is what the largest needs, whose memory all share.
TEST_F(IsolationTest, KernelsCountTheSharedMemoryOnce) {
  std::vector<std::unique_ptr<Kernel>> kernels;
  size_t bytes = 0;
  for (const int64_t size : {1000, 5000, 2000}) {
    const Tensor x = testing::RandomTensor({size}, 1);
    const testing::OpCase op_case{.domain = "evil", .op = "Act", .inputs = {x}};
    const testing::SingleNodeGraph single = testing::MakeSingleNodeGraph(op_case);
    const auto node = ConcreteNode::Create(single.graph->node(single.node), op_case.inputs);
    ASSERT_TRUE(node.ok()) << node.status();
    auto kernel = node->Prepare();
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    bytes += (*kernel)->retained_bytes();
    kernels.push_back(*std::move(kernel));
  }
  // 5000 floats are 20,000 bytes; an operand begins at a multiple of 64.
  EXPECT_EQ(bytes, 2u * 20032u);
}

// ---- What ends or delays its helper

testing::OpCase Evil(const std::string& what, const std::string& where = "Compute") {
  return {.domain = "evil",
          .op = "Act",
          .attributes = {{"what", what}, {"where", where}},
          .inputs = {testing::RandomTensor({4}, 1)}};
}

// The library serves the next call, by another helper.
void ExpectServed() {
  const testing::OpCase good = Evil("nothing");
  const auto y = testing::RunOp(good);
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(std::memcmp(y->front().raw_data(), good.inputs[0].raw_data(), 16), 0);
}

TEST_F(IsolationTest, WhatEndsTheHelperIsAnErrorOfTheNode) {
  const std::map<std::string, std::string> ends = {
      {"crash", "died of SIGSEGV in Compute"},
      {"null", "died of SIGSEGV in Compute"},
      {"abort", "died of SIGABRT in Compute"},
      {"exit", "ended its process with exit code 0 in Compute"},
      {"terminate", "threw an exception that nothing caught, in Compute: no way out"},
      {"garbage", "wrote to the channel of its process, in Compute: what came is no message"},
      {"hang up", "closed the channel of its process in Compute"}};
  for (const auto& [what, text] : ends) {
    const pid_t before = Library(kEvil).helper();
    const absl::Status status = testing::RunOp(Evil(what)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_TRUE(absl::StrContains(
        status.message(), absl::StrCat("op library 'evil_ops.so': node 'node' (evil::Act) ", text)))
        << what << ": " << status;
    EXPECT_EQ(Library(kEvil).helper(), 0);
    EXPECT_NE(kill(before, 0), 0) << what << " left its process behind";
    ExpectServed();
  }
}

TEST_F(IsolationTest, OneThatLoopsIsEndedWithItsName) {
  const int64_t begin = RealClock().MonotonicNanos();
  const absl::Status status = testing::RunOp(Evil("loop")).status();
  const double seconds = static_cast<double>(RealClock().MonotonicNanos() - begin) / 1e9;
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "op library 'evil_ops.so': node 'node' (evil::Act) has not ended "
                                "in 4 s, in Compute: does it loop?"))
      << status;
  EXPECT_GE(seconds, 4);
  EXPECT_LT(seconds, 30);
  ExpectServed();
}

TEST_F(IsolationTest, AnExceptionIsAnErrorAndTheHelperStays) {
  ExpectServed();
  const pid_t before = Library(kEvil).helper();
  const absl::Status status = testing::RunOp(Evil("throw")).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "out of ideas")) << status;
  EXPECT_EQ(Library(kEvil).helper(), before);
}

TEST_F(IsolationTest, AShapeFunctionMayDieToo) {
  const absl::Status status = testing::RunOp(Evil("crash", "Infer")).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "(evil::Act) died of SIGSEGV in Infer"))
      << status;
  ExpectServed();
}

// A thread of the library crashes after the call: the next one does not suffer.
TEST_F(IsolationTest, WhatDiesBetweenTwoCallsIsStartedAgain) {
  ASSERT_TRUE(testing::RunOp(Evil("later")).ok());
  const pid_t before = Library(kEvil).helper();
  const int64_t late = RealClock().MonotonicNanos() + 20'000'000'000;
  while (kill(before, 0) == 0 && RealClock().MonotonicNanos() < late) {
    std::ifstream stat(absl::StrCat("/proc/", before, "/stat"));
    const std::string text((std::istreambuf_iterator<char>(stat)), {});
    if (absl::StrContains(text, ") Z ")) break;  // it has ended, and waits to be asked how
  }
  ExpectServed();
  EXPECT_NE(Library(kEvil).helper(), before);
}

// ---- What it may not do

class AttemptTest : public IsolationTest {
 protected:
  AttemptTest() { std::ofstream(secret_) << "secret"; }
  // The error number that the op has got; -1: it was not run.
  int ErrorOf(const std::string& attempt) {
    const auto y = testing::RunOp({.domain = "evil",
                                   .op = "Act",
                                   .attributes = {{"try", attempt}, {"path", secret_}},
                                   .inputs = {testing::RandomTensor({1}, 1)}});
    EXPECT_TRUE(y.ok()) << attempt << ": " << y.status();
    return y.ok() ? static_cast<int>(y->front().data<float>()[0]) : -1;
  }
  static bool HasLandlock() {
    return syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) > 0;
  }

  const std::string secret_ = ::testing::TempDir() + "/secret";
};

TEST_F(AttemptTest, ChangingAnythingIsRefused) {
  for (const char* attempt : {"socket",
                              "unix socket",
                              "write",
                              "read and write",
                              "create",
                              "truncate",
                              "openat2",
                              "remove",
                              "rename",
                              "mode",
                              "folder",
                              "fork",
                              "run a program",
                              "kill the parent",
                              "kill all",
                              "queue a signal",
                              "trace the parent",
                              "outlive the parent",
                              "core file",
                              "ring",
                              "name space"}) {
    EXPECT_EQ(ErrorOf(attempt), EPERM) << attempt;
  }
  std::ifstream file(secret_);
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(file)), {}), "secret");
}

// The same attempts succeed, or fail otherwise, in a process that is not confined: the test sees a
// difference.
TEST_F(AttemptTest, WouldDoSomethingHere) {
  const WeftOpDescriptor& here = OpHere(kEvil, "Act");
  for (const char* attempt : {"socket", "write", "read", "mode", "fork", "kill the parent"}) {
    const auto y =
        RunDescriptor(here, {.domain = "evil",
                             .op = "Act",
                             .attributes = {{"try", std::string(attempt)}, {"path", secret_}},
                             .inputs = {testing::RandomTensor({1}, 1)}});
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_EQ(y->front().data<float>()[0], 0) << attempt;
  }
}

TEST_F(AttemptTest, FilesOfTheUserAndTheParentsMemoryCannotBeRead) {
  if (!HasLandlock()) GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(ErrorOf("read"), EACCES);
  EXPECT_EQ(ErrorOf("memory of the parent"), EACCES);
}

TEST_F(AttemptTest, WhatAnOpNeedsIsAllowed) {
  for (const char* attempt : {"thread", "memory", "processors"}) {
    EXPECT_EQ(ErrorOf(attempt), 0) << attempt;
  }
}

// ---- Loading

absl::Status StartOf(const std::string& what, absl::Duration patience = absl::Seconds(30)) {
  setenv("WEFT_BAD_START", what.c_str(), 1);
  const auto library = LoadApart("ops/custom/testing/bad_start.so", patience);
  unsetenv("WEFT_BAD_START");
  return library.status();
}

TEST(IsolatedStartTest, WhatItsCodeDoesWhileItIsLoadedIsAnError) {
  const std::map<std::string, std::string> expected = {
      {"exit", "its code ended its process with exit code 0 while it was loaded"},
      {"throw", "its code threw an exception that nothing caught, while it was loaded: not today"},
      {"crash", "its code died of SIGSEGV while it was loaded"},
      {"", "it does not export weft_op_library_abi_version"}};
  for (const auto& [what, text] : expected) {
    const absl::Status status = StartOf(what);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_TRUE(absl::StrContains(
        status.message(), absl::StrCat("op library 'ops/custom/testing/bad_start.so': ", text)))
        << status;
  }
  EXPECT_TRUE(
      absl::StrContains(StartOf("loop", absl::Milliseconds(500)).message(),
                        "its code has not ended in 0.5 s, while it was loaded: does it loop?"));
}

TEST(IsolatedStartTest, WhatIsNoLibraryIsRefused) {
  const auto other = LoadApart("ops/custom/testing/other_version.so");
  EXPECT_TRUE(absl::StrContains(other.status().message(), "it was built for version 2 of the ABI"))
      << other.status();
  const std::string path = ::testing::TempDir() + "/text.so";
  std::ofstream(path) << "no library\n";
  const absl::Status text = LoadApart(path).status();
  EXPECT_EQ(text.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(text.message(), "is it a shared library")) << text;
  EXPECT_FALSE(absl::StrContains(text.message(), "/proc/self")) << text;
  EXPECT_FALSE(LoadApart(path + ".not").ok());
}

// A constructor that loops here would have ended the test; `library` has none of our code.
TEST(IsolatedStartTest, NoCodeOfItRunsHere) {
  const absl::Status status = StartOf("exit");
  EXPECT_FALSE(status.ok());
  std::ifstream maps("/proc/self/maps");
  const std::string text((std::istreambuf_iterator<char>(maps)), {});
  EXPECT_FALSE(absl::StrContains(text, "bad_start.so")) << text;
}

TEST(IsolatedStartTest, AProgramThatIsNoHelperIsNamed) {
  const std::string copy = ::testing::TempDir() + "/another.so";
  std::filesystem::copy_file(kSwiGlu, copy, std::filesystem::copy_options::overwrite_existing);
  std::ofstream(copy, std::ios::app) << "another end";
  const absl::Status status =
      LoadIsolatedOpLibrary(RealFileSystem(), copy, {.program = "/bin/true"}).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "exit code 0 while it was loaded")) << status;
  EXPECT_FALSE(LoadIsolatedOpLibrary(RealFileSystem(), copy, {.program = "/no/such/program"}).ok());
}

// ---- What it costs

TEST_F(IsolationTest, TheCostOfACallIsSaid) {
  for (const int64_t elements : {1, 1 << 20}) {
    const Tensor x = testing::RandomTensor({elements}, 1);
    const testing::OpCase op_case{.domain = "evil", .op = "Act", .inputs = {x}};
    double microseconds[2] = {1e9, 1e9};
    for (int round = 0; round < 20; ++round) {
      for (const bool apart : {false, true}) {
        const WeftOpDescriptor& op = apart ? *FindCustomOp("evil", "Act") : OpHere(kEvil, "Act");
        const int64_t begin = RealClock().MonotonicNanos();
        ASSERT_TRUE(RunDescriptor(op, op_case).ok());
        const auto nanos = static_cast<double>(RealClock().MonotonicNanos() - begin);
        microseconds[apart] = std::min(microseconds[apart], nanos / 1e3);
      }
    }
    std::cout << elements << " floats: " << microseconds[0] << " us here, " << microseconds[1]
              << " us apart, the least of 20 with the preparation of the node\n";
  }
}

}  // namespace
}  // namespace weft
