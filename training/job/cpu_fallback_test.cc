#include "training/job/cpu_fallback.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "placement/cost/testing/round_profile.h"
#include "platform/testing/fake_file_system.h"
#include "tensor/testing/fake_device.h"
#include "training/data/data_file.h"
#include "training/data/data_set.h"
#include "training/job/job.h"
#include "training/job/partition_folder.h"
#include "training/job/stored_programs.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSamples = 8;

// y = Relu(x w) with x [samples, k] and w [k, 5]: 2 k FLOPs of the product for one of Relu.
Graph ProductAndRelu(int64_t k) {
  Graph graph;
  const ValueId x = graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{kSamples, k}});
  const ValueId w =
      graph.AddVariable("w", {ValueKind::kTensor, DType::kFloat32, Shape{k, 5}}, Tensor(), true);
  GraphBuilder builder(graph);
  const ValueId y = builder.Op("Relu", {builder.Op("MatMul", {x, w})});
  builder.Name(y, "y");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(y);
  return graph;
}

class CpuFallbackTest : public ::testing::Test {
 protected:
  CpuFallbackTest() {
    spec_.cluster = ClusterSpec::Local(2, 1);
    spec_.cluster.workers[1].device = DeviceKind::kCuda;
    Add("MatMul");
  }
  // A kernel that takes all types but one.
  void Add(const std::string& op, DType lacking = DType::kInvalid) {
    ASSERT_TRUE(kernels_
                    .Register("", op, DeviceKind::kCuda,
                              [lacking](const PrepareContext& context)
                                  -> absl::StatusOr<std::unique_ptr<Kernel>> {
                                EXPECT_EQ(context.device().info().kind, DeviceKind::kCuda);
                                if (context.InputDType(0) == lacking) {
                                  return context.Unimplemented("not this type");
                                }
                                return context.device().NewEvent().status();
                              })
                    .ok());
  }
  absl::Status Settle(const Graph& graph) {
    return SettleCpuFallback(graph, kSamples, kernels_, spec_, notes_);
  }

  KernelRegistry kernels_;
  JobSpec spec_;
  std::vector<std::string> notes_;
};

TEST_F(CpuFallbackTest, FindsWhatHasNoKernelWithItsShareOfTheWork) {
  const auto ops = OperatorsWithoutCudaKernel(ProductAndRelu(16), kSamples, kernels_);
  ASSERT_TRUE(ops.ok()) << ops.status();
  ASSERT_THAT(*ops, SizeIs(1));
  EXPECT_EQ(ops->front().op, "Relu");
  EXPECT_EQ(ops->front().node, "Relu");
  EXPECT_EQ(ops->front().nodes, 1);
  EXPECT_NEAR(ops->front().flops_share, 1.0 / (2 * 16 + 1), 1e-9);
}

// The kernel of Relu lacks float64: of two nodes one runs on the host. Nobody asks how a kernel is
// prepared on a card that is not there, and what it would fail with is no lack.
TEST_F(CpuFallbackTest, FindsTypesThatAKernelLacks) {
  Add("Relu", DType::kFloat64);
  Add("Cast");
  Graph graph = ProductAndRelu(16);
  GraphBuilder builder(graph);
  builder.set_name_prefix("wide/");
  const ValueId wide =
      builder.Op("Cast", {graph.outputs()[0]}, {{"to", static_cast<int64_t>(DType::kFloat64)}});
  graph.AddOutput(builder.Op("Relu", {wide}));
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  const auto ops = OperatorsWithoutCudaKernel(graph, kSamples, kernels_);
  ASSERT_TRUE(ops.ok()) << ops.status();
  ASSERT_THAT(*ops, SizeIs(1));
  EXPECT_EQ(ops->front().op, "Relu(float64) -> float64");
  EXPECT_EQ(ops->front().node, "wide/Relu");
  EXPECT_EQ(ops->front().nodes, 1);
  EXPECT_EQ(Settle(graph).code(), absl::StatusCode::kUnimplemented);
  spec_.cpu_fallback = CpuFallback::kAllow;
  ASSERT_TRUE(Settle(graph).ok());
  EXPECT_THAT(spec_.plan.host_ops, ElementsAre("Relu(float64) -> float64"));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("Relu(float64) -> float64 (node 'wide/Relu', ")));
  ASSERT_TRUE(Settle(graph).ok());
  EXPECT_THAT(notes_, SizeIs(1));  // it is settled
  spec_.plan.host_ops = {"Relu"};  // of any type
  ASSERT_TRUE(Settle(graph).ok());
  EXPECT_THAT(spec_.plan.host_ops, ElementsAre("Relu"));
}

TEST_F(CpuFallbackTest, ALittleRunsOnTheHostAndIsSaid) {
  ASSERT_TRUE(Settle(ProductAndRelu(64)).ok());  // 1 / 129
  EXPECT_THAT(spec_.plan.host_ops, ElementsAre("Relu"));
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("run on the CPU of a GPU's worker"),
                                        HasSubstr("Relu (node 'Relu', 0.78 % of the FLOPs)"))));
}

TEST_F(CpuFallbackTest, MoreThanOnePercentIsRefusedWithWhatToDo) {
  const absl::Status status = Settle(ProductAndRelu(48));  // 1 / 97
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("Relu (node 'Relu', 1 % of the FLOPs)"),
                    HasSubstr("more than the 1 %"), HasSubstr("--cpu-fallback allow")));
  EXPECT_THAT(spec_.plan.host_ops, IsEmpty());
}

TEST_F(CpuFallbackTest, WhatIsAllowedRunsOnTheHostHoweverMuchItIs) {
  spec_.cpu_fallback = CpuFallback::kAllow;
  ASSERT_TRUE(Settle(ProductAndRelu(1)).ok());
  EXPECT_THAT(spec_.plan.host_ops, ElementsAre("Relu"));
}

TEST_F(CpuFallbackTest, WhatIsRefusedIsRefusedHoweverLittleItIs) {
  spec_.cpu_fallback = CpuFallback::kRefuse;
  EXPECT_THAT(std::string(Settle(ProductAndRelu(1000)).message()),
              AllOf(HasSubstr("node 'Relu'"), HasSubstr("--cpu-fallback refuse")));
}

// A plan file says it: nobody needs to allow it again.
TEST_F(CpuFallbackTest, WhatThePlanNamesIsSettled) {
  spec_.plan.host_ops = {"Relu"};
  EXPECT_TRUE(Settle(ProductAndRelu(1)).ok());
  EXPECT_THAT(spec_.plan.host_ops, ElementsAre("Relu"));
  EXPECT_THAT(notes_, IsEmpty());
}

// The flag is stronger than the file.
TEST_F(CpuFallbackTest, WhatThePlanNamesIsRefusedWhereAllIs) {
  spec_.cpu_fallback = CpuFallback::kRefuse;
  spec_.plan.host_ops = {"Relu"};
  EXPECT_THAT(std::string(Settle(ProductAndRelu(1)).message()),
              AllOf(HasSubstr("node 'Relu'"), HasSubstr("--cpu-fallback refuse")));
}

TEST_F(CpuFallbackTest, WithKernelsForAllNothingFallsBack) {
  Add("Relu");
  spec_.cpu_fallback = CpuFallback::kRefuse;
  EXPECT_TRUE(Settle(ProductAndRelu(1)).ok());
  EXPECT_THAT(spec_.plan.host_ops, IsEmpty());
}

TEST_F(CpuFallbackTest, ClustersWithoutGpusHaveNothingToSettle) {
  spec_.cluster = ClusterSpec::Local(2, 1);
  spec_.cpu_fallback = CpuFallback::kRefuse;
  EXPECT_TRUE(Settle(ProductAndRelu(1)).ok());
  EXPECT_THAT(spec_.plan.host_ops, IsEmpty());
}

// Its workers know the kernels; they refuse where nothing is allowed.
TEST_F(CpuFallbackTest, ABuildWithoutCudaAllowsAnyOrNone) {
  kernels_ = KernelRegistry();
  EXPECT_TRUE(Settle(ProductAndRelu(1)).ok());
  EXPECT_THAT(spec_.plan.host_ops, IsEmpty());
  spec_.cpu_fallback = CpuFallback::kAllow;
  EXPECT_TRUE(Settle(ProductAndRelu(1)).ok());
  EXPECT_THAT(spec_.plan.host_ops, ElementsAre("*"));
  EXPECT_THAT(notes_, SizeIs(1));
}

// The coordinator has no card, and its registry says all the same what a card computes.
TEST_F(CpuFallbackTest, WorkersOfOtherMachinesAreTreatedAsOwnOnes) {
  spec_.cluster.workers[1].address = "far:1";
  EXPECT_EQ(Settle(ProductAndRelu(48)).code(), absl::StatusCode::kUnimplemented);
  ASSERT_TRUE(Settle(ProductAndRelu(64)).ok());
  EXPECT_THAT(spec_.plan.host_ops, ElementsAre("Relu"));
  EXPECT_THAT(notes_, SizeIs(1));
}

// It cannot count the one percent: its workers do.
TEST_F(CpuFallbackTest, ABuildWithoutCudaLeavesItToWorkersOfOtherMachines) {
  kernels_ = KernelRegistry();
  EXPECT_TRUE(Settle(ProductAndRelu(64)).ok());
  EXPECT_THAT(notes_, IsEmpty());  // own workers cannot have a card
  EXPECT_FALSE(WorkersSettleFallback(spec_, kernels_));
  spec_.cluster.workers[1].address = "far:1";
  EXPECT_TRUE(Settle(ProductAndRelu(64)).ok());
  EXPECT_THAT(spec_.plan.host_ops, IsEmpty());
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("the workers say so before the first step"),
                                        HasSubstr("more than 1 % of the FLOPs"))));
  EXPECT_TRUE(WorkersSettleFallback(spec_, kernels_));
  for (const CpuFallback other : {CpuFallback::kRefuse, CpuFallback::kAllow}) {
    JobSpec settled = spec_;
    settled.cpu_fallback = other;
    notes_.clear();
    EXPECT_TRUE(SettleCpuFallback(ProductAndRelu(64), kSamples, kernels_, settled, notes_).ok());
    EXPECT_THAT(notes_, SizeIs(other == CpuFallback::kAllow ? 1 : 0));
    EXPECT_FALSE(WorkersSettleFallback(settled, kernels_));
  }
  // A program that knows the kernels has settled it.
  Add("MatMul");
  EXPECT_FALSE(WorkersSettleFallback(spec_, kernels_));
}

// Relu is one of 2 k + 1 FLOPs, whatever the number of ranks and micro-batches.
TEST(HostNodesTest, OnePercentOfTheStepsFlopsMayRunOnHosts) {
  const auto ranks = [](int64_t k) {
    std::vector<Partition> partitions;
    for (int rank = 0; rank < 2; ++rank) {
      Partition& partition = partitions.emplace_back();
      partition.rank = RankId(rank);
      partition.micro.push_back(ProductAndRelu(k));
      partition.micro_batches = {{0, 0, kSamples, 0}, {1, kSamples, kSamples, 0}};
    }
    return partitions;
  };
  std::string relu;
  const std::vector<Partition> small = ranks(64);
  for (const NodeId id : small[0].micro[0].node_ids()) {
    const Node& node = small[0].micro[0].node(id);
    if (node.op == "Relu") relu = node.name;
  }
  ASSERT_FALSE(relu.empty());
  const auto note = SettleHostNodes(small, {{relu}, {relu}});
  ASSERT_TRUE(note.ok()) << note.status();
  EXPECT_THAT(*note, AllOf(HasSubstr("Relu"), HasSubstr("0.78 % of the FLOPs")));  // 1 in 129
  const absl::Status refused = SettleHostNodes(ranks(48), {{relu}, {relu}}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("Relu (node '"), HasSubstr("1 % of the FLOPs"),
                    HasSubstr("--cpu-fallback allow")));
  // Of one rank it is half as much.
  EXPECT_TRUE(SettleHostNodes(ranks(48), {{relu}, {}}).ok());
  EXPECT_EQ(SettleHostNodes(ranks(48), {{}, {}}).value(), "");
}

// A worker far away whose card has kernels for nothing refuses a job before its first step, under a
// coordinator that does not know it.
void ExpectRefusedByWorkers(const PreparedJob& job, const JobSpec& spec, FileSystem& files) {
  EXPECT_TRUE(job.workers_settle_fallback);
  EXPECT_THAT(job.plan.host_ops, IsEmpty());  // a plan file would allow any
  testing::FakeDevice device({.kind = DeviceKind::kCuda});
  const InProcessCluster cluster({&device}, NewDataSetFactory(files), "1", {}, &files);
  Coordinator coordinator(cluster.clients());
  const absl::Status refused = StartJob(coordinator, job, spec, "1", {});
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("MatMul (node '"), HasSubstr("more than the 1 %"),
                    HasSubstr("--cpu-fallback allow")));
}

// The same in programs that were dumped, and run by another job.
TEST(HostNodesTest, AJobWhoseWorkersRunTooMuchOnHostsIsRefusedBeforeItsFirstStep) {
  if (KernelRegistry::Global().Count(DeviceKind::kCuda) > 0) {
    GTEST_SKIP() << "this program knows what a card has kernels for";
  }
  testing::FakeFileSystem files;
  DataSpec data;
  data.batch = kSamples;
  const auto write = [&](const std::string& input, int64_t width) {
    const std::string path = "/" + input + ".npy";
    const Tensor rows = testing::RandomTensor({kSamples, width}, 1);
    ASSERT_TRUE(files.WriteFileAtomically(path, *ToNpy(rows)).ok());
    data.files.push_back({input, path, 0});
  };
  constexpr int64_t kInputs = 4;
  write("x", kInputs);
  write("labels", 5);
  TrainingSpec training;
  training.loss = ParseLoss("mse").value();
  training.optimizer.kind = "sgd";
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(1, 1);
  spec.cluster.workers[0].device = DeviceKind::kCuda;
  spec.cluster.workers[0].address = "far:1";
  const auto job =
      PrepareTraining(ProductAndRelu(kInputs), training, spec, *DataSet::Open(files, data));
  ASSERT_TRUE(job.ok()) << job.status();
  ExpectRefusedByWorkers(*job, spec, files);

  StoredPrograms dumped;
  dumped.plan = job->plan;
  for (const JobProgram& program : job->programs) {
    JobProgram& copy = dumped.programs.emplace_back();
    copy.name = program.name;
    copy.shape = program.shape;
    for (const Partition& part : program.partitions) copy.partitions.push_back(part.Clone());
  }
  ASSERT_TRUE(WritePartitionFolder(files, "/dump", dumped).ok());
  auto read = ReadPartitionFolder(files, "/dump");
  ASSERT_TRUE(read.ok()) << read.status();
  spec.stored = std::make_shared<const StoredPrograms>(*std::move(read));
  const auto again =
      PrepareTraining(ProductAndRelu(kInputs), training, spec, *DataSet::Open(files, data));
  ASSERT_TRUE(again.ok()) << again.status();
  ExpectRefusedByWorkers(*again, spec, files);
}

// Two micro-batches run Relu on [4,8]: each copies 128 bytes there and 128 back.
TEST(HostWorkTest, CountsTheCopiesOfEachMicroBatch) {
  Partition partition;
  partition.rank = RankId(0);
  Graph micro;
  const ValueId x = micro.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{4, 8}});
  GraphBuilder builder(micro);
  builder.Op("Relu", {builder.Op("Gelu", {x})});
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  partition.micro.push_back(std::move(micro));
  partition.micro_batches = {{0, 0, 4, 0}, {1, 4, 4, 0}};
  std::vector<Partition> partitions;
  partitions.push_back(std::move(partition));
  Plan plan;
  plan.workers = {0};
  plan.host_ops = {"Relu"};
  ClusterProfile profile = RoundProfile({0});
  profile.devices[0].host_bytes_per_second = 1e6;
  profile.devices[0].host_copy_seconds = 1e-3;
  const CostModel costs = ModelOf(profile).WithHostOps(plan.host_ops);
  const auto work = HostWorkOf(partitions, plan, costs);
  ASSERT_TRUE(work.ok()) << work.status();
  EXPECT_THAT(work->nodes, ElementsAre("Relu"));
  EXPECT_EQ(work->runs, 2);
  EXPECT_EQ(work->bytes, 2 * (128 + 128));
  EXPECT_NEAR(work->seconds, 2 * (2 * 1e-3 + 256 / 1e6), 1e-5);
  EXPECT_THAT(HostWorkText(*work, plan), AllOf(HasSubstr("1 node runs on the CPU"),
                                               HasSubstr("512 B"), HasSubstr("in 2 runs")));
}

}  // namespace
}  // namespace weft
