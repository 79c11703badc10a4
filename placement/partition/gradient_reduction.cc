#include "placement/partition/gradient_reduction.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/inference.h"
#include "placement/graph_views/graph_node_view.h"
#include "platform/status_macros.h"

namespace weft {

GradientReducer::GradientReducer(const StepLayout& layout, Mesh::Coordinate at,
                                 std::vector<MicroBatch> micro_batches)
    : layout_(layout), at_(at), micro_batches_(std::move(micro_batches)) {
  const bool is_tree = layout.plan->reduction == Reduction::kOrderedTree;
  if (!micro_batches_.empty()) {
    const int first = micro_batches_.front().index;
    const int last = micro_batches_.back().index + 1;
    blocks_ = is_tree ? AlignedBlocks(first, last, layout.split.total())
                      : std::vector<LeafRange>{{first, last}};
  }
  needs_all_reduce_ = layout.plan->mesh.data > 1 || blocks_.size() > 1;
}

absl::Status GradientReducer::AddTerms(LocalGraph& micro) {
  for (const std::vector<NodeId>* sums : {&layout_.first_sums, &layout_.later_sums}) {
    for (const NodeId sum : *sums) {
      if (IsHere(sum)) WEFT_RETURN_IF_ERROR(AddTerm(sum, micro));
    }
  }
  return absl::OkStatus();
}

namespace {

// Another size's shards may lie otherwise, so that the term there is what is converted here: the
// value as it was made gives its name away, unless that is what another sum reads.
void MakeRoomFor(const std::string& name, Graph& micro) {
  const std::optional<ValueId> taken = micro.FindValue(name);
  if (!taken.has_value()) return;
  const std::vector<ValueId>& outputs = micro.outputs();
  if (std::find(outputs.begin(), outputs.end(), *taken) != outputs.end()) return;
  micro.RenameValue(*taken, micro.UniqueValueName(absl::StrCat(name, "@shard")));
}

}  // namespace

absl::Status GradientReducer::AddTerm(NodeId sum, LocalGraph& micro) {
  // Ids differ between the micro-batch sizes' graphs; names do not.
  const Graph& global = micro.sized().graph;
  const std::optional<NodeId> found = global.FindNode(NodeOf(sum).name);
  if (!found.has_value()) {
    return absl::InternalError(absl::StrCat("node '", NodeOf(sum).name, "' is missing for ",
                                            micro.sized().samples, " samples"));
  }
  const ValueId input = global.node(*found).inputs[0];
  const NodeId producer = global.value(input).producer;
  const Phase phase = producer.valid() ? global.node(producer).phase : Phase::kForward;
  const AxisSharding& sharding = micro.sized().shardings.nodes[found->value].inputs[0];
  micro.set_stage(producer.valid() ? global.node(producer).stage : StageId(at_.pipeline));
  WEFT_ASSIGN_OR_RETURN(ValueId term, micro.Get(input, sharding, phase));
  const ValueDef& def = micro.graph().value(term);
  const std::string hint =
      def.source == ValueSource::kNode ? def.name : absl::StrCat(NodeOf(sum).name, "/term");
  const std::string& name = term_names_.try_emplace(sum, hint).first->second;
  if (def.source != ValueSource::kNode || def.name != name) {
    MakeRoomFor(name, micro.graph());
    Graph::NodeSpec spec;
    spec.name = name;
    spec.op = "Identity";
    spec.inputs = {term};
    spec.outputs = {name};
    spec.phase = phase;
    spec.stage = micro.stage();
    spec.origin = NodeOf(sum).origin;
    const NodeId copy = micro.graph().AddNode(std::move(spec));
    WEFT_RETURN_IF_ERROR(InferNode(micro.graph(), copy));
    term = micro.graph().node(copy).outputs[0];
    if (micro.graph().value(term).name != name) {
      return absl::InternalError(absl::StrCat("the name '", name, "' is taken in the graph of ",
                                              micro.sized().samples, " samples"));
    }
  }
  const std::vector<ValueId>& outputs = micro.graph().outputs();
  if (std::find(outputs.begin(), outputs.end(), term) == outputs.end()) {
    micro.graph().AddOutput(term);
  }
  return absl::OkStatus();
}

// Those of this place, as the rank has them; notes their ids.
std::vector<RankSum> GradientReducer::SumsOf(const std::vector<NodeId>& sums,
                                             const LocalGraph& end) {
  std::vector<RankSum> result;
  for (const NodeId sum : sums) {
    if (!IsHere(sum)) continue;
    const ValueId output = NodeOf(sum).outputs[0];
    const ValueType type = end.LocalType(output, end.ShardingOf(output));
    result.push_back({DTypeBytes(type.dtype, type.shape.ToConcrete()->num_elements()), type.dtype,
                      layout_.scattered_sums.contains(sum), layout_.report_sums.contains(sum)});
    sums_.push_back(sum);
  }
  return result;
}

void GradientReducer::GroupSumsOf(const LocalGraph& end) {
  const std::vector<RankSum> first = SumsOf(layout_.first_sums, end);
  const std::vector<RankSum> later = SumsOf(layout_.later_sums, end);
  groups_ = GroupSums(first, later, layout_.plan->bucket_bytes);
}

absl::Status GradientReducer::AddGroups(const std::vector<SumGroup>& groups, LocalGraph& end) {
  for (const SumGroup& group : groups) {
    std::vector<NodeId> sums;
    for (const int sum : group.sums) sums.push_back(sums_[sum]);
    WEFT_RETURN_IF_ERROR(group.is_scattered ? AddReduceScatter(sums.front(), end)
                                            : AddBucket(sums, end));
  }
  return absl::OkStatus();
}

// Inputs of the end graph for the rank's own blocks of one sum; zeros when it has none.
absl::StatusOr<std::vector<ValueId>> GradientReducer::AddBlocks(NodeId sum, LocalGraph& end) {
  const ValueId output = NodeOf(sum).outputs[0];
  const std::string& name = layout_.step().graph.value(output).name;
  const ValueType type = end.LocalType(output, end.ShardingOf(output));
  std::vector<ValueId> inputs;
  if (blocks_.empty()) {
    WEFT_ASSIGN_OR_RETURN(Tensor zeros, Tensor::Zeros(type.dtype, *type.shape.ToConcrete()));
    inputs.push_back(end.graph().AddConstant(absl::StrCat(name, "/zero"), std::move(zeros)));
    return inputs;
  }
  Accumulation accumulation;
  accumulation.micro_output = term_names_.at(sum);
  accumulation.ordered_tree = layout_.plan->reduction == Reduction::kOrderedTree;
  for (const LeafRange& block : blocks_) {
    const std::string hint =
        needs_all_reduce_ ? absl::StrCat(name, "/sum", block.first, "-", block.last) : name;
    const ValueId input = end.graph().AddInput(hint, type, InputRole::kStep);
    end.graph().value(input).origin = layout_.step().graph.value(output).origin;
    end.Place(input, output, end.ShardingOf(output));
    accumulation.blocks.push_back({end.graph().value(input).name, block.first, block.last});
    inputs.push_back(input);
  }
  accumulations_.push_back(std::move(accumulation));
  return inputs;
}

absl::Status GradientReducer::AddBucket(const std::vector<NodeId>& bucket, LocalGraph& end) {
  std::vector<ValueId> blocks;  // all of the first sum, then all of the second, ...
  for (const NodeId sum : bucket) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<ValueId> own, AddBlocks(sum, end));
    blocks.insert(blocks.end(), own.begin(), own.end());
  }
  if (needs_all_reduce_) {
    WEFT_RETURN_IF_ERROR(AddAllReduce(bucket, std::move(blocks), end));
  } else {
    for (size_t i = 0; i < bucket.size(); ++i) end.Bind(NodeOf(bucket[i]).outputs[0], blocks[i]);
  }
  for (const NodeId sum : bucket) {
    WEFT_RETURN_IF_ERROR(end.AddSends(NodeOf(sum).outputs[0], Phase::kUpdate));
  }
  return absl::OkStatus();
}

absl::Status GradientReducer::AddReduceScatter(NodeId sum, LocalGraph& end) {
  const ValueId output = NodeOf(sum).outputs[0];
  const ValueDef& global = layout_.step().graph.value(output);
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueId> own, AddBlocks(sum, end));
  ConversionSite site = end.Site(Phase::kUpdate, global.name, MeshAxis::kData);
  site.origin = global.origin;
  const Shape shape = *end.LocalType(output, end.ShardingOf(output)).shape.ToConcrete();
  WEFT_ASSIGN_OR_RETURN(
      const ValueId rows,
      ConvertSharding(site, {own[0], shape, AxisSharding::Partial()}, AxisSharding::Split(0)));
  end.graph().value(rows).origin = global.origin;
  end.BindRows(output, rows);
  return absl::OkStatus();
}

absl::Status GradientReducer::AddAllReduce(const std::vector<NodeId>& bucket,
                                           std::vector<ValueId> blocks, LocalGraph& end) {
  const Mesh& mesh = layout_.plan->mesh;
  const Graph& global = layout_.step().graph;
  const std::vector<RankId> ranks = mesh.Group(mesh.RankOf(at_), MeshAxis::kData);
  std::vector<int64_t> group;
  for (const RankId rank : ranks) group.push_back(rank.value);
  Graph::NodeSpec spec;
  spec.name =
      absl::StrCat("all_reduce/", std::string(MeshAxisName(MeshAxis::kData)), "/bucket", buckets_);
  spec.domain = std::string(kWeftDomain);
  spec.op = "AllReduce";
  spec.attributes.Set("axis", std::string(MeshAxisName(MeshAxis::kData)));
  spec.attributes.Set("group", group);
  spec.attributes.Set("bucket", int64_t{buckets_++});
  if (layout_.plan->reduction == Reduction::kOrderedTree) {
    const int64_t total = layout_.split.total();
    std::vector<int64_t> ranges;
    for (const LeafRange& block : blocks_) {
      ranges.push_back(block.first);
      ranges.push_back(block.last);
    }
    // A rank without micro-batches brings one empty block.
    if (ranges.empty()) {
      ranges.assign(2, layout_.plan->FirstMicroBatch(at_.data, layout_.split.total()));
    }
    spec.attributes.Set("algorithm", std::string("ordered_tree"));
    spec.attributes.Set("blocks", static_cast<int64_t>(ranges.size() / 2));
    spec.attributes.Set("block_ranges", std::move(ranges));
    spec.attributes.Set("total_blocks", total);
    if (!layout_.plan->shares.empty()) {
      std::vector<int64_t> begins;
      for (int replica = 0; replica < mesh.data; ++replica) {
        begins.push_back(layout_.plan->FirstMicroBatch(replica, layout_.split.total()));
      }
      spec.attributes.Set("member_begins", std::move(begins));
    }
  } else {
    spec.attributes.Set("algorithm", std::string("auto"));
    const std::vector<int64_t> hosts = layout_.plan->HostsOf(ranks);
    if (!hosts.empty()) spec.attributes.Set("hosts", hosts);
  }
  spec.inputs = std::move(blocks);
  for (const NodeId sum : bucket) spec.outputs.push_back(global.value(NodeOf(sum).outputs[0]).name);
  spec.phase = Phase::kUpdate;
  spec.stage = StageId(at_.pipeline);
  const NodeId node = end.graph().AddNode(std::move(spec));
  WEFT_RETURN_IF_ERROR(InferNode(end.graph(), node));
  for (size_t i = 0; i < bucket.size(); ++i) {
    const ValueId output = NodeOf(bucket[i]).outputs[0];
    const ValueId local = end.graph().node(node).outputs[i];
    end.graph().value(local).origin = global.value(output).origin;
    end.Place(local, output, end.ShardingOf(output));
    end.Bind(output, local);
  }
  return absl::OkStatus();
}

}  // namespace weft
