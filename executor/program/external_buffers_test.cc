// Large inputs and outputs of a run are used where they lie (external_buffers.h): the caller's
// memory must stay his.
#include "executor/program/external_buffers.h"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/interfaces/communicator.h"
#include "executor/interfaces/input_source.h"
#include "executor/program/compile_step.h"
#include "executor/program/forward_runner.h"
#include "executor/program/step_program.h"
#include "executor/variables/variable_store.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// 16 KiB each.
constexpr int64_t kElements = 4096;

Tensor Filled(float value) {
  return Tensor::Of<float>({kElements}, std::vector<float>(kElements, value));
}

ValueId AddInput(Graph& graph, const std::string& name) {
  return graph.AddInput(name, {ValueKind::kTensor, DType::kFloat32, Shape{kElements}});
}

// y = max(x, 0), z = x + y.
Graph ReluAndSum() {
  Graph graph;
  const ValueId x = AddInput(graph, "x");
  GraphBuilder builder(graph);
  const ValueId y = builder.Op("Relu", {x});
  builder.Name(y, "y");
  const ValueId z = builder.Op("Add", {x, y});
  builder.Name(z, "z");
  graph.AddOutput(y);
  graph.AddOutput(z);
  return graph;
}

TEST(ExternalBuffersTest, EachRunReadsItsOwnInput) {
  ForwardRunner runner(ReluAndSum(), {});
  std::vector<std::map<std::string, Value>> results;
  for (const float value : {1.0f, -2.0f, 3.0f, 4.0f}) {
    const Tensor x = Filled(value);
    const auto outputs = runner.Run({{"x", x}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_THAT(x.data<float>(), Each(value)) << "an input was written to";
    results.push_back(*outputs);
  }
  // Earlier results are not touched by later runs.
  EXPECT_THAT(results[0].at("z").tensor().data<float>(), Each(2));
  EXPECT_THAT(results[1].at("y").tensor().data<float>(), Each(0));
  EXPECT_THAT(results[1].at("z").tensor().data<float>(), Each(-2));
  EXPECT_THAT(results[2].at("z").tensor().data<float>(), Each(6));
  EXPECT_THAT(results[3].at("y").tensor().data<float>(), Each(4));
}

// Memory that does not begin on a cache line is copied: kernels may ask for that.
TEST(ExternalBuffersTest, AnInputThatIsNotAlignedIsCopied) {
  ForwardRunner runner(ReluAndSum(), {});
  for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{0}}) {
    const Tensor longer =
        Tensor::Of<float>({kElements + 1, 1}, std::vector<float>(kElements + 1, 5.0f));
    Tensor rows = longer.Rows(first, first + kElements);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(rows.raw_data()) % kAlignment == 0, first == 0);
    const auto x = rows.Reshaped({kElements});
    const auto outputs = runner.Run({{"x", x}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_THAT(outputs->at("z").tensor().data<float>(), Each(10));
  }
}

TEST(ExternalBuffersTest, OneValueMayBeSeveralOutputsAndAnInput) {
  Graph graph;
  const ValueId x = AddInput(graph, "x");
  GraphBuilder builder(graph);
  const ValueId y = builder.Op("Identity", {x});
  builder.Name(y, "y");
  const ValueId z = builder.Op("Identity", {y});
  builder.Name(z, "z");
  graph.AddOutput(x);
  graph.AddOutput(y);
  graph.AddOutput(z);
  ForwardRunner runner(std::move(graph), {});
  for (const float value : {7.0f, 8.0f}) {
    const Tensor input = Filled(value);
    auto outputs = runner.Run({{"x", input}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    for (const auto& [name, output] : *outputs) {
      EXPECT_THAT(output.tensor().data<float>(), Each(value)) << name;
      EXPECT_NE(output.tensor().raw_data(), input.raw_data()) << name;
    }
  }
}

// Its batch can be borrowed in every other step. Counts what it had to copy.
class BorrowableSource final : public InputSource {
 public:
  absl::Status Fill(int64_t step, const FeedInput&, int64_t, int64_t, void* target) override {
    ++copies;
    std::memcpy(target, rows_[step % 2].raw_data(), rows_[step % 2].bytes());
    return absl::OkStatus();
  }
  std::span<const std::byte> BorrowBatch(int64_t step, const FeedInput&, int64_t,
                                         int64_t) override {
    if (step % 2 == 1) return {};
    return {static_cast<const std::byte*>(rows_[0].raw_data()), rows_[0].bytes()};
  }
  int copies = 0;

 private:
  const std::vector<Tensor> rows_ = {Filled(1), Filled(2)};
};

// Four steps of y = op(x, ..., x) with `inputs` inputs: the first element of each step's y; and
// how often x was copied.
struct BorrowedSteps {
  std::vector<float> results;
  int copies = 0;
};
BorrowedSteps RunBorrowed(const std::string& op, size_t inputs) {
  BorrowedSteps steps;
  Partition partition;
  partition.rank = RankId(0);
  partition.training = false;
  partition.global_batch = 1;
  partition.inputs = {{"x", InputRole::kData, DType::kFloat32, Shape{kElements}}};
  Graph micro;
  const ValueId x = micro.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{1, kElements}});
  GraphBuilder builder(micro);
  const ValueId result = builder.Op(op, std::vector<ValueId>(inputs, x));
  builder.Name(result, "y");
  micro.AddOutput(result);
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  partition.micro.push_back(std::move(micro));
  partition.micro_batches = {{0, 0, 1, 0}};
  partition.accumulations = {{"y", {{"y", 0, 1}}, false}};
  const ValueId total =
      partition.end.AddInput("y", {ValueKind::kTensor, DType::kFloat32, Shape{1, kElements}});
  partition.end.AddOutput(total);
  partition.reports = {"y"};
  partition.actions = {{Action::Kind::kForward, 0, 0}, {Action::Kind::kUpdate, 0, 0}};
  BorrowableSource source;
  VariableStore variables(CpuDevice());
  const auto communicator = NewSoloCommunicator();
  const auto program =
      CompileStep(partition, {&CpuDevice(), &variables, communicator.get(), &source, &RealClock()});
  EXPECT_TRUE(program.ok()) << program.status();
  for (int64_t step = 0; program.ok() && step < 4; ++step) {
    const auto report = (*program)->Run({step, {}, false});
    EXPECT_TRUE(report.ok()) << report.status();
    if (report.ok()) steps.results.push_back(report->reports.at("y").data<float>()[0]);
  }
  steps.copies = source.copies;
  return steps;
}

TEST(ExternalBuffersTest, ASourceMayLetBatchesBeBorrowedAtTimes) {
  const BorrowedSteps steps = RunBorrowed("Add", 2);
  EXPECT_THAT(steps.results, ElementsAre(2, 4, 2, 4));
  EXPECT_EQ(steps.copies, 2);
}

// Softmax, Gelu and others that write over their input took twice as long in a run as their
// kernels.
TEST(ExternalBuffersTest, BorrowedInputsAreNotCopiedToBeWrittenOver) {
  ASSERT_FALSE(OpRegistry::Global().Find("", "Relu")->in_place().empty());
  const BorrowedSteps steps = RunBorrowed("Relu", 1);
  EXPECT_THAT(steps.results, ElementsAre(1, 2, 1, 2));
  EXPECT_EQ(steps.copies, 2);
}

}  // namespace
}  // namespace weft
