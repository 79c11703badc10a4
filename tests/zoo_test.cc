// Files that PyTorch's exporters wrote (tests/zoo, by tools/zoo/export.py): what trains is what the
// module trains, and as the module does.
//
// Beside each file lies what PyTorch says of the module: which tensors of the file hold its
// parameters, and its losses in gradient descent in float64. WEFT_RUNNER: graph_runner, whose
// workers are processes.
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "onnx_import/importer.h"
#include "platform/file_system.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

constexpr char kFolder[] = "tests/zoo";

// Biases of zeros that the exporter left out, and that come back.
const std::map<std::string, std::vector<std::string>>& RestoredBiases() {
  static const auto* const names = new std::map<std::string, std::vector<std::string>>{
      {"bert.dynamo.eval", {"model.bert.pooler.dense.bias", "model.classifier.bias"}},
      {"cnn_bn.dynamo.eval", {"5.bias"}},  // of a normalization that is folded
      {"whisper.dynamo.eval", {"model.model.encoder.conv1.bias", "model.model.encoder.conv2.bias"}},
  };
  return *names;
}

// Files whose float tensors are parameters, all of them.
const std::set<std::string>& FilesWithoutConstants() {
  static const auto* const files = new std::set<std::string>{
      "cnn_bn.dynamo.eval", "cnn_bn.legacy.preserve", "dlrm.dynamo.raw", "dlrm.legacy.eval"};
  return *files;
}

// Files whose samples are mixed, and what is said of that: two replicas are refused.
const std::map<std::string, std::string>& FilesThatMixSamples() {
  static const auto* const files = new std::map<std::string, std::string>{
      {"clip.dynamo.eval", "(MatMul) pairs each sample with all others"},
  };
  return *files;
}

// The files' names without ".onnx", sorted.
std::vector<std::string> ZooFiles() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".onnx") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A column of a file that --metrics wrote, by step.
std::vector<double> ColumnOf(const std::string& csv, const std::string& name) {
  std::vector<double> column;
  const std::vector<std::string> lines = absl::StrSplit(csv, '\n', absl::SkipEmpty());
  if (lines.empty()) return column;
  const std::vector<std::string> names = absl::StrSplit(lines[0], ',');
  const auto at = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> cells = absl::StrSplit(lines[i], ',');
    double number = std::nan("");
    EXPECT_TRUE(cells.size() > at && absl::SimpleAtod(cells[at], &number)) << lines[i];
    column.push_back(number);
  }
  return column;
}

std::vector<double> LossesIn(const std::string& csv) { return ColumnOf(csv, "loss"); }

// Whether a loss is `relative` of the true one from it, at most.
void ExpectLosses(const std::vector<double>& losses, const std::vector<double>& truth,
                  double relative) {
  ASSERT_EQ(losses.size(), truth.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], truth[i], relative * std::abs(truth[i])) << "step " << i;
  }
}

class Zoo : public ::testing::TestWithParam<std::string> {
 protected:
  Zoo() {
    std::ifstream file(Path(GetParam() + ".json"));
    EXPECT_TRUE(file.is_open());
    truth_ = Json::parse(file);
  }

  static std::string Path(const std::string& name) { return absl::StrCat(kFolder, "/", name); }

  // For any command that makes the step of this file.
  Arguments StepCommand(const std::string& command, const Arguments& more) const {
    std::vector<std::string> data;
    for (const auto& [input, file] : truth_["data"].items()) {
      data.push_back(absl::StrCat(input, "=", Path(file.get<std::string>())));
    }
    Arguments arguments = {command,       model_,
                           "--data",      absl::StrJoin(data, ","),
                           "--labels",    Path(truth_["labels"].get<std::string>()),
                           "--batch",     absl::StrCat(truth_["batch"].get<int>()),
                           "--optimizer", "sgd"};
    for (const Json& flag : truth_["flags"]) arguments.push_back(flag.get<std::string>());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  Arguments TrainCommand(const std::string& out, const Arguments& more) const {
    Arguments arguments = {"--steps",      absl::StrCat(truth_["steps"].get<int>()),
                           "--no-shuffle", "--metrics",
                           out + ".csv",   "-o",
                           out + ".onnx"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return StepCommand("train", arguments);
  }
  CommandResult Train(const std::string& out) const { return RunCommand(TrainCommand(out, {})); }

  // By the program, with worker processes.
  CommandResult TrainOnTwo(const std::string& out, const std::string& plan) const {
    return RunProgram(TrainCommand(out, {"--local", "2", "--parallel", plan}));
  }
  // The trained rows of `inspect`, by name; a tensor that follows another one is not a row of its
  // own.
  std::map<std::string, Json> TrainedRows() const {
    Arguments arguments = {"inspect", model_, "--output", "json"};
    const CommandResult result = RunCommand(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json report = Json::parse(result.out);
    std::map<std::string, Json> rows;
    for (const Json& row : report["parameters"]) {
      if (row["trains"].get<bool>() && !row.contains("tied_to"))
        rows[row["name"].get<std::string>()] = row;
    }
    return rows;
  }

  // Each parameter of the module, and the tensors of the file that hold it.
  std::map<std::string, std::set<std::string>> HoldersOfParameters() const {
    std::map<std::string, std::set<std::string>> holders;
    for (const auto& [tensor, parameters] : truth_["expected"]["initializers"].items()) {
      for (const Json& parameter : parameters) holders[parameter.get<std::string>()].insert(tensor);
    }
    return holders;
  }

  int64_t TrainedElements() const {
    int64_t elements = 0;
    for (const auto& [name, row] : TrainedRows()) elements += row["elements"].get<int64_t>();
    return elements;
  }

  std::vector<std::string> Restored() const {
    const auto found = RestoredBiases().find(GetParam());
    return found == RestoredBiases().end() ? std::vector<std::string>() : found->second;
  }

  // Some commands print what they find, others end with it.
  static void ExpectRefusal(const Arguments& command, const std::string& why) {
    const CommandResult result = RunCommand(command);
    EXPECT_NE(result.exit_code, 0) << absl::StrJoin(command, " ");
    EXPECT_THAT(absl::StrCat(result.out, result.err), HasSubstr(why))
        << absl::StrJoin(command, " ");
  }

  const std::string model_ = Path(GetParam() + ".onnx");
  Json truth_;
};

std::string NameOfFile(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Files, Zoo, ::testing::ValuesIn(ZooFiles()), NameOfFile);

TEST(ZooFolder, HasFilesOfBothExporters) {
  const std::vector<std::string> names = ZooFiles();
  const auto count = [&names](const std::string& part) {
    return std::count_if(names.begin(), names.end(), [&part](const std::string& name) {
      return absl::StrContains(name, part);
    });
  };
  EXPECT_GE(count(".dynamo."), 5);
  EXPECT_GE(count(".legacy."), 3);
}

// Without such a file the tests below would not see what they are for.
TEST(ZooFolder, HasTheFilesOfWhichMoreIsKnown) {
  const std::vector<std::string> names = ZooFiles();
  const std::set<std::string> files(names.begin(), names.end());
  for (const auto& [name, biases] : RestoredBiases()) EXPECT_EQ(files.count(name), 1u) << name;
  for (const auto& [name, why] : FilesThatMixSamples()) EXPECT_EQ(files.count(name), 1u) << name;
  for (const std::string& name : FilesWithoutConstants()) EXPECT_EQ(files.count(name), 1u) << name;
}

// A list without constants says nothing, so the files that have none are named.
TEST_P(Zoo, NoConstantTrains) {
  const Json& constants = truth_.at("expected").at("constants");
  EXPECT_EQ(constants.empty(), FilesWithoutConstants().count(GetParam()) > 0) << constants;
  const auto rows = TrainedRows();
  EXPECT_FALSE(rows.empty());
  for (const Json& constant : constants) {
    EXPECT_EQ(rows.count(constant.get<std::string>()), 0u) << constant << " is no parameter";
  }
}

TEST_P(Zoo, EveryParameterTrains) {
  const auto rows = TrainedRows();
  const auto parameters = HoldersOfParameters();
  EXPECT_THAT(parameters, Not(IsEmpty()));
  for (const auto& [parameter, holders] : parameters) {
    EXPECT_TRUE(std::any_of(holders.begin(), holders.end(),
                            [&](const std::string& tensor) { return rows.count(tensor) > 0; }))
        << parameter << " is in " << absl::StrJoin(holders, ", ") << ", and does not train";
  }
}

// Merged parameters count each, copies of one count once.
TEST_P(Zoo, AsManyNumbersTrainAsInTheModule) {
  // The truth counts what the file has.
  int64_t elements = truth_["expected"]["elements"].get<int64_t>();
  const auto rows = TrainedRows();
  for (const std::string& name : Restored()) {
    ASSERT_EQ(rows.count(name), 1u) << name;
    elements += rows.at(name)["elements"].get<int64_t>();
  }
  EXPECT_EQ(TrainedElements(), elements);
}

TEST_P(Zoo, CheckSaysWhatTrainDoes) {
  const CommandResult check = RunCommand({"check", model_, "--trainable"});
  EXPECT_EQ(check.exit_code, 0) << check.out << check.err;
  const CommandResult train = Train(TestPath("out"));
  EXPECT_EQ(train.exit_code, 0) << train.err;
}

TEST_P(Zoo, FollowsTheModule) {
  const std::string out = TestPath("out");
  const CommandResult result = Train(out);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ExpectLosses(
      LossesIn(ReadTestFile(out + ".csv")),
      truth_["curve"][Restored().empty() ? "float64" : "with_missing"].get<std::vector<double>>(),
      1e-4);
}

TEST_P(Zoo, WritesNoNumberThatIsNone) {
  const std::string out = TestPath("out");
  ASSERT_EQ(Train(out).exit_code, 0);
  std::set<std::string> infinite;  // in the file as it was: masks
  for (const Json& name : truth_["expected"]["not_finite"])
    infinite.insert(name.get<std::string>());
  const auto trained = ImportModelFile(RealFileSystem(), out + ".onnx");
  ASSERT_TRUE(trained.ok()) << trained.status();
  int checked = 0;
  for (const Variable& variable : trained->graph.variables()) {
    if (!variable.initial.valid() || variable.initial.dtype() != DType::kFloat32) continue;
    ++checked;
    const auto data = variable.initial.data<float>();
    EXPECT_FALSE(std::any_of(data.begin(), data.end(), [](float x) { return std::isnan(x); }))
        << variable.name;
    if (infinite.count(variable.name) > 0) continue;
    EXPECT_TRUE(std::all_of(data.begin(), data.end(), [](float x) { return std::isfinite(x); }))
        << variable.name;
  }
  EXPECT_GT(checked, 0);
}

TEST_P(Zoo, TwoReplicasDoTheSameOrSayWhyNot) {
  const std::string one = TestPath("one");
  ASSERT_EQ(Train(one).exit_code, 0);
  const std::string two = TestPath("two");
  const CommandResult result = TrainOnTwo(two, "dp=2");
  const auto mixes = FilesThatMixSamples().find(GetParam());
  if (mixes != FilesThatMixSamples().end()) {
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kPlan)) << result.err;
    EXPECT_THAT(result.err, HasSubstr(mixes->second));
    ExpectRefusal(StepCommand("plan", {"--local", "2", "--parallel", "dp=2"}), mixes->second);
    return;
  }
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ExpectLosses(LossesIn(ReadTestFile(two + ".csv")), LossesIn(ReadTestFile(one + ".csv")), 1e-5);
}

// Megatron's split is found, so that ranks exchange sums, and changes nothing.
TEST_P(Zoo, TheTensorAxisSplitsTransformers) {
  if (!truth_["transformer"].get<bool>()) GTEST_SKIP() << "no transformer";
  const std::string one = TestPath("one");
  ASSERT_EQ(Train(one).exit_code, 0);
  const std::string two = TestPath("two");
  const CommandResult result = TrainOnTwo(two, "tp=2");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string csv = ReadTestFile(two + ".csv");
  ExpectLosses(LossesIn(csv), LossesIn(ReadTestFile(one + ".csv")), 1e-5);
  for (const double sent : ColumnOf(csv, "bytes_sent")) EXPECT_GT(sent, 0);
}

// These processes are small: what they are beside the model is what the requirement must know.
TEST_P(Zoo, ItsMemoryIsWhatWasSaid) {
  const std::string out = TestPath("out");
  const std::string plan = FilesThatMixSamples().count(GetParam()) > 0 ? "pp=2" : "dp=2";
  for (const Arguments& flags : {Arguments(), Arguments{"--local", "2", "--parallel", plan}}) {
    Arguments more = flags;
    more.insert(more.end(), {"--output", "json"});
    const CommandResult result = RunProgram(TrainCommand(out, more));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const Json memory = Json::parse(result.out)["memory"];
    EXPECT_EQ(memory.size(), flags.empty() ? 1u : 2u);
    for (const Json& rank : memory) {
      const double predicted = rank["predicted_bytes"].get<double>();
      const double peak = rank["peak_bytes"].get<double>();
      EXPECT_LE(peak, predicted) << rank;
      EXPECT_GE(peak, 0.85 * predicted) << rank;
    }
  }
}

}  // namespace
}  // namespace weft::testing
