// Many updates in one launch: the bits of launches one by one, on the emulated GPU or on a real
// one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "ops/concrete_node.h"
#include "ops/kernel.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_case.h"
#include "ops/testing/test_tensors.h"
#include "tensor/device_id.h"
#include "tensor/lookup/device_lookup.h"

namespace weft::testing {
namespace {

// More with elements than the table of a launch of any kind holds.
constexpr int kNodes = 117;

int64_t CountOf(int node) {
  if (node == 7) return 3001;  // several blocks
  return node % 9 == 0 ? 0 : 1 + (node * 37) % 83;
}

OpCase UpdateCase(const std::string& op, int node, DType dtype) {
  const auto seed = static_cast<uint64_t>(10 * node);
  const int64_t count = CountOf(node);
  const auto state = [&](uint64_t n) {
    return Cast(RandomTensor({count}, seed + n, 0.01, 1), dtype);
  };
  OpCase update;
  update.domain = "ai.weft";
  update.op = op;
  update.inputs = {Cast(RandomTensor({count}, seed), dtype),
                   Cast(RandomTensor({count}, seed + 1), dtype),
                   Tensor::Scalar<float>(0.01f * static_cast<float>(1 + node % 2))};
  if (op == "SgdUpdate") {
    update.attributes = {{"momentum", 0.9f}, {"weight_decay", 0.01f}};
    update.inputs.push_back(state(3));
    update.inputs.push_back(Tensor::Scalar<float>(0.5f));
    update.inputs.push_back(Tensor::Scalar<int64_t>(2));
    update.outputs = {true, true};
  } else if (op == "AdamUpdate") {
    update.attributes = {{"beta1", 0.9f}, {"beta2", 0.999f}, {"epsilon", 1e-8f}};
    update.inputs.push_back(Tensor::Scalar<int64_t>(3));
    update.inputs.push_back(state(3));
    update.inputs.push_back(state(4));
    update.outputs = {true, true, true};
  } else if (op == "EmaUpdate") {
    update.attributes = {{"decay", 0.99f}};
    update.inputs.pop_back();
  } else {  // Scale
    update.inputs = {update.inputs[0],
                     Cast(Tensor::Scalar<float>(0.25f * static_cast<float>(node)), dtype)};
  }
  return update;
}

// Nodes on an emulated GPU or the real one (TestsOnARealGpu), each operand an allocation of its
// own.
class Nodes {
 public:
  // `seed`: of the emulated GPU.
  explicit Nodes(uint64_t seed) {
    if (TestsOnARealGpu()) {
      const DeviceId id = ParseDevice(std::getenv("WEFT_TEST_DEVICE")).value();
      device_ = FindDevice(id.kind, id.index).value();
    } else {
      device_ = &emulated_.emplace(EmulatedDeviceOptions{.seed = seed});
    }
  }

  void Add(const OpCase& op_case) {
    SingleNodeGraph& single = singles_.emplace_back(MakeSingleNodeGraph(op_case));
    single.graph->node(single.node).name = absl::StrCat("node", kernels_.size());
    NodeRunOptions options;
    options.registry = &KernelRegistry::Global();
    options.device = device_;
    options.strict = false;
    auto node = ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, options);
    ASSERT_TRUE(node.ok()) << node.status();
    auto kernel = node->Prepare();
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    kernels_.push_back(*std::move(kernel));
    auto outputs = node->AllocateOutputs();
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    outputs_.push_back(*std::move(outputs));
    inputs_.push_back(op_case.inputs);
  }

  JoinableKernel* kernel(size_t node) const {
    return dynamic_cast<JoinableKernel*>(kernels_[node].get());
  }
  std::vector<JoinableKernel*> kernels() const {
    std::vector<JoinableKernel*> all;
    for (size_t i = 0; i < kernels_.size(); ++i) all.push_back(kernel(i));
    return all;
  }

  // The bytes of all outputs after a run in fresh memory; with joined = false of each kernel, else
  // of one for all.
  std::vector<std::byte> Run(bool joined, absl::Status& status) {
    std::unique_ptr<Stream> stream = *device_->NewStream("updates");
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (size_t i = 0; i < kernels_.size(); ++i) {
      for (const Tensor& input : inputs_[i]) {
        // Of some, the memory is not aligned to 16 bytes.
        inputs.push_back(Memory(input, i % 5 == 3));
        status.Update(device_->CopyFromHost(*stream, input.raw_data(),
                                            const_cast<void*>(inputs.back()), input.bytes()));
      }
      for (const Tensor& output : outputs_[i]) outputs.push_back(Memory(output, i % 7 == 3));
    }
    KernelContext context;
    context.inputs = inputs.data();
    context.outputs = outputs.data();
    context.stream = stream.get();
    if (joined) {
      auto kernel = kernels().front()->Join(kernels());
      EXPECT_TRUE(kernel.ok()) << kernel.status();
      status.Update((*kernel)->Run(context));
    } else {
      for (size_t i = 0; i < kernels_.size(); ++i) {
        status.Update(kernels_[i]->Run(context));
        context.inputs += inputs_[i].size();
        context.outputs += outputs_[i].size();
      }
    }
    status.Update(stream->Synchronize(absl::Minutes(2)));
    std::vector<std::byte> bytes;
    size_t next = 0;
    for (std::vector<Tensor>& tensors : outputs_) {
      for (Tensor& tensor : tensors) {
        status.Update(
            device_->CopyToHost(*stream, outputs[next++], tensor.raw_data(), tensor.bytes()));
      }
    }
    status.Update(stream->Synchronize(absl::Minutes(2)));
    for (const std::vector<Tensor>& tensors : outputs_) {
      for (const Tensor& tensor : tensors) {
        const auto* const begin = static_cast<const std::byte*>(tensor.raw_data());
        bytes.insert(bytes.end(), begin, begin + tensor.bytes());
      }
    }
    return bytes;
  }

  // Null on a real GPU.
  EmulatedDevice* emulated() { return emulated_.has_value() ? &*emulated_ : nullptr; }

 private:
  void* Memory(const Tensor& tensor, bool unaligned) {
    const size_t offset = unaligned ? ElementBytes(tensor.dtype()) : 0;
    buffers_.push_back(*device_->Allocate(tensor.bytes() + offset));
    return static_cast<std::byte*>(buffers_.back()->data()) + offset;
  }
  static size_t ElementBytes(DType dtype) { return Tensor::Allocate(dtype, Shape{1})->bytes(); }

  std::optional<EmulatedDevice> emulated_;
  Device* device_ = nullptr;
  std::vector<SingleNodeGraph> singles_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<std::vector<Tensor>> inputs_;
  std::vector<std::vector<Tensor>> outputs_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
};

class GpuJoinedTest : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Ops, GpuJoinedTest,
                         ::testing::Values("SgdUpdate", "AdamUpdate", "EmaUpdate", "Scale"),
                         [](const auto& info) { return info.param; });

TEST_P(GpuJoinedTest, HasTheBitsOfKernelsOneByOneInFewLaunches) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    std::vector<std::byte> expected;
    for (const uint64_t seed : {1, 2}) {
      Nodes nodes(seed);
      for (int i = 0; i < kNodes; ++i) nodes.Add(UpdateCase(GetParam(), i, dtype));
      absl::Status status;
      const std::vector<std::byte> single = nodes.Run(/*joined=*/false, status);
      EmulatedDevice* const emulated = nodes.emulated();
      const size_t singles = emulated == nullptr ? 0 : emulated->launches().size();
      const std::vector<std::byte> joined = nodes.Run(/*joined=*/true, status);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_FALSE(single.empty());
      EXPECT_TRUE(single == joined);
      EXPECT_TRUE(seed == 1 || joined == expected);
      expected = joined;
      if (emulated == nullptr) continue;  // a card counts no launches
      const size_t launches = emulated->launches().size() - singles;
      EXPECT_TRUE(emulated->Verify().ok()) << emulated->Verify();
      EXPECT_EQ(singles, static_cast<size_t>(kNodes - kNodes / 9));  // none for zero elements
      EXPECT_GT(launches, 1u);
      EXPECT_LE(launches, 6u);
    }
  }
}

TEST(GpuJoinedKeyTest, KernelsWithOtherNumbersOrTypesHaveOtherKeys) {
  Nodes nodes(1);
  const OpCase first = UpdateCase("AdamUpdate", 1, DType::kFloat32);
  nodes.Add(first);
  nodes.Add(UpdateCase("AdamUpdate", 2, DType::kFloat32));
  nodes.Add(UpdateCase("AdamUpdate", 2, DType::kFloat64));
  OpCase other = first;
  // Numbers that differ in the last digit alone.
  other.attributes = {{"beta1", 0.9f}, {"beta2", 0.99900007f}, {"epsilon", 1e-8f}};
  nodes.Add(other);
  other = first;
  other.inputs[2] = Cast(other.inputs[2], DType::kFloat64);  // the rate
  nodes.Add(other);
  other = first;
  other.inputs.push_back(other.inputs[5]);  // the largest v
  other.outputs.push_back(true);
  nodes.Add(other);
  nodes.Add(UpdateCase("SgdUpdate", 1, DType::kFloat32));
  nodes.Add(UpdateCase("Scale", 1, DType::kFloat32));
  nodes.Add(UpdateCase("Scale", 1, DType::kFloat64));
  const std::vector<JoinableKernel*> kernels = nodes.kernels();
  EXPECT_EQ(kernels[0]->group_key(), kernels[1]->group_key());
  for (size_t i = 1; i < kernels.size(); ++i) {
    for (size_t j = i + 1; j < kernels.size(); ++j) {
      EXPECT_NE(kernels[i]->group_key(), kernels[j]->group_key()) << i << " and " << j;
    }
  }
  EXPECT_FALSE(kernels[0]->Join({kernels[0], kernels[2]}).ok());
}

// The fault is of the node whose step it is.
TEST(GpuJoinedFaultTest, NamesTheNode) {
  Nodes nodes(1);
  for (int i = 1; i < 4; ++i) {
    OpCase update = UpdateCase("AdamUpdate", i, DType::kFloat32);
    if (i == 2) update.inputs[3] = Tensor::Scalar<int64_t>(0);
    nodes.Add(update);
  }
  absl::Status status;
  nodes.Run(/*joined=*/true, status);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_NE(std::string(status.message()).find("AdamUpdate 'node1'"), std::string::npos) << status;
}

}  // namespace
}  // namespace weft::testing
