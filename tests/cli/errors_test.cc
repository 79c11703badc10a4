// Bad input ends in one paragraph and the right exit code: never in a crash or a hang.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "tensor/tensor.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

void ExpectError(const CommandResult& result, ExitCode code,
                 const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, static_cast<int>(code)) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("error: "));
  for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
}

std::string Lenet() {
  const std::string path = TestPath("lenet.onnx");
  EXPECT_EQ(RunCommand({"example", "lenet", "-o", path}).exit_code, 0);
  return path;
}

// A .npy file of float32 zeros.
std::string Zeros(const std::string& name, const Shape& shape) {
  const std::string path = TestPath(name);
  WriteTestFile(path, ToNpy(Tensor::Zeros(DType::kFloat32, shape).value()).value());
  return path;
}

std::string WriteModel(const std::string& bytes) {
  const std::string path = TestPath("model.onnx");
  WriteTestFile(path, bytes);
  return path;
}

TEST(BadModel, MissingFile) {
  ExpectError(RunCommand({"inspect", "/no/such/model.onnx"}), ExitCode::kModel,
              {"/no/such/model.onnx", "No such file", "check the path"});
}

// "--data x=x.npy model.onnx" took the model for data: MODEL was required.
TEST(BadModel, MayStandBehindAnyOption) {
  const std::vector<std::vector<std::string>> options = {
      {"--data", "x=x.npy"}, {"--freeze", "w"}, {"--trainable", "w"}, {"--class-weights", "1,2"}};
  for (const std::vector<std::string>& option : options) {
    const CommandResult result =
        RunCommand({"train", option[0], option[1], "/no/such/model.onnx", "--data", "y=y.npy",
                    "--labels", "l.npy", "--steps", "1"});
    ExpectError(result, ExitCode::kModel, {"/no/such/model.onnx", "No such file"});
  }
}

TEST(BadModel, Garbage) {
  ExpectError(RunCommand({"inspect", WriteModel("this is no model at all")}), ExitCode::kModel,
              {"model.onnx"});
}

TEST(BadModel, TruncatedAnywhere) {
  const std::string whole = ReadTestFile(Lenet());
  for (const size_t length : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 1}) {
    ExpectError(RunCommand({"inspect", WriteModel(whole.substr(0, length))}), ExitCode::kModel,
                {"model.onnx"});
  }
}

TEST(BadModel, MoreNodesThanAreRead) {
  std::vector<WireNode> nodes;
  for (int i = 0; i < 30; ++i) {
    nodes.push_back({"",
                     "Relu",
                     {i == 0 ? "x" : "v" + std::to_string(i)},
                     {i == 29 ? "y" : "v" + std::to_string(i + 1)}});
  }
  const std::string model = WriteModel(WireModel(17, nodes, "x", "y"));
  EXPECT_EQ(RunCommand({"inspect", model, "--max-nodes", "30"}).exit_code, 0);
  ExpectError(RunCommand({"inspect", model, "--max-nodes", "29"}), ExitCode::kModel,
              {"model.onnx", "more than 29 nodes", "--max-nodes N"});
  EXPECT_EQ(RunCommand({"inspect", model}).exit_code, 0);
}

TEST(BadModel, Cycle) {
  const std::string model = WriteModel(WireModel(
      17, {{"first", "Add", {"x", "b"}, {"a"}}, {"second", "Relu", {"a"}, {"b"}}}, "x", "b"));
  ExpectError(RunCommand({"inspect", model}), ExitCode::kModel, {"model.onnx", "cycle"});
}

TEST(BadModel, UnknownOpIsShownByInspectAndRefusedByRun) {
  const std::string model =
      WriteModel(WireModel(17, {{"odd_one", "Reluu", {"x"}, {"y"}}}, "x", "y"));
  const CommandResult inspected = RunCommand({"inspect", model});
  EXPECT_EQ(inspected.exit_code, 0) << inspected.err;
  EXPECT_THAT(inspected.out, HasSubstr("odd_one (Reluu): unknown operator, did you mean Relu?"));
  ExpectError(RunCommand({"run", model, "--input", "x=" + Zeros("x.npy", {2, 4}), "--output-dir",
                          TestPath("out")}),
              ExitCode::kModel, {"odd_one", "Reluu", "did you mean Relu?"});
}

TEST(BadModel, OperatorThatChangedInALaterOpset) {
  const std::string model = WriteModel(WireModel(99, {{"n", "Add", {"x"}, {"y"}}}, "x", "y"));
  ExpectError(RunCommand({"inspect", model}), ExitCode::kModel,
              {"model.onnx", "node 'n' (Add)", "lacks the required input 1", "operator set 99"});
}

TEST(BadModel, OperatorOfALaterOpset) {
  const std::string model = WriteModel(WireModel(99, {{"n", "Reluu", {"x"}, {"y"}}}, "x", "y"));
  ExpectError(RunCommand({"run", model, "--input", "x=" + Zeros("x.npy", {2, 4}), "--output-dir",
                          TestPath("out")}),
              ExitCode::kModel, {"Reluu", "operator set 99", "did you mean Relu?"});
}

TEST(BadData, ShapeDoesNotFit) {
  ExpectError(RunCommand({"run", Lenet(), "--input", "x=" + Zeros("x.npy", {2, 30, 30}),
                          "--output-dir", TestPath("out")}),
              ExitCode::kData, {"x.npy", "float32[2,30,30]", "input 'x'", "float32[N,1,28,28]"});
}

TEST(BadData, MissingFile) {
  ExpectError(
      RunCommand({"run", Lenet(), "--input", "x=/no/such.npy", "--output-dir", TestPath("out")}),
      ExitCode::kData, {"/no/such.npy", "No such file"});
}

TEST(BadData, InputThatTheModelDoesNotHave) {
  ExpectError(RunCommand({"run", Lenet(), "--input", "y=" + Zeros("x.npy", {2, 1, 28, 28}),
                          "--output-dir", TestPath("out")}),
              ExitCode::kData, {"no input 'y'", "its inputs are: x"});
}

TEST(BadData, InputThatIsMissing) {
  ExpectError(RunCommand({"run", Lenet(), "--output-dir", TestPath("out")}), ExitCode::kData,
              {"input 'x'", "--input x=FILE"});
}

TEST(BadOutput, FolderThatCannotBeMade) {
  const std::string file = TestPath("a_file");
  WriteTestFile(file, "");
  ExpectError(RunCommand({"run", Lenet(), "--input", "x=" + Zeros("x.npy", {2, 1, 28, 28}),
                          "--output-dir", file + "/below"}),
              ExitCode::kDisk, {"a_file"});
}

TEST(BadFlag, NameWithoutFile) {
  ExpectError(RunCommand({"run", Lenet(), "--input", "x", "--output-dir", TestPath("out")}),
              ExitCode::kUsage, {"--input x: expected NAME=FILE", "help: graph_runner run --help"});
}

TEST(BadFlag, NamesFromFilesCannotSteerTheTerminal) {
  const CommandResult result = RunCommand({"inspect", "/no/\x1b[31mred"});
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("\x1b")));
}

// C1 controls (U+009B is ESC [), and the byte alone.
TEST(BadFlag, NorCanC1Controls) {
  const CommandResult result = RunCommand({"inspect",
                                           "/no/\xc2\x9b"
                                           "31mred\x9b"
                                           "2J"});
  EXPECT_THAT(result.err, HasSubstr("31mred"));
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("\x9b")));
}

// A pipe without a writer was waited for for ever, and a device took all memory.
TEST(BadFlag, AJobFileIsASmallRegularFile) {
  const std::string pipe = TestPath("pipe.yaml");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& file : {pipe, std::string("/dev/zero"), std::string("/dev/null")}) {
    ExpectError(RunCommand({"train", "--config", file}), ExitCode::kUsage,
                {"--config", file, "a device, a pipe"});
  }
  const std::string large = TestPath("large.yaml");
  WriteTestFile(large, std::string((1 << 20) + 1, '#'));
  ExpectError(RunCommand({"train", "--config", large}), ExitCode::kUsage,
              {"--config", large, "1048576"});
}

TEST(BadData, TrainingDataDoesNotFit) {
  ExpectError(RunCommand({"train", Lenet(), "--data", "x=" + Zeros("x.npy", {8, 30, 30}),
                          "--labels", Zeros("y.npy", {8}), "--steps", "1"}),
              ExitCode::kData, {"x"});
}

TEST(BadFlag, TrainingNeedsAnEnd) {
  ExpectError(RunCommand({"train", Lenet(), "--data", "x=x.npy", "--labels", "y.npy"}),
              ExitCode::kUsage, {"--steps N or --epochs N"});
}

// So many epochs times the batches of one were a negative number of steps.
TEST(BadFlag, MoreEpochsThanCanBeCounted) {
  for (const std::string epochs : {"0", "9223372036854775807", "4000000000"}) {
    ExpectError(RunCommand({"train", Lenet(), "--data", "x=x.npy", "--labels", "y.npy", "--epochs",
                            epochs}),
                ExitCode::kUsage,
                {"--epochs", "'" + epochs + "' is not a whole number from 1 to 2147483647"});
  }
}

TEST(BadFlag, PinWithoutWorker) {
  for (const std::string pin : {"*", "=worker:0", "*="}) {
    ExpectError(RunCommand({"plan", Lenet(), "--local", "2", "--pin", pin}), ExitCode::kUsage,
                {"--pin " + pin + ": expected PATTERN=WORKER"});
  }
}

TEST(BadFlag, PinToAWorkerThatIsNotThere) {
  ExpectError(
      RunCommand({"plan", Lenet(), "--local", "2", "--parallel", "pp=2", "--pin", "*=worker:2"}),
      ExitCode::kPlan, {"the pin of '*' to 'worker:2' names no worker of the cluster"});
}

TEST(BadFlag, MemoryIsANumberWithAUnit) {
  for (const std::string text : {"12 parsecs", "0"}) {
    ExpectError(
        RunCommand({"train", Lenet(), "--data", "x=" + Zeros("x.npy", {8, 1, 28, 28}), "--labels",
                    Zeros("y.npy", {8}), "--steps", "1", "--memory-per-worker", text}),
        ExitCode::kUsage, {"--memory-per-worker"});
  }
}

// x W compared with all samples of the batch, as contrastive losses do: x [N,4] in, [N,N] out.
std::string PairsOfAllSamples() {
  Graph graph;
  graph.opsets[""] = 17;
  GraphBuilder b(graph);
  const ValueId x = graph.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), Dim(4)})});
  std::vector<float> values;
  for (int i = 0; i < 16; ++i) values.push_back(0.1f * static_cast<float>(i - 7));
  const ValueId w = graph.AddVariable("w", {ValueKind::kTensor, DType::kFloat32, Shape{4, 4}},
                                      Tensor::Of<float>({4, 4}, values), true);
  b.set_name_prefix("pairs/");
  const ValueId transposed = b.Op("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0}}});
  const ValueId scores = b.Op("MatMul", {b.Op("MatMul", {x, w}), transposed});
  b.Name(scores, "scores");
  graph.AddOutput(scores);
  EXPECT_TRUE(b.status().ok()) << b.status();
  return WriteTestModel("model.onnx", graph);
}

TEST(BadPlan, CuttingABatchWhoseSamplesAreMixed) {
  const std::string model = PairsOfAllSamples();
  const auto plan = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"plan", model, "--batch", "4"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunCommand(arguments);
  };
  const std::vector<std::string> parts = {
      "cutting the batch would change results: node 'pairs/",
      "(MatMul) pairs each sample with all others: the samples are on axis 0 of",
      "take one micro-batch on one replica (tp and pp may be more than 1)", "--allow-batch-cut"};
  ExpectError(plan({"--local", "2", "--parallel", "dp=2"}), ExitCode::kPlan, parts);
  ExpectError(plan({"--micro-batches", "2"}), ExitCode::kPlan, parts);
  ExpectError(plan({"--local", "2", "--micro-batches", "2"}), ExitCode::kPlan, parts);
  const CommandResult cut = plan({"--local", "2", "--parallel", "dp=2", "--allow-batch-cut"});
  EXPECT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_THAT(cut.out, HasSubstr("plan dp=2 x tp=1 x pp=1"));
  const CommandResult found = plan({"--local", "2", "--explain"});
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr("batch      the batch stays whole, in one micro-batch on one "
                                   "replica: node 'pairs/"));
  EXPECT_THAT(found.out, HasSubstr("found      --parallel dp=1,"));
}

// Where a worker keeps its token when none is named.
void SetHome() { setenv("HOME", ::testing::TempDir().c_str(), /*overwrite=*/1); }

TEST(Worker, PortThatIsTaken) {
  SetHome();
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string text = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  ExpectError(RunCommand({"worker", "--listen", text}), ExitCode::kPlan, {text});
  close(listener);
}

TEST(Worker, OtherAddressesNeedAWord) {
  SetHome();
  ExpectError(RunCommand({"worker", "--listen", "10.0.0.7:4000"}), ExitCode::kPlan,
              {"10.0.0.7:4000", "--keys DIR", "--insecure-network"});
}

TEST(Worker, KeysAndNoKeysDoNotGoTogether) {
  SetHome();
  ExpectError(RunCommand({"worker", "--listen", "10.0.0.7:4000", "--keys", TestPath("keys"),
                          "--insecure-network"}),
              ExitCode::kUsage, {"--keys", "--insecure-network"});
}

TEST(Worker, StateIsKeptForADayAtMost) {
  for (const std::string text : {"-1", "86401", "long"}) {
    ExpectError(RunCommand({"worker", "--listen", "127.0.0.1:0", "--keep-state", text}),
                ExitCode::kUsage, {"--keep-state"});
  }
}

TEST(Worker, FoldersForJobsThatAreMissingAreNamed) {
  SetHome();
  for (const std::string flag : {"--data-root", "--checkpoint-root"}) {
    ExpectError(RunCommand({"worker", "--listen", "127.0.0.1:0", flag, TestPath("none")}),
                ExitCode::kUsage, {flag, "none: no such folder"});
  }
}

// A socket's path is too long to listen on: so the worker ends.
TEST(Worker, SaysWhatJobsMayUseWhereOthersCanReachIt) {
  SetHome();
  const std::string address = "unix:/" + std::string(200, 'x');
  const std::vector<std::string> worker = {"worker", "--listen", address, "--insecure-network"};
  ExpectError(RunCommand(worker), ExitCode::kPlan,
              {"jobs may read and write below the working folder", "--data-root DIR"});
  std::vector<std::string> bounded = worker;
  bounded.insert(bounded.end(), {"--data-root", ::testing::TempDir()});
  EXPECT_THAT(RunCommand(bounded).err, ::testing::Not(HasSubstr("working folder")));
}

TEST(Worker, KeysThatAreMissingOrReadableByOthersAreRefused) {
  const std::string folder = TestPath("keys");
  const std::vector<std::string> listen = {"worker", "--listen", "127.0.0.1:0", "--keys",
                                           folder + "/127.0.0.1"};
  ExpectError(RunCommand(listen), ExitCode::kUsage, {folder, "identity.pem", "No such file"});
  ASSERT_EQ(RunCommand({"cluster", "keys", "--out", folder, "--hosts", "127.0.0.1"}).exit_code, 0);
  const std::string identity = folder + "/127.0.0.1/identity.pem";
  ASSERT_EQ(chmod(identity.c_str(), 0644), 0);
  const CommandResult result = RunCommand(listen);
  ExpectError(result, ExitCode::kUsage, {identity, "chmod 600"});
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("PRIVATE")));
}

TEST(ClusterKeys, AreMadeForEachHostAndRoleAndRenewed) {
  const std::string folder = TestPath("keys");
  const std::vector<std::string> make = {"cluster", "keys",    "--out",
                                         folder,    "--hosts", "a=10.0.0.7,b"};
  const CommandResult first = RunCommand(make);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("new authority " + folder));
  EXPECT_THAT(first.out, HasSubstr(folder + "/a  worker for a, 10.0.0.7, valid until"));
  EXPECT_THAT(first.out, HasSubstr(folder + "/coordinator  coordinator for no host"));
  EXPECT_THAT(first.out + first.err, ::testing::Not(HasSubstr("PRIVATE")));
  std::vector<std::string> again = make;
  again.insert(again.end(), {"--output", "json", "--days", "30"});
  const CommandResult second = RunCommand(again);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("\"new_authority\": false"));
  EXPECT_THAT(second.out, HasSubstr("\"role\": \"observer\""));
}

TEST(Cluster, ShowsWorkersAndSpares) {
  const std::string file = TestPath("cluster.yaml");
  WriteTestFile(file,
                "hosts:\n- name: a\n  workers:\n  - {address: 'a:1'}\n"
                "  - {address: 'a:2', device: cuda:1, role: spare}\n");
  const CommandResult text = RunCommand({"cluster", "show", "--cluster", file});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.out,
            "worker  worker:0 on a, cpu:0, at a:1\nspare  spare:0 on a, cuda:1, at a:2\n");
  const CommandResult json = RunCommand({"cluster", "show", "--cluster", file, "--output", "json"});
  EXPECT_THAT(json.out, HasSubstr("\"role\": \"spare\""));
  ExpectError(RunCommand({"cluster", "show"}), ExitCode::kUsage, {"--cluster FILE.yaml"});
  ExpectError(RunCommand({"cluster", "keys", "--hosts", "a"}), ExitCode::kUsage,
              {"--out is required"});
}

TEST(ClusterKeys, OfHostsThatCannotBeAreRefused) {
  const std::string folder = TestPath("keys");
  for (const std::string hosts : {"../a", "a,a", "a=b", "coordinator"}) {
    ExpectError(RunCommand({"cluster", "keys", "--out", folder, "--hosts", hosts}),
                ExitCode::kUsage, {"'" + hosts.substr(hosts == "a,a" || hosts == "a=b" ? 2 : 0)});
  }
  ExpectError(RunCommand({"cluster", "key", "--out", folder, "--hosts", "a"}), ExitCode::kUsage,
              {"'key' is no action", "keys"});
}

TEST(Worker, ATokenFileThatOthersCanReadIsRefused) {
  const std::string path = TestPath("token");
  WriteTestFile(path, "0123456789abcdef0123456789abcdef\n");
  ExpectError(RunCommand({"worker", "--listen", "127.0.0.1:0", "--token-file", path}),
              ExitCode::kUsage, {path, "chmod 600"});
}

TEST(Worker, HasTheDeviceThatIsNamedOrNone) {
  SetHome();
  ExpectError(RunCommand({"worker", "--listen", "127.0.0.1:0", "--device", "tpu"}),
              ExitCode::kUsage, {"--device", "'tpu' is not a device", "cuda:NUMBER"});
  ExpectError(RunCommand({"worker", "--listen", "127.0.0.1:0", "--device", "cpu:1"}),
              ExitCode::kPlan, {"this process cannot run on cpu:1"});
}

// A million steps: it is found before the first one, or not at all.
TEST(Worker, JoinsJobsThatCanTakeItInAlone) {
  const MlpJob job(16);
  const Arguments train =
      Arguments{"train"} + job.files() + Arguments{"--batch", "4", "--steps", "2"};
  const std::string desk = "127.0.0.1:0";
  ExpectError(RunCommand(train + Arguments{"--listen", desk}), ExitCode::kUsage,
              {"--listen", "--local N or --cluster"});
  ExpectError(RunCommand(train + Arguments{"--listen", desk, "--local", "2", "--on-loss", "stop"}),
              ExitCode::kUsage, {"--listen", "--on-loss stop"});
  ExpectError(RunCommand(train + Arguments{"--listen", desk, "--local", "2", "--parallel",
                                           "dp=2,zero=1", "--optimizer", "adam"}),
              ExitCode::kUsage, {"--listen: no worker can join this job", "zero=1"});
  ExpectError(
      RunCommand(train + Arguments{"--listen", desk, "--local", "2", "--sweep", "lr=0.1,0.2"}),
      ExitCode::kUsage, {"--listen", "a sweep has several"});
}

TEST(Worker, ThatJoinsNeedsKeysBeyondThisMachine) {
  SetHome();
  ExpectError(RunCommand({"worker", "--listen", "127.0.0.1:0", "--join", "10.0.0.7:5000"}),
              ExitCode::kRefused, {"this worker may not join", "10.0.0.7:5000", "--keys"});
}

TEST(BadOutput, IsFoundBeforeTheTraining) {
  const MlpJob job(16);
  const Arguments train =
      Arguments{"train"} + job.files() + Arguments{"--batch", "4", "--steps", "1000000"};
  for (const Arguments& output : std::vector<Arguments>{
           {"-o", "/no/such/folder/out.onnx"},
           {"-o", "/sys/kernel/out.onnx"},
           {"-o", "/tmp"},
           {"--ema", "0.9", "--ema-out", "/no/such/folder/out.onnx"},
           {"--eval-every", "1", "--eval-data", "x=" + job.images, "--eval-labels", job.labels,
            "--best", "/no/such/folder/out.onnx"}}) {
    ExpectError(RunCommand(train + output), ExitCode::kDisk, {output.back()});
  }
  for (const char* const folder : {"/proc/no_checkpoints", "/sys/kernel"}) {
    ExpectError(RunCommand(train + Arguments{"--checkpoint", folder}), ExitCode::kDisk,
                {"--checkpoint: ", folder});
  }
  EXPECT_FALSE(std::filesystem::exists("/sys/kernel/probe"));
}

// What is there is left as it is by a run that ends before its first step.
TEST(BadOutput, AGoodOneIsNotTouchedWhereAnotherIsBad) {
  const MlpJob job(16);
  const std::string out = TestPath("kept.onnx");
  WriteTestFile(out, "as it was");
  ExpectError(RunCommand(Arguments{"train"} + job.files() +
                         Arguments{"--batch", "4", "--steps", "1000000", "-o", out, "--ema", "0.9",
                                   "--ema-out", "/no/such/folder/out.onnx"}),
              ExitCode::kDisk, {"/no/such/folder"});
  EXPECT_EQ(ReadTestFile(out), "as it was");
}

// The key of test 2 of RFC 8032, section 7.1.
class Signed : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteTestFile(private_,
                  "-----BEGIN PRIVATE KEY-----\n"
                  "MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n"
                  "-----END PRIVATE KEY-----\n");
    std::filesystem::permissions(private_, std::filesystem::perms::owner_read);
    WriteTestFile(public_,
                  "-----BEGIN PUBLIC KEY-----\n"
                  "MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\n"
                  "-----END PUBLIC KEY-----\n");
  }
  void TearDown() override { std::filesystem::remove(private_); }

  CommandResult Sign(const std::string& path) {
    return RunCommand({"ckpt", "sign", path, "--key", private_});
  }
  Arguments Train(const MlpJob& job, const std::string& folder, int steps) const {
    return Arguments{"train"} + job.files() + Arguments{"--batch",
                                                        "4",
                                                        "--optimizer",
                                                        "adam",
                                                        "--steps",
                                                        std::to_string(steps),
                                                        "--checkpoint",
                                                        folder,
                                                        "--checkpoint-every",
                                                        "2"};
  }

  const std::string private_ = TestPath("private.pem");
  const std::string public_ = TestPath("public.pem");
};

TEST_F(Signed, AModelIsTakenByAllCommandsAndAChangedOneByNone) {
  const MlpJob job(16);
  std::filesystem::remove(job.model + ".sig");
  const Arguments asks = {"--require-signature", public_};
  ExpectError(RunCommand(Arguments{"inspect", job.model} + asks), ExitCode::kModel,
              {"mlp.onnx\" has no signature", "mlp.onnx.sig", "graph_runner ckpt sign"});
  ASSERT_EQ(Sign(job.model).exit_code, 0);
  for (const Arguments& command : std::vector<Arguments>{
           {"inspect", job.model}, {"check", job.model}, {"ckpt", "verify", job.model}}) {
    const CommandResult result = RunCommand(command + asks);
    EXPECT_EQ(result.exit_code, 0) << command[0] << ": " << result.err;
  }
  std::string bytes = ReadTestFile(job.model);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  WriteTestFile(job.model, bytes);
  ExpectError(RunCommand(Arguments{"inspect", job.model} + asks), ExitCode::kModel,
              {"mlp.onnx\" is not a file that", "its SHA-256 is"});
  EXPECT_EQ(RunCommand(Arguments{"ckpt", "verify", job.model} + asks).exit_code,
            static_cast<int>(ExitCode::kDisk));
}

TEST_F(Signed, AJobGoesOnFromASignedCheckpointAlone) {
  const MlpJob job(16);
  const std::string folder = TestPath("signed_checkpoints");
  std::filesystem::remove_all(folder);
  ASSERT_EQ(RunCommand(Train(job, folder, 2)).exit_code, 0);
  ASSERT_EQ(Sign(job.model).exit_code, 0);
  const Arguments resume =
      Train(job, folder, 4) + Arguments{"--resume", "--require-signature", public_};
  ExpectError(RunCommand(resume), ExitCode::kDisk,
              {"--resume: ", "step-00000002/index.json\" has no signature"});
  ASSERT_EQ(Sign(folder).exit_code, 0);
  const CommandResult verified =
      RunCommand({"ckpt", "verify", folder, "--require-signature", public_});
  EXPECT_EQ(verified.exit_code, 0) << verified.out;
  EXPECT_THAT(verified.out, HasSubstr("step-00000002  whole, signed"));
  // A changed file, whatever is changed of it.
  const std::string index = folder + "/step-00000002/index.json";
  const std::string text = ReadTestFile(index);
  WriteTestFile(index, text + " ");
  ExpectError(RunCommand(resume), ExitCode::kDisk, {"index.json\" is not a file that"});
  WriteTestFile(index, text);
  const CommandResult result = RunCommand(resume);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("resume step 2"));
  // The checkpoint of the run's end is another one, which nobody has signed.
  ExpectError(
      RunCommand(Train(job, folder, 6) + Arguments{"--resume", "--require-signature", public_}),
      ExitCode::kDisk, {"step-00000004/index.json\" has no signature"});
}

TEST_F(Signed, WhatCannotBeSignedOrVerifiedIsSaid) {
  ExpectError(RunCommand({"ckpt", "sign", public_}), ExitCode::kUsage, {"--key KEY.pem"});
  ExpectError(RunCommand({"ckpt", "sign", public_, "--key", public_}), ExitCode::kUsage,
              {"public.pem", "others than its owner may use it"});
  ExpectError(RunCommand({"ckpt", "verify", public_}), ExitCode::kUsage,
              {"--require-signature PUBLIC.pem"});
  ExpectError(RunCommand({"ops", "--require-signature", TestPath("none.pem")}), ExitCode::kUsage,
              {"--require-signature", "none.pem"});
}

}  // namespace
}  // namespace weft::testing
