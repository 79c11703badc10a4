// Split -> Split of another axis: every rank gives each other one what both shards share.
#include "placement/conversions/conversion.h"

namespace weft {
namespace {

class AllToAllConversion final : public Conversion {
 public:
  bool Applies(const AxisSharding& from, const AxisSharding& to) const override {
    return from.is_split() && to.is_split() && from.axis != to.axis;
  }
  double BytesSent(double bytes, int shards) const override {
    return bytes / shards * (shards - 1) / shards;
  }
  absl::StatusOr<ValueId> Insert(const ConversionSite& site, const ShardedOperand& operand,
                                 const AxisSharding& to) const override {
    GraphBuilder builder = site.Builder();
    Attributes attributes = site.GroupAttributes();
    attributes.Set("dim", int64_t{operand.sharding.axis});
    attributes.Set("blocks", operand.sharding.blocks);
    attributes.Set("sizes", ShardSizes(operand.global, operand.sharding, site.shards()));
    attributes.Set("split_dim", int64_t{to.axis});
    attributes.Set("split_blocks", to.blocks);
    attributes.Set("split_sizes", ShardSizes(operand.global, to, site.shards()));
    attributes.Set("index", int64_t{site.index});
    const ValueId shard = builder.WeftOp("AllToAll", {operand.local}, std::move(attributes));
    if (!builder.status().ok()) return builder.status();
    return shard;
  }
};

}  // namespace

const Conversion& SplitToSplit() {
  static const auto* const conversion = new AllToAllConversion();
  return *conversion;
}

}  // namespace weft
