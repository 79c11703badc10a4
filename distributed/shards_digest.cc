#include "distributed/shards_digest.h"

#include <cstddef>
#include <span>

#include "absl/strings/str_cat.h"
#include "platform/checksum.h"
#include "tensor/dtype.h"

namespace weft {

uint64_t ShardsDigest(const std::map<std::string, VariableShard>& shards) {
  if (shards.empty()) return 0;
  std::string text;
  for (const auto& [name, shard] : shards) {
    const AxisSharding& cut = shard.tensor_sharding;
    absl::StrAppend(&text, name.size(), ":", name, " ", static_cast<int>(shard.dtype), " ",
                    shard.global_shape.ToString(), " ", shard.local_shape.ToString(), " ");
    absl::StrAppend(&text, static_cast<int>(cut.kind), ",", cut.axis, ",", cut.blocks, " ",
                    shard.tensor_index, "/", shard.tensor_shards, " ");
    absl::StrAppend(&text, shard.data_index, "/", shard.data_shards, "\n");
  }
  return Checksum(std::as_bytes(std::span(text)));
}

}  // namespace weft
