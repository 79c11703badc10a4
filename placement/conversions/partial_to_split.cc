// Partial -> Split: every rank gets its shard of the sum.
#include "placement/conversions/conversion.h"

namespace weft {
namespace {

class ReduceScatterConversion final : public Conversion {
 public:
  bool Applies(const AxisSharding& from, const AxisSharding& to) const override {
    return from.is_partial() && to.is_split();
  }
  double BytesSent(double bytes, int shards) const override {
    return bytes * (shards - 1) / shards;
  }
  absl::StatusOr<ValueId> Insert(const ConversionSite& site, const ShardedOperand& operand,
                                 const AxisSharding& to) const override {
    GraphBuilder builder = site.Builder();
    Attributes attributes = site.GroupAttributes();
    attributes.Set("dim", int64_t{to.axis});
    attributes.Set("blocks", to.blocks);
    attributes.Set("sizes", ShardSizes(operand.global, to, site.shards()));
    attributes.Set("index", int64_t{site.index});
    const ValueId shard = builder.WeftOp("ReduceScatter", {operand.local}, std::move(attributes));
    if (!builder.status().ok()) return builder.status();
    return shard;
  }
};

}  // namespace

const Conversion& PartialToSplit() {
  static const auto* const conversion = new ReduceScatterConversion();
  return *conversion;
}

}  // namespace weft
