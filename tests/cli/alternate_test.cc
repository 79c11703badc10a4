// `train --alternate`: a small GAN, its critic and its generator in turn.
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCritic[] =
    "critic: loss=output:loss_d, train=critic.*, steps=2, optimizer=adam, beta1=0.5, lr=0.05";
constexpr char kGenerator[] = "generator: loss=output:loss_g, train=gen.*, lr=0.1";

// Numbers that are all different.
Tensor Numbers(Shape shape, float first) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    numbers.push_back(first + 0.37f * static_cast<float>(i % 5) - 0.11f * static_cast<float>(i));
  }
  return Tensor::Of<float>(std::move(shape), numbers);
}

class AlternateTest : public ::testing::Test {
 protected:
  AlternateTest() {
    WriteTestFile(TestPath("x.npy"), ToNpy(Numbers({8, 2}, 1)).value());
    WriteTestFile(TestPath("z.npy"), ToNpy(Numbers({8, 2}, -1)).value());
    WriteModel();
  }

  // D(x) = x both.w critic.w; G(z) = z gen.w + gen.b. Nobody trains `both.w`.
  static void WriteModel() {
    Graph graph;
    graph.opsets[""] = 17;
    GraphBuilder b(graph);
    const ValueType rows = {ValueKind::kTensor, DType::kFloat32,
                            SymbolicShape({Dim::Symbol("N"), Dim(2)})};
    const auto parameter = [&](const std::string& name, Shape shape, float first) {
      return graph.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape},
                               Numbers(shape, first), true);
    };
    const ValueId x = graph.AddInput("x", rows), z = graph.AddInput("z", rows);
    const ValueId both = parameter("both.w", {2, 2}, 0.5f);
    const ValueId critic = parameter("critic.w", {2, 1}, 0.25f);
    const ValueId weight = parameter("gen.w", {2, 2}, -0.5f);
    const ValueId bias = parameter("gen.b", {2}, 0.125f);
    const ValueId fake = b.Op("Add", {b.Op("MatMul", {z, weight}), bias});
    const auto loss = [&](ValueId samples, bool real) {
      const ValueId scores = b.Op("MatMul", {b.Op("MatMul", {samples, both}), critic});
      const ValueId signs = real ? b.Op("Neg", {scores}) : scores;
      return b.Op("ReduceMean", {b.Op("Softplus", {signs})}, {{"keepdims", int64_t{0}}});
    };
    const ValueId loss_d = b.Op("Add", {loss(x, true), loss(fake, false)});
    const ValueId loss_g = loss(fake, true);
    b.Name(loss_d, "loss_d");
    b.Name(loss_g, "loss_g");
    graph.AddOutput(loss_d);
    graph.AddOutput(loss_g);
    EXPECT_TRUE(b.status().ok()) << b.status();
    WriteTestModel("gan.onnx", graph);
  }

  static std::vector<std::string> Common() {
    return {"train",  TestPath("gan.onnx"),     "--data",  "x=" + TestPath("x.npy"),
            "--data", "z=" + TestPath("z.npy"), "--batch", "4"};
  }
  static CommandResult Train(const std::vector<std::string>& updates,
                             const std::vector<std::string>& more) {
    std::vector<std::string> arguments = Common();
    for (const std::string& update : updates) {
      arguments.insert(arguments.end(), {"--alternate", update});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments);
  }
  static std::vector<std::vector<std::string>> Rows(const std::string& path) {
    std::vector<std::vector<std::string>> rows;
    std::stringstream lines(ReadTestFile(path));
    for (std::string line; std::getline(lines, line);) rows.push_back(absl::StrSplit(line, ','));
    return rows;
  }
};

TEST_F(AlternateTest, SaysWhoTrainsWhatAndHasAColumnForEachLoss) {
  const std::string metrics = TestPath("metrics.csv");
  const CommandResult result = Train({kCritic, kGenerator}, {"--steps", "7", "--metrics", metrics});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("update critic: 2 steps in turn, loss output:loss_d, 1 parameter, "
                              "adam, learning rate 0.05, 8 samples in batches of 4\n"),
                    HasSubstr("update generator: 1 step in turn, loss output:loss_g, 2 parameters, "
                              "sgd, learning rate 0.1, 8 samples in batches of 4\n"),
                    HasSubstr("note   no update trains both.w\n")));
  EXPECT_THAT(result.out, AllOf(HasSubstr("loss critic "), HasSubstr(", generator ")));
  const auto rows = Rows(metrics);
  ASSERT_EQ(rows.size(), 8u);
  const size_t columns = rows[0].size();
  EXPECT_EQ(rows[0][columns - 2], "loss_critic");
  EXPECT_EQ(rows[0][columns - 1], "loss_generator");
  for (size_t step = 0; step < 7; ++step) {
    const auto& row = rows[step + 1];
    ASSERT_EQ(row.size(), columns);
    const bool critic = step % 3 < 2;
    EXPECT_EQ(row[0], absl::StrCat(step));
    EXPECT_EQ(row[columns - 2], critic ? row[1] : "") << step;
    EXPECT_EQ(row[columns - 1], critic ? "" : row[1]) << step;
  }
}

TEST_F(AlternateTest, GoesOnInTheMiddleOfATurnWithTheSameBits) {
  const std::string straight = TestPath("straight.onnx"), resumed = TestPath("resumed.onnx");
  const std::vector<std::string> updates = {kCritic, kGenerator};
  ASSERT_EQ(Train(updates, {"--steps", "11", "-o", straight}).exit_code, 0);
  const std::string folder = TestPath("saved");
  const CommandResult first = Train(updates, {"--steps", "4", "--checkpoint", folder});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const CommandResult second =
      Train(updates, {"--steps", "11", "--checkpoint", folder, "--resume", "-o", resumed});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("resume step 4 of "));
  EXPECT_EQ(ReadTestFile(straight), ReadTestFile(resumed));
  EXPECT_NE(ReadTestFile(straight), ReadTestFile(TestPath("gan.onnx")));
  const CommandResult other =
      Train({kGenerator, kCritic}, {"--steps", "12", "--checkpoint", folder, "--resume"});
  EXPECT_THAT(other.err, HasSubstr("--alternate was"));
}

// The generator comes first and reads z alone; x is the critic's.
TEST_F(AlternateTest, DoesNotGoOnWithOtherSamplesOfALaterUpdate) {
  const std::vector<std::string> updates = {kGenerator, kCritic};
  const std::string folder = TestPath("saved");
  const CommandResult first = Train(updates, {"--steps", "4", "--checkpoint", folder});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  WriteTestFile(TestPath("x.npy"), ToNpy(Numbers({8, 2}, 3)).value());
  const CommandResult other = Train(updates, {"--steps", "8", "--checkpoint", folder, "--resume"});
  EXPECT_EQ(other.exit_code, static_cast<int>(ExitCode::kUsage)) << other.err;
  EXPECT_THAT(other.err, HasSubstr("the data's update critic was "));
}

// The updates of docs/training.md.
TEST_F(AlternateTest, FiveStepsOfAWassersteinCriticForOneOfItsGenerator) {
  const std::string metrics = TestPath("wasserstein.csv");
  const CommandResult result =
      Train({"critic: loss=output:loss_d, train=critic.*, steps=5, optimizer=rmsprop, lr=5e-5",
             "generator: loss=output:loss_g, train=gen.*, optimizer=adam, lr=2e-4, beta1=0.5"},
            {"--steps", "12", "--metrics", metrics, "-o", TestPath("trained.onnx")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto rows = Rows(metrics);
  ASSERT_EQ(rows.size(), 13u);
  for (size_t step = 0; step < 12; ++step) {
    EXPECT_EQ(rows[step + 1].back().empty(), step % 6 != 5) << step;
    EXPECT_EQ(rows[step + 1][2], step % 6 == 5 ? "0.0002" : "5e-05") << step;
  }
}

TEST_F(AlternateTest, AJobFileListsThem) {
  const std::string metrics = TestPath("flags.csv"), of_file = TestPath("file.csv");
  ASSERT_EQ(Train({kCritic, kGenerator}, {"--steps", "4", "--metrics", metrics}).exit_code, 0);
  const std::string config = TestPath("job.yaml");
  WriteTestFile(config, absl::StrCat("alternate:\n- '", kCritic, "'\n- '", kGenerator, "'\n"));
  const CommandResult result =
      Train({}, {"--config", config, "--steps", "4", "--metrics", of_file});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto flags = Rows(metrics), file = Rows(of_file);
  ASSERT_EQ(flags.size(), file.size());
  for (size_t i = 0; i < flags.size(); ++i) EXPECT_EQ(flags[i][1], file[i][1]);
}

TEST_F(AlternateTest, EpochsAreThoseOfTheFirstUpdateInWholeCycles) {
  const std::string metrics = TestPath("epochs.csv");
  // 3 epochs of 2 batches are 6 steps of the critic: 3 cycles.
  ASSERT_EQ(Train({kCritic, kGenerator}, {"--epochs", "3", "--metrics", metrics}).exit_code, 0);
  EXPECT_EQ(Rows(metrics).size(), 1u + 9u);
}

TEST_F(AlternateTest, SaysWhatCannotBe) {
  const auto refusal = [](const std::vector<std::string>& updates,
                          const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"--steps", "2"};
    all.insert(all.end(), more.begin(), more.end());
    const CommandResult result = Train(updates, all);
    EXPECT_NE(result.exit_code, 0);
    return result.err;
  };
  EXPECT_THAT(refusal({kCritic}), HasSubstr("one update has none to take turns with"));
  EXPECT_THAT(refusal({kCritic, "g: loss=output:loss_g, train=gen.*+critic.w"}),
              HasSubstr("the updates 'critic' and 'g' both train 'critic.w'"));
  EXPECT_THAT(refusal({kCritic, "g: loss=output:loss_g, train=gn.*"}),
              HasSubstr("update 'g': train=gn.* is the name of no parameter that trains"));
  EXPECT_THAT(refusal({kCritic, "g: loss=output:loss_x, train=gen.*"}),
              HasSubstr("update 'g': the model has no value 'loss_x'"));
  EXPECT_THAT(refusal({kCritic, kGenerator}, {"--loss", "mse"}), HasSubstr("--loss"));
  EXPECT_THAT(refusal({kCritic, kGenerator}, {"--precision", "fp16"}),
              HasSubstr("--alternate goes without"));
  EXPECT_THAT(refusal({kCritic, kGenerator}, {"--local", "2", "--parallel", "pp=2"}),
              HasSubstr("updates in turn run on replicas of the whole model"));
}

TEST_F(AlternateTest, IsNotATieOfLosses) {
  std::vector<std::string> without = Common();
  without.insert(without.end(), {"--steps", "1"});
  EXPECT_THAT(RunCommand(without).err, HasSubstr("--loss output:loss_d"));
  EXPECT_THAT(Train({kCritic, kGenerator}, {"--steps", "1"}).err,
              Not(HasSubstr("several outputs say")));
}

}  // namespace
}  // namespace weft::testing
