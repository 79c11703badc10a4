// Gradients of attention through cuDNN: graphs of the gradient rule, joined as the lowering joins
// them, on the emulated GPU with a library that computes from definitions, on a real GPU with cuDNN
// itself; against the rule in float64 by the reference kernels.
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ops/fusion/attention_gradient.h"
#include "ops/kernels/cuda/dnn/testing/recording_dnn.h"
#include "ops/kernels/cuda/linear/testing/recording_blas_lt.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/gradient_rule.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"
#include "platform/status_macros.h"
#include "tensor/device_id.h"
#include "tensor/lookup/device_lookup.h"

namespace weft::testing {
namespace {

const bool joined_schemas_are_known =
    OpRegistry::Global().Register(AttentionWithSumsSchema()).ok() &&
    OpRegistry::Global().Register(AttentionGradSchema()).ok();

struct GradientSizes {
  int64_t batch = 2, q_heads = 4, kv_heads = 4, queries = 5, keys = 7, key_size = 8, value_size = 8;
};

OpCase GradientCase(const GradientSizes& s, bool packed, Attributes attributes, DType dtype) {
  OpCase made;
  made.op = "Attention";
  made.attributes = std::move(attributes);
  made.outputs = {true};
  if (packed) {
    made.attributes.Set("q_num_heads", s.q_heads);
    made.attributes.Set("kv_num_heads", s.kv_heads);
    made.inputs = {RandomTensor({s.batch, s.queries, s.q_heads * s.key_size}, 1, -2, 2, dtype),
                   RandomTensor({s.batch, s.keys, s.kv_heads * s.key_size}, 2, -2, 2, dtype),
                   RandomTensor({s.batch, s.keys, s.kv_heads * s.value_size}, 3, -2, 2, dtype)};
  } else {
    made.inputs = {RandomTensor({s.batch, s.q_heads, s.queries, s.key_size}, 1, -2, 2, dtype),
                   RandomTensor({s.batch, s.kv_heads, s.keys, s.key_size}, 2, -2, 2, dtype),
                   RandomTensor({s.batch, s.kv_heads, s.keys, s.value_size}, 3, -2, 2, dtype)};
  }
  return made;
}

// The numbers in float64: what the truth is computed from.
absl::StatusOr<std::vector<Tensor>> InDouble(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> wide;
  for (const Tensor& tensor : tensors) {
    WEFT_ASSIGN_OR_RETURN(Tensor cast, CastTensor(tensor, DType::kFloat64));
    wide.push_back(std::move(cast));
  }
  return wide;
}

class CudaAttentionGradientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(joined_schemas_are_known);
    if (TestsOnARealGpu()) {
      const auto device = FindDevice(DeviceKind::kCuda, 0);
      ASSERT_TRUE(device.ok()) << device.status();
      const auto library = cuda::DnnOf(**device);
      if (!library.ok()) GTEST_SKIP() << "no cuDNN: " << library.status();
    }
    RecordingDnn::Get().TakeAttentionGradients();
  }
  void TearDown() override { RecordingDnn::Get().Refuse({}); }

  // The device that says what it takes.
  static absl::StatusOr<bool> Takes(const AttentionForm& form, const Node& node) {
    const DeviceTakesAttention takes = FindAttentionTaker(DeviceKind::kCuda);
    if (takes == nullptr) return absl::NotFoundError("nothing takes attention");
    if (TestsOnARealGpu()) {
      WEFT_ASSIGN_OR_RETURN(Device* const device, FindDevice(DeviceKind::kCuda, 0));
      return takes(*device, form, node);
    }
    EmulatedDevice device({.seed = 1});
    return takes(device, form, node);
  }

  // The gradients of `inputs` by the joined graph, node by node; invalid where none is wanted.
  static absl::StatusOr<std::vector<Tensor>> Joined(const OpCase& op_case,
                                                    const std::vector<int>& inputs, uint64_t seed) {
    WEFT_ASSIGN_OR_RETURN(const GradientGraph made, BuildGradientGraph(op_case, inputs));
    Graph& graph = *made.graph;
    for (const int i : inputs) {
      graph.RenameValue(made.input_gradients[i], absl::StrCat("d", i));
      graph.AddOutput(made.input_gradients[i]);
    }
    const ValueId arriving = made.output_gradients[0];
    std::map<std::string, Tensor> known;
    for (int i = 0; i < 3; ++i) {
      known[graph.value(made.inputs[i]).name] = op_case.inputs[i];
    }
    // As RuleGradients has them.
    known[graph.value(arriving).name] = RandomTensor(*graph.value(arriving).type.shape.ToConcrete(),
                                                     100, -1, 1, op_case.inputs[0].dtype());
    WEFT_RETURN_IF_ERROR(graph.Compact());
    WEFT_ASSIGN_OR_RETURN(const int joined, JoinAttentionGradients(graph, Takes));
    if (joined != 1) return absl::NotFoundError("nothing was joined");
    for (const NodeId id : graph.node_ids()) {
      const Node& node = graph.node(id);
      // Forward, and what the rule computes in vain, nobody reads.
      if (node.op != kAttentionWithSumsOp && node.op != kAttentionGradOp) continue;
      OpCase one;
      one.domain = node.domain;
      one.op = node.op;
      one.attributes = node.attributes;
      for (const ValueId input : node.inputs)
        one.inputs.push_back(known.at(graph.value(input).name));
      one.outputs.clear();
      for (const ValueId output : node.outputs) one.outputs.push_back(output.valid());
      EmulatedRunOptions options;
      options.uses_cudnn = true;
      options.seed = seed;
      options.runs = 2;
      WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, RunOnEmulatedGpu(one, options));
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i].valid()) known[graph.value(node.outputs[i]).name] = outputs[i];
      }
    }
    std::vector<Tensor> gradients;
    for (const int i : inputs) gradients.push_back(known.at(absl::StrCat("d", i)));
    return gradients;
  }

  static void ExpectGradients(const OpCase& op_case, const std::vector<int>& inputs = {0, 1, 2}) {
    SCOPED_TRACE(op_case.ToString());
    OpCase wide = op_case;
    auto in_double = InDouble(op_case.inputs);
    ASSERT_TRUE(in_double.ok()) << in_double.status();
    wide.inputs = *std::move(in_double);
    // What arrives has the type of the case: rounded numbers, in float64.
    const auto truth = Truth(op_case, wide, inputs);
    ASSERT_TRUE(truth.ok()) << truth.status();
    const double of_magnitude = op_case.inputs[0].dtype() == DType::kBfloat16 ? 2e-2 : 2e-3;
    std::vector<Tensor> first;
    for (const uint64_t seed : {1, 2}) {
      const auto gradients = Joined(op_case, inputs, seed);
      ASSERT_TRUE(gradients.ok()) << gradients.status();
      for (size_t i = 0; i < inputs.size(); ++i) {
        EXPECT_TRUE(TensorsNear((*gradients)[i], (*truth)[i], {.of_magnitude = of_magnitude}, true))
            << "gradient of input " << inputs[i];
        if (!first.empty()) {
          EXPECT_TRUE(BitwiseEqual((*gradients)[i], first[i]));
        }
      }
      first = *gradients;
    }
    const auto calls = RecordingDnn::Get().TakeAttentionGradients();
    // Two orders of threads, each twice.
    EXPECT_TRUE(TestsOnARealGpu() || calls.size() == 4) << calls.size();
  }

  // The rule in float64, for what arrives at the narrow case.
  static absl::StatusOr<std::vector<Tensor>> Truth(const OpCase& op_case, const OpCase& wide,
                                                   const std::vector<int>& inputs) {
    WEFT_ASSIGN_OR_RETURN(const GradientGraph made, BuildGradientGraph(wide, inputs));
    std::map<ValueId, Tensor> feeds;
    for (int i = 0; i < 3; ++i) feeds[made.inputs[i]] = wide.inputs[i];
    const ValueId arriving = made.output_gradients[0];
    WEFT_ASSIGN_OR_RETURN(
        feeds[arriving],
        CastTensor(RandomTensor(*made.graph->value(arriving).type.shape.ToConcrete(), 100, -1, 1,
                                op_case.inputs[0].dtype()),
                   DType::kFloat64));
    std::vector<ValueId> wanted;
    for (const int i : inputs) wanted.push_back(made.input_gradients[i]);
    return EvaluateGraph(*made.graph, feeds, wanted, KernelRegistry::Reference());
  }
};

TEST_F(CudaAttentionGradientTest, AgreesWithTheRuleAtManySizes) {
  for (const GradientSizes& s :
       {GradientSizes{}, GradientSizes{1, 1, 1, 1, 1, 8, 8}, GradientSizes{2, 6, 2, 7, 5, 16, 8},
        GradientSizes{1, 4, 1, 3, 11, 8, 24}, GradientSizes{3, 2, 2, 13, 13, 8, 8}}) {
    for (const bool causal : {false, true}) {
      for (const bool packed : {false, true}) {
        ExpectGradients(
            GradientCase(s, packed, {{"is_causal", int64_t{causal}}}, DType::kBfloat16));
      }
    }
  }
}

TEST_F(CudaAttentionGradientTest, AgreesForFloat16AndAScale) {
  const GradientSizes s{2, 4, 2, 5, 7, 8, 16};
  ExpectGradients(GradientCase(s, false, {{"scale", 0.7f}}, DType::kFloat16));
  ExpectGradients(
      GradientCase(s, true, {{"scale", -0.2f}, {"is_causal", int64_t{1}}}, DType::kFloat16));
}

TEST_F(CudaAttentionGradientTest, GradientsThatNobodyWantsLieInTheWorkspace) {
  const GradientSizes s{2, 4, 2, 5, 7, 8, 16};
  for (const std::vector<int>& inputs : {std::vector<int>{0}, {1}, {0, 2}, {1, 2}}) {
    for (const bool packed : {false, true}) {
      ExpectGradients(GradientCase(s, packed, {}, DType::kBfloat16), inputs);
    }
  }
}

TEST_F(CudaAttentionGradientTest, OddSizesAndRefusalsStayAsTheyAre) {
  const auto odd =
      Joined(GradientCase({2, 2, 2, 3, 5, 7, 8}, false, {}, DType::kBfloat16), {0, 1, 2}, 1);
  EXPECT_EQ(odd.status().code(), absl::StatusCode::kNotFound) << odd.status();
  if (TestsOnARealGpu()) return;
  RecordingDnn::Get().Refuse({.all = true});
  const auto refused = Joined(GradientCase({}, true, {}, DType::kBfloat16), {0, 1, 2}, 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound) << refused.status();
}

absl::StatusOr<cuda::Dnn*> GradientHasNoDnn(Device&) {
  return absl::FailedPreconditionError("cuDNN cannot be opened: looked for libcudnn.so.9");
}
absl::StatusOr<cuda::Dnn*> GradientHasADnn(Device&) { return &RecordingDnn::Get(); }

TEST_F(CudaAttentionGradientTest, ADeviceWithoutCudnnIsAnError) {
  if (TestsOnARealGpu()) GTEST_SKIP() << "takes the library away";
  cuda::SetDnnProvider(GradientHasNoDnn);
  const auto refused = Joined(GradientCase({}, true, {}, DType::kBfloat16), {0, 1, 2}, 1);
  cuda::SetDnnProvider(GradientHasADnn);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(refused.status().message(), "(Attention): cuDNN cannot be opened"))
      << refused.status();
}

}  // namespace
}  // namespace weft::testing
