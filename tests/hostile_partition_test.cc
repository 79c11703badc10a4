// A worker takes partitions from other processes: no field of one may crash it or take its memory.
//
// Every number, name and switch of partitions of several plans is changed to values that make no
// sense. Each change is refused with a law of graph/schedule/partition_verifier.h, or the changed
// partition compiles and runs.
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/grpc/partition.pb.h"
#include "distributed/grpc/partition_wire.h"
#include "executor/program/compile_step.h"
#include "executor/program/step_program.h"
#include "executor/variables/variable_store.h"
#include "gmock/gmock.h"
#include "graph/cluster_spec.h"
#include "graph/schedule/partition_verifier.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "placement/completion/plan_completion.h"
#include "placement/files/plan_file.h"
#include "placement/partition/partitioner.h"
#include "platform/clock.h"
#include "tensor/cpu_device.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/random_plan.h"
#include "training/graph/training_graph.h"

namespace weft::testing {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kBatch = 6;
constexpr int64_t kMaxRunBytes = int64_t{64} << 20;

std::vector<Partition> PartitionsOf(const Graph& graph, const Plan& plan, int64_t batch) {
  const ClusterSpec cluster = ClusterSpec::Local(plan.mesh.size(), 1);
  const auto complete = CompletePlan(graph, cluster, plan, batch);
  EXPECT_TRUE(complete.ok()) << complete.status();
  auto partitions = PartitionStep(graph, *complete, {true, batch}, CpuNodeEvaluator());
  EXPECT_TRUE(partitions.ok()) << partitions.status();
  return *std::move(partitions);
}

Graph TrainingGraphOf(const std::string& model, const std::string& optimizer) {
  const auto built = BuildEquivalenceModel(model, 1);
  EXPECT_TRUE(built.ok()) << built.status();
  TrainingSpec spec;
  spec.optimizer.kind = optimizer;
  spec.clip_norm = 1;
  auto graph = BuildTrainingGraph(built->graph, spec);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

// -- What the laws let pass.

class LawfulPlans : public ::testing::TestWithParam<int> {};

TEST_P(LawfulPlans, KeepTheLawsOnEveryRankAndComeBackAsTheyWere) {
  const int seed = GetParam();
  const std::vector<std::string> names = EquivalenceModelNames();
  const std::string& name = names[seed % names.size()];
  const auto model = BuildEquivalenceModel(name, 1);
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph graph = TrainingGraphOf(name, seed % 2 == 0 ? "adam" : "momentum");
  const Plan plan = RandomPlan(model->graph, seed);
  for (const int64_t batch : {int64_t{13}, int64_t{5}}) {
    for (const Partition& partition : PartitionsOf(graph, plan, batch)) {
      const absl::Status status = VerifyPartition(partition);
      ASSERT_TRUE(status.ok()) << name << ": " << status << "\n" << PlanToYaml(plan);
      const std::string bytes = EncodePartition(partition).value();
      const auto decoded = DecodePartition(bytes);
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      // Reading numbers the values anew, once (onnx_import/graph_wire.h).
      const std::string numbered = EncodePartition(*decoded).value();
      EXPECT_EQ(EncodePartition(DecodePartition(numbered).value()).value(), numbered);
      EXPECT_EQ(decoded->micro.size(), partition.micro.size());
      for (size_t i = 0; i < partition.micro.size(); ++i) {
        EXPECT_EQ(decoded->micro[i].DebugString(), partition.micro[i].DebugString());
      }
      EXPECT_EQ(decoded->end.DebugString(), partition.end.DebugString());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, LawfulPlans, ::testing::Range(0, 24));

// -- Each law, broken by hand.

class BrokenLaw : public ::testing::Test {
 protected:
  Partition Make(const std::string& parallel, int rank) {
    return std::move(
        PartitionsOf(graph_, ParseParallel(parallel).value(), kBatch)[static_cast<size_t>(rank)]);
  }
  std::string Text(const Partition& partition) {
    const absl::Status status = VerifyPartition(partition);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
  // An AllReduce that has no operands.
  static Graph::NodeSpec SumOfNothing() {
    Graph::NodeSpec sum;
    sum.name = "sum_of_nothing";
    sum.domain = std::string(kWeftDomain);
    sum.op = "AllReduce";
    sum.attributes.Set("axis", std::string("data"));
    sum.attributes.Set("group", std::vector<int64_t>{0, 1});
    sum.attributes.Set("algorithm", std::string("ring"));
    return sum;
  }
  const Graph graph_ = TrainingGraphOf("mlp", "momentum");
};

TEST_F(BrokenLaw, OfNumbers) {
  Partition partition = Make("micro=2", 0);
  partition.threads = 0;  // was a division by zero
  EXPECT_EQ(Text(partition), "law 1: 0 threads; expected 1 to 4096");
  partition.threads = std::numeric_limits<int>::max();  // was the end of the process by OpenMP
  EXPECT_THAT(Text(partition), StartsWith("law 1: 2147483647 threads"));
}

TEST_F(BrokenLaw, OfMicroBatches) {
  Partition partition = Make("micro=2", 0);
  partition.micro_batches[1].first = 5;
  EXPECT_EQ(Text(partition), "law 2: micro-batch 1 has 3 samples from 5 on of a batch of 6");
  partition.micro_batches[1].first = 3;
  partition.micro_batches[1].samples = 2;
  EXPECT_EQ(Text(partition), "law 2: micro-batch 1 has 2 samples; its graph is for 3");
}

// A kernel wrote past the end of a variable that the graph said was larger.
TEST_F(BrokenLaw, OfVariables) {
  Partition partition = Make("dp=2,zero=1", 0);
  VariableShard& shard = partition.variables[0];
  const Shape own = shard.local_shape;
  shard.local_shape = Shape{1};
  EXPECT_THAT(Text(partition), HasSubstr("has shape [1], expected"));
  shard.local_shape = shard.global_shape = Shape{1};
  shard.data_shards = 1;
  shard.data_index = 0;
  EXPECT_THAT(Text(partition), StartsWith("law 4: graph "));
  EXPECT_THAT(Text(partition), HasSubstr("on this rank it is float32[1]"));
}

TEST_F(BrokenLaw, OfFeeds) {
  Partition partition = Make("micro=2", 0);
  for (FeedInput& feed : partition.inputs) {
    if (feed.role == InputRole::kData && feed.sample_shape.rank() == 1) {
      feed.sample_shape = Shape{1000};
    }
  }
  EXPECT_THAT(Text(partition), HasSubstr("but each of 3 samples is float32[1000]"));
}

TEST_F(BrokenLaw, OfSums) {
  Partition partition = Make("dp=2,micro=4", 1);
  Accumulation::Block& block = partition.accumulations[0].blocks[0];
  block.first = 0;  // the other rank's
  EXPECT_THAT(Text(partition), HasSubstr("is over the micro-batches 0 to 4, which are not all of"));
  block.first = 2;
  partition.accumulations.front().micro_output = partition.accumulations.back().micro_output;
  EXPECT_THAT(Text(partition), StartsWith("law 6: the sum '"));
}

TEST_F(BrokenLaw, OfActions) {
  Partition partition = Make("micro=2", 0);
  partition.actions.insert(partition.actions.begin() + 1, partition.actions[1]);
  EXPECT_THAT(Text(partition), HasSubstr("comes twice"));
}

// Where no sum needs it, the rest of the batch trained without it.
TEST_F(BrokenLaw, OfActionsThatAreMissing) {
  Partition partition = Make("micro=2", 0);
  std::erase_if(partition.actions, [](const Action& action) { return action.micro_batch == 1; });
  EXPECT_EQ(Text(partition), "law 7: no action is the forward pass of micro-batch 1");
}

// What was sent was as long as the channel, not as the value: memory behind it left the machine.
TEST_F(BrokenLaw, OfChannels) {
  Partition partition = Make("pp=2,micro=2", 0);
  partition.channels[0].shape = Shape{1 << 20};
  EXPECT_THAT(Text(partition), HasSubstr("on channel 0 of float32[1048576] from rank 0 to 1"));
  partition.channels[0].from = RankId(1);
  partition.channels[0].to = RankId(1);
  EXPECT_THAT(Text(partition), HasSubstr("goes from rank 1 to 1 of 2; this is rank 0"));
}

TEST_F(BrokenLaw, OfCollectives) {
  Partition partition = Make("dp=2", 0);
  for (const NodeId id : partition.end.node_ids()) {
    Node& node = partition.end.node(id);
    if (node.op == "AllReduce") node.attributes.Set("group", std::vector<int64_t>{0, 7});
  }
  EXPECT_THAT(Text(partition), HasSubstr("its group has rank 7 of 2"));
}

// To double the size of a block went beyond an int, to zero, by which it then divided.
TEST_F(BrokenLaw, OfOrderedTrees) {
  Partition partition = Make("dp=2", 0);
  for (const NodeId id : partition.end.node_ids()) {
    Node& node = partition.end.node(id);
    if (node.op != "AllReduce") continue;
    node.attributes.Set("algorithm", std::string("ordered_tree"));
    node.attributes.Set("block_ranges", std::vector<int64_t>{0, 1});
    node.attributes.Set("total_blocks", int64_t{std::numeric_limits<int>::max()});
    node.attributes.Set("member_begins", std::vector<int64_t>{0, 2147483647});
  }
  EXPECT_THAT(Text(partition), HasSubstr("attribute total_blocks is 2147483647; it must be 0 to "));
}

// The shard was measured by the attribute "index" and copied by the place in the group: what lay
// behind it in memory was sent.
TEST_F(BrokenLaw, OfShards) {
  Partition partition = Make("dp=2,zero=3", 0);
  std::vector<Graph*> graphs = {&partition.begin, &partition.end};
  for (Graph& micro : partition.micro) graphs.push_back(&micro);
  for (Graph* const graph : graphs) {
    for (const NodeId id : graph->node_ids()) {
      Node& node = graph->node(id);
      const std::vector<int64_t> sizes = node.attributes.Ints("sizes");
      if (node.op != "AllGather" || sizes[0] == sizes[1]) continue;
      node.attributes.Set("group", std::vector<int64_t>{1, 0});
    }
  }
  EXPECT_THAT(Text(partition), HasSubstr("; member 1 of its group has "));
}

// No shape function was asked about a node with a value of no element type, so its attributes could
// be anything: the dimension of a gather was looked up beyond its shape.
TEST_F(BrokenLaw, OfElementTypes) {
  Partition partition = Make("dp=2", 0);
  for (const NodeId id : partition.end.node_ids()) {
    const Node& node = partition.end.node(id);
    if (node.op == "AllReduce") partition.end.value(node.outputs[0]).type.dtype = DType::kInvalid;
  }
  EXPECT_THAT(Text(partition), HasSubstr("; expected an element type and a shape of at most"));
}

// The first output was read of nodes that had none.
TEST_F(BrokenLaw, OfOutputsThatAreLeftOut) {
  Partition partition = Make("pp=2,micro=2", 1);
  Graph::NodeSpec receive;
  receive.name = "deaf";
  receive.domain = std::string(kWeftDomain);
  receive.op = "Recv";
  const Channel& channel = partition.channels[0];
  receive.attributes.Set("channel", int64_t{channel.id.value});
  receive.attributes.Set("dtype", static_cast<int64_t>(channel.dtype));
  receive.attributes.Set("shape", std::vector<int64_t>{1});
  receive.outputs = {""};
  receive.keep_empty_outputs = true;
  partition.micro[0].AddNode(std::move(receive));
  EXPECT_THAT(Text(partition), HasSubstr("an output is left out (graph micro 0)"));

  partition = Make("dp=2", 0);
  partition.end.AddNode(SumOfNothing());
  EXPECT_THAT(Text(partition), HasSubstr("an output is left out (graph end)"));
}

// The laws of a collective are not asked of the graphs that a node has for attributes.
TEST_F(BrokenLaw, OfCommunicationInBodies) {
  Partition partition = Make("dp=2", 0);
  auto body = std::make_shared<Graph>();
  body->AddNode(SumOfNothing());
  Graph::NodeSpec outer;
  outer.name = "outer";
  outer.domain = "elsewhere";
  outer.op = "Choose";
  outer.attributes.Set("body", body);
  partition.end.AddNode(std::move(outer));
  EXPECT_THAT(Text(partition), HasSubstr("node 'sum_of_nothing' (ai.weft::AllReduce) stands in a "
                                         "body of node 'outer' (elsewhere::Choose) (graph end)"));
}

TEST_F(BrokenLaw, OfTheGuard) {
  Partition partition = Make("micro=2", 0);
  partition.guard = "nothing";  // was a null pointer
  EXPECT_THAT(Text(partition), HasSubstr("the guard 'nothing' is no value of the end graph"));
}

// -- Every field of the message.

class NoPeers final : public Communicator {
 public:
  absl::StatusOr<ChannelHandle> OpenChannel(const Channel&) override { return next_++; }
  absl::StatusOr<CollectiveHandle> OpenCollective(const CollectiveSpec&) override {
    return next_++;
  }
  absl::Status Send(ChannelHandle, MessageKey, const void*) override { return NotHere(); }
  absl::Status WaitSent(ChannelHandle) override { return NotHere(); }
  absl::Status Receive(ChannelHandle, MessageKey, void*) override { return NotHere(); }
  absl::Status RunCollective(CollectiveHandle, MessageKey, void* const*) override {
    return NotHere();
  }
  void Abort(const absl::Status&) override {}
  RankId rank() const override { return RankId(0); }

 private:
  static absl::Status NotHere() { return absl::UnavailableError("there are no peers here"); }
  int next_ = 0;
};

// Writes as many bytes as the rows of a data set would have.
class ZeroData final : public InputSource {
 public:
  absl::Status Fill(int64_t, const FeedInput& input, int64_t, int64_t count,
                    void* target) override {
    std::memset(
        target, 0,
        static_cast<size_t>(DTypeBytes(input.dtype, count * input.sample_shape.num_elements())));
    return absl::OkStatus();
  }
};

// As a worker does: nothing is allocated before it is known to fit.
absl::Status CompileAndRun(const Partition& partition) {
  const std::unique_ptr<Device> device = NewCpuDevice({});
  VariableStore variables(*device);
  const absl::Status added = variables.Add(partition.variables);
  if (!added.ok()) return added;
  NoPeers peers;
  ZeroData data;
  const auto program =
      CompileStep(partition, {device.get(), &variables, &peers, &data, &RealClock(), nullptr});
  if (!program.ok()) return program.status();
  const int64_t bytes = variables.bytes() + (*program)->memory().arena_bytes;
  if (bytes > kMaxRunBytes) return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes"));
  const absl::Status prepared = (*program)->Prepare();
  if (!prepared.ok()) return prepared;
  StepOptions options;
  for (const FeedInput& feed : partition.inputs) {
    if (feed.role == InputRole::kStep) options.scalars[feed.name] = 1;
  }
  StepResult result;
  return (*program)->RunInto(options, result);
}

struct Plot {
  std::string name;
  std::string parallel;
  int rank = 0;
};

void PrintTo(const Plot& plot, std::ostream* out) { *out << plot.name; }

class HostileFields : public ::testing::TestWithParam<Plot> {
 protected:
  void SetUp() override {
    const Graph graph = TrainingGraphOf("mlp", "momentum");
    const Plan plan = ParseParallel(GetParam().parallel).value();
    std::vector<Partition> partitions = PartitionsOf(graph, plan, kBatch);
    bytes_ = EncodePartition(partitions[static_cast<size_t>(GetParam().rank)]).value();
    ASSERT_TRUE(whole_.ParseFromString(bytes_));
  }

  // Sends the message as it is now.
  void Try(const std::string& what) {
    ++tried_;
    if (std::getenv("WEFT_SHOW_FIELDS") != nullptr) std::cerr << what << "\n";
    const auto partition = DecodePartition(whole_.SerializeAsString());
    if (!partition.ok()) {
      ++refused_;
      EXPECT_THAT(std::string(partition.status().message()),
                  StartsWith("partition cannot be decoded: "))
          << what;
      return;
    }
    const absl::Status status = CompileAndRun(*partition);
    if (status.ok()) ++ran_;
    EXPECT_NE(status.code(), absl::StatusCode::kUnknown) << what << ": " << status;
  }

  // Changes each field of the message, which is part of `whole_`, and puts it back.
  void ChangeFields(Message& message, const std::string& path) {
    const Reflection& reflection = *message.GetReflection();
    const auto* const descriptor = message.GetDescriptor();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor& field = *descriptor->field(i);
      const std::string name = absl::StrCat(path, field.name());
      if (!field.is_repeated()) {
        ChangeField(message, field, name);
        continue;
      }
      // The first, one in the middle and the last: of many variables they are alike.
      const int size = reflection.FieldSize(message, &field);
      for (const int index : std::set<int>{0, size / 2, size - 1}) {
        if (index < 0 || index >= size) continue;
        ChangeElement(message, field, index, absl::StrCat(name, "[", index, "]"));
      }
    }
  }

  void ChangeField(Message& message, const FieldDescriptor& field, const std::string& name) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        const int32_t old = reflection.GetInt32(message, &field);
        for (const int32_t value : ValuesFor<int32_t>(old)) {
          reflection.SetInt32(&message, &field, value);
          Try(absl::StrCat(name, " = ", value));
        }
        return reflection.SetInt32(&message, &field, old);
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        const int64_t old = reflection.GetInt64(message, &field);
        for (const int64_t value : ValuesFor<int64_t>(old)) {
          reflection.SetInt64(&message, &field, value);
          Try(absl::StrCat(name, " = ", value));
        }
        return reflection.SetInt64(&message, &field, old);
      }
      case FieldDescriptor::CPPTYPE_ENUM: {  // messages carry any number
        const int old = reflection.GetEnumValue(message, &field);
        for (const int value : ValuesFor<int32_t>(old)) {
          reflection.SetEnumValue(&message, &field, value);
          Try(absl::StrCat(name, " = ", value));
        }
        return reflection.SetEnumValue(&message, &field, old);
      }
      case FieldDescriptor::CPPTYPE_BOOL: {
        const bool old = reflection.GetBool(message, &field);
        reflection.SetBool(&message, &field, !old);
        Try(absl::StrCat(name, " = ", !old));
        return reflection.SetBool(&message, &field, old);
      }
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string old = reflection.GetString(message, &field);
        for (const std::string value : {"", "x"}) {
          reflection.SetString(&message, &field, value);
          Try(absl::StrCat(name, " = '", value, "'"));
        }
        return reflection.SetString(&message, &field, old);
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return ChangeFields(*reflection.MutableMessage(&message, &field), absl::StrCat(name, "."));
      default:
        FAIL() << name << " has a type that this test does not know";
    }
  }

  void ChangeElement(Message& message, const FieldDescriptor& field, int index,
                     const std::string& name) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64: {
        const int64_t old = reflection.GetRepeatedInt64(message, &field, index);
        for (const int64_t value : ValuesFor<int64_t>(old)) {
          reflection.SetRepeatedInt64(&message, &field, index, value);
          Try(absl::StrCat(name, " = ", value));
        }
        return reflection.SetRepeatedInt64(&message, &field, index, old);
      }
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string old = reflection.GetRepeatedString(message, &field, index);
        for (const std::string value : {"", "x"}) {
          reflection.SetRepeatedString(&message, &field, index, value);
          Try(absl::StrCat(name, " = '", value, "'"));
        }
        return reflection.SetRepeatedString(&message, &field, index, old);
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return ChangeFields(*reflection.MutableRepeatedMessage(&message, &field, index),
                            absl::StrCat(name, "."));
      default:
        FAIL() << name << " has a type that this test does not know";
    }
  }

  template <typename Number>
  static std::set<Number> ValuesFor(Number old) {
    constexpr Number kMax = std::numeric_limits<Number>::max();
    std::set<Number> values = {-1,
                               0,
                               1,
                               1 << 20,
                               kMax,
                               std::numeric_limits<Number>::min(),
                               static_cast<Number>(std::numeric_limits<int32_t>::max())};
    if (old < kMax) values.insert(old + 1);
    values.erase(old);
    return values;
  }

  std::string bytes_;
  rpc::PartitionProto whole_;
  int tried_ = 0;
  int refused_ = 0;
  int ran_ = 0;
};

int64_t PeakBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

TEST_P(HostileFields, AreRefusedOrRun) {
  Try("as it is");
  EXPECT_EQ(refused_, 0);
  const int64_t before = PeakBytes();
  ChangeFields(whole_, "");
  EXPECT_EQ(whole_.SerializeAsString(), bytes_);
  EXPECT_GT(tried_, 400);
  EXPECT_GT(refused_, tried_ / 2);
  EXPECT_LT(PeakBytes() - before, int64_t{512} << 20);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, HostileFields,
    ::testing::Values(Plot{"Alone", "micro=3", 0}, Plot{"Data", "dp=2,micro=4", 1},
                      Plot{"Pipeline", "pp=2,micro=3,schedule=1f1b", 0},
                      Plot{"Interleaved", "pp=2,chunks=2,micro=4,schedule=interleaved", 1},
                      Plot{"Zero3", "dp=2,zero=3,micro=2", 1}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
