// In the steady state kernels allocate nothing.

#include <cstdlib>
#include <new>

#include "gtest/gtest.h"
#include "ops/concrete_node.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace {
thread_local bool counting = false;
thread_local int64_t allocations = 0;
}  // namespace

void* operator new(size_t bytes) {
  if (counting) ++allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace weft::testing {
namespace {

// Allocations of the second run of a kernel on this thread.
absl::StatusOr<int64_t> AllocationsOfRun(const OpCase& op_case) {
  const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
  absl::StatusOr<ConcreteNode> node =
      ConcreteNode::Create(single.graph->node(single.node), op_case.inputs);
  if (!node.ok()) return node.status();
  absl::StatusOr<std::unique_ptr<Kernel>> kernel = KernelRegistry::Global().Prepare(*node);
  if (!kernel.ok()) return kernel.status();
  std::vector<const void*> inputs;
  for (const Tensor& input : op_case.inputs) inputs.push_back(input.raw_data());
  std::vector<Tensor> outputs;
  std::vector<void*> output_data;
  for (int i = 0; i < node->num_outputs(); ++i) {
    outputs.push_back(*Tensor::Allocate(node->OutputDType(i), node->OutputShape(i)));
    output_data.push_back(outputs.back().raw_data());
  }
  const Tensor workspace =
      *Tensor::Allocate(DType::kUint8, Shape{static_cast<int64_t>((*kernel)->workspace_bytes())});
  KernelContext context;
  context.inputs = inputs.data();
  context.outputs = output_data.data();
  context.workspace = workspace.raw_data();
  for (const bool count : {false, true}) {
    allocations = 0;
    counting = count;
    const absl::Status status = (*kernel)->Run(context);
    counting = false;
    if (!status.ok()) return status;
  }
  return allocations;
}

TEST(Allocation, RunsAllocateNothing) {
  const Tensor x = RandomTensor({64, 10}, 1);
  const Tensor row = RandomTensor({10}, 2);
  const Tensor labels = RandomTensor({64}, 3, 0, 10, DType::kInt64);
  const Tensor image = RandomTensor({2, 3, 9, 8}, 4);
  const Attributes window = {{"kernel_shape", std::vector<int64_t>{3, 3}},
                             {"pads", std::vector<int64_t>{1, 1, 1, 1}}};
  const std::vector<OpCase> cases = {
      {.op = "MaxPool", .attributes = window, .inputs = {image}},
      {.op = "MaxPool", .attributes = window, .inputs = {image}, .outputs = {true, true}},
      {.domain = "ai.weft",
       .op = "MaxPoolGrad",
       .attributes = window,
       .inputs = {image, image, image}},
      {.op = "AveragePool", .attributes = window, .inputs = {image}},
      {.domain = "ai.weft",
       .op = "AveragePoolGrad",
       .attributes = window,
       .inputs = {image, Int64s({2, 3, 9, 8})}},
      {.op = "Add", .inputs = {x, row}},
      {.op = "Mul", .inputs = {Cast(x, DType::kFloat64), Cast(row, DType::kFloat64)}},
      {.op = "Pow", .inputs = {x, row}},
      {.op = "Erf", .inputs = {x}},
      {.op = "Where", .inputs = {Cast(x, DType::kBool), x, x}},
      {.op = "Cast", .attributes = {{"to", int64_t{11}}}, .inputs = {x}},
      {.op = "ReduceSum", .inputs = {x, Int64s({0})}},
      {.op = "ReduceMax", .inputs = {x, Int64s({1})}},
      {.domain = "ai.weft", .op = "SumToShape", .inputs = {x, Int64s({10})}},
      {.op = "Softmax", .inputs = {x}},
      {.domain = "ai.weft", .op = "SoftmaxGrad", .inputs = {x, x}},
      {.op = "SoftmaxCrossEntropyLoss", .inputs = {x, labels}},
      {.domain = "ai.weft",
       .op = "SoftmaxCrossEntropyGrad",
       .inputs = {Tensor::Scalar<float>(1), x, labels}},
      {.domain = "ai.weft", .op = "CountCorrect", .inputs = {x, labels}},
      {.domain = "ai.weft", .op = "MeanSquaredError", .inputs = {x, x}},
  };
  for (const OpCase& op_case : cases) {
    const absl::StatusOr<int64_t> count = AllocationsOfRun(op_case);
    ASSERT_TRUE(count.ok()) << op_case.ToString() << ": " << count.status();
    EXPECT_EQ(*count, 0) << op_case.ToString();
  }
}

}  // namespace
}  // namespace weft::testing
