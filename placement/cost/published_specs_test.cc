#include "placement/cost/published_specs.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/cost/cost_model.h"

namespace weft {
namespace {

// Streaming multiprocessors, operations of a clock in each on tensor cores in bfloat16 (A100: 2048,
// Hopper: 4096), and boost clocks: from NVIDIA's white papers of the architectures, where the
// figures of the data sheets come from.
struct Chip {
  const char* name;
  double multiprocessors;
  double tensor_operations;
  double float32_operations;
  double clock;
};
constexpr Chip kChips[] = {{"A100-80GB", 108, 2048, 128, 1.41e9},
                           {"H100-80GB", 132, 4096, 256, 1.83e9},
                           {"H200-141GB", 132, 4096, 256, 1.83e9}};

TEST(PublishedGpuTest, PeaksAreThoseOfTheChip) {
  for (const Chip& chip : kChips) {
    const auto gpu = PublishedGpu(chip.name);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    const double cycles = chip.multiprocessors * chip.clock;
    EXPECT_NEAR(gpu->bfloat16 / (cycles * chip.tensor_operations), 1, 0.02) << chip.name;
    // Data sheets of Hopper have the clock of its plain cores, which is higher.
    EXPECT_NEAR(gpu->float32 / (cycles * chip.float32_operations), 1, 0.09) << chip.name;
  }
}

// Types of half the bits have twice the rate, on each card that has them.
TEST(PublishedGpuTest, RatesDoubleAsBitsHalve) {
  for (const std::string& name : PublishedDeviceNames()) {
    const GpuFigures gpu = *PublishedGpu(name);
    if (gpu.bfloat16 > 0) {
      EXPECT_EQ(gpu.bfloat16, gpu.float16) << name;
      EXPECT_NEAR(gpu.tf32 / gpu.bfloat16, 0.5, 0.012) << name;
    }
    if (gpu.float8 > 0) {
      EXPECT_NEAR(gpu.float8 / gpu.bfloat16, 2, 0.01) << name;
    }
    if (gpu.int8 > 0) {
      EXPECT_NEAR(gpu.int8 / gpu.float16, 2, 0.01) << name;
    }
    EXPECT_GT(gpu.float32, 0) << name;
    EXPECT_GT(gpu.memory_bytes, 0) << name;
    EXPECT_THAT(gpu.source, ::testing::ContainsRegex("NVIDIA .* data sheet.*, 20[0-9][0-9]"));
  }
}

TEST(PublishedGpuTest, HasTheCardsThatAreAskedFor) {
  for (const char* name : {"T4", "a10", "L4", "A100-40GB", "A100-80gb", "H100", "H200", "B200"}) {
    EXPECT_TRUE(PublishedGpu(name).ok()) << name;
  }
  EXPECT_EQ(PublishedGpu("h100")->name, "H100-80GB");
  const absl::Status two = PublishedGpu("A100").status();
  EXPECT_EQ(two.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(two.message()), ::testing::HasSubstr("A100-40GB, A100-80GB"));
  EXPECT_FALSE(PublishedGpu("").ok());
}

// 2 links of a direction make what data sheets publish; PublishedLink has four fifths of one.
TEST(PublishedGpuTest, NvlinkIsThatOfTheLinkTable) {
  for (const std::string& name : PublishedDeviceNames()) {
    const GpuFigures gpu = *PublishedGpu(name);
    EXPECT_EQ(gpu.nvlink.empty(), gpu.nvlink_bytes_per_second == 0) << name;
    EXPECT_TRUE(PublishedLink("pcie" + std::to_string(gpu.pcie_generation)).ok()) << name;
    if (gpu.nvlink.empty()) continue;
    const auto link = PublishedLink(gpu.nvlink);
    ASSERT_TRUE(link.ok()) << link.status();
    EXPECT_NEAR(link->bytes_per_second, 0.8 * gpu.nvlink_bytes_per_second, 1) << name;
  }
}

// What tools/gpu_check measured on an H200: docs/gpu.md, "Measured".
class H200Test : public ::testing::Test {
 protected:
  static CostModel Costs() {
    ClusterSpec cluster = ClusterSpec::Local(1, 1);
    cluster.workers[0].device = DeviceKind::kCuda;
    cluster.workers[0].model = "H200";
    return *CostModel::OfSpec(cluster);
  }
  static double ProductSeconds(DType dtype) {
    constexpr double kSide = 8192;
    const Cost cost = {2 * kSide * kSide * kSide,
                       3 * kSide * kSide * static_cast<double>(DTypeBytes(dtype, 1))};
    return Costs().WorkSeconds(cost, OpFamily::kContraction, dtype, 0, 1);
  }
};

TEST_F(H200Test, ProductsTakeWhatWasMeasured) {
  constexpr double kFlops = 2.0 * 8192 * 8192 * 8192;
  EXPECT_NEAR(kFlops / ProductSeconds(DType::kBfloat16), 680e12, 0.02 * 680e12);
  EXPECT_NEAR(kFlops / ProductSeconds(DType::kFloat32), 51e12, 0.02 * 51e12);
}

TEST_F(H200Test, CopiesTakeWhatWasMeasured) {
  const Cost cost = {0, 2e9};
  const double seconds = Costs().WorkSeconds(cost, OpFamily::kMovement, DType::kFloat32, 0, 1);
  EXPECT_NEAR(2e9 / seconds, 3.70e12, 0.01 * 3.70e12);
}

// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009:
// no all-reduce sends less than 2 (n - 1) / n of the data through each link.
TEST(PublishedLinkTest, AllReducesOfAGpuHostTakeWhatTheirBytesDo) {
  ClusterSpec cluster = ClusterSpec::Local(8, 1);
  std::vector<int> workers;
  for (WorkerSpec& worker : cluster.workers) {
    worker.device = DeviceKind::kCuda;
    worker.model = "H100";
    workers.push_back(static_cast<int>(workers.size()));
  }
  AllReduceTask task;
  task.members = 8;
  task.elements = 250'000'000;
  task.element_bytes = 4;
  const double bound = 2 * 7.0 / 8 * 1e9 / (0.8 * 450e9);
  const double seconds = CostModel::OfSpec(cluster)->AllReduceSeconds(task, workers);
  EXPECT_GT(seconds, bound);
  EXPECT_LT(seconds, 1.6 * bound);
}

}  // namespace
}  // namespace weft
