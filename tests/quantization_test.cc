// Quantization-aware training under every kind of parallelism against one process, and from the
// command line to the exported model.
#include "training/quantization/quantization.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/graph_wire.h"
#include "onnx_import/importer.h"
#include "ops/testing/test_tensors.h"
#include "placement/files/plan_file.h"
#include "tests/command_run.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The graph as a file, imported: its names are the same.
absl::StatusOr<ImportedModel> Imported(const Graph& graph) {
  auto bytes = GraphToOnnx(graph, {.annotations = false, .opset = 21});
  if (!bytes.ok()) return bytes.status();
  auto file = ModelFile::Parse(*std::move(bytes), "test.onnx");
  if (!file.ok()) return file.status();
  auto model = ImportModel(*file);
  if (!model.ok()) return model;
  for (Variable& variable : model->graph.mutable_variables()) {
    const Variable* const original = graph.FindVariable(variable.name);
    variable.trainable = original != nullptr && original->trainable;
  }
  return model;
}

// ---- On several workers.

constexpr int64_t kBatch = 13;

class QuantizedModel {
 public:
  QuantizedModel(const std::string& name, QuantizationKind kind) {
    auto model = BuildEquivalenceModel(name, 3 * kBatch);
    EXPECT_TRUE(model.ok()) << model.status();
    auto imported = Imported(model->graph);
    EXPECT_TRUE(imported.ok()) << imported.status();
    QuantizationSpec spec;
    spec.kind = kind;
    spec.block = 4;
    const auto quantization = AddQuantization(*imported, spec);
    EXPECT_TRUE(quantization.ok()) << quantization.status();
    graph_ = std::move(imported->graph);
    ranges_ = quantization->inputs.size();
    run_.data = WriteDataFiles(*model, ::testing::TempDir());
    run_.batch = kBatch;
    run_.steps = 6;
    run_.optimizer.kind = "momentum";
    run_.optimizer.learning_rate = 0.02;
  }

  TrainingOutcome Train(const std::string& plan, bool strict = false, int micro_batches = 4) {
    run_.plan = ParseParallel(plan).value();
    run_.plan.micro_batches = micro_batches;
    run_.plan.strict = strict;
    if (run_.plan.mesh.tensor > 1) {
      run_.plan.tensor_shardings = {{"*.qkv.weight", AxisSharding::Split(1, 3)},
                                    {"*.up.weight", AxisSharding::Split(1)},
                                    {"*.out.weight", AxisSharding::Split(0)},
                                    {"*.down.weight", AxisSharding::Split(0)}};
    }
    run_.workers = run_.plan.mesh.size();
    auto outcome = RunGraph(graph_, run_);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.ok() ? *std::move(outcome) : TrainingOutcome();
  }

  size_t ranges() const { return ranges_; }

 private:
  Graph graph_;
  size_t ranges_ = 0;
  TrainingRun run_;
};

std::map<std::string, Tensor> RangesOf(const TrainingOutcome& outcome) {
  std::map<std::string, Tensor> ranges;
  for (const auto& [name, value] : outcome.parameters) {
    if (name.ends_with("/range")) ranges[name] = value;
  }
  return ranges;
}

// A number that rounds to the other side of a step on other workers, whose sums differ in the last
// bits, moves by a whole step: so losses are compared coarsely, and ranges finely.
constexpr double kOneRoundingMore = 2e-3;

class QuantizedOn : public ::testing::TestWithParam<std::string> {};

TEST_P(QuantizedOn, SeveralWorkersHaveTheLossesOfOne) {
  QuantizedModel model("gpt", QuantizationKind::kInt8);
  const TrainingOutcome single = model.Train("dp=1");
  ASSERT_EQ(single.losses.size(), 6u);
  EXPECT_LT(single.losses.back(), single.losses.front());
  const auto ranges = RangesOf(single);
  EXPECT_EQ(ranges.size(), model.ranges());
  const TrainingOutcome spread = model.Train(GetParam());
  EXPECT_LE(LargestRelativeGap(spread.losses, single.losses), kOneRoundingMore);
  const auto others = RangesOf(spread);
  ASSERT_EQ(others.size(), ranges.size());
  for (const auto& [name, range] : ranges) {
    for (int i = 0; i < 3; ++i) {
      const double expected = range.data<float>()[i];
      EXPECT_NEAR(others.at(name).data<float>()[i], expected, 1e-5 + 1e-2 * std::fabs(expected))
          << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, QuantizedOn,
                         ::testing::Values("dp=2", "tp=2", "pp=2", "dp=2,zero=3", "dp=2,tp=2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return c == '=' || c == ','; }, '_');
                           return name;
                         });

// One thread for each worker, and sums in one order: no rounding differs.
TEST(StrictQuantization, HasTheSameBitsOnAnyNumberOfWorkers) {
  for (const QuantizationKind kind :
       {QuantizationKind::kInt8, QuantizationKind::kInt4, QuantizationKind::kFp8}) {
    QuantizedModel model("lenet", kind);
    const TrainingOutcome single = model.Train("dp=1", /*strict=*/true);
    for (const char* plan : {"dp=2", "dp=4", "pp=2"}) {
      SCOPED_TRACE(plan);
      const TrainingOutcome spread = model.Train(plan, /*strict=*/true);
      EXPECT_EQ(spread.losses, single.losses);
      ASSERT_EQ(spread.parameters.size(), single.parameters.size());
      for (const auto& [name, value] : single.parameters) {
        EXPECT_TRUE(BitwiseEqual(spread.parameters.at(name), value)) << name;
      }
    }
  }
}

// A range is that of the whole batch: the input's does not know the micro-batches.
TEST(QuantizationRanges, DoNotDependOnHowTheBatchIsCut) {
  QuantizedModel model("mlp", QuantizationKind::kInt8);
  const auto whole = RangesOf(model.Train("dp=1", false, 1));
  const auto cut = RangesOf(model.Train("dp=1", false, 5));
  ASSERT_TRUE(whole.contains("x/range"));
  EXPECT_TRUE(BitwiseEqual(whole.at("x/range"), cut.at("x/range")));
  const float* const range = whole.at("x/range").data<float>().data();
  // Six of the averages' shares of 0.05 each.
  EXPECT_NEAR(range[2], 1 - std::pow(0.95, 6), 1e-6);
}

// ---- From the command line.

constexpr int64_t kSamples = 64;

class QuantizedFile : public ::testing::Test {
 protected:
  QuantizedFile() {
    auto model = BuildEquivalenceModel("lenet", kSamples);
    EXPECT_TRUE(model.ok()) << model.status();
    auto bytes = GraphToOnnx(model->graph, {.annotations = false, .opset = 17});
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    WriteTestFile(model_, *bytes);
    for (const auto& [name, tensor] : model->data) {
      const std::string path = TestPath(name + ".npy");
      WriteTestFile(path, ToNpy(tensor).value());
      if (name == "labels") {
        data_.insert(data_.end(), {"--labels", path});
      } else {
        data_.insert(data_.end(), {"--data", name + "=" + path});
      }
    }
    data_.insert(data_.end(), {"--batch", "16"});
  }

  CommandResult Run(const std::string& command, const std::string& model,
                    const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {command, model};
    arguments.insert(arguments.end(), data_.begin(), data_.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments);
  }

  CommandResult Train(const std::vector<std::string>& more) const {
    std::vector<std::string> flags = {"--lr", "0.05", "--seed", "3"};
    flags.insert(flags.end(), more.begin(), more.end());
    return Run("train", model_, flags);
  }

  // The number after the last `word`.
  static double Number(const std::string& text, const std::string& word) {
    const size_t at = text.rfind(word);
    double number = std::nan("");
    if (at == std::string::npos) return number;
    const std::string rest = text.substr(at + word.size());
    EXPECT_TRUE(absl::SimpleAtod(rest.substr(0, rest.find_first_of(" ,}\n")), &number)) << text;
    return number;
  }

  // Of eval, with all digits.
  double Loss(const std::string& model) const {
    const CommandResult result = Run("eval", model, {"--metric", "loss", "--output", "json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Number(result.out, "\"loss\": ");
  }

  const std::string model_ = TestPath("model.onnx");
  std::vector<std::string> data_;
};

// The evaluation in the job is of the same numbers as that of the file that it leaves.
TEST_F(QuantizedFile, EvaluatesAsTheTrainingDid) {
  for (const char* kind : {"int8", "int4", "fp8"}) {
    SCOPED_TRACE(kind);
    const std::string out = TestPath(std::string(kind) + ".onnx");
    const CommandResult trained =
        Train({"--qat", kind, "--steps", "6", "--eval-every", "6", "--eval-metric", "loss",
               "--eval-data", "x=" + TestPath("x.npy"), "--eval-labels", TestPath("labels.npy"),
               "-o", out, "--metrics", TestPath("metrics.jsonl")});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    EXPECT_THAT(trained.err, HasSubstr(std::string("qat    ") + kind + ": 5 products, 5 weights"));
    const std::string metrics = ReadTestFile(TestPath("metrics.jsonl"));
    // Metrics have nine digits.
    EXPECT_NEAR(Loss(out), Number(metrics, "\"eval_loss\":"), 1e-8) << metrics;
    EXPECT_LT(ReadTestFile(out).size(), ReadTestFile(model_).size() * 3 / 4);
    const auto imported = ImportModel(ModelFile::Parse(ReadTestFile(out), "out.onnx").value());
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_EQ(imported->opsets.at(""), kind == std::string("int8") ? 17 : 21);
  }
}

TEST_F(QuantizedFile, ResumesToTheSameFile) {
  const std::string folder = TestPath("checkpoints");
  const std::string through = TestPath("through.onnx"), resumed = TestPath("resumed.onnx");
  const std::vector<std::string> flags = {"--qat", "int8",        "--qat-skip",
                                          "fc3*",  "--optimizer", "adam"};
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    const CommandResult result = Train(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  train({"--steps", "5", "-o", through});
  train({"--steps", "3", "--checkpoint", folder, "--checkpoint-every", "3"});
  train({"--steps", "5", "--checkpoint", folder, "--resume", "-o", resumed});
  EXPECT_EQ(ReadTestFile(resumed), ReadTestFile(through));

  const std::string exported = TestPath("exported.onnx");
  const CommandResult result = RunCommand({"ckpt", "export", folder, model_, "-o", exported});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // Of five products. Ranges are no weights.
  EXPECT_THAT(result.out, HasSubstr("10 weights of step 5"));
  EXPECT_EQ(ReadTestFile(exported), ReadTestFile(through));
}

// The record had the patterns joined by commas: the second half, "*", left no product.
TEST_F(QuantizedFile, APatternMayHaveAComma) {
  WriteTestFile(model_, absl::StrReplaceAll(ReadTestFile(model_), {{"fc3.weight", "fc3,weight"}}));
  const std::string folder = TestPath("checkpoints");
  const std::string trained = TestPath("trained.onnx"), exported = TestPath("exported.onnx");
  const CommandResult result =
      Train({"--qat", "int8", "--qat-skip", "fc3,*", "--qat-skip", "conv1*", "--steps", "2",
             "--checkpoint", folder, "-o", trained});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const CommandResult written = RunCommand({"ckpt", "export", folder, model_, "-o", exported});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  EXPECT_EQ(ReadTestFile(exported), ReadTestFile(trained));
  EXPECT_THAT(ReadTestFile(exported), Not(HasSubstr("fc3,weight_quantized")));
  EXPECT_THAT(ReadTestFile(exported), HasSubstr("fc2.weight_quantized"));
}

// Every step overflows and is skipped, so that no range is known: nothing was written, and what had
// been trained was lost.
TEST_F(QuantizedFile, LeavesTheFloatModelWhereItCannotQuantize) {
  const std::string out = TestPath("out.onnx");
  const CommandResult result = Train(
      {"--qat", "int8", "--precision", "fp16", "--loss-scale", "1e29", "--steps", "2", "-o", out});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kDisk)) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("has the float model: the model cannot be quantized yet"),
                                HasSubstr("no step has seen the range of 'x'")));
  EXPECT_THAT(ReadTestFile(out), Not(HasSubstr("QuantizeLinear")));
  EXPECT_EQ(Loss(out), Loss(model_));
}

// Products round once more to 16 bits in training; evaluations are in float32.
TEST_F(QuantizedFile, TrainsInSixteenBits) {
  const std::vector<std::vector<std::string>> precisions = {{"bf16"},
                                                            {"fp16", "--loss-scale", "64"}};
  for (const std::vector<std::string>& precision : precisions) {
    SCOPED_TRACE(precision.front());
    const std::string out = TestPath(precision.front() + ".onnx");
    std::vector<std::string> flags = {"--qat", "int8", "--steps", "6", "--eval-every", "6"};
    flags.insert(flags.end(), {"--eval-metric", "loss", "--eval-data", "x=" + TestPath("x.npy")});
    flags.insert(flags.end(), {"--eval-labels", TestPath("labels.npy"), "-o", out});
    flags.insert(flags.end(), {"--metrics", TestPath("metrics.jsonl"), "--precision"});
    flags.insert(flags.end(), precision.begin(), precision.end());
    const CommandResult trained = Train(flags);
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    EXPECT_NEAR(Loss(out), Number(ReadTestFile(TestPath("metrics.jsonl")), "\"eval_loss\":"), 1e-8);
    EXPECT_THAT(ReadTestFile(out), HasSubstr("DequantizeLinear"));
  }
}

TEST_F(QuantizedFile, RefusesWhatDoesNotGoTogether) {
  const auto expect = [this](const std::vector<std::string>& flags, const std::string& text) {
    std::vector<std::string> more = {"--steps", "1"};
    more.insert(more.end(), flags.begin(), flags.end());
    const CommandResult result = Train(more);
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage)) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
  };
  expect({"--qat", "int9"}, "--qat int9: no such kind, did you mean 'int8'?");
  expect({"--qat-skip", "fc1*"}, "need --qat int8, int4 or fp8");
  expect({"--qat", "int8", "--lora", "rank=2"}, "--lora freezes them");
  expect({"--qat", "int8", "--qat-skip", "cnov1*"}, "--qat-skip cnov1* fits no product");

  const std::string out = TestPath("out.onnx");
  const CommandResult first = Train({"--qat", "int8", "--steps", "1", "-o", out});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const CommandResult again = Run("train", out, {"--qat", "int8", "--steps", "1"});
  EXPECT_EQ(again.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(again.err,
              AllOf(HasSubstr("the model is quantized already"), HasSubstr("DequantizeLinear")));
}

}  // namespace
}  // namespace weft::testing
