#include "training/adapters/lora.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "onnx_import/parameters/variable_names.h"
#include "platform/random.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"
#include "platform/text/nearest_name.h"
#include "training/adapters/weight_quantization.h"

namespace weft {
namespace {

constexpr int kWeightInput = 1;
// So many names are told.
constexpr size_t kMaxNames = 5;

// How a node reads a weight.
enum class Reading : uint8_t {
  kOther,    // in a way that an adapter cannot follow
  kRows,     // x W
  kColumns,  // x W^T
  kKernel,   // convolution
};

Reading ReadingOf(const Graph& graph, const Graph::Use& use) {
  const Node& node = graph.node(use.node);
  if (!node.domain.empty() || use.input_index != kWeightInput) return Reading::kOther;
  const int rank = graph.value(node.inputs[kWeightInput]).type.shape.rank();
  if (node.op == "MatMul" && rank == 2) return Reading::kRows;
  if (node.op == "Gemm") {
    return node.attributes.Int("transB", 0) != 0 ? Reading::kColumns : Reading::kRows;
  }
  const bool one_group = node.attributes.Int("group", 1) == 1;
  return node.op == "Conv" && one_group && rank > 2 ? Reading::kKernel : Reading::kOther;
}

// A trainable variable and the nodes that read it.
struct Weight {
  std::string name;
  ValueId value;
  Shape shape;
  DType dtype = DType::kInvalid;
  std::vector<Graph::Use> uses;
  std::vector<std::string> names;  // its own and those of the nodes
  std::string obstacle;            // why it cannot have an adapter; empty: it can
  std::vector<std::string> other_names;
};

std::string ObstacleOf(const Graph& graph, const Weight& weight) {
  const std::vector<ValueId>& outputs = graph.outputs();
  if (std::find(outputs.begin(), outputs.end(), weight.value) != outputs.end()) {
    return "it is an output of the model";
  }
  for (const Graph::Use& use : weight.uses) {
    if (ReadingOf(graph, use) != Reading::kOther) continue;
    const Node& node = graph.node(use.node);
    return absl::StrCat(node.op, " node '", node.name, "' reads it");
  }
  return weight.uses.empty() ? "no node reads it" : "";
}

std::vector<Weight> TrainableWeights(const Graph& graph) {
  const std::vector<std::vector<Graph::Use>> uses = graph.BuildUses();
  std::vector<Weight> weights;
  for (const Variable& variable : graph.variables()) {
    const ValueType& type = graph.value(variable.value).type;
    const std::optional<Shape> shape = type.shape.ToConcrete();
    if (!variable.trainable || !variable.slot_of.empty() || !shape.has_value()) continue;
    Weight weight{variable.name,
                  variable.value,
                  *shape,
                  type.dtype,
                  uses[variable.value.value],
                  NamesOf(variable),
                  "",
                  variable.other_names};
    for (const Graph::Use& use : weight.uses) weight.names.push_back(graph.node(use.node).name);
    weight.obstacle = ObstacleOf(graph, weight);
    weights.push_back(std::move(weight));
  }
  return weights;
}

bool Fits(const std::string& pattern, const Weight& weight) {
  return std::any_of(weight.names.begin(), weight.names.end(), [&pattern](const auto& name) {
    return name == pattern || MatchesPattern(pattern, name);
  });
}

// The pattern without wildcards among names and their parts ("attn" of "block/attn/MatMul").
std::string NearName(const std::string& pattern, const std::vector<Weight>& weights) {
  std::set<std::string> candidates;
  for (const Weight& weight : weights) {
    for (const std::string& name : weight.names) {
      candidates.insert(name);
      for (const absl::string_view part : absl::StrSplit(name, absl::ByAnyChar("/."))) {
        candidates.emplace(part);
      }
    }
  }
  return DidYouMean(absl::StrReplaceAll(pattern, {{"*", ""}, {"?", ""}}),
                    {candidates.begin(), candidates.end()});
}

// "'w' (node 'fc/MatMul'), ..."
std::string NamesOf(const std::vector<Weight>& weights) {
  std::vector<std::string> names;
  for (const Weight& weight : weights) {
    if (weight.obstacle.empty()) {
      names.push_back(absl::StrCat("'", weight.name, "' (node '", weight.names.back(), "')"));
    }
  }
  if (names.empty()) return "the model has none";
  const size_t shown = std::min(names.size(), kMaxNames);
  std::string text =
      absl::StrCat("there are ", absl::StrJoin(names.begin(), names.begin() + shown, ", "));
  if (shown < names.size()) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

absl::Status NothingFits(const char* key, const std::string& pattern,
                         const std::vector<Weight>& weights) {
  for (const Weight& weight : weights) {
    if (!Fits(pattern, weight)) continue;
    const std::string reason =
        weight.obstacle.empty()
            ? "' trains itself, by train="
            : absl::StrCat(
                  "' can have no adapter, which needs a weight that only MatMul, Gemm or "
                  "Conv of one group reads: ",
                  weight.obstacle);
    return absl::InvalidArgumentError(
        absl::StrCat("--lora ", key, "=", pattern, ": '", weight.name, reason));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--lora ", key, "=", pattern, " fits no weight that trains, and no node that reads one",
      NearName(pattern, weights), "; of weights that can have an adapter ", NamesOf(weights)));
}

// The weights that one of the patterns fits, of those that `may` be chosen.
template <typename Predicate>
absl::StatusOr<std::set<std::string>> Choose(const char* key,
                                             const std::vector<std::string>& patterns,
                                             const std::vector<Weight>& weights, Predicate may) {
  std::set<std::string> chosen;
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (const Weight& weight : weights) {
      if (!may(weight) || !Fits(pattern, weight)) continue;
      chosen.insert(weight.name);
      any = true;
    }
    if (!any) return NothingFits(key, pattern, weights);
  }
  return chosen;
}

// The weights that have their adapters given, all of which must be among those that `may` have one.
template <typename Predicate>
absl::StatusOr<std::set<std::string>> ChooseGiven(const LoraSpec& spec,
                                                  const std::vector<Weight>& weights,
                                                  Predicate may) {
  std::set<std::string> chosen;
  for (const auto& [name, given] : spec.given) {
    const auto weight =
        std::find_if(weights.begin(), weights.end(),
                     [&name = name](const Weight& one) { return one.name == name; });
    if (weight == weights.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the weight '", name,
                       "' has an adapter in the file and does not train, so that it cannot have "
                       "one; graph_runner "
                       "inspect --parameters says why, --trainable PATTERN lets it train"));
    }
    if (!may(*weight)) return NothingFits("match", name, {*weight});
    chosen.insert(name);
  }
  return chosen;
}

// Adds one adapter, and reads it wherever its weight is read.
class AdapterPass {
 public:
  AdapterPass(Graph& graph, const LoraSpec& spec, uint64_t seed)
      : graph_(graph), spec_(spec), seed_(seed), builder_(graph) {}

  absl::StatusOr<LoraAdapter> Add(const Weight& weight) {
    const auto given = spec_.given.find(weight.name);
    const bool is_given = given != spec_.given.end();
    rank_ = is_given ? given->second.rank : spec_.rank;
    adapter_ = {weight.name, "", "", ReadingOf(graph_, weight.uses.front()) != Reading::kRows,
                is_given ? given->second.scale : spec_.scale()};
    WEFT_RETURN_IF_ERROR(AddVariables(weight));
    for (const Graph::Use& use : weight.uses) {
      WEFT_RETURN_IF_ERROR(AddPath(use.node, ReadingOf(graph_, use)));
    }
    return adapter_;
  }

 private:
  absl::Status AddVariables(const Weight& weight);
  absl::Status AddPath(NodeId id, Reading reading);
  ValueId Product(const Node& node, Reading reading, ValueId x);
  ValueId Scaled(ValueId x) {
    if (adapter_.scale == 1) return x;
    return builder_.Op("Mul", {x, builder_.Scalar(builder_.type(x).dtype, adapter_.scale)});
  }

  Graph& graph_;
  const LoraSpec& spec_;
  const uint64_t seed_;
  GraphBuilder builder_;
  LoraAdapter adapter_;
  int64_t rank_ = 0;
  // W is seen as [rows, columns]: what is added is scale left right.
  ValueId left_;   // [rows, r]
  ValueId right_;  // [r, columns...]
};

absl::Status AdapterPass::AddVariables(const Weight& weight) {
  const int64_t rows = weight.shape.dim(0);
  const int64_t columns = rows > 0 ? weight.shape.num_elements() / rows : 0;
  // What a file brings along has its rank, even a useless one.
  const int64_t rank = spec_.given.empty() ? std::min({rank_, rows, columns}) : rank_;
  std::vector<int64_t> left(weight.shape.dims().begin(), weight.shape.dims().end());
  std::vector<int64_t> right = left;
  std::fill(left.begin() + 1, left.end(), 1);
  left[1] = rank;
  right[0] = rank;
  Shape shape_a{adapter_.is_transposed ? right : left};
  Shape shape_b{adapter_.is_transposed ? left : right};
  const int64_t fan_in = adapter_.is_transposed ? columns : rows;

  WEFT_ASSIGN_OR_RETURN(Tensor drawn, Tensor::Allocate(DType::kFloat32, shape_a));
  const std::string name = absl::StrCat(weight.name, "/lora_A");
  const double deviation = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(fan_in, 1)));
  FillNormal(RandomKey(seed_, name), 0, 0, static_cast<float>(deviation),
             drawn.mutable_data<float>());
  WEFT_ASSIGN_OR_RETURN(Tensor initial, CastTensor(drawn, weight.dtype));
  const ValueId a = graph_.AddVariable(name, {ValueKind::kTensor, weight.dtype, shape_a},
                                       std::move(initial), /*trainable=*/true);
  const ValueId b = graph_.AddVariable(absl::StrCat(weight.name, "/lora_B"),
                                       {ValueKind::kTensor, weight.dtype, shape_b}, Tensor(),
                                       /*trainable=*/true);
  for (const auto& [value, suffix] : {std::pair(a, "/lora_A"), std::pair(b, "/lora_B")}) {
    for (Variable& variable : graph_.mutable_variables()) {
      if (variable.value != value) continue;
      for (const std::string& other : weight.other_names) {
        variable.other_names.push_back(absl::StrCat(other, suffix));
      }
    }
  }
  adapter_.a = graph_.value(a).name;
  adapter_.b = graph_.value(b).name;
  left_ = adapter_.is_transposed ? b : a;
  right_ = adapter_.is_transposed ? a : b;
  return absl::OkStatus();
}

ValueId AdapterPass::Product(const Node& node, Reading reading, ValueId x) {
  if (reading == Reading::kKernel) {
    Attributes window = node.attributes;
    return builder_.Op("Conv",
                       {Scaled(builder_.Op("Conv", {x, right_}, std::move(window))), left_});
  }
  if (node.op == "MatMul") {
    return builder_.Op("MatMul", {Scaled(builder_.Op("MatMul", {x, left_})), right_});
  }
  const int64_t flipped = reading == Reading::kColumns ? 1 : 0;
  const double alpha = node.attributes.Float("alpha", 1.0f) * adapter_.scale;
  const ValueId down = builder_.Op("Gemm", {x, flipped != 0 ? right_ : left_},
                                   {{"alpha", static_cast<float>(alpha)},
                                    {"transA", node.attributes.Int("transA", 0)},
                                    {"transB", flipped}});
  return builder_.Op("Gemm", {down, flipped != 0 ? left_ : right_}, {{"transB", flipped}});
}

absl::Status AdapterPass::AddPath(NodeId id, Reading reading) {
  const ValueId y = graph_.node(id).outputs.front();
  const std::string node_name = graph_.node(id).name;
  const std::string output = graph_.value(y).name;
  builder_.set_name_prefix(absl::StrCat(node_name, "/lora/"));
  builder_.set_origin({node_name, output, false});
  const ValueId product = Product(graph_.node(id), reading, graph_.node(id).inputs.front());
  const ValueId sum = builder_.Op("Add", {y, product});
  WEFT_RETURN_IF_ERROR(builder_.status());
  graph_.ReplaceUses(y, sum);
  graph_.node(graph_.value(sum).producer).inputs.front() = y;
  graph_.RenameValue(y, absl::StrCat(output, "/base"));
  graph_.RenameValue(sum, output);
  return absl::OkStatus();
}

// [rows, inner] times [inner, columns], in double.
std::vector<double> ProductOf(const std::vector<double>& left, const std::vector<double>& right,
                              int64_t rows, int64_t inner) {
  const int64_t columns = inner > 0 ? static_cast<int64_t>(right.size()) / inner : 0;
  std::vector<double> product(rows * columns);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < inner; ++k) {
      const double factor = left[row * inner + k];
      for (int64_t column = 0; column < columns; ++column) {
        product[row * columns + column] += factor * right[k * columns + column];
      }
    }
  }
  return product;
}

// The weight without its adapter.
absl::StatusOr<Tensor> BaseOf(const Graph& graph, const LoraAdapter& adapter) {
  const auto value = [&graph](const std::string& name) -> absl::StatusOr<Tensor> {
    const Variable* const variable = graph.FindVariable(name);
    if (variable != nullptr && variable->initial.valid()) return variable->initial;
    return absl::InternalError(absl::StrCat("the variable '", name, "' has no value"));
  };
  if (!adapter.quantized.has_value()) return value(adapter.weight);
  QuantizedWeight quantized;
  WEFT_ASSIGN_OR_RETURN(quantized.codes, value(adapter.quantized->codes));
  WEFT_ASSIGN_OR_RETURN(quantized.scales, value(adapter.quantized->scales));
  quantized.axis = adapter.quantized->axis;
  quantized.block = adapter.quantized->block;
  return DequantizeWeight(quantized);
}

absl::StatusOr<Tensor> Merged(const Tensor& base, const LoraAdapter& adapter, const Tensor& a,
                              const Tensor& b) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> left, ToDoubles(adapter.is_transposed ? b : a));
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> right, ToDoubles(adapter.is_transposed ? a : b));
  WEFT_ASSIGN_OR_RETURN(std::vector<double> sum, ToDoubles(base));
  const int64_t rows = base.shape().dim(0);
  const int64_t rank = rows > 0 ? static_cast<int64_t>(left.size()) / rows : 0;
  const std::vector<double> product = ProductOf(left, right, rows, rank);
  if (product.size() != sum.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the adapter of '", adapter.weight, "' is ", a.shape().ToString(), " and ",
                     b.shape().ToString(), ", which does not fit ", base.shape().ToString()));
  }
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += adapter.scale * product[i];
  return CastTensor(Tensor::Of<double>(base.shape(), sum), base.dtype());
}

}  // namespace

absl::StatusOr<LoraSpec> ParseLora(const std::vector<std::string>& items) {
  LoraSpec spec;
  for (const std::string& item : items) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(item, absl::MaxSplits('=', 1));
    const auto& [key, value] = parts;
    bool good = !value.empty();
    if (key == "rank") {
      good = absl::SimpleAtoi(value, &spec.rank) && spec.rank > 0 && spec.rank <= 65536;
    } else if (key == "alpha") {
      good = absl::SimpleAtod(value, &spec.alpha) && spec.alpha > 0 && spec.alpha < 1e6;
    } else if (key == "match") {
      spec.match.push_back(value);
    } else if (key == "train") {
      spec.train.push_back(value);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--lora ", item, ": unknown key '", key, "'",
                       DidYouMean(key, {"rank", "alpha", "match", "train"}),
                       "; expected rank=N,alpha=X,match=PATTERN,train=PATTERN"));
    }
    if (good) continue;
    return absl::InvalidArgumentError(absl::StrCat("--lora ", item, ": expected ",
                                                   key == "rank" ? "a whole number from 1 to 65536"
                                                   : key == "alpha" ? "a number above 0"
                                                                    : "a pattern",
                                                   " after ", key, "="));
  }
  return spec;
}

absl::StatusOr<std::vector<LoraAdapter>> AddAdapters(Graph& graph, const LoraSpec& spec,
                                                     uint64_t seed) {
  const std::vector<Weight> weights = TrainableWeights(graph);
  const std::vector<std::string> all = {"*"};
  WEFT_ASSIGN_OR_RETURN(const std::set<std::string> trained,
                        Choose("train", spec.train, weights, [](const Weight&) { return true; }));
  const auto may_adapt = [&trained](const Weight& weight) {
    return weight.obstacle.empty() && !trained.contains(weight.name);
  };
  std::set<std::string> adapted;
  if (spec.given.empty()) {
    WEFT_ASSIGN_OR_RETURN(
        adapted, Choose("match", spec.match.empty() ? all : spec.match, weights, may_adapt));
  } else {
    WEFT_ASSIGN_OR_RETURN(adapted, ChooseGiven(spec, weights, may_adapt));
  }
  for (Variable& variable : graph.mutable_variables()) {
    variable.trainable = trained.contains(variable.name);
  }
  AdapterPass pass(graph, spec, seed);
  std::vector<LoraAdapter> adapters;
  for (const Weight& weight : weights) {
    if (!adapted.contains(weight.name)) continue;
    WEFT_ASSIGN_OR_RETURN(LoraAdapter adapter, pass.Add(weight));
    adapters.push_back(std::move(adapter));
  }
  return adapters;
}

absl::StatusOr<std::map<std::string, Tensor>> MergeAdapters(
    const Graph& graph, const std::vector<LoraAdapter>& adapters,
    std::map<std::string, Tensor> values) {
  for (const LoraAdapter& adapter : adapters) {
    const auto a = values.find(adapter.a), b = values.find(adapter.b);
    if (a == values.end() || b == values.end()) continue;
    WEFT_ASSIGN_OR_RETURN(const Tensor base, BaseOf(graph, adapter));
    WEFT_ASSIGN_OR_RETURN(values[adapter.weight], Merged(base, adapter, a->second, b->second));
    values.erase(adapter.a);
    values.erase(adapter.b);
  }
  return values;
}

}  // namespace weft
