// Split -> Split of the same axis in other blocks: gathers the whole, then keeps the other shard of
// it.
#include "absl/strings/str_cat.h"
#include "placement/conversions/conversion.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class RegroupConversion final : public Conversion {
 public:
  bool Applies(const AxisSharding& from, const AxisSharding& to) const override {
    return from.is_split() && to.is_split() && from.axis == to.axis;
  }
  double BytesSent(double bytes, int shards) const override {
    return SplitToReplicated().BytesSent(bytes, shards);
  }
  absl::StatusOr<ValueId> Insert(const ConversionSite& site, const ShardedOperand& operand,
                                 const AxisSharding& to) const override {
    ConversionSite gather = site;
    gather.name = absl::StrCat(site.name, "/gathered");
    const AxisSharding whole = AxisSharding::Replicated();
    WEFT_ASSIGN_OR_RETURN(const ValueId gathered, ConvertSharding(gather, operand, whole));
    return ReplicatedToSplit().Insert(site, {gathered, operand.global, whole}, to);
  }
};

}  // namespace

const Conversion& SplitToOtherBlocks() {
  static const auto* const conversion = new RegroupConversion();
  return *conversion;
}

}  // namespace weft
