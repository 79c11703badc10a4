#include "graph/schedule/partition_verifier.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/node_bodies.h"
#include "graph/node_class.h"
#include "graph/node_description.h"
#include "graph/schedule/action_kind.h"
#include "graph/schedule/action_list.h"
#include "graph/schedule/collective_steps.h"
#include "graph/schedule/node_collective.h"
#include "graph/verifier.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int kMaxRanks = 1 << 20;
constexpr int kMaxThreads = 4096;
constexpr int64_t kMaxBatch = int64_t{1} << 40;
constexpr int kMaxMicroBatches = 1 << 20;
constexpr int kMaxChunks = 1 << 16;
// A value with more elements than this has no place in any machine, and its bytes still fit.
constexpr int64_t kMaxElements = int64_t{1} << 48;
constexpr int64_t kMaxStepInputBytes = int64_t{1} << 20;
constexpr double kMaxBytes = static_cast<double>(int64_t{1} << 60);

template <typename... Parts>
absl::Status Broken(int law, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("law ", law, ": ", parts...));
}

std::string TypeText(DType dtype, const Shape& shape) {
  return ValueType{ValueKind::kTensor, dtype, shape}.ToString();
}

// A node that communicates, in a body of this one or deeper; null when there is none.
const Node* CommunicationInBodies(const Node& node) {
  for (const NodeBody& body : BodiesOf(node)) {
    for (const NodeId id : body.graph->node_ids()) {
      const Node& inner = body.graph->node(id);
      if (IsCommunication(inner)) return &inner;
      if (const Node* const found = CommunicationInBodies(inner)) return found;
    }
  }
  return nullptr;
}

class PartitionVerifier {
 public:
  explicit PartitionVerifier(const Partition& partition) : partition_(partition) {}

  // In an order in which each may rely on those before.
  absl::Status Run() {
    WEFT_RETURN_IF_ERROR(CheckNumbers());
    WEFT_RETURN_IF_ERROR(CheckMicroBatches());
    WEFT_RETURN_IF_ERROR(CheckVariables());
    WEFT_RETURN_IF_ERROR(CheckChannelList());
    for (const auto& [name, graph] : Graphs()) WEFT_RETURN_IF_ERROR(CheckGraph(name, *graph));
    WEFT_RETURN_IF_ERROR(CheckMemory());
    WEFT_RETURN_IF_ERROR(CheckFeeds());
    WEFT_RETURN_IF_ERROR(CheckSums());
    for (const auto& [name, graph] : Graphs()) {
      WEFT_RETURN_IF_ERROR(CheckInputs(name, *graph));
      WEFT_RETURN_IF_ERROR(CheckCommunication(name, *graph));
    }
    WEFT_RETURN_IF_ERROR(CheckActions());
    return CheckEndValues();
  }

 private:
  std::vector<std::pair<std::string, const Graph*>> Graphs() const;
  absl::Status CheckNumbers() const;  // 1
  absl::Status CheckMicroBatches();   // 2
  absl::Status CheckVariables();      // 3
  absl::Status CheckShard(const VariableShard& shard) const;
  absl::Status CheckGraph(const std::string& name, const Graph& graph);  // 4
  absl::Status CheckFeeds();                                             // 5
  absl::Status CheckInputs(const std::string& name, const Graph& graph) const;
  absl::Status CheckFed(const std::string& name, const Graph& graph, const ValueDef& value) const;
  absl::Status CheckSums();  // 6
  absl::Status CheckBlock(const Accumulation& sum, const Accumulation::Block& block);
  absl::Status CheckActions() const;  // 7
  absl::Status CheckChannelList();    // 8
  absl::Status CheckCommunication(const std::string& name, const Graph& graph) const;
  absl::Status CheckOperands(const Graph& graph, const Node& node) const;
  absl::Status CheckTransfer(const Graph& graph, const Node& node) const;
  absl::Status CheckCollective(const Graph& graph, const Node& node) const;  // 9
  absl::Status CheckMembers(const Node& node) const;
  absl::Status CheckTerms(const Graph& graph, const Node& node) const;
  absl::Status CheckOwnShard(const Graph& graph, const Node& node, int member) const;
  absl::Status CheckBuffers(const Graph& graph, const Node& node,
                            const CollectiveSchedule& schedule) const;
  absl::Status CheckEndValues() const;  // 10
  absl::Status CheckMemory() const;     // 11

  const Partition& partition_;
  std::map<std::string, const VariableShard*> variables_;
  std::map<std::string, const FeedInput*> feeds_;
  std::map<std::string, const ValueType*> begin_outputs_;
  std::map<int64_t, const Channel*> channels_;
  std::set<std::string> sums_;               // inputs of the end graph
  std::map<const Graph*, int64_t> samples_;  // of micro graphs that are used
};

std::vector<std::pair<std::string, const Graph*>> PartitionVerifier::Graphs() const {
  std::vector<std::pair<std::string, const Graph*>> graphs = {{"begin", &partition_.begin}};
  for (size_t i = 0; i < partition_.micro.size(); ++i) {
    graphs.emplace_back(absl::StrCat("micro ", i), &partition_.micro[i]);
  }
  graphs.emplace_back("end", &partition_.end);
  return graphs;
}

absl::Status PartitionVerifier::CheckNumbers() const {
  const Mesh& mesh = partition_.mesh;
  if (mesh.data < 1 || mesh.tensor < 1 || mesh.pipeline < 1 || mesh.data > kMaxRanks ||
      mesh.tensor > kMaxRanks / mesh.data ||
      mesh.pipeline > kMaxRanks / (mesh.data * mesh.tensor) || partition_.rank.value < 0 ||
      partition_.rank.value >= mesh.size()) {
    return Broken(1, "rank ", partition_.rank.value, " of a mesh of ", mesh.data, " x ",
                  mesh.tensor, " x ", mesh.pipeline);
  }
  if (partition_.threads < 1 || partition_.threads > kMaxThreads) {
    return Broken(1, partition_.threads, " threads; expected 1 to ", kMaxThreads);
  }
  if (partition_.global_batch < 0 || partition_.global_batch > kMaxBatch ||
      partition_.total_micro_batches < 0 || partition_.total_micro_batches > kMaxMicroBatches) {
    return Broken(1, "a batch of ", partition_.global_batch, " samples in ",
                  partition_.total_micro_batches, " micro-batches; expected 0 to ", kMaxBatch,
                  " in 0 to ", kMaxMicroBatches);
  }
  return absl::OkStatus();
}

absl::Status PartitionVerifier::CheckMicroBatches() {
  int last = -1;
  for (const MicroBatch& batch : partition_.micro_batches) {
    if (batch.graph < 0 || batch.graph >= static_cast<int>(partition_.micro.size())) {
      return Broken(2, "micro-batch ", batch.index, " uses graph ", batch.graph, " of ",
                    partition_.micro.size());
    }
    if (batch.index <= last || batch.index >= partition_.total_micro_batches) {
      return Broken(2, "micro-batch ", batch.index, " comes after ", last, " of ",
                    partition_.total_micro_batches);
    }
    last = batch.index;
    if (batch.first < 0 || batch.samples < 0 || batch.samples > partition_.global_batch ||
        batch.first > partition_.global_batch - batch.samples) {
      return Broken(2, "micro-batch ", batch.index, " has ", batch.samples, " samples from ",
                    batch.first, " on of a batch of ", partition_.global_batch);
    }
    const auto [known, added] = samples_.emplace(&partition_.micro[batch.graph], batch.samples);
    if (!added && known->second != batch.samples) {
      return Broken(2, "micro-batch ", batch.index, " has ", batch.samples,
                    " samples; its graph is for ", known->second);
    }
  }
  return absl::OkStatus();
}

absl::Status PartitionVerifier::CheckShard(const VariableShard& shard) const {
  const Mesh& mesh = partition_.mesh;
  if (shard.tensor_shards < 1 || shard.tensor_shards > mesh.tensor || shard.tensor_index < 0 ||
      shard.tensor_index >= shard.tensor_shards || shard.data_shards < 1 ||
      shard.data_shards > mesh.data || shard.data_index < 0 ||
      shard.data_index >= shard.data_shards) {
    return Broken(3, "variable '", shard.name, "' is shard ", shard.tensor_index, " of ",
                  shard.tensor_shards, ", part ", shard.data_index, " of ", shard.data_shards,
                  " on a mesh of ", mesh.data, " x ", mesh.tensor, " x ", mesh.pipeline);
  }
  if (shard.dtype == DType::kInvalid || shard.global_shape.num_elements() > kMaxElements) {
    return Broken(3, "variable '", shard.name, "' is ", TypeText(shard.dtype, shard.global_shape),
                  "; expected an element type and at most ", kMaxElements, " elements");
  }
  const absl::Status valid = shard.tensor_sharding.Validate(shard.global_shape);
  if (!valid.ok()) {
    return Broken(3, "variable '", shard.name, "': ", std::string(valid.message()));
  }
  Shape local =
      shard.tensor_sharding.LocalShape(shard.global_shape, shard.tensor_shards, shard.tensor_index);
  if (shard.data_shards > 1 && local.rank() > 0) {
    local.set_dim(
        0, AxisSharding::ShardRange(local.dim(0), shard.data_shards, shard.data_index).count);
  }
  if (local == shard.local_shape && (shard.data_shards == 1 || local.rank() > 0)) {
    return absl::OkStatus();
  }
  return Broken(3, "variable '", shard.name, "': shard ", shard.tensor_index, " of ",
                shard.tensor_shards, ", part ", shard.data_index, " of ", shard.data_shards, " of ",
                shard.global_shape.ToString(), " has shape ", shard.local_shape.ToString(),
                ", expected ", local.ToString());
}

absl::Status PartitionVerifier::CheckVariables() {
  for (const VariableShard& shard : partition_.variables) {
    if (!variables_.emplace(shard.name, &shard).second) {
      return Broken(3, "variable '", shard.name, "' is there twice");
    }
    WEFT_RETURN_IF_ERROR(CheckShard(shard));
  }
  return absl::OkStatus();
}

absl::Status PartitionVerifier::CheckGraph(const std::string& name, const Graph& graph) {
  VerifyOptions options;
  options.concrete_shapes = true;
  options.exact_shapes = true;
  const absl::Status valid = VerifyGraph(graph, options);
  if (!valid.ok()) return Broken(4, "graph ", name, ": ", std::string(valid.message()));
  for (const ValueId id : graph.value_ids()) {
    const ValueDef& value = graph.value(id);
    const std::optional<Shape> shape = value.type.shape.ToConcrete();
    if (shape.has_value() && shape->num_elements() <= kMaxElements &&
        value.type.dtype != DType::kInvalid) {
      continue;
    }
    return Broken(4, "graph ", name, ": value '", value.name, "' is ", value.type.ToString(),
                  "; expected an element type and a shape of at most ", kMaxElements, " elements");
  }
  for (const Variable& variable : graph.variables()) {
    const ValueType& type = graph.value(variable.value).type;
    const auto shard = variables_.find(variable.name);
    if (shard == variables_.end()) {
      return Broken(4, "graph ", name, ": variable '", variable.name, "' is not one of the rank");
    }
    const VariableShard& own = *shard->second;
    const std::string& value_name = graph.value(variable.value).name;
    if (value_name != variable.name) {
      return Broken(4, "graph ", name, ": the value of variable '", variable.name, "' is called '",
                    value_name, "'");
    }
    const bool updates_fit = !variable.update.valid() || graph.value(variable.update).type == type;
    if (type.dtype == own.dtype && type.shape.ToConcrete() == own.local_shape && updates_fit) {
      continue;
    }
    return Broken(4, "graph ", name, ": variable '", variable.name, "' is ", type.ToString(),
                  updates_fit ? "" : " and its update is not", "; on this rank it is ",
                  TypeText(own.dtype, own.local_shape));
  }
  if (&graph != &partition_.begin) return absl::OkStatus();
  for (const ValueId output : graph.outputs()) {
    begin_outputs_[graph.value(output).name] = &graph.value(output).type;
  }
  return absl::OkStatus();
}

absl::Status PartitionVerifier::CheckMemory() const {
  double bytes = 0;
  const auto add = [&bytes](DType dtype, const Shape& shape, size_t times) {
    if (dtype == DType::kInvalid || dtype == DType::kString) return;
    bytes +=
        static_cast<double>(DTypeBytes(dtype, shape.num_elements())) * static_cast<double>(times);
  };
  for (const VariableShard& shard : partition_.variables) add(shard.dtype, shard.local_shape, 1);
  for (const auto& [name, graph] : Graphs()) {
    for (const ValueId id : graph->value_ids()) {
      const ValueType& type = graph->value(id).type;
      add(type.dtype, *type.shape.ToConcrete(), partition_.micro_batches.size() + 1);
    }
  }
  if (bytes <= kMaxBytes) return absl::OkStatus();
  return Broken(11, "its values have ", bytes, " bytes; expected at most 2^60");
}

absl::Status PartitionVerifier::CheckFeeds() {
  for (const FeedInput& feed : partition_.inputs) {
    if (!feeds_.emplace(feed.name, &feed).second) {
      return Broken(5, "input '", feed.name, "' is fed twice");
    }
    if (feed.dtype == DType::kInvalid || feed.sample_shape.num_elements() > kMaxElements) {
      return Broken(5, "input '", feed.name, "' is ", TypeText(feed.dtype, feed.sample_shape),
                    "; expected an element type and at most ", kMaxElements, " elements");
    }
    if (feed.role != InputRole::kStep ||
        DTypeBytes(feed.dtype, feed.sample_shape.num_elements()) <= kMaxStepInputBytes) {
      continue;
    }
    return Broken(5, "step input '", feed.name, "' is ", TypeText(feed.dtype, feed.sample_shape),
                  "; a step input has at most ", kMaxStepInputBytes, " bytes");
  }
  return absl::OkStatus();
}

absl::Status PartitionVerifier::CheckFed(const std::string& name, const Graph& graph,
                                         const ValueDef& value) const {
  const auto differs = [&](const std::string& source, const std::string& type) {
    return Broken(5, "graph ", name, ": input '", value.name, "' is ", value.type.ToString(),
                  ", but ", source, " is ", type);
  };
  const auto begin = begin_outputs_.find(value.name);
  if (begin != begin_outputs_.end() && &graph != &partition_.begin) {
    if (*begin->second == value.type) return absl::OkStatus();
    return differs("the begin graph's output", begin->second->ToString());
  }
  if (&graph == &partition_.end && sums_.contains(value.name)) return absl::OkStatus();
  const auto found = feeds_.find(value.name);
  if (found == feeds_.end()) {
    return Broken(5, "graph ", name, ": nothing feeds input '", value.name, "'");
  }
  const FeedInput& feed = *found->second;
  const Shape shape = *value.type.shape.ToConcrete();
  const std::string fed = TypeText(feed.dtype, feed.sample_shape);
  if (feed.role == InputRole::kStep) {
    const bool fits = value.type.dtype == feed.dtype && shape == feed.sample_shape;
    return fits ? absl::OkStatus() : differs("the step input", fed);
  }
  const auto samples = samples_.find(&graph);
  const bool is_micro = &graph != &partition_.begin && &graph != &partition_.end;
  if (is_micro && samples == samples_.end()) return absl::OkStatus();  // never runs
  const int64_t rows = is_micro ? samples->second : 1;
  const int64_t elements = feed.sample_shape.num_elements();
  const bool fits = value.type.dtype == feed.dtype &&
                    (elements == 0 || rows <= kMaxElements / elements) &&
                    shape.num_elements() == rows * elements;
  return fits ? absl::OkStatus() : differs(absl::StrCat("each of ", rows, " samples"), fed);
}

absl::Status PartitionVerifier::CheckInputs(const std::string& name, const Graph& graph) const {
  for (const ValueId input : graph.inputs()) {
    WEFT_RETURN_IF_ERROR(CheckFed(name, graph, graph.value(input)));
  }
  return absl::OkStatus();
}

absl::Status PartitionVerifier::CheckBlock(const Accumulation& sum,
                                           const Accumulation::Block& block) {
  const std::optional<ValueId> input = partition_.end.FindValue(block.end_input);
  if (!input.has_value() || partition_.end.value(*input).source != ValueSource::kInput ||
      !sums_.insert(block.end_input).second) {
    return Broken(6, "the sum '", block.end_input,
                  "' is not an input of the end graph, or is made twice");
  }
  const std::vector<MicroBatch>& own = partition_.micro_batches;
  const auto first =
      std::lower_bound(own.begin(), own.end(), block.first,
                       [](const MicroBatch& batch, int index) { return batch.index < index; });
  const int64_t count = int64_t{block.last} - block.first;
  if (count < 1 || count > own.end() - first || first->index != block.first ||
      (first + (count - 1))->index != block.last - 1) {
    return Broken(6, "the sum '", block.end_input, "' is over the micro-batches ", block.first,
                  " to ", block.last, ", which are not all of this rank");
  }
  const ValueType& type = partition_.end.value(*input).type;
  for (auto batch = first; batch != first + count; ++batch) {
    const Graph& graph = partition_.micro[batch->graph];
    const std::optional<ValueId> term = graph.FindValue(sum.micro_output);
    if (term.has_value() && graph.value(*term).type == type) continue;
    return Broken(6, "the sum '", block.end_input, "' is ", type.ToString(), ", and micro graph ",
                  batch->graph, " makes ",
                  term.has_value() ? graph.value(*term).type.ToString() : "none", " of its term '",
                  sum.micro_output, "'");
  }
  return absl::OkStatus();
}

absl::Status PartitionVerifier::CheckSums() {
  for (const Accumulation& sum : partition_.accumulations) {
    for (const Accumulation::Block& block : sum.blocks) {
      WEFT_RETURN_IF_ERROR(CheckBlock(sum, block));
    }
  }
  return absl::OkStatus();
}

absl::Status PartitionVerifier::CheckActions() const {
  const auto count = static_cast<int>(partition_.micro_batches.size());
  std::set<std::tuple<ActionKind, int, int>> seen;
  std::vector<bool> is_run(partition_.micro_batches.size());
  for (const Action& action : partition_.actions) {
    if (action.micro_batch < 0 || action.chunk < 0 || action.chunk >= kMaxChunks ||
        (IsMicro(action) && action.micro_batch >= count)) {
      return Broken(7, "action of micro-batch ", action.micro_batch, ", chunk ", action.chunk,
                    "; the rank has ", count, " micro-batches and at most ", kMaxChunks, " chunks");
    }
    const auto key = IsMicro(action) ? std::tuple(action.kind, action.micro_batch, action.chunk)
                                     : std::tuple(action.kind, 0, 0);
    if (!seen.insert(key).second) {
      return Broken(7, "action ", ActionToString(action), " comes twice");
    }
    if (action.kind == ActionKind::kForward) is_run[action.micro_batch] = true;
  }
  if (const auto idle = std::find(is_run.begin(), is_run.end(), false); idle != is_run.end()) {
    return Broken(7, "no action is the forward pass of micro-batch ", idle - is_run.begin());
  }
  if (partition_.actions.empty() || partition_.actions.back().kind != ActionKind::kUpdate) {
    return Broken(7, "U is not the last action");
  }
  if (seen.contains({ActionKind::kBegin, 0, 0}) &&
      partition_.actions.front().kind != ActionKind::kBegin) {
    return Broken(7, "Begin is not the first action");
  }
  return absl::OkStatus();
}

absl::Status PartitionVerifier::CheckChannelList() {
  const int ranks = partition_.mesh.size();
  for (const Channel& channel : partition_.channels) {
    const int32_t from = channel.from.value;
    const int32_t to = channel.to.value;
    const bool is_here = from == partition_.rank.value || to == partition_.rank.value;
    if (channel.id.value < 0 || from < 0 || from >= ranks || to < 0 || to >= ranks || from == to ||
        !is_here) {
      return Broken(8, "channel ", channel.id.value, " ('", channel.value, "') goes from rank ",
                    from, " to ", to, " of ", ranks, "; this is rank ", partition_.rank.value);
    }
    if (channel.dtype == DType::kInvalid || channel.shape.num_elements() > kMaxElements) {
      return Broken(8, "channel ", channel.id.value, " carries ",
                    TypeText(channel.dtype, channel.shape));
    }
    if (!channels_.emplace(channel.id.value, &channel).second) {
      return Broken(8, "channel ", channel.id.value, " is there twice");
    }
  }
  return absl::OkStatus();
}

// A schema lets outputs be left out, and a list be empty; who communicates has no use for that.
absl::Status PartitionVerifier::CheckOperands(const Graph& graph, const Node& node) const {
  const CommunicationKind kind = KindOf(node);
  const int law = IsPointToPoint(kind) ? 8 : 9;
  if (!std::ranges::all_of(node.outputs, &ValueId::valid) ||
      (node.outputs.empty() && kind != CommunicationKind::kSend)) {
    return Broken(law, DescribeNode(node), ": an output is left out");
  }
  const auto is_string = [&graph](ValueId id) {
    return id.valid() && graph.value(id).type.dtype == DType::kString;
  };
  const bool has_strings =
      std::ranges::any_of(node.inputs, is_string) || std::ranges::any_of(node.outputs, is_string);
  return !has_strings ? absl::OkStatus()
                      : Broken(law, DescribeNode(node), ": strings do not go to other ranks");
}

absl::Status PartitionVerifier::CheckTransfer(const Graph& graph, const Node& node) const {
  WEFT_RETURN_IF_ERROR(CheckOperands(graph, node));
  const bool sends = KindOf(node) == CommunicationKind::kSend;
  const auto found = channels_.find(node.attributes.Int("channel", -1));
  if (found == channels_.end()) {
    return Broken(8, DescribeNode(node), ": its channel is not one of the rank");
  }
  const Channel& channel = *found->second;
  const ValueType& type = graph.value(sends ? node.inputs[0] : node.outputs[0]).type;
  const bool fits = (sends ? channel.from : channel.to) == partition_.rank &&
                    type.dtype == channel.dtype && type.shape.ToConcrete() == channel.shape;
  if (fits) return absl::OkStatus();
  return Broken(8, DescribeNode(node), ": ", type.ToString(), " on channel ", channel.id.value,
                " of ", TypeText(channel.dtype, channel.shape), " from rank ", channel.from.value,
                " to ", channel.to.value);
}

// All blocks of an all-reduce's tensor are of the type of its sum.
absl::Status PartitionVerifier::CheckTerms(const Graph& graph, const Node& node) const {
  const size_t blocks = node.outputs.empty() ? 0 : node.inputs.size() / node.outputs.size();
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const bool both_present = node.inputs[i].valid() && node.outputs[i / blocks].valid();
    if (both_present &&
        graph.value(node.inputs[i]).type == graph.value(node.outputs[i / blocks]).type) {
      continue;
    }
    return Broken(9, DescribeNode(node), ": input ", i, " is not of the type of output ",
                  i / blocks);
  }
  return absl::OkStatus();
}

absl::Status PartitionVerifier::CheckMembers(const Node& node) const {
  for (const int64_t member : node.attributes.Ints("group")) {
    if (member >= 0 && member < partition_.mesh.size()) continue;
    return Broken(9, DescribeNode(node), ": its group has rank ", member, " of ",
                  partition_.mesh.size());
  }
  const bool is_root = KindOf(node) == CommunicationKind::kBroadcast &&
                       node.attributes.Int("root", -1) == partition_.rank.value;
  if (is_root && (node.inputs.empty() || !node.inputs[0].valid())) {
    return Broken(9, DescribeNode(node), ": this rank is the root and has nothing to send");
  }
  return absl::OkStatus();
}

// The shard here is that of this rank's place in the group, whatever the attribute "index" says.
absl::Status PartitionVerifier::CheckOwnShard(const Graph& graph, const Node& node,
                                              int member) const {
  const bool gathers = KindOf(node) == CommunicationKind::kAllGather;
  const Shape whole =
      *graph.value(gathers ? node.outputs[0] : node.inputs[0]).type.shape.ToConcrete();
  const ValueDef& shard = graph.value(gathers ? node.inputs[0] : node.outputs[0]);
  const int64_t own = GatheredDim(node).Counts(whole)[member];
  if (shard.type.shape.ToConcrete()->num_elements() == own) return absl::OkStatus();
  return Broken(9, DescribeNode(node), ": the shard '", shard.name, "' is ", shard.type.ToString(),
                "; member ", member, " of its group has ", own, " elements");
}

absl::Status PartitionVerifier::CheckBuffers(const Graph& graph, const Node& node,
                                             const CollectiveSchedule& schedule) const {
  const CommunicationKind kind = KindOf(node);
  const std::vector<int64_t>& buffers = schedule.buffer_elements;
  const auto elements = [&graph](ValueId id) {
    return id.valid() ? graph.value(id).type.shape.ToConcrete()->num_elements() : 0;
  };
  std::vector<int64_t> memory;  // of the buffers that are not scratch
  if (kind == CommunicationKind::kAllReduce) {
    WEFT_ASSIGN_OR_RETURN(const int64_t block, AllReduceBlockElements(graph, node));
    memory = {block * static_cast<int64_t>(node.inputs.size() / node.outputs.size())};
  } else {
    memory = {elements(node.outputs[0])};
    if (kind == CommunicationKind::kReduceScatter) memory = {elements(node.inputs[0])};
    if (kind == CommunicationKind::kAllToAll) memory.push_back(elements(node.inputs[0]));
  }
  for (size_t i = 0; i < std::min(buffers.size(), memory.size()); ++i) {
    if (buffers[i] <= memory[i]) continue;
    return Broken(9, DescribeNode(node), ": its schedule has ", buffers[i], " elements in buffer ",
                  i, ", its tensors ", memory[i]);
  }
  for (const CollectiveStep& step : schedule.steps) {
    for (const BufferRange& range : {step.source, step.target}) {
      if (range.count == 0) continue;
      if (range.buffer >= 0 && range.buffer < static_cast<int>(buffers.size()) &&
          range.first >= 0 && range.count > 0 &&
          range.count <= buffers[range.buffer] - range.first) {
        continue;
      }
      return Broken(9, DescribeNode(node), ": a step leaves its buffer");
    }
  }
  return absl::OkStatus();
}

absl::Status PartitionVerifier::CheckCollective(const Graph& graph, const Node& node) const {
  WEFT_RETURN_IF_ERROR(CheckOperands(graph, node));
  WEFT_RETURN_IF_ERROR(CheckMembers(node));
  const CommunicationKind kind = KindOf(node);
  if (kind == CommunicationKind::kAllReduce) WEFT_RETURN_IF_ERROR(CheckTerms(graph, node));
  const absl::StatusOr<NodeCollective> collective = CollectiveOfNode(graph, node, partition_.rank);
  if (!collective.ok()) {
    return Broken(9, DescribeNode(node), ": ", std::string(collective.status().message()));
  }
  if (kind == CommunicationKind::kAllGather || kind == CommunicationKind::kReduceScatter) {
    WEFT_RETURN_IF_ERROR(CheckOwnShard(graph, node, collective->member));
  }
  return CheckBuffers(graph, node, collective->schedule);
}

absl::Status PartitionVerifier::CheckCommunication(const std::string& name,
                                                   const Graph& graph) const {
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (const Node* const inner = CommunicationInBodies(node)) {
      return Broken(9, DescribeNode(*inner), " stands in a body of ", DescribeNode(node),
                    " (graph ", name, ")");
    }
    if (!IsCommunication(node)) continue;
    const bool transfers = IsPointToPoint(KindOf(node));
    const absl::Status status =
        transfers ? CheckTransfer(graph, node) : CheckCollective(graph, node);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(status.message(), " (graph ", name, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status PartitionVerifier::CheckEndValues() const {
  const auto type_of = [this](const std::string& name) -> const ValueType* {
    const std::optional<ValueId> value = partition_.end.FindValue(name);
    return value.has_value() ? &partition_.end.value(*value).type : nullptr;
  };
  for (const std::string& report : partition_.reports) {
    if (type_of(report) != nullptr) continue;
    return Broken(10, "the report '", report, "' is no value of the end graph");
  }
  if (partition_.guard.empty()) return absl::OkStatus();
  const ValueType* const guard = type_of(partition_.guard);
  const bool fits = guard != nullptr && IsFloatingPoint(guard->dtype) &&
                    guard->shape.ToConcrete()->num_elements() == 1;
  if (fits) return absl::OkStatus();
  return Broken(10, "the guard '", partition_.guard, "' is ",
                guard == nullptr ? "no value of the end graph" : guard->ToString(),
                "; expected one floating number");
}

}  // namespace

absl::Status VerifyPartition(const Partition& partition) {
  return PartitionVerifier(partition).Run();
}

}  // namespace weft
