#include "placement/sharding/tensor_shard.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {

absl::StatusOr<Tensor> ShardOfTensor(const Tensor& whole, const AxisSharding& sharding, int shards,
                                     int index) {
  if (!sharding.is_split()) return whole;
  const Shape& global = whole.shape();
  const int bits = DTypeBits(whole.dtype());
  if (bits < 8) {
    return absl::UnimplementedError(absl::StrCat(
        "a tensor of ", std::string(DTypeName(whole.dtype())), " cannot be split over ranks"));
  }
  const int64_t rest = global.dim(sharding.axis) / sharding.blocks;
  const auto range = AxisSharding::ShardRange(rest, shards, index);
  WEFT_ASSIGN_OR_RETURN(
      Tensor shard, Tensor::Allocate(whole.dtype(), sharding.LocalShape(global, shards, index)));
  const int64_t row = global.ProductOf(sharding.axis + 1, global.rank()) * (bits / 8);
  const int64_t pieces = global.ProductOf(0, sharding.axis) * sharding.blocks;
  const char* from = static_cast<const char*>(whole.raw_data()) + range.first * row;
  char* to = static_cast<char*>(shard.raw_data());
  for (int64_t piece = 0; piece < pieces && range.count * row > 0; ++piece) {
    std::memcpy(to + piece * range.count * row, from + piece * rest * row, range.count * row);
  }
  return shard;
}

}  // namespace weft
