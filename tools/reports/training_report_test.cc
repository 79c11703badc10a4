#include "tools/reports/training_report.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"
#include "training/data/data_set.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two weights of 6 and 4 numbers, of which the first trains, and 10 samples in steps of 4.
class TrainingSetupTest : public ::testing::Test {
 protected:
  TrainingSetupTest() {
    const auto add = [this](const char* name, Shape shape, bool trains) {
      graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape}, Tensor(), trains);
    };
    add("w", Shape{2, 3}, true);
    add("b", Shape{4}, false);
    const std::vector<float> numbers(20, 1);
    EXPECT_TRUE(
        files_.WriteFileAtomically("/x.npy", ToNpy(Tensor::Of<float>({10, 2}, numbers)).value())
            .ok());
    DataSpec spec;
    spec.files.push_back({"x", "/x.npy", 0});
    spec.batch = 4;
    job_.data = DataSet::Open(files_, spec).value();
    job_.plan.threads_per_worker = 3;
    job_.programs.push_back({"train/4", {4, 0}, std::vector<Partition>(1)});
  }
  std::string Text() const {
    return TrainingSetupText({"m.onnx", graph_, adapters_, training_, job_, shuffled_, decisions_});
  }

  testing::FakeFileSystem files_;
  Graph graph_;
  std::vector<LoraAdapter> adapters_;
  TrainingSpec training_;
  PreparedJob job_;
  bool shuffled_ = true;
  const std::vector<ParameterDecision>* decisions_ = nullptr;
};

TEST_F(TrainingSetupTest, SaysModelDataLossAndPlan) {
  training_.optimizer.kind = "adam";
  training_.optimizer.learning_rate = 0.25;
  EXPECT_EQ(Text(),
            "train  m.onnx: 1 parameters, 6 numbers\n"
            "data   10 samples, 3 steps of 4 per epoch, shuffled\n"
            "loss   softmax_cross_entropy, adam, learning rate 0.25, fp32\n"
            "plan   dp=1 x tp=1 x pp=1, 1 micro-batches, 3 threads per worker\n");
}

TEST_F(TrainingSetupTest, SaysWhatIsNotAsUsual) {
  shuffled_ = false;
  job_.plan.strict = true;
  job_.plan.micro_batches = 4;
  job_.notes = {"two workers would be slower", "a \x1b[31m name"};
  EXPECT_THAT(Text(), HasSubstr("per epoch, in the order of the files\n"));
  EXPECT_THAT(Text(), HasSubstr("4 micro-batches, 3 threads per worker, strict\n"
                                "note   two workers would be slower\nnote   a \\x1"));
  EXPECT_THAT(Text(), Not(HasSubstr("\x1b")));
}

TEST_F(TrainingSetupTest, CountsAdaptersAndDecisions) {
  adapters_.resize(2);
  std::vector<ParameterDecision> decisions(1);
  decisions[0].trainable = true;
  decisions[0].type = {ValueKind::kTensor, DType::kFloat32, Shape{2, 3}};
  decisions_ = &decisions;
  EXPECT_THAT(Text(), HasSubstr("1 parameters, 6 numbers, with adapters of 2 weights\n"
                                "trains its 1 tensor (6 numbers)\ndata "));
}

// Its step says what changes, and no loss or optimizer of the flags counts.
TEST_F(TrainingSetupTest, OfAModelsOwnStepItCountsWhatThatChanges) {
  training_.model_training_info = true;
  const ValueId state = job_.graph.AddVariable(
      "state", {ValueKind::kTensor, DType::kFloat32, Shape{5}}, Tensor(), /*trainable=*/false);
  job_.graph.SetVariableUpdate("state", state);
  EXPECT_THAT(Text(), HasSubstr("m.onnx: 1 tensors by its training_info, 5 numbers\n"));
  EXPECT_THAT(Text(), Not(HasSubstr("loss ")));
}

class TrainingOutcomeTest : public ::testing::Test {
 protected:
  TrainingOutcomeTest() {
    result_.last_loss = 0.25;
    result_.steps = 30;
    outcome_.first_step = 10;
    outcome_.seconds = 4;
    outcome_.samples_per_second = 512.4;
  }

  TrainResult result_;
  TrainingOutcome outcome_{.result = result_};
};

TEST_F(TrainingOutcomeTest, SaysLossTimeAndSpeedInSamples) {
  EXPECT_EQ(TrainingOutcomeText(outcome_), "loss 0.25 after 30 steps in 4.0 s, 512 samples/s\n");
}

TEST_F(TrainingOutcomeTest, ARunThatHadNothingToDoSaysSo) {
  outcome_.first_step = 30;
  outcome_.samples_per_second = 0;
  EXPECT_EQ(TrainingOutcomeText(outcome_), "no step was left to train after step 30\n");
}

TEST_F(TrainingOutcomeTest, WhatEndedItAndWhatWasSkippedIsSaid) {
  result_.end = "accuracy>=0.9";
  result_.loss_scale = 1024;
  result_.skipped_steps = 3;
  EXPECT_THAT(TrainingOutcomeText(outcome_),
              HasSubstr("loss scale 1024; 3 of 30 steps skipped, their gradients overflowed\n"
                        "ended early, accuracy>=0.9\n"));
}

TEST_F(TrainingOutcomeTest, BytesArePerStep) {
  outcome_.traffic = {{RankId(1), 20, 4000, 4000, 200, {}}};
  EXPECT_THAT(TrainingOutcomeText(outcome_),
              HasSubstr("rank 1 sent 200 bytes per step, predicted 200; headers 10\n"));
  EXPECT_EQ(TrainingOutcomeJson(outcome_)["sent"][0]["bytes"], 4000);
}

TEST_F(TrainingOutcomeTest, MemoryIsComparedWithWhatWasRequired) {
  WorkerMemory worker;
  worker.requirement.variable_bytes = int64_t{4} << 20;
  outcome_.needed = {worker};
  result_.memory.resize(1);
  result_.memory[0].peak_bytes = int64_t{3} << 20;
  EXPECT_EQ(MemoryPeaksText(outcome_), "memory worker:0 peak 3 MiB, 75 % of the 4 MiB predicted\n");
  EXPECT_EQ(TrainingOutcomeJson(outcome_)["memory"][0]["peak_bytes"], 3 << 20);
}

TEST_F(TrainingOutcomeTest, FilesAreNamedWithControlCharactersEscaped) {
  outcome_.model = "out\x1b[31m.onnx";
  EXPECT_THAT(TrainingFilesText(outcome_), Not(HasSubstr("\x1b")));
  EXPECT_THAT(TrainingFilesText(outcome_), HasSubstr("model out"));
}

TEST_F(TrainingOutcomeTest, JsonHasWhatWasSaidOfThePlan) {
  EXPECT_FALSE(TrainingOutcomeJson(outcome_).contains("notes"));
  outcome_.notes = {"fused: 5 nodes run in 2 kernels on the GPU of rank 0", "two workers"};
  EXPECT_EQ(TrainingOutcomeJson(outcome_)["notes"], nlohmann::ordered_json(outcome_.notes));
}

TEST_F(TrainingOutcomeTest, JsonSaysHowGpusExchange) {
  EXPECT_FALSE(TrainingOutcomeJson(outcome_).contains("between_gpus"));
  outcome_.cards = {22809, 4, 0, "", "worker:1 shares its card with another worker"};
  EXPECT_EQ(TrainingOutcomeJson(outcome_)["between_gpus"],
            nlohmann::ordered_json::parse(
                R"({"collectives": {"way": "nccl", "gpus": 4},
                    "sends": {"way": "host",
                              "host_because": "worker:1 shares its card with another worker"},
                    "nccl_version": "2.28.9"})"));
  outcome_.cards = {0, 0, 0, "a strict job adds in an order of its own", ""};
  EXPECT_EQ(TrainingOutcomeJson(outcome_)["between_gpus"]["collectives"]["way"], "host");
  EXPECT_EQ(TrainingOutcomeJson(outcome_)["between_gpus"]["sends"]["way"], "none");
}

TEST_F(TrainingOutcomeTest, JsonHasSharesOnlyWhereTheyMoved) {
  EXPECT_FALSE(TrainingOutcomeJson(outcome_).contains("shares"));
  outcome_.shares = {6, 2};
  EXPECT_EQ(TrainingOutcomeJson(outcome_)["shares"], nlohmann::ordered_json({6, 2}));
}

}  // namespace
}  // namespace weft
