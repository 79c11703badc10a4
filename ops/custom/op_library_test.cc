#include "ops/custom/op_library.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "absl/time/clock.h"
#include "graph/policy/operator_policy.h"
#include "gtest/gtest.h"
#include "ops/concrete_node.h"
#include "ops/custom/custom_op.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"
#include "platform/file_system.h"

namespace weft {
namespace {

std::string Library(const std::string& name) { return "ops/custom/" + name; }

class OpLibraryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    SetOperatorPolicy(OperatorPolicy::Create({}, {"faulty::R*"}).value());
    for (const char* name : {"examples/swiglu.so", "testing/faulty_ops.so"}) {
      const auto library = LoadOpLibrary(RealFileSystem(), Library(name));
      ASSERT_TRUE(library.ok()) << library.status();
    }
    SetOperatorPolicy({});
  }
};

TEST_F(OpLibraryTest, ALoadedOpIsAsGoodAsABuiltInOne) {
  const Tensor gate = Tensor::Of<float>({3}, std::vector<float>{0, 1, -2});
  const Tensor up = Tensor::Of<float>({3}, std::vector<float>{5, 2, 3});
  const auto y = testing::RunOp({.domain = "example", .op = "SwiGlu", .inputs = {gate, up}});
  ASSERT_TRUE(y.ok()) << y.status();
  // gate * sigmoid(gate) * up: sigmoid(1) = 0.7310586, sigmoid(-2) = 0.1192029.
  const Tensor expected = Tensor::Of<float>({3}, std::vector<float>{0, 1.4621172f, -0.7152175f});
  EXPECT_TRUE(testing::TensorsNear(y->front(), expected));
}

TEST_F(OpLibraryTest, AnExceptionIsAnErrorOfTheNode) {
  const auto y = testing::RunOp(
      {.domain = "faulty", .op = "Throws", .inputs = {testing::RandomTensor({2}, 1)}});
  EXPECT_EQ(y.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(y.status().message().find("faulty::Throws"), std::string::npos) << y.status();
  EXPECT_NE(y.status().message().find("out of ideas"), std::string::npos) << y.status();
}

TEST_F(OpLibraryTest, AShapeFunctionThatSetsNothingIsAnErrorOfTheNode) {
  const auto y = testing::RunOp(
      {.domain = "faulty", .op = "NoType", .inputs = {testing::RandomTensor({2}, 1)}});
  EXPECT_NE(y.status().message().find("faulty::NoType"), std::string::npos) << y.status();
  EXPECT_NE(y.status().message().find("set no type for output 0"), std::string::npos);
}

TEST_F(OpLibraryTest, TheSameContentIsLoadedOnce) {
  const size_t before = LoadedOpLibraries().size();
  const auto again = LoadOpLibrary(RealFileSystem(), Library("examples/swiglu.so"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ops, (std::vector<std::string>{"example::SwiGlu", "example::SwiGluGrad"}));
  EXPECT_EQ(LoadedOpLibraries().size(), before);
}

TEST_F(OpLibraryTest, OneOpOfALibraryMayBeDenied) {
  EXPECT_NE(FindCustomOp("faulty", "Throws"), nullptr);
  EXPECT_NE(OpRegistry::Global().Find("faulty", "Throws"), nullptr);
  EXPECT_EQ(FindCustomOp("faulty", "Race"), nullptr);
  EXPECT_EQ(OpRegistry::Global().Find("faulty", "Race"), nullptr);
  EXPECT_EQ(KernelRegistry::Global().Find("faulty", "Race", DeviceKind::kCpu), nullptr);
}

// A copy with another checksum is another library.
TEST_F(OpLibraryTest, OpsThatThePolicyDoesNotAllowStayUnknown) {
  const std::string copy = ::testing::TempDir() + "/denied.so";
  std::filesystem::copy_file(Library("examples/swiglu.so"), copy,
                             std::filesystem::copy_options::overwrite_existing);
  std::ofstream(copy, std::ios::app) << "another end";
  // With all of them allowed they are those that are there already.
  EXPECT_EQ(LoadOpLibrary(RealFileSystem(), copy).status().code(),
            absl::StatusCode::kAlreadyExists);
  SetOperatorPolicy(OperatorPolicy::Create({}, {"example::*"}).value());
  const auto none = LoadOpLibrary(RealFileSystem(), copy);
  SetOperatorPolicy({});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->ops.empty());
  // Those of the library before are theirs still.
  EXPECT_NE(FindCustomOp("example", "SwiGlu"), nullptr);
}

// ---- What a kernel may ask for

class StreamWithHandle final : public Stream {
 public:
  absl::Status Enqueue(Work work) override { return work.run(work.argument, *this); }
  absl::Status Record(Event&) override { return absl::OkStatus(); }
  absl::Status Wait(Event&) override { return absl::OkStatus(); }
  absl::Status Synchronize(absl::Duration) override { return absl::OkStatus(); }
  void* native_handle() const override { return const_cast<StreamWithHandle*>(this); }
};

struct Asked {
  bool for_step = false;
  int64_t step = -1;
  void* stream = nullptr;
};

void Ask(const WeftHost* host, WeftCall* call, const void* user) {
  Asked& asked = **static_cast<Asked* const*>(user);
  asked.stream = host->stream(call);
  if (asked.for_step) asked.step = host->step(call);
}

// On a GPU a kernel launches on the stream of its program. One that asks for the step must not be
// recorded with the others, which shows when it runs.
TEST(CustomKernelTest, HasTheStreamAndTheStepOfItsRun) {
  const testing::OpCase op_case{.op = "Relu", .inputs = {testing::RandomTensor({2}, 1)}};
  const testing::SingleNodeGraph single = testing::MakeSingleNodeGraph(op_case);
  const auto node = ConcreteNode::Create(single.graph->node(single.node), op_case.inputs);
  ASSERT_TRUE(node.ok()) << node.status();
  Asked asked;
  Asked* const user = &asked;
  WeftOpDescriptor op{};
  op.user = &user;
  const auto kernel = PrepareCustomKernel(op, Ask, *node);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  StreamWithHandle stream;
  KernelContext context;
  context.stream = &stream;
  context.step = 7;
  ASSERT_TRUE((*kernel)->Run(context).ok());
  EXPECT_EQ(asked.stream, stream.native_handle());
  EXPECT_FALSE((*kernel)->depends_on_step());
  asked.for_step = true;
  ASSERT_TRUE((*kernel)->Run(context).ok());
  EXPECT_EQ(asked.step, 7);
  EXPECT_TRUE((*kernel)->depends_on_step());
}

TEST_F(OpLibraryTest, AnotherVersionIsRefusedNamingBoth) {
  const auto library = LoadOpLibrary(RealFileSystem(), Library("testing/other_version.so"));
  EXPECT_EQ(library.status().message(),
            "op library 'ops/custom/testing/other_version.so': it was built for version 2 of the "
            "ABI of custom ops, this program has version 1; build it again with this program's "
            "custom_op.h");
}

TEST_F(OpLibraryTest, WhatIsNoLibraryIsRefused) {
  const std::string path = ::testing::TempDir() + "/text.so";
  std::ofstream(path) << "no library\n";
  const auto library = LoadOpLibrary(RealFileSystem(), path);
  EXPECT_EQ(library.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(library.status().message().find("is it a shared library"), std::string::npos);
  EXPECT_FALSE(LoadOpLibrary(RealFileSystem(), path + ".not").ok());
}

// What loading a library whose code does this at once comes to.
absl::Status StartOf(const char* what, absl::Duration patience = absl::Seconds(20)) {
  setenv("WEFT_BAD_START", what, 1);
  const auto library = LoadOpLibrary(RealFileSystem(), Library("testing/bad_start.so"), patience);
  unsetenv("WEFT_BAD_START");
  return library.status();
}

// exit(0) once ended the program with nothing said and exit code 0; the others ended it, too.
TEST(OpLibraryStartTest, WhatItsCodeDoesWhileItIsLoadedIsAnError) {
  const std::map<std::string, std::string> expected = {
      {"exit", "ended the process with exit code 0 while it was loaded"},
      {"throw", "threw an exception while it was loaded: not today"},
      {"crash", "ended the process by signal 11"},
      {"", "it does not export weft_op_library_abi_version"}};
  for (const auto& [what, text] : expected) {
    const absl::Status status = StartOf(what.c_str());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_NE(status.message().find("'ops/custom/testing/bad_start.so'"), std::string::npos);
    EXPECT_NE(status.message().find(text), std::string::npos) << status;
  }
}

TEST(OpLibraryStartTest, OneThatLoopsIsEnded) {
  const absl::Time begin = absl::Now();
  const absl::Status status = StartOf("loop", absl::Milliseconds(500));
  EXPECT_NE(status.message().find("has not ended in 500ms"), std::string::npos) << status;
  EXPECT_LT(absl::Now() - begin, absl::Seconds(15));
}

// Whoever maps such a file and reads behind its end is ended by the system.
TEST(OpLibraryStartTest, OneThatWasCutOffIsAnError) {
  std::ifstream whole(Library("examples/swiglu.so"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(whole)), {});
  ASSERT_GT(bytes.size(), 8192u);
  const std::string path = ::testing::TempDir() + "/cut.so";
  for (const size_t size : {size_t{0}, size_t{70}, size_t{1000}, size_t{4200}}) {
    std::ofstream(path, std::ios::binary) << bytes.substr(0, size);
    const absl::Status status = LoadOpLibrary(RealFileSystem(), path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size << ": " << status;
  }
}

}  // namespace
}  // namespace weft
