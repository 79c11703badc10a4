#include "distributed/testing/sum_job.h"

#include <utility>

#include "graph/graph_builder.h"

namespace weft::testing {
namespace {

class SampleSource final : public InputSource {
 public:
  absl::Status Fill(int64_t, const FeedInput&, int64_t first, int64_t count,
                    void* target) override {
    float* out = static_cast<float*>(target);
    for (int64_t i = 0; i < count * kSumJobWidth; ++i) {
      out[i] = static_cast<float>((first + i / kSumJobWidth + 1) * (i % kSumJobWidth + 1));
    }
    return absl::OkStatus();
  }
};

ValueType FloatType(const Shape& shape) { return {ValueKind::kTensor, DType::kFloat32, shape}; }

Graph MicroGraph() {
  Graph micro;
  const ValueId x = micro.AddInput("x", FloatType(Shape{1, kSumJobWidth}));
  GraphBuilder forward(micro);
  const ValueId twice = forward.WeftOp("Scale", {x, forward.Float(2)});
  forward.Name(twice, "grad");
  micro.AddOutput(twice);
  return micro;
}

Graph EndGraph(int ranks) {
  Graph end;
  const ValueId rate = end.AddInput("rate", FloatType(Shape{}), InputRole::kStep);
  const ValueId sum = end.AddInput("sum", FloatType(Shape{1, kSumJobWidth}));
  const ValueId w = end.AddVariable("w", FloatType(Shape{1, kSumJobWidth}), Tensor(), true);
  GraphBuilder update(end);
  update.set_phase(Phase::kUpdate);
  ValueId total = sum;
  if (ranks > 1) {
    std::vector<int64_t> group(ranks);
    for (int i = 0; i < ranks; ++i) group[i] = i;
    total = update.WeftOp("AllReduce", {sum},
                          {{"axis", std::string("data")},
                           {"group", group},
                           {"algorithm", std::string("ring")},
                           {"bucket", int64_t{0}}});
  }
  const ValueId loss =
      update.Op("Slice", {total, update.Ints({0}), update.Ints({1}), update.Ints({1})});
  update.Name(loss, "loss");
  const ValueId updated = update.WeftOp("SgdUpdate", {w, total, rate});
  end.AddOutput(loss);
  end.SetVariableUpdate("w", updated);
  return end;
}

}  // namespace

std::vector<Partition> SumJobPartitions(int ranks) {
  std::vector<Partition> partitions;
  for (int rank = 0; rank < ranks; ++rank) {
    Partition partition;
    partition.rank = RankId(rank);
    partition.mesh.data = ranks;
    partition.global_batch = partition.total_micro_batches = ranks;
    partition.inputs = {{"x", InputRole::kData, DType::kFloat32, Shape{kSumJobWidth}},
                        {"rate", InputRole::kStep, DType::kFloat32, Shape{}}};
    VariableShard w;
    w.name = "w";
    w.dtype = DType::kFloat32;
    w.global_shape = w.local_shape = Shape{1, kSumJobWidth};
    w.trainable = true;
    w.is_primary = rank == 0;
    partition.variables = {w};
    partition.micro.push_back(MicroGraph());
    partition.end = EndGraph(ranks);
    partition.guard = "loss";
    partition.reports = {"loss"};
    partition.accumulations = {{"grad", {{"sum", rank, rank + 1}}, false}};
    partition.micro_batches = {{rank, rank, 1, 0}};
    partition.actions = {
        {Action::Kind::kForward, 0}, {Action::Kind::kBackward, 0}, {Action::Kind::kUpdate, 0}};
    partitions.push_back(std::move(partition));
  }
  return partitions;
}

std::vector<Partition> CommittingSumJob(int ranks) {
  std::vector<Partition> partitions = SumJobPartitions(ranks);
  for (Partition& partition : partitions) partition.commits = true;
  return partitions;
}

Partition PartitionWithEveryField() {
  Partition partition = std::move(SumJobPartitions(2)[1]);
  partition.strict = true;
  partition.threads = 3;
  partition.mesh = {4, 2, 1};
  VariableShard& w = partition.variables[0];
  // Rows 4 to 7 are shard 1, of which part 3 of 4 is row 7.
  w.global_shape = Shape{8, 3};
  w.tensor_sharding = AxisSharding::Split(0, 1);
  w.tensor_shards = 2;
  w.tensor_index = 1;
  w.data_shards = 4;
  w.data_index = 3;
  w.slot_of = "other";
  Channel channel;
  channel.id = ChannelId(9);
  channel.from = RankId(1);
  channel.to = RankId(3);
  channel.value = "the \"größe\"\n";
  channel.dtype = DType::kBool;
  channel.shape = Shape();
  channel.per_micro_batch = false;
  partition.channels = {channel};
  return partition;
}

absl::StatusOr<std::unique_ptr<InputSource>> OpenSumJobInput(const std::string&) {
  return std::make_unique<SampleSource>();
}

}  // namespace weft::testing
