// Adapters under every kind of parallelism against one process, and from the command line to the
// exported model.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "executor/variables/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "onnx/onnx_pb.h"
#include "ops/testing/test_tensors.h"
#include "placement/files/plan_file.h"
#include "tests/command_run.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/model_weights.h"
#include "tests/testing/training_run.h"
#include "tools/console/exit_code.h"
#include "training/adapters/lora.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- On several workers.

class AdaptersOn : public ::testing::TestWithParam<std::string> {};

TEST_P(AdaptersOn, SeveralWorkersHaveTheLossesOfOne) {
  constexpr int64_t kBatch = 13;
  auto model = BuildEquivalenceModel("gpt", 3 * kBatch);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto adapters = AddAdapters(model->graph, {.rank = 3, .alpha = 12}, 1);
  ASSERT_TRUE(adapters.ok()) << adapters.status();
  ASSERT_GE(adapters->size(), 8u);
  TrainingRun run;
  run.data = WriteDataFiles(*model, ::testing::TempDir());
  run.batch = kBatch;
  run.steps = 4;
  run.optimizer.kind = "adam";
  run.optimizer.learning_rate = 0.02;
  run.change = [](TrainingSpec& spec) { spec.average_decay = 0.5; };
  run.plan.micro_batches = 4;
  const auto single = RunGraph(model->graph, run);
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_LT(single->losses.back(), single->losses.front());
  EXPECT_EQ(single->parameters.size(), 2 * adapters->size());

  run.plan = ParseParallel(GetParam()).value();
  run.plan.micro_batches = 4;
  if (run.plan.mesh.tensor > 1) {
    run.plan.tensor_shardings = {{"*.qkv.weight", AxisSharding::Split(1, 3)},
                                 {"*.up.weight", AxisSharding::Split(1)},
                                 {"*.out.weight", AxisSharding::Split(0)},
                                 {"*.down.weight", AxisSharding::Split(0)}};
  }
  run.workers = run.plan.mesh.size();
  const auto spread = RunGraph(model->graph, run);
  ASSERT_TRUE(spread.ok()) << spread.status();
  EXPECT_LE(LargestRelativeGap(spread->losses, single->losses), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Plans, AdaptersOn,
                         ::testing::Values("dp=2", "tp=2", "pp=2", "dp=2,zero=3", "dp=2,tp=2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return c == '=' || c == ','; }, '_');
                           return name;
                         });

// ---- From the command line.

void AddWeight(::onnx::GraphProto& graph, const std::string& name, const std::vector<int64_t>& dims,
               uint64_t seed) {
  auto& tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(::onnx::TensorProto::FLOAT);
  for (const int64_t dim : dims) tensor.add_dims(dim);
  const Tensor values = RandomTensor(Shape(std::span(dims)), seed, -0.5, 0.5);
  tensor.set_raw_data(values.raw_data(), values.bytes());
}

void AddNode(::onnx::GraphProto& graph, const std::string& op, const std::string& name,
             const std::vector<std::string>& inputs, const std::string& output) {
  auto& node = *graph.add_node();
  node.set_op_type(op);
  node.set_name(name);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
}

void SetType(::onnx::ValueInfoProto& value, const std::string& name, int64_t width) {
  value.set_name(name);
  auto& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(::onnx::TensorProto::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_param("N");
  type.mutable_shape()->add_dim()->set_dim_value(width);
}

// x [N,6] -> MatMul of 8 -> Relu -> MatMul of 5 -> Gemm, transposed -> logits [N,3].
std::string WriteModel() {
  ::onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  auto& entry = *model.add_metadata_props();
  entry.set_key("author");
  entry.set_value("somebody");
  ::onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("small");
  SetType(*graph.add_input(), "x", 6);
  SetType(*graph.add_output(), "logits", 3);
  AddWeight(graph, "onnx::MatMul_1", {6, 8}, 1);
  AddWeight(graph, "onnx::MatMul_2", {8, 5}, 2);
  AddWeight(graph, "head.weight", {3, 5}, 3);
  AddWeight(graph, "head.bias", {3}, 4);
  AddNode(graph, "MatMul", "/block/attn/MatMul", {"x", "onnx::MatMul_1"}, "hidden");
  AddNode(graph, "Relu", "/block/Relu", {"hidden"}, "positive");
  AddNode(graph, "MatMul", "/block/mlp/MatMul", {"positive", "onnx::MatMul_2"}, "features");
  AddNode(graph, "Gemm", "/head/Gemm", {"features", "head.weight", "head.bias"}, "logits");
  auto& transposed = *graph.mutable_node(3)->add_attribute();
  transposed.set_name("transB");
  transposed.set_type(::onnx::AttributeProto::INT);
  transposed.set_i(1);
  const std::string path = TestPath("model.onnx");
  WriteTestFile(path, model.SerializeAsString());
  return path;
}

class FineTuning : public ::testing::Test {
 protected:
  FineTuning() : model_(WriteModel()) {
    constexpr int64_t kSamples = 40;
    const Tensor x = RandomTensor({kSamples, 6}, 9);
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kSamples; ++i) {
      const float* row = x.data<float>().data() + i * 6;
      labels.push_back(row[0] > 0.2f ? 2 : row[1] > 0 ? 1 : 0);
    }
    Write("x.npy", x);
    Write("labels.npy", Tensor::Of<int64_t>({kSamples}, labels));
  }

  void Write(const std::string& name, const Tensor& tensor) {
    WriteTestFile(TestPath(name), ToNpy(tensor).value());
  }

  std::vector<std::string> Data() const {
    return {"--data", "x=" + TestPath("x.npy"), "--labels", TestPath("labels.npy"), "--batch", "8"};
  }

  CommandResult Run(const std::string& command, const std::string& model,
                    std::vector<std::string> more) const {
    std::vector<std::string> arguments = {command, model};
    for (const std::string& data : Data()) arguments.push_back(data);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments);
  }

  // Trains and gives the path of the model.
  std::string Train(const std::string& name, std::vector<std::string> more) const {
    const std::string path = TestPath(name);
    more.insert(more.end(), {"-o", path});
    const CommandResult result = Run("train", model_, more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return path;
  }

  // "loss 0.5" of eval.
  double Loss(const std::string& model) const {
    const CommandResult result = Run("eval", model, {"--metric", "loss"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Number(result.out, "loss ");
  }

  // The number after the last `word`.
  static double Number(const std::string& text, const std::string& word) {
    const size_t at = text.rfind(word);
    double number = std::nan("");
    if (at == std::string::npos) return number;
    const std::string rest = text.substr(at + word.size());
    EXPECT_TRUE(absl::SimpleAtod(rest.substr(0, rest.find_first_of(" ,\n")), &number)) << text;
    return number;
  }

  const std::string model_;
};

const std::vector<std::string> kLora = {"--lora",      "rank=2,alpha=8,match=*attn*,match=head*",
                                        "--optimizer", "adam",
                                        "--lr",        "0.02",
                                        "--steps",     "30"};

std::vector<std::string> With(std::vector<std::string> list, const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

TEST_F(FineTuning, OnlyMatchedWeightsChangeAndTheLossBecomesLess) {
  const std::string tuned = Train("tuned.onnx", kLora);
  EXPECT_THAT(ChangedWeights(model_, tuned), ElementsAre("head.weight", "onnx::MatMul_1"));
  EXPECT_LT(Loss(tuned), Loss(model_) - 0.05);
}

TEST_F(FineTuning, TheMergedModelHasTheLossThatTheAdaptersHad) {
  const std::string best = TestPath("best.onnx");
  const std::string tuned = TestPath("tuned.onnx");
  const CommandResult result = Run(
      "train", model_,
      With(kLora, {"--eval-every", "30", "--eval-data", "x=" + TestPath("x.npy"), "--eval-labels",
                   TestPath("labels.npy"), "--eval-metric", "loss", "--best", best, "-o", tuned}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("with adapters of 2 weights"));
  const double measured = Number(result.err, "eval   step 30: loss ");
  EXPECT_NEAR(Loss(tuned), measured, 1e-5 * measured);
  EXPECT_EQ(ReadTestFile(best), ReadTestFile(tuned));
}

TEST_F(FineTuning, AResumedRunEndsWithTheSameModel) {
  const std::string whole = Train("whole.onnx", kLora);
  const std::string folder = TestPath("saved");
  std::filesystem::remove_all(folder);
  std::vector<std::string> first = kLora;
  first.back() = "13";
  Train("part.onnx", With(first, {"--checkpoint", folder}));
  const std::string resumed =
      Train("resumed.onnx", With(kLora, {"--checkpoint", folder, "--resume"}));
  EXPECT_EQ(ReadTestFile(resumed), ReadTestFile(whole));
  const std::string exported = TestPath("exported.onnx");
  const CommandResult result = RunCommand({"ckpt", "export", folder, model_, "-o", exported});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(ReadTestFile(exported), ReadTestFile(whole));
}

// The file calls the weight "onnx::MatMul_1"; its module is that of its reader.
TEST_F(FineTuning, AnExportFindsWeightsByTheNamesOfTheirModules) {
  const std::string folder = TestPath("saved");
  const std::string adapters = TestPath("adapters.safetensors");
  const std::string exported = TestPath("exported.onnx");
  for (const std::vector<std::string>& job :
       {std::vector<std::string>{"--lora", "rank=2,match=block.attn.weight"},
        std::vector<std::string>{"--adapters-in", adapters}}) {
    std::filesystem::remove_all(folder);
    const std::string tuned =
        Train("tuned.onnx",
              With(job, {"--steps", "3", "--checkpoint", folder, "--adapters-out", adapters}));
    EXPECT_THAT(ChangedWeights(model_, tuned), ElementsAre("onnx::MatMul_1"));
    std::vector<std::string> command = {"ckpt", "export", folder, model_, "-o", exported};
    if (job.front() == "--adapters-in") command.insert(command.end(), job.begin(), job.end());
    const CommandResult result = RunCommand(command);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(ReadTestFile(exported), ReadTestFile(tuned));
  }
}

TEST_F(FineTuning, AHeadMayTrainBesideAdapters) {
  const std::string tuned =
      Train("tuned.onnx", {"--lora", "rank=1,match=*attn*,train=head.bias", "--steps", "3"});
  EXPECT_THAT(ChangedWeights(model_, tuned), ElementsAre("head.bias", "onnx::MatMul_1"));
}

// W + scale A B, from the file of adapters, is what the exported model has.
TEST_F(FineTuning, AdaptersAloneMergeToTheSameWeights) {
  const std::string file = TestPath("adapters.safetensors");
  const std::string tuned = Train("tuned.onnx", With(kLora, {"--adapters-out", file}));
  const std::string bytes = ReadTestFile(file);
  const auto layout = ParseSafetensors(std::as_bytes(std::span(bytes)), file);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const auto config = nlohmann::json::parse(
      ReadTestFile((std::filesystem::path(file).parent_path() / "adapter_config.json").string()));
  EXPECT_EQ(config["lora_alpha"].get<double>() / config["r"].get<double>(), 4);
  Weights adapters;
  for (const SafetensorsEntry& entry : layout->tensors) {
    std::vector<float>& values = adapters[entry.name];
    values.resize(static_cast<size_t>(entry.shape.num_elements()));
    std::copy_n(bytes.data() + entry.offset, entry.bytes(), reinterpret_cast<char*>(values.data()));
  }
  EXPECT_EQ(adapters.size(), 4u);
  const std::vector<float> base = WeightsOf(model_).at("onnx::MatMul_1");  // [6,8]
  // [2,6] and [8,2], under the name of the module.
  const std::vector<float>&a = adapters.at("base_model.model.block.attn.lora_A.weight"),
        &b = adapters.at("base_model.model.block.attn.lora_B.weight");
  const std::vector<float> merged = WeightsOf(tuned).at("onnx::MatMul_1");
  for (int i = 0; i < 48; ++i) {
    const double product = static_cast<double>(a[i / 8]) * b[i % 8 * 2] +
                           static_cast<double>(a[6 + i / 8]) * b[i % 8 * 2 + 1];
    EXPECT_NEAR(merged[i], base[i] + 4 * product, 1e-6);
  }
}

TEST_F(FineTuning, MistakesInTheFlagAreUsageErrors) {
  const auto error = [this](const std::string& lora) {
    const CommandResult result = Run("train", model_, {"--steps", "1", "--lora", lora});
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage));
    return result.err;
  };
  EXPECT_THAT(error("match=*atn*"),
              AllOf(HasSubstr("fits no weight that trains"), HasSubstr("did you mean 'attn'?")));
  EXPECT_THAT(error("rank=none"), HasSubstr("expected a whole number"));
}

// ---- Averages.

TEST_F(FineTuning, AveragesFollowTheFormula) {
  constexpr double kDecay = 0.75;
  Weights expected = WeightsOf(model_);
  std::map<std::string, std::vector<double>> averages;
  for (const auto& [name, values] : expected) averages[name] = {values.begin(), values.end()};
  for (const char* steps : {"1", "2", "3", "4"}) {
    const Weights values = WeightsOf(Train("step.onnx", {"--lr", "0.5", "--steps", steps}));
    for (auto& [name, average] : averages) {
      for (size_t i = 0; i < average.size(); ++i) {
        average[i] = kDecay * average[i] + (1 - kDecay) * values.at(name)[i];
      }
    }
  }
  const std::string kept = TestPath("averages.onnx");
  const std::string plain =
      Train("plain.onnx", {"--lr", "0.5", "--steps", "4", "--ema", "0.75", "--ema-out", kept});
  EXPECT_EQ(WeightsOf(plain), WeightsOf(TestPath("step.onnx")));
  for (const auto& [name, values] : WeightsOf(kept)) {
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], averages.at(name)[i], 1e-6);
  }
}

TEST_F(FineTuning, AveragesAreMeasuredResumedAndExported) {
  const std::string config = TestPath("job.yaml");
  WriteTestFile(config, "ema: 0.9\nlr: 0.5\noptimizer: momentum\n");
  const std::string whole = TestPath("whole.onnx"), best = TestPath("best.onnx");
  const CommandResult measured =
      Run("train", model_,
          {"--config", config, "--steps", "9", "--ema-out", whole, "--eval-every", "9",
           "--eval-data", "x=" + TestPath("x.npy"), "--eval-labels", TestPath("labels.npy"),
           "--eval-metric", "loss", "--eval-ema", "--best", best});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_EQ(ReadTestFile(best), ReadTestFile(whole));
  const double loss = Loss(whole);
  EXPECT_NEAR(Number(measured.err, "eval   step 9: loss "), loss, 1e-5 * loss);

  const std::string folder = TestPath("saved");
  std::filesystem::remove_all(folder);
  Train("part.onnx", {"--config", config, "--steps", "4", "--checkpoint", folder});
  const std::string resumed = TestPath("resumed.onnx");
  const std::string plain = Train("plain.onnx", {"--config", config, "--steps", "9", "--checkpoint",
                                                 folder, "--resume", "--ema-out", resumed});
  EXPECT_EQ(ReadTestFile(resumed), ReadTestFile(whole));
  const auto exported = [&](std::vector<std::string> more) {
    const std::string path = TestPath("exported.onnx");
    std::vector<std::string> all = {"ckpt", "export", folder, model_, "-o", path};
    const CommandResult result = RunCommand(With(all, more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return ReadTestFile(path);
  };
  EXPECT_EQ(exported({"--ema"}), ReadTestFile(whole));
  EXPECT_EQ(exported({}), ReadTestFile(plain));
}

TEST_F(FineTuning, AveragesOfAdaptersAreMerged) {
  const std::string averages = TestPath("averages.onnx");
  const std::string plain =
      Train("plain.onnx", With(kLora, {"--ema", "0.9", "--ema-out", averages, "--seed", "5"}));
  EXPECT_EQ(ChangedWeights(model_, averages), ChangedWeights(model_, plain));
  EXPECT_NE(ReadTestFile(averages), ReadTestFile(plain));
}

TEST_F(FineTuning, AdaptersAndAveragesTrainInHalfPrecisionToo) {
  for (const char* precision : {"bf16", "fp16"}) {
    const std::string averages = TestPath("averages.onnx");
    const std::string plain =
        Train("plain.onnx",
              With(kLora, {"--ema", "0.9", "--ema-out", averages, "--precision", precision}));
    EXPECT_THAT(ChangedWeights(model_, plain), ElementsAre("head.weight", "onnx::MatMul_1"));
    EXPECT_EQ(ChangedWeights(model_, averages), ChangedWeights(model_, plain));
    EXPECT_NE(ReadTestFile(averages), ReadTestFile(plain));
    EXPECT_LT(Loss(plain), Loss(model_) - 0.05);
  }
}

TEST_F(FineTuning, WithoutAveragesTheirFlagsAreErrors) {
  const CommandResult out = Run("train", model_, {"--steps", "1", "--ema-out", TestPath("a.onnx")});
  EXPECT_EQ(out.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(out.err, HasSubstr("--ema-out needs --ema DECAY"));
  const CommandResult measured =
      Run("train", model_, {"--steps", "1", "--eval-every", "1", "--eval-ema"});
  EXPECT_THAT(measured.err, HasSubstr("--eval-ema needs --ema DECAY"));
  const CommandResult range = Run("train", model_, {"--steps", "1", "--ema", "1"});
  EXPECT_THAT(range.err, HasSubstr("the decay of the moving average is 1"));
  const std::string folder = TestPath("saved");
  std::filesystem::remove_all(folder);
  Train("t.onnx", {"--steps", "1", "--checkpoint", folder});
  const CommandResult exported =
      RunCommand({"ckpt", "export", folder, model_, "--ema", "-o", TestPath("a.onnx")});
  EXPECT_THAT(exported.err, HasSubstr("has no averages of the weights"));
}

// A job file that has changed is a job that has.
TEST_F(FineTuning, AResumedRunRefusesAnotherJobFile) {
  const std::string config = TestPath("job.yaml");
  const std::string folder = TestPath("saved");
  std::filesystem::remove_all(folder);
  WriteTestFile(config, "lr: 0.5\nema: 0.9\n");
  const std::vector<std::string> job = {"--config", config, "--checkpoint", folder};
  Train("first.onnx", With(job, {"--steps", "2"}));
  WriteTestFile(config, "lr: 0.25\noptimizer: momentum\nmomentum: 0.5\n");
  const CommandResult other = Run("train", model_, With(job, {"--steps", "4", "--resume"}));
  EXPECT_EQ(other.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(
      other.err,
      AllOf(HasSubstr("this is not the job of"), HasSubstr("--ema was 0.9, is not given"),
            HasSubstr("--lr was 0.5, is 0.25"), HasSubstr("--momentum was not given, is 0.5")));
  // The same by flags is the same job.
  const CommandResult same =
      Run("train", model_,
          {"--lr", "0.5", "--ema", "0.9", "--checkpoint", folder, "--resume", "--steps", "4"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  // So is one that reads ahead otherwise.
  const CommandResult ahead =
      Run("train", model_,
          {"--lr", "0.5", "--ema", "0.9", "--checkpoint", folder, "--resume", "--steps", "5",
           "--reader-threads", "1", "--prefetch", "3"});
  EXPECT_EQ(ahead.exit_code, 0) << ahead.err;
}

// ---- Evaluations.

TEST_F(FineTuning, EvaluationsAreInTheMetricsAndTheBoard) {
  const std::string csv = TestPath("metrics.csv"), board = TestPath("board");
  std::filesystem::remove_all(board);
  Train("t.onnx",
        {"--steps", "5", "--metrics", csv, "--tensorboard", board, "--eval-every", "2",
         "--eval-data", "x=" + TestPath("x.npy"), "--eval-labels", TestPath("labels.npy")});
  const std::vector<std::string> rows = absl::StrSplit(ReadTestFile(csv), '\n');
  ASSERT_EQ(rows.size(), 7u);
  EXPECT_THAT(rows[0], ::testing::EndsWith(",bytes_sent,eval_accuracy,eval_loss"));
  for (const int step : {0, 2, 4}) EXPECT_THAT(rows[1 + step], ::testing::EndsWith(",,"));
  for (const int step : {1, 3})
    EXPECT_THAT(rows[1 + step], ::testing::Not(::testing::EndsWith(",")));
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(board)) {
    events += ReadTestFile(entry.path().string());
  }
  EXPECT_THAT(events,
              AllOf(HasSubstr("train/loss"), HasSubstr("eval/accuracy"), HasSubstr("eval/loss")));
}

}  // namespace
}  // namespace weft::testing
