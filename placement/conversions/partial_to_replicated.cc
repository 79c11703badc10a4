// Partial -> Replicated: every rank gets the sum of all.
#include "placement/conversions/conversion.h"

namespace weft {
namespace {

class AllReduceConversion final : public Conversion {
 public:
  bool Applies(const AxisSharding& from, const AxisSharding& to) const override {
    return from.is_partial() && to.is_replicated();
  }
  double BytesSent(double bytes, int shards) const override {
    return 2 * bytes * (shards - 1) / shards;
  }
  absl::StatusOr<ValueId> Insert(const ConversionSite& site, const ShardedOperand& operand,
                                 const AxisSharding&) const override {
    GraphBuilder builder = site.Builder();
    Attributes attributes = site.GroupAttributes();
    attributes.Set("algorithm", std::string("auto"));
    if (!site.hosts.empty()) attributes.Set("hosts", site.hosts);
    const ValueId sum = builder.WeftOp("AllReduce", {operand.local}, std::move(attributes));
    if (!builder.status().ok()) return builder.status();
    return sum;
  }
};

}  // namespace

const Conversion& PartialToReplicated() {
  static const auto* const conversion = new AllReduceConversion();
  return *conversion;
}

}  // namespace weft
