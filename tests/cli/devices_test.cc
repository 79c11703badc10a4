// A cluster with a device that this build cannot run on: whoever would run or measure there refuses
// it, with worker and host; whoever only calculates says it. Once such a job was priced as one of a
// GPU and then ran on the CPU.
//
// WEFT_RUNNER: graph_runner, whose workers are processes.
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "ops/fusion/fusion_rules.h"
#include "ops/kernel.h"
#include "platform/file_system.h"
#include "platform/process.h"
#include "tensor/tensor.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class MissingDevice : public ::testing::Test {
 protected:
  MissingDevice() {
    EXPECT_EQ(RunCommand({"example", "mlp", "-o", model_}).exit_code, 0);
    WriteTestFile(cluster_,
                  "hosts:\n"
                  "  - name: big-box\n"
                  "    workers:\n"
                  "      - {name: plain, device: cpu}\n"
                  "      - {name: fast, device: 'cuda:1000', model: A100-80GB}\n");
  }

  CommandResult Run(const std::string& command, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {command, model_, "--cluster", cluster_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments);
  }
  std::vector<std::string> WithData(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"--data", "x=" + images_,          "--labels", labels_,
                                          "--loss", "softmax_cross_entropy", "--batch",  "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static void ExpectRefused(const CommandResult& result) {
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kPlan)) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(HasSubstr("worker 'fast' on host 'big-box'"),
                                  HasSubstr("cannot run on cuda:1000")));
  }

  const std::string model_ = TestPath("mlp.onnx");
  const std::string cluster_ = TestPath("cluster.yaml");
  const std::string output_ = TestPath("output");
  const std::string images_ =
      WriteTestTensor("images.npy", Tensor::Zeros(DType::kFloat32, {16, 28, 28}).value());
  const std::string labels_ =
      WriteTestTensor("labels.npy", Tensor::Zeros(DType::kInt64, {16}).value());
};

TEST_F(MissingDevice, IsRefusedByTrain) {
  ExpectRefused(Run("train", WithData({"--steps", "1", "-o", output_})));
  const std::string folder = TestPath("saved");
  ExpectRefused(
      Run("train", WithData({"--steps", "1", "-o", output_, "--checkpoint", folder, "--resume"})));
  EXPECT_FALSE(RealFileSystem().Exists(output_));
  EXPECT_FALSE(RealFileSystem().Exists(folder));
}

// While it lives, this process has a kernel for CUDA, of MatMul alone, as a build with CUDA has of
// nearly all.
class OneCudaKernel {
 public:
  OneCudaKernel() {
    EXPECT_TRUE(
        KernelRegistry::Global()
            .Register("", "MatMul", DeviceKind::kCuda,
                      [](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                        return context.Unimplemented("nothing runs here");
                      })
            .ok());
  }
  OneCudaKernel(const OneCudaKernel&) = delete;
  OneCudaKernel& operator=(const OneCudaKernel&) = delete;
  ~OneCudaKernel() { KernelRegistry::Global() = before_; }

 private:
  const KernelRegistry before_ = KernelRegistry::Global();
};

// `plan` needs no card: it asks what there are kernels for.
TEST_F(MissingDevice, OperatorsWithoutAKernelRunOnItsHostIfAllowed) {
  if (KernelRegistry::Global().Count(DeviceKind::kCuda) > 0) {
    GTEST_SKIP() << "this build has kernels of CUDA, for all of the model";
  }
  const OneCudaKernel kernel;
  const auto plan = [this](std::vector<std::string> more) {
    more.insert(more.end(), {"--parallel", "dp=2"});
    return Run("plan", WithData(std::move(more)));
  };
  const CommandResult silent = plan({});
  EXPECT_EQ(silent.exit_code, static_cast<int>(ExitCode::kPlan)) << silent.err;
  EXPECT_THAT(silent.err,
              AllOf(HasSubstr("no kernel for CUDA computes"), HasSubstr("Relu (node '"),
                    HasSubstr("more than the 1 %"), HasSubstr("give --cpu-fallback allow")));
  const CommandResult refused = plan({"--cpu-fallback", "refuse"});
  EXPECT_EQ(refused.exit_code, static_cast<int>(ExitCode::kPlan)) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("--cpu-fallback refuse lets nothing run on the CPU"));
  const CommandResult allowed = plan({"--cpu-fallback", "allow"});
  EXPECT_EQ(allowed.exit_code, 0) << allowed.err;
  EXPECT_THAT(allowed.err, HasSubstr("run on the CPU of a GPU's worker, with copies: "));
  EXPECT_THAT(allowed.out, HasSubstr(" nodes run on the CPU of a GPU's worker ("));
}

FusedRole RoleInTest(const Graph& /*graph*/, const Node& node) {
  const bool fuses = node.op == "Add" || node.op == "Gelu" || node.op == "Mul";
  return fuses ? FusedRole::kElementwise : FusedRole::kNone;
}

// Nor has it to compile anything. This process fuses what a build with CUDA does, or what the
// function above says.
TEST_F(MissingDevice, PlanSaysWhatItsGpusFuse) {
  if (FindFusionRules(DeviceKind::kCuda) == nullptr) {
    RegisterFusionRules(DeviceKind::kCuda, {.role_of = RoleInTest});
  }
  const std::string gpt = TestPath("gpt.onnx");
  ASSERT_EQ(RunCommand({"example", "gpt", "-o", gpt, "--layers", "1", "--width", "8", "--heads",
                        "1", "--sequence", "4", "--vocabulary", "11"})
                .exit_code,
            0);
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "plan", gpt, "--cluster", cluster_, "--loss", "sequence_cross_entropy", "--batch", "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments);
  };
  const CommandResult silent = plan({"--parallel", "dp=2"});
  EXPECT_EQ(silent.exit_code, 0) << silent.err;
  EXPECT_THAT(silent.out, Not(HasSubstr("fused")));
  const CommandResult text = plan({"--parallel", "dp=2", "--fuse", "auto"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out,
              ContainsRegex("fused: [0-9]+ nodes run in [0-9]+ kernels on the GPU of rank"));
  // Whatever the plan is that it finds.
  std::vector<std::string> found = {"--parallel", "all", "--explain", "--fuse", "auto"};
  const CommandResult why = plan(found);
  EXPECT_EQ(why.exit_code, 0) << why.err;
  found.insert(found.end(), {"--output", "json"});
  const CommandResult why_json = plan(found);
  ASSERT_EQ(why_json.exit_code, 0) << why_json.err;
  size_t kernels = 0;
  const auto why_fusion = nlohmann::json::parse(why_json.out)["fusion"];
  for (const auto& rank : why_fusion["ranks"]) kernels += rank["kernels"].size();
  EXPECT_EQ(why.out.find("fused kernels of rank") != std::string::npos, kernels > 0) << why.out;
  const CommandResult json = plan({"--parallel", "dp=2", "--fuse", "auto", "--output", "json"});
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const auto fusion = nlohmann::json::parse(json.out)["fusion"];
  ASSERT_EQ(fusion["ranks"].size(), 1u);  // the other is a CPU
  const auto& rank = fusion["ranks"][0];
  EXPECT_EQ(fusion["text"], absl::StrCat("fused: ", rank["nodes"].get<int>(), " nodes run in ",
                                         rank["kernels"].size(), " kernels on the GPU of rank ",
                                         rank["rank"].get<int>()));
  size_t parts = 0;
  std::map<std::string, std::string> kernel_of;  // by part
  for (const auto& kernel : rank["kernels"]) {
    for (const auto& part : kernel["parts"]) kernel_of[part] = kernel["node"];
    parts += kernel["parts"].size();
  }
  EXPECT_EQ(rank["nodes"].get<size_t>(), parts);
  // A product with its bias, and scores that are scaled and masked. The Gelu between two products
  // is exact, so none takes it, and the bias before it is with the first.
  const auto share = [&](const std::string& a, const std::string& b) {
    return kernel_of.contains(a) && kernel_of.contains(b) && kernel_of[a] == kernel_of[b];
  };
  EXPECT_TRUE(share("block0/MatMul_4 (MatMul)", "block0/Add_4 (Add)")) << fusion;
  EXPECT_TRUE(share("block0/Mul (Mul)", "block0/Add_1 (Add)")) << fusion;
  EXPECT_FALSE(kernel_of.contains("block0/Gelu (Gelu)")) << fusion;
}

TEST_F(MissingDevice, IsRefusedByEval) {
  ExpectRefused(Run("eval", WithData({"--metric", "accuracy"})));
}

TEST_F(MissingDevice, IsRefusedByVerify) { ExpectRefused(Run("verify", WithData({}))); }

TEST_F(MissingDevice, IsRefusedByCalibrate) {
  ExpectRefused(RunCommand({"calibrate", "--cluster", cluster_, "-o", output_}));
  ExpectRefused(Run("calibrate", WithData({"-o", output_})));
  EXPECT_FALSE(RealFileSystem().Exists(output_));
}

TEST_F(MissingDevice, IsRefusedByAWorkerBeforeItListens) {
  const std::string socket = TestPath("socket");
  const CommandResult result =
      RunCommand({"worker", "--listen", "unix:" + socket, "--device", "cuda:1001"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kPlan)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("cannot run on cuda:1001"));
  EXPECT_FALSE(RealFileSystem().Exists(socket));
}

// A worker that somebody started, with a socket of its own.
class RemoteWorker : public MissingDevice {
 protected:
  RemoteWorker() {
    // Paths of sockets are short.
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    WriteTestFile(InFolder("token"), std::string(64, 'a'));
    std::filesystem::permissions(InFolder("token"), std::filesystem::perms::owner_read);
    ProcessOptions options;
    options.arguments = {std::getenv("WEFT_RUNNER"),
                         "worker",
                         "--listen",
                         absl::StrCat("unix:", InFolder("w")),
                         "--token-file",
                         InFolder("token"),
                         "--allow-path",
                         "/"};
    options.standard_error = {ProcessOutput::Kind::kDiscard};
    auto started = RealProcessLauncher().Start(options);
    EXPECT_TRUE(started.ok()) << started.status();
    if (started.ok()) worker_ = *std::move(started);
  }
  ~RemoteWorker() override {
    worker_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string InFolder(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  // One step on the worker, which the cluster file says has this device.
  CommandResult Train(const std::string& device) const {
    WriteTestFile(InFolder("cluster.yaml"),
                  absl::StrCat("hosts:\n  - name: far\n    workers:\n      - {address: 'unix:",
                               InFolder("w"), "', threads: 1, device: '", device, "'}\n"));
    return RunProgram({"train", model_, "--cluster", InFolder("cluster.yaml"), "--token-file",
                       InFolder("token"), "--data", "x=" + images_, "--labels", labels_, "--loss",
                       "softmax_cross_entropy", "--batch", "8", "--steps", "1", "-o", output_});
  }

 private:
  std::string folder_ = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
  std::unique_ptr<Process> worker_;
};

// The coordinator does not ask its own machine for the card of another one.
TEST_F(RemoteWorker, SaysItselfThatItHasNotWhatTheClusterFileSays) {
  const CommandResult result = Train("cuda:1000");
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kPlan)) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("worker:0"),
                    HasSubstr("the job takes this worker for cuda:1000, and it computes on cpu:0"),
                    HasSubstr("cannot run on cuda:1000")));
  EXPECT_FALSE(RealFileSystem().Exists(output_));
}

TEST_F(RemoteWorker, TrainsOnTheDeviceThatItHas) {
  const CommandResult result = Train("cpu");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(RealFileSystem().Exists(output_));
}

// A worker on a port, with keys.
class SecuredWorker : public MissingDevice {
 protected:
  SecuredWorker() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    EXPECT_EQ(MakeKeys(), 0);
    ProcessOptions options;
    options.arguments = {
        std::getenv("WEFT_RUNNER"), "worker",       "--listen", "127.0.0.1:0", "--keys",
        InFolder("keys/127.0.0.1"), "--allow-path", "/",        "--log-level", "debug"};
    options.standard_error = {ProcessOutput::Kind::kFile, InFolder("log")};
    auto started = RealProcessLauncher().Start(options);
    EXPECT_TRUE(started.ok()) << started.status();
    if (started.ok()) worker_ = *std::move(started);
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (Address().empty() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(20));
    EXPECT_NE(Address(), "") << Log();
  }
  ~SecuredWorker() override {
    worker_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string InFolder(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  int MakeKeys() const {
    return RunCommand({"cluster", "keys", "--out", InFolder("keys"), "--hosts", "127.0.0.1"})
        .exit_code;
  }
  std::string Log() const { return RealFileSystem().ReadFile(InFolder("log")).value_or(""); }
  std::string Address() const {
    const std::string log = Log();
    const std::string before = "listening on ";
    const size_t at = log.find(before);
    const size_t end = log.find('\n', at);
    return at == std::string::npos || end == std::string::npos
               ? ""
               : log.substr(at + before.size(), end - at - before.size());
  }
  CommandResult Train(const std::vector<std::string>& network) const {
    WriteTestFile(InFolder("cluster.yaml"),
                  absl::StrCat("hosts:\n  - name: far\n    workers:\n      - {address: '",
                               Address(), "', threads: 1}\n"));
    std::vector<std::string> arguments = {"train",     model_,
                                          "--cluster", InFolder("cluster.yaml"),
                                          "--data",    "x=" + images_,
                                          "--labels",  labels_,
                                          "--loss",    "softmax_cross_entropy",
                                          "--batch",   "8",
                                          "--steps",   "1",
                                          "-o",        output_};
    arguments.insert(arguments.end(), network.begin(), network.end());
    return RunProgram(arguments);
  }

 private:
  std::string folder_ = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
  std::unique_ptr<Process> worker_;
};

TEST_F(SecuredWorker, TrainsForACoordinatorAndRefusesAllOthers) {
  CommandResult result = Train({"--keys", InFolder("keys/observer")});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("for the role coordinator"));
  result = Train({"--token-file", InFolder("keys/127.0.0.1/token")});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("speaks TLS"), HasSubstr("--keys")));
  EXPECT_FALSE(RealFileSystem().Exists(output_));
  result = Train({"--keys", InFolder("keys/coordinator")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(RealFileSystem().Exists(output_));
  // The same worker, after its keys and the coordinator's were made anew.
  std::filesystem::remove(output_);
  ASSERT_EQ(MakeKeys(), 0);
  result = Train({"--keys", InFolder("keys/coordinator")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string token = RealFileSystem().ReadFile(InFolder("keys/coordinator/token")).value();
  for (const std::string& text : {Log(), result.err}) {
    EXPECT_THAT(text, ::testing::Not(HasSubstr("PRIVATE")));
    EXPECT_THAT(text, ::testing::Not(HasSubstr(token.substr(0, 32))));
  }
}

TEST(Doctor, SaysWhatThisMachineHas) {
  const CommandResult text = RunCommand({"doctor"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.err, "");
  for (const char* part : {"build", "processor", "memory", "limits", "driver", "cpu:0"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
  const CommandResult json = RunCommand({"doctor", "--output", "json"});
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const auto report = nlohmann::json::parse(json.out);
  EXPECT_GT(report["memory"]["total_bytes"], 0);
  EXPECT_GT(report["processor"]["cores"], 0);
  EXPECT_GT(report["kernels"]["cpu"], 100);
  EXPECT_EQ(report["devices"][0]["device"], "cpu:0");
}

TEST(Doctor, EndsWithOneWhereWhatIsNeededIsMissing) {
  EXPECT_EQ(RunCommand({"doctor", "--need", "cpu"}).exit_code, 0);
  const CommandResult missing = RunCommand({"doctor", "--need", "cpu", "--need", "cuda:1000"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.out, HasSubstr("processor"));
  EXPECT_THAT(missing.err, HasSubstr("needed, and cannot be used: cuda:1000"));
  const CommandResult unknown = RunCommand({"doctor", "--need", "tpu"});
  EXPECT_EQ(unknown.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_EQ(unknown.out, "");
  EXPECT_THAT(unknown.err, HasSubstr("--need: 'tpu' is not a device"));
}

TEST(Conformance, RefusesADeviceThatIsMissing) {
  const std::string folder = TestPath("cases");
  ASSERT_TRUE(RealFileSystem().CreateDirectories(folder).ok());
  EXPECT_EQ(RunCommand({"conformance", folder, "--device", "cpu"}).exit_code, 0);
  const CommandResult missing = RunCommand({"conformance", folder, "--device", "cuda:1000"});
  EXPECT_EQ(missing.exit_code, static_cast<int>(ExitCode::kPlan));
  EXPECT_EQ(missing.out, "");
  EXPECT_THAT(missing.err, HasSubstr("cuda:1000"));
  const CommandResult unknown = RunCommand({"conformance", folder, "--device", "tpu"});
  EXPECT_EQ(unknown.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(unknown.err, HasSubstr("--device: 'tpu' is not a device"));
}

TEST_F(MissingDevice, IsPricedByPlanAndSimulateWhichSayThatItCannotRun) {
  for (const char* command : {"plan", "simulate"}) {
    const CommandResult result =
        Run(command, {"--batch", "64", "--parallel", "dp=2", "--output", "json"});
    ASSERT_EQ(result.exit_code, 0) << command << result.err;
    EXPECT_TRUE(nlohmann::json::parse(result.out).is_object());
    EXPECT_THAT(result.err, HasSubstr("can price but not run 1 of 2 workers: 'fast' on host "
                                      "'big-box' has cuda:1000"))
        << command;
  }
}

}  // namespace
}  // namespace weft::testing
