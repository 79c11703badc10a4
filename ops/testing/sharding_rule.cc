#include "ops/testing/sharding_rule.h"

#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "ops/testing/test_tensors.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

// An axis seen as outer x blocks x rest x inner bytes, of which one shard owns rows of `rest`.
struct ShardView {
  int64_t outer = 1;
  int64_t blocks = 1;
  int64_t rest = 1;
  int64_t inner_bytes = 1;
  AxisSharding::Range range;

  ShardView(DType dtype, const Shape& global, const AxisSharding& sharding, int shards, int index) {
    const int axis = sharding.axis;
    outer = global.ProductOf(0, axis);
    blocks = sharding.blocks;
    rest = global.dim(axis) / blocks;
    inner_bytes = DTypeBytes(dtype, global.ProductOf(axis + 1, global.rank()));
    range = AxisSharding::ShardRange(rest, shards, index);
  }

  // Copies each row group between the global tensor and the shard; fn(global, local, bytes).
  template <typename Fn>
  void ForEachRun(Fn fn) const {
    for (int64_t group = 0; group < outer * blocks; ++group) {
      fn((group * rest + range.first) * inner_bytes, group * range.count * inner_bytes,
         range.count * inner_bytes);
    }
  }
};

absl::StatusOr<Tensor> AddTensors(const Tensor& a, const Tensor& b) {
  WEFT_ASSIGN_OR_RETURN(std::vector<double> sum, ToDoubles(a));
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> addend, ToDoubles(b));
  if (!(a.shape() == b.shape())) {
    return absl::InternalError(absl::StrCat("partial results have the shapes ",
                                            a.shape().ToString(), " and ", b.shape().ToString()));
  }
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
  return CastTensor(Tensor::Of<double>(a.shape(), sum), a.dtype());
}

// What the schema's localize function sees of one shard.
class ShardLocalizer final : public LocalizeContext {
 public:
  ShardLocalizer(Node& local, const ConcreteNode& global, std::vector<Tensor>& inputs,
                 std::vector<Shape> output_shapes)
      : local_(local),
        global_(global),
        inputs_(inputs),
        local_output_shapes_(std::move(output_shapes)) {
    for (const Tensor& input : inputs) local_input_shapes_.push_back(input.shape());
  }
  const Node& node() const override { return global_.node(); }
  const Shape& GlobalInputShape(int i) const override { return global_.InputShape(i); }
  const Shape& GlobalOutputShape(int i) const override { return global_.OutputShape(i); }
  const Shape& LocalInputShape(int i) const override { return local_input_shapes_[i]; }
  const Shape& LocalOutputShape(int i) const override { return local_output_shapes_[i]; }
  const Tensor* InputValue(int i) const override { return global_.InputValue(i); }
  void SetAttribute(const std::string& name, Attribute value) override {
    local_.attributes.Set(name, std::move(value));
  }
  void SetConstantInput(int i, Tensor value) override { inputs_[i] = std::move(value); }

 private:
  Node& local_;
  const ConcreteNode& global_;
  std::vector<Tensor>& inputs_;
  std::vector<Shape> local_input_shapes_;
  std::vector<Shape> local_output_shapes_;
};

OperandSlice SliceOf(const Shape& global, const AxisSharding& sharding, int shards, int index) {
  OperandSlice slice{global, std::vector<int64_t>(global.rank(), 0)};
  if (sharding.is_split()) {
    const int64_t rest = global.dim(sharding.axis) / sharding.blocks;
    slice.offset[sharding.axis] = AxisSharding::ShardRange(rest, shards, index).first;
  }
  return slice;
}

// The check of one op.
class ShardingCheck {
 public:
  ShardingCheck(const OpCase& op_case, const ShardingRuleOptions& options)
      : case_(op_case), options_(options), single_(MakeSingleNodeGraph(case_)) {}

  absl::Status Run() {
    const Node& node = single_.graph->node(single_.node);
    if (node.schema == nullptr || !node.schema->sharding()) {
      return absl::NotFoundError("the op has no sharding rule");
    }
    WEFT_ASSIGN_OR_RETURN(global_, MakeConcrete(node, case_.inputs));
    WEFT_ASSIGN_OR_RETURN(expected_, global_->Run());
    WEFT_ASSIGN_OR_RETURN(rule_, node.schema->sharding()(*global_));
    WEFT_RETURN_IF_ERROR(CheckFactors());
    int splits = 0;
    for (int factor = 0; factor < static_cast<int>(rule_.factors.size()); ++factor) {
      for (const int shards : {2, 3}) {
        WEFT_ASSIGN_OR_RETURN(const bool tried, CheckSplit(factor, shards));
        if (tried) ++splits;
      }
    }
    if (splits < options_.min_splits) {
      return absl::InternalError(
          absl::StrCat("only ", splits, " splits could be tried, expected ", options_.min_splits));
    }
    for (const std::vector<int>& set : rule_.linear) {
      WEFT_RETURN_IF_ERROR(CheckLinear(set));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::unique_ptr<ConcreteNode>> MakeConcrete(const Node& node,
                                                             std::vector<Tensor> inputs,
                                                             NodeRunOptions options = {}) const {
    options.registry = options_.registry;
    WEFT_ASSIGN_OR_RETURN(ConcreteNode concrete,
                          ConcreteNode::Create(node, std::move(inputs), std::move(options)));
    return std::make_unique<ConcreteNode>(std::move(concrete));
  }

  absl::Status CheckOperand(const char* kind, int i, const Shape& shape,
                            const OperandFactors& operand) const {
    if (static_cast<int>(operand.dims.size()) != shape.rank()) {
      return absl::InternalError(absl::StrCat("the rule gives ", kind, " ", i, " ",
                                              operand.dims.size(), " dimensions, its shape is ",
                                              shape.ToString()));
    }
    for (int d = 0; d < shape.rank(); ++d) {
      int64_t product = 1;
      for (const int factor : operand.dims[d]) product *= rule_.factors[factor].size;
      if (product != shape.dim(d)) {
        return absl::InternalError(absl::StrCat("the factors of axis ", d, " of ", kind, " ", i,
                                                " multiply to ", product, ", its shape is ",
                                                shape.ToString()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckFactors() const {
    if (static_cast<int>(rule_.inputs.size()) != global_->num_inputs() ||
        static_cast<int>(rule_.outputs.size()) != global_->num_outputs()) {
      return absl::InternalError(absl::StrCat("the rule has ", rule_.inputs.size(), " inputs and ",
                                              rule_.outputs.size(), " outputs"));
    }
    for (int i = 0; i < global_->num_inputs(); ++i) {
      if (!global_->HasInput(i)) continue;
      WEFT_RETURN_IF_ERROR(CheckOperand("input", i, global_->InputShape(i), rule_.inputs[i]));
    }
    for (int i = 0; i < global_->num_outputs(); ++i) {
      if (!global_->HasOutput(i)) continue;
      WEFT_RETURN_IF_ERROR(CheckOperand("output", i, global_->OutputShape(i), rule_.outputs[i]));
    }
    return absl::OkStatus();
  }

  // How each operand lies when the factor is split; nullopt when one of them cannot be.
  std::optional<std::vector<AxisSharding>> Shardings(const std::vector<OperandFactors>& operands,
                                                     int factor, int shards) const {
    std::vector<AxisSharding> shardings;
    for (const OperandFactors& operand : operands) {
      const std::optional<AxisSharding> sharding = ShardingOfFactor(rule_, operand, factor, shards);
      if (!sharding.has_value()) return std::nullopt;
      shardings.push_back(*sharding);
    }
    return shardings;
  }

  // False when the factor is not one to split.
  absl::StatusOr<bool> CheckSplit(int factor, int shards) {
    const FactorKind kind = rule_.factors[factor].kind;
    if (kind != FactorKind::kParallel && kind != FactorKind::kSum) return false;
    const auto inputs = Shardings(rule_.inputs, factor, shards);
    const auto outputs = Shardings(rule_.outputs, factor, shards);
    if (!inputs.has_value() || !outputs.has_value()) return false;
    std::vector<Tensor> whole(expected_.size());
    for (int index = 0; index < shards; ++index) {
      const absl::StatusOr<std::vector<Tensor>> local = RunShard(*inputs, *outputs, shards, index);
      if (!local.ok()) {
        return absl::Status(local.status().code(),
                            absl::StrCat("shard ", index, " of ", shards, " of factor ", factor,
                                         ": ", std::string(local.status().message())));
      }
      for (size_t i = 0; i < whole.size(); ++i) {
        if (!expected_[i].valid()) continue;
        WEFT_RETURN_IF_ERROR(Merge((*local)[i], (*outputs)[i], kind, shards, index, i, whole[i]));
      }
    }
    WEFT_RETURN_IF_ERROR(
        Compare(whole, absl::StrCat("with factor ", factor, " on ", shards, " shards")));
    return true;
  }

  absl::StatusOr<std::vector<Tensor>> RunShard(const std::vector<AxisSharding>& inputs,
                                               const std::vector<AxisSharding>& outputs, int shards,
                                               int index) {
    std::vector<Tensor> local_inputs;
    NodeRunOptions run;
    for (int i = 0; i < global_->num_inputs(); ++i) {
      WEFT_ASSIGN_OR_RETURN(local_inputs.emplace_back(),
                            SliceOfShard(case_.inputs[i], inputs[i], shards, index));
      run.input_slices.push_back(SliceOf(global_->InputShape(i), inputs[i], shards, index));
    }
    std::vector<Shape> local_outputs;
    for (int i = 0; i < global_->num_outputs(); ++i) {
      local_outputs.push_back(outputs[i].LocalShape(global_->OutputShape(i), shards, index));
      run.output_slices.push_back(SliceOf(global_->OutputShape(i), outputs[i], shards, index));
    }
    Node local = global_->node();
    ShardLocalizer localizer(local, *global_, local_inputs, local_outputs);
    if (local.schema->localize()) WEFT_RETURN_IF_ERROR(local.schema->localize()(localizer));
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<ConcreteNode> node,
                          MakeConcrete(local, local_inputs, std::move(run)));
    for (int i = 0; i < node->num_outputs(); ++i) {
      if (node->HasOutput(i) && !(node->OutputShape(i) == local_outputs[i])) {
        return absl::InternalError(absl::StrCat("output ", i, " has the shape ",
                                                node->OutputShape(i).ToString(), ", expected ",
                                                local_outputs[i].ToString()));
      }
    }
    return node->Run();
  }

  // Adds one shard's output to the whole.
  absl::Status Merge(const Tensor& local, const AxisSharding& sharding, FactorKind kind, int shards,
                     int index, size_t output, Tensor& whole) const {
    const Tensor& expected = expected_[output];
    if (sharding.is_split()) {
      if (!whole.valid()) {
        WEFT_ASSIGN_OR_RETURN(whole, Tensor::Zeros(expected.dtype(), expected.shape()));
      }
      const ShardView view(expected.dtype(), expected.shape(), sharding, shards, index);
      view.ForEachRun([&](int64_t global, int64_t from, int64_t bytes) {
        if (bytes == 0) return;
        std::memcpy(static_cast<char*>(whole.raw_data()) + global,
                    static_cast<const char*>(local.raw_data()) + from, bytes);
      });
      return absl::OkStatus();
    }
    if (kind == FactorKind::kParallel) {  // replicated: each shard has all of it
      const absl::Status near = Near(local, expected);
      if (!near.ok()) {
        return absl::InternalError(absl::StrCat("output ", output, " should be the same on shard ",
                                                index, ": ", std::string(near.message())));
      }
      whole = local;
      return absl::OkStatus();
    }
    if (!whole.valid()) {
      whole = local;
      return absl::OkStatus();
    }
    WEFT_ASSIGN_OR_RETURN(whole, AddTensors(whole, local));
    return absl::OkStatus();
  }

  absl::Status Near(const Tensor& actual, const Tensor& expected) const {
    return CompareTensors(actual, expected,
                          Tolerance{.of_magnitude = options_.tolerance, .absolute = 1e-14});
  }

  absl::Status Compare(const std::vector<Tensor>& whole, const std::string& how) const {
    for (size_t i = 0; i < whole.size(); ++i) {
      if (!expected_[i].valid()) continue;
      const absl::Status near = Near(whole[i], expected_[i]);
      if (near.ok()) continue;
      return absl::InternalError(
          absl::StrCat("output ", i, " ", how, ": ", std::string(near.message())));
    }
    return absl::OkStatus();
  }

  absl::Status CheckLinear(const std::vector<int>& set) {
    std::vector<Tensor> first = case_.inputs;
    std::vector<Tensor> second = case_.inputs;
    for (const int i : set) {
      const Tensor& input = case_.inputs[i];
      if (!input.valid()) continue;
      first[i] = RandomTensor(input.shape(), 7 + i, -2, 2, input.dtype());
      WEFT_ASSIGN_OR_RETURN(std::vector<double> rest, ToDoubles(input));
      WEFT_ASSIGN_OR_RETURN(const std::vector<double> taken, ToDoubles(first[i]));
      for (size_t k = 0; k < rest.size(); ++k) rest[k] -= taken[k];
      WEFT_ASSIGN_OR_RETURN(second[i],
                            CastTensor(Tensor::Of<double>(input.shape(), rest), input.dtype()));
    }
    WEFT_ASSIGN_OR_RETURN(const auto one, MakeConcrete(global_->node(), std::move(first)));
    WEFT_ASSIGN_OR_RETURN(const auto two, MakeConcrete(global_->node(), std::move(second)));
    WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> one_outputs, one->Run());
    WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> two_outputs, two->Run());
    std::vector<Tensor> sums(expected_.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      if (!expected_[i].valid()) continue;
      WEFT_ASSIGN_OR_RETURN(sums[i], AddTensors(one_outputs[i], two_outputs[i]));
    }
    return Compare(sums, "as the sum over two addends of a linear set");
  }

  OpCase case_;
  ShardingRuleOptions options_;
  SingleNodeGraph single_;
  std::unique_ptr<ConcreteNode> global_;
  std::vector<Tensor> expected_;
  FactorRule rule_;
};

}  // namespace

absl::StatusOr<Tensor> SliceOfShard(const Tensor& tensor, const AxisSharding& sharding, int shards,
                                    int index) {
  if (!tensor.valid() || !sharding.is_split()) return tensor;
  WEFT_RETURN_IF_ERROR(sharding.Validate(tensor.shape()));
  WEFT_ASSIGN_OR_RETURN(
      Tensor slice,
      Tensor::Allocate(tensor.dtype(), sharding.LocalShape(tensor.shape(), shards, index)));
  const ShardView view(tensor.dtype(), tensor.shape(), sharding, shards, index);
  view.ForEachRun([&](int64_t global, int64_t local, int64_t bytes) {
    if (bytes == 0) return;
    std::memcpy(static_cast<char*>(slice.raw_data()) + local,
                static_cast<const char*>(tensor.raw_data()) + global, bytes);
  });
  return slice;
}

absl::Status CheckShardingRule(const OpCase& op_case, const ShardingRuleOptions& options) {
  return ShardingCheck(op_case, options).Run();
}

}  // namespace weft::testing
