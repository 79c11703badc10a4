// Split -> Replicated: every rank gets the shards of all.
#include "placement/conversions/conversion.h"

namespace weft {
namespace {

class AllGatherConversion final : public Conversion {
 public:
  bool Applies(const AxisSharding& from, const AxisSharding& to) const override {
    return from.is_split() && to.is_replicated();
  }
  double BytesSent(double bytes, int shards) const override {
    return bytes * (shards - 1) / shards;
  }
  absl::StatusOr<ValueId> Insert(const ConversionSite& site, const ShardedOperand& operand,
                                 const AxisSharding&) const override {
    GraphBuilder builder = site.Builder();
    Attributes attributes = site.GroupAttributes();
    attributes.Set("dim", int64_t{operand.sharding.axis});
    attributes.Set("blocks", operand.sharding.blocks);
    attributes.Set("sizes", ShardSizes(operand.global, operand.sharding, site.shards()));
    attributes.Set("index", int64_t{site.index});
    const ValueId whole = builder.WeftOp("AllGather", {operand.local}, std::move(attributes));
    if (!builder.status().ok()) return builder.status();
    return whole;
  }
};

}  // namespace

const Conversion& SplitToReplicated() {
  static const auto* const conversion = new AllGatherConversion();
  return *conversion;
}

}  // namespace weft
