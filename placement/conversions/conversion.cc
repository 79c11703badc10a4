#include "placement/conversions/conversion.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {

GraphBuilder ConversionSite::Builder() const {
  GraphBuilder builder(*graph);
  builder.set_phase(phase);
  builder.set_stage(stage);
  builder.set_origin(origin);
  builder.set_name_prefix(absl::StrCat(name, "/"));
  return builder;
}

Attributes ConversionSite::GroupAttributes() const {
  Attributes attributes;
  attributes.Set("axis", std::string(MeshAxisName(axis)));
  attributes.Set("group", group);
  return attributes;
}

const Conversion* FindConversion(const AxisSharding& from, const AxisSharding& to) {
  if (from == to) return nullptr;
  for (const Conversion* conversion :
       {&PartialToReplicated(), &SplitToReplicated(), &PartialToSplit(), &ReplicatedToSplit(),
        &SplitToSplit(), &SplitToOtherBlocks()}) {
    if (conversion->Applies(from, to)) return conversion;
  }
  return nullptr;
}

double ConversionBytes(double bytes, int shards, const AxisSharding& from, const AxisSharding& to) {
  if (from == to) return 0;
  const Conversion* conversion = FindConversion(from, to);
  if (conversion == nullptr) return std::numeric_limits<double>::infinity();
  return conversion->BytesSent(bytes, shards);
}

absl::StatusOr<ValueId> ConvertSharding(const ConversionSite& site, const ShardedOperand& operand,
                                        const AxisSharding& to) {
  if (operand.sharding == to) return operand.local;
  const Conversion* conversion = FindConversion(operand.sharding, to);
  if (conversion == nullptr) {
    return absl::InternalError(absl::StrCat("value '", site.graph->value(operand.local).name,
                                            "': there is no conversion from ",
                                            operand.sharding.ToString(), " to ", to.ToString()));
  }
  WEFT_ASSIGN_OR_RETURN(const ValueId result, conversion->Insert(site, operand, to));
  site.graph->RenameValue(result, site.name);
  return result;
}

std::vector<int64_t> ShardSizes(const Shape& global, const AxisSharding& sharding, int shards) {
  std::vector<int64_t> sizes;
  const int64_t rest = global.dim(sharding.axis) / sharding.blocks;
  for (int shard = 0; shard < shards; ++shard) {
    sizes.push_back(AxisSharding::ShardRange(rest, shards, shard).count);
  }
  return sizes;
}

}  // namespace weft
