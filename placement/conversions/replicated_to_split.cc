// Replicated -> Split: every rank keeps its shard of what it has.
#include "placement/conversions/conversion.h"

namespace weft {
namespace {

std::vector<int64_t> Dims(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

class SliceConversion final : public Conversion {
 public:
  bool Applies(const AxisSharding& from, const AxisSharding& to) const override {
    return from.is_replicated() && to.is_split();
  }
  double BytesSent(double, int) const override { return 0; }
  absl::StatusOr<ValueId> Insert(const ConversionSite& site, const ShardedOperand& operand,
                                 const AxisSharding& to) const override {
    GraphBuilder builder = site.Builder();
    const int64_t rest = operand.global.dim(to.axis) / to.blocks;
    const auto range = AxisSharding::ShardRange(rest, site.shards(), site.index);
    const auto slice = [&](ValueId value, int64_t axis) {
      return builder.Op("Slice", {value, builder.Ints({range.first}),
                                  builder.Ints({range.first + range.count}), builder.Ints({axis})});
    };
    ValueId shard = kNoValue;
    if (to.blocks == 1) {
      shard = slice(operand.local, to.axis);
    } else {
      // The dimension as (blocks, rest), cut along rest.
      std::vector<int64_t> apart = Dims(operand.global);
      apart[to.axis] = rest;
      apart.insert(apart.begin() + to.axis, to.blocks);
      const ValueId split =
          slice(builder.Op("Reshape", {operand.local, builder.Ints(apart)}), to.axis + 1);
      const Shape local = to.LocalShape(operand.global, site.shards(), site.index);
      shard = builder.Op("Reshape", {split, builder.Ints(Dims(local))});
    }
    if (!builder.status().ok()) return builder.status();
    return shard;
  }
};

}  // namespace

const Conversion& ReplicatedToSplit() {
  static const auto* const conversion = new SliceConversion();
  return *conversion;
}

}  // namespace weft
