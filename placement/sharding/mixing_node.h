// MixingNode: a node that mixes the samples of a batch.
#ifndef WEFT_PLACEMENT_SHARDING_MIXING_NODE_H_
#define WEFT_PLACEMENT_SHARDING_MIXING_NODE_H_

#include <string>

namespace weft {

// A node whose results for one sample, or for the sum over all, depend on the other samples.
struct MixingNode {
  std::string node;
  std::string op;      // "BatchNormalization", "ai.weft::RunningTerm"
  std::string reason;  // what it does, after its name: "computes statistics over ..."
  // It can be computed by replicas that have one micro-batch each (OpSchema::whole_batch).
  bool sums_over_replicas = false;
  // "node 'bn1' (BatchNormalization) computes statistics over ...".
  std::string ToString() const;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SHARDING_MIXING_NODE_H_
