// The oracle notices what is wrong with partitions.
#include "placement/testing/reference_interpreter.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "ops/testing/test_tensors.h"
#include "placement/partition/partition_check.h"
#include "placement/partition/partitioner.h"
#include "placement/testing/regression_graph.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

class ReferenceInterpreterTest : public ::testing::Test {
 protected:
  ReferenceInterpreterTest() {
    values_.data = {{"x", RandomTensor({8, 4}, 1, -1, 1, DType::kFloat64)},
                    {"labels", RandomTensor({8, 2}, 2, -1, 1, DType::kFloat64)}};
    values_.scalars = {{"learning_rate", Tensor::Scalar<float>(0.25f)}};
    values_.variables = {{"w1", RandomTensor({4, 3}, 3, -1, 1, DType::kFloat64)},
                         {"w2", RandomTensor({3, 2}, 4, -1, 1, DType::kFloat64)}};
  }

  void Make(Mesh mesh) {
    Plan plan;
    plan.mesh = mesh;
    plan.micro_batches = 2;
    if (mesh.pipeline == 2) plan.stages = {{"fc1/*", 0}, {"fc2/*", 1}, {"loss/*", 1}};
    auto partitions = PartitionStep(RegressionGraph(), plan, {true, 8}, CpuNodeEvaluator());
    ASSERT_TRUE(partitions.ok()) << partitions.status();
    partitions_ = *std::move(partitions);
  }
  static NodeId Find(const Graph& graph, const std::string& op) {
    for (const NodeId id : graph.node_ids()) {
      if (graph.node(id).op == op) return id;
    }
    return NodeId();
  }
  std::string Interpreted() const {
    return std::string(InterpretStep(partitions_, values_).status().message());
  }
  std::string Checked() const { return std::string(CheckPartitions(partitions_).message()); }

  StepValues values_;
  std::vector<Partition> partitions_;
};

// Plain loops over the formulas in regression_graph.h.
TEST_F(ReferenceInterpreterTest, EvaluatesTheFormulas) {
  const StepOutcome outcome = *EvaluateStep(RegressionGraph(), values_, 8);
  const auto x = values_.data["x"].data<double>();
  const auto labels = values_.data["labels"].data<double>();
  const auto w1 = values_.variables["w1"].data<double>();
  const auto w2 = values_.variables["w2"].data<double>();
  double loss = 0;
  double gradient = 0;  // of w2[1,0]
  for (int n = 0; n < 8; ++n) {
    double h[3] = {};
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 3; ++j) h[j] += x[n * 4 + i] * w1[i * 3 + j];
    }
    for (int k = 0; k < 2; ++k) {
      double error = -labels[n * 2 + k];
      for (int j = 0; j < 3; ++j) error += h[j] * w2[j * 2 + k];
      loss += error * error / 16;
      if (k == 0) gradient += 2 * error * h[1] / 16;
    }
  }
  EXPECT_NEAR(outcome.reports.at("loss").data<double>()[0], loss, 1e-14);
  EXPECT_NEAR(outcome.variables.at("w2").data<double>()[2], w2[2] - 0.25 * gradient, 1e-14);
}

TEST_F(ReferenceInterpreterTest, AllMeshesAgreeWithIt) {
  const StepOutcome expected = *EvaluateStep(RegressionGraph(), values_, 8);
  for (const Mesh mesh : {Mesh{1, 1, 1}, Mesh{2, 1, 1}, Mesh{1, 1, 2}, Mesh{2, 2, 2}}) {
    Make(mesh);
    const auto outcome = InterpretStep(partitions_, values_);
    ASSERT_TRUE(outcome.ok()) << mesh.ToString() << ": " << outcome.status();
    EXPECT_LE(Difference(expected, *outcome), 1e-14) << mesh.ToString();
  }
}

TEST_F(ReferenceInterpreterTest, DifferencesAreSeen) {
  const StepOutcome one = *EvaluateStep(RegressionGraph(), values_, 8);
  StepOutcome other = one;
  other.variables["w1"] = *other.variables["w1"].Clone();
  other.variables["w1"].mutable_data<double>()[5] += 1e-3;
  EXPECT_NEAR(Difference(one, other), 1e-3, 1e-9);
  other.variables.erase("w1");
  EXPECT_GT(Difference(one, other), 1e300);
}

TEST_F(ReferenceInterpreterTest, AMissingSendIsNoticed) {
  Make({1, 1, 2});
  Graph& micro = partitions_[0].micro[0];
  micro.RemoveNode(Find(micro, "Send"));
  EXPECT_THAT(Interpreted(), HasSubstr("the ranks wait for ever: rank 0 for receive/grad/fc2"));
  EXPECT_THAT(Interpreted(), HasSubstr("rank 1 for receive/fc1/MatMul of micro-batch 0"));
}

TEST_F(ReferenceInterpreterTest, AMessageTooManyIsNoticed) {
  Make({1, 1, 2});
  Graph& end = partitions_[0].end;
  Graph::NodeSpec spec;
  spec.domain = "ai.weft";
  spec.op = "Send";
  spec.attributes.Set("channel", int64_t{99});
  spec.inputs = {end.FindVariable("w1")->value};
  end.AddNode(std::move(spec));
  EXPECT_EQ(Interpreted(), "channel 99 keeps 1 messages that nobody received");
}

TEST_F(ReferenceInterpreterTest, ReplicasThatPartAreNoticed) {
  Make({2, 1, 1});
  Graph& end = partitions_[1].end;
  end.node(Find(end, "SgdUpdate")).attributes.Set("weight_decay", 0.5f);
  EXPECT_EQ(Interpreted(), "rank 1 has another replica of 'w1'");
}

TEST_F(ReferenceInterpreterTest, TheCheckFindsChannelsWithOneEnd) {
  Make({1, 1, 2});
  EXPECT_EQ(Checked(), "");
  partitions_[1].channels.erase(partitions_[1].channels.begin());
  EXPECT_EQ(Checked(), "channel 0 of 'fc1/MatMul' from rank 0 to 1 is sent but never received");
}

TEST_F(ReferenceInterpreterTest, TheCheckFindsChannelsThatDiffer) {
  Make({1, 1, 2});
  partitions_[1].channels[0].shape = Shape{4, 4};
  EXPECT_THAT(Checked(), HasSubstr("is not the same at both ends"));
}

TEST_F(ReferenceInterpreterTest, TheCheckFindsInputsThatNothingFeeds) {
  Make({1, 1, 1});
  partitions_[0].inputs.erase(partitions_[0].inputs.begin());
  EXPECT_EQ(Checked(), "partition of rank 0, graph micro 0: nothing feeds input 'x'");
}

TEST_F(ReferenceInterpreterTest, TheCheckFindsDeadlocks) {
  Make({1, 1, 2});
  std::swap(partitions_[0].actions[1], partitions_[0].actions[3]);
  EXPECT_THAT(Checked(), HasSubstr("replica 0: deadlock: stage 0 waits for ever to start B0"));
}

}  // namespace
}  // namespace weft::testing
