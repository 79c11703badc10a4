// Data of every kind from the command line, as a person gives it, through train and eval.
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"
#include "tests/command_run.h"
#include "tests/corpora.h"
#include "tests/testing/character_data.h"
#include "tools/console/exit_code.h"
#include "training/records/record_file.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void AddInput(::onnx::ValueInfoProto& value, const std::string& name,
              const std::vector<int64_t>& sample) {
  value.set_name(name);
  auto& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(::onnx::TensorProto::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_param("N");
  for (const int64_t dim : sample) type.mutable_shape()->add_dim()->set_dim_value(dim);
}

void AddZeros(::onnx::GraphProto& graph, const std::string& name,
              const std::vector<int64_t>& dims) {
  auto& tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(::onnx::TensorProto::FLOAT);
  int64_t elements = 1;
  for (const int64_t dim : dims) {
    tensor.add_dims(dim);
    elements *= dim;
  }
  tensor.set_raw_data(std::string(static_cast<size_t>(elements) * sizeof(float), '\0'));
}

// x [N, sample...] -> Flatten -> Gemm -> logits [N, classes], all weights zero.
std::string LinearModel(const std::vector<int64_t>& sample, int64_t classes) {
  ::onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  ::onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("linear");
  AddInput(*graph.add_input(), "x", sample);
  AddInput(*graph.add_output(), "logits", {classes});
  int64_t features = 1;
  for (const int64_t dim : sample) features *= dim;
  AddZeros(graph, "weight", {features, classes});
  AddZeros(graph, "bias", {classes});
  auto& flatten = *graph.add_node();
  flatten.set_op_type("Flatten");
  flatten.set_name("flatten");
  flatten.add_input("x");
  flatten.add_output("flat");
  auto& gemm = *graph.add_node();
  gemm.set_op_type("Gemm");
  gemm.set_name("gemm");
  for (const char* name : {"flat", "weight", "bias"}) gemm.add_input(name);
  gemm.add_output("logits");
  const std::string path = TestPath("linear.onnx");
  WriteTestFile(path, model.SerializeAsString());
  return path;
}

CommandResult RunOn(const std::string& command, const std::string& model,
                    const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {command, model};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return RunCommand(all);
}

double Accuracy(const CommandResult& evaluated) {
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.err;
  double accuracy = -1;
  const std::vector<std::string> words =
      absl::StrSplit(evaluated.out, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  EXPECT_TRUE(words.size() == 2 && absl::SimpleAtod(words[1], &accuracy)) << evaluated.out;
  return accuracy;
}

// Three classes of points in the plane, apart.
std::string PointsFile() {
  std::string text = "east,north,\"town, quarter\"\n";
  for (int i = 0; i < 30; ++i) {
    const double step = 0.01 * i;
    absl::StrAppend(&text, 100 + step, ",", 7 - step, ",Ulm\n");
    absl::StrAppend(&text, 101 - step, ",", 9 + step, ",\"Bonn\"\n");
    absl::StrAppend(&text, 104 + step, ",", 8 - step, ",Kiel\n");
  }
  const std::string path = TestPath("points.csv");
  WriteTestFile(path, text);
  return path;
}

TEST(CliData, ACsvFileTrainsAndItsHeldOutPartMeasures) {
  const std::string points = PointsFile();
  const std::string model = LinearModel({2}, 3);
  const std::string trained = TestPath("trained.onnx");
  const std::vector<std::string> data = {"--data",
                                         "x=" + points + ":east,north",
                                         "--labels",
                                         points + ":town, quarter",
                                         "--batch",
                                         "16",
                                         "--normalize",
                                         "x=auto",
                                         "--validation-split",
                                         "0.2"};
  std::vector<std::string> arguments = data;
  for (const char* more : {"--epochs", "40", "--lr", "0.5", "-o"}) arguments.push_back(more);
  arguments.push_back(trained);
  const CommandResult result = RunOn("train", model, arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("72 samples, 5 steps of 16 per epoch"),
                                HasSubstr("without what --validation-split 0.2 holds out"),
                                HasSubstr("class  labels: 0 = Bonn, 1 = Kiel, 2 = Ulm"),
                                HasSubstr("change --normalize x=101."),
                                HasSubstr("input  stalled the steps for")));
  const CommandResult evaluated = RunOn("eval", trained, data);
  EXPECT_EQ(Accuracy(evaluated), 1);
  EXPECT_THAT(evaluated.err, HasSubstr("only what --validation-split 0.2 holds out"));
}

// The second column, its name first; after it come times.
std::vector<std::string> Losses(const std::string& metrics) {
  std::vector<std::string> losses;
  for (const absl::string_view line : absl::StrSplit(ReadTestFile(metrics), '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    if (fields.size() > 1) losses.push_back(fields[1]);
  }
  return losses;
}

TEST(CliData, ReadingAheadAndThreadsChangeNoLoss) {
  const std::string points = PointsFile();
  const std::string model = LinearModel({2}, 3);
  std::vector<std::vector<std::string>> losses;
  for (const std::string prefetch : {"0", "1", "5"}) {
    const std::string metrics = TestPath(prefetch + ".csv");
    const CommandResult result =
        RunOn("train", model,
              {"--data", "x=" + points + ":0-1", "--labels", points + ":2", "--batch", "16",
               "--normalize", "x=102,8/2,1", "--epochs", "3", "--prefetch", prefetch,
               "--reader-threads", "3", "--metrics", metrics, "--drop-last"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    losses.push_back(Losses(metrics));
  }
  EXPECT_EQ(losses[0].size(), 1u + 3 * 5);  // a header, and three epochs
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_EQ(losses[2], losses[0]);
}

TEST(CliData, TensorBoardGetsAPointForEachStep) {
  const std::string points = PointsFile();
  const std::string folder = TestPath("board");
  std::filesystem::remove_all(folder);
  const CommandResult result =
      RunOn("train", LinearModel({2}, 3),
            {"--data", "x=" + points + ":0-1", "--labels", points + ":2", "--batch", "30",
             "--steps", "4", "--lr", "1e-5", "--tensorboard", folder});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  ASSERT_EQ(paths.size(), 1u);
  const auto events = FindRecords(ReadTestFile(paths[0]), paths[0]);
  ASSERT_TRUE(events.ok()) << events.status();
  EXPECT_GE(events->size(), 1u + 4u);
}

struct BadFlag {
  std::vector<std::string> arguments;
  ExitCode code;
  std::vector<std::string> parts;
};

TEST(CliData, WhatDoesNotFitIsNamed) {
  const std::string points = PointsFile();
  const std::string model = LinearModel({2}, 3);
  const std::string x = "x=" + points + ":0-1";
  const std::vector<BadFlag> cases = {
      {{"--data", "x=" + points + ":0-7"}, ExitCode::kData, {"points.csv", "no column '0-7'"}},
      {{"--data", "x=" + points + ":0"}, ExitCode::kData, {"input 'x' has 2 elements", "has 1"}},
      {{"--data", "x=" + points + ":0-2"}, ExitCode::kData, {"line 2", "'Ulm'", "a number"}},
      {{"--data", x, "--format", "parquet"}, ExitCode::kUsage, {"--format parquet", "there are"}},
      {{"--data", x, "--format", "y=csv"}, ExitCode::kUsage, {"there is no --data y=FILE"}},
      {{"--data", x, "--normalize", "x=1"}, ExitCode::kUsage, {"--normalize", "MEAN/DEVIATION"}},
      {{"--data", x, "--normalize", "x=1,2,3/1,1,1"}, ExitCode::kData, {"3 means", "2 channels"}},
      {{"--data", x, "--normalize", "labels=0/1"}, ExitCode::kData, {"only floating inputs"}},
      {{"--data", x, "--augment", "x=spin"}, ExitCode::kUsage, {"'spin' is unknown"}},
      {{"--data", x, "--augment", "x=flip"}, ExitCode::kData, {"expected an image"}},
      {{"--data", x, "--pad", "x=0"}, ExitCode::kUsage, {"--pad x", "one length or several"}},
      {{"--data", x, "--pad", "x=4"}, ExitCode::kData, {"--pad is for one column", "2 are named"}},
      {{"--data", x, "--mask", "m=x"}, ExitCode::kUsage, {"there is no --pad x=N"}},
      {{"--data", x, "--validation-split", "1"}, ExitCode::kUsage, {"0 to less than 1"}},
      {{"--data", x, "--validation-split", "0.001"}, ExitCode::kData, {"and 0 to validate"}},
      {{"--data", x, "--image-shape", "3x4"}, ExitCode::kUsage, {"for example 3x32x32"}},
      {{"--data", x, "--classes", "Bonn,Ulm"}, ExitCode::kData, {"'Kiel', expected one of the 2"}},
  };
  for (const BadFlag& bad : cases) {
    std::vector<std::string> arguments = {"--labels", points + ":2", "--steps", "1"};
    arguments.insert(arguments.end(), bad.arguments.begin(), bad.arguments.end());
    const CommandResult result = RunOn("train", model, arguments);
    EXPECT_EQ(result.exit_code, static_cast<int>(bad.code)) << result.err;
    for (const std::string& part : bad.parts) EXPECT_THAT(result.err, HasSubstr(part));
  }
}

class CliCorpora : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no iris, text and images";
    corpora_ = *CorporaFolder();
  }
  std::string corpora_;
};

TEST_F(CliCorpora, IrisIsLearnedFromItsCsvFile) {
  const std::string iris = corpora_ + "/text-iris/iris.csv";
  const std::string trained = TestPath("trained.onnx");
  const std::vector<std::string> data = {
      "--data", "x=" + iris + ":0-3", "--labels", iris + ":class",      "--batch",
      "15",     "--normalize",        "x=auto",   "--validation-split", "0.2"};
  std::vector<std::string> arguments = data;
  for (const char* more : {"--epochs", "60", "--lr", "0.3", "-o"}) arguments.push_back(more);
  arguments.push_back(trained);
  const CommandResult result = RunOn("train", LinearModel({4}, 3), arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("0 = setosa, 1 = versicolor, 2 = virginica"));
  EXPECT_GE(Accuracy(RunOn("eval", trained, data)), 0.9);
}

// A text file gives what the same tokens give as arrays.
TEST_F(CliCorpora, TextTrainsAsItsTokensDo) {
  const std::string model = corpora_ + "/training-models/gpt_char.onnx";
  const std::string text = corpora_ + "/text-iris/tinyshakespeare.txt";
  const auto arrays = WriteCharacterData(ReadCorpusText(corpora_), 24, ::testing::TempDir());
  const std::vector<std::string> common = {"--batch", "8",   "--steps",     "3",
                                           "--lr",    "0.1", "--no-shuffle"};
  const auto losses = [&](std::vector<std::string> arguments, const std::string& name) {
    const std::string metrics = TestPath(name);
    arguments.insert(arguments.end(), common.begin(), common.end());
    arguments.insert(arguments.end(), {"--metrics", metrics});
    const CommandResult result = RunOn("train", model, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Losses(metrics);
  };
  const auto of_arrays =
      losses({"--data", "idx=" + arrays.at("idx"), "--labels", arrays.at("labels")}, "arrays.csv");
  const auto of_text = losses({"--data", "idx=" + text, "--labels", text, "--vocabulary",
                               "characters", "--sequence-length", "64"},
                              "text.csv");
  EXPECT_EQ(of_text, of_arrays);
  ASSERT_GE(of_text.size(), 4u);
  double first = 0;
  EXPECT_TRUE(absl::SimpleAtod(of_text[1], &first));
  EXPECT_NEAR(first, 4.17, 0.3);  // about log(65): nothing is known yet
}

TEST_F(CliCorpora, AugmentedImagesAreLearned) {
  const std::string folder = corpora_ + "/cifar10-subset/";
  const std::string trained = TestPath("trained.onnx");
  const CommandResult result =
      RunOn("train", LinearModel({3, 32, 32}, 10), {"--data",      "x=" + folder + "train.bin",
                                                    "--labels",    folder + "train.bin",
                                                    "--format",    "cifar10",
                                                    "--augment",   "x=flip,crop:2",
                                                    "--normalize", "x=0.5/0.25",
                                                    "--epochs",    "3",
                                                    "--batch",     "50",
                                                    "--lr",        "0.001",
                                                    "--optimizer", "momentum",
                                                    "-o",          trained});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GE(Accuracy(RunOn("eval", trained,
                           {"--data", "x=" + folder + "test.bin", "--labels", folder + "test.bin",
                            "--format", "cifar10", "--normalize", "x=0.5/0.25"})),
            0.25);
}

}  // namespace
}  // namespace weft::testing
