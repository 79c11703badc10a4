#include "onnx_import/device_annotations.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Two layers: up (by columns), down (by rows).
onnx::ModelProto TwoLayers() {
  return ModelOf(17,
                 "agraph (float[N,4] x) => (float[N,4] y) <float[4,6] up = {1,2,3,4,5,6,7,8,9,10,"
                 "11,12,13,14,15,16,17,18,19,20,21,22,23,24}, float[6,4] down = {1,2,3,4,5,6,7,8,9,"
                 "10,11,12,13,14,15,16,17,18,19,20,21,22,23,24}> {"
                 "  h = MatMul (x, up)"
                 "  r = Relu (h)"
                 "  y = MatMul (r, down) }");
}

void AddConfiguration(onnx::ModelProto& model, const std::string& name, int devices) {
  onnx::DeviceConfigurationProto& proto = *model.add_configuration();
  proto.set_name(name);
  proto.set_num_devices(devices);
  model.set_ir_version(11);
}

onnx::NodeDeviceConfigurationProto& Annotation(onnx::ModelProto& model, int node) {
  onnx::NodeProto& proto = *model.mutable_graph()->mutable_node(node);
  if (proto.device_configurations_size() > 0) return *proto.mutable_device_configurations(0);
  onnx::NodeDeviceConfigurationProto& added = *proto.add_device_configurations();
  added.set_configuration_id("hand");
  return added;
}

// `tensor` of `node`, `axis` cut into one shard for each device.
onnx::ShardingSpecProto& AddSpec(onnx::ModelProto& model, int node, const std::string& tensor,
                                 int64_t axis, const std::vector<int64_t>& devices) {
  onnx::ShardingSpecProto& spec = *Annotation(model, node).add_sharding_spec();
  spec.set_tensor_name(tensor);
  for (const int64_t device : devices) spec.add_device(device);
  onnx::ShardedDimProto& dim = *spec.add_sharded_dim();
  dim.set_axis(axis);
  dim.add_simple_sharding()->set_num_shards(static_cast<int64_t>(devices.size()));
  return spec;
}

// Layer `up` on devices 2 and 0, `down` on 1 and 3: two stages, each two-way tensor parallel.
onnx::ModelProto HandAnnotated() {
  onnx::ModelProto model = TwoLayers();
  AddConfiguration(model, "hand", 4);
  Annotation(model, 0).set_pipeline_stage(0);
  Annotation(model, 1).set_pipeline_stage(0);
  Annotation(model, 2).set_pipeline_stage(1);
  AddSpec(model, 0, "up", 1, {2, 0});
  AddSpec(model, 2, "down", -2, {1, 3});
  return model;
}

absl::StatusOr<Plan> PlanOf(const onnx::ModelProto& model, const std::string& name = "hand") {
  const auto imported = Import(model);
  if (!imported.ok()) return imported.status();
  return PlanOfConfiguration(*imported, name);
}

TEST(DeviceAnnotationsTest, StagesAndShardsMakeAPlan) {
  const auto plan = PlanOf(HandAnnotated());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->mesh.ToString(), "dp=1 x tp=2 x pp=2");
  EXPECT_THAT(plan->workers, ElementsAre(2, 0, 1, 3));
  EXPECT_THAT(plan->stages,
              UnorderedElementsAre(Pair("MatMul_0", 0), Pair("Relu_1", 0), Pair("MatMul_2", 1)));
  EXPECT_THAT(plan->tensor_shardings, UnorderedElementsAre(Pair("up", AxisSharding::Split(1)),
                                                           Pair("down", AxisSharding::Split(0))));
}

TEST(DeviceAnnotationsTest, AModelWithoutThemHasNone) {
  const auto imported = Import(TwoLayers());
  ASSERT_TRUE(imported.ok());
  EXPECT_THAT(DeviceConfigurationsOf(*imported), IsEmpty());
  EXPECT_THAT(std::string(PlanOf(TwoLayers()).status().message()),
              HasSubstr("has no device configuration 'hand'"));
}

TEST(DeviceAnnotationsTest, TheBatchAxisMakesReplicas) {
  onnx::ModelProto model = TwoLayers();
  AddConfiguration(model, "hand", 3);
  AddSpec(model, 0, "x", 0, {0, 1, 2});
  const auto plan = PlanOf(model);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->mesh.ToString(), "dp=3 x tp=1 x pp=1");
  EXPECT_THAT(plan->tensor_shardings, IsEmpty());
}

TEST(DeviceAnnotationsTest, FactorsOfAnAxisAreBlocks) {
  onnx::ModelProto model = TwoLayers();
  AddConfiguration(model, "hand", 2);
  onnx::ShardingSpecProto& spec = AddSpec(model, 0, "up", 1, {0, 1});
  onnx::ShardedDimProto& dim = *spec.mutable_sharded_dim(0);
  dim.clear_simple_sharding();
  dim.add_simple_sharding()->set_dim_value(3);
  dim.mutable_simple_sharding(0)->set_num_shards(1);
  dim.add_simple_sharding()->set_dim_value(2);
  dim.mutable_simple_sharding(1)->set_num_shards(2);
  const auto plan = PlanOf(model);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->tensor_shardings, ElementsAre(Pair("up", AxisSharding::Split(1, 3))));
}

// Replicas in groups; which of a group is which replica follows from the input's split.
TEST(DeviceAnnotationsTest, GroupsHoldCopies) {
  onnx::ModelProto model = TwoLayers();
  AddConfiguration(model, "hand", 4);
  const auto add_group = [](onnx::ShardingSpecProto& spec, int64_t key,
                            const std::vector<int64_t>& devices) {
    onnx::IntIntListEntryProto& group = *spec.add_index_to_device_group_map();
    group.set_key(key);
    for (const int64_t device : devices) group.add_value(device);
  };
  onnx::ShardingSpecProto& up = AddSpec(model, 0, "up", 1, {10, 11});
  add_group(up, 10, {3, 0});
  add_group(up, 11, {1, 2});
  onnx::ShardingSpecProto& x = AddSpec(model, 0, "x", 0, {20, 21});
  add_group(x, 20, {1, 3});
  add_group(x, 21, {0, 2});
  const auto plan = PlanOf(model);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->mesh.ToString(), "dp=2 x tp=2 x pp=1");
  // Replica 0 has the shards on 3 and 1, replica 1 on 0 and 2.
  EXPECT_THAT(plan->workers, ElementsAre(3, 1, 0, 2));
}

TEST(DeviceAnnotationsTest, WrongOnesAreRefusedByNodeAndAxis) {
  using Change = std::function<void(onnx::ModelProto&)>;
  const auto spec = [](onnx::ModelProto& model) -> onnx::ShardingSpecProto& {
    return *model.mutable_graph()
                ->mutable_node(0)
                ->mutable_device_configurations(0)
                ->mutable_sharding_spec(0);
  };
  const std::vector<std::pair<Change, std::vector<std::string>>> cases = {
      {[&](auto& m) { spec(m).set_tensor_name("down"); },
       {"node", "MatMul", "tensor 'down'", "must name an input or output"}},
      {[&](auto& m) { spec(m).mutable_sharded_dim(0)->set_axis(2); },
       {"MatMul", "'up'", "sharded axis 2 is outside [-2, 2)"}},
      {[&](auto& m) { *spec(m).add_sharded_dim() = spec(m).sharded_dim(0); },
       {"MatMul", "'up'", "axis 1 is sharded twice"}},
      {[&](auto& m) {
         spec(m).mutable_sharded_dim(0)->mutable_simple_sharding(0)->set_num_shards(0);
       },
       {"MatMul", "'up'", "axis 1 is to be cut into 0 shards"}},
      {[&](auto& m) {
         spec(m).mutable_sharded_dim(0)->mutable_simple_sharding(0)->set_num_shards(3);
       },
       {"MatMul", "'up'", "axis 1 make 3 shards, but there are 2 devices"}},
      {[&](auto& m) {
         spec(m).mutable_sharded_dim(0)->mutable_simple_sharding(0)->set_dim_value(8);
       },
       {"MatMul", "'up'", "axis 1 is sharded as one of 8 elements, but has 6"}},
      {[&](auto& m) {
         auto& axis = *spec(m).mutable_sharded_dim(0);
         axis.mutable_simple_sharding(0)->set_num_shards(1);
         axis.mutable_simple_sharding(0)->set_dim_value(int64_t{1} << 40);
         *axis.add_simple_sharding() = axis.simple_sharding(0);
       },
       {"MatMul", "'up'", "axis 1 is sharded as one of 1099511627777 elements, but has 6"}},
      {[&](auto& m) { spec(m).set_device(0, 4); },
       {"MatMul", "'up'", "device 4 is not one of the configuration's 4"}},
      {[&](auto& m) { spec(m).set_device(0, 0); }, {"MatMul", "'up'", "device 0 is named twice"}},
      {[&](auto& m) { Annotation(m, 0).set_pipeline_stage(-1); }, {"MatMul", "pipeline stage -1"}},
      {[&](auto& m) { Annotation(m, 0).set_configuration_id("other"); },
       {"MatMul", "'other', which the model does not have"}},
      {[&](auto& m) { m.mutable_configuration(0)->set_num_devices(6); },
       {"6 devices are not 2 pipeline stages of 1 replicas of 2 shards"}},
      {[&](auto& m) { m.mutable_configuration(0)->add_device("one"); },
       {"names 1 devices, but has 4"}},
      {[&](auto& m) {
         AddSpec(m, 0, "x", 1, {0, 2});
       },
       {"MatMul", "'x'", "axis 1 of an input of the model is split"}},
      {[&](auto& m) {
         AddSpec(m, 0, "h", 1, {0, 2});
         AddSpec(m, 1, "h", 0, {0, 2});
       },
       {"Relu", "'h'", "axis 1", "one way only"}},
      {[&](auto& m) {
         AddSpec(m, 1, "r", 1, {1, 3});
       },
       {"Relu", "'r'", "contradicts what other tensors of stage 0 say"}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    onnx::ModelProto model = HandAnnotated();
    cases[i].first(model);
    const auto plan = PlanOf(model);
    ASSERT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << plan.status();
    for (const std::string& text : cases[i].second) {
      EXPECT_THAT(std::string(plan.status().message()), HasSubstr(text));
    }
  }
}

Plan GivenPlan(Mesh mesh, std::vector<int> workers) {
  Plan plan;
  plan.mesh = mesh;
  plan.workers = std::move(workers);
  if (mesh.tensor > 1) {
    plan.tensor_shardings = {{"up", AxisSharding::Split(1, 3)}, {"down", AxisSharding::Split(0)}};
  }
  if (mesh.pipeline > 1) plan.stages = {{"MatMul_0", 0}, {"Relu_1", 1}, {"MatMul_2", 1}};
  return plan;
}

TEST(AnnotateModelTest, IsReadBackAsThePlanItWas) {
  const std::vector<Plan> plans = {GivenPlan({1, 2, 1}, {1, 0}), GivenPlan({2, 1, 1}, {0, 1}),
                                   GivenPlan({1, 1, 2}, {1, 0}),
                                   GivenPlan({2, 2, 2}, {7, 1, 4, 2, 0, 3, 6, 5})};
  for (const Plan& plan : plans) {
    SCOPED_TRACE(plan.mesh.ToString());
    const auto imported = Import(HandAnnotated());
    ASSERT_TRUE(imported.ok());
    std::vector<std::string> names;
    for (int i = 0; i < plan.mesh.size(); ++i) names.push_back(absl::StrCat("worker:", i));
    const auto bytes = AnnotateModel(*imported, plan, "weft", names, "the rest");
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    onnx::ModelProto proto;
    ASSERT_TRUE(proto.ParseFromString(*bytes));
    const auto read = PlanOf(proto, "weft");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->mesh, plan.mesh);
    EXPECT_EQ(read->stages, plan.stages);
    EXPECT_EQ(read->tensor_shardings, plan.tensor_shardings);
    // Without a split input or pipeline nothing says which device is which.
    EXPECT_EQ(read->workers, plan.mesh.pipeline == 2 && plan.mesh.size() == 2
                                 ? std::vector<int>({0, 1})
                                 : plan.workers);
    // What was there stays.
    EXPECT_TRUE(PlanOf(proto, "hand").ok());
  }
}

TEST(AnnotateModelTest, TakesTheNextFreeNumbersForTheWorkersInUse) {
  const auto imported = Import(TwoLayers());
  ASSERT_TRUE(imported.ok());
  const auto bytes = AnnotateModel(*imported, GivenPlan({1, 2, 1}, {3, 1}), "weft",
                                   {"a", "b", "c", "d"}, "the rest");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  onnx::ModelProto proto;
  ASSERT_TRUE(proto.ParseFromString(*bytes));
  EXPECT_THAT(proto.configuration(0).device(), ElementsAre("b", "d"));
  const auto read = PlanOf(proto, "weft");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->workers, ElementsAre(1, 0));
}

TEST(AnnotateModelTest, ReplacesWhatItWroteBefore) {
  const auto imported = Import(TwoLayers());
  ASSERT_TRUE(imported.ok());
  const auto once =
      AnnotateModel(*imported, GivenPlan({1, 2, 1}, {0, 1}), "weft", {"a", "b"}, "first");
  ASSERT_TRUE(once.ok()) << once.status();
  onnx::ModelProto proto;
  ASSERT_TRUE(proto.ParseFromString(*once));
  const auto again = Import(proto);
  ASSERT_TRUE(again.ok()) << again.status();
  const auto twice =
      AnnotateModel(*again, GivenPlan({1, 1, 2}, {0, 1}), "weft", {"a", "b"}, "second");
  ASSERT_TRUE(twice.ok()) << twice.status();
  onnx::ModelProto result;
  ASSERT_TRUE(result.ParseFromString(*twice));
  EXPECT_THAT(result.configuration(), SizeIs(1));
  ASSERT_THAT(result.metadata_props(), SizeIs(1));
  EXPECT_EQ(result.metadata_props(0).value(), "second");
  for (const onnx::NodeProto& node : result.graph().node()) {
    ASSERT_THAT(node.device_configurations(), SizeIs(1));
    EXPECT_THAT(node.device_configurations(0).sharding_spec(), IsEmpty());
  }
}

// Besides the annotations, the file is as it was.
TEST(AnnotateModelTest, ChangesNothingElse) {
  const onnx::ModelProto model = TwoLayers();
  const auto imported = Import(model);
  ASSERT_TRUE(imported.ok());
  const auto bytes = AnnotateModel(*imported, GivenPlan({2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7}),
                                   "weft", {"a", "b", "c", "d", "e", "f", "g", "h"}, "");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  onnx::ModelProto proto;
  ASSERT_TRUE(proto.ParseFromString(*bytes));
  EXPECT_EQ(proto.ir_version(), 11);
  proto.set_ir_version(model.ir_version());
  proto.clear_configuration();
  proto.clear_metadata_props();
  for (onnx::NodeProto& node : *proto.mutable_graph()->mutable_node()) {
    node.clear_device_configurations();
  }
  EXPECT_EQ(proto.SerializeAsString(), model.SerializeAsString());
}

TEST(AnnotateModelTest, RefusesWhatTheAnnotationsCannotSay) {
  const auto imported = Import(TwoLayers());
  ASSERT_TRUE(imported.ok());
  Plan plan = GivenPlan({1, 1, 2}, {0, 1});
  plan.chunks = 2;
  EXPECT_THAT(
      std::string(AnnotateModel(*imported, plan, "weft", {"a", "b"}, "").status().message()),
      AllOf(HasSubstr("2 pipeline stages"), HasSubstr("another schedule than interleaved")));
}

}  // namespace
}  // namespace weft::testing
