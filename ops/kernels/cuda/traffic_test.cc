// What hot kernels ask of a GPU's memory, counted by the emulator: bytes against those that the
// operator needs, 32-byte sectors, width of accesses, and conflicts of shared memory. A needless
// pass over a tensor, an access that is not coalesced, or a narrow one shows here without a card.
// The table is traffic.tsv among the outputs of the test.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/concrete_node.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

// What holds of a kernel. Reads and writes are multiples of the bytes of all inputs and of all
// outputs, over all its launches; what lanes of a warp read together counts for each.
struct TrafficLimits {
  double reads = 1.05;
  double writes = 1.05;
  double coalescing = 0.95;      // at least
  double bank_conflicts = 1.0;   // at most, in turns per needed turn
  double bytes_per_request = 0;  // at least, over both directions: 32 lanes of 4 bytes are 128
  int launches = 1;
  const char* reason = "";  // where reads or writes are above 1
};

struct TrafficCase {
  std::string name;
  OpCase op_case;
  TrafficLimits limits;
};

struct Traffic {
  double flops = 0;  // of the operator's schema
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  int64_t read = 0;
  int64_t written = 0;
  int launches = 0;
  TrafficCount count;

  double Reads() const { return static_cast<double>(read) / static_cast<double>(input_bytes); }
  double Writes() const { return static_cast<double>(written) / static_cast<double>(output_bytes); }
  double BytesPerRequest() const {
    return static_cast<double>(read + written) / static_cast<double>(count.requests);
  }
};

// One FLOP for each element of the output where the schema says nothing.
absl::StatusOr<double> FlopsOf(const OpCase& op_case) {
  const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
  NodeRunOptions options;
  options.strict = false;
  const auto node = ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, options);
  if (!node.ok()) return node.status();
  const OpSchema* const schema = node->node().schema;
  if (schema != nullptr && schema->cost()) return schema->cost()(*node).flops;
  return static_cast<double>(node->OutputShape(0).num_elements());
}

absl::StatusOr<Traffic> TrafficOf(const OpCase& op_case) {
  EmulatedRunOptions options;
  options.counts_traffic = true;
  std::vector<EmulatedLaunchRecord> launches;
  const auto outputs = RunOnEmulatedGpu(op_case, options, &launches);
  if (!outputs.ok()) return outputs.status();
  Traffic traffic;
  const auto flops = FlopsOf(op_case);
  if (!flops.ok()) return flops.status();
  traffic.flops = *flops;
  for (const Tensor& input : op_case.inputs) {
    if (input.valid()) traffic.input_bytes += static_cast<int64_t>(input.bytes());
  }
  for (const Tensor& output : *outputs) {
    if (output.valid()) traffic.output_bytes += static_cast<int64_t>(output.bytes());
  }
  for (const EmulatedLaunchRecord& launch : launches) {
    traffic.read += launch.bytes_read;
    traffic.written += launch.bytes_written;
    traffic.count += launch.traffic;
  }
  traffic.launches = static_cast<int>(launches.size());
  return traffic;
}

// The cases of gpu_benchmark.cc, with fewer rows.
std::vector<TrafficCase> Cases(DType dtype) {
  const auto floats = [dtype](Shape shape, uint64_t seed = 1) {
    return Cast(RandomTensor(std::move(shape), seed, -1, 1), dtype);
  };
  const auto indices = [](int64_t count, int64_t limit) {
    return RandomTensor({count}, 2, 0, static_cast<double>(limit), DType::kInt64);
  };
  const Shape plain{64, 1024};
  const bool half = DTypeBits(dtype) == 16;
  const std::string weft(kWeftDomain);
  std::vector<TrafficCase> cases;
  const auto add = [&cases](std::string name, OpCase op_case, TrafficLimits limits) {
    cases.push_back({std::move(name), std::move(op_case), limits});
  };
  add("Add", {.op = "Add", .inputs = {floats(plain), floats(plain, 2)}},
      {.bytes_per_request = 500});
  add("Gelu", {.op = "Gelu", .inputs = {floats(plain)}}, {.bytes_per_request = 500});
  add("Softmax", {.op = "Softmax", .inputs = {floats(plain)}}, {.bytes_per_request = 500});
  add("LayerNormalization",
      {.op = "LayerNormalization",
       .inputs = {floats({64, 768}), floats({768}, 2), floats({768}, 3)},
       .outputs = {true, true, true}},
      {.reads = 3.1,
       .bytes_per_request = 350,
       .reason = "each row reads scale and bias, from the cache"});
  // A walker has at least eight rows, and two sums of four bytes for each column.
  const Tensor statistics = RandomTensor({256, 1}, 4, 0.5, 2);
  add("LayerNormalizationGrad",
      {.domain = weft,
       .op = "LayerNormalizationGrad",
       .inputs = {floats({256, 768}), floats({256, 768}, 2), floats({768}, 3), statistics,
                  statistics},
       .outputs = {true, true, true}},
      {.reads = half ? 1.65 : 1.35,
       .writes = half ? 1.52 : 1.27,
       .coalescing = half ? 0.88 : 0.98,
       .bytes_per_request = 350,
       .launches = 2,
       .reason = "the sums of 32 walkers over 8 rows each are written and read; of many rows there "
                 "are at most 648 walkers. Each thread reads the statistics, from the cache"});
  add("RMSNormalizationGrad",
      {.domain = weft,
       .op = "RMSNormalizationGrad",
       .inputs = {floats({256, 768}), floats({256, 768}, 2), floats({768}, 3)},
       .outputs = {true, true}},
      {.reads = half ? 1.17 : 1.11,
       .writes = half ? 1.27 : 1.14,
       .coalescing = half ? 0.92 : 0.98,
       .bytes_per_request = 500,
       .launches = 2,
       .reason = "the sums of the walkers"});
  add("Transpose of a matrix",
      {.op = "Transpose",
       .attributes = {{"perm", std::vector<int64_t>{1, 0}}},
       .inputs = {floats({256, 256})}},
      {.bytes_per_request = 500});
  add("Transpose of heads",
      {.op = "Transpose",
       .attributes = {{"perm", std::vector<int64_t>{0, 2, 1, 3}}},
       .inputs = {floats({2, 64, 4, 64})}},
      {.bytes_per_request = 500});
  add("ReduceSum over axis 1", {.op = "ReduceSum", .inputs = {floats({64, 4096}), Int64s({1})}},
      {.bytes_per_request = 450});
  add("ReduceSum over axis 0", {.op = "ReduceSum", .inputs = {floats({256, 512}), Int64s({0})}},
      {.reads = 1.08,
       .writes = 18,
       .coalescing = 0.85,
       .bytes_per_request = 440,
       .launches = 2,
       .reason = "totals of the blocks of a column, in float64 and not side by side: 0.2 % of "
                 "32768 rows"});
  add("Gather of rows", {.op = "Gather", .inputs = {floats(plain), indices(64, 64)}},
      {.reads = 1.55, .bytes_per_request = 420, .reason = "threads of a row read its index"});
  add("GatherGrad of rows",
      {.domain = weft,
       .op = "GatherGrad",
       .inputs = {floats({64, 1024}), indices(64, 97), Int64s({97, 1024})}},
      {.reads = half ? 2.4 : 1.8,
       .writes = 1.02,
       .bytes_per_request = half ? 165.0 : 230.0,
       .launches = 5,
       .reason = "the indices are sorted, each thread reads those of its run, and a byte says "
                 "whether a row is named"});
  // An odd number of classes: rows begin at any address.
  const int64_t classes = half ? 4099 : 2051;
  add("SoftmaxCrossEntropyLoss",
      {.op = "SoftmaxCrossEntropyLoss", .inputs = {floats({16, classes}), indices(16, classes)}},
      {.writes = 130,
       .coalescing = 0.9,
       .bytes_per_request = half ? 210.0 : 370.0,
       .launches = 2,
       .reason = "the loss and the weight of each sample, in float64"});
  add("SoftmaxCrossEntropyGrad",
      {.domain = weft,
       .op = "SoftmaxCrossEntropyGrad",
       .inputs = {floats({}), floats({16, classes}), indices(16, classes)}},
      {.reads = 2.35,
       .coalescing = 0.95,
       .bytes_per_request = 390,
       .launches = 2,
       .reason =
           "a row is read for its sum and once more, from the cache; each thread reads the label"});
  if (half) return cases;
  add("MatMulInteger",
      {.op = "MatMulInteger",
       .inputs = {RandomTensor({128, 256}, 1, 0, 255, DType::kUint8),
                  RandomTensor({256, 128}, 2, -128, 127, DType::kInt8)}},
      {.reads = 2.05,
       .bytes_per_request = 150,
       .reason = "a block computes 64 x 64 elements: each operand is read by two of them"});
  add("DFT", {.op = "DFT", .inputs = {floats({64, 1024, 2})}},
      {.reads = 5,
       .bytes_per_request = 200,
       .reason = "each line reads the tables of its passes, from the cache"});
  add("AdamUpdate",
      {.domain = weft,
       .op = "AdamUpdate",
       .inputs = {floats(plain), floats(plain, 2), floats({}), Tensor::Scalar<int64_t>(3),
                  Cast(RandomTensor(plain, 3, 0.1, 1), dtype),
                  Cast(RandomTensor(plain, 4, 0.1, 1), dtype)},
       .outputs = {true, true, true}},
      {.reads = 1.1, .bytes_per_request = 450});
  return cases;
}

class TrafficTest : public ::testing::TestWithParam<DType> {};

TEST_P(TrafficTest, HotKernelsMoveWhatTheyNeed) {
  if (TestsOnARealGpu()) GTEST_SKIP() << "the emulator counts";
  const char* const folder = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  std::ofstream table;
  if (folder != nullptr) {
    table.open(std::filesystem::path(folder) / "traffic.tsv", std::ios::app);
    table << "kernel\ttype\tlaunches\tflops\tinput bytes\toutput bytes\treads\twrites\t"
             "coalescing\tbank conflicts\tbytes per request\n";
  }
  for (const TrafficCase& traffic_case : Cases(GetParam())) {
    const absl::StatusOr<Traffic> got = TrafficOf(traffic_case.op_case);
    if (!got.ok()) {
      ADD_FAILURE() << traffic_case.name << ": " << got.status();
      continue;
    }
    const Traffic& t = *got;
    const std::string row = absl::StrFormat(
        "%s\t%s\t%d\t%.0f\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f", traffic_case.name,
        std::string(DTypeName(GetParam())), t.launches, t.flops, t.input_bytes, t.output_bytes,
        t.Reads(), t.Writes(), t.count.Coalescing(), t.count.BankConflicts(), t.BytesPerRequest());
    std::cout << row << "\n";
    table << row << "\n";
    const TrafficLimits& limits = traffic_case.limits;
    EXPECT_LE(t.Reads(), limits.reads) << row;
    EXPECT_LE(t.Writes(), limits.writes) << row;
    EXPECT_GE(t.Writes(), 1.0) << row << ": an output is not written";
    EXPECT_GE(t.count.Coalescing(), limits.coalescing) << row;
    EXPECT_LE(t.count.BankConflicts(), limits.bank_conflicts) << row;
    EXPECT_GE(t.BytesPerRequest(), limits.bytes_per_request) << row;
    EXPECT_LE(t.launches, limits.launches) << row;
    EXPECT_GT(t.flops + 1, 0.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, TrafficTest, ::testing::Values(DType::kFloat32, DType::kBfloat16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace weft::testing
