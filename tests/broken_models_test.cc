// Every broken model ends in one paragraph that says what is wrong and where, with the exit code of
// models, in a second and in little memory: through `inspect`, `check` and `run`.
#include "onnx_import/testing/broken_models.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"
#include "platform/process_memory.h"
#include "tensor/tensor.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {

// What a failure calls it.
static void PrintTo(const BrokenModel& model, std::ostream* out) { *out << model.name; }

namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kMaxProcessorSeconds = 1;
constexpr int64_t kMaxMemoryGrowth = int64_t{512} << 20;
constexpr size_t kLongestParagraph = 4096;

// Of this process, in seconds; what else runs on the machine does not count.
double ProcessorTime() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return time.tv_sec + 1e-6 * time.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct MeasuredResult {
  CommandResult result;
  double processor_seconds = 0;
  int64_t memory_growth = 0;
};

MeasuredResult Measure(const std::vector<std::string>& arguments) {
  ForgetPeakMemory();
  const int64_t memory = MeasureProcessMemory(RealFileSystem()).bytes;
  const double begin = ProcessorTime();
  MeasuredResult measured;
  measured.result = RunCommand(arguments);
  measured.processor_seconds = ProcessorTime() - begin;
  const ProcessMemory after = MeasureProcessMemory(RealFileSystem());
  // A control group's peak cannot be begun anew.
  measured.memory_growth = (after.of_control_group ? after.bytes : after.peak_bytes) - memory;
  return measured;
}

// The folder of the running test with the model and what lies beside it; returns the model's path.
std::string WriteBrokenModel(const BrokenModel& model) {
  const std::string folder = ::testing::TempDir() + "/broken/" + model.name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  WriteTestFile(folder + "/model.onnx", model.bytes);
  for (const BrokenModel::File& file : model.files) {
    const std::string path = folder + "/" + file.name;
    if (file.link_target.empty()) {
      WriteTestFile(path, file.bytes);
    } else {
      std::filesystem::create_symlink(file.link_target, path);
    }
  }
  return folder + "/model.onnx";
}

void ExpectBounded(const MeasuredResult& measured) {
  EXPECT_LT(measured.processor_seconds, kMaxProcessorSeconds);
  EXPECT_LT(measured.memory_growth, kMaxMemoryGrowth);
}

// "error: " and one line of text, for a terminal.
void ExpectOneParagraph(const std::string& text) {
  EXPECT_THAT(text, StartsWith("error: "));
  EXPECT_LT(text.size(), kLongestParagraph);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  for (const char c : text) {
    EXPECT_FALSE(static_cast<unsigned char>(c) < 0x20 && c != '\n') << text;
  }
}

class BrokenModelTest : public ::testing::TestWithParam<BrokenModel> {
 protected:
  void ExpectError(const std::vector<std::string>& arguments, ExitCode code = ExitCode::kModel) {
    SCOPED_TRACE(arguments.front());
    const MeasuredResult measured = Measure(arguments);
    EXPECT_EQ(measured.result.exit_code, static_cast<int>(code));
    EXPECT_EQ(measured.result.out, "");
    EXPECT_THAT(measured.result.err, HasSubstr("model.onnx"));
    ExpectOneParagraph(measured.result.err);
    for (const std::string& part : GetParam().parts) {
      EXPECT_THAT(measured.result.err, HasSubstr(part));
    }
    ExpectBounded(measured);
  }

  void ExpectSuccess(const std::vector<std::string>& arguments) {
    SCOPED_TRACE(arguments.front());
    const MeasuredResult measured = Measure(arguments);
    EXPECT_EQ(measured.result.exit_code, 0) << measured.result.err;
    ExpectBounded(measured);
  }

  // It lists what it found and needs no message.
  void ExpectFindings(const std::string& model) {
    const MeasuredResult measured = Measure({"check", model});
    EXPECT_EQ(measured.result.exit_code, static_cast<int>(ExitCode::kModel));
    for (const std::string& part : GetParam().parts) {
      EXPECT_THAT(measured.result.out, HasSubstr(part));
    }
    ExpectBounded(measured);
  }
};

TEST_P(BrokenModelTest, GivesOneParagraphInBoundedTimeAndMemory) {
  const std::string model = WriteBrokenModel(GetParam());
  const std::string folder = model.substr(0, model.rfind('/'));
  const Tensor zeros = Tensor::Zeros(DType::kFloat32, {2, 4}).value();
  WriteTestFile(folder + "/x.npy", ToNpy(zeros).value());
  ExpectError({"run", model, "--input", "x=" + folder + "/x.npy", "--output-dir", folder + "/out"},
              GetParam().found_by == FoundBy::kMemory ? ExitCode::kMemory : ExitCode::kModel);
  switch (GetParam().found_by) {
    case FoundBy::kImport:
      ExpectError({"inspect", model});
      ExpectError({"check", model});
      break;
    case FoundBy::kCheck:
      ExpectSuccess({"inspect", model});
      ExpectFindings(model);
      break;
    case FoundBy::kRun:
    case FoundBy::kMemory:
      ExpectSuccess({"inspect", model});
      ExpectSuccess({"check", model});
      break;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BrokenModelTest, ::testing::ValuesIn(BrokenModels()),
                         [](const auto& info) { return info.param.name; });

TEST(BrokenModels, AreFortyAtLeastAndNoneTwice) {
  std::set<std::string> names;
  for (const BrokenModel& model : BrokenModels()) names.insert(model.name);
  EXPECT_GE(names.size(), 40u);
  EXPECT_EQ(names.size(), BrokenModels().size());
}

// A custom op that breaks its word, in a model that is whole.
class FaultyOp : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(FaultyOp, IsNamedAndEndsTheRun) {
  const auto& [op, part] = GetParam();
  onnx::ModelProto model = NamedModel("agraph (float[N,4] x) => (float[M,4] y) { y = Relu(x) }");
  model.mutable_graph()->mutable_node(0)->set_op_type(op);
  model.mutable_graph()->mutable_node(0)->set_domain("faulty");
  onnx::OperatorSetIdProto& opset = *model.add_opset_import();
  opset.set_domain("faulty");
  opset.set_version(1);
  const std::string path = WriteBrokenModel({op, model.SerializeAsString(), FoundBy::kRun, {}, {}});
  const std::string folder = path.substr(0, path.rfind('/'));
  WriteTestFile(folder + "/x.npy", ToNpy(Tensor::Zeros(DType::kFloat32, {2, 4}).value()).value());
  const CommandResult result =
      RunCommand({"run", path, "--input", "x=" + folder + "/x.npy", "--output-dir", folder + "/out",
                  "--op_library", "ops/custom/testing/faulty_ops.so"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kModel)) << result.out;
  ExpectOneParagraph(result.err);
  EXPECT_THAT(result.err, HasSubstr("model.onnx"));
  EXPECT_THAT(result.err, HasSubstr("node 'node0' (faulty::"));
  EXPECT_THAT(result.err, HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(All, FaultyOp,
                         ::testing::Values(std::pair{"Throws", "out of ideas"},
                                           std::pair{"NoType", "output 0"}),
                         [](const auto& info) { return std::string(info.param.first); });

// The schema function of this one sets no type: had it run, the error would be another one. Each
// command is a process of its own, as a library that has been loaded keeps to the rules of then.
TEST(DeniedOp, IsRefusedByEveryCommandBeforeAFunctionOfItRuns) {
  onnx::ModelProto model = NamedModel("agraph (float[N,4] x) => (float[M,4] y) { y = Relu(x) }");
  model.mutable_graph()->mutable_node(0)->set_op_type("NoType");
  model.mutable_graph()->mutable_node(0)->set_domain("faulty");
  onnx::OperatorSetIdProto& opset = *model.add_opset_import();
  opset.set_domain("faulty");
  opset.set_version(1);
  const std::string path =
      WriteBrokenModel({"DeniedOp", model.SerializeAsString(), FoundBy::kRun, {}, {}});
  const std::string folder = path.substr(0, path.rfind('/'));
  WriteTestFile(folder + "/x.npy", ToNpy(Tensor::Zeros(DType::kFloat32, {2, 4}).value()).value());
  const std::vector<std::vector<std::string>> commands = {
      {"run", path, "--input", "x=" + folder + "/x.npy", "--output-dir", folder + "/out"},
      {"inspect", path},
      {"check", path},
      {"plan", path, "--batch", "2"},
      {"train", path, "--data", "x=" + folder + "/x.npy", "--steps", "1", "--batch", "2"}};
  for (std::vector<std::string> command : commands) {
    SCOPED_TRACE(command[0]);
    command.insert(command.end(), {"--op_library", "ops/custom/testing/faulty_ops.so"});
    std::vector<std::string> denied = command;
    denied.insert(denied.end(), {"--deny-ops", "faulty::No*"});
    const CommandResult result = RunProgram(denied);
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kModel)) << result.err;
    ExpectOneParagraph(result.err);
    EXPECT_THAT(result.err, HasSubstr("node 'node0' (NoType): operator 'faulty::NoType' is denied "
                                      "by --deny-ops 'faulty::No*'"));
    std::vector<std::string> not_allowed = command;
    not_allowed.insert(not_allowed.end(), {"--allow-ops", "*"});
    EXPECT_THAT(RunProgram(not_allowed).err, HasSubstr("operator 'faulty::NoType' is not allowed"));
    const CommandResult allowed = RunProgram(command);
    EXPECT_THAT(allowed.err, Not(HasSubstr("-ops")));
  }
}

TEST(DeniedOp, APatternThatIsNoneIsAUsageErrorAndAnIdleOneANote) {
  const CommandResult bad = RunCommand({"ops", "--deny-ops", "faulty::"});
  EXPECT_EQ(bad.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(bad.err, HasSubstr("--deny-ops 'faulty::' is no pattern of operators"));
  const CommandResult idle = RunCommand({"ops", "--deny-ops", "Lop", "--deny-ops", "corp::*"});
  EXPECT_EQ(idle.exit_code, 0);
  EXPECT_THAT(idle.err, HasSubstr("note: --deny-ops 'Lop' fits no operator that is known"));
  EXPECT_THAT(idle.err, Not(HasSubstr("corp")));
}

}  // namespace
}  // namespace weft::testing
