#include "placement/files/plan_file.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/text/units.h"

namespace weft {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ClusterError(const std::string& text) {
  const absl::Status status = ParseClusterFile(text, "c.yaml").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

std::string PlanError(const std::string& text) {
  const absl::Status status = ParsePlanFile(text, "p.yaml").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

std::string ParallelError(const std::string& text) {
  const absl::Status status = ParseParallel(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

constexpr char kTwoHosts[] = R"(
hosts:
  - name: alpha
    workers:
      - {address: "10.0.0.1:4000", device: "cuda:1", memory: 4GiB, threads: 2}
  - name: beta
    workers:
      - {name: second, address: "10.0.0.2:4000"}
links:
  - {from: alpha, to: beta, bandwidth: 25Gbit/s, latency: 50us}
)";

TEST(ClusterFileTest, ReadsHostsWorkersAndLinks) {
  const ClusterSpec cluster = *ParseClusterFile(kTwoHosts, "c.yaml");
  ASSERT_EQ(cluster.workers.size(), 2u);
  EXPECT_EQ(cluster.workers[0], (WorkerSpec{"worker:0", "alpha", "10.0.0.1:4000", DeviceKind::kCuda,
                                            1, int64_t{4} << 30, 2}));
  EXPECT_EQ(cluster.workers[1],
            (WorkerSpec{"second", "beta", "10.0.0.2:4000", DeviceKind::kCpu, 0, 0, 0}));
  ASSERT_EQ(cluster.links.size(), 1u);
  EXPECT_EQ(cluster.links[0], (LinkSpec{"alpha", "beta", 25e9 / 8, 50e-6}));
}

TEST(ClusterFileTest, WhatIsWrittenReadsBackEqual) {
  const ClusterSpec cluster = *ParseClusterFile(kTwoHosts, "c.yaml");
  EXPECT_EQ(*ParseClusterFile(ClusterToYaml(cluster), "c.yaml"), cluster);
  const ClusterSpec local = ClusterSpec::Local(3, 2);
  EXPECT_EQ(*ParseClusterFile(ClusterToYaml(local), "c.yaml"), local);
}

constexpr char kPublished[] = R"(
hosts:
  - name: alpha
    workers:
      - {address: "10.0.0.1:4000", device: cuda, model: A100-80GB}
  - name: beta
    workers:
      - {address: "10.0.0.2:4000", device: cuda, model: L4}
links:
  - {within: "*", kind: nvlink3}
  - {within: beta, kind: pcie4}
  - {from: "*", to: "*", kind: infiniband-hdr, rails: 8}
)";

TEST(ClusterFileTest, ReadsModelsAndKindsOfLinks) {
  const ClusterSpec cluster = *ParseClusterFile(kPublished, "c.yaml");
  EXPECT_EQ(cluster.workers[1].model, "L4");
  ASSERT_EQ(cluster.links.size(), 3u);
  EXPECT_EQ(cluster.links[0], (LinkSpec{"*", "", 0, 0, "nvlink3", 0}));
  EXPECT_EQ(cluster.links[1], (LinkSpec{"beta", "", 0, 0, "pcie4", 0}));
  EXPECT_EQ(cluster.links[2], (LinkSpec{"*", "*", 0, 0, "infiniband-hdr", 8}));
  EXPECT_EQ(*ParseClusterFile(ClusterToYaml(cluster), "c.yaml"), cluster);
}

TEST(ClusterFileTest, LinksWithinAreNotBetween) {
  const std::string text = kPublished;
  EXPECT_THAT(ClusterError(text + "  - {within: alpha, to: beta}\n"),
              HasSubstr("a link is within a host, or from one to another"));
  EXPECT_THAT(ClusterError(text + "  - {from: alpha, to: '*'}\n"),
              HasSubstr("'*' stands for all hosts on both ends"));
  EXPECT_THAT(ClusterError(text + "  - {within: beta}\n"),
              HasSubstr("there are two links within 'beta'"));
  EXPECT_THAT(ClusterError(text + "  - {within: gamma}\n"), HasSubstr("there is no host 'gamma'"));
}

TEST(ClusterFileTest, JsonIsYaml) {
  EXPECT_EQ(
      ParseClusterFile(R"({"hosts": [{"name": "a", "workers": [{}]}]})", "c.json")->workers.size(),
      1u);
}

TEST(ClusterFileTest, UnknownKeysComeWithPlaceAndSuggestion) {
  EXPECT_EQ(
      ClusterError("hosts:\n  - name: a\n    worker: []\n"),
      "c.yaml:3:5: unknown key 'worker' in a host, did you mean 'workers'? (known keys: name, "
      "workers)");
}

TEST(ClusterFileTest, DuplicatesAreErrors) {
  EXPECT_EQ(
      ClusterError("hosts:\n- name: a\n  workers:\n  - address: unix:/s\n  - address: unix:/s\n"),
      "c.yaml:5:14: 'address': workers 'worker:0' and 'worker:1' have the same address "
      "'unix:/s'");
  EXPECT_EQ(ClusterError("hosts:\n- name: a\n  workers:\n  - name: w\n  - name: w\n"),
            "c.yaml:5:11: 'name': there are two workers 'w'");
  EXPECT_THAT(ClusterError("hosts:\n- {name: a, workers: [{}]}\n- {name: a, workers: [{}]}\n"),
              HasSubstr("c.yaml:3:10: 'name': there are two hosts 'a'"));
  EXPECT_EQ(ClusterError("hosts:\n- name: a\n  name: b\n  workers: [{}]\n"),
            "c.yaml:3:3: 'name' comes twice in a host; the first is in line 2");
}

// Each key was compared with all before it: 200,000 of them took more than a minute.
TEST(ClusterFileTest, ManyKeysAreReadInLinearTime) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) absl::StrAppend(&text, "k", i, ": 1\n");
  const absl::Time begin = absl::Now();
  EXPECT_THAT(ClusterError(text), HasSubstr("unknown key 'k0'"));
  EXPECT_THAT(ClusterError(text + "k7: 1\n"),
              HasSubstr("'k7' comes twice in the cluster; the first is in line 8"));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
}

TEST(ClusterFileTest, BadUnitsAreErrors) {
  EXPECT_THAT(
      ClusterError("hosts:\n- name: a\n  workers:\n  - memory: 4 gigs\n"),
      HasSubstr("c.yaml:4:13: 'memory': '4 gigs' is not a number with a unit such as 4GiB"));
}

TEST(ClusterFileTest, BadAddressesAndDevicesAreErrors) {
  const std::string begin = "hosts:\n- name: a\n  workers:\n  - ";
  for (const char* address : {"localhost", ":4000", "a:0", "a:70000", "a:x"}) {
    EXPECT_THAT(ClusterError(begin + "address: '" + address + "'"),
                HasSubstr("is not an address; expected HOST:PORT"));
  }
  EXPECT_THAT(ClusterError(begin + "address: 'unix:'"), HasSubstr("needs the path of a socket"));
  EXPECT_THAT(ClusterError(begin + "device: tpu"), HasSubstr("expected cpu, cuda or cuda:NUMBER"));
  EXPECT_THAT(ClusterError(begin + "device: cuda:x"), HasSubstr("goes its number"));
  EXPECT_THAT(ClusterError(begin + "threads: 0"), HasSubstr("a whole number from 1 to 4096"));
}

TEST(ClusterFileTest, WorkersOfSeveralHostsNeedAddresses) {
  EXPECT_EQ(ClusterError("hosts:\n- {name: a, workers: [{}]}\n- {name: b, workers: [{}]}\n"),
            "c.yaml:2:23: worker 'worker:0' has no 'address'; with several hosts each worker needs "
            "one");
}

TEST(ClusterFileTest, SparesAreNoWorkersOfAPlan) {
  const std::string text = R"(
hosts:
  - name: a
    workers: [{address: "a:1"}, {address: "a:2", role: spare, device: cuda:1}, {address: "a:3", role: worker}]
  - name: b
    workers: [{address: "b:1", role: spare}]
links:
  - {from: a, to: b, bandwidth: 1Gbit/s}
)";
  const auto cluster = ParseClusterFile(text, "c.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_EQ(cluster->workers.size(), 2u);
  EXPECT_EQ(cluster->workers[1].name, "worker:1");
  EXPECT_EQ(cluster->workers[1].address, "a:3");
  ASSERT_EQ(cluster->spares.size(), 2u);
  EXPECT_EQ(cluster->spares[0].name, "spare:0");
  EXPECT_EQ(cluster->spares[0].device_index, 1);
  EXPECT_EQ(cluster->spares[1].host, "b");
  EXPECT_TRUE(cluster->links.empty()) << "no plan has a part on b";
  EXPECT_EQ(*ParseClusterFile(ClusterToYaml(*cluster), "c.yaml"), *cluster);
  ClusterSpec without = *cluster;
  without.spares.clear();
  EXPECT_EQ(without.Digest(), cluster->Digest()) << "profiles and plans stay valid";
}

TEST(ClusterFileTest, RolesThatCannotBeAreErrors) {
  const std::string begin = "hosts:\n- name: a\n  workers:\n  - ";
  EXPECT_THAT(ClusterError(begin + "{address: 'a:1', role: reserve}\n"),
              HasSubstr("'reserve' is no role; expected worker or spare"));
  EXPECT_THAT(ClusterError(begin + "{role: spare}\n"), HasSubstr("a spare needs an 'address'"));
  EXPECT_THAT(ClusterError(begin + "{address: 'a:1', role: spare}\n"),
              HasSubstr("all workers are spares"));
  EXPECT_THAT(ClusterError(begin + "{address: 'a:1'}\n  - {address: 'a:1', role: spare}\n"),
              HasSubstr("have the same address 'a:1'"));
}

TEST(ClusterFileTest, BrokenTextIsAnErrorWithAPlace) {
  EXPECT_THAT(ClusterError("hosts: [\n"), HasSubstr("c.yaml:2:1: not YAML: "));
  EXPECT_EQ(ClusterError(""), "c.yaml: the file is empty");
  EXPECT_THAT(ClusterError("- 1"), HasSubstr("c.yaml:1:1: the cluster is a list; expected a map"));
  EXPECT_THAT(ClusterError("hosts: 5"), HasSubstr("expected a list of at least one host"));
  EXPECT_THAT(ClusterError("links: []"), HasSubstr("the cluster has no 'hosts'"));
}

TEST(PlanFileTest, ReadsWhatPeopleWrite) {
  const Plan plan = *ParsePlanFile(R"(
mesh: {data: 2, tensor: 2, pipeline: 2}
micro_batches: 4
schedule: 1f1b
stages:
  "block0/*": 0
  "block1/*": 1
tensor_shardings:
  fc1.weight: S(0)
  "*.qkv.weight": S(1,blocks=3)
)",
                                   "p.yaml");
  EXPECT_EQ(plan.mesh, (Mesh{2, 2, 2}));
  EXPECT_EQ(plan.micro_batches, 4);
  EXPECT_EQ(plan.schedule, "1f1b");
  EXPECT_EQ(plan.stages.at("block1/*"), 1);
  EXPECT_EQ(plan.tensor_shardings.at("fc1.weight"), AxisSharding::Split(0));
  EXPECT_EQ(plan.tensor_shardings.at("*.qkv.weight"), AxisSharding::Split(1, 3));
  EXPECT_EQ(plan.reduction, Reduction::kUnordered);
}

TEST(PlanFileTest, TheFormerNameOfAReductionIsRefusedWithTheNewOne) {
  EXPECT_EQ(PlanError("reduction: ring"),
            "p.yaml:1:12: 'reduction': 'ring' is not a reduction; expected unordered or "
            "ordered_tree ('ring' is now called unordered)");
}

TEST(PlanFileTest, ReadsRecomputedSegmentsInEachForm) {
  EXPECT_EQ(ParsePlanFile("recompute: 4", "p.yaml")->recompute_segments, 4);
  EXPECT_EQ(ParsePlanFile("recompute: all", "p.yaml")->recompute_segments, 1);
  using Segments = std::map<std::string, std::string>;
  EXPECT_EQ(ParsePlanFile("recompute: [\"block*/mlp/*\", head]", "p.yaml")->recompute,
            (Segments{{"block*/mlp/*", "block*"}, {"head", "head"}}));
  EXPECT_EQ(
      ParsePlanFile("recompute: {\"block0/*\": first, \"block0/out\": \"\"}", "p.yaml")->recompute,
      (Segments{{"block0/*", "first"}, {"block0/out", ""}}));
  EXPECT_EQ(PlanError("recompute: some"),
            "p.yaml:1:12: 'recompute' is 'some'; expected all, a number of segments, a "
            "list of patterns or a map from patterns to segments");
  EXPECT_THAT(PlanError("recompute: [[a]]"),
              HasSubstr("a recomputed segment's pattern is a list; expected a single value"));
}

TEST(PlanFileTest, RecomputedSegmentsComeBack) {
  Plan plan;
  plan.recompute = {{"block0/a", "block0"}, {"block1/a", "block1"}};
  EXPECT_EQ(ParsePlanFile(PlanToYaml(plan), "p.yaml")->recompute, plan.recompute);
  Plan counted;
  counted.recompute_segments = 3;
  EXPECT_EQ(ParsePlanFile(PlanToYaml(counted), "p.yaml")->recompute_segments, 3);
}

TEST(PlanFileTest, WholeBatchesComeBack) {
  EXPECT_FALSE(ParsePlanFile("micro_batches: 2", "p.yaml")->whole_batch);
  Plan plan;
  plan.whole_batch = true;
  EXPECT_TRUE(ParsePlanFile(PlanToYaml(plan), "p.yaml")->whole_batch);
}

TEST(PlanFileTest, WhatRunsOnHostsAndTf32ComeBack) {
  Plan plan;
  plan.host_ops = {"NonMaxSuppression", "ai.weft::Scale", "Add(float64, float64) -> float64"};
  plan.tf32 = true;
  const Plan read = *ParsePlanFile(PlanToYaml(plan), "p.yaml");
  EXPECT_EQ(read.host_ops, plan.host_ops);
  EXPECT_TRUE(read.tf32);
  EXPECT_EQ(ParsePlanFile("host_ops: ['*']", "p.yaml")->host_ops, std::vector<std::string>{"*"});
  EXPECT_THAT(PlanToYaml(Plan()), Not(AnyOf(HasSubstr("host_ops"), HasSubstr("tf32"))));
  EXPECT_THAT(PlanError("host_ops: Relu"), HasSubstr("expected a list of operators"));
}

TEST(PlanFileTest, StrictPlansAddInTreeOrder) {
  EXPECT_EQ(ParsePlanFile("strict: true", "p.yaml")->reduction, Reduction::kOrderedTree);
  EXPECT_EQ(PlanError("strict: true\nreduction: unordered"),
            "p.yaml:2:12: 'reduction': a strict plan needs ordered_tree");
}

TEST(PlanFileTest, ThreadsAreOneNumberOrOneForEachRank) {
  const absl::StatusOr<Plan> plan = ParsePlanFile("mesh: {data: 2}\nthreads: [8, 2]\n", "p.yaml");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rank_threads, (std::vector<int>{8, 2}));
  EXPECT_EQ(plan->threads_per_worker, 2);
  EXPECT_EQ(plan->ThreadsOf(RankId(0)), 8);
  const absl::StatusOr<Plan> read = ParsePlanFile(PlanToYaml(*plan), "p.yaml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->rank_threads, plan->rank_threads);
  for (const char* bad : {"mesh: {data: 2}\nthreads: [8]\n", "threads: [0]\n", "threads: many\n"}) {
    EXPECT_EQ(ParsePlanFile(bad, "p.yaml").status().code(), absl::StatusCode::kInvalidArgument)
        << bad;
  }
}

TEST(PlanFileTest, WhatIsWrittenReadsBackEqual) {
  Plan plan;
  plan.model_digest = 0x0123456789abcdefu;
  plan.cluster_digest = 7;
  plan.mesh = {2, 1, 2};
  plan.workers = {3, 1, 0, 2};
  plan.micro_batches = 6;
  plan.schedule = "1f1b";
  plan.reduction = Reduction::kOrderedTree;
  plan.strict = true;
  plan.bucket_bytes = 1000;
  plan.threads_per_worker = 3;
  plan.stages = {{"a", 0}, {"yes: [odd], 'name'", 1}};
  plan.tensor_shardings = {{"w", AxisSharding::Split(1, 3)}, {"true", AxisSharding::Replicated()}};
  plan.prediction.step_seconds = 0.0123456789012345;
  plan.prediction.bubble_fraction = 1.0 / 3;
  plan.prediction.calibrated = true;
  plan.prediction.memory_bytes = {1 << 20, 12345, 0, 1};
  plan.prediction.bytes_per_step = {1, 2, 3, 4};
  const std::string text = PlanToYaml(plan);
  const absl::StatusOr<Plan> read = ParsePlanFile(text, "p.yaml");
  ASSERT_TRUE(read.ok()) << read.status() << "\n" << text;
  EXPECT_EQ(PlanToYaml(*read), text);
  EXPECT_EQ(read->model_digest, plan.model_digest);
  EXPECT_EQ(read->mesh, plan.mesh);
  EXPECT_EQ(read->workers, plan.workers);
  EXPECT_EQ(read->stages, plan.stages);
  EXPECT_EQ(read->tensor_shardings, plan.tensor_shardings);
  EXPECT_EQ(read->prediction.step_seconds, plan.prediction.step_seconds);
  EXPECT_EQ(read->prediction.bubble_fraction, plan.prediction.bubble_fraction);
  EXPECT_TRUE(read->prediction.calibrated);
  EXPECT_EQ(read->prediction.memory_bytes, plan.prediction.memory_bytes);
}

TEST(PlanFileTest, ErrorsSayWhereAndWhat) {
  EXPECT_THAT(PlanError("mesh: {data: 2}\nstage: {}"),
              HasSubstr("p.yaml:2:1: unknown key 'stage' in the plan, did you mean 'stages'?"));
  EXPECT_EQ(PlanError("mesh: {pipeline: 2}\nstages:\n  a: 2"),
            "p.yaml:3:6: the stage of 'a' is '2'; expected a whole number from 0 to 1");
  EXPECT_THAT(PlanError("tensor_shardings: {w: T(0)}"),
              HasSubstr("p.yaml:1:23: the sharding of 'w': "));
  EXPECT_EQ(PlanError("mesh: {data: 2}\nworkers: [0]"),
            "p.yaml:2:10: 'workers': there are 1 workers for 2 ranks (dp=2 x tp=1 x pp=1)");
  EXPECT_EQ(PlanError("mesh: {data: 2}\nworkers: [0, 0]"), "p.yaml:2:14: worker 0 is there twice");
  EXPECT_THAT(PlanError("schedule: zigzag"), HasSubstr("unknown pipeline schedule 'zigzag'"));
  EXPECT_THAT(PlanError("schedule: 1f1b\nchunks: 2"),
              HasSubstr("'chunks': the schedule 1f1b runs one chunk per rank"));
  EXPECT_THAT(PlanError("schedule: interleaved"),
              HasSubstr("'schedule': the schedule interleaved with 1 chunk is 1f1b"));
  EXPECT_THAT(PlanError("version: 2"), HasSubstr("'version' is '2'"));
  EXPECT_THAT(PlanError("strict: maybe"), HasSubstr("'strict' is 'maybe'; expected true or false"));
  EXPECT_THAT(PlanError("model_digest: 12"), HasSubstr("not a digest"));
  for (const std::string bubble : {"nan", "inf", "1e999"}) {
    EXPECT_THAT(PlanError("prediction: {bubble: " + bubble + "}"),
                HasSubstr("expected a finite number"));
  }
  EXPECT_THAT(PlanError("mesh: {data: 60000, tensor: 60000}"), HasSubstr("more than 65536"));
}

TEST(ParallelTest, ReadsMeshMicroBatchesAndSchedule) {
  const Plan plan = *ParseParallel("dp=2,tp=3,pp=4,micro=5,schedule=1f1b");
  EXPECT_EQ(plan.mesh, (Mesh{2, 3, 4}));
  EXPECT_EQ(plan.micro_batches, 5);
  EXPECT_EQ(plan.schedule, "1f1b");
  EXPECT_EQ(ParseParallel("pp=2")->mesh, (Mesh{1, 1, 2}));
  EXPECT_EQ(ParseParallel("pp=2,chunks=3,schedule=interleaved")->chunks, 3);
}

TEST(ParallelTest, ReadsRecomputedSegments) {
  EXPECT_EQ(ParseParallel("pp=2,recompute=4")->recompute_segments, 4);
  EXPECT_EQ(ParseParallel("recompute=all")->recompute_segments, 1);
  using Segments = std::map<std::string, std::string>;
  EXPECT_EQ(ParseParallel("recompute=block*/mlp+head")->recompute,
            (Segments{{"block*/mlp", "block*"}, {"head", "head"}}));
  EXPECT_THAT(ParallelError("recompute=99999999"), HasSubstr("recompute is '99999999', not all"));
  EXPECT_THAT(ParallelError("recompute=a++b"), HasSubstr("with an empty pattern"));
  EXPECT_THAT(ParallelError("recompute="), HasSubstr("recompute is ''"));
}

TEST(ParallelTest, ReadsZero) {
  EXPECT_EQ(ParseParallel("dp=2,zero=3")->zero, 3);
  EXPECT_EQ(ParseParallel("dp=2,zero=0")->zero, 0);
  EXPECT_THAT(ParallelError("dp=2,zero=4"), HasSubstr("zero is '4', not 0, 1, 2 or 3"));
}

TEST(PlanFileTest, ZeroAndWhatStaysWholeComeBack) {
  Plan plan;
  plan.zero = 2;
  plan.zero_replicated = {{"fc.bias", "axis 0 has 1 rows for 2 replicas"}};
  const auto read = ParsePlanFile(PlanToYaml(plan), "plan.yaml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->zero, 2);
  EXPECT_EQ(read->zero_replicated, plan.zero_replicated);
  EXPECT_THAT(PlanError("zero: 4"), HasSubstr("zero"));
}

TEST(PlanFileTest, PinsComeBack) {
  Plan plan;
  plan.pins = {{"conv3/*", "worker:1"}, {"head", "the fast one"}};
  const auto read = ParsePlanFile(PlanToYaml(plan), "plan.yaml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->pins, plan.pins);
  EXPECT_THAT(PlanError("pin: [conv3]"), HasSubstr("'pin'"));
}

TEST(PlanFileTest, SharesAreReadBack) {
  Plan plan;
  plan.mesh.data = 2;
  plan.shares = {2, 1};
  const auto read = ParsePlanFile(PlanToYaml(plan), "plan.yaml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->shares, plan.shares);
  EXPECT_THAT(PlanError("mesh: {data: 2}\nshares: [2, 1, 1]"),
              HasSubstr("there are 3 shares for 2 data-parallel replicas"));
  EXPECT_THAT(PlanError("mesh: {data: 2}\nshares: [2, 0]"), HasSubstr("a share"));
  EXPECT_THAT(PlanError("shares: 2"), HasSubstr("expected a list of numbers"));
}

TEST(ParallelTest, SharesSayHowManyReplicas) {
  const auto plan = ParseParallel("shares=3:1,pp=2");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->shares, testing::ElementsAre(3, 1));
  EXPECT_EQ(plan->mesh.data, 2);
  EXPECT_THAT(ParallelError("dp=3,shares=3:1"), HasSubstr("there are 2 shares for dp=3"));
  EXPECT_THAT(ParallelError("shares=3:0"), HasSubstr("shares is '3:0', not whole numbers"));
}

TEST(ParallelTest, ErrorsSayWhatAndTheKeys) {
  EXPECT_EQ(ParallelError("dp=2,tp=x"),
            "parallel 'dp=2,tp=x': tp is 'x', not a whole number from 1 to 65536; expected for "
            "example dp=2,tp=1,pp=2 with the keys dp, tp, pp, zero, micro, schedule, chunks, "
            "recompute, shares");
  EXPECT_THAT(ParallelError("ddp=2"), HasSubstr("unknown key 'ddp', did you mean 'dp'?"));
  EXPECT_THAT(ParallelError("dp"), HasSubstr("'dp' is not KEY=VALUE"));
  EXPECT_THAT(ParallelError(""), HasSubstr("'' is not KEY=VALUE"));
  EXPECT_THAT(ParallelError("dp=2,dp=2"), HasSubstr("dp comes twice"));
  EXPECT_THAT(ParallelError("dp=0"), HasSubstr("dp is '0'"));
  EXPECT_THAT(ParallelError("schedule=x"), HasSubstr("unknown pipeline schedule 'x'"));
  EXPECT_THAT(ParallelError("schedule=interleaved"), HasSubstr("interleaved with 1 chunk is 1f1b"));
  EXPECT_THAT(ParallelError("chunks=2"), HasSubstr("gpipe runs one chunk per rank, not 2"));
}

TEST(UnitsTest, Bytes) {
  EXPECT_EQ(*ParseBytes("4GiB"), int64_t{4} << 30);
  EXPECT_EQ(*ParseBytes("1.5 kB"), 1500);
  EXPECT_EQ(*ParseBytes("12"), 12);
  for (const char* bad : {"", "GiB", "-1B", "1 XB", "1e3B", "9999999999TiB"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
  EXPECT_EQ(BytesToString(int64_t{3} << 20), "3MiB");
  EXPECT_EQ(BytesToString(1000), "1000B");
}

TEST(UnitsTest, BandwidthAndTimeNeedAUnit) {
  EXPECT_EQ(*ParseBandwidth("25Gbit/s"), 3.125e9);
  EXPECT_EQ(*ParseBandwidth("1 GiB/s"), 0x1p30);
  EXPECT_FALSE(ParseBandwidth("25").ok());
  EXPECT_EQ(*ParseSeconds("1.5ms"), 1.5e-3);
  EXPECT_FALSE(ParseSeconds("50").ok());
  // More digits than a double has room for.
  const std::string huge(400, '9');
  EXPECT_FALSE(ParseBandwidth(huge + "Gbit/s").ok());
  EXPECT_FALSE(ParseSeconds(huge + "s").ok());
  EXPECT_FALSE(ParseBytes(huge).ok());
}

TEST(UnitsTest, TextsReadBackExactly) {
  for (double value : {50e-6, 1e-9, 0.1, 1.0 / 3, 12345.678, 3.0}) {
    EXPECT_EQ(*ParseSeconds(SecondsToString(value)), value) << SecondsToString(value);
  }
  for (double value : {3.125e9, 1.0, 1e10 / 3, 0x1p30}) {
    EXPECT_EQ(*ParseBandwidth(BandwidthToString(value)), value) << BandwidthToString(value);
  }
}

}  // namespace
}  // namespace weft
