// A model that computes its loss, as exporters write transformers that got labels: no --loss.
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kChosen[] = "the loss is the model's output 'loss', by its name";
// Weights [2,3] and samples with their labels.
const std::vector<float> kWeights = {0.5f, -1, 0.25f, 1, 0.5f, -0.75f};
const std::vector<std::vector<float>> kSamples = {{1, 2}, {0, 1}, {-1, 3}, {2, -2}};
const std::vector<int64_t> kLabels = {0, 2, 1, 1};

// The mean cross entropy of x W, in double.
double CrossEntropyAtTheStart() {
  double sum = 0;
  for (size_t i = 0; i < kSamples.size(); ++i) {
    double scores[3], total = 0;
    for (int c = 0; c < 3; ++c) {
      scores[c] = double{kSamples[i][0]} * kWeights[c] + double{kSamples[i][1]} * kWeights[3 + c];
      total += std::exp(scores[c]);
    }
    sum += std::log(total) - scores[kLabels[i]];
  }
  return sum / static_cast<double>(kSamples.size());
}

class LossByNameTest : public ::testing::Test {
 protected:
  LossByNameTest() {
    std::vector<float> numbers;
    for (const auto& sample : kSamples) numbers.insert(numbers.end(), sample.begin(), sample.end());
    WriteTestFile(TestPath("x.npy"), ToNpy(Tensor::Of<float>({4, 2}, numbers)).value());
    WriteTestFile(TestPath("y.npy"), ToNpy(Tensor::Of<int64_t>({4}, kLabels)).value());
  }

  // Outputs `loss` first and "logits" second; with a second loss if it has a name.
  static std::string Model(const std::string& loss, const std::string& second = "") {
    Graph graph;
    graph.opsets[""] = 17;
    GraphBuilder b(graph);
    const Dim samples = Dim::Symbol("N");
    const ValueId x =
        graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({samples, 2})});
    const ValueId labels =
        graph.AddInput("labels", {ValueKind::kTensor, DType::kInt64, SymbolicShape({samples})});
    const ValueId w = graph.AddVariable("w", {ValueKind::kTensor, DType::kFloat32, Shape{2, 3}},
                                        Tensor::Of<float>({2, 3}, kWeights), true);
    const ValueId logits = b.Op("MatMul", {x, w});
    const ValueId mean = b.Op("SoftmaxCrossEntropyLoss", {logits, labels});
    b.Name(logits, "logits");
    b.Name(mean, loss);
    graph.AddOutput(mean);
    graph.AddOutput(logits);
    if (!second.empty()) {
      const ValueId other = b.Op("Mul", {mean, b.Float(2)});
      b.Name(other, second);
      graph.AddOutput(other);
    }
    EXPECT_TRUE(b.status().ok()) << b.status();
    return WriteTestModel(absl::StrCat(loss, second, ".onnx"), graph);
  }

  // A command on the model, with data for both inputs.
  static CommandResult Call(const std::string& command, const std::string& model,
                            const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {command,   model,
                                          "--data",  "x=" + TestPath("x.npy"),
                                          "--data",  "labels=" + TestPath("y.npy"),
                                          "--batch", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments);
  }
  static std::vector<double> Losses(const std::string& metrics) {
    std::stringstream lines(ReadTestFile(metrics));
    std::vector<double> losses;
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) losses.push_back(std::stod(line.substr(line.find(',') + 1)));
    return losses;
  }
};

TEST_F(LossByNameTest, TrainsByIt) {
  const std::string model = Model("loss");
  const CommandResult result =
      Call("train", model, {"--steps", "3", "--lr", "0.5", "--metrics", TestPath("named.csv")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("loss   output:loss (by the output's name), sgd"));
  const std::vector<double> losses = Losses(TestPath("named.csv"));
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_NEAR(losses[0], CrossEntropyAtTheStart(), 1e-6);
  const CommandResult given = Call(
      "train", model,
      {"--steps", "3", "--lr", "0.5", "--loss", "output:loss", "--metrics", TestPath("given.csv")});
  ASSERT_EQ(given.exit_code, 0) << given.err;
  EXPECT_THAT(given.err, Not(HasSubstr("by the output's name")));
  EXPECT_EQ(Losses(TestPath("given.csv")), losses);
}

TEST_F(LossByNameTest, IsWhatEveryCommandTakes) {
  const std::string model = Model("loss");
  const CommandResult check = Call("check", model, {"--trainable"});
  EXPECT_EQ(check.exit_code, 0) << check.out << check.err;
  EXPECT_THAT(check.out, HasSubstr(kChosen));
  const CommandResult plan = Call("plan", model, {});
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.err, HasSubstr(kChosen));
  const CommandResult simulate = Call("simulate", model, {});
  EXPECT_EQ(simulate.exit_code, 0) << simulate.err;
  const CommandResult verify =
      Call("verify", model, {"--local", "2", "--parallel", "dp=2", "--micro-batches", "2"});
  EXPECT_EQ(verify.exit_code, 0) << verify.err;
  EXPECT_THAT(verify.err, HasSubstr(kChosen));
  EXPECT_THAT(RunCommand({"inspect", model}).out,
              HasSubstr("loss, unless --loss gives another: output loss, by its name\n"));
  EXPECT_EQ(
      nlohmann::json::parse(RunCommand({"inspect", model, "--output", "json"}).out)["loss_by_name"],
      "loss");
}

TEST_F(LossByNameTest, IsWhatEvalPrints) {
  const CommandResult result = Call("eval", Model("lm_loss"), {});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ASSERT_THAT(result.out, HasSubstr("loss "));
  EXPECT_NEAR(std::stod(result.out.substr(5)), CrossEntropyAtTheStart(), 1e-6);
}

// The evaluations of such a model measure its loss, not the accuracy.
TEST_F(LossByNameTest, IsWhatASweepComparesBy) {
  const std::string out = TestPath("best.onnx");
  const CommandResult result =
      Call("train", Model("loss"),
           {"--steps", "4", "--eval-every", "4", "--eval-data",
            absl::StrCat("x=", TestPath("x.npy"), ",labels=", TestPath("y.npy")), "--sweep",
            "lr=0.001,0.1", "--select", "best", "-o", out, "--output", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report["score"]["metric"], "loss");
  EXPECT_EQ(report["best"], 2);
  const CommandResult measured = Call("eval", out, {});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_NEAR(report["trials"][1]["score"].get<double>(), std::stod(measured.out.substr(5)), 1e-5);
}

TEST_F(LossByNameTest, GivesWayToALossThatIsGiven) {
  const CommandResult result =
      Call("train", Model("loss"),
           {"--steps", "1", "--loss", "softmax_cross_entropy", "--loss-output", "logits"});
  EXPECT_THAT(result.err, HasSubstr("--labels is required"));
}

TEST_F(LossByNameTest, IsRefusedWhereSeveralAreNamedSo) {
  const std::string model = Model("loss_a", "loss_b");
  constexpr char kTie[] =
      "the names of several outputs say that they are the loss: loss_a, loss_b;"
      " give one of them, as --loss output:loss_a";
  for (const char* command : {"plan", "verify", "eval", "simulate"}) {
    const CommandResult result = Call(command, model, {});
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage)) << command;
    EXPECT_THAT(result.err, HasSubstr(kTie)) << command;
  }
  EXPECT_THAT(Call("train", model, {"--steps", "1"}).err, HasSubstr(kTie));
  EXPECT_THAT(Call("check", model, {"--trainable"}).err, HasSubstr(kTie));
  EXPECT_EQ(RunCommand({"check", model}).exit_code, 0) << "nobody asked whether it trains";
  EXPECT_THAT(RunCommand({"inspect", model}).out, HasSubstr(kTie));
  EXPECT_EQ(Call("train", model, {"--steps", "1", "--loss", "output:loss_b"}).exit_code, 0);
}

TEST_F(LossByNameTest, IsNotGuessedFromOtherNames) {
  const CommandResult result = Call("train", Model("objective"), {"--steps", "1"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(result.err, HasSubstr("--labels is required"));
}

}  // namespace
}  // namespace weft::testing
