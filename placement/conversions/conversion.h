// Conversions: how a value changes its sharding along a mesh axis. One file per legal conversion.
// Internal to placement/.
#ifndef WEFT_PLACEMENT_CONVERSIONS_CONVERSION_H_
#define WEFT_PLACEMENT_CONVERSIONS_CONVERSION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/graph_builder.h"
#include "graph/sharding.h"

namespace weft {

// Where a conversion's nodes go, and for which rank.
struct ConversionSite {
  Graph* graph = nullptr;  // of one rank, local shapes
  Phase phase = Phase::kForward;
  StageId stage;
  Origin origin;
  std::string name;  // of the converted value, and in front of the nodes' names
  MeshAxis axis = MeshAxis::kTensor;
  std::vector<int64_t> group;  // ranks of this rank's group along the axis, in order
  std::vector<int64_t> hosts;  // of each; empty: all on one
  int index = 0;               // this rank's position in it

  int shards() const { return static_cast<int>(group.size()); }
  GraphBuilder Builder() const;
  // "axis" and "group", which all collectives have.
  Attributes GroupAttributes() const;
};

// A value before its conversion.
struct ShardedOperand {
  ValueId local;  // this rank's shard, in the site's graph
  Shape global;   // what the ranks of the group have together
  AxisSharding sharding;
};

// Stateless, lives for ever.
class Conversion {
 public:
  virtual ~Conversion() = default;
  virtual bool Applies(const AxisSharding& from, const AxisSharding& to) const = 0;
  // About the bytes that each rank sends for a tensor of `bytes`: to compare shardings. What a node
  // sends is counted by graph/schedule/node_collective.h.
  virtual double BytesSent(double bytes, int shards) const = 0;
  // Adds the nodes; returns this rank's part of the converted value.
  virtual absl::StatusOr<ValueId> Insert(const ConversionSite& site, const ShardedOperand& operand,
                                         const AxisSharding& to) const = 0;
};

const Conversion& PartialToReplicated();  // AllReduce
const Conversion& SplitToReplicated();    // AllGather
const Conversion& PartialToSplit();       // ReduceScatter
const Conversion& ReplicatedToSplit();    // a slice, no communication
const Conversion& SplitToSplit();         // AllToAll, between two axes
const Conversion& SplitToOtherBlocks();   // AllGather, then a slice: one axis, other blocks

// Null when `from` and `to` are equal; nothing becomes Partial, which is an error of the caller.
const Conversion* FindConversion(const AxisSharding& from, const AxisSharding& to);
// What each rank sends to convert; infinite when there is no conversion.
double ConversionBytes(double bytes, int shards, const AxisSharding& from, const AxisSharding& to);
// The operand itself when it already lies as hinted. Internal when there is no conversion.
absl::StatusOr<ValueId> ConvertSharding(const ConversionSite& site, const ShardedOperand& operand,
                                        const AxisSharding& to);

// What each of the shards has of the split dimension's rest: the attribute "sizes" of the
// collectives.
std::vector<int64_t> ShardSizes(const Shape& global, const AxisSharding& sharding, int shards);

}  // namespace weft

#endif  // WEFT_PLACEMENT_CONVERSIONS_CONVERSION_H_
