// Models that bring their own training along, on the command line.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph.h"
#include "gtest/gtest.h"
#include "onnx_import/graph_wire.h"
#include "onnx_import/testing/training_models.h"
#include "tensor/tensor.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class OwnTraining : public ::testing::Test {
 protected:
  OwnTraining() {
    WriteTestFile(model_, RegressionThatTrainsItselfBytes());
    WriteTestFile(TestPath("x.npy"), ToNpy(Tensor::Of<float>({2, 2}, {1, 0, 0, 1})).value());
    WriteTestFile(TestPath("t.npy"), ToNpy(Tensor::Of<float>({2, 1}, {3, -1})).value());
  }

  CommandResult Train(const std::string& model, const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {
        "train",     model,
        "--data",    "x=" + TestPath("x.npy") + ",t=" + TestPath("t.npy"),
        "--steps",   "1",
        "--batch",   "2",
        "--metrics", TestPath("metrics.csv")};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunCommand(arguments);
  }

  const std::string model_ = TestPath("self.onnx");
};

TEST_F(OwnTraining, RunsAndIsSavedWithItsState) {
  const std::string trained = TestPath("trained.onnx");
  const CommandResult first = Train(model_, {"--optimizer", "model", "-o", trained});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("4 tensors by its training_info, 6 numbers"));
  // y = {1.5, 2.5}: the mean of the squares of {-1.5, 3.5}.
  EXPECT_THAT(ReadTestFile(TestPath("metrics.csv")), HasSubstr("0,7.25"));
  // From w = {1.15, 1.65}, b = 0.3: the mean of the squares of {-1.55, 2.95}.
  const CommandResult second = Train(trained, {"--optimizer", "model", "-o", trained});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(ReadTestFile(TestPath("metrics.csv")), HasSubstr("0,5.55"));
}

TEST_F(OwnTraining, MayBeginWithItsInitialization) {
  const CommandResult result = Train(model_, {"--optimizer", "model", "--initialize"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  // y = {1, 0.25}: the mean of the squares of {-2, 1.25}.
  EXPECT_THAT(ReadTestFile(TestPath("metrics.csv")), HasSubstr("0,2.78125"));
}

TEST_F(OwnTraining, IsPointedOutToOtherOptimizers) {
  const CommandResult result = Train(model_, {"--loss", "mse", "--labels", TestPath("t.npy")});
  EXPECT_THAT(result.err, AllOf(HasSubstr("--optimizer model"), HasSubstr("--initialize")));
  EXPECT_THAT(Train(model_, {}).err, HasSubstr("--labels is required"));
}

TEST_F(OwnTraining, GoesWithoutFlagsOfOtherOptimizers) {
  for (const char* flag : {"--lr=0.1", "--clip-norm=1", "--freeze=w"}) {
    const CommandResult result = Train(model_, {"--optimizer", "model", flag});
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage)) << flag;
    EXPECT_THAT(result.err, HasSubstr("the model's training_info says what trains and how"));
  }
}

// Its step was made in one piece: --until expand went on, and ended after differentiate.
TEST_F(OwnTraining, CanBeLookedAtBeforeItsGradientsAreThere) {
  const auto gradient_nodes = [](const std::string& path) -> int64_t {
    const auto graph = GraphFromOnnx(ReadTestFile(path));
    EXPECT_TRUE(graph.ok()) << path << ": " << graph.status();
    if (!graph.ok()) return -1;
    const std::vector<NodeId> ids = graph->node_ids();
    return std::count_if(ids.begin(), ids.end(),
                         [&](NodeId id) { return graph->node(id).op == "Gradient"; });
  };
  const auto plan = [this](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {
        "plan",        model_,
        "--data",      "x=" + TestPath("x.npy") + ",t=" + TestPath("t.npy"),
        "--optimizer", "model",
        "--batch",     "2",
        "--dump",      TestPath("dump")};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunCommand(arguments);
  };
  const CommandResult expanded = plan({"--until", "expand"});
  ASSERT_EQ(expanded.exit_code, 0) << expanded.err;
  EXPECT_THAT(expanded.out, HasSubstr("ended after expand: "));
  EXPECT_EQ(gradient_nodes(TestPath("dump/03-expand.onnx")), 1);
  const CommandResult whole = plan({"--until", "differentiate", "--dump-after", "all"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_EQ(gradient_nodes(TestPath("dump/03-expand/01-expand_functions.onnx")), 1);
  EXPECT_EQ(gradient_nodes(TestPath("dump/04-differentiate/01-add_gradients.onnx")), 0);
  EXPECT_EQ(gradient_nodes(TestPath("dump/04-differentiate/02-add_updates.onnx")), 0);
  EXPECT_EQ(gradient_nodes(TestPath("dump/04-differentiate.onnx")), 0);
}

TEST_F(OwnTraining, IsCheckedBeforehand) {
  const CommandResult good = RunCommand({"check", model_});
  EXPECT_EQ(good.exit_code, 0);
  EXPECT_THAT(good.out, HasSubstr("train --optimizer model runs its algorithm; train --initialize "
                                  "makes its initial weights"));
  std::string bytes = RegressionThatTrainsItselfBytes();
  bytes.replace(bytes.rfind("w_new"), 5, "w_now");  // in the last update_binding of w
  WriteTestFile(model_, bytes);
  const CommandResult broken = RunCommand({"check", model_});
  EXPECT_EQ(broken.exit_code, 0) << "it runs, and trains by other algorithms";
  EXPECT_THAT(broken.out, HasSubstr("update_binding of 'w' to 'w_now': no output is called"));
  const CommandResult refused = Train(model_, {"--optimizer", "model"});
  EXPECT_EQ(refused.exit_code, static_cast<int>(ExitCode::kModel));
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("'w_now'"), HasSubstr("self.onnx"), Not(HasSubstr("\n\n"))));
}

}  // namespace
}  // namespace weft::testing
