// What partitioning puts into a graph: transfers between ranks, collectives, and the border between
// the micro-batches and the step. They have no kernels: the executor's communicator and its
// accumulators carry them out. Shapes here are local ones.
//
// Attributes that several of them have:
//   channel   int     id of the point-to-point channel, unique in the job
//   dtype     int     element type, by ONNX's number
//   shape     ints    local shape
//   axis      string  mesh axis of the group: "data", "tensor" or "pipeline"
//   group     ints    ranks that take part, in the order that counts their shares
#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Attributes dtype and shape as the type of output 0.
absl::Status SetDeclaredOutput(InferenceContext& context) {
  const int64_t number = context.attributes().Int("dtype", 0);
  if (number < 0 || number >= kDTypeCount || !IsValidDType(static_cast<int>(number))) {
    return context.Error(absl::StrCat("attribute dtype is ", number, ", which is no element type"));
  }
  const std::vector<int64_t> shape = context.attributes().Ints("shape");
  return SetCheckedOutput(context, static_cast<DType>(number), Dims(shape.begin(), shape.end()));
}

// The members of the group; at least one, none twice.
absl::StatusOr<std::vector<int64_t>> Group(InferenceContext& context) {
  const std::vector<int64_t> group = context.attributes().Ints("group");
  std::vector<int64_t> sorted = group;
  std::sort(sorted.begin(), sorted.end());
  const bool repeated = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  if (group.empty() || repeated || sorted.front() < 0) {
    return context.Error(absl::StrCat("attribute group [", absl::StrJoin(group, ","),
                                      "] must name at least one rank, each once"));
  }
  return group;
}

// ---- Point to point

absl::Status InferSend(InferenceContext&) { return absl::OkStatus(); }

// Sends x on `channel` once per run. No output.
WEFT_REGISTER_OP(OpSchema::Weft("Send")
                     .Input("x")
                     .Attr("channel", AttributeType::kInt, /*required=*/true)
                     .Infer(InferSend)
                     .NoGradient("communication is added after a graph is differentiated")
                     .CostOf(MovementCost)
                     .Class(OpClass::kCommunication));

// y is what the other end of `channel` sent in the same run; its type is declared by dtype and
// shape.
WEFT_REGISTER_OP(OpSchema::Weft("Recv")
                     .Output("y")
                     .Attr("channel", AttributeType::kInt, /*required=*/true)
                     .Attr("dtype", AttributeType::kInt, /*required=*/true)
                     .Attr("shape", AttributeType::kInts, /*required=*/true)
                     .Infer(SetDeclaredOutput)
                     .NoGradient("communication is added after a graph is differentiated")
                     .CostOf(MovementCost)
                     .Class(OpClass::kCommunication));

// ---- Collectives

// Those of graph/schedule/all_reduce_choice.h, the choice among them, and strict mode's.
constexpr std::array<const char*, 7> kAlgorithms = {
    "auto", "ring",         "recursive_doubling", "halving_doubling",
    "tree", "hierarchical", "ordered_tree"};

// More micro-batches than any job has; the schedule of a tree counts them as an int.
constexpr int64_t kMaxTotalBlocks = int64_t{1} << 20;

// Output i has the type of input i * blocks.
absl::Status InferAllReduce(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(Group(context).status());
  const Attributes& attributes = context.attributes();
  const std::string algorithm = attributes.String("algorithm", "");
  const bool is_tree = algorithm == "ordered_tree";
  if (std::find(kAlgorithms.begin(), kAlgorithms.end(), algorithm) == kAlgorithms.end()) {
    return context.Error(absl::StrCat("attribute algorithm is '", algorithm,
                                      "'; it must be one of ", absl::StrJoin(kAlgorithms, ", ")));
  }
  const size_t hosts = attributes.Ints("hosts").size();
  if (hosts != 0 && hosts != attributes.Ints("group").size()) {
    return context.Error(absl::StrCat("attribute hosts has ", hosts,
                                      " numbers; it must have one for each of ",
                                      attributes.Ints("group").size(), " ranks, or none"));
  }
  const int64_t blocks = is_tree ? attributes.Int("blocks", 1) : 1;
  if (blocks < 1 || blocks > std::max(context.num_inputs(), 1) ||
      blocks * context.num_outputs() != context.num_inputs()) {
    return context.Error(absl::StrCat(context.num_outputs(), " outputs of ", blocks,
                                      " blocks each do not fit ", context.num_inputs(), " inputs"));
  }
  const size_t ranges = attributes.Ints("block_ranges").size();
  if (is_tree && ranges != static_cast<size_t>(2 * blocks)) {
    return context.Error(absl::StrCat("attribute block_ranges has ", ranges,
                                      " numbers; it must have a begin and an end for each of ",
                                      blocks, " blocks"));
  }
  const int64_t total = attributes.Int("total_blocks", 0);
  if (total < 0 || total > kMaxTotalBlocks) {
    return context.Error(
        absl::StrCat("attribute total_blocks is ", total, "; it must be 0 to ", kMaxTotalBlocks));
  }
  const std::vector<int64_t> begins = attributes.Ints("member_begins");
  if (!begins.empty() && (begins.size() != attributes.Ints("group").size() || begins[0] != 0 ||
                          !std::is_sorted(begins.begin(), begins.end()) || begins.back() > total)) {
    return context.Error(absl::StrCat(
        "attribute member_begins [", absl::StrJoin(begins, ","),
        "] must have the first micro-batch of each rank of the group, from 0 up, or nothing"));
  }
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, context.InputType(static_cast<int>(i * blocks)));
  }
  return absl::OkStatus();
}

// Output i is the sum of input i over the group; all tensors of a node travel as one bucket.
//   algorithm     "auto": the right one for the bytes, ranks and hosts (all_reduce_choice.h),
//   or
//                 one of those by name: any order of sums; the same on every rank. Output i may be
//                 written over input i for every i.
//                 "ordered_tree": the sum in the order of one binary tree over all micro-batches of
//                 the job, whatever the group (law 10 of docs/architecture.md). A rank brings the
//                 sums of several runs of micro-batches, its blocks: the inputs are all blocks of
//                 tensor 0, then all of tensor 1, ...; output i is the sum of all blocks of tensor
//                 i over the group. Output 0 may be written over input 0.
//   hosts         ints  the host of each rank of the group, any numbers; left out: all on one
//   bucket        int   number of the bucket in the step, for messages and statistics
//   blocks        int   ordered_tree: blocks per tensor on this rank
//   block_ranges  ints  ordered_tree: begin and end micro-batch of each block of this rank, in
//                       order
//   total_blocks  int   ordered_tree: micro-batches of the job (the leaves of the tree)
//   member_begins ints  ordered_tree: the first micro-batch of each rank of the group; left out:
//                       equal parts, rank m of n begins with total_blocks m / n
WEFT_REGISTER_OP(OpSchema::Weft("AllReduce")
                     .VariadicInput("inputs")
                     .VariadicOutput("outputs")
                     .Attr("axis", AttributeType::kString, /*required=*/true)
                     .Attr("group", AttributeType::kInts, /*required=*/true)
                     .Attr("algorithm", AttributeType::kString, /*required=*/true)
                     .Attr("hosts", AttributeType::kInts)
                     .Attr("bucket", AttributeType::kInt)
                     .Attr("blocks", AttributeType::kInt)
                     .Attr("block_ranges", AttributeType::kInts)
                     .Attr("total_blocks", AttributeType::kInt)
                     .Attr("member_begins", AttributeType::kInts)
                     .Infer(InferAllReduce)
                     .NoGradient("communication is added after a graph is differentiated")
                     .CostOf(MovementCost)
                     .Class(OpClass::kCommunication)
                     .InPlace(0, 0));

// How a dimension of a tensor, seen as (blocks rest), is cut: rank k of the group has sizes[k] of
// the rest.
struct ShardedDim {
  int axis = 0;
  int64_t blocks = 1;
  std::vector<int64_t> sizes;
};

int64_t WholeSize(const ShardedDim& dim) {
  return dim.blocks * std::accumulate(dim.sizes.begin(), dim.sizes.end(), int64_t{0});
}

// The attributes `prefix`dim, -blocks and -sizes.
absl::StatusOr<ShardedDim> ReadShardedDim(InferenceContext& context, int rank,
                                          const std::string& prefix = "") {
  const Attributes& attributes = context.attributes();
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> group, Group(context));
  ShardedDim sharded;
  const int64_t axis = attributes.Int(prefix + "dim", 0);
  // Not from the end: whoever runs the node takes the number as it is.
  if (axis < 0 || axis >= rank) {
    return context.Error(absl::StrCat("attribute ", prefix, "dim is ", axis,
                                      "; it must be 0 or more and less than ", rank));
  }
  sharded.axis = static_cast<int>(axis);
  sharded.blocks = attributes.Int(prefix + "blocks", 1);
  sharded.sizes = attributes.Ints(prefix + "sizes");
  const bool in_bounds = std::all_of(sharded.sizes.begin(), sharded.sizes.end(),
                                     [](int64_t size) { return size >= 0 && size <= kMaxDim; });
  if (sharded.blocks < 1 || sharded.blocks > kMaxDim || !in_bounds ||
      sharded.sizes.size() != group.size() ||
      std::accumulate(sharded.sizes.begin(), sharded.sizes.end(), int64_t{0}) >
          kMaxDim / sharded.blocks) {
    return context.Error(absl::StrCat("attributes ", prefix, "blocks ", sharded.blocks, " and ",
                                      prefix, "sizes [", absl::StrJoin(sharded.sizes, ","),
                                      "] must give each of the ", group.size(),
                                      " ranks a size of 0 or more"));
  }
  return sharded;
}

// Checks that input 0 has `expected` rows along the axis and sets output 0 to have `rows` of them.
absl::Status Resize(InferenceContext& context, int axis, int64_t expected, int64_t rows) {
  const SymbolicShape& input = context.InputShape(0);
  if (input.dim(axis).is_known() && input.dim(axis).size() != expected) {
    return context.Error(
        absl::StrCat("axis ", axis, " of ", input.ToString(), " must have size ", expected));
  }
  Dims dims = input.dims();
  dims[axis] = Dim(rows);
  return SetCheckedOutput(context, context.InputType(0).dtype, std::move(dims));
}

// This rank's position in the group.
absl::StatusOr<int64_t> Index(InferenceContext& context, const ShardedDim& sharded) {
  const int64_t index = context.attributes().Int("index", -1);
  if (index < 0 || index >= static_cast<int64_t>(sharded.sizes.size())) {
    return context.Error(absl::StrCat("attribute index is ", index, "; the group has ",
                                      sharded.sizes.size(), " ranks"));
  }
  return index;
}

absl::Status InferAllGather(InferenceContext& context) {
  if (!context.InputShape(0).has_rank()) return context.Error("the shape of x is not known");
  WEFT_ASSIGN_OR_RETURN(const ShardedDim sharded,
                        ReadShardedDim(context, context.InputShape(0).rank()));
  // Without an index, the shard may be any of the group's.
  int64_t rows = context.InputShape(0).dim(sharded.axis).size();
  if (context.attributes().Has("index")) {
    WEFT_ASSIGN_OR_RETURN(const int64_t index, Index(context, sharded));
    rows = sharded.blocks * sharded.sizes[index];
  }
  return Resize(context, sharded.axis, rows, WholeSize(sharded));
}

absl::Status InferReduceScatter(InferenceContext& context) {
  if (!context.InputShape(0).has_rank()) return context.Error("the shape of x is not known");
  WEFT_ASSIGN_OR_RETURN(const ShardedDim sharded,
                        ReadShardedDim(context, context.InputShape(0).rank()));
  WEFT_ASSIGN_OR_RETURN(const int64_t index, Index(context, sharded));
  return Resize(context, sharded.axis, WholeSize(sharded), sharded.blocks * sharded.sizes[index]);
}

// y is the whole tensor of which each rank of the group has a shard x.
//   dim     int   the sharded dimension, from 0 on, seen as (blocks rest); rest is split
//   blocks  int   1 by default
//   sizes   ints  what each rank of the group has of the rest
//   index   int   position of this rank in the group; optional, for checking
WEFT_REGISTER_OP(OpSchema::Weft("AllGather")
                     .Input("x")
                     .Output("y")
                     .Attr("axis", AttributeType::kString, /*required=*/true)
                     .Attr("group", AttributeType::kInts, /*required=*/true)
                     .Attr("dim", AttributeType::kInt, /*required=*/true)
                     .Attr("blocks", AttributeType::kInt)
                     .Attr("sizes", AttributeType::kInts, /*required=*/true)
                     .Attr("index", AttributeType::kInt)
                     .Infer(InferAllGather)
                     .NoGradient("communication is added after a graph is differentiated")
                     .CostOf(MovementCost)
                     .Class(OpClass::kCommunication));

// y is this rank's shard of the sum of x over the group. Attributes as in AllGather, but that index
// must be given.
WEFT_REGISTER_OP(OpSchema::Weft("ReduceScatter")
                     .Input("x")
                     .Output("y")
                     .Attr("axis", AttributeType::kString, /*required=*/true)
                     .Attr("group", AttributeType::kInts, /*required=*/true)
                     .Attr("dim", AttributeType::kInt, /*required=*/true)
                     .Attr("blocks", AttributeType::kInt)
                     .Attr("sizes", AttributeType::kInts, /*required=*/true)
                     .Attr("index", AttributeType::kInt, /*required=*/true)
                     .Infer(InferReduceScatter)
                     .NoGradient("communication is added after a graph is differentiated")
                     .CostOf(MovementCost)
                     .Class(OpClass::kCommunication));

absl::Status InferAllToAll(InferenceContext& context) {
  const SymbolicShape& input = context.InputShape(0);
  if (!input.has_rank()) return context.Error("the shape of x is not known");
  WEFT_ASSIGN_OR_RETURN(const ShardedDim from, ReadShardedDim(context, input.rank()));
  WEFT_ASSIGN_OR_RETURN(const ShardedDim to, ReadShardedDim(context, input.rank(), "split_"));
  WEFT_ASSIGN_OR_RETURN(const int64_t index, Index(context, from));
  if (from.axis == to.axis) {
    return context.Error(absl::StrCat("attributes dim and split_dim are both ", from.axis));
  }
  const int64_t rows = from.blocks * from.sizes[index];
  for (const auto& [axis, expected] : {std::pair(from.axis, rows), {to.axis, WholeSize(to)}}) {
    if (!input.dim(axis).is_known() || input.dim(axis).size() == expected) continue;
    return context.Error(
        absl::StrCat("axis ", axis, " of ", input.ToString(), " must have size ", expected));
  }
  Dims dims = input.dims();
  dims[from.axis] = Dim(WholeSize(from));
  dims[to.axis] = Dim(to.blocks * to.sizes[index]);
  return SetCheckedOutput(context, context.InputType(0).dtype, std::move(dims));
}

// x is this rank's shard of a tensor along the dimension `dim`, y its shard along `split_dim`:
// every rank gives each other one what both shards share.
//   dim, blocks, sizes                    of x, as in AllGather
//   split_dim, split_blocks, split_sizes  the same of y; another dimension
//   index                                 position of this rank in the group
WEFT_REGISTER_OP(OpSchema::Weft("AllToAll")
                     .Input("x")
                     .Output("y")
                     .Attr("axis", AttributeType::kString, /*required=*/true)
                     .Attr("group", AttributeType::kInts, /*required=*/true)
                     .Attr("dim", AttributeType::kInt, /*required=*/true)
                     .Attr("blocks", AttributeType::kInt)
                     .Attr("sizes", AttributeType::kInts, /*required=*/true)
                     .Attr("split_dim", AttributeType::kInt, /*required=*/true)
                     .Attr("split_blocks", AttributeType::kInt)
                     .Attr("split_sizes", AttributeType::kInts, /*required=*/true)
                     .Attr("index", AttributeType::kInt, /*required=*/true)
                     .Infer(InferAllToAll)
                     .NoGradient("communication is added after a graph is differentiated")
                     .CostOf(MovementCost)
                     .Class(OpClass::kCommunication));

absl::Status InferBroadcastFromRoot(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> group, Group(context));
  const int64_t root = context.attributes().Int("root", -1);
  if (std::find(group.begin(), group.end(), root) == group.end()) {
    return context.Error(absl::StrCat("attribute root is ", root, ", which is not in the group [",
                                      absl::StrJoin(group, ","), "]"));
  }
  if (!context.HasInput(0)) return SetDeclaredOutput(context);
  context.SetOutput(0, context.InputType(0));
  return absl::OkStatus();
}

// y is the x of the rank `root`. The other ranks need not have x; then dtype and shape declare y.
WEFT_REGISTER_OP(OpSchema::Weft("Broadcast")
                     .OptionalInput("x")
                     .Output("y")
                     .Attr("axis", AttributeType::kString, /*required=*/true)
                     .Attr("group", AttributeType::kInts, /*required=*/true)
                     .Attr("root", AttributeType::kInt, /*required=*/true)
                     .Attr("dtype", AttributeType::kInt)
                     .Attr("shape", AttributeType::kInts)
                     .Infer(InferBroadcastFromRoot)
                     .NoGradient("communication is added after a graph is differentiated")
                     .CostOf(MovementCost)
                     .Class(OpClass::kCommunication)
                     .InPlace(0, 0));

// ---- Sums over replicas, before a rank's graph is made

absl::Status InferSumOverReplicas(InferenceContext& context) {
  if (context.num_outputs() > context.num_inputs()) {
    return context.Error(absl::StrCat(context.num_outputs(), " outputs are the sums of ",
                                      context.num_inputs(), " inputs; expected one for each"));
  }
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, context.InputType(i));
  }
  return absl::OkStatus();
}

// Output i is the sum of input i over the micro-batches of all replicas, of which each has one, in
// the middle of a micro-batch: what OpSchema::whole_batch asks for. In the graph of a rank it is an
// AllReduce over the data axis.
WEFT_REGISTER_OP(OpSchema::Weft("SumOverReplicas")
                     .VariadicInput("inputs", kFloatTypes)
                     .VariadicOutput("outputs")
                     .Infer(InferSumOverReplicas)
                     .NoGradient("communication is added after a graph is differentiated")
                     .CostOf(MovementCost)
                     .Class(OpClass::kCommunication));

// ---- Boundary

// y is the sum of x over all micro-batches and data ranks: the border from the region of the
// micro-batches, in which x is computed, to the region of the step. Compiled away.
WEFT_REGISTER_OP(OpSchema::Weft("Accumulate")
                     .Input("x", kNumericTypes)
                     .Output("y")
                     .Infer(InferLikeFirstInput)
                     .NoGradient("the border behind the gradients")
                     .Sharding(LinearElementwiseRule({{0}}))
                     .CostOf(AliasCost)
                     .Class(OpClass::kBoundary));

}  // namespace
}  // namespace weft
