#include "executor/lowering/testing/hand_made_partition.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace weft::testing {

ValueType FloatType(const Shape& shape) { return {ValueKind::kTensor, DType::kFloat32, shape}; }

Partition NewPartition(int micro_batches, const Build& build_micro) {
  Partition partition;
  partition.rank = RankId(0);
  partition.global_batch = partition.total_micro_batches = micro_batches;
  partition.inputs = {{"x", InputRole::kData, DType::kFloat32, Shape{2}}};
  Graph micro;
  micro.AddInput("x", FloatType({1, 2}));
  GraphBuilder builder(micro);
  build_micro(builder);
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  partition.micro.push_back(std::move(micro));
  for (int i = 0; i < micro_batches; ++i) {
    partition.micro_batches.push_back({i, i, 1, 0});
    partition.actions.push_back({Action::Kind::kForward, i});
    partition.actions.push_back({Action::Kind::kBackward, i});
  }
  partition.actions.push_back({Action::Kind::kUpdate, 0});
  return partition;
}

void AddSum(Partition& partition, const std::string& output, const std::string& name, int first,
            int last, bool ordered_tree) {
  partition.end.AddInput(name, FloatType({1, 2}));
  partition.accumulations.push_back({output, {{name, first, last}}, ordered_tree});
}

void ReportSums(Partition& partition) {
  GraphBuilder builder(partition.end);
  builder.set_phase(Phase::kUpdate);
  for (ValueId input : std::vector<ValueId>(partition.end.inputs())) {
    const ValueId got = builder.WeftOp("Scale", {input, builder.Float(1)});
    builder.Name(got, "got_" + partition.end.value(input).name);
    partition.end.AddOutput(got);
    partition.reports.push_back(partition.end.value(got).name);
  }
  EXPECT_TRUE(builder.status().ok()) << builder.status();
}

ValueId Find(GraphBuilder& builder, const std::string& name) {
  return *builder.graph().FindValue(name);
}

void Scaled(GraphBuilder& builder, const std::string& name, const std::string& from, float factor) {
  const ValueId scaled = builder.WeftOp("Scale", {Find(builder, from), builder.Float(factor)});
  builder.Name(scaled, name);
}

void AddSend(GraphBuilder& builder, const std::string& value, int64_t channel) {
  builder.Ops(std::string(kWeftDomain), "Send", {Find(builder, value)}, {{"channel", channel}}, {});
}

Channel ChannelOf(int32_t id, const std::string& value) {
  return {ChannelId(id), RankId(0), RankId(1), value, DType::kFloat32, Shape{1, 2}, true};
}

}  // namespace weft::testing
