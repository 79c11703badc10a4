// Generated kernels on the emulated GPU: the text that NVRTC gets, compiled by the system's
// compiler, against the kernels of the parts one after the other.
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/fusion/fuse_regions.h"
#include "ops/fusion/fused_node.h"
#include "ops/kernels/cuda/fusion/region_text.h"
#include "ops/kernels/cuda/fusion/testing/fused_chains.h"
#include "ops/kernels/cuda/fusion/testing/host_compiler.h"
#include "ops/testing/emulator/body_runner.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Of floats on a card, where the compilers of the region and of its parts may each round a product
// and a sum at once (law 2 of ops/kernels/cuda/fusion/README.md).
Tolerance OnACard(DType dtype) {
  switch (dtype) {
    case DType::kBfloat16:
      return {.of_element = 0x1p-7};
    case DType::kFloat16:
      return {.of_element = 0x1p-9};
    case DType::kFloat64:
      return {.of_magnitude = 1e-14};
    default:
      return {};
  }
}

class GeneratedKernelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TestsOnARealGpu() && !HostCompiler::IsThere()) {
      GTEST_SKIP() << "no C++ compiler in PATH: generated kernels are not run";
    }
  }

  ValueId Feed(const Tensor& tensor) {
    const ValueId value =
        graph_.AddInput("x", {ValueKind::kTensor, tensor.dtype(), SymbolicShape(tensor.shape())});
    feeds_[value] = tensor;
    return value;
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }
  ValueId Slope(const std::string& op, std::vector<ValueId> inputs) {
    return builder_.WeftOp(op, std::move(inputs));
  }
  void Output(ValueId value) { graph_.AddOutput(value); }

  // Fuses the graph to one node, and holds its outputs against those of its parts. `near`: of what
  // a reduction folds; all else has the bits of the parts.
  void Check(const Tolerance& near = {}) {
    ASSERT_TRUE(builder_.status().ok()) << builder_.status();
    const absl::StatusOr<OpCase> op_case = FusedCaseOf(graph_, feeds_);
    ASSERT_TRUE(op_case.ok()) << op_case.status();
    CheckFused(*op_case, near);
  }

  // The same of a fused node.
  void CheckFused(const OpCase& op_case, const Tolerance& near) {
    std::vector<Tensor> first;
    for (const uint64_t seed : {1, 2}) {
      EmulatedRunOptions options;
      options.seed = seed;
      options.runs = 2;
      const auto outputs = RunOnEmulatedGpu(op_case, options, &launches_);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      for (size_t i = 0; i < outputs->size() && seed == 2; ++i) {
        EXPECT_TRUE(BitwiseEqual((*outputs)[i], first[i])) << "seed " << seed;
      }
      first = *outputs;
    }
    const Graph& body = *std::get<std::shared_ptr<Graph>>(*op_case.attributes.Find(kFusedBody));
    const std::vector<Tensor> expected = OutputsOfParts(body, op_case.inputs);
    ASSERT_EQ(first.size(), expected.size());
    for (size_t i = 0; i < first.size(); ++i) {
      const Node& part = body.node(body.value(body.outputs()[i]).producer);
      if (part.op.starts_with("Reduce") && part.op != "ReduceMax") {
        EXPECT_TRUE(TensorsNear(first[i], expected[i], near)) << part.op;
      } else if (TestsOnARealGpu() && IsFloatingPoint(first[i].dtype())) {
        EXPECT_TRUE(TensorsNear(first[i], expected[i], OnACard(first[i].dtype()))) << part.op;
      } else {
        EXPECT_TRUE(BitwiseEqual(first[i], expected[i]))
            << part.op << ": " << first[i].ToString() << " instead of " << expected[i].ToString();
      }
    }
    region_ = *cuda::GenerateRegion(body);
  }

  // Each part by its own kernel on the emulated GPU.
  static std::vector<Tensor> OutputsOfParts(const Graph& body, const std::vector<Tensor>& inputs) {
    std::map<ValueId, Tensor> values;
    size_t next = 0;
    for (const Tensor& input : inputs) {
      if (input.valid()) values[body.inputs()[next++]] = input;
    }
    for (const NodeId id : body.node_ids()) {
      const Node& part = body.node(id);
      OpCase op_case{
          .domain = part.domain, .op = part.op, .attributes = part.attributes, .inputs = {}};
      for (const ValueId input : part.inputs) {
        Tensor& operand = op_case.inputs.emplace_back();
        if (!input.valid()) continue;
        const ValueDef& def = body.value(input);
        operand = def.source == ValueSource::kConstant ? def.constant : values.at(input);
      }
      const auto outputs = RunOnEmulatedGpu(op_case);
      EXPECT_TRUE(outputs.ok()) << part.op << outputs.status();
      if (!outputs.ok()) return {};
      values[part.outputs[0]] = (*outputs)[0];
    }
    std::vector<Tensor> results;
    for (const ValueId output : body.outputs()) results.push_back(values.at(output));
    return results;
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
  std::map<ValueId, Tensor> feeds_;
  std::vector<EmulatedLaunchRecord> launches_;
  cuda::RegionText region_;
};

// ---- Operators.

struct FunctionsCase {
  std::vector<std::pair<std::string, Attributes>> functions;
  DType dtype = DType::kFloat32;
};

class FunctionsOfOneTest : public GeneratedKernelsTest,
                           public ::testing::WithParamInterface<FunctionsCase> {};

TEST_P(FunctionsOfOneTest, HaveTheBitsOfTheirKernels) {
  const DType dtype = GetParam().dtype;
  const ValueId x = Feed(RandomTensor({47}, 3, -3, 3, dtype));
  const ValueId sum = Op("Add", {x, Feed(RandomTensor({47}, 4, -1, 1, dtype))});
  for (const auto& [op, attributes] : GetParam().functions) Output(Op(op, {sum}, attributes));
  Check();
}

INSTANTIATE_TEST_SUITE_P(
    Groups, FunctionsOfOneTest,
    ::testing::Values(
        FunctionsCase{{{"Neg", {}},
                       {"Abs", {}},
                       {"Sign", {}},
                       {"Relu", {}},
                       {"Exp", {}},
                       {"Log", {}},
                       {"Sqrt", {}},
                       {"Reciprocal", {}}}},
        FunctionsCase{{{"Erf", {}},
                       {"Sin", {}},
                       {"Cos", {}},
                       {"Ceil", {}},
                       {"Floor", {}},
                       {"Round", {}},
                       {"Sigmoid", {}},
                       {"Tanh", {}}}},
        FunctionsCase{{{"HardSwish", {}},
                       {"Softplus", {}},
                       {"Softsign", {}},
                       {"Mish", {}},
                       {"LeakyRelu", {{"alpha", 0.3f}}},
                       {"ThresholdedRelu", {{"alpha", 0.5f}}},
                       {"Swish", {{"alpha", 1.5f}}},
                       {"Elu", {{"alpha", 0.7f}}}}},
        FunctionsCase{{{"HardSigmoid", {{"alpha", 0.15f}, {"beta", 0.4f}}},
                       {"Gelu", {}},
                       {"Gelu", {{"approximate", std::string("tanh")}}},
                       {"LeakyRelu", {}},
                       {"Swish", {}},
                       {"Elu", {}},
                       {"HardSigmoid", {}},
                       {"ThresholdedRelu", {}}}},
        FunctionsCase{{{"Gelu", {}}, {"Tanh", {}}, {"Sigmoid", {}}, {"Relu", {}}},
                      DType::kBfloat16},
        FunctionsCase{{{"Gelu", {}}, {"Tanh", {}}, {"Exp", {}}, {"Abs", {}}}, DType::kFloat16},
        FunctionsCase{{{"Gelu", {}}, {"Tanh", {}}, {"Exp", {}}, {"Abs", {}}}, DType::kFloat64}),
    [](const auto& info) {
      return info.param.functions[0].first + std::string(DTypeName(info.param.dtype));
    });

TEST_F(GeneratedKernelsTest, FunctionsOfTwoHaveTheBitsOfTheirKernels) {
  const ValueId a = Op("Abs", {Feed(RandomTensor({37}, 3, -3, 3))});
  const ValueId b = Feed(RandomTensor({37}, 4, -3, 3));
  for (const char* const op : {"Sub", "Mul", "Div", "Pow", "PRelu"}) Output(Op(op, {a, b}));
  Output(Op("Sum", {a, b, a}));
  Output(Op("Max", {a, b}));
  Output(Op("Min", {b, a}));
  Check();
}

TEST_F(GeneratedKernelsTest, SlopesHaveTheBitsOfTheirKernels) {
  const ValueId dy = Op("Neg", {Feed(RandomTensor({37}, 3, -3, 3))});
  const ValueId x = Feed(RandomTensor({37}, 4, -3, 3));
  for (const char* const op : {"ReluGrad", "SigmoidGrad", "TanhGrad", "ErfGrad", "GeluGrad",
                               "TanhGeluGrad", "SwishGrad"}) {
    Output(Slope(op, {dy, x}));
  }
  Check();
}

TEST_F(GeneratedKernelsTest, ChoicesAndComparisonsHaveTheBitsOfTheirKernels) {
  const ValueId a = Op("Round", {Feed(RandomTensor({53}, 3, -3, 3))});
  const ValueId b = Op("Round", {Feed(RandomTensor({53}, 4, -3, 3))});
  const ValueId less = Op("Less", {a, b});
  const ValueId more = Op("GreaterOrEqual", {a, b});
  const ValueId equal = Op("Equal", {a, b});
  Output(Op("Where", {Op("And", {Op("Not", {equal}), less}), a, b}));
  Output(Op("Xor", {more, Op("Or", {Op("Greater", {a, b}), Op("LessOrEqual", {a, b})})}));
  Output(Op("Cast", {a}, {{"to", static_cast<int64_t>(DType::kInt32)}}));
  Output(Op("Cast", {less}, {{"to", static_cast<int64_t>(DType::kBfloat16)}}));
  Output(Op("Cast", {b}, {{"to", static_cast<int64_t>(DType::kBool)}}));
  Output(Op("Clip", {a, builder_.Float(-1), builder_.Float(2)}));
  Output(Op("Clip", {b, kNoValue, Feed(RandomTensor({}, 9, 0, 1))}));
  Check();
}

// ---- Shapes.

TEST_F(GeneratedKernelsTest, OperandsBroadcast) {
  ValueId x = Feed(RandomTensor({3, 5, 7}, 1));
  int seed = 2;
  for (const Shape& shape : {Shape({7}), Shape({5, 1}), Shape({3, 1, 7}), Shape({1}), Shape({})}) {
    x = Op("Add", {Feed(RandomTensor(shape, seed)), x});
    ++seed;
  }
  Output(Op("Mul", {x, x}));
  Check();
  EXPECT_EQ(region_.width, 1);  // rows of 7
}

TEST_F(GeneratedKernelsTest, RowsThatFitAreReadInPackets) {
  const ValueId x = Feed(RandomTensor({6, 24}, 1));
  const ValueId sum = Op("Add", {x, Feed(RandomTensor({24}, 2))});
  Output(Op("Relu", {Op("Mul", {sum, Feed(RandomTensor({6, 1}, 3))})}));
  Check();
  EXPECT_EQ(region_.width, 4);
  EXPECT_THAT(region_.text, HasSubstr("gpu.template Load<4>"));
}

TEST_F(GeneratedKernelsTest, WhatPacketsLeaveGoesOneByOne) {
  const ValueId x = Feed(RandomTensor({1031}, 1, -1, 1, DType::kBfloat16));
  const ValueId half = Op("Mul", {x, builder_.Scalar(DType::kBfloat16, 0.5)});
  Output(half);
  Output(Op("Tanh", {Op("Add", {half, x})}));
  Check();
  EXPECT_EQ(region_.width, 8);
  EXPECT_THAT(region_.text, HasSubstr("0x1p-1f"));
}

TEST_F(GeneratedKernelsTest, ThreadsWalkOverMoreThanABlock) {
  const ValueId x = Feed(RandomTensor({61, 43}, 1));
  Output(Op("Neg", {Op("Add", {x, Feed(RandomTensor({61, 1}, 2))})}));
  Check();
}

// A chain of nodes of 16 bits is rounded after each: this one would have other bits otherwise.
TEST_F(GeneratedKernelsTest, SixteenBitsAreRoundedAfterEachNode) {
  ValueId x = Feed(RandomTensor({256}, 1, 1, 2, DType::kFloat16));
  const ValueId y = Feed(RandomTensor({256}, 2, 1, 2, DType::kFloat16));
  for (int i = 0; i < 6; ++i) x = Op(i % 2 == 0 ? "Mul" : "Sub", {x, y});
  Output(x);
  Check();
}

// ---- Reductions.

TEST_F(GeneratedKernelsTest, RowsAreFoldedByWarps) {
  const ValueId x = Feed(RandomTensor({13, 37}, 1));
  const ValueId square = Op("Mul", {x, x});
  Output(square);
  Output(Op("ReduceMean", {square, builder_.Ints({-1})}, {{"keepdims", int64_t{0}}}));
  Check();
}

TEST_F(GeneratedKernelsTest, LongRowsAreFoldedByBlocks) {
  const ValueId x = Feed(RandomTensor({3, 12, 128}, 1, -1, 1, DType::kBfloat16));
  const ValueId y = Op("Exp", {x});
  Output(Op("ReduceSum", {y, builder_.Ints({1, 2})}));
  Check({.of_magnitude = 8e-3});
  EXPECT_EQ(region_.width, 8);
  EXPECT_THAT(region_.text, HasSubstr("BlockReduce"));
}

TEST_F(GeneratedKernelsTest, NanIsTheLargest) {
  Tensor x = RandomTensor({5, 40}, 1);
  x.mutable_data<float>()[41] = std::numeric_limits<float>::quiet_NaN();
  Output(Op("ReduceMax", {Op("Neg", {Feed(x)}), builder_.Ints({1})}));
  Check();
}

TEST_F(GeneratedKernelsTest, OtherAxesAndFewLongRowsStayAlone) {
  const ValueId y = Op("Neg", {Feed(RandomTensor({4, 6}, 1))});
  Output(Op("ReduceSum", {y, builder_.Ints({0})}));
  Output(Op("ReduceSum", {Op("Neg", {Feed(RandomTensor({3, 4000}, 1))}), builder_.Ints({1})}));
  const auto counts = FuseRegions(graph_, *FindFusionRules(DeviceKind::kCuda));
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->regions, 0);
}

// ---- Chains of models.

class ChainsOfModelsTest : public GeneratedKernelsTest,
                           public ::testing::WithParamInterface<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, ChainsOfModelsTest,
                         ::testing::Values(DType::kFloat32, DType::kBfloat16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

// And they read each operand once, in one launch; what repeats comes from the cache.
TEST_P(ChainsOfModelsTest, HaveTheValuesOfTheirParts) {
  constexpr int64_t kRows = 37, kColumns = 72;
  uint64_t seed = 0;
  const auto chains =
      FusedChains(kRows, kColumns, GetParam(), [&](const Shape& shape, DType dtype) {
        return RandomTensor(shape, ++seed, shape.dim(shape.rank() - 1) == 1 ? 0.5 : -1, 1, dtype);
      });
  ASSERT_TRUE(chains.ok()) << chains.status();
  EXPECT_EQ(chains->size(), 5u);
  for (const FusedChain& chain : *chains) {
    SCOPED_TRACE(chain.name);
    CheckFused(chain.op_case, {.of_magnitude = GetParam() == DType::kBfloat16 ? 8e-3 : 2e-6});
    EXPECT_EQ(region_.width, GetParam() == DType::kBfloat16 ? 8 : 4);
    if (TestsOnARealGpu()) continue;  // the emulator counts
    std::vector<EmulatedLaunchRecord> launches;
    const auto outputs = RunOnEmulatedGpu(chain.op_case, {}, &launches);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    ASSERT_EQ(launches.size(), 1u);
    int64_t written = 0;
    for (const Tensor& output : *outputs) written += static_cast<int64_t>(output.bytes());
    EXPECT_EQ(launches[0].bytes_written, written);
    int64_t read = 0;
    for (const Tensor& input : chain.op_case.inputs) {
      const auto bytes = static_cast<int64_t>(input.bytes());
      if (input.num_elements() == kColumns) {
        read += bytes * kRows;
      } else if (input.num_elements() == kRows) {
        read += bytes * kColumns / region_.width;  // by each packet
      } else {
        read += bytes;
      }
    }
    EXPECT_EQ(launches[0].bytes_read, read);
  }
}

// ---- The text.

TEST_F(GeneratedKernelsTest, EqualRegionsHaveEqualText) {
  std::vector<std::string> texts;
  for (const char* const name : {"first", "second"}) {
    Graph body;
    GraphBuilder builder(body);
    builder.set_name_prefix(name);
    const ValueId x =
        body.AddInput(name, {ValueKind::kTensor, DType::kFloat32, SymbolicShape(Shape({8}))});
    body.AddOutput(builder.Op("Relu", {builder.Op("Neg", {x})}));
    texts.push_back(cuda::GenerateRegion(body)->text);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST_F(GeneratedKernelsTest, IndicesHave64BitsWhereElementsAreMany) {
  Graph body;
  GraphBuilder builder(body);
  const auto input = [&](const Shape& shape) {
    return body.AddInput("x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(shape)});
  };
  const ValueId wide = input({1 << 16, 1 << 15});
  body.AddOutput(builder.Op("Relu", {builder.Op("Add", {wide, input({1 << 15})})}));
  const auto region = cuda::GenerateRegion(body);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_THAT(region->text, HasSubstr("using Index = int64_t"));
}

TEST_F(GeneratedKernelsTest, WhatTheTableLacksIsRefusedByName) {
  Graph body;
  GraphBuilder builder(body);
  const ValueId x =
      body.AddInput("x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(Shape({2, 2}))});
  body.AddOutput(builder.Op("Softmax", {x}));
  const auto region = cuda::GenerateRegion(body);
  EXPECT_EQ(region.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(region.status().message()), HasSubstr("operator Softmax of 'Softmax'"));
}

TEST_F(GeneratedKernelsTest, InfiniteParametersStayAlone) {
  const ValueId y = Op("Neg", {Feed(RandomTensor({5}, 1))});
  Output(Op("LeakyRelu", {y}, {{"alpha", std::numeric_limits<float>::infinity()}}));
  Output(Op("HardSigmoid", {y}, {{"beta", std::numeric_limits<float>::quiet_NaN()}}));
  const auto counts = FuseRegions(graph_, *FindFusionRules(DeviceKind::kCuda));
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(graph_.num_nodes(), 3) << graph_.DebugString();
}

// ---- Memory.

// An output may be written over the operand that comes first (ops/fusion/fused_node.h).
TEST_F(GeneratedKernelsTest, AnOutputMayBeWrittenOverItsOperand) {
  if (TestsOnARealGpu()) GTEST_SKIP() << "on the emulator alone";
  Graph body;
  GraphBuilder builder(body);
  const auto input = [&](const Shape& shape) {
    return body.AddInput("x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(shape)});
  };
  const ValueId x = input({5, 8});
  body.AddOutput(builder.Op("Neg", {builder.Op("Add", {x, input({8})})}));
  const auto region = cuda::GenerateRegion(body);
  ASSERT_TRUE(region.ok()) << region.status();
  const auto kernel = HostCompiler::Global().Compile(region->text);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  BodyRunner runner;
  std::vector<float> wide(40);
  for (int i = 0; i < 40; ++i) wide[i] = static_cast<float>(i);
  const std::vector<float> row = {1, 2, 3, 4, 5, 6, 7, 8};
  float* const memory = runner.Input(wide);
  cuda::GeneratedArguments arguments = {};
  arguments.x[0] = memory;
  arguments.x[1] = runner.Input(row);
  arguments.y[0] = memory;
  EXPECT_EQ((*kernel)->Launch({runner.stream().native_handle()}, region->grid, arguments), 0);
  ASSERT_TRUE(runner.Finish().ok()) << runner.Finish();
  const std::vector<float> result = runner.Read(memory, 40);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(result[i], -(wide[i] + row[i % 8])) << i;
}

// What the emulator would say of a text that writes beside its memory.
TEST_F(GeneratedKernelsTest, AWrongTextIsReported) {
  if (TestsOnARealGpu()) GTEST_SKIP() << "on the emulator alone";
  Graph body;
  GraphBuilder builder(body);
  const ValueId x =
      body.AddInput("x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(Shape({8}))});
  body.AddOutput(builder.Op("Neg", {builder.Op("Relu", {x})}));
  const auto region = cuda::GenerateRegion(body);
  ASSERT_TRUE(region.ok()) << region.status();
  const auto kernel = HostCompiler::Global().Compile(region->text);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  BodyRunner runner;
  cuda::GeneratedArguments arguments = {};
  arguments.x[0] = runner.Input(std::vector<float>(8));
  arguments.y[0] = runner.Memory<float>(4);
  EXPECT_EQ((*kernel)->Launch({runner.stream().native_handle()}, region->grid, arguments), 0);
  EXPECT_FALSE(runner.Finish().ok());
  const auto broken = HostCompiler::Global().Compile("this is no text");
  EXPECT_EQ(broken.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(broken.status().message()), HasSubstr("this is no text"));
}

}  // namespace
}  // namespace weft::testing
