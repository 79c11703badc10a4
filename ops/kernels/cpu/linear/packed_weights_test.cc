// Kernels whose weights are constant pack them once; with several threads, their work is cut into
// pieces. Neither changes what they compute.

#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "ops/concrete_node.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

// The node as a compiled program sees it whose inputs from 1 on are constants.
class ConstantWeights final : public PrepareContext {
 public:
  explicit ConstantWeights(const ConcreteNode& node) : node_(node) {}
  const Node& node() const override { return node_.node(); }
  const Shape& InputShape(int i) const override { return node_.InputShape(i); }
  const Shape& OutputShape(int i) const override { return node_.OutputShape(i); }
  DType InputDType(int i) const override { return node_.InputDType(i); }
  DType OutputDType(int i) const override { return node_.OutputDType(i); }
  const Tensor* InputValue(int i) const override { return node_.InputValue(i); }
  const OperandSlice& InputSlice(int i) const override { return node_.InputSlice(i); }
  const OperandSlice& OutputSlice(int i) const override { return node_.OutputSlice(i); }
  Device& device() const override { return node_.device(); }
  int threads() const override { return node_.threads(); }
  bool strict() const override { return false; }
  bool InputIsConstant(int i) const override { return i > 0; }

 private:
  const ConcreteNode& node_;
};

// Output 0 of the second run, which finds the weights packed.
absl::StatusOr<Tensor> RunTwice(const OpCase& op_case, int threads) {
  const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
  NodeRunOptions options;
  options.threads = threads;
  options.strict = false;
  const auto node = ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, options);
  if (!node.ok()) return node.status();
  const auto kernel = KernelRegistry::Global().Prepare(ConstantWeights(*node));
  if (!kernel.ok()) return kernel.status();
  std::vector<const void*> inputs;
  for (const Tensor& input : op_case.inputs) inputs.push_back(input.raw_data());
  Tensor output = *Tensor::Zeros(node->OutputDType(0), node->OutputShape(0));
  const int64_t bytes = static_cast<int64_t>((*kernel)->workspace_bytes());
  Tensor workspace = *Tensor::Zeros(DType::kUint8, Shape{bytes});
  void* const output_data = output.raw_data();
  KernelContext context;
  context.inputs = inputs.data();
  context.outputs = &output_data;
  context.workspace = workspace.raw_data();
  for (int run = 0; run < 2; ++run) {
    const absl::Status status = (*kernel)->Run(context);
    if (!status.ok()) return status;
  }
  return output;
}

void ExpectReference(const OpCase& op_case) {
  const auto expected = RunOp(op_case, Kernels::kReference);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const int threads : {1, 2, 3}) {
    const auto actual = RunTwice(op_case, threads);
    ASSERT_TRUE(actual.ok()) << actual.status();
    EXPECT_TRUE(TensorsNear(*actual, expected->front(), {.of_magnitude = 1e-5}))
        << op_case.ToString() << " on " << threads << " threads";
  }
}

TEST(PackedWeights, OfProductsCutByRowsAndColumns) {
  const auto product = [](Shape a, Shape b) {
    return OpCase{.op = "MatMul", .inputs = {RandomTensor(a, 1), RandomTensor(b, 2)}};
  };
  ExpectReference(product({509, 101}, {101, 103}));       // rows, the last piece shorter
  ExpectReference(product({8, 64, 128}, {128, 64}));      // rows of a batch
  ExpectReference(product({7, 256}, {256, 1031}));        // columns
  ExpectReference(product({1, 1024}, {1024, 640}));       // one row
  ExpectReference(product({6, 64, 96}, {6, 96, 64}));     // weights with a batch of their own
  ExpectReference(product({2, 3, 64, 96}, {3, 96, 64}));  // shared by some matrices
}

TEST(PackedWeights, OfGemmWithBiases) {
  const auto gemm = [](Shape c, float beta) {
    return OpCase{
        .op = "Gemm",
        .attributes = {{"transB", int64_t{1}}, {"beta", beta}},
        .inputs = {RandomTensor({67, 256}, 1), RandomTensor({531, 256}, 2), RandomTensor(c, 3)}};
  };
  ExpectReference(gemm({531}, 1));
  ExpectReference(gemm({531}, 0.5f));
  ExpectReference(gemm({67, 531}, 1));
  ExpectReference(gemm({67, 1}, 2));
}

TEST(PackedWeights, OfConvolutionsCutAlongTheBatch) {
  const auto convolution = [](Shape x, Shape w, Attributes attributes) {
    return OpCase{.op = "Conv",
                  .attributes = std::move(attributes),
                  .inputs = {RandomTensor(x, 1), RandomTensor(w, 2), RandomTensor({w.dim(0)}, 3)}};
  };
  const Attributes same = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}};
  ExpectReference(convolution({6, 16, 16, 16}, {32, 16, 3, 3}, same));
  ExpectReference(convolution({12, 8, 12, 12}, {16, 8, 3, 3}, same));
  ExpectReference(convolution({5, 3, 31, 33}, {17, 3, 3, 3}, same));  // pieces off 64 bytes
  Attributes depthwise = same;
  depthwise.Set("group", int64_t{32});
  ExpectReference(convolution({8, 32, 28, 28}, {32, 1, 3, 3}, depthwise));
}

}  // namespace
}  // namespace weft::testing
