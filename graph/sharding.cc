#include "graph/sharding.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace weft {

std::string_view MeshAxisName(MeshAxis axis) {
  switch (axis) {
    case MeshAxis::kData:
      return "data";
    case MeshAxis::kTensor:
      return "tensor";
    case MeshAxis::kPipeline:
      return "pipeline";
  }
  return "unknown";
}

AxisSharding::Range AxisSharding::ShardRange(int64_t size, int shards, int index) {
  const int64_t base = size / shards;
  const int64_t extra = size % shards;
  return {index * base + std::min<int64_t>(index, extra), base + (index < extra ? 1 : 0)};
}

absl::Status AxisSharding::Validate(const Shape& global) const {
  if (!is_split()) return absl::OkStatus();
  if (axis < 0 || axis >= global.rank()) {
    return absl::InvalidArgumentError(absl::StrCat("sharding ", ToString(), " splits axis ", axis,
                                                   " of a value of shape ", global.ToString(),
                                                   ", which has axes 0 to ", global.rank() - 1));
  }
  if (blocks < 1 || global.dim(axis) % blocks != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sharding ", ToString(), " sees axis ", axis, " of shape ", global.ToString(), " as ",
        blocks, " equal blocks, and ", blocks, " does not divide ", global.dim(axis)));
  }
  return absl::OkStatus();
}

Shape AxisSharding::LocalShape(const Shape& global, int shards, int index) const {
  Shape local = global;
  if (is_split()) {
    local.set_dim(axis, blocks * ShardRange(global.dim(axis) / blocks, shards, index).count);
  }
  return local;
}

std::string AxisSharding::ToString() const {
  switch (kind) {
    case Kind::kReplicated:
      return "R";
    case Kind::kPartial:
      return "P";
    case Kind::kSplit:
      break;
  }
  return blocks == 1 ? absl::StrCat("S(", axis, ")")
                     : absl::StrCat("S(", axis, ",blocks=", blocks, ")");
}

absl::StatusOr<AxisSharding> AxisSharding::Parse(const std::string& text) {
  if (text == "R") return Replicated();
  if (text == "P") return Partial();
  absl::string_view rest = text;
  int axis = 0;
  int64_t blocks = 1;
  bool good = absl::ConsumePrefix(&rest, "S(") && absl::ConsumeSuffix(&rest, ")");
  const size_t comma = rest.find(',');
  if (good && comma != absl::string_view::npos) {
    absl::string_view tail = rest.substr(comma + 1);
    good = absl::ConsumePrefix(&tail, "blocks=") && absl::SimpleAtoi(tail, &blocks) && blocks >= 1;
    rest = rest.substr(0, comma);
  }
  good = good && absl::SimpleAtoi(rest, &axis) && axis >= 0;
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat("sharding '", text, "' is none of R, P, S(axis) and S(axis,blocks=n)"));
  }
  return Split(axis, blocks);
}

std::string Sharding::ToString() const {
  std::string text;
  for (int axis = 0; axis < kMeshAxes; ++axis) {
    if (axes[axis].is_replicated()) continue;
    const std::string_view name = MeshAxisName(static_cast<MeshAxis>(axis));
    absl::StrAppend(&text, text.empty() ? "" : " ", std::string(name), "=", axes[axis].ToString());
  }
  return text.empty() ? "R" : text;
}

namespace {

struct FactorPosition {
  int axis = 0;
  int64_t major = 1;  // product of the sizes before it
  int64_t minor = 1;  // product of the sizes after it
};

// Every place where the factor stands.
std::vector<FactorPosition> FindFactor(const FactorRule& rule, const OperandFactors& operand,
                                       int factor) {
  std::vector<FactorPosition> found;
  for (size_t axis = 0; axis < operand.dims.size(); ++axis) {
    const std::vector<int>& dim = operand.dims[axis];
    for (size_t p = 0; p < dim.size(); ++p) {
      if (dim[p] != factor) continue;
      FactorPosition position;
      position.axis = static_cast<int>(axis);
      for (size_t i = 0; i < p; ++i) position.major *= rule.factors[dim[i]].size;
      for (size_t i = p + 1; i < dim.size(); ++i) position.minor *= rule.factors[dim[i]].size;
      found.push_back(position);
    }
  }
  return found;
}

}  // namespace

std::optional<AxisSharding> ShardingOfFactor(const FactorRule& rule, const OperandFactors& operand,
                                             int factor, int shards) {
  const Factor& split = rule.factors[factor];
  if (split.kind == FactorKind::kWhole || split.kind == FactorKind::kWindow) return std::nullopt;
  const std::vector<FactorPosition> found = FindFactor(rule, operand, factor);
  if (found.empty()) return AxisSharding::Replicated();
  // On a diagonal (the factor twice) no one split describes the shard.
  if (found.size() > 1) return std::nullopt;
  const FactorPosition& position = found.front();
  // The dimension is major x size x minor. Seen as `major` blocks, the rest (size x minor) is
  // split: that cuts between elements of the factor only when the shards are even or minor is one.
  if (position.minor != 1 && split.size % shards != 0) return std::nullopt;
  return AxisSharding::Split(position.axis, position.major);
}

FactorRule WholeRule(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs) {
  FactorRule rule;
  const auto add_operand = [&rule](const Shape& shape) {
    OperandFactors operand;
    for (const int64_t size : shape.dims()) {
      operand.dims.push_back({static_cast<int>(rule.factors.size())});
      rule.factors.push_back({size, FactorKind::kWhole});
    }
    return operand;
  };
  for (const Shape& shape : inputs) rule.inputs.push_back(add_operand(shape));
  for (const Shape& shape : outputs) rule.outputs.push_back(add_operand(shape));
  return rule;
}

}  // namespace weft
