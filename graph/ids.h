// Distinct integer types for things that must not be mixed up.
#ifndef WEFT_GRAPH_IDS_H_
#define WEFT_GRAPH_IDS_H_

#include <compare>
#include <cstdint>
#include <utility>

namespace weft {

// A 32-bit index with a tag. Negative = none.
template <typename Tag>
struct Id {
  int32_t value = -1;
  constexpr Id() = default;
  constexpr explicit Id(int32_t v) : value(v) {}
  constexpr bool valid() const { return value >= 0; }
  friend constexpr auto operator<=>(const Id&, const Id&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Id& id) {
    return H::combine(std::move(h), id.value);
  }
};

using NodeId = Id<struct NodeTag>;
using ValueId = Id<struct ValueTag>;      // an edge of a graph: one producer, any number of users
using RankId = Id<struct RankTag>;        // a worker process (one device each) in the plan
using StageId = Id<struct StageTag>;      // a pipeline stage
using ChannelId = Id<struct ChannelTag>;  // a point-to-point tensor edge between two ranks

// "No value": an omitted optional input or an unused optional output.
inline constexpr ValueId kNoValue{};

}  // namespace weft

#endif  // WEFT_GRAPH_IDS_H_
